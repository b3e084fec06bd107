"""One row through constant matrices on a GPU: products of one operand are one, with the norm before and the gate behind (`tec.ops.projection`).

A decoder's step is as long as its launches are many. Where a network has one row (a batch of one, a token at a time):

    q, k, v = h Wq, h Wk, h Wv      ->   slices of projection(x, g, [Wq Wk Wv])        h = x / sqrt(mean(x^2) + eps) * g
    silu(h W1) * (h W2)             ->   projection(x, g, [W1 W2], gate)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...target import Target
from ..graph import Graph, Node, Value
from .rewrite import Rebuild, rebuild

_PLAIN = ("transpose_a", "view_a", "view_b", "layout_b", "out_dtype")
_PACKED = ("bits", "block", "panel", "depth", "zero")


@dataclass
class _Projection:
    """Products of one row; the norm that made the row, and the gate that ends them."""

    products: list[Node]
    x: Value
    scale: Value | None = None
    eps: float | None = None
    gate: Node | None = None
    inside: list[Node] = field(default_factory=list)  # between products and gate
    made: Value | None = None


def find_projections(graph: Graph, target: Target) -> Graph:
    """The graph with its projections, where the target has a kernel for them."""
    if not target.is_gpu:
        return graph
    look = _Look(graph)
    found: dict[Node, _Projection] = {}
    for p in look.projections():
        found.update((n, p) for n in [*p.products, *p.inside, *([p.gate] if p.gate else [])])
    if not found:
        return graph

    def handle(b: Rebuild, node: Node) -> bool:
        p = found.get(node)
        if p is None:
            return False
        if p.made is None:
            p.made = _emit(b, p)
        if node is p.gate:
            out = node.outputs[0]
            b.map[out] = b.new.add("reshape", [p.made], {"shape": out.shape}, out.name)[0]
        elif p.gate is None:
            at = sum(n.outputs[0].shape[1] for n in p.products[: p.products.index(node)])
            out = node.outputs[0]
            if out.shape == p.made.shape:
                b.map[out] = p.made
            else:
                attrs = {"starts": (0, at), "steps": (1, 1), "sizes": out.shape}
                b.map[out] = b.new.add("slice", [p.made], attrs, out.name, node.origin)[0]
        return True

    return rebuild(graph, handle)


def _emit(b: Rebuild, p: _Projection) -> Value:
    first = p.products[0]
    inputs = [b.value(p.x)]
    if inputs[0].ndim != 2:
        inputs = b.new.add("reshape", inputs, {"shape": (1, p.x.shape[-1])}, p.x.name)
    attrs: dict[str, Any] = {"depth": p.x.shape[-1], "columns": sum(n.outputs[0].shape[1] for n in p.products)}
    if p.scale is not None:
        inputs.append(b.new.constant(np.reshape(p.scale.data, -1), p.scale.name, p.scale.dtype))
        attrs["eps"] = p.eps
    if p.gate is not None:
        attrs["gate"] = "silu"
    if first.op == "packed_matmul":
        attrs |= {a: first.attrs[a] for a in _PACKED if a in first.attrs}
        sides: list[list[Value]] = [n.inputs[1:] for n in p.products]
        for parts in zip(*sides):
            inputs.append(b.new.constant(np.concatenate([v.data for v in parts]), parts[0].name, parts[0].dtype))
    else:
        rows = [np.asarray(n.inputs[1].data) if n.attrs.get("transpose_b") else np.asarray(n.inputs[1].data).T for n in p.products]  # fmt: skip
        inputs.append(b.new.constant(np.concatenate(rows), first.inputs[1].name, first.inputs[1].dtype))
    return b.new.add("projection", inputs, attrs, first.outputs[0].name, first.origin)[0]


class _Look:
    """Finding, on the old graph."""

    def __init__(self, graph: Graph):
        self.graph, self.users, self.outputs = graph, graph.users(), set(graph.outputs)

    def projections(self) -> list[_Projection]:
        by_row: dict[tuple[Value, Any], list[Node]] = {}
        for n in self.graph.nodes:
            key = _kind(n)
            if key is not None:
                by_row.setdefault((_shown(n.inputs[0]), key), []).append(n)
        out = []
        for (row, _), nodes in by_row.items():
            p = _Projection(nodes, row)
            norm = self.norm(row)
            if norm is not None and all(r in nodes for r in self.readers(row)):
                p.x, p.scale, p.eps = norm
            if len(nodes) == 2:
                self.gate(p)
            if p.scale is not None or len(nodes) > 1:
                out.append(p)
        return out

    def readers(self, v: Value) -> list[Node]:
        """What reads a value, through reshapes."""
        found: list[Node] = []
        for n in self.users.get(v, ()):
            found += self.readers(n.outputs[0]) if n.op == "reshape" else [n]
        return found

    def only(self, v: Value, *ops: str) -> Node | None:
        """The one node that reads a value, through reshapes, where it is of one of these operators."""
        found = self.readers(v)
        return found[0] if len(found) == 1 and found[0].op in ops and v not in self.outputs else None

    def norm(self, row: Value) -> tuple[Value, Value, float] | None:
        """(x, scale, eps) where `row` is x / sqrt(mean(x^2) + eps) * scale."""
        last = row.node
        if last is None or last.op != "multiply" or row in self.outputs:
            return None
        scale, inner = _constant_first(last.inputs)
        if (
            scale is None
            or scale.type.size != row.shape[-1]
            or inner.node is None
            or inner.node.op not in ("multiply", "divide")
        ):
            return None  # fmt: skip
        for x, root in (inner.node.inputs, inner.node.inputs[::-1]):
            if (
                root.node is None
                or x.shape != row.shape
                or (inner.node.op == "divide" and root is not inner.node.inputs[1])
            ):
                continue  # fmt: skip
            n: Node | None = root.node
            if inner.node.op == "multiply":
                if n is None or n.op not in ("reciprocal", "rsqrt"):
                    continue
                n = n if n.op == "rsqrt" else n.inputs[0].node
            if n is None or n.op not in ("sqrt", "rsqrt") or n.inputs[0].node is None or n.inputs[0].node.op != "add":
                continue
            eps, mean = _constant_first(n.inputs[0].node.inputs)
            if eps is None or eps.type.size != 1 or mean.node is None or mean.node.op != "reduce_mean":
                continue
            axes = [a % row.ndim for a in mean.node.attrs["axes"]]
            square = mean.node.inputs[0].node
            if square is not None and square.op == "square" and square.inputs[0] is x and axes == [row.ndim - 1]:
                return x, scale, float(np.reshape(eps.data, ()))
        return None

    def gate(self, p: _Projection) -> None:
        """The gate that ends two products: a * sigmoid(a) * b."""
        if p.products[0].outputs[0].shape != p.products[1].outputs[0].shape:
            return
        for a, c in (p.products, p.products[::-1]):
            swish = self.swish(a.outputs[0])
            if swish is None:
                continue
            after = self.only(swish[-1].outputs[0], "multiply")
            if after is not None and after is self.only(c.outputs[0], "multiply"):
                p.products, p.gate = [a, c], after
                p.inside = [*swish, *self.reshapes(a.outputs[0]), *self.reshapes(c.outputs[0])]
                return

    def reshapes(self, v: Value) -> list[Node]:
        return [m for n in self.users.get(v, ()) if n.op == "reshape" for m in (n, *self.reshapes(n.outputs[0]))]

    def swish(self, v: Value) -> list[Node] | None:
        """The nodes of v * sigmoid(v), where nothing else reads v."""
        if v in self.outputs:
            return None
        found = self.readers(v)
        if len(found) == 1 and found[0].op == "silu" and found[0].attrs.get("alpha", 1.0) == 1.0:
            return found
        sigmoid = next((n for n in found if n.op == "sigmoid"), None)
        if len(found) != 2 or sigmoid is None:
            return None
        last = self.only(sigmoid.outputs[0], "multiply")
        return [sigmoid, last] if last is not None and last in found else None


def _kind(n: Node) -> Any:
    """What makes products one matrix; None for another node than a product of one row with a constant matrix."""
    if not n.inputs or n.inputs[0].shape[:-1] not in ((1,),) or not all(v.is_known for v in n.inputs[1:]):
        return None
    if n.op == "packed_matmul" and not n.attrs["panel"]:
        return n.op, len(n.inputs), *(n.attrs.get(a) for a in _PACKED), *(v.dtype for v in n.inputs)
    if (
        n.op == "matmul"
        and n.inputs[1].ndim == 2
        and not any(n.attrs.get(a) for a in _PLAIN)
        and "float" in n.inputs[0].dtype
    ):
        return n.op, n.inputs[1].dtype
    return None


def _shown(v: Value) -> Value:
    """What a reshape shows."""
    while v.node is not None and v.node.op == "reshape":
        v = v.node.inputs[0]
    return v


def _constant_first(pair: Sequence[Value]) -> tuple[Value | None, Value]:
    a, c = pair
    return (a, c) if a.is_known else (c, a) if c.is_known else (None, a)
