"""Products of one matrix with several constant ones as one batched product, on GPUs.

    q, k, v = x Wq + bq, x Wk + bk, x Wv + bv    ->    y = x [Wq Wk Wv] + [bq bk bv], one batch entry each;  q, k, v = y[0], y[1], y[2]

Entries of a batch lie one behind the other, so that the parts are places in memory (`tec.graph.aliases`) and cost nothing. A network's step is as long as
its launches are many where products are small, and large ones share the last, partly filled round of work-groups. What follows a product and
would run in its kernel keeps it apart: only products whose results are read as they stand are joined.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ops.dims import is_symbolic
from ...ops.registry import COMPLEX, OPAQUE, VIEW
from ...records import dataclass
from ...target import Target
from ...te.numpy_dtype import np_dtype
from ..aliases import PIECE_ALIGN
from ..graph import Graph, Node, Value
from .rewrite import Rebuild, rebuild

_FEW_ROWS = 16  # below, products are sums of a thread or a work-group, and `find_projections` has joined what it could


@dataclass(eq=False)
class _BiasedProduct:
    """A product and the addition of its bias, if it has one."""

    product: Node
    bias: Value | None
    last: Node

    @property
    def columns(self) -> int:
        n: int = self.product.outputs[0].shape[1]
        return n


def join_siblings(graph: Graph, target: Target) -> Graph:
    """The graph with products of one matrix joined, where the target is a GPU."""
    if not target.is_gpu:
        return graph
    joined: dict[Node, list[_BiasedProduct]] = {}
    for some in _siblings(graph):
        joined.update((p.product, some) for p in some)
        joined.update((p.last, some) for p in some)
    if not joined:
        return graph
    made: dict[Node, Value] = {}

    def handle(b: Rebuild, node: Node) -> bool:
        some = joined.get(node)
        if some is None:
            return False
        first = some[0].product
        if first not in made:
            made[first] = _batched(b, some)
        for k, p in enumerate(some):
            if p.last is node:
                b.map[node.outputs[0]] = _part(b, made[first], k, node)
        return True

    return rebuild(graph, handle)


def _batched(b: Rebuild, some: list[_BiasedProduct]) -> Value:
    """The joined product with its biases."""
    first, x = some[0].product, b.value(some[0].product.inputs[0])
    weights = [p.product.inputs[1] for p in some]
    rows = b.new.add("reshape", [x], {"shape": (1, *x.shape)}, x.name)[0]
    w = b.new.constant(np.stack([np.asarray(v.data) for v in weights]), weights[0].name, weights[0].dtype)
    y = b.new.add("matmul", [rows, w], first.attrs, first.outputs[0].name, first.origin)[0]
    biases = [p.bias for p in some if p.bias is not None]
    if not biases:
        return y
    shape = 1, some[0].columns
    like = np.asarray(biases[0].data)
    parts = [np.zeros(shape, like.dtype) if p.bias is None else np.reshape(p.bias.data, shape) for p in some]
    bias = b.new.constant(np.stack(parts), biases[0].name, biases[0].dtype)
    last = next(p.last for p in some if p.bias is not None)
    return b.new.add("add", [y, bias], {}, last.outputs[0].name, last.origin)[0]


def _part(b: Rebuild, y: Value, k: int, node: Node) -> Value:
    out = node.outputs[0]
    attrs = {"starts": (k, 0, 0), "steps": (1, 1, 1), "sizes": (1, *out.shape)}
    part = b.new.add("slice", [y], attrs, out.name, node.origin)[0]
    return b.new.add("reshape", [part], {"shape": out.shape}, out.name)[0]


def _siblings(graph: Graph) -> list[list[_BiasedProduct]]:
    """Products to be joined, in order."""
    users, outputs = graph.users(), set(graph.outputs)
    found: dict[Any, list[_BiasedProduct]] = {}
    for n in graph.nodes:
        if not _is_plain(n):
            continue
        p = _with_bias(n, users, outputs)
        if p.last.outputs[0] not in outputs and _stands(p.last.outputs[0], users, outputs):
            w = n.inputs[1]
            key = n.inputs[0], w.shape, w.dtype, tuple(sorted((k, str(v)) for k, v in n.attrs.items()))
            found.setdefault(key, []).append(p)
    return [some for some in found.values() if len(some) > 1]


def _is_plain(n: Node) -> bool:
    """A product of a matrix and a constant one, as they lie."""
    if n.op != "matmul" or not n.inputs[1].is_known or n.inputs[0].is_known or "float" not in n.inputs[0].dtype:
        return False
    x, w = n.inputs
    y = n.outputs[0]
    if (x.ndim, w.ndim) != (2, 2) or is_symbolic(x.shape) or any(n.attrs.get(a) for a in ("view_a", "view_b", "layout_b", "transpose_a")):  # fmt: skip
        return False
    return bool(y.shape[0] >= _FEW_ROWS and y.type.size * np_dtype(y.dtype).itemsize % PIECE_ALIGN == 0)


def _with_bias(n: Node, users: dict[Value, list[Node]], outputs: set[Value]) -> _BiasedProduct:
    y = n.outputs[0]
    after = users.get(y, ())
    if y not in outputs and len(after) == 1 and after[0].op == "add":
        a, c = after[0].inputs
        bias = c if a is y else a
        if bias.is_known and bias.shape in ((y.shape[1],), (1, y.shape[1])) and bias.dtype == y.dtype:
            return _BiasedProduct(n, bias, after[0])
    return _BiasedProduct(n, None, n)


def _stands(v: Value, users: dict[Value, list[Node]], outputs: set[Value]) -> bool:
    """Whether all that reads a value, through views, reads it from memory."""
    for n in users.get(v, ()):
        if VIEW in n.definition.traits:
            if n.outputs[0] in outputs or not _stands(n.outputs[0], users, outputs):
                return False
        elif n.definition.kind not in (OPAQUE, COMPLEX):
            return False
    return True
