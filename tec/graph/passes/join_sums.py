"""A sum of two convolutions as one product: a residual block's last convolution and its shortcut's.

    (conv(x, wx) + bx) + (conv(y, wy) + by)  ->  conv_sum(x, y, [wx wy]) + (bx + by)

The result of neither is written and read again, and a launch is saved. Both are of constant weights, one pixel wide, and lie as matrices of pixels by channels
(`choose_layouts`); whether it pays is the templates' estimate (`choices.families.conv_sums`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...choices.families import conv_sums
from ...ops.conv_sum import EACH
from ...ops.dims import is_zero
from ...records import dataclass
from ...target import Target
from ..graph import Graph, Node, Value
from .rewrite import Rebuild, rebuild


@dataclass(eq=False)
class _Side:
    """An operand of the sum: a convolution, and the bias that is added to it, if one is."""

    conv: Node
    bias: Value | None
    nodes: tuple[Node, ...]


def join_sums(graph: Graph, target: Target) -> Graph:
    """The graph with pairs of added convolutions as one product each, where the target's templates expect to gain by it."""
    users, outputs = graph.users(), set(graph.outputs)
    sums: dict[Node, tuple[_Side, _Side]] = {}
    gone: set[Node] = set()
    for node in graph.nodes:
        sides = _sides(node, users, outputs)
        if sides is not None and _pays(sides, target):
            sums[node] = sides
            gone.update(n for s in sides for n in s.nodes)
    if not sums:
        return graph

    def handle(b: Rebuild, node: Node) -> bool:
        if node in gone:
            return True
        if node not in sums:
            return False
        out = node.outputs[0]
        made = _joined(b, sums[node], out)
        made.layout = out.layout
        b.map[out] = made
        return True

    return rebuild(graph, handle)


def _sides(node: Node, users: dict[Value, list[Node]], outputs: set[Value]) -> tuple[_Side, _Side] | None:
    if node.op != "add" or node.inputs[0] is node.inputs[1]:
        return None
    out = node.outputs[0]
    a, b = (_side(v, users, outputs) if v.type == out.type else None for v in node.inputs)
    if a is None or b is None:
        return None
    fits = a.conv.attrs["layouts"] == b.conv.attrs["layouts"] and a.conv.inputs[0].dtype == b.conv.inputs[0].dtype
    return (a, b) if fits else None


def _side(v: Value, users: dict[Value, list[Node]], outputs: set[Value]) -> _Side | None:
    """The convolution behind a value that nothing else reads."""

    def alone(v: Value) -> Node | None:
        return v.node if v not in outputs and len(users.get(v, ())) == 1 else None

    node = alone(v)
    if node is None:
        return None
    if node.op != "add":
        return _Side(node, None, (node,)) if _is_pointwise(node) else None
    for x, bias in (node.inputs, node.inputs[::-1]):
        if bias.is_known and x.shape == v.shape and bias.ndim and bias.type.size == v.shape[-1] == bias.shape[-1]:
            conv = alone(x)
            return _Side(conv, bias, (conv, node)) if conv is not None and _is_pointwise(conv) else None
    return None


def _is_pointwise(node: Node) -> bool:
    """A convolution of floats in one group, of one pixel each, as a product of pixels by channels."""
    if node.op != "conv" or not node.inputs[1].is_known or node.attrs.get("groups") != 1 or "space" not in node.attrs:
        return False
    x, w = node.inputs
    lx, _, ly = node.attrs["layouts"]
    if w.ndim != 2 or lx != ly or len(lx.dims) != 2 or lx.dims[1] != "C" or not x.dtype.startswith(("float", "bfloat")):
        return False
    plain = node.outputs[0].dtype == x.dtype == w.dtype
    return plain and math.prod(node.attrs["kernel"]) == 1 and all(map(is_zero, (*node.attrs["before"], *node.attrs["after"])))  # fmt: skip


def _pays(sides: tuple[_Side, _Side], target: Target) -> bool:
    pixels, channels = sides[0].conv.outputs[0].shape
    depths = [s.conv.inputs[1].shape[1] for s in sides]
    return conv_sums.pays(target, sides[0].conv.inputs[0].dtype, pixels, channels, depths)


def _joined(b: Rebuild, sides: tuple[_Side, _Side], out: Value) -> Value:
    convs = [s.conv for s in sides]
    first = convs[0]
    weights = [c.inputs[1] for c in convs]
    data: Any = np.concatenate([np.asarray(w.data) for w in weights], 1)
    w = b.new.constant(data, weights[0].name, weights[0].dtype)
    attrs = {k: tuple(tuple(c.attrs[k]) for c in convs) for k in EACH}
    operands = [*(b.value(c.inputs[0]) for c in convs), w]
    (y,) = b.new.add("conv_sum", operands, {**attrs, "layouts": first.attrs["layouts"]}, out.name, first.origin)
    biases = [s.bias for s in sides if s.bias is not None]
    if not biases:
        return y
    like = np.asarray(biases[0].data)
    total = sum(np.asarray(v.data, np.float64).reshape(1, -1) for v in biases)
    bias = b.new.constant(np.asarray(total).astype(like.dtype), biases[0].name, biases[0].dtype)
    return b.new.add("add", [y, bias], {}, out.name, first.origin)[0]
