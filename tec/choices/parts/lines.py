"""How an elementwise stage reads: which of its axes are one line of memory, what is copied as it is, and what asks where in the result it stands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...ir import Call, Expr, FloatImm, IntImm, TensorRead, Var
from ...ir.arith import Analyzer
from ...ir.build import is_const
from ...ir.visit import children, free_vars, walk_exprs
from ...te import ComputeOp, Operation
from ..group import const_shape, is_used, reads_of, shape_key, size_of

_MOST_OF_AXIS = 8  # copies along an axis, whose lines a core has at hand


def is_moved(op: ComputeOp) -> bool:
    """Whether a stage copies elements as they are, of whatever operations it is made."""

    def moves(e: Expr) -> bool:
        if isinstance(e, Call) and e.op == "if_then_else":
            return all(map(moves, e.args[1:]))
        if not isinstance(e, TensorRead):
            return isinstance(e, (IntImm, FloatImm))
        inner = e.tensor.op
        return not isinstance(inner, ComputeOp) or bool(inner.reduce_axis) or is_moved(inner)

    return all(map(moves, op.body))


def repeated(op: ComputeOp) -> list[bool]:
    """Of each axis of a stage whether its few places are copies of each other: nothing of the stage depends on it."""
    used = {v for b in op.body for v in free_vars(b)}
    return [
        a.var not in used and n is not None and 1 < n <= _MOST_OF_AXIS
        for a, n in zip(op.axis, const_shape(op.output(0)))
    ]


def is_flat(op: ComputeOp) -> bool:
    """Whether all that a stage reads lies as its result does, or is one element for all of it: then neighbours of the result, of whatever rows, are neighbours there."""
    seen: set[Operation] = set()

    def places(t: ComputeOp) -> bool:
        if t in seen:
            return True
        seen.add(t)
        return all(
            flat(e, t) and (not isinstance(e.tensor.op, ComputeOp) or e.tensor.op.reduce_axis or places(e.tensor.op))
            for e in reads_of(t)
        )

    def flat(e: TensorRead, t: ComputeOp) -> bool:
        axes = [a.var for a in t.axis]
        if not any(v in axes for i in e.indices for v in free_vars(i)):
            return True
        if shape_key(e.tensor) == shape_key(t.output(0)) and all(i is v for i, v in zip(e.indices, axes)):
            return True
        if size_of(e.tensor.shape) is None or size_of(t.output(0).shape) != size_of(e.tensor.shape):
            return False
        analyzer = Analyzer()
        for a in t.axis:
            analyzer.bind(a.var, a.dom)
        return analyzer.can_prove_equal(
            _place(e.indices, const_shape(e.tensor)), _place(axes, const_shape(t.output(0)))
        )

    return places(op)


def asks_places(op: ComputeOp) -> bool:
    """Whether a stage computes with places in its result (a triangle's condition) beside those in what it reads: of one fused loop each is a division a vector."""
    own = {a.var for a in op.axis}

    def asks(e: Any) -> bool:
        return e in own if isinstance(e, Var) else not isinstance(e, TensorRead) and any(map(asks, children(e)))

    return any(map(asks, op.body))


def chooses(op: ComputeOp) -> bool:
    """Whether a stage, or what is inlined into it, asks where in its result it is (padding, concatenation), and reads side by side what lies so in the result."""
    asks, seen = False, set[Operation]()

    def is_side_by_side(t: ComputeOp) -> bool:
        nonlocal asks
        if t in seen:
            return True
        seen.add(t)
        own = [a.var for a in t.axis]
        asks |= any(
            isinstance(e, Call) and e.op == "if_then_else" and any(v in own for v in free_vars(e.args[0]))
            for b in t.body
            for e in walk_exprs(b)
        )
        reads = [e for b in t.body for e in _usual(b) if isinstance(e, TensorRead)]
        for e in reads:
            if not own:  # one element, which all read
                continue
            far = [v for i in e.indices[:-1] for v in free_vars(i)]
            last = e.indices[-1] if e.indices else None
            step = Analyzer().detect_linear(last, [own[-1]]) if last is not None else None
            apart = last is not None and (step is None or not (is_const(step[0], 0) or is_const(step[0], 1)))
            if any(v is own[-1] for v in far) or apart:
                return False
        inner = [e.tensor.op for e in reads if isinstance(e.tensor.op, ComputeOp) and not e.tensor.op.reduce_axis]
        return all(is_side_by_side(o) for o in inner)

    return bool(op.axis) and is_side_by_side(op) and asks


def _usual(root: Expr) -> list[Expr]:
    """The subexpressions of a value but for what stands at its edges: the other side of a choice that reads the same tensors as the first (a reflection, say)."""
    found: dict[int, Expr] = {}
    stack = [root]
    while stack:
        e = stack.pop()
        if id(e) in found:
            continue
        found[id(e)] = e
        below = children(e)
        if isinstance(e, Call) and e.op == "if_then_else":
            first, other = ({x.tensor for x in walk_exprs(side) if isinstance(x, TensorRead)} for side in e.args[1:])
            below = below[:2] if first == other else below
        stack.extend(below)
    return list(found.values())


def row_axes(op: ComputeOp) -> int:
    """How many of a stage's last axes are one line of memory in all that it reads, as they are in its result: 1 at least. What is computed of such an axis beside places
    in what is read (a condition, an index) keeps it apart."""
    # Axes of one element are nothing to step over.
    places = [k for k, n in enumerate(shape_key(op.output(0))) if n != 1]
    count = line(op)
    return len(op.axis) - places[-count] if 0 < count < len(places) else len(op.axis) if count else 1


def rows_of(op: ComputeOp) -> tuple[int, int, int] | None:
    """Of an elementwise stage, rows and their length, of axes that are one line of memory (`row_axes`), and how many of the rows differ in one axis alone; None where there
    is one row, or sizes are not known."""
    shape = const_shape(op.output(0))
    if op.reduce_axis or None in shape or op.num_outputs > 1 or not shape:
        return None
    sizes, count = [n or 0 for n in shape], row_axes(op)
    around, length = sizes[: len(sizes) - count], math.prod(sizes[len(sizes) - count :])
    near = next((n for n in reversed(around) if n > 1), 0)
    return (math.prod(around), length, near) if near and length and all(around) else None


def is_picked(op: ComputeOp) -> bool:
    """Whether a stage reads elements whose places along its last axis stand in a table, so that neighbours come one by one."""
    last = op.axis[-1].var if op.axis else None
    tables = [t for e in reads_of(op) for i in e.indices for t in walk_exprs(i) if isinstance(t, TensorRead)]
    return last is not None and any(is_used(last, *t.indices) for t in tables)


def line(op: ComputeOp) -> int:
    """`row_axes` of those that are more than one element, 0 where the last stands alone."""
    axes = [(a.var, n) for a, n in zip(op.axis, shape_key(op.output(0))) if n != 1]
    return min((_line_of(b, axes) for b in op.body), default=0)


def _line_of(e: Expr, axes: list[tuple[Any, Any]]) -> int:
    """The same of one expression, of axes with their extents, or those of open ones as text."""
    if not isinstance(e, TensorRead):
        below = children(e)
        if below:
            return min(_line_of(c, axes) for c in below)
        return next((k for k, (axis, _) in enumerate(reversed(axes)) if e is axis), len(axes))
    read = [(i, n) for i, n in zip(e.indices, shape_key(e.tensor)) if n != 1]
    used = [free_vars(i) for i, _ in read]
    count = unused = 0
    for k, (axis, size) in enumerate(reversed(axes), 1):
        if k > len(read) or read[-k][0] is not axis or sum(axis in u for u in used) > 1:
            break
        count = k
        if read[-k][1] != size:
            break
    while unused < len(axes) and not any(axes[-1 - unused][0] in u for u in used):
        unused += 1  # axes that the read has nothing to do with
    inner = e.tensor.op
    if count and isinstance(inner, ComputeOp) and not inner.reduce_axis:
        count = min(count, line(inner))
    return max(count, unused)


def _place(indices: Sequence[Any], shape: Sequence[int | None]) -> Any:
    """The flat place of an element."""
    at: Any = 0
    for i, n in zip(indices, shape):
        at = at * n + i
    return at
