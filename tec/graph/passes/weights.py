"""Constant operands of matrix products as a GPU reads them best: the summed dimension contiguous, turned round once here.

A matrix unit takes its elements along the sum. A constant B of [k, n] becomes [n, k] (and an A of [k, m] becomes [m, k]): it then
passes through shared memory in 16-byte pieces, and a product of few rows reads it in whole cache lines. Without a matrix
unit for the type, large products stay as they are: their columns are read side by side.
"""

from __future__ import annotations

import numpy as np

from ...ops.dims import typical
from ...target import Target
from ...te import intrin
from ..graph import Graph, Node, Value
from .rewrite import Rebuild, rebuild

FEW_ROWS = 8  # products with fewer rows or columns are sums, an output a thread or a work-group


def transpose_weights(graph: Graph, target: Target) -> Graph:
    """The graph with constant operands of `matmul` stored along the sum, where that helps on the target."""
    units = {i.in_dtype for i in intrin.shapes(target)}
    turned: dict[Value, Value] = {}

    def turn(b: Rebuild, v: Value) -> Value:
        if v not in turned:
            data = np.ascontiguousarray(np.asarray(v.data).swapaxes(-1, -2))
            turned[v] = b.new.constant(data, v.name, v.dtype)
        return turned[v]

    def handle(b: Rebuild, node: Node) -> bool:
        if node.op != "matmul" or not (node.inputs[0].dtype in units or _is_thin(node)):
            return False
        (x, y), attrs = node.inputs, dict(node.attrs)
        turn_a = x.is_const and attrs.get("transpose_a", False)
        turn_b = y.is_const and not attrs.get("transpose_b", False)
        if not turn_a and not turn_b:
            return False
        attrs["transpose_a"] = bool(attrs.get("transpose_a")) and not turn_a
        attrs["transpose_b"] = bool(attrs.get("transpose_b")) or turn_b
        operands = [turn(b, x) if turn_a else b.value(x), turn(b, y) if turn_b else b.value(y)]
        b.map[node.outputs[0]] = b.new.add("matmul", operands, attrs, node.outputs[0].name, node.origin)[0]
        return True

    return rebuild(graph, handle)


def _is_thin(node: Node) -> bool:
    return min(map(typical, node.outputs[0].shape[-2:])) < FEW_ROWS
