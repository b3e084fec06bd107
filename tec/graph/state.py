"""State: inputs that are what an output was in the run before, such as a decoder's caches of keys and values.

In: a graph, and which output becomes which input. Out: the graph, where the concatenation of a cache and its new rows is an `append`: its
result lies in the memory of the input, of which the new rows alone are written (`runtime.networks.state`). The memory has room for
`capacity` rows along the axis that grows, so what reads a cache reads rows that lie apart (`strided`), those of loops and branches too. What
cannot gets a copy of them (`compact`).

Of a graph with `row_inputs` an input says where the new rows go, one int64: sizes are then the same from run to run while the memory has room. Of states of a size in
`windows` the rows that no new one reads any more are let go where there is no room.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ..errors import ImportModelError
from ..ops.dims import Dim, Size
from ..ops.registry import COLLECTIVE, normalize_axis
from ..runtime.plans.plan import State
from .graph import Graph, Node, Value
from .passes.rewrite import Rebuild, rebuild

# Values that are rows of a state's memory, or a part of another value's: the axis of the rows, and how many there is room for.
Rows = Mapping[Value, tuple[int, Size]]


def declare(graph: Graph, state: Mapping[str, str]) -> tuple[Graph, tuple[State, ...]]:
    """The graph and its states, for {input's name: output's name}. ImportModelError for what can be no state."""
    if not state:
        _check_written(graph, ())
        return graph, ()
    inputs = {v.name: v for v in graph.inputs}
    outputs = dict(zip(graph.output_names, graph.outputs))
    strange = next((n for n in graph.row_inputs.values() if n not in inputs), None)
    if strange is not None:
        raise ImportModelError(
            f"the model has no input {strange!r}, which says where states' new rows go",
            hint="the input's name as the model has it",
        )
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
                f"state: output {target!r}, {present.type}, cannot become input {source!r}, {past.type}",
                hint="an output of the input's type and number of dimensions",
            )
        if target in used:
            raise ImportModelError(
                f"state: output {target!r} becomes two inputs", hint="one input for each output in state="
            )
        used.add(target)
        axis = _grows(past, present)
        if axis is None:
            states.append(State(source, target))
            continue
        size = str(past.shape[axis])
        assert present.node is not None
        appends[present.node] = axis, size
        states.append(State(source, target, axis, _capacity(size), graph.windows.get(size, 0)))

    _check_written(graph, [outputs[s.output] for s in states if s.axis is None])

    def handle(b: Rebuild, node: Node) -> bool:
        if node not in appends:
            return False
        axis, size = appends[node]
        attrs = {"axis": axis, "capacity": Dim(_capacity(size))}
        place = [inputs[graph.row_inputs[size]]] if size in graph.row_inputs else []
        made = b.new.add(
            "append", [b.value(v) for v in (*node.inputs, *place)], attrs, node.outputs[0].name, node.origin
        )
        b.map[node.outputs[0]] = made[0]
        return True

    return rebuild(graph, handle), tuple(states)


def _capacity(size: str) -> str:
    """The name of how many rows states of a size have room for."""
    return f"{size}.capacity"


def written(node: Node | None) -> bool:
    """Whether what a node makes lies in the memory of its first input, some rows of which it writes."""
    return node is not None and node.op == "write_rows"


def _check_written(graph: Graph, kept: Collection[Value]) -> None:
    """Rows are written into a state that nothing else reads as it was. ImportModelError for others."""
    readers = graph.users()
    for node in graph.nodes:
        if not written(node):
            continue
        pool, out = node.inputs[0], node.outputs[0]
        if out not in kept or pool not in graph.inputs or len(readers.get(pool, ())) != 1:
            raise ImportModelError(
                f"rows are written into {pool.name!r}, which is no state that this alone reads",
                hint="state={input: output}",
            )


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


def strided(graph: Graph) -> Rows:
    """The values of a network's graph that are rows of a state's memory."""
    found: dict[Value, tuple[int, Size]] = {}
    for n in graph.nodes:
        if n.op == "append":
            found[n.inputs[0]] = found[n.outputs[0]] = n.attrs["axis"], n.attrs["capacity"]
    return found


def compact(graph: Graph, rows: Rows, kept: Collection[str] = ()) -> tuple[Graph, Rows]:
    """The graph where rows of a state that must lie one behind the other are copied: what a loop begins with and what it goes over, what ranks exchange, and outputs that
    are not named in `kept` (a state's own are in its memory). And the rows of the new graph."""
    if not rows:
        return graph, rows
    b = Rebuild(graph)
    copies: dict[Value, Value] = {}

    def copied(v: Value) -> Value:
        if v not in rows:
            return b.value(v)
        if v not in copies:  # of rows that lie apart a reshape is no view
            copies[v] = b.new.add("reshape", [b.value(v)], {"shape": v.shape}, v.name)[0]
        return copies[v]

    for node in graph.nodes:
        exchanged = COLLECTIVE in node.definition.traits
        if node.op != "loop" and not exchanged:
            b.copy(node)
            continue
        first = len(node.attrs.get("extras", ()))
        taken = range(1) if exchanged else range(first, first + node.attrs["states"] + len(node.attrs.get("rows", ())))
        inputs = [copied(v) if k in taken else b.value(v) for k, v in enumerate(node.inputs)]
        made = b.new.add(node.op, inputs, node.attrs, node.outputs[0].name, node.origin)
        b.map.update(zip(node.outputs, made))
    names = graph.output_names
    outputs = [b.value(v) if name in kept else copied(v) for v, name in zip(graph.outputs, names)]
    b.new.set_outputs(outputs, names)
    return b.new, {b.value(v): r for v, r in rows.items()}
