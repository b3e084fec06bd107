"""ONNX control flow, sequences and optionals. All of it is worked out while the model is taken in: a branch is chosen, a
loop unrolled, a sequence is a Python list. Conditions and trip counts that are not constant are asked for at run time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from tec import ImportModelError
from tec.graph import Value
from tec.graph.builders import axis_of

from . import reader
from .importer import Call, Outputs, onnx_op
from .ops_shape import concat_values

# Nodes that loops of known length may become: 20,000 compile in some 15 s, and time is linear.
MAX_UNROLLED = 40_000


@onnx_op("If")
def if_(c: Call) -> Outputs:
    branch = c.attr("then_branch") if _truth(c, c[0]) else c.attr("else_branch")
    return Outputs(c.importer.subgraph(branch, c, []))


def _truth(c: Call, value: Value) -> bool:
    return bool(np.asarray(c.importer.value_of(value, "a condition")).reshape(-1)[0])


@onnx_op("Loop")
def loop(c: Call) -> Outputs:
    body = c.attr("body")
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
    return concat_values(c, [c.unsqueeze(v, axis) for v in values], axis)


@onnx_op("Scan")
def scan(c: Call) -> Outputs:
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
    state, collected = _scan_steps(c, body, state, scanned, axes, back, outs)
    results = []
    for k, (values, axis, reverse) in enumerate(zip(collected, out_axes, out_back)):
        values = values[::-1] if reverse else values
        rank = values[0].ndim + 1 if values else 1
        results.append(_stack(c, values, body.output[len(state) + k], axis_of(axis, rank)))
    return Outputs([*state, *results])


def _scan_steps(
    c: Call, body: Any, state: list[Any], scanned: list[Any], axes: Any, back: Any, outs: int
) -> tuple[list[Any], list[list[Any]]]:
    steps = {v.shape[a] for v, a in zip(scanned, axes)}
    if len(steps) != 1:
        raise ImportModelError(f"Scan over inputs of different lengths {sorted(steps)}")
    n = steps.pop()
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
    """Opset 8: a leading batch dimension, and optional lengths as the first input."""
    inputs = list(c.inputs[1:])
    if c.has(0):
        raise ImportModelError("Scan-8 with lengths of its own is not supported")
    state, scanned = inputs[: len(inputs) - count], inputs[len(inputs) - count :]
    batch = scanned[0].shape[0]
    outs = len(body.output) - len(state)
    back = c.attr("directions", [0] * count)
    rows = []
    for b in range(batch):
        pick = [c.squeeze(c.slice(v, 0, b, 1), 0) for v in (*state, *scanned)]
        final, collected = _scan_steps(c, body, pick[: len(state)], pick[len(state) :], [0] * count, back, outs)
        rows.append([*final, *[_stack(c, v, body.output[len(state) + k]) for k, v in enumerate(collected)]])
    return Outputs([_stack(c, [r[k] for r in rows], None) for k in range(len(rows[0]))])


# ---- sequences: Python lists of values


def _list(c: Call, k: int) -> list[Any]:
    value = c.get(k)
    if not isinstance(value, list):
        raise ImportModelError(f"input {k} is no sequence")
    return value


def _index(c: Call, k: int, n: int, past_end: bool = False) -> int:
    i = int(np.asarray(c.array(k)).reshape(-1)[0])
    if not -n <= i < n + past_end:
        raise ImportModelError(f"index {i} of a sequence of {n}")
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
        raise ImportModelError(f"split of {x.type} along {axis} into {sizes}")
    parts = c.split(x, axis, sizes)
    return Outputs([[p if keep else c.squeeze(p, axis) for p in parts]])


@onnx_op("ConcatFromSequence")
def concat_from_sequence(c: Call) -> Value:
    values, axis = _list(c, 0), c.attr("axis")
    if c.attr("new_axis", 0):
        axis = axis_of(axis, values[0].ndim + 1)
        values = [c.unsqueeze(v, axis) for v in values]
    return concat_values(c, values, axis)


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
        raise ImportModelError("the element of an empty optional")
    return Outputs([c.get(0)])
