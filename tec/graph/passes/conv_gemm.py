"""Convolutions as matrix products for GPUs: weights become a matrix once; the product reads the image through im2col tiles.

A product's output is flat in its pixels, (batch, channels, pixels); elementwise work that follows is done on the flat form, and
everything else sees it through a reshape, which costs nothing.
"""

from __future__ import annotations

import numpy as np

from ...ops import conv_gemm as _conv_gemm  # noqa: F401  (registers the operator)
from ...ops.registry import SHAPED
from ..graph import Graph, Node, Value
from .rewrite import Rebuild


class _Flat(Rebuild):
    """`map` holds values in their own shape, `flat` their flat twins; each is made from the other when asked for."""

    def __init__(self, graph: Graph):
        super().__init__(graph)
        self.flat: dict[Value, Value] = {}

    def value(self, v: Value) -> Value:
        if v not in self.map and v in self.flat:
            self.map[v] = self.new.add("reshape", [self.flat[v]], {"shape": v.shape}, v.name)[0]
        return super().value(v)

    def flattened(self, v: Value) -> Value:
        if v not in self.flat:
            self.flat[v] = self.new.add(
                "reshape", [self.value(v)], {"shape": (*v.shape[:2], v.shape[2] * v.shape[3])}, v.name
            )[0]
        return self.flat[v]


def conv_as_gemm(graph: Graph) -> Graph:
    """The graph with its 2-D convolutions of one group and constant weights as `conv_gemm`."""
    b = _Flat(graph)
    for node in graph.nodes:
        if not _convert(b, node) and not _follow(b, node):
            b.copy(node)
    return b.finish()


def _convert(b: _Flat, node: Node) -> bool:
    if node.op != "conv" or node.inputs[0].ndim != 4 or node.attrs["groups"] != 1 or not node.inputs[1].is_const:
        return False
    x, w = node.inputs
    if x.dtype != w.dtype or x.dtype not in ("float32", "float16", "bfloat16", "float64"):
        return False
    matrix = b.new.constant(np.asarray(w.data).reshape(w.shape[0], -1), w.name, w.dtype)
    attrs = {k: node.attrs[k] for k in ("strides", "dilations", "before", "after")}
    attrs["kernel"] = tuple(w.shape[2:])
    b.flat[node.outputs[0]] = b.new.add("conv_gemm", [b.value(x), matrix], attrs, node.outputs[0].name, node.origin)[0]
    return True


def _follow(b: _Flat, node: Node) -> bool:
    """Elementwise work on a flat value stays flat."""
    out = node.outputs[0]
    if (
        node.definition.kind not in ("elementwise", "broadcast")
        or SHAPED in node.definition.traits
        or out.ndim != 4
        or not any(v in b.flat for v in node.inputs)
    ):
        return False
    operands: list[Value] = []
    for v in node.inputs:
        shape = (1,) * (4 - v.ndim) + v.shape
        if v.shape == out.shape:
            operands.append(b.flattened(v))
        elif v.is_const and v.type.size == 1:
            operands.append(b.new.constant(np.asarray(v.data).reshape(()), v.name, v.dtype))
        elif v.is_const and shape == (1, out.shape[1], 1, 1):
            operands.append(b.new.constant(np.asarray(v.data).reshape(1, -1, 1), v.name, v.dtype))
        else:
            return False
    b.flat[out] = b.new.add(node.op, operands, node.attrs, out.name, node.origin)[0]
    return True
