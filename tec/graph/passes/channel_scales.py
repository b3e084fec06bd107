"""Convolutions of one element a channel as what they are, products with a number a channel:

    conv(x, w)  of windows of one, a window a channel, all places    ->    x * w

As a convolution it would load a tile's weights for each of its rows and be a step of its own; the product joins what is elementwise around it.
"""

from __future__ import annotations

import math

from ...ops.dims import is_zero
from ..graph import Graph, Node
from .rewrite import Rebuild, rebuild

_FLOATS = ("float32", "float64", "float16", "bfloat16")


def channel_scales(graph: Graph) -> Graph:
    """The graph with such convolutions as products."""
    if not any(_is_scale(n) for n in graph.nodes):
        return graph

    def handle(b: Rebuild, node: Node) -> bool:
        if not _is_scale(node):
            return False
        x, w = (b.value(v) for v in node.inputs)
        (out,) = node.outputs
        scale = b.new.add("reshape", [w], {"shape": (w.shape[0], *[1] * (x.ndim - 2))}, w.name, node.origin)[0]
        b.map[out] = b.new.add("multiply", [x, scale], {}, out.name, node.origin)[0]
        return True

    return rebuild(graph, handle)


def _is_scale(node: Node) -> bool:
    if node.op != "conv" or len(node.inputs) != 2 or node.attrs.get("fill"):
        return False
    x, w = node.inputs
    a = node.attrs
    one_each = a["groups"] == x.shape[1] == w.shape[0] and math.prod(w.shape[1:]) == 1
    everywhere = all(s == 1 for s in a["strides"]) and all(map(is_zero, (*a["before"], *a["after"])))
    return bool(one_each and everywhere and x.dtype in _FLOATS and x.dtype == w.dtype == node.outputs[0].dtype)
