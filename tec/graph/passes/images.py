"""Convolutions along one dimension as convolutions of images, so that layouts, templates and kernels of images serve them.

A signal (batch, channels, width) is an image of one row; so is an image of one column, which lies in memory alike. Both are reshapes, which move nothing.
Elementwise work between such convolutions stays on images.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ops.registry import SHAPED
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
    n, c, width, *_ = v.shape
    return (n, c, 1, width)


def signals_as_images(graph: Graph) -> Graph:
    """The graph with its convolutions of signals, and of images of one column, as convolutions of images of one row."""
    if not any(_is_signal(n) for n in graph.nodes):
        return graph
    b = _Images(graph)
    for node in graph.nodes:
        if not (_conv(b, node) if _is_signal(node) else _follow(b, node)):
            b.copy(node)
    return b.finish()


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
    weights = b.new.constant(data.reshape(*data.shape[:2], 1, data.shape[2]), w.name, w.dtype)
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
    if not any(v in b.rows for v in node.inputs) or out.ndim not in (3, 4) or (out.ndim == 4 and out.shape[3] != 1):
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
