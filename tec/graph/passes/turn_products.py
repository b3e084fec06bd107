"""Products of few columns whose rows lie side by side, on CPUs, as the transposed products, whose columns are those rows:

    matmul(x[k, m], y[k, n], transpose_a)  ->  transpose(matmul(y, x, transpose_a))

Vectors of the result lie along its columns, which few do not fill, or along the sum, where an operand lies so. Here both operands lie across it. The transposed
product reads whole vectors of x, and its few rows share each; the copy that turns its small result follows the sum once.
"""

from __future__ import annotations

from ...ops.dims import is_symbolic
from ...target import Target
from ..graph import Graph, Node
from .rewrite import Rebuild, rebuild

_FEW = 8  # columns that fill no vector of AVX2
_LEAST_ROWS = 4  # that are worth vectors
_LEAST_TERMS = 16  # of a sum, beside which the copy is little


def turn_products(graph: Graph, target: Target) -> Graph:
    """The graph with such products transposed, of sizes that are numbers."""
    if target.is_gpu or not any(_is_across(n) for n in graph.nodes):
        return graph
    return rebuild(graph, lambda b, n: _is_across(n) and _turned(b, n))


def _is_across(node: Node) -> bool:
    if node.op != "matmul" or not node.attrs.get("transpose_a") or node.attrs.get("layout_b"):
        return False
    *_, m, n = node.outputs[0].shape
    k = node.inputs[0].shape[-2]
    if node.attrs.get("view_a") or node.attrs.get("view_b") or is_symbolic((m, n, k)):
        return False
    return bool(
        1 < n < min(m, _FEW)
        and m >= _LEAST_ROWS
        and k >= _LEAST_TERMS
        and node.outputs[0].dtype in ("float32", "float64")
    )


def _turned(b: Rebuild, node: Node) -> bool:
    x, y = (b.value(v) for v in node.inputs)
    out = node.outputs[0]
    attrs = {**node.attrs, "transpose_a": not node.attrs.get("transpose_b", False), "transpose_b": False}
    (made,) = b.new.add("matmul", [y, x], attrs, out.name, node.origin)
    order = (*range(out.ndim - 2), out.ndim - 1, out.ndim - 2)
    b.map[out] = b.new.add("transpose", [made], {"perm": order}, out.name, node.origin)[0]
    return True
