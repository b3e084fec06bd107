"""Loops and branches: a body is built in a graph of its own, by a function that is given a builder for it.

What the body reads of the graph around needs no mention: it becomes an input of the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ops.dims import Size
from ..graph import Graph, Value
from ..regions import Body, close, inner
from .builder import Builder

# Given the builder of the body, the trip's number (int64), the states and a row of each value that is gone over: the next states, what the trip
# makes, and whether to go on (None: it does).
Step = Callable[[Builder, Value, list[Value], list[Value]], tuple[Sequence[Value], Sequence[Value], "Value | None"]]


def loop(
    b: Builder,
    step: Step,
    states: Sequence[Value],
    trips: Size | None = None,
    *,
    rows: Sequence[tuple[Value, bool]] = (),
    made: Sequence[bool] = (),
    count: Value | None = None,
    start: Value | None = None,
    inside: Callable[[Graph], Builder] | None = None,
) -> tuple[list[Value], list[Value]]:
    """(the states after the last trip, what the trips made, a row each).

    trips: a size, the most times; count: a value (int64, one element) that bounds them too; start: one (bool) without which there is no trip.
    rows: values whose rows along the first axis are gone over, and whether from the last one on; made: of each value that trips make, whether its
    rows come from the last one on. inside: makes the builder of the body.
    """
    body = inner(b.graph, f"{b.name or 'loop'}_body")
    new = Builder(body, b.name, b.origin) if inside is None else inside(body)
    number = body.input(body.unique_name("trip"), "int64", ())
    own = [body.input(body.unique_name(v.name), v.dtype, v.shape) for v in states]
    items = [body.input(body.unique_name(v.name), v.dtype, v.shape[1:]) for v, _ in rows]
    after, out, going = step(new, number, own, items)
    goes_on = going is not None and not (going.is_known and bool(np.all(going.data)))
    counts = any(v is number for n in body.nodes for v in n.inputs) or any(v is number for v in (*after, *out))
    outputs = [*after, *out, *([going] if going is not None and goes_on else [])]
    initial = list(states)
    if counts or not initial:  # a loop has a state at least, so that it is a node with an outcome
        outputs.insert(0, new.op("add", number, new.const(np.int64(1))))
        initial.insert(0, b.const(np.int64(0)))
    else:
        body.inputs.remove(number)
    body.set_outputs(outputs, [f"out{k}" for k in range(len(outputs))])
    captured = close(body)
    asked = {k: v for k, v in (("count", count), ("start", start)) if v is not None}
    results = b.ops(
        "loop", *asked.values(), *initial, *(v for v, _ in rows), *captured,
        body=Body(body), states=len(initial), rows=tuple(back for _, back in rows), made=tuple(made),
        trips=trips, extras=tuple(asked), going=goes_on,
    )  # fmt: skip
    results = results[len(initial) - len(states) :]
    return results[: len(states)], results[len(states) :]


def choose(
    b: Builder, condition: Value, then: Callable[[Graph], Sequence[Value]], orelse: Callable[[Graph], Sequence[Value]]
) -> list[Value]:
    """The values of one of two bodies, by a condition (bool, one element). Both give values of the same types; each is built in the graph that its
    function is given."""
    made: list[Graph] = []
    captured: list[Value] = []
    for name, build in (("then", then), ("else", orelse)):
        body = inner(b.graph, f"{b.name or 'branch'}_{name}")
        outputs: list[Any] = list(build(body))
        body.set_outputs(outputs, [f"out{k}" for k in range(len(outputs))])
        captured += close(body)
        made.append(body)
    return b.ops("choose", condition, *captured, then=Body(made[0]), orelse=Body(made[1]))
