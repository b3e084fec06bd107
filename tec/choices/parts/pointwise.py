"""Elementwise work of a CPU in vectors over threads."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...ir import IterVar
from ...ir.dtype import dtype_info
from ...schedule import Schedule, Stage
from ...target import Target
from ...te import ComputeOp, Operation
from .. import parallel
from ..group import Group, begin, const_shape, size_of
from .counts import lanes_for, work
from .lines import asks_places, chooses, is_flat, is_moved, line, repeated, row_axes

LEAST_ROW = 4  # elements of a row that are worth a vector of their own; shorter ones are gathered in whole registers
_FEW_ROWS = 4  # below which a CPU's threads share the vectors of rows
_TWICE = 1.1  # of a row's elements, what may be computed by vectors that are several at a time
_CHUNK = 2048  # elements of a row that a thread takes at once where rows are few: some 100 vectors beside the questions ahead of them
_ROWS = 16  # loops around a row that are enough for the threads of a CPU to share evenly
_MOST_COPIES = 16  # of repeated axes that are written out

# Tag of convolutions whose padded input is made first. A sum over channels reads it many times; a depthwise one so few that the copy would cost as much
# as the sum: there the tiles at the edges have conditions, which are known once the window is unrolled.
PADDED_FIRST = ("blocked conv",)


def begin_cpu(
    group: Group, target: Target, padded_first: Sequence[str] = PADDED_FIRST, keep: Sequence[Operation] = ()
) -> Schedule:
    """A schedule with all inlined that may be but for `keep`, and the paddings made that are worth it: those that operations of some tags read."""
    pads = [
        op for op in group.ops if op.tag == "pad" and any(c.tag in padded_first for c in group.consumers.get(op, []))
    ]
    s = begin(group, keep=[*pads, *keep])
    for op in pads:
        elementwise(s, op, target)  # type: ignore[arg-type]
    return s


def elementwise(s: Schedule, op: ComputeOp, target: Target, vectors: int = 1, threads: bool = True) -> None:
    """Outer axes over threads where that is worth it, the innermost split into vectors, up to so many at a time, or left to `cut_loops`, which parts a row where the answer of a
    condition changes."""
    stage = s[op]
    axes = list(op.axis)
    if not axes:
        return
    lanes = (target.vector_bytes // dtype_info(op.output(0).dtype).bytes if is_moved(op) else lanes_for(op.output(0).dtype, target))  # fmt: skip
    threads = threads and parallel.worth(work(op) * parallel.POINTWISE)
    extents, total = list(const_shape(op.output(0))), size_of(op.output(0).shape)
    if any(again := repeated(op)) and not again[-2:] == [True, True]:
        _copies(stage, again, extents, lanes * vectors, threads)
        return
    is_cut = chooses(op)
    copies_lines = total is not None and is_moved(op) and line(op) > 0 and (extents[-1] or 0) > 1
    if len(axes) > 1 and total is not None:
        count = len(axes) if is_flat(op) and not asks_places(op) else row_axes(op)
        is_short = math.prod(n or 0 for n in extents[-count:]) < LEAST_ROW
        if is_short and total % lanes == 0 and not is_cut and not copies_lines:
            count = len(axes)
        if count > 1:
            axes = [*axes[:-count], stage.fuse(*axes[-count:])]
            extents = [*extents[:-count], math.prod(n or 0 for n in extents[-count:])]
    elif len(axes) > 1 and (count := len(axes) if is_flat(op) and not asks_places(op) else row_axes(op)) > 1:
        # Rows of open length may be of a few elements, and be many.
        axes = [*axes[:-count], stage.fuse(*axes[-count:], wide=True)]
        extents = [*extents[:-count], None]
    # Rows of an open number are taken to be some.
    if is_cut and (not threads or None in extents[:-1] or math.prod(n or 0 for n in extents[:-1]) >= _FEW_ROWS):
        if threads:
            over_threads(stage, axes[:-1], extents[:-1])
        return
    inner = extents[-1]
    lanes *= 1 if inner is None and len(axes) > 1 else _together(vectors, inner, lanes)
    few = total is not None and math.prod(n or 0 for n in extents[:-1]) < _ROWS and (is_cut or len(axes) > 1)
    # A thread takes parts: of a choice most have one answer.
    if threads and few and inner is not None and inner >= 2 * _CHUNK:
        outer, part = stage.split(axes[-1], factor=_CHUNK, shift_inwards=True)
        if not is_cut:
            stage.vectorize(stage.split(part, factor=lanes)[1])
        over_threads(stage, [*axes[:-1], outer], [*extents[:-1], -(-inner // _CHUNK)])
        return
    # The last vector of a row begins earlier where vectors do not fill it: under a condition each of its lanes would be an element of its own.
    outer, vec = stage.split(
        axes[-1], factor=lanes if inner is None or inner >= lanes else max(inner, 1), shift_inwards=len(axes) > 1
    )
    if inner is None or inner >= LEAST_ROW or copies_lines:
        stage.vectorize(vec)
    if threads:
        loops = [*axes[:-1], outer]
        # A vector, and no loop; or vectors of a row of open length, whose places in a fused loop would be a division each.
        if (inner is None or inner <= lanes) and len(loops) > 1:
            loops, extents = loops[:-1], extents[:-1]
        over_threads(stage, loops, extents)


def _together(vectors: int, row: int | None, lanes: int) -> int:
    """How many of so many vectors at a time leave about as few elements of a row to be computed twice as single ones do."""
    if row is None:
        return vectors
    fewest = -(-row // lanes) * lanes
    while vectors > 1 and -(-row // (lanes * vectors)) * lanes * vectors > _TWICE * fewest:
        vectors //= 2
    return vectors


def _copies(stage: Stage, again: Sequence[bool], extents: Sequence[int | None], lanes: int, threads: bool) -> None:
    """A stage with repeated axes: what a vector takes is loaded once, and stored for each of them, innermost. The last axis is one row with that ahead of it where it is
    repeated, and vectors are whole numbers of its copies."""
    axes, sizes = list(stage.op.axis), list(extents)
    if again[-1] and len(axes) > 1:
        axes[-2:], sizes[-2:] = [stage.fuse(*axes[-2:])], [None if sizes[-2] is None else sizes[-2] * (sizes[-1] or 1)]
        lanes = math.lcm(lanes, extents[-1] or 1)
    around = [a for a, r in zip(axes[:-1], again) if not r]
    copies = [a for a, r in zip(axes[:-1], again) if r]
    row = sizes[-1]
    outer, vec = stage.split(axes[-1], factor=lanes if row is None or row >= lanes else max(row, 1), shift_inwards=True)
    stage.reorder(*around, outer, *copies, vec)
    if row is None or row >= LEAST_ROW:
        stage.vectorize(vec)
    written = 1
    for axis, n in reversed([(a, n) for a, n, r in zip(axes[:-1], sizes, again) if r]):
        written *= n or 1
        if written > _MOST_COPIES:
            break
        stage.unroll(axis)
    if threads:
        loops = around or [outer]
        over_threads(stage, loops, [n for n, r in zip(sizes[:-1], again) if not r] or [None])


def over_threads(stage: Stage, loops: list[IterVar], extents: list[int | None]) -> IterVar:
    """Fuses loops (`extents`: None where they are open), but for a row where that is better, and spreads them over threads. Returns the loop."""
    loops, extents = (loops[:-1], extents[:-1]) if _rows_stay(extents) else (loops, extents)
    if None not in extents:  # the outermost that are enough: places in a fused loop are divisions
        enough = next(k for k in range(1, len(loops) + 1) if k == len(loops) or math.prod(n or 1 for n in extents[:k]) >= _ROWS)  # fmt: skip
        loops = loops[:enough]
    loop = stage.fuse(*loops)
    stage.parallel(loop)
    return loop


def _rows_stay(extents: list[int | None]) -> bool:
    """Whether the innermost loop is better not fused with those around it: a fused loop divides by the sizes of its parts (by ones that are no numbers in some
    20 clocks a vector: the copy of a padded image takes three times as long), and neither its last vector nor conditions of its parts can be taken out of it.
    Those around it must be enough for threads by themselves; a leading size that is open may be a batch of one."""
    return None in extents[1:-1] or math.prod(n or 1 for n in extents[:-1]) >= _ROWS
