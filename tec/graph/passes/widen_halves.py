"""Convolutions and products of 16-bit floats on CPUs as such of float32 between conversions, where a core has no dot product of the type:

    conv(x, w)    ->  cast(conv(cast(x), cast(w)))
    matmul(x, y)  ->  cast(matmul(cast(x), cast(y)))

Sums are of float32 in any case, and so are the operands that a core multiplies. Written so the work has all layouts and templates of float32, chosen by their prices,
and each element is converted once: a register tile would convert each operand again at every multiplication. Products of few rows or columns stay, where vectors lie along
the sum or along columns. They read a matrix once, in half the bytes.
"""

from __future__ import annotations

import numpy as np

from ...target import Target
from ...te import intrin
from ..graph import Graph, Node, Value
from .rewrite import Rebuild, rebuild

_HALVES = ("float16", "bfloat16")
_LEAST_SIDE = 8  # rows and columns of a product: each element is multiplied so many times
_NOT_PLAIN = ("layouts", "layout_b", "out_dtype")


def _is_widened_product(node: Node) -> bool:
    """Of two sides that each element meets often; and of few columns where vectors of 16 bits have nothing to lie along: not the sum, by which A or B lies across, nor many rows."""
    sides = node.outputs[0].shape[-2:]
    if not all(isinstance(n, int) for n in sides):
        return False
    if min(sides) >= _LEAST_SIDE:
        return True
    rows, columns = sides
    across_a, across_b = node.attrs.get("transpose_a", False), columns > 1 and not node.attrs.get("transpose_b", False)
    return bool(columns < _LEAST_SIDE and ((across_a and rows > 1) or (across_b and rows < _LEAST_SIDE)))


def widen_halves(graph: Graph, target: Target) -> Graph:
    """The graph with such convolutions and products in float32."""

    def is_widened(node: Node) -> bool:
        if node.op not in ("conv", "matmul") or any(map(node.attrs.get, _NOT_PLAIN)):
            return False
        dtypes = {v.dtype for v in (*node.inputs, *node.outputs)}
        if len(dtypes) > 1 or not dtypes <= {*_HALVES} or intrin.vector_dot(target, node.outputs[0].dtype) is not None:
            return False
        return node.op == "conv" or _is_widened_product(node)

    if target.is_gpu or not any(map(is_widened, graph.nodes)):
        return graph
    wide: dict[Value, Value] = {}

    def widened(b: Rebuild, v: Value) -> Value:
        if v not in wide:
            if v.is_known:
                wide[v] = b.new.constant(np.asarray(v.data).astype(np.float32), v.name)
            else:
                wide[v] = b.cast(b.value(v), "float32", v.name)
        return wide[v]

    def handle(b: Rebuild, node: Node) -> bool:
        if not is_widened(node):
            return False
        out = node.outputs[0]
        (y,) = b.new.add(node.op, [widened(b, v) for v in node.inputs], node.attrs, out.name, node.origin)
        b.map[out] = b.cast(y, out.dtype, out.name, node.origin)
        return True

    return rebuild(graph, handle)
