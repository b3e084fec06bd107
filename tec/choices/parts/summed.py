"""How a reduction reads what it sums: along memory or across it, and whether its elements are one run."""

from __future__ import annotations

from ...ir import Add, Expr, IntImm, Min, TensorRead, Var
from ...ir.arith import Analyzer
from ...te import ComputeOp
from ..group import const_shape, extent_of, is_used, reads_of, size_of

LONG_RUN = 128  # elements: lines of what is summed


def most_read(red: ComputeOp) -> TensorRead | None:
    """The read of the largest tensor in a reduction's body."""
    return max(
        (e for e in reads_of(red) if e.indices), key=lambda e: size_of(e.tensor.shape) or (1 << 60), default=None
    )


def along(red: ComputeOp) -> bool:
    """Whether what is read most lies along the reduction: neighbours of memory go into one sum."""
    most = most_read(red)
    if most is None:
        return False
    last = most.indices[-1]
    if not any(is_used(a.var, last) for a in red.reduce_axis):
        return False
    return not any(is_used(a.var, last) for a in red.axis) or _has_long_runs(last, red)


def reads_apart(red: ComputeOp, var: Var) -> list[bool]:
    """Of each tensor that a reduction reads, whether its elements for neighbouring values of `var` lie apart; False where they are one and the same."""
    found: dict[object, bool] = {}
    for read in (e for e in reads_of(red) if e.indices):
        *outer, last = read.indices
        among = Analyzer().detect_linear(last, [var])
        is_next = among is not None and isinstance(among[0], IntImm) and among[0].value == 1
        is_far = is_used(var, *outer) or (is_used(var, last) and not is_next)
        found[read.tensor.op] = found.get(read.tensor.op, False) or is_far
    return list(found.values())


def reads_contiguously(op: ComputeOp, var: Var, directly: bool = False) -> bool:
    """Whether `var` stands in no index but the last of what is read; `directly`: as that index alone, and somewhere."""
    reads = [_trimmed(e) for e in reads_of(op)]
    if any(is_used(var, *at[:-1]) for at in reads):
        return False
    last = [at[-1] for at in reads if at and is_used(var, at[-1])]
    return not directly or (bool(last) and all(i is var for i in last))


def reads_across(op: ComputeOp) -> bool:
    """Whether neighbours of memory go into neighbouring sums: the last data axis stands in no index but the last, and its sums' elements are no long runs of their own."""
    return reads_contiguously(op, op.axis[-1].var) and not in_long_runs(op)


def in_long_runs(op: ComputeOp) -> bool:
    """Whether each sum has a long run of what is read most to itself, and its last axis goes along it."""
    most = most_read(op)
    return most is not None and len(op.reduce_axis) == 1 and _has_long_runs(most.indices[-1], op)


def _trimmed(e: TensorRead) -> list[Expr]:
    """The indices of a read without those of last dimensions of one place: what is ahead of them lies side by side."""
    at, shape = list(e.indices), list(const_shape(e.tensor))
    while len(at) > 1 and shape[-1] == 1:
        at.pop()
        shape.pop()
    return at


def _has_long_runs(index: Expr, red: ComputeOp) -> bool:
    """Whether one axis is both what is summed and what is kept: its elements in runs of a sum each, one run behind the other, and long ones (windows are short)."""
    start = index.a if isinstance(index, Add) else index
    if isinstance(start, Min) and isinstance(start.b, IntImm) and isinstance(index, Add):
        index = start.a + index.b  # the last run begins earlier
    axes = [*red.axis, *red.reduce_axis]
    found = Analyzer().detect_linear(index, [a.var for a in axes])
    if found is None or any(not isinstance(c, IntImm) for c in found):
        return False
    steps = [(a, c.value) for a, c in zip(axes, found) if isinstance(c, IntImm) and c.value]
    run = [a for a, c in steps if c == 1 and a in red.reduce_axis]
    length = extent_of(run[0]) if len(run) == 1 else None
    if length is None or length < LONG_RUN:
        return False
    return all(c >= length for a, c in steps if a is not run[0])


def run_between(red: ComputeOp) -> int | None:
    """Elements of the runs in which a sum's elements lie in what is read most, where its last indices are summed and those before them are kept: ([n, m, 7] -> [m]) has runs of 7. None
    where the sum is one run, or its last index is no axis of its own."""
    most = most_read(red)
    if most is None or in_a_row(red):
        return None
    summed = {a.var: extent_of(a) for a in red.reduce_axis}
    run = 1
    for at, (index, n) in enumerate(zip(reversed(most.indices), reversed(const_shape(most.tensor)))):
        if not isinstance(index, Var) or index not in summed:
            kept = any(index is a.var for a in red.axis)
            return run if at and kept else None
        if n is None or summed[index] != n:
            return None
        run *= n
    return None


def in_a_row(red: ComputeOp) -> bool:
    """Whether the elements of a sum lie one after another in what is read most: the reduction's axes are its last indices, whole and in order."""
    axes, most = list(red.reduce_axis), most_read(red)
    if most is None or len(most.indices) < len(axes):
        return False
    shape, last = const_shape(most.tensor), most.indices[-len(axes) :]
    inner = [extent_of(a) for a in axes[1:]]
    return (
        all(i is a.var for i, a in zip(last, axes))
        and None not in inner
        and inner == list(shape[len(shape) - len(axes) + 1 :])
    )
