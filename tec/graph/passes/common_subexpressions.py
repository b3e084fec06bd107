"""Equal nodes on equal values become one."""

from __future__ import annotations

from typing import Any

from ..graph import Graph, Node, Value
from .rewrite import Rebuild, rebuild


def common_subexpressions(graph: Graph) -> Graph:
    """A graph in which no two nodes have the same operator, attributes and inputs."""
    seen: dict[Any, list[Value]] = {}

    def handle(b: Rebuild, node: Node) -> bool:
        key = (node.op, repr(sorted(node.attrs.items())), tuple(id(b.value(v)) for v in node.inputs))
        outs = seen.get(key)
        if outs is None:
            seen[key] = b.copy(node)
        else:
            b.map.update(zip(node.outputs, outs))
        return True

    return rebuild(graph, handle)
