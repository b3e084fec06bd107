"""Sums of a block of the result in each thread's registers, on vector units.

A thread takes its operands from shared memory in runs of four elements: along the sum where a tile lies so, and then its rows (or columns) are as far apart as there are
threads, so that a wavefront's reads spread over the banks; else along its rows (or columns), which are runs of four neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir import IterVar
from ...records import dataclass
from ...schedule import Schedule, Stage
from ...te import Tensor, thread_axis
from ..group import reduce_size
from .grid import Tiles

LONG = 4096  # steps of a sum in one chain, from which its rounding errors are seen
RUN_STEPS = 1024  # of a run: a million steps are as many runs
RUN = 4  # elements of 32 bits that a thread takes from shared memory at once
# Vectors of results that LLVM keeps in registers as one value with their sums.
_MOST_AS_ONE = 4


@dataclass(frozen=True)
class Share:
    """A tile's rows or columns over threads: what is far apart of a thread's, the threads, a thread's run of neighbours (None: single ones)."""

    far: IterVar
    thread: IterVar
    near: Any


def share(stage: Stage, axis: IterVar, threads: int, single: bool) -> Share:
    """Rows or columns dealt to so many threads, one at a time or in runs of `RUN`."""
    if single:
        far, thread = stage.split(axis, factor=threads)
        return Share(far, thread, None)
    far, axis = stage.split(axis, factor=RUN * threads)
    thread, near = stage.split(axis, factor=RUN)
    return Share(far, thread, near)


def nest(tiles: Tiles, rows: Share, columns: Share, far: Sequence[Any], near: Sequence[Any]) -> None:
    """Tiles outermost, then `far` in this order, the threads, and `near`."""
    tiles.nest(*far, rows.thread, columns.thread, *near)


def over_threads(stage: Stage, rows: Share, columns: Share, far: Sequence[Any], thread: IterVar) -> IterVar:
    """Binds what `nest` has put in order: threads to one axis of the work-group, what is far apart to a thread's own blocks. Returns the thread's axis."""
    for axis in far:
        stage.bind(axis, thread_axis("vthread"))
    own = stage.fuse(rows.thread, columns.thread)
    stage.bind(own, thread)
    return own


@dataclass(frozen=True)
class Steps:
    """The loops of a block's sums: steps, what is written out of a step (None: all of it), four terms, one."""

    stage: Stage
    step: IterVar
    part: Any
    run: IterVar
    term: IterVar


def block(s: Schedule, acc: Tensor, own: Sequence[Tensor], final: Stage, thread: IterVar, step: int, along: tuple[bool, bool], stages: int, written: int = 0, dot: Any = None, pack: int = 1) -> Steps:  # fmt: skip
    """The sums `acc` at the thread's axis, `step` terms at a time, with the operands `own` in registers. along: whether A and B lie along the sum; stages: of the software
    pipeline (0: none); written: terms that are written out (0: the whole step); dot: an instruction that takes the `pack` terms of a word, in tiles that both lie along the sum."""
    stage = s[acc]
    stage.compute_at(final, thread)
    *lead, x, y = stage.op.axis
    ko, ki = stage.split(stage.op.reduce_axis[0], factor=step)
    kb = None
    if written:
        kb, ki = stage.split(ki, factor=written)
    kg, ki = stage.split(ki, factor=RUN * pack)
    word = []
    if dot is not None:
        ki, one = stage.split(ki, factor=pack)
        word.append(one)
    stage.reorder(*lead, ko, *([] if kb is None else [kb]), kg, ki, x, y, *word)
    if dot is not None:
        stage.tensorize(word[0], dot)
    for axis in (kg, ki, x, y):
        stage.unroll(axis)
    if stages:
        stage.pragma(ko, "software_pipeline", stages)
    for tensor, lies in zip(own, along):
        *_, row, column = s[tensor].op.axis
        s[tensor].compute_at(stage, kg if lies else ki)
        s[tensor].unroll(row)
        s[tensor].vectorize(column)
    return Steps(stage, ko, kb, kg, ki)


def in_vectors(
    s: Schedule, acc: Tensor, final: Stage, at: IterVar, lanes: int, unroll: int = 1, dot: Any = None
) -> None:
    """A CPU's sums in vector registers, at an axis of `final`: a register for each row and `lanes` columns, `unroll` steps of the sum written out. dot: an instruction that
    takes some neighbours of the sum at once."""
    stage = s[acc]
    stage.compute_at(final, at)
    stage.set_scope("local")
    *lead, i, j = stage.op.axis
    (k,) = stage.op.reduce_axis
    group = []
    if dot is not None:
        k, one = stage.split(k, factor=dot.group)
        group.append(one)
    ko, ki = stage.split(k, factor=unroll)
    vector, lane = stage.split(j, factor=lanes)
    stage.reorder(*lead, ko, ki, i, vector, lane, *group)
    keep_digits(stage, ko)
    if dot is not None:
        stage.tensorize(lane, dot.intrin)
    else:
        stage.vectorize(lane)
    for axis in (vector, i, ki):
        stage.unroll(axis)


def in_chains(s: Schedule, acc: Tensor, final: Stage, at: IterVar, lanes: int, chains: int) -> None:
    """The same of a few sums, each as so many of every so manieth step, which are added up behind the loop: a step of one sum waits for the step before."""
    _, ki = s[acc].split(s[acc].op.reduce_axis[0], factor=chains)
    made = s.rfactor(acc, ki)
    in_vectors(s, acc, final, at, lanes, chains)
    stage = s[made]
    stage.compute_at(final, at)
    stage.set_scope("local")
    chain, *lead, i, j = stage.op.axis
    vector, lane = stage.split(j, factor=lanes)
    stage.reorder(*lead, *stage.op.reduce_axis, chain, i, vector, lane)
    keep_digits(stage, stage.op.reduce_axis[0])
    stage.vectorize(lane)
    for axis in (vector, i, chain):
        stage.unroll(axis)


def keep_digits(stage: Stage, loop: IterVar, longest: int = LONG) -> None:
    """A loop over a sum's steps goes by runs where there are more than `longest`, or an open number: in one chain of a million steps a result loses four of its seven digits."""
    length = reduce_size(stage.op)
    if length is None or length > longest:
        stage.pragma(loop, "in_runs", RUN_STEPS)


def vectorize(final: Stage, axis: IterVar, lanes: int, width: int, rows: int = 2) -> None:
    """Results along an axis of `width`, some vectors of `lanes`, as one value, which LLVM keeps in registers with their sums and stores the quickest; six vectors one by
    one: it would widen them to eight, and put parts of them into memory at each step of the sum, which takes four times as long (LLVM 22, AVX2). Three vectors of
    a lone row it would keep element by element, and put together at each step."""
    vectors = width // lanes
    if vectors > _MOST_AS_ONE or (rows == 1 and vectors & (vectors - 1)):
        pieces, axis = final.split(axis, factor=lanes)
        final.unroll(pieces)
    final.vectorize(axis)
