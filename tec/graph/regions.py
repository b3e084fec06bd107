"""Loops and branches in a graph: nodes whose attributes hold graphs of their own.

    loop    inputs: `extras` ("count": int64, "start": bool, one element each), states, rows to go over, captured values
            body: states, rows, captured values -> states, rows that are made, and "going" (bool) where the node has that
            outputs: the states after the last trip, and what the rows of all trips make up
    choose  inputs: a condition (bool), what the first body captures, what the second one does
            outputs: those of the body that is run

A captured value is one of the graph around, which the body reads: it is an input of both (`close`). The number of trips is a size ("trips"), a number that
is read when the loop begins ("count"), at most both, as long as "going" holds. Rows need a size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ImportModelError
from ..ops.dims import Dim
from ..ops.registry import OPAQUE, REGION, Attrs, TensorType, fail, register
from ..te.numpy_dtype import np_dtype
from .graph import Graph, Node, Value, bind_sizes, node_flops, run_graph

EXTRAS = ("count", "start")
_BODIES = {"loop": ("body",), "choose": ("then", "orelse")}


class Body:
    """A graph as an attribute. No two are alike, whatever they hold."""

    def __init__(self, graph: Graph):
        self.graph = graph

    def bound(self, env: dict[str, int]) -> Body:
        """With names of sizes replaced by numbers."""
        return Body(bind_sizes(self.graph, env))

    @property
    def flops(self) -> Any:
        return sum(map(node_flops, self.graph.nodes))

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        """Its outputs by the meaning of its operators."""
        return run_graph(self.graph, {v.name: a for v, a in zip(self.graph.inputs, arrays)})


def is_region(node: Node) -> bool:
    """Whether a node holds graphs."""
    return REGION in node.definition.traits


def bodies(node: Node) -> list[tuple[str, Graph]]:
    """A node's graphs by their attributes."""
    return [(k, node.attrs[k].graph) for k in _BODIES[node.op]]


def inner(outer: Graph, name: str) -> Graph:
    """An empty graph for a body, under the conditions of the one around."""
    g = Graph(name)
    g.guards = outer.guards
    return g


def close(body: Graph) -> list[Value]:
    """The values of other graphs that a body reads, which become inputs of it."""
    made = set(body.inputs) | {v for n in body.nodes for v in n.outputs}
    captured: dict[Value, Value] = {}

    def own(v: Value) -> Value:
        if v.is_const or v in made:
            return v
        if v not in captured:
            captured[v] = body.input(body.unique_name(v.name), v.dtype, v.shape)
        return captured[v]

    for n in body.nodes:
        n.inputs = [own(v) for v in n.inputs]
    body.outputs = [own(v) for v in body.outputs]
    return list(captured)


# ---- the operators


def _loop_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    body, states, extras = attrs["body"].graph, attrs["states"], attrs.get("extras", ())
    rows, made, trips = len(attrs.get("rows", ())), attrs.get("made", ()), attrs.get("trips")
    for name, t in zip(extras, types):
        if name not in EXTRAS or t.dtype != ("int64" if name == "count" else "bool") or t.size != 1:
            raise fail(f"a loop whose {name} is {t}")
    given, inputs = types[len(extras) :], [v.type for v in body.inputs]
    outputs = [v.type for v in body.outputs]
    going = bool(attrs.get("going"))
    size: Any = trips
    if (rows or made) and (trips is None or extras or going):
        raise fail("a loop over rows whose trips no size gives")
    if len(given) != len(inputs) or len(outputs) != states + len(made) + going or states + rows > len(inputs):
        raise fail(f"a loop of {len(given)} values whose body takes {len(inputs)} and gives {len(outputs)}")
    if going and (outputs[-1].dtype != "bool" or outputs[-1].size != 1):
        raise fail(f"a loop goes on while {outputs[-1]}")
    for k, (t, i) in enumerate(zip(given, inputs)):
        over = states <= k < states + rows
        if (t != TensorType(i.dtype, (size, *i.shape)) if over else t != i) or (k < states and outputs[k] != i):
            what = "goes over rows of" if over else "takes"
            raise fail(f"a loop {what} {t}, its body {i}" + (f", and gives {outputs[k]}" if k < states else ""))
    return [*outputs[:states], *(TensorType(t.dtype, (size, *t.shape)) for t in outputs[states : states + len(made)])]


def _loop_flops(types: Sequence[TensorType], outs: Sequence[TensorType], attrs: Attrs) -> Any:
    trips = attrs.get("trips")
    return attrs["body"].flops * (1 if trips is None else trips)


def _loop_host(attrs: Attrs, arrays: Sequence[Any], outs: Sequence[TensorType]) -> list[Any]:
    extras, states, made = attrs.get("extras", ()), attrs["states"], attrs.get("made", ())
    asked = dict(zip(extras, arrays))
    rows = attrs.get("rows", ())
    now, over, captured = np.split(np.arange(len(arrays)), [len(extras) + states, len(extras) + states + len(rows)])
    values = [arrays[k] for k in now[len(extras) :]]
    limits = [attrs.get("trips"), int(np.reshape(asked["count"], -1)[0]) if "count" in asked else None]
    trips = min((n for n in limits if n is not None), default=1 << 62)
    if limits[1] is not None and limits[1] < 0:
        raise fail(f"a loop is asked for {limits[1]} trips")
    if "start" in asked and not np.all(asked["start"]):
        trips = 0
    collected = [np.zeros(t.shape, np_dtype(t.dtype)) for t in outs[states:]]
    k = 0
    while k < trips:
        items = [arrays[i][trips - 1 - k if back else k] for i, back in zip(over, rows)]
        got = attrs["body"].run([*values, *items, *(arrays[i] for i in captured)])
        values = got[:states]
        for whole, back, x in zip(collected, made, got[states:]):
            whole[trips - 1 - k if back else k] = x
        k += 1
        if attrs.get("going") and not np.all(got[-1]):
            break
    return [*values, *collected]


def _choose_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    then, orelse = attrs["then"].graph, attrs["orelse"].graph
    outs = [v.type for v in then.outputs]
    if types[0].dtype != "bool" or types[0].size != 1:
        raise fail(f"a branch by {types[0]}")
    if outs != [v.type for v in orelse.outputs]:
        raise fail(
            f"branches that give {', '.join(map(str, outs))} and {', '.join(str(v.type) for v in orelse.outputs)}"
        )
    if list(types[1:]) != [v.type for v in (*then.inputs, *orelse.inputs)]:
        raise fail("branches that take other values than they are given")
    return outs


def _choose_flops(types: Sequence[TensorType], outs: Sequence[TensorType], attrs: Attrs) -> Any:
    counts = [attrs[k].flops for k in _BODIES["choose"]]
    return counts[0] if isinstance(counts[0], Dim) or isinstance(counts[1], Dim) else max(counts)


def _choose_host(attrs: Attrs, arrays: Sequence[Any], outs: Sequence[TensorType]) -> list[Any]:
    first = len(attrs["then"].graph.inputs)
    if np.all(arrays[0]):
        return attrs["then"].run(arrays[1 : 1 + first])  # type: ignore[no-any-return]
    return attrs["orelse"].run(arrays[1 + first :])  # type: ignore[no-any-return]


def _no_te(attrs: Attrs, inputs: Any, outputs: Any) -> Any:
    """Runs graphs of its own; see `tec.graph.regions`."""
    raise ImportModelError(
        "a loop or a branch is no computation of te",
        hint="compile the graph that holds it: its plan runs loops and branches",
    )


register("loop", OPAQUE, _loop_type, flops=_loop_flops, traits=(REGION,), host=_loop_host)(_no_te)
register("choose", OPAQUE, _choose_type, flops=_choose_flops, traits=(REGION,), host=_choose_host)(_no_te)
