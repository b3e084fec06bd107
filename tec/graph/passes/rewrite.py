"""What graph passes share: building a changed copy of a graph node by node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from ...target import Target
from ..graph import Graph, Node, Value

OnTarget = Callable[[Graph, Target], Graph]


def where_priced(run: OnTarget) -> OnTarget:
    """A pass for machines whose prices tell its forms apart (`Machine.priced_by_model`). On others, whose prices were fitted to what clocks measured, the graph stays as it is."""

    @wraps(run)
    def guarded(graph: Graph, target: Target) -> Graph:
        return run(graph, target) if target.machine.priced_by_model else graph

    return guarded


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

    def cast(self, v: Value, dtype: str, name: str | None = None, origin: str = "") -> Value:
        """`v`, of the new graph, as `dtype`, under its own name or another one."""
        if v.dtype == dtype:
            return v
        return self.new.add("cast", [v], {"dtype": dtype}, v.name if name is None else name, origin)[0]

    def copy(self, node: Node) -> list[Value]:
        """The node, on new values."""
        outs = copied(self.new, node, [self.value(v) for v in node.inputs])
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


def copied(graph: Graph, node: Node, inputs: Sequence[Value]) -> list[Value]:
    """The outputs of a node of another graph in `graph`, on inputs that stand for its own. Types are inferred again only where those of the inputs have
    changed: passes copy most nodes as they are, and inference is most of what adding a node costs."""
    name = node.outputs[0].name
    if not all(map(_stands_for, inputs, node.inputs)):
        return graph.add(node.op, inputs, node.attrs, name, node.origin)
    attrs = {k: v for k, v in node.attrs.items() if v is not None}
    return graph.put(node.op, inputs, attrs, [v.type for v in node.outputs], name, node.origin)


def _stands_for(new: Value, old: Value) -> bool:
    """Whether what reads `new` in place of `old` is of the same type, and folds no more than before."""
    if new is old:
        return True
    is_number = new.is_const or (new.node is not None and new.node.op == "sizes")
    return not is_number and new.type == old.type


def const_of(v: Value) -> Any:
    """The array of a constant whose numbers are known, or None."""
    return v.data if v.is_known else None
