"""Elementwise work of a GPU over work-groups and their threads."""

from __future__ import annotations

import math
from typing import Any

from ...ir import IterVar
from ...schedule import Schedule, Stage
from ...te import ComputeOp, indexdiv, indexmod, thread_axis
from ...te import min as minimum
from ...te.like import Index
from ..group import const_shape, size_of
from .lines import row_axes

THREADS = 256  # of a GPU's work-group: four wavefronts of 64, so that a unit has some to change between


def neighbours_on_a_die(stage: Stage, block: IterVar, groups: int | None, dies: int) -> IterVar:
    """The axis of work-groups in such an order that neighbours run on one die: work-groups are dealt to the dies in turn ("workgroup i goes to XCD i % 8",
    rocm-libraries 6501), and what neighbours have in common, as parts of one line, the die's L2 keeps when the first has brought it. As it was where the dies would get
    different numbers of `groups`; None: of a number that need not be known, the last of which may have nothing to do."""
    if dies == 1 or (groups is not None and groups % dies):
        return block
    die, block = stage.split(block, nparts=dies)
    stage.reorder(block, die)
    return stage.fuse(block, die)


def neighbour_on_a_die(group: Index, groups: int, dies: int) -> Any:
    """The same of a work-group's number, in forms written as loops, where the first dies get one more than the others."""
    if dies == 1:
        return group
    each, more = divmod(groups, dies)
    die = indexmod(group, dies)
    return die * each + (minimum(die, more) if more else 0) + indexdiv(group, dies)


def brought(tile: Stage, threads: int, lanes: int, tx: IterVar) -> None:
    """A tile of shared memory that the threads of a work-group bring together, in pieces of `lanes` elements that lie side by side."""
    dealt(tile, tile.fuse(*tile.op.axis), threads, tx, lanes, vectorized=True)


def dealt(stage: Stage, axis: IterVar, threads: int, tx: IterVar, run: int = 1, vectorized: bool = False) -> IterVar:
    """An axis over the threads of a work-group, a run of neighbours each, written out or as vectors. Returns the loop over turns of all threads."""
    own = None
    if run > 1:
        axis, own = stage.split(axis, factor=run)
    turns, part = stage.split(axis, factor=threads)
    stage.bind(part, tx)
    if own is not None:
        (stage.vectorize if vectorized else stage.unroll)(own)
    return turns


def over_groups(
    stage: Stage, axis: IterVar, threads: int, repeated: bool = False, items: int = 0, dies: int = 1
) -> IterVar:
    """A loop over work-groups of so many threads. repeated: where threads do not divide the loop, the last work-group begins earlier and repeats some, rather than have a condition;
    items: what is done in all, and so how many work-groups there are, by which neighbours go to one of `dies`. Returns the thread's axis."""
    block, thread = stage.split(axis, factor=threads, shift_inwards=repeated)
    if dies > 1:
        block = neighbours_on_a_die(stage, block, -(-items // threads), dies)
    stage.bind(block, thread_axis("blockIdx.x"))
    stage.bind(thread, thread_axis("threadIdx.x"))
    return thread


def lanes_of(total: int | None, lanes: int, ragged: float = math.inf) -> int:
    """Elements of the vectors by which so many elements are made: `lanes`, or a half or less of it where those divide them. ragged: from how many elements on less than a half is
    too little, and the last vector is a part of one, whose elements are stored one by one."""
    whole = math.gcd(total, lanes) if total else lanes
    return lanes if total and total >= ragged and 2 * whole < lanes else whole


def bind_all(
    s: Schedule,
    op: ComputeOp,
    threads: int = THREADS,
    vector: int = 0,
    repeated: bool = False,
    dies: int = 1,
    ragged: float = math.inf,
) -> IterVar:
    """All data axes fused and bound to blocks and threads; vectors of so many bytes (`lanes_of`). repeated: where threads do not divide the elements, the last work-group begins
    earlier and repeats some, rather than have a condition; dies: by which neighbours go to one. Returns the thread's axis."""
    stage = s[op]
    total = size_of(op.output(0).shape)
    if not op.axis:  # a loop of one; of one sum, which a work-group shares, its elements
        one = stage.split(stage.fuse(*op.reduce_axis), factor=64)[1] if op.reduce_axis else stage.fuse()
        stage.bind(one, thread_axis("threadIdx.x"))
        return one
    fused = stage.fuse(*op.axis)
    lanes = vector // max(1, {"64": 8, "32": 4, "16": 2}.get(op.output(0).dtype[-2:], 1))
    lanes = lanes_of(total, lanes, ragged)
    if total is not None and lanes > 1 and total >= lanes * 64:
        fused, vec = stage.split(fused, factor=lanes)
        stage.vectorize(vec)
        total = -(-total // lanes)
    if total is not None:
        threads = min(threads, max(32, 1 << (total - 1).bit_length())) if total < threads else threads
    return over_groups(stage, fused, threads, repeated, items=total or 0, dies=dies if total else 1)


def bind_rows(s: Schedule, op: ComputeOp, threads: int, rows: int) -> None:
    """Elements of a row side by side over threads, and the same place of `rows` neighbouring rows a thread: where a row begins, and what is asked of its number, all lanes share,
    which a scalar unit computes; what is asked of a place in the row, or read by it alone, serves all of a thread's rows. The last rows begin earlier, and repeat others."""
    stage, shape = s[op], const_shape(op.output(0))
    count = len(op.axis) - row_axes(op)
    near = max(k for k in range(count) if shape[k] != 1)
    row, own = stage.split(op.axis[near], factor=rows, shift_inwards=True)
    line = list(op.axis[count:])
    part, lane = stage.split(stage.fuse(*line), factor=threads)
    around = [*op.axis[:near], *op.axis[near + 1 : count], row, part]
    stage.reorder(*around, lane, own)
    stage.bind(stage.fuse(*around), thread_axis("blockIdx.x"))
    stage.bind(lane, thread_axis("threadIdx.x"))
    stage.unroll(own)
