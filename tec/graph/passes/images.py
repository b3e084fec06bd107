"""Convolutions along one dimension as convolutions of images, so that layouts, templates and kernels of images serve them.

A signal (batch, channels, width) is an image of one row; so is an image of one column, which lies in memory alike. Both are reshapes, which move nothing.
Elementwise work between such convolutions stays on images. On a CPU images are one row too where no convolution of the graph sees more than one pixel: rows of nine
pixels fill half of a vector, and 81 pixels in a row nearly all of them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...ops.registry import SHAPED, WINDOWED
from ...target import Target
from ..graph import Graph, Node, Value
from .rewrite import Rebuild

_WINDOW = ("strides", "dilations", "before", "after")
_NONE = {"strides": 1, "dilations": 1, "before": 0, "after": 0}


class _Images(Rebuild):
    """`map` holds values in their own shape, `rows` their twins as images of one row; each is made from the other when asked for."""

    def __init__(self, graph: Graph):
        super().__init__(graph)
        self.rows: dict[Value, Value] = {}

    def value(self, v: Value) -> Value:
        if v not in self.map and v in self.rows:
            self.map[v] = self.new.add("reshape", [self.rows[v]], {"shape": v.shape}, v.name)[0]
        return super().value(v)

    def row(self, v: Value) -> Value:
        if v not in self.rows:
            self.rows[v] = self.new.add("reshape", [self.value(v)], {"shape": _row_shape(v)}, v.name)[0]
        return self.rows[v]


def _row_shape(v: Value) -> tuple[int, ...]:
    n, c, *space = v.shape
    return (n, c, 1, math.prod(space))


def signals_as_images(graph: Graph, target: Target) -> Graph:
    """The graph with its convolutions of signals, and of images of one column, as convolutions of images of one row; on a CPU those of single pixels too."""
    pixels = not target.is_gpu and _has_lone_pixels(graph)
    changed = {n for n in graph.nodes if _is_signal(n) or (pixels and n.op == "conv")}
    if not changed:
        return graph
    b = _Images(graph)
    for node in graph.nodes:
        if not (_conv(b, node) if node in changed else _follow(b, node)):
            b.copy(node)
    return b.finish()


def _has_lone_pixels(graph: Graph) -> bool:
    """Whether convolutions of images see one pixel each, all of them, and nothing else wants images in a layout of its own."""
    windows = [n for n in graph.nodes if n.op == "conv" or WINDOWED in n.definition.traits]
    return bool(windows) and all(map(_is_of_pixels, windows))


def _is_of_pixels(node: Node) -> bool:
    if node.op != "conv" or not node.inputs[1].is_known or node.inputs[0].ndim < 4 or "layouts" in node.attrs:
        return False
    x, w = node.inputs
    still = all(set(node.attrs[k]) == {n} for k, n in _NONE.items() if k != "dilations")
    return still and set(w.shape[2:]) == {1} and all(isinstance(n, int) for n in x.shape[2:])


def _is_signal(node: Node) -> bool:
    """Whether a convolution with constant weights runs along one dimension only, and that is not an image's width already."""
    if node.op != "conv" or not node.inputs[1].is_known:
        return False
    x, w = node.inputs
    if x.ndim == 3:
        return True
    if x.ndim != 4 or x.shape[3] != 1 or w.shape[3] != 1 or w.shape[2] == 1:
        return False
    return bool(node.attrs["before"][1] == node.attrs["after"][1] == 0)


def _conv(b: _Images, node: Node) -> bool:
    x, w = node.inputs
    out = node.outputs[0]
    data = np.asarray(w.data)
    weights = b.new.constant(data.reshape(*data.shape[:2], 1, math.prod(data.shape[2:])), w.name, w.dtype)
    attrs: dict[str, Any] = {**node.attrs, **{k: (_NONE[k], node.attrs[k][0]) for k in _WINDOW}}
    b.rows[out] = b.new.add("conv", [b.row(x), weights], attrs, out.name, node.origin)[0]
    return True


def _follow(b: _Images, node: Node) -> bool:
    """Elementwise work on what is an image of one row already stays there."""
    if (
        node.definition.kind not in ("elementwise", "broadcast")
        or SHAPED in node.definition.traits
        or len(node.outputs) != 1
    ):
        return False
    out = node.outputs[0]
    rows = [v for v in node.inputs if v in b.rows]
    if not rows or out.ndim < 3 or all(v.shape != out.shape for v in rows):
        return False
    operands: list[Value] = []
    for v in node.inputs:
        shape = (1,) * (out.ndim - v.ndim) + v.shape
        if v.shape == out.shape:
            operands.append(b.row(v))
        elif v.is_known and v.type.size == 1:
            operands.append(b.new.constant(np.asarray(v.data).reshape(()), v.name, v.dtype))
        elif v.is_known and shape[:2] == (1, out.shape[1]) and all(n == 1 for n in shape[2:]):
            operands.append(b.new.constant(np.asarray(v.data).reshape(1, -1, 1, 1), v.name, v.dtype))
        else:
            return False
    b.rows[out] = b.new.add(node.op, operands, node.attrs, out.name, node.origin)[0]
    return True
