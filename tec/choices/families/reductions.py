"""One reduction with its epilogue.

CPU: sums in vector registers, along the data where that is contiguous, else one partial sum a lane. GPU: `gpu_reductions`, by the prices of `priced_reductions`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

from ...ir import IntImm, IterVar
from ...ir.dtype import dtype_info
from ...schedule import Schedule, Stage
from ...target import Target
from ...te import ComputeOp
from .. import parallel
from ..cost import Footprint, on_cores
from ..group import Group, const_shape, extent_of, is_used, reads_of, reduce_size, same_shape, shape_key, size_of
from ..parts.counts import lanes_for, moved_bytes, work
from ..parts.pointwise import LEAST_ROW, begin_cpu, over_threads
from ..parts.summed import in_long_runs, reads_across, reads_contiguously
from ..parts.sums import keep_digits
from ..rules import figures
from ..space import Choice, Scheduled, Space
from . import priced_reductions
from .narrow_sums import NarrowSums
from .padded_planes import PaddedPlanes
from .pixel_windows import PixelWindows

SIDE_BY_SIDE = 4  # vectors of sums along the data: with one each row gives half of a line of the cache, and an addition waits for the one before
_LEAST_TURNS = 4  # of a loop over partial sums, whose own sum takes as long as some of them
_LEAST_STEPS = 64  # of a sum that some lanes have each a part of; fewer are as quick with a part of a vector at a time
LONG_CHAIN = 1024  # additions one after another, from which rounding errors are worth a second step


def match(group: Group, target: Target) -> Iterator[Space]:
    """The spaces of a group of one reduction whose result the output reads at its own place."""
    space = priced_reductions.match(group, target)
    narrow = NarrowSums.match(group, target) if space is not None else None
    if narrow is not None and space is not None:
        narrow.is_second = space.seconds < narrow.seconds
    found = (
        PixelWindows.match(group, target),
        narrow,
        space,
        PaddedPlanes.match(group, target),
        CpuReduction.match(group, target),
    )
    yield from (s for s in found if s is not None)


class CpuReduction(Space):
    """Short sums of neighbours along the data, a vector of which stays in registers until the output reads them, over threads or not. All other sums are as quick as stages, or
    less: with a vector at a time an addition waits for the one before."""

    template: ClassVar[str] = "cpu reduction"

    def __init__(self, group: Group, target: Target, red: ComputeOp, out: ComputeOp):
        super().__init__(group, target)
        self.red, self.out = red, out
        self.parameters = {"vectors": (1, 2, 4), "parallel": (True, False)}

    @classmethod
    def match(cls, group: Group, target: Target) -> CpuReduction | None:
        found = None if target.is_gpu else group.ended_sum()
        if found is None or found[0] is found[1] or len(found[1].axis) < 2:
            return None
        red, out = found
        length, beside = reduce_size(red), same_shape(out.output(0), red.output(0))
        if _steps_of_a_line(red, target):
            return None
        if length is None or length > figures.of(cls.template, target)["longest"] or not beside:
            return None
        is_along = reads_across(red) and _lanes_along(red, target)
        return cls(group, target, red, out) if is_along else None

    @property
    def default(self) -> Choice:
        return self.choice(vectors=1, parallel=parallel.worth(work(self.red) * parallel.POINTWISE))

    def sketch(self, choice: Choice) -> Footprint:
        return on_cores(work(self.red) * parallel.POINTWISE, moved_bytes(self.group), choice["parallel"])

    def build(self, choice: Choice) -> Scheduled:
        s, out, red = begin_cpu(self.group, self.target), self.out, self.red
        stage = s[out]
        rows = stage.fuse(*out.axis[:-1])
        if choice["parallel"]:
            stage.parallel(rows)
        lanes = _lanes_along(self.red, self.target) * choice["vectors"]
        outer, vec = stage.split(
            out.axis[-1], factor=lanes, shift_inwards=_begins_earlier(self.red, lanes, self.target)
        )
        stage.vectorize(vec)
        s[red].set_scope("local")
        s[red].compute_at(stage, outer)
        _side_by_side(s[red], lanes)
        return Scheduled(s, self.group.outputs, choice)


def _lanes_along(op: ComputeOp, target: Target) -> int:
    """Of vectors along the last data axis: a register's, or so much of one, by halves, as the axis has; 0 where it is shorter than `LEAST_ROW`, or none."""
    lanes, n = lanes_for(op.output(0).dtype, target), const_shape(op.output(0))[-1] if op.axis else 0
    if n is None or n >= lanes or n in (lanes // 2, lanes // 4):
        return lanes if n is None or n >= lanes else n if n > 1 else 0
    return 1 << (n.bit_length() - 1) if n >= LEAST_ROW else 0


def _begins_earlier(op: ComputeOp, lanes: int, target: Target) -> bool:
    """Whether the last vector of a short row makes some results again, in place of a mask."""
    n = const_shape(op.output(0))[-1]
    return n is not None and n < lanes_for(op.output(0).dtype, target) and n % lanes != 0


def _side_by_side(stage: Stage, lanes: int) -> None:
    """Sums of which so many lie in a vector."""
    op = stage.op
    outer, vec = stage.split(op.axis[-1], factor=lanes)
    stage.reorder(*op.axis[:-1], outer, *op.reduce_axis, vec)
    stage.vectorize(vec)


def _is_short(op: ComputeOp, target: Target) -> bool:
    """Whether lines are too short for vectors along them."""
    length = reduce_size(op)
    return length is not None and length < 4 * lanes_for(op.output(0).dtype, target)


def cpu_reduction(s: Schedule, op: ComputeOp, target: Target, vectors: int = 1, threads: bool = True) -> None:
    """A reduction that stands alone: threads over the data axes; vectors along the last data axis, or along the reduced one."""
    op = in_parts(s, op, target)
    stage = s[op]
    axes, extents = list(op.axis), list(const_shape(op.output(0)))
    lanes = _lanes_along(op, target)
    outer = partial = None
    if _short_runs(s, op, target, threads) or _in_streams(s, op, target, threads):
        return
    # Of short lines a lane has one each where pairs of a value and its place would meet across lanes; of few beside each other, lines of all rows.
    if op.num_outputs > 1 and not lanes and len(axes) > 1 and _is_short(op, target):
        axes, lanes = [stage.fuse(*axes)], lanes_for(op.output(0).dtype, target)
        outer, vec = stage.split(axes[0], factor=lanes)
        stage.reorder(outer, *op.reduce_axis, vec)
        stage.vectorize(vec)
        axes, extents = [outer], [size_of(op.output(0).shape)]
    elif (partial := few_at_the_end(s, op, target)) is not None:
        stage = s[op]
        axes = list(stage.op.axis)[:-1]
    elif lanes and (reads_across(op) or (op.num_outputs > 1 and _is_short(op, target))):
        factor = lanes * _vectors_of_a_block(op, lanes, max(vectors, side_by_side(op, lanes, target)))
        last = const_shape(op.output(0))[-1]
        # A block that begins earlier makes some results again. A mask would go through memory at every step.
        if (
            op.num_outputs == 1
            and last is not None
            and last % factor
            and (last > factor or _begins_earlier(op, factor, target))
        ):
            partial = s[s.cache_write(op.output(0), "local")]
            stage = s[op.output(0)]
            axes = list(stage.op.axis)
            outer, vec = stage.split(axes[-1], factor=factor, shift_inwards=True)
            _side_by_side(partial, factor)
        else:
            outer, vec = stage.split(axes[-1], factor=factor)
            stage.reorder(*axes[:-1], outer, *op.reduce_axis, vec)
            _in_runs(stage)
        stage.vectorize(vec)
        axes = [*axes[:-1], outer]
    else:
        partial = in_lanes(s, op, target, threads)
        stage = s[op]
        axes = list(stage.op.axis)
        if partial is None:
            _in_runs(stage)
    loop = axes[-1] if axes else None
    if axes and threads and parallel.worth(work(op) * parallel.POINTWISE):
        if partial is not None:  # a sum is placed within the innermost loop
            loop = stage.fuse(*axes)
            stage.parallel(loop)
        else:
            over_threads(stage, axes, extents)
    if partial is not None and loop is not None:
        partial.compute_at(stage, loop)


def _in_streams(s: Schedule, op: ComputeOp, target: Target, threads: bool) -> bool:
    """Sums of rows that the core's own caches do not hold: some rows that are far apart at once, into sums that stay in the nearest cache. Whether `op` is such a sum."""
    dtype, core = op.output(0).dtype, target.core
    lanes, width = lanes_for(dtype, target), const_shape(op.output(0))[-1] if op.axis else None
    length, count = reduce_size(op), size_of(op.output(0).shape)
    if op.num_outputs != 1 or length is None or count is None or width is None or width < lanes:
        return False
    most = max(op.inputs, key=lambda t: size_of(t.shape) or 0, default=None)
    told = figures.of("cpu stages", target)
    first = next((a for a in op.reduce_axis if (extent_of(a) or 0) >= told["few_streams"]), None)
    if first is None or most is None or not reads_across(op):
        return False
    # Windows that share elements find them in a cache; parts of a sum may be a little longer than their share.
    elements = size_of(most.shape) or 0
    if 2 * elements < length * count or elements * dtype_info(most.dtype).bytes <= core.l2_bytes:
        return False
    stage = s[op]
    far, near = stage.split(first, nparts=min(told.count("streams"), extent_of(first) or 1))
    others = [a for a in op.reduce_axis if a is not first]
    part, line = stage.split(op.axis[-1], factor=min(width, core.l1_bytes // 2 // dtype_info(dtype).bytes))
    line, vec = stage.split(line, factor=lanes)
    stage.reorder(*op.axis[:-1], part, near, *others, line, far, vec)
    stage.unroll(far)
    stage.vectorize(vec)
    if threads and parallel.worth(work(op) * parallel.POINTWISE):
        stage.parallel(stage.fuse(*op.axis[:-1], part))
    return True


def _short_runs(s: Schedule, op: ComputeOp, target: Target, threads: bool) -> bool:
    """Sums over short runs at the end of memory and over axes ahead of a kept one ([n, m, 5] -> [m]): the axes ahead first, of some runs side by side as whole vectors, then each run.
    Whether `op` is such a sum."""
    lanes, count = lanes_for(op.output(0).dtype, target), const_shape(op.output(0))[-1] if op.axis else None
    if op.num_outputs != 1 or count is None or len(op.reduce_axis) < 2:
        return False
    run, last = op.reduce_axis[-1], op.axis[-1]
    few, length = extent_of(run), reduce_size(op)
    if few is None or not 1 < few < lanes or length is None or length < _LEAST_TURNS * few:
        return False
    for e in reads_of(op):
        if any(is_used(a.var, *e.indices) for a in (run, last)) and not (
            len(e.indices) > 1
            and e.indices[-1] is run.var
            and e.indices[-2] is last.var
            and const_shape(e.tensor)[-2:] == (count, few)
        ):
            return False
    together = _whole_vectors(few, lanes)
    if count < together:
        return False
    made = s.cache_write(op.output(0), "local")
    partial, sums, stage = s[s.rfactor(made, made.op.reduce_axis[-1], len(op.axis))], s[made], s[op.output(0)]
    *data, kept = stage.op.axis
    outer, vec = stage.split(kept, factor=together, shift_inwards=count % together != 0)
    stage.vectorize(vec)
    loop = stage.fuse(*data, outer)
    if threads and parallel.worth(work(partial.op) * parallel.POINTWISE):
        stage.parallel(loop)
    sums.compute_at(stage, loop)
    _side_by_side(sums, together)
    partial.compute_at(stage, loop)
    _as_a_line(partial, lanes)
    return True


def _whole_vectors(few: int, lanes: int, most: float = math.inf) -> int:
    """Runs of `few` elements that are whole vectors together, some so that no addition waits for the one before where there are so many as `most`."""
    runs = lanes // math.gcd(lanes, few)
    while runs * few < SIDE_BY_SIDE * lanes and 2 * runs <= most:
        runs *= 2
    return runs


def _as_a_line(partial: Stage, lanes: int) -> None:
    """The last two data axes of partial sums as vectors in registers."""
    *data, step, last = partial.op.axis
    vectors, vec = partial.split(partial.fuse(step, last), factor=lanes)
    partial.reorder(*data, *partial.op.reduce_axis, vectors, vec)
    partial.unroll(vectors)
    partial.vectorize(vec)


def side_by_side(op: ComputeOp, lanes: int, target: Target) -> int:
    """Vectors of sums that are made together: as many as the last axis has, and as leave each core some."""
    last, count = const_shape(op.output(0))[-1] if op.axis else None, size_of(op.output(0).shape)
    if last is None or count is None:
        return 1
    spread = count // lanes // (4 * target.machine.units) if parallel.worth(work(op) * parallel.POINTWISE) else count
    return max(1, min(SIDE_BY_SIDE, last // lanes, spread))


def _vectors_of_a_block(op: ComputeOp, lanes: int, most: int) -> int:
    """Vectors of sums that a block makes together, `most` at the most: those with which a row takes the least time, where a block takes its vectors and one more, for which it waits."""
    last = const_shape(op.output(0))[-1]
    if last is None or last < lanes * most:
        return most if last is None else 1
    return min(range(most, 0, -1), key=lambda v: -(-last // (lanes * v)) * (v + 1))


def in_parts(s: Schedule, op: ComputeOp, target: Target) -> ComputeOp:
    """A long sum whose vectors lie along the data, as sums of parts and their sum; the operation that is left to schedule.

    Only where each element goes into one sum, so that the parts' sums are few beside the elements.
    """
    length, count, dtype = reduce_size(op), size_of(op.output(0).shape), op.output(0).dtype
    shape = const_shape(op.output(0))
    if length is None or count is None or length < LONG_CHAIN or op.num_outputs != 1 or not dtype.startswith("float"):
        return op
    if not shape or (shape[-1] or 0) < lanes_for(dtype, target) or not reads_across(op):
        return op
    reads = [size_of(e.tensor.shape) for e in reads_of(op)]
    if max((n or 0 for n in reads), default=0) < length * count:
        return op
    # An axis of one, as a split by all of an axis leaves, has no parts.
    extents = [extent_of(a) or 1 for a in op.reduce_axis]
    first, n = next((a, n) for a, n in zip(op.reduce_axis, extents) if n > 1)
    outer = first if n < length and n * n >= length // 4 else s[op].split(first, nparts=_parts(n))[0]
    partial = s[s.rfactor(op.output(0), outer)]
    cpu_reduction(s, partial.op, target)  # type: ignore[arg-type]
    left = s[op].op
    assert isinstance(left, ComputeOp)
    return left


def _parts(n: int) -> int:
    """Of a sum of `n` steps: some 64 that divide it, as far as neither parts nor their number are long. Parts that do not ask of each step whether it is still theirs."""
    return _even(n) or min(n, 64)


def _even(n: int) -> int:
    """A number of equal parts of a sum of `n` steps as near to 64 as leaves neither parts nor their number long; 0 where there is none."""
    most = max(LONG_CHAIN, 2 * math.isqrt(n))
    even = [p for p in range(-(-n // most), min(n // 4, most) + 1) if n % p == 0]
    return min(even, key=lambda p: abs(math.log(p / 64)), default=0)


def in_lanes(s: Schedule, op: ComputeOp, target: Target, threads: bool = False) -> Stage | None:
    """A reduction along contiguous memory of a vector or more, as a partial one for each lane and the reduction of those: the stage
    of the partial results, for the caller to place, or None where that does not fit. threads: whether parts of the only sum may go over them.

    One chain of additions takes their latency an element, and its rounding errors grow with its length.
    """
    length = reduce_size(op)
    lanes = lanes_for(op.output(0).dtype, target)
    if not op.reduce_axis or (length is not None and length < lanes):
        return None
    line = _line(op)
    last = op.reduce_axis[-1]
    if len(line) > 1:
        n = size_of(a.dom.extent for a in line if a.dom is not None)
        last = s[op].fuse(*line, wide=n is None)
    else:
        n = extent_of(last)
        if not reads_contiguously(op, last.var, directly=True) and not in_long_runs(op):
            return None
    if n is None:  # a row of symbolic length; with other axes symbolic instead, it is as short as it says
        n = lanes
    if n < lanes:
        return None
    step, pieces = 2 * lanes if n >= 8 * lanes else lanes, 0
    if op.num_outputs == 1 and n >= step * LONG_CHAIN:
        step, pieces = _pieces(n, lanes)
    _, inner = s[op].split(last, factor=step)
    made = s.rfactor(op.output(0), inner)
    partial = s[made[0] if op.num_outputs > 1 else made]
    whole = s[op]
    # The lanes' sums by halves: one after another they take as long as hundreds of elements.
    whole.pragma(whole.op.reduce_axis[0], "any_order")
    if pieces:
        partial = _in_pieces(s, partial, pieces, threads and not op.axis)
    _in_runs(partial)
    vec, *data = partial.op.axis
    partial.reorder(*data, *partial.op.reduce_axis, vec)
    partial.vectorize(vec)
    return partial


def _in_runs(stage: Stage) -> None:
    """A sum in one chain a result keeps its digits: of open length, or long where nothing parts it."""
    if stage.op.reduce_axis and stage.op.num_outputs == 1:
        keep_digits(stage, stage.op.reduce_axis[0], LONG_CHAIN)


def _pieces(n: int, lanes: int) -> tuple[int, int]:
    """Elements of a step along a long line, two vectors or a few more so that the steps go into equal pieces, and how many these are: 0 where none are equal. A piece that
    asks of each step whether it is still its own takes ten times as long."""
    for vectors in range(2, 9):
        step = vectors * lanes
        even = _even(-(-n // step))
        if even:
            return step, even
    return 2 * lanes, 0


def _in_pieces(s: Schedule, partial: Stage, pieces: int, threads: bool) -> Stage:
    """Long sums of each lane as sums of pieces, in registers or over threads, and their sums. In one chain a lane loses the last digits, and where a million ones are added to
    2^24, all of them."""
    (*_, last), made = partial.op.reduce_axis, partial.op.output(0)
    part, _ = partial.split(last, nparts=pieces)
    piece = s[s.rfactor(made, part)]
    partial = s[made]
    part, vec, *data = piece.op.axis
    piece.reorder(part, *data, *piece.op.reduce_axis, vec)
    piece.vectorize(vec)
    if not threads:
        piece.compute_at(partial, partial.op.reduce_axis[0])
    elif parallel.worth(work(piece.op) * parallel.POINTWISE):
        piece.parallel(part)
    return partial


def _line(op: ComputeOp) -> list[IterVar]:
    """The last axes of a sum that are one line of memory: those that all reads have as their last dimensions, whole and in order, as far as int32 counts the elements of known
    ones."""
    reads = reads_of(op)
    found: list[IterVar] = []
    for count in range(1, len(op.reduce_axis) + 1):
        axes = op.reduce_axis[-count:]
        of_them = [e for e in reads if any(is_used(a.var, *e.indices) for a in axes)]
        extents = [
            e.value if isinstance(e, IntImm) else str(e) for a in axes if a.dom is not None for e in [a.dom.extent]
        ]
        if count > 1 and math.prod(n for n in extents if isinstance(n, int)) >= 1 << 31:
            return found
        for e in of_them:
            same = all(i is a.var for i, a in zip(e.indices[-count:], axes))
            if not same or len(e.indices) < count or extents != list(shape_key(e.tensor)[-count:]):
                return found
        found = list(axes) if of_them else found
    return found


def _steps_of_a_line(op: ComputeOp, target: Target) -> int:
    """Steps of a sum along the axis before a short last one that are whole vectors of memory, some vectors so that no addition waits for the one before; 0 where what is read lies
    otherwise, or the sum is too short for them."""
    lanes, few = lanes_for(op.output(0).dtype, target), const_shape(op.output(0))[-1] if op.axis else None
    if op.num_outputs != 1 or few is None or not 1 < few < lanes or not op.reduce_axis:
        return 0
    k, j = op.reduce_axis[-1], op.axis[-1]
    length, reads = extent_of(k), reads_of(op)
    of_them = [e for e in reads if is_used(k.var, *e.indices)]
    beside = all(e.indices[-1] is j.var for e in reads if is_used(j.var, *e.indices))  # the same for all steps
    lined = beside and all(len(e.indices) > 1 and e.indices[-1] is j.var and e.indices[-2] is k.var and const_shape(e.tensor)[-1] == few for e in of_them)  # fmt: skip
    if length is None or length < _LEAST_STEPS or not of_them or not lined:
        return 0
    return _whole_vectors(few, lanes, lanes)


def few_at_the_end(s: Schedule, op: ComputeOp, target: Target) -> Stage | None:
    """A long sum along the axis before a short last one, some steps of which are a line of memory: each lane of some vectors takes every so manieth step. The partial
    sums' stage, for the caller to place; None where it does not fit."""
    steps, lanes = _steps_of_a_line(op, target), lanes_for(op.output(0).dtype, target)
    if not steps:
        return None
    _, inner = s[op].split(op.reduce_axis[-1], factor=steps)
    partial = s[s.rfactor(op.output(0), inner, len(op.axis) - 1)]
    _in_runs(partial)
    _as_a_line(partial, lanes)
    whole = s[op]
    *data, last = whole.op.axis
    whole.reorder(*data, *whole.op.reduce_axis, last)
    whole.vectorize(last)
    return partial


def rows_in_lanes(s: Schedule, op: ComputeOp, target: Target) -> None:
    """The same inside of another stage's loops: partial results for one element at a time."""
    partial = in_lanes(s, op, target)
    if partial is not None and s[op].op.axis:
        partial.compute_at(s[op], s[op].op.axis[-1])
