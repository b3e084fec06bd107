"""ONNX control flow, sequences and optionals.

A loop whose states keep their types, and a branch whose two sides give the same types, become parts of the plan (`tec.graph.builders.control`):
conditions and trip counts are read when it runs. Short loops are unrolled, and so is what else there is: states that grow, sequences, which are Python lists
here, rows whose number a condition decides. Then conditions and counts must be constant, or a session gives their values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx

from tec import ImportModelError
from tec.graph import Graph, Value
from tec.graph.builders import Builder, axis_of, control
from tec.graph.fold_sizes import sizes_in
from tec.graph.regions import inner
from tec.ops.dims import UndecidedSize, as_size

from . import reader
from .importer import Call, NeedsValue, Outputs, onnx_op, sources

# Nodes that loops of known length may become: 20,000 compile in some 15 s, and time is linear.
MAX_UNROLLED = 40_000
# Of a loop of the plan that nothing else ends: minutes of the shortest body, and a count that is no mistake.
MOST_TRIPS = 1 << 31
MOST_UNROLLED_STEPS = 8  # of a loop that could be one of the plan: its steps then fuse with what is around


@onnx_op("If")
def if_(c: Call) -> Outputs:
    then, orelse, condition = c.attr("then_branch"), c.attr("else_branch"), c[0]
    if not condition.is_const and condition.type.size == 1:
        try:
            return Outputs(_branch(c, condition, then, orelse))
        except ImportModelError as error:
            why = error
            possible = _possible(c, condition, (then, orelse)) if c.importer.resolve is None else None
            if possible is not None:
                return Outputs(possible)
    else:
        why = None
    with _told(why):
        return Outputs(c.importer.subgraph(then if _truth(c, condition) else orelse, c, []))


def _truth(c: Call, value: Value) -> bool:
    return bool(np.asarray(c.importer.value_of(value, "a condition")).reshape(-1)[0])


@contextmanager
def _told(why: ImportModelError | None) -> Iterator[None]:
    """Where a loop or a branch needs a value that is not there, the error says why it could not be left to run time."""
    try:
        yield
    except NeedsValue as error:
        if why is None or isinstance(why, NeedsValue):
            raise
        raise NeedsValue(f"{error.message}; left to run time: {why.message}", error.inputs, hint=error.hint) from why


def _same_types(what: str, first: Sequence[Value], then: Sequence[Value]) -> None:
    """Hold a body's states against those of the step before."""
    for k, (n, v) in enumerate(zip(first, then)):
        if v.type != n.type:
            raise ImportModelError(
                f"{what} whose state {k} is {n.type} at first and {v.type} then",
                hint="cast or reshape it at the end of the body; tec_onnx.session(model) runs states that change",
            )


def _tensors(values: Sequence[Any], what: str) -> list[Value]:
    """Values of a body, all of which are tensors."""
    if not all(isinstance(v, Value) and v.dtype != "string" for v in values):
        raise ImportModelError(f"{what} of sequences, optionals or strings", hint="tec_onnx.session(model) takes them")
    return list(values)


def _branch(c: Call, condition: Value, then: Any, orelse: Any) -> list[Value]:
    """Both branches in the graph, of which one runs."""

    def take(branch: Any) -> Any:
        def build(body: Graph) -> list[Value]:
            with c.importer.inside(body):
                return _tensors(c.importer.subgraph(branch, c, []), "branches")

        return build

    with c.importer.trial():
        return control.choose(c, c.cast(condition, "bool"), take(then), take(orelse))


def _possible(c: Call, condition: Value, branches: Sequence[Any]) -> list[Value] | None:
    """The values of the one branch that can be taken in for these shapes, under the condition that it is the one that is chosen; None where there is
    no such one. (Models for two sample rates fit a frame of one of them.)"""
    wrong: list[ImportModelError | None] = []
    for branch in branches:
        body = inner(c.graph, "branch")
        try:
            with c.importer.trial(), c.importer.inside(body):
                _tensors(c.importer.subgraph(branch, c, []), "branches")
            wrong.append(None)
        except (NeedsValue, UndecidedSize):  # it may well be the one that is chosen
            return None
        except ImportModelError as error:
            wrong.append(error)
    if wrong.count(None) != 1:
        return None
    right = wrong.index(None)
    flag = c.cast(c.reshape(condition, ()), "bool")
    holds = flag if right == 0 else c.op("logical_not", flag)
    error = wrong[1 - right]
    assert error is not None
    text = f"{c.origin}: the {'else' if right == 0 else 'then'} branch cannot be run with inputs of these shapes: {error.message}"
    values = _tensors(c.importer.subgraph(branches[right], c, []), "branches")
    return [c.op("require", v, holds, text=text) for v in values]


@onnx_op("Loop")
def loop(c: Call) -> Outputs:
    body = c.attr("body")
    why = None
    if not c.has(0) and _never_stops(body) and (not c.has(1) or (c[1].is_const and _truth(c, c[1]))):
        endless = "a Loop without a trip count whose condition never changes: it does not end"
        raise ImportModelError(endless, hint="give it a trip count, or let its body compute the condition")
    if not _is_short(c, body):
        try:
            with c.importer.trial():
                return Outputs(_loop_of_plan(c, body))
        except ImportModelError as error:
            why = error
    with _told(why):
        return _unrolled(c, body)


def _trips(c: Call) -> Any:
    """The most trips: a size, a value that is read when it runs, or None."""
    if not c.has(0):
        return None
    count = c[0]
    if count.type.size != 1:
        raise ImportModelError(f"Loop: the trip count is {count.type}", hint="reshape it to one element")
    known = count.data if count.is_const else sizes_in(count)
    if known is None:
        return count
    trips = as_size(np.asarray(known).reshape(-1)[0])
    if isinstance(trips, int) and trips < 0:
        raise ImportModelError(f"Loop: {trips} trips", hint="0 or more: check the node that computes the number")
    return trips


def _is_short(c: Call, body: Any) -> bool:
    """Whether a Loop has a few trips, whatever comes."""
    trips = _trips(c)
    begins = not c.has(1) or c[1].is_const
    return begins and isinstance(trips, int) and trips <= MOST_UNROLLED_STEPS and _never_stops(body)


def _loop_of_plan(c: Call, body: Any) -> list[Value]:
    """A Loop that runs in the plan, its states of one type throughout."""
    trips, states = _trips(c), _tensors(c.inputs[2:], "a Loop")
    begins = c[1] if c.has(1) else None
    if begins is not None and begins.is_const:
        if not _truth(c, begins):
            trips = 0
        begins = None
    count = trips if isinstance(trips, Value) else None
    made = len(body.output) - 1 - len(states)
    if made and count is not None:
        raise NeedsValue("a Loop makes as many rows as its trip count says", sources(count))
    if made and begins is not None:
        raise NeedsValue("a Loop makes rows if its condition holds at first", sources(begins))

    def step(b: Builder, number: Value, now: list[Value], _: list[Value]) -> Any:
        with c.importer.inside(b.graph):
            inputs = [number, b.const(np.asarray(True)), *now]
            going, *out = _tensors(c.importer.subgraph(body, c, inputs[: len(body.input)]), "a Loop")
        _same_types("a Loop", now, out)
        return out[: len(states)], out[len(states) :], b.cast(going, "bool")

    bound = None if isinstance(trips, Value) else trips
    if isinstance(bound, int) and bound >= MOST_TRIPS:
        if _never_stops(body):
            raise ImportModelError(
                f"a Loop of {bound} trips", hint="a trip count below 2^31, or a condition that ends it"
            )
        bound = None  # the condition ends it
    if made and not _never_stops(body):
        raise NeedsValue("a Loop makes as many rows as its condition lets it")
    final, rows = control.loop(
        c,
        step,
        states,
        bound,
        made=[False] * made,
        count=None if count is None else c.cast(count, "int64"),
        start=None if begins is None else c.cast(begins, "bool"),
    )
    return [*final, *rows]


def _unrolled(c: Call, body: Any) -> Outputs:
    """A Loop as the nodes of all its trips: a few, or states that change their types."""
    trips = int(np.asarray(c.array(0)).reshape(-1)[0]) if c.has(0) else None
    going = _truth(c, c[1]) if c.has(1) else True
    carried = list(c.inputs[2:])
    scans: list[list[Value]] = [[] for _ in range(len(body.output) - 1 - len(carried))]
    nodes = max(len(body.node), 1)
    if going and trips is not None and _never_stops(body):
        check_unrolled(c, trips, nodes)
    step = 0
    while going and (trips is None or step < trips):
        check_unrolled(c, step, nodes)
        inputs = [c.const(np.int64(step)), c.const(np.asarray(True)), *carried]
        out = c.importer.subgraph(body, c, inputs[: len(body.input)])
        carried = out[1 : 1 + len(carried)]
        for collected, v in zip(scans, out[1 + len(carried) :]):
            collected.append(v)
        step += 1
        if trips is None or step < trips:
            going = _truth(c, out[0])
    return Outputs([*carried, *[_stack(c, s, body.output[1 + len(carried) + k]) for k, s in enumerate(scans)]])


def _never_stops(body: onnx.GraphProto) -> bool:
    """Whether a Loop's condition stays what it was: its body hands it on, or makes a constant of it."""
    made = {o: n for n in body.node for o in n.output}
    name = body.output[0].name
    while name in made and made[name].op_type == "Identity":
        name = made[name].input[0]
    fixed = name in {t.name for t in body.initializer} or (name in made and made[name].op_type == "Constant")
    return fixed or (len(body.input) > 1 and name == body.input[1].name)


def check_unrolled(c: Call, steps: int, nodes: int) -> None:
    """ImportModelError where a loop would become more nodes than is sensible."""
    if steps * nodes > MAX_UNROLLED:
        raise ImportModelError(
            f"a {c.op_type} of {steps} steps of {nodes} nodes: it is unrolled, to no more than {MAX_UNROLLED} nodes in all",
            hint="take the loop out of the model and call the compiled body in it",
        )


def _stack(c: Call, values: Sequence[Value], info: Any, axis: int = 0) -> Value:
    """Values of one shape along a new dimension; an empty one where there are none."""
    if not values:
        t = info.type.tensor_type
        shape = [d.dim_value for d in t.shape.dim]
        return c.const(np.zeros([0, *shape]), reader.dtype_name(t.elem_type))
    return c.stack(values, axis)


@onnx_op("Scan")
def scan(c: Call) -> Outputs:
    """A Scan as a loop of the plan where it runs over more than a few rows; else, or where that cannot be, its body once a row."""
    body = c.attr("body")
    count = c.attr("num_scan_inputs")
    inputs = list(c.inputs)
    if c.opset < 9:
        return _scan_8(c, body, count)
    state, scanned = inputs[: len(inputs) - count], inputs[len(inputs) - count :]
    axes = c.attr("scan_input_axes", [0] * count)
    back = c.attr("scan_input_directions", [0] * count)
    outs = len(body.output) - len(state)
    out_axes = c.attr("scan_output_axes", [0] * outs)
    out_back = c.attr("scan_output_directions", [0] * outs)
    if not _few_rows(scanned, axes):
        try:
            with c.importer.trial():
                return Outputs(_scan_of_plan(c, body, state, scanned, axes, back, out_axes, out_back))
        except ImportModelError as error:
            if not isinstance(_rows_of(scanned, axes), int):
                raise ImportModelError(
                    f"a Scan over an open number of rows: {error.message}", hint=error.hint
                ) from error
    state, collected = _scan_steps(c, body, state, scanned, axes, back, outs)
    results = []
    for k, (values, axis, reverse) in enumerate(zip(collected, out_axes, out_back)):
        values = values[::-1] if reverse else values
        rank = values[0].ndim + 1 if values else 1
        results.append(_stack(c, values, body.output[len(state) + k], axis_of(axis, rank)))
    return Outputs([*state, *results])


def _rows_of(scanned: Sequence[Value], axes: Sequence[int]) -> Any:
    """How many rows a Scan goes over."""
    if not scanned:
        raise ImportModelError("a Scan over nothing", hint="num_scan_inputs is 1 or more; a Loop goes over nothing")
    steps = {v.shape[axis_of(a, v.ndim)] for v, a in zip(scanned, axes)}
    if len(steps) != 1:
        different = f"Scan over inputs of different lengths {sorted(map(str, steps))}"
        raise ImportModelError(different, hint="check scan_input_axes, or cut the longer inputs")
    return steps.pop()


def _few_rows(scanned: Sequence[Value], axes: Sequence[int]) -> bool:
    n = _rows_of(scanned, axes)
    return isinstance(n, int) and n <= MOST_UNROLLED_STEPS


def _scan_of_plan(
    c: Call, body: Any, state: list[Any], scanned: list[Any], axes: Any, back: Any, out_axes: Any, out_back: Any
) -> list[Value]:
    """A Scan that runs in the plan."""

    def front(v: Value, axis: int) -> Value:
        axis = axis_of(axis, v.ndim)
        return c.transpose(v, [axis, *(k for k in range(v.ndim) if k != axis)])

    def step(b: Builder, _: Value, now: list[Value], items: list[Value]) -> Any:
        with c.importer.inside(b.graph):
            out = _tensors(c.importer.subgraph(body, c, [*now, *items]), "a Scan")
        _same_types("a Scan", now, out)
        return out[: len(now)], out[len(now) :], None

    rows = [(front(v, a), bool(r)) for v, a, r in zip(_tensors(scanned, "a Scan"), axes, back)]
    trips = _rows_of(scanned, axes)
    final, made = control.loop(c, step, _tensors(state, "a Scan"), trips, rows=rows, made=[bool(r) for r in out_back])
    results = []
    for v, a in zip(made, out_axes):
        axis = axis_of(a, v.ndim)
        results.append(c.transpose(v, [*range(1, axis + 1), 0, *range(axis + 1, v.ndim)]))
    return [*final, *results]


def _scan_steps(
    c: Call, body: Any, state: list[Any], scanned: list[Any], axes: Any, back: Any, outs: int
) -> tuple[list[Any], list[list[Any]]]:
    n = _rows_of(scanned, axes)
    check_unrolled(c, n, max(len(body.node), 1))
    collected: list[list[Any]] = [[] for _ in range(outs)]
    for t in range(n):
        now = [c.squeeze(c.slice(v, a, n - 1 - t if r else t, 1), a) for v, a, r in zip(scanned, axes, back)]
        out = c.importer.subgraph(body, c, [*state, *now])
        state = out[: len(state)]
        for values, v in zip(collected, out[len(state) :]):
            values.append(v)
    return state, collected


def _scan_8(c: Call, body: Any, count: int) -> Outputs:
    """Opset 8: a leading batch dimension, and optional lengths of the entries as the first input."""
    inputs = list(c.inputs[1:])
    state, scanned = inputs[: len(inputs) - count], inputs[len(inputs) - count :]
    batch = scanned[0].shape[0]
    outs = len(body.output) - len(state)
    back = c.attr("directions", [0] * count)
    lengths = c.cast(c[0], "int64") if c.has(0) else None
    rows = []
    for b in range(batch):
        pick = [c.squeeze(c.slice(v, 0, b, 1), 0) for v in (*state, *scanned)]
        first, given = pick[: len(state)], pick[len(state) :]
        if lengths is None:
            final, collected = _scan_steps(c, body, first, given, [0] * count, back, outs)
        else:
            final, collected = _scan_to_length(c, body, first, given, back, outs, c.take(lengths, 0, b))
        rows.append([*final, *[_stack(c, v, body.output[len(state) + k]) for k, v in enumerate(collected)]])
    return Outputs([_stack(c, [r[k] for r in rows], None) for k in range(len(rows[0]))])


def _scan_to_length(
    c: Call, body: Any, state: list[Value], scanned: list[Value], back: Sequence[int], outs: int, length: Value
) -> tuple[list[Value], list[list[Value]]]:
    """The first `length` steps of one batch entry: states stay as they are behind it, rows of outputs are zeros, and a reversed input begins at its last row."""
    n = _rows_of(scanned, [0] * len(scanned))
    check_unrolled(c, n, max(len(body.node), 1))
    collected: list[list[Value]] = [[] for _ in range(outs)]
    for t in range(n):
        step = c.const(np.int64(t))
        live = c.op("less", step, length)
        last = c.op("subtract", c.op("subtract", length, c.const(np.int64(1))), step)
        row = {0: step, 1: c.op("maximum", last, c.const(np.int64(0)))}
        now = [c.op("gather", v, row[int(r)], axis=0) for v, r in zip(scanned, back)]
        out = _tensors(c.importer.subgraph(body, c, [*state, *now]), "a Scan")
        state = [c.op("where", live, new, old) for new, old in zip(out, state)]
        for values, v in zip(collected, out[len(state) :]):
            values.append(c.op("where", live, v, c.like(0, v)))
    return state, collected


# ---- sequences: Python lists of values


def _list(c: Call, k: int) -> list[Any]:
    value = c.get(k)
    if not isinstance(value, list):
        raise ImportModelError(f"input {k} is no sequence", hint="SequenceConstruct makes one of tensors")
    return value


def _index(c: Call, k: int, n: int, past_end: bool = False) -> int:
    i = int(np.asarray(c.array(k)).reshape(-1)[0])
    if not -n <= i < n + past_end:
        places = f"positions go from {-n} to {n - 1 + past_end}" if n + past_end else "it is empty"
        raise ImportModelError(f"index {i} of a sequence of {n}", hint=places)
    return i + n if i < 0 else i


@onnx_op("SequenceEmpty")
def sequence_empty(c: Call) -> Outputs:
    return Outputs([[]])


@onnx_op("SequenceConstruct")
def sequence_construct(c: Call) -> Outputs:
    return Outputs([list(c.inputs)])


@onnx_op("SequenceInsert")
def sequence_insert(c: Call) -> Outputs:
    values = list(_list(c, 0))
    at = _index(c, 2, len(values), True) if c.has(2) else len(values)
    values.insert(at, c[1])
    return Outputs([values])


@onnx_op("SequenceErase")
def sequence_erase(c: Call) -> Outputs:
    values = list(_list(c, 0))
    del values[_index(c, 1, len(values)) if c.has(1) else -1]
    return Outputs([values])


@onnx_op("SequenceAt")
def sequence_at(c: Call) -> Any:
    values = _list(c, 0)
    return values[_index(c, 1, len(values))]


@onnx_op("SequenceLength")
def sequence_length(c: Call) -> Value:
    return c.const(np.int64(len(_list(c, 0))))


@onnx_op("SplitToSequence")
def split_to_sequence(c: Call) -> Outputs:
    x = c[0]
    axis = axis_of(c.attr("axis", 0), x.ndim)
    n = x.shape[axis]
    keep = True
    if not c.has(1):
        sizes, keep = [1] * n, bool(c.attr("keepdims", 1))
    else:
        given = np.asarray(c.array(1))
        if given.ndim:
            sizes = [int(s) for s in given]
        else:
            step = int(given)
            sizes = [min(step, n - b) for b in range(0, n, step)]
    if sum(sizes) != n:
        raise ImportModelError(f"split of {x.type} along {axis} into {sizes}", hint=f"the parts must add up to {n}")
    parts = c.split(x, axis, sizes)
    return Outputs([[p if keep else c.squeeze(p, axis) for p in parts]])


@onnx_op("ConcatFromSequence")
def concat_from_sequence(c: Call) -> Value:
    values, axis = _list(c, 0), c.attr("axis")
    if c.attr("new_axis", 0):
        axis = axis_of(axis, values[0].ndim + 1)
        values = [c.unsqueeze(v, axis) for v in values]
    return c.concat(values, axis)


@onnx_op("SequenceMap")
def sequence_map(c: Call) -> Outputs:
    body = c.attr("body")
    first = _list(c, 0)
    results: list[list[Any]] = [[] for _ in body.output]
    for k in range(len(first)):
        inputs = [v[k] if isinstance(v, list) else v for v in c.inputs]
        for collected, v in zip(results, c.importer.subgraph(body, c, inputs)):
            collected.append(v)
    return Outputs(results)


# ---- optionals: the value itself, or None


@onnx_op("Optional")
def optional(c: Call) -> Outputs:
    return Outputs([c.get(0)])


@onnx_op("OptionalHasElement")
def optional_has_element(c: Call) -> Value:
    return c.const(np.asarray(c.get(0) is not None))


@onnx_op("OptionalGetElement")
def optional_get_element(c: Call) -> Outputs:
    if c.get(0) is None:
        raise ImportModelError("the element of an empty optional", hint="ask OptionalHasElement first, in an If")
    return Outputs([c.get(0)])
