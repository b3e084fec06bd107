"""Taking a part out of a graph: what some values need, as a graph of its own."""

from __future__ import annotations

from collections.abc import Sequence

from .graph import Graph, Node, Value


def subgraph(graph: Graph, outputs: Sequence[Value]) -> Graph:
    """A copy of what `outputs` need. Inputs that are not needed are left out; a value that has become constant since its
    node was made is a constant there."""
    needed: set[Node] = set()
    stack = [v.node for v in outputs if v.node is not None and not v.is_const]
    while stack:
        node = stack.pop()
        if node not in needed:
            needed.add(node)
            stack.extend(v.node for v in node.inputs if v.node is not None and not v.is_const)
    nodes = [n for n in graph.nodes if n in needed]
    used = {v for n in nodes for v in n.inputs} | set(outputs)
    new = Graph(graph.name)
    new._names = dict(graph._names)
    new.guards = graph.guards
    copies: dict[Value, Value] = {}

    def copy(v: Value) -> Value:
        if v not in copies:
            copies[v] = v if v.is_const and v.node is None else Value(v.name, v.type, None, v.data)
        return copies[v]

    new.inputs = [copy(v) for v in graph.inputs if v in used and not v.is_const]
    for n in nodes:
        made = Node(n.op, [copy(v) for v in n.inputs], n.attrs, origin=n.origin)
        for v in n.outputs:
            copies[v] = Value(v.name, v.type, made)
        made.outputs = [copies[v] for v in n.outputs]
        new.nodes.append(made)
    new.set_outputs([copy(v) for v in outputs])
    return new
