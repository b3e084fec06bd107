"""How a reduction reads what it sums: along memory or across it, and whether its elements are one run."""

from __future__ import annotations

from ...ir import Expr, IntImm, Min, TensorRead, Var
from ...ir.arith import Analyzer
from ...ir.visit import free_vars, walk_exprs
from ...te import ComputeOp
from ..group import const_shape, size_of

LONG_RUN = 128  # elements: lines of what is summed


def most_read(red: ComputeOp) -> TensorRead | None:
    """The read of the largest tensor in a reduction's body."""
    reads = [e for b in red.body for e in walk_exprs(b) if isinstance(e, TensorRead) and e.indices]
    return max(reads, key=lambda e: size_of(e.tensor.shape) or (1 << 60), default=None)


def along(red: ComputeOp) -> bool:
    """Whether what is read most lies along the reduction: neighbours of memory go into one sum."""
    most = most_read(red)
    if most is None:
        return False
    inner = free_vars(most.indices[-1])
    summed = any(v is a.var for v in inner for a in red.reduce_axis)
    return summed and (not any(v is a.var for v in inner for a in red.axis) or _has_long_runs(most.indices[-1], red))


def reads_apart(red: ComputeOp, var: Var) -> list[bool]:
    """Of each tensor that a reduction reads, whether its elements for neighbouring values of `var` lie apart; False where they are one and the same."""
    found: dict[object, bool] = {}
    for read in (e for b in red.body for e in walk_exprs(b) if isinstance(e, TensorRead) and e.indices):
        *outer, last = read.indices
        among = Analyzer().detect_linear(last, [var])
        is_far = any(v is var for i in outer for v in free_vars(i))
        is_far |= any(v is var for v in free_vars(last)) and not (
            among is not None and isinstance(among[0], IntImm) and among[0].value == 1
        )
        found[read.tensor.op] = found.get(read.tensor.op, False) or is_far
    return list(found.values())


def _has_long_runs(index: Expr, red: ComputeOp) -> bool:
    """Whether one axis is both what is summed and what is kept: its elements in runs of a sum each, one run behind the other, and long ones (windows are short)."""
    if isinstance(index, Min) and isinstance(index.b, IntImm):  # the last run ends with the last element
        index = index.a
    axes = [*red.axis, *red.reduce_axis]
    found = Analyzer().detect_linear(index, [a.var for a in axes])
    if found is None or any(not isinstance(c, IntImm) for c in found):
        return False
    steps = [(a, c.value) for a, c in zip(axes, found) if isinstance(c, IntImm) and c.value]
    run = [a for a, c in steps if c == 1 and a in red.reduce_axis]
    length = run[0].dom.extent if len(run) == 1 and run[0].dom is not None else None
    if not isinstance(length, IntImm) or length.value < LONG_RUN:
        return False
    return all(c >= length.value for a, c in steps if a is not run[0])


def in_a_row(red: ComputeOp) -> bool:
    """Whether the elements of a sum lie one after another in what is read most: the reduction's axes are its last indices, whole and in order."""
    axes, most = list(red.reduce_axis), most_read(red)
    if most is None or len(most.indices) < len(axes):
        return False
    shape, last = const_shape(most.tensor), most.indices[-len(axes) :]
    extents = [a.dom.extent if a.dom is not None else None for a in axes]
    inner = zip(extents[1:], shape[len(shape) - len(axes) + 1 :])
    return all(i is a.var for i, a in zip(last, axes)) and all(type(e) is IntImm and e.value == n for e, n in inner)
