"""Short work on constants, counters and inputs, and wider copies of values, are computed by each of their readers, in place of a launch of their own.

    t = cast(iota) * f; cos(t), sin(t)                ->   cos(cast(iota) * f), sin(cast(iota) * f)
    w = cast(x, "float32"); mean(w), w - mean(w)      ->   mean(cast(x)), cast(x) - mean(cast(x))

Fusion takes a value into its reader where it has one alone. On a GPU a launch takes a microsecond or more, in which such work could be done a thousand times over;
and a wider copy that is stored for several readers is more bytes to each of them than what it was made of.
"""

from __future__ import annotations

from ...ir.dtype import dtype_info
from ...ops.registry import BROADCAST, COSTLY, ELEMENTWISE, INJECTIVE, REDUCTION
from ...target import Target
from ..graph import Graph, Node, Value
from .rewrite import Rebuild, copied, rebuild

_KINDS = (ELEMENTWISE, BROADCAST, INJECTIVE)
_MOST_ELEMENTS = 4096  # of a value and of each reader: a few elements for each thread of one work-group
_MOST_READERS = 4
_MOST_NODES = 8  # that a value is made by: with those of four readers fewer than a fused group may have


def recompute_short(graph: Graph, target: Target) -> Graph:
    """The graph in which readers of such values have nodes of their own that make them; as it is on CPUs, where a call costs little."""
    if not target.is_gpu:
        return graph
    users, outputs = graph.users(), set(graph.outputs)
    sizes: dict[Node, int] = {}  # of nodes that may be made again: how many nodes make their value
    for n in graph.nodes:
        given = all(v.node is None or v.node in sizes for v in n.inputs)
        if given and _is_short(n) and COSTLY not in n.definition.traits:
            sizes[n] = 1 + sum(sizes[v.node] for v in n.inputs if v.node is not None)
    again = {
        n
        for n, count in sizes.items()
        if count <= _MOST_NODES
        and n.outputs[0] not in outputs
        and 1 < len(users.get(n.outputs[0], ())) <= _MOST_READERS
        and all(map(_is_short, users[n.outputs[0]]))
    }
    wider = {
        n
        for n in graph.nodes
        if n.op == "cast"
        and dtype_info(n.inputs[0].dtype).bytes < dtype_info(n.outputs[0].dtype).bytes
        and n.outputs[0] not in outputs
        and 1 < len(users.get(n.outputs[0], ())) <= _MOST_READERS
        and all(r.definition.kind in (ELEMENTWISE, BROADCAST, REDUCTION) for r in users[n.outputs[0]])
    } - again
    if not again and not wider:
        return graph

    def handle(b: Rebuild, node: Node) -> bool:
        if not any(v.node in again or v.node in wider for v in node.inputs):
            return False
        made: dict[Value, Value] = {}

        def remade(v: Value) -> Value:
            if v.node is None or v.node not in sizes:
                return b.value(v)
            if v not in made:
                made[v] = copied(b.new, v.node, [*map(remade, v.node.inputs)])[0]
            return made[v]

        def own(v: Value) -> Value:
            if v.node in again:
                return remade(v)
            if v.node in wider and v not in made:
                made[v] = copied(b.new, v.node, [*map(b.value, v.node.inputs)])[0]
            return made[v] if v in made else b.value(v)

        b.map.update(zip(node.outputs, copied(b.new, node, [*map(own, node.inputs)])))
        return True

    return rebuild(graph, handle)


def _is_short(node: Node) -> bool:
    """Whether a node makes few elements, each of a few others."""
    if node.definition.kind not in _KINDS or len(node.outputs) != 1:
        return False
    size = node.outputs[0].type.size
    return isinstance(size, int) and size <= _MOST_ELEMENTS
