"""Concatenations of many values as a tree of smaller ones: each is one function, whose code and compile time grow with its inputs."""

from __future__ import annotations

from ..graph import Graph, Node
from .rewrite import Rebuild, rebuild

# Inputs of one concatenation. Its code chooses among them by nested conditions, which take time to prove apart that grows with
# the cube of their number: 0.1 s for 32, 15 s for 200. A level of the tree moves all bytes once more, so not fewer either.
WIDEST = 32


def split_concat(graph: Graph) -> Graph:
    """The graph with no concatenation of more than `WIDEST` values."""
    if all(n.op != "concat" or len(n.inputs) <= WIDEST for n in graph.nodes):
        return graph

    def handle(b: Rebuild, node: Node) -> bool:
        if node.op != "concat" or len(node.inputs) <= WIDEST:
            return False
        values = [b.value(v) for v in node.inputs]
        name = node.outputs[0].name
        while len(values) > 1:
            groups = [values[k : k + WIDEST] for k in range(0, len(values), WIDEST)]
            values = [g[0] if len(g) == 1 else b.new.add("concat", g, node.attrs, name, node.origin)[0] for g in groups]
        b.map[node.outputs[0]] = values[0]
        return True

    return rebuild(graph, handle)
