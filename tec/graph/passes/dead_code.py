"""Nodes that no output needs go away."""

from __future__ import annotations

from ..graph import Graph, Node


def dead_code(graph: Graph) -> Graph:
    """The graph without unused nodes (in place)."""
    needed: set[Node] = set()
    stack = [v.node for v in graph.outputs if v.node is not None]
    while stack:
        node = stack.pop()
        if node not in needed:
            needed.add(node)
            stack.extend(v.node for v in node.inputs if v.node is not None)
    if len(needed) != len(graph.nodes):
        graph.nodes = [n for n in graph.nodes if n in needed]
    return graph
