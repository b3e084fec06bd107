"""State: inputs that are what an output was in the run before, such as a decoder's caches of keys and values.

In: a graph, and which output becomes which input. Out: the graph, where the concatenation of a cache and its new rows is an `append`: its
result lies in the memory of the input, of which the new rows alone are written (`runtime.state`). The memory has room for
`capacity` rows along the axis that grows, so what reads a cache reads rows that lie apart (`strided`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import ImportModelError
from ..ops.dims import Dim
from ..ops.registry import normalize_axis
from ..runtime.plan import State
from .graph import Graph, Node, Value
from .passes.rewrite import Rebuild, rebuild


def declare(graph: Graph, state: Mapping[str, str]) -> tuple[Graph, tuple[State, ...]]:
    """The graph and its states, for {input's name: output's name}. ImportModelError for what can be no state."""
    if not state:
        return graph, ()
    inputs = {v.name: v for v in graph.inputs}
    outputs = dict(zip(graph.output_names, graph.outputs))
    appends: dict[Node, tuple[int, str]] = {}
    states: list[State] = []
    used: set[str] = set()
    for source, target in state.items():
        if source not in inputs or target not in outputs:
            missing, kind, known = (source, "input", inputs) if source not in inputs else (target, "output", outputs)
            raise ImportModelError(f"state: the model has no {kind} {missing!r}", hint=f"{kind}s: {', '.join(known)}")
        past, present = inputs[source], outputs[target]
        if past.dtype != present.dtype or past.ndim != present.ndim:
            raise ImportModelError(
                f"state: output {target!r}, {present.type}, cannot become input {source!r}, {past.type}"
            )
        if target in used:
            raise ImportModelError(f"state: output {target!r} becomes two inputs")
        used.add(target)
        axis = _grows(past, present)
        if axis is None:
            states.append(State(source, target))
            continue
        capacity = f"{past.shape[axis]}.capacity"
        assert present.node is not None
        appends[present.node] = axis, capacity
        states.append(State(source, target, axis, capacity))

    def handle(b: Rebuild, node: Node) -> bool:
        if node not in appends:
            return False
        axis, capacity = appends[node]
        attrs = {"axis": axis, "capacity": Dim(capacity)}
        made = b.new.add("append", [b.value(v) for v in node.inputs], attrs, node.outputs[0].name, node.origin)
        b.map[node.outputs[0]] = made[0]
        return True

    return rebuild(graph, handle), tuple(states)


def _grows(past: Value, present: Value) -> int | None:
    """The axis along which `present` is `past` and new rows behind it; None where it is made in another way."""
    node = present.node
    if node is None or node.op != "concat" or len(node.inputs) != 2 or node.inputs[0] is not past:
        return None
    axis = normalize_axis(node.attrs["axis"], past.ndim)
    size = past.shape[axis]
    alone = isinstance(size, Dim) and size.is_product and size.names() == {str(size)}
    return axis if alone and str(size) not in {n for d in _others(past, axis) for n in d.names()} else None


def _others(v: Value, axis: int) -> list[Any]:
    return [d for k, d in enumerate(v.shape) if k != axis and isinstance(d, Dim)]


def strided(graph: Graph) -> dict[Value, tuple[int, Dim]]:
    """The values that are rows of a state's memory: the axis of the rows, and how many there is room for."""
    found: dict[Value, tuple[int, Dim]] = {}
    for n in graph.nodes:
        if n.op == "append":
            found[n.inputs[0]] = found[n.outputs[0]] = n.attrs["axis"], n.attrs["capacity"]
    return found
