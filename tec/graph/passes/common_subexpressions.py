"""Equal nodes on equal values become one."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..graph import Graph, Node, Value
from .rewrite import Rebuild, rebuild

_SMALL = 16  # elements of a constant that is worth comparing


def common_subexpressions(graph: Graph) -> Graph:
    """A graph in which no two nodes have the same operator, attributes and inputs."""
    seen: dict[Any, list[Value]] = {}

    def identity(v: Value) -> Any:
        """Small constants are equal by what they hold."""
        if v.is_known and v.type.size <= _SMALL and v.dtype != "string":
            return v.type, np.asarray(v.data).tobytes()
        return id(v)

    def handle(b: Rebuild, node: Node) -> bool:
        key = (node.op, repr(sorted(node.attrs.items())), tuple(identity(b.value(v)) for v in node.inputs))
        outs = seen.get(key)
        if outs is None:
            seen[key] = b.copy(node)
        else:
            b.map.update(zip(node.outputs, outs))
        return True

    return rebuild(graph, handle)
