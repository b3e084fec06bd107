"""Rows that lie across memory on a GPU: reductions along an axis that others follow, and everything between them (a softmax or a norm over channels or steps).

A work-group has some neighbouring columns, which lie side by side in memory, and threads in two dimensions: `wide` of them along the columns, `deep` along what is
reduced, which meet in shared memory. With a thread for each column there would be as many as there are columns: 2,500 for a softmax over the middle of 500 x 740 x 5.
Of many short columns on AMD a thread has one alone (`deep` 1), in registers from the first pass to the last.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

from ...records import dataclass
from ...target import Target
from ...te import ComputeOp, thread_axis
from ..cost import Footprint, Kernel
from ..group import Group, begin, reduce_size, shape_key, size_of
from ..parts.counts import moved_bytes
from ..parts.threads import dealt, neighbours_on_a_die
from ..space import Choice, Scheduled, Space
from .rows import places

_MOST_WIDE = 64  # columns of a work-group: 128 bytes of 16-bit numbers
_LEAST_DEEP = 4  # threads along what is reduced: fewer are as soon one
_MOST_HELD = 32  # elements of a column that a thread has
_FEW_GROUPS = 4  # work-groups a unit, below which each has more threads to wait with
_OPERATIONS = 2  # of an element in a pass: it is made from what was read, and added


@dataclass(frozen=True)
class Axes:
    """Of the output's axes: those before the reduced ones, how many are reduced, how many follow, and the numbers of elements of these two."""

    lead: int
    reduced: int
    length: int
    columns: int


def match(group: Group, target: Target) -> Iterator[Space]:
    """The space of a group whose one output reads at its own columns what is reduced over them."""
    reductions, ends = group.reductions(), group.output_ops
    out = ends[0] if target.is_gpu and reductions and len(ends) == 1 else None
    if not isinstance(out, ComputeOp) or out.reduce_axis:
        return
    axes = _axes(group, out, reductions)
    if axes is not None:
        space = GpuColumns(group, target, out, axes)
        if next(space.drafts(), None) is not None:
            yield space


def _axes(group: Group, out: ComputeOp, reductions: list[ComputeOp]) -> Axes | None:
    """Which axes all reductions go over; None where these are no neighbours with others behind them, or sizes are open."""
    shape, at = shape_key(out.output(0)), places(group, out)
    if any(size_of((n,)) is None for n in out.output(0).shape):
        return None
    kept: set[tuple[int, ...]] = set()
    for red in reductions:
        own = at.get(red, ())
        sizes = shape_key(red.output(0))
        if len(own) != len(sizes) or any((d is None) != (n == 1) for d, n in zip(own, sizes)) or red.num_outputs > 1:
            return None
        kept.add(tuple(d for d in own if d is not None))
    if len(kept) != 1:
        return None
    (stays,) = kept
    over = [d for d, n in enumerate(shape) if n != 1 and d not in stays]
    if not over or stays != tuple(sorted(stays)):
        return None
    first, last = over[0], over[-1]
    if any(first < d < last for d in stays):
        return None
    behind = size_of(out.output(0).shape[last + 1 :]) or 0
    length = size_of(out.output(0).shape[first : last + 1]) or 0
    if behind < 2 or any(reduce_size(r) != length for r in reductions):
        return None
    return Axes(first, last + 1 - first, length, behind)


class GpuColumns(Space):
    """`wide` by `deep` threads of a work-group."""

    template: ClassVar[str] = "gpu columns"

    def __init__(self, group: Group, target: Target, out: ComputeOp, axes: Axes):
        super().__init__(group, target)
        self.out, self.axes = out, axes
        whole = [axes.columns] if axes.columns <= _MOST_WIDE else []
        self.parameters = {
            "wide": (*whole, *(n for n in (64, 32, 16) if n < axes.columns)), "deep": (32, 64, 16, 8, 4, 128, 256, *self._alone()),
        }  # fmt: skip

    def _alone(self) -> tuple[int, ...]:
        """Of a short column a thread has all in registers, which read it once. No clock has judged it."""
        return (1,) if self.target.machine.priced_by_model and self.axes.length <= _MOST_HELD else ()

    @property
    def _blocks(self) -> int:
        return size_of(self.out.output(0).shape[: self.axes.lead]) or 1

    def why_not(self, choice: Choice) -> str | None:
        threads = choice["wide"] * choice["deep"]
        if threads > min(self.target.max_threads, 1024):
            return "a work-group has no so many threads"
        if choice["deep"] == 1 and threads < self.target.wavefront_size:
            return "a wavefront has columns for all of its threads"
        if choice["deep"] > _LEAST_DEEP and 2 * choice["deep"] > self.axes.length:
            return "threads have nothing to reduce"
        return None

    @property
    def default(self) -> Choice:
        """Some 256 threads, and columns that memory gives in one piece."""
        legal = list(self.all)
        return min(legal, key=self._worth)

    def _worth(self, choice: Choice) -> tuple[float, ...]:
        wide, deep = choice["wide"], choice["deep"]
        whole = -(-self.axes.columns // wide) * wide / self.axes.columns
        groups = self._blocks * -(-self.axes.columns // wide)
        units = self.target.machine.units
        # Few work-groups have as many threads as there may be, others some hundred.
        wanted = 1024 if groups < units else 256
        idle = 1.0
        if self.target.machine.priced_by_model:
            idle = max(1.0, units / groups)  # narrower work-groups are more
            if units <= groups < _FEW_GROUPS * units:
                wanted = 512
        if self._alone() and groups >= _FEW_GROUPS * units:
            return (round(whole, 1), deep, -wide)
        return (round(whole, 1), round(idle, 1), abs(math.log2(wide * deep / wanted)), -wide)

    def sketch(self, choice: Choice) -> Footprint:
        wide, deep, moved = choice["wide"], choice["deep"], moved_bytes(self.group)
        passes, own = len(self.group.reductions()) + 1, -(-self.axes.length // deep)
        if deep == 1:
            passes = 1
        groups = self._blocks * -(-self.axes.columns // wide)
        return Footprint((Kernel(
            groups, wide * deep, memory_bytes=moved, asked_bytes=moved * passes, issued=passes * own * _OPERATIONS, waits=passes * -(-own // 4),
            barriers=2 * (passes - 1),
        ),))  # fmt: skip

    def build(self, choice: Choice) -> Scheduled:
        s, out, axes = begin(self.group), self.out, self.axes
        stage = s[out]
        lead, behind = list(out.axis[: axes.lead]), list(out.axis[axes.lead + axes.reduced :])
        across = list(out.axis[axes.lead : axes.lead + axes.reduced])
        stage.reorder(*lead, *behind, *across)
        column, depth = stage.fuse(*behind), stage.fuse(*across)
        tx, ty = thread_axis((0, choice["wide"]), "threadIdx.x"), thread_axis((0, choice["deep"]), "threadIdx.y")
        part, lane = stage.split(column, factor=choice["wide"], shift_inwards=True)
        block = stage.fuse(*lead, part)
        stage.bind(neighbours_on_a_die(stage, block, None, self.target.machine.dies), thread_axis("blockIdx.x"))
        stage.bind(lane, tx)
        alone = choice["deep"] == 1
        turns = dealt(stage, depth, choice["deep"], ty)
        if alone:
            stage.unroll(turns)
        for red in self.group.reductions():
            rstage = s[red]
            turns = dealt(rstage, rstage.fuse(*red.reduce_axis), choice["deep"], ty)
            if alone:
                rstage.unroll(turns)
            rstage.compute_at(stage, lane)
            rstage.set_scope("local")  # each thread of the work-group has the sum of its column
        return Scheduled(s, self.group.outputs, choice)
