"""Loops of sums on a GPU: a thread an output, the threads of a work-group for one or for neighbouring ones, sums in parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ...ir import IterVar
from ...ir.dtype import dtype_info
from ...schedule import Schedule
from ...target import Target
from ...te import ComputeOp, thread_axis
from ..group import const_shape, extent_of, reduce_size, size_of
from ..parts.operands import accumulators
from ..parts.summed import along, in_a_row
from ..parts.threads import bind_all, dealt, neighbours_on_a_die, over_groups

_MOST_PARTS = 1 << 12  # of a sum: by then a few sums fill any GPU
_TURN = 2048  # elements that a work-group of 256 threads loads at once, in pieces of 16 bytes of 16-bit numbers
_FEW_LOADS = 4  # with so many of a thread's loads under way at once, no more are worth a condition
_MOST_WRITTEN = 32  # elements of a window: of longer ones the rows are written out
# Times that a piece under a condition must be wider than one without: its last turn waits for the others, and a thread then has a fraction of their loads.
_WIDER = 4
_CHANNELS = 4  # of a thread that makes several pixels of a window


def equal_parts(length: int, outputs: int) -> tuple[int, ...]:
    """In how many equal parts a sum may go: one number between each power of two and the next one, up to `_MOST_PARTS`, whose parts are whole turns of a work-group's loads as
    far as may be, the least of those; a power of two that is no divisor of the length with none in its place. A sum of 3 * 5^9 elements has few powers of two, and 8 parts of a
    sum alone leave a GPU idle. Indices of the parts of all sums are int32; of more sums each is whole."""
    found = [1]
    for k in range(1, _MOST_PARTS.bit_length()):
        equal = [p for p in range(1 << k, min(2 << k, _MOST_PARTS + 1)) if length % p == 0]
        found.append(max(equal, key=lambda p: (math.gcd(_TURN, length // p), -p), default=1 << k))
    return tuple(p for p in found if p == 1 or p * outputs < 1 << 31)


def in_parts(s: Schedule, red: ComputeOp, parts: int, place: Callable[[ComputeOp], None]) -> ComputeOp:
    """`red` as the reduction of `parts` partial ones, which `place` schedules; what is left of it."""
    stage = s[red]
    partial = s.rfactor(red.output(0), stage.split(stage.fuse(*red.reduce_axis), nparts=parts)[0])
    op = s[partial].op
    assert isinstance(op, ComputeOp)
    place(op)
    left = stage.op
    assert isinstance(left, ComputeOp)
    return left


def a_thread_each(s: Schedule, out: ComputeOp, red: ComputeOp, threads: int, loads: int, dies: int = 1) -> None:
    """A thread for each sum, which asks for `loads` of its elements at once and adds them up in a register. Where they do not divide the sum, the last ones come under
    a condition; of threads beyond the last sum each repeats another's, rather than have all loads under one. Rows of a window, or all of it, are written out instead: of elements counted
    through, each row and column would be a division. dies: by which neighbours, whose windows have rows in common, go to one."""
    kept = out is red and red.num_outputs == 1 and bool(red.axis)
    sums = s.cache_write(out.output(0), "local") if kept else red.output(0)
    shifted = kept or (out is not red and not out.reduce_axis)
    last = s[out.output(0)].op
    assert isinstance(last, ComputeOp)
    inner = bind_all(s, last, threads, repeated=shifted, dies=dies)
    stage, length = s[sums], reduce_size(red) or 1
    run = _at_once(length, loads, along(red))
    if run > 1 and (red.axis or out is not red):  # the only sum of a kernel has its loop bound to threads
        written = () if in_a_row(red) else _last_axes(stage.op.reduce_axis)
        for axis in written:
            stage.unroll(axis)
        if not written:
            stage.unroll(stage.split(stage.fuse(*stage.op.reduce_axis), factor=run)[1])
    if kept or out is not red:
        stage.compute_at(s[out.output(0)], inner)
        stage.set_scope("local")


def _last_axes(axes: Sequence[IterVar]) -> tuple[IterVar, ...]:
    """The last of several axes that together are short enough to be written out, and have loads enough at once; none where there are no such."""
    size, count = 1, 0
    for axis in reversed(axes):
        n = extent_of(axis)
        if n is None or size * n > _MOST_WRITTEN:
            break
        size, count = size * n, count + 1
    return tuple(axes[len(axes) - count :]) if len(axes) > 1 and size >= _FEW_LOADS else ()


def _at_once(length: int, loads: int, is_exact: bool) -> int:
    """Steps of a sum that are written out, whose loads a thread asks for at once: as many of `loads` as divide its length where that is most of them, or `is_exact`."""
    exact = math.gcd(loads, length)
    return exact if exact >= min(loads, _FEW_LOADS) or is_exact else min(loads, length)


def neighbours(s: Schedule, op: ComputeOp, lanes: int, threads: int, loads: int) -> None:
    """A thread for `lanes` neighbouring sums, whose elements it loads at once, of `loads` steps."""
    acc = s.cache_write(op.output(0), "local")
    final, own = s[op.output(0)], s[acc]
    *lead, last = final.op.axis
    last, vec = final.split(last, factor=lanes)
    own.compute_at(final, over_groups(final, final.fuse(*lead, last), threads, repeated=True))
    final.vectorize(vec)
    own.reorder(*own.op.reduce_axis, *own.op.axis)
    if loads > 1:
        k = own.fuse(*own.op.reduce_axis)
        turns, steps = own.split(k, factor=math.gcd(loads, reduce_size(op) or 1))
        own.reorder(turns, steps, *own.op.axis)
        own.unroll(steps)
    own.vectorize(own.op.axis[-1])


def wide_sums(
    s: Schedule, out: ComputeOp, red: ComputeOp, wide: int, rows: int, lanes: int, target: Target, loads: int = 1
) -> None:
    """A work-group of `wide` by `rows` threads: a thread has `lanes` neighbouring sums' elements of every `rows`-th row, and those of its column meet. Where columns are
    no whole number of work-groups', the last one begins earlier. loads: steps of a thread that are written out."""
    final = s[out]
    acc = s[accumulators(s, red, out, "local")]
    at = final.fuse(*out.axis)
    if lanes > 1:
        at, vec = final.split(at, factor=lanes)
        final.vectorize(vec)
    pieces = (size_of(red.output(0).shape) or 1) // lanes
    block, tx = final.split(at, factor=wide, shift_inwards=pieces % wide != 0)
    block = neighbours_on_a_die(final, block, -(-pieces // wide), target.machine.dies)
    final.bind(block, thread_axis("blockIdx.x"))
    final.bind(tx, thread_axis((0, wide), "threadIdx.x"))
    k = acc.fuse(*acc.op.reduce_axis)
    turns, own = acc.split(k, factor=rows)
    is_long = loads > 1 and (reduce_size(red) or 1) >= rows * loads
    if red.num_outputs > 1:  # loads of several turns at once, which LLVM does by itself for sums
        acc.unroll(acc.split(turns, factor=math.gcd(8, (reduce_size(red) or 1) // rows))[1])
    elif is_long and lanes == 1:
        acc.unroll(acc.split(turns, factor=loads)[1])
    partial = s[s.rfactor(acc.op.output(0), own)] if lanes > 1 else None
    acc.compute_at(final, tx)
    own = own if partial is None else acc.op.reduce_axis[0]
    acc.bind(own, thread_axis((0, rows), "threadIdx.y"))
    if partial is None:
        return
    acc.reorder(own, *acc.op.axis)
    acc.unroll(acc.op.axis[-1])
    partial.set_scope("local")
    partial.compute_at(acc, own)
    loop = partial.op.reduce_axis
    if is_long:
        loop = partial.split(partial.fuse(*loop), factor=loads)
        partial.unroll(loop[1])
    partial.reorder(*loop, *partial.op.axis)
    partial.vectorize(partial.op.axis[-1])


def pixels(
    s: Schedule, out: ComputeOp, red: ComputeOp, threads: int, columns: int, short_window: int, dies: int = 1
) -> bool:
    """Windows over (pixels, channels): 16 bytes of channels a thread, neighbours side by side, so that they touch whole cache
    lines, and on one of `dies`; or some pixels of fewer channels a thread. Windows of up to `short_window` taps are written out; of longer ones a row is, for fewer channels."""
    channels = const_shape(out.output(0))[-1]
    if len(out.axis) != 2 or channels is None:
        return False
    short = (reduce_size(red) or 0) <= short_window
    lanes = math.gcd(channels, _CHANNELS if columns > 1 or not short else 16 // dtype_info(out.output(0).dtype).bytes)
    own, final = s[accumulators(s, red, out, "local")], s[out.output(0)]
    p, c = final.op.axis
    c, vec = final.split(c, factor=lanes)
    if columns > 1:
        p, column = final.split(p, factor=columns)
        final.reorder(p, c, column, vec)
        final.unroll(column)
    items = (size_of(out.output(0).shape) or 0) // (lanes * columns)
    own.compute_at(final, over_groups(final, final.fuse(p, c), threads, items=items, dies=dies if items else 1))
    final.vectorize(vec)
    op = own.op
    own.reorder(*op.reduce_axis, *op.axis)
    own.vectorize(op.axis[-1])
    if columns > 1:
        own.unroll(op.axis[0])
    for axis in op.reduce_axis if short else op.reduce_axis[-1:]:
        own.unroll(axis)
    return True


def group_per_output(
    s: Schedule, out: ComputeOp, red: ComputeOp, threads: int, rows: int = 1, dies: int = 1, between: int = 0, is_run: bool | None = None
) -> None:  # fmt: skip
    """Long sums: the threads of a work-group share one, or each wavefront of it has one of some `rows`. dies: by which neighbours go to one. between: elements of the runs in which a sum's
    elements lie between others': pieces of a thread that cross them only have its loads touch more lines at once. is_run: whether a sum's elements lie one after another, which parts of
    a sum over several axes do not tell by themselves."""
    tx = thread_axis("threadIdx.x")
    stage = s[out]
    fused = stage.fuse(*out.axis) if out.axis or out is not red else None
    if fused is not None and rows > 1:
        block, fused = stage.split(fused, factor=rows)
        stage.bind(neighbours_on_a_die(stage, block, None, dies), thread_axis("blockIdx.x"))
        stage.bind(fused, thread_axis((0, rows), "threadIdx.y"))
    elif fused is not None:
        fused = neighbours_on_a_die(stage, fused, None, dies)
        stage.bind(fused, thread_axis("blockIdx.x"))
    rstage = s[red]
    k = rstage.fuse(*red.reduce_axis)
    # Neighbours of the sum in one thread: its loads come in pieces of up to 16 bytes, or as words of several codes.
    size = min((dtype_info(t.dtype).bytes for t in red.inputs), default=4)
    length = reduce_size(red) or threads
    most = red.attrs.get("run", max(1, 16 // size))
    most = math.gcd(most, between) if between else most
    dealt(rstage, k, threads, tx, _run(length, threads, most, in_a_row(red) if is_run is None else is_run))
    if out is red or fused is None:
        return
    rstage.compute_at(stage, fused)
    rstage.set_scope("local")


def _run(length: int, threads: int, most: int, is_run: bool) -> int:
    """Neighbours of a sum that a thread loads at once. Pieces that all threads have as many of need no condition; where the threads do not divide the sum there is one in any
    case, and one for a piece will do. So it will where pieces without one are of few elements."""
    even = math.gcd(most, max(1, length // threads))
    if not is_run or length < most * threads:
        return even
    whole = math.gcd(most, length)
    return whole if length % threads or whole >= _WIDER * even else even
