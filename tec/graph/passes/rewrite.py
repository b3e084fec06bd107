"""What graph passes share: building a changed copy of a graph node by node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..graph import Graph, Node, Value


class Rebuild:
    """A copy of a graph under construction. `value(v)` is what stands for an old value; constants stand for themselves."""

    def __init__(self, graph: Graph):
        self.old = graph
        self.new = Graph(graph.name)
        self.new.guards = graph.guards
        self.map: dict[Value, Value] = {}
        for v in graph.inputs:
            self.map[v] = self.new.input(v.name, v.dtype, v.shape)

    def value(self, v: Value) -> Value:
        return v if v.is_const and v not in self.map else self.map[v]

    def copy(self, node: Node) -> list[Value]:
        """The node, on new values."""
        outs = self.new.add_again(node, [self.value(v) for v in node.inputs])
        for old, new in zip(node.outputs, outs):
            self.map[old] = new
            if new.node is not None:
                new.layout = old.layout
        return outs

    def finish(self) -> Graph:
        self.new.set_outputs([self.value(v) for v in self.old.outputs], self.old.output_names)
        return self.new


def rebuild(graph: Graph, handle: Callable[[Rebuild, Node], bool]) -> Graph:
    """Each node in order: `handle` maps its outputs and says so, or the node is copied."""
    b = Rebuild(graph)
    for node in graph.nodes:
        if not handle(b, node):
            b.copy(node)
    return b.finish()


def const_of(v: Value) -> Any:
    """The array of a constant whose numbers are known, or None."""
    return v.data if v.is_known else None
