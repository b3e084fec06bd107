"""Scatters of whole rows, whose index was written once for each element, as such with an index a row:

    scatter_elements(x, broadcast_to(rows, update.shape), update, axis=0)   ->   scatter_nd(x, rows, update)

PyTorch's index_add, and the sums of messages of graph networks, are written so: the index would be stored for all elements, and each element would look for its own place.
"""

from __future__ import annotations

from ..graph import Graph, Node, Value
from .rewrite import Rebuild, rebuild


def scattered_rows(graph: Graph) -> Graph:
    """The graph with such scatters by rows."""
    if not any(_rows(n) for n in graph.nodes):
        return graph

    def handle(b: Rebuild, node: Node) -> bool:
        rows = _rows(node)
        if rows is None:
            return False
        x, _, update = node.inputs
        out = node.outputs[0]
        (line,) = b.new.add("reshape", [b.value(rows)], {"shape": (update.shape[0], 1)}, rows.name, node.origin)
        inputs = [b.value(x), line, b.value(update)]
        (b.map[out],) = b.new.add("scatter_nd", inputs, {"reduction": node.attrs.get("reduction", "none")}, out.name, node.origin)  # fmt: skip
        return True

    return rebuild(graph, handle)


def _rows(node: Node) -> Value | None:
    """The index of each row; None where elements of a row may go to several."""
    if node.op != "scatter_elements" or node.attrs.get("axis", 0) % max(1, node.inputs[0].ndim):
        return None
    x, index, update = node.inputs
    if x.ndim < 2 or x.shape[1:] != update.shape[1:] or index.node is None or index.node.op != "broadcast_to":
        return None
    (rows, *_) = index.node.inputs
    return rows if rows.shape == (index.shape[0], *[1] * (x.ndim - 1)) else None
