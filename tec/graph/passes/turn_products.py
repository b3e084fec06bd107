"""Products on CPUs whose operands lie so that the transposed products are quicker.

    matmul(x[k, m], y[k, n], transpose_a)  ->  transpose(matmul(y, x, transpose_a))      few columns n
    matmul(x[m, k], y[n, k], transpose_b)  ->  transpose(matmul(y, x, transpose_b))      few rows m

Vectors of the result lie along its columns, which few do not fill, or along the sum, where an operand lies so. In the first form both operands lie across it: the
transposed product reads whole vectors of x, and its few rows share each. In the second both lie along it, and the columns would want a copy of y, the larger operand, that lies across.
The copy that turns the small result follows the sum once.
"""

from __future__ import annotations

from ...ops.dims import is_symbolic
from ...target import Target
from ..graph import Graph, Node, Value
from .rewrite import Rebuild, rebuild

_FEW = 8  # columns that fill no vector of AVX2, and rows that sums along the operands serve
_LEAST_SIDE = 4  # rows, or columns, that are worth it
_LEAST_TERMS = 16  # of a sum, beside which the copy of the result is little
_LEAST_VECTORS = 64  # terms of a sum that lies along vectors, whose lanes meet at its end


def turn_products(graph: Graph, target: Target) -> Graph:
    """The graph with such products transposed, of sizes that are numbers."""
    if target.is_gpu or not any(_operands(n) for n in graph.nodes):
        return graph

    def handle(b: Rebuild, node: Node) -> bool:
        found = _operands(node)
        if found is None:
            return False
        x, y, attrs = found
        out = node.outputs[0]
        (made,) = b.new.add("matmul", [b.value(y), b.value(x)], {**node.attrs, **attrs}, out.name, node.origin)
        if 1 in out.shape[-2:]:
            (b.map[out],) = b.new.add("reshape", [made], {"shape": out.shape}, out.name, node.origin)
            return True
        order = (*range(out.ndim - 2), out.ndim - 1, out.ndim - 2)
        (b.map[out],) = b.new.add("transpose", [made], {"perm": order}, out.name, node.origin)
        return True

    return rebuild(graph, handle)


def _operands(node: Node) -> tuple[Value, Value, dict[str, bool]] | None:
    """The operands of a product that is turned, and how the transposed one reads them; None for others."""
    if node.op != "matmul" or any(map(node.attrs.get, ("layout_b", "view_a", "view_b"))):
        return None
    x, y = node.inputs
    out = node.outputs[0]
    *_, m, n = out.shape
    k = x.shape[-2 if node.attrs.get("transpose_a") else -1]
    if is_symbolic((*out.shape, k)) or out.dtype not in ("float32", "float64"):
        return None
    turned = bool(node.attrs.get("transpose_b"))
    if node.attrs.get("transpose_a"):
        if 1 < n < min(m, _FEW) and m >= _LEAST_SIDE and k >= _LEAST_TERMS:
            return x, y, {"transpose_a": not turned, "transpose_b": False}
        return None
    if not turned and y.node is not None and _swaps(y.node):
        y, turned = y.node.inputs[0], True
    if turned and not y.is_const and m <= _FEW and n >= max(m, _LEAST_SIDE) and k >= _LEAST_VECTORS:
        return x, y, {"transpose_a": False, "transpose_b": True}
    return None


def _swaps(node: Node) -> bool:
    """Whether a node transposes matrices."""
    if node.op != "transpose":
        return False
    rank = node.outputs[0].ndim
    return rank >= 2 and tuple(node.attrs["perm"]) == (*range(rank - 2), rank - 1, rank - 2)
