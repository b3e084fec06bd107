"""Sums over everything but a few last elements ([n, 7] -> [7]), on a GPU.

Neighbours of such a row are too few for a wavefront, and rows begin between the bounds of what a load brings. So some rows are taken together as one long row of whole
pieces of 16 bytes: the threads of a work-group read pieces side by side, rows of pieces below each other, and meet in shared memory. Each work-group leaves the sums of
one long row, which a second kernel adds up.

    blocks    work-groups that share the sums' elements
    threads   of a work-group, at most
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ... import te
from ...ir import Reduce
from ...ir.dtype import dtype_info
from ...ir.visit import substitute
from ...target import Target
from ...te import ComputeOp, Tensor
from ..cost import Footprint, Kernel
from ..group import Group, begin, const_shape, extent_of, reduce_size, size_of, whole_reduce
from ..group import substitute as with_tensors
from ..parts.counts import moved_bytes
from ..parts.digits import split_index
from ..parts.summed import most_read
from ..rules import figures
from ..space import Choice, Scheduled, Space
from .sum_loops import group_per_output, wide_sums

_PIECE_BYTES = 16
_MOST_COLUMNS = 64  # more make pieces and whole lines of their own
_MOST_ROWS = (1 << 31) - 1  # whose numbers are int32
_JOIN_THREADS = 256
_LEAST_TURNS = 4  # of a thread: with fewer, meeting takes longer than reading


class NarrowSums(Space):
    """See the module."""

    template: ClassVar[str] = "narrow sums"

    def __init__(self, group: Group, target: Target, red: ComputeOp, lead: int):
        super().__init__(group, target)
        self.red, self.lead = red, lead
        self.kept = tuple(n or 1 for n in const_shape(red.output(0)))
        self.outside, self.columns = math.prod(self.kept[:lead]), math.prod(self.kept[lead:])
        self.length = reduce_size(red) or 1
        self.lanes = _PIECE_BYTES // min(dtype_info(t.dtype).bytes for t in red.inputs)
        self.rows = self.lanes // math.gcd(self.lanes, self.columns)  # of a long row
        self.pieces = self.rows * self.columns // self.lanes
        blocks = [d for d in range(1, 4097) if self.length // self.rows % d == 0]
        self.parameters = {"blocks": tuple(blocks), "threads": self.threads_up_to_limit(512, 256, 128)}

    @classmethod
    def match(cls, group: Group, target: Target) -> NarrowSums | None:
        """The space of a group of one reduction whose axes lie between the result's, whole and in order, where something was measured for it."""
        if "least_row" not in figures.of(cls.template, target):
            return None
        (red,) = group.reductions()
        most, axes = most_read(red), [a.var for a in red.reduce_axis]
        if most is None or reduce_size(red) is None or size_of(red.output(0).shape) is None:
            return None
        lead = next((k for k, e in enumerate(most.indices) if e is axes[0]), None)
        if lead is None or const_shape(most.tensor)[lead:][: len(axes)] != _extents(red):
            return None
        # What a summed axis leaves of itself in the result, one place, is in no index.
        shape = const_shape(red.output(0))
        kept = [k for k, a in enumerate(red.axis) if shape[k] != 1 or any(i is a.var for i in most.indices)]
        own = [red.axis[k].var for k in kept]
        wanted = [*own[:lead], *axes, *own[lead:]]
        if len(most.indices) != len(wanted) or any(a is not b for a, b in zip(most.indices, wanted)):
            return None
        if whole_reduce(red) is None or len(kept) == lead:
            return None
        space = cls(group, target, red, kept[lead])
        if space.columns > _MOST_COLUMNS or space.length % space.rows or space.length > _MOST_ROWS:
            return None
        return space if next(space.drafts(), None) is not None else None

    def _high(self, choice: Choice) -> int:
        """Rows of pieces of a work-group: a power of two."""
        return 1 << max(0, (int(choice["threads"]) // self.pieces).bit_length() - 1)

    def why_not(self, choice: Choice) -> str | None:
        turns = self.length // self.rows // choice["blocks"]
        if self.pieces * 2 > choice["threads"]:
            return "a work-group has less than two rows of pieces"
        if turns < _LEAST_TURNS * self._high(choice):
            return "a work-group's part of the sum is too short"
        return None

    def sketch(self, choice: Choice) -> Footprint:
        high, blocks = self._high(choice), choice["blocks"]
        turns = -(-self.length // (self.rows * blocks * high))
        moved, sums = float(moved_bytes(self.group)), self.outside * blocks * self.rows * self.columns
        met = self.lanes * (high.bit_length() + 1)  # a barrier a level, a register after another
        first = Kernel(
            self.outside * blocks, self.pieces * high, shared_bytes=4 * self.pieces * high, registers=2 * self.lanes, memory_bytes=moved, asked_bytes=moved,
            issued=2 * self.lanes * turns + 4 * met, waits=2 + turns, barriers=met,
        )  # fmt: skip
        left = Kernel(
            self.outside * self.columns,
            _JOIN_THREADS,
            asked_bytes=4.0 * sums * min(self.columns, 8),
            waits=2 + blocks * self.rows / _JOIN_THREADS,
            barriers=2,
        )
        return Footprint((first, left))

    def build(self, choice: Choice) -> Scheduled:
        blocks = choice["blocks"]
        partial, left = self._in_rows(blocks)
        outputs = with_tensors(self.group.outputs, {self.red.output(0): left})
        group = Group.of(outputs)
        s = begin(group)
        long, short, out = partial.op, left.op, group.output_ops[0]
        assert isinstance(long, ComputeOp) and isinstance(short, ComputeOp) and isinstance(out, ComputeOp)
        wide_sums(s, long, long, self.pieces, self._high(choice), self.lanes, self.target)
        group_per_output(s, out, short, _JOIN_THREADS)
        return Scheduled(s, outputs, choice)

    def _in_rows(self, blocks: int) -> tuple[Tensor, Tensor]:
        """(what work-groups find of long rows, the sums of that): of te."""
        red, lead, rows, columns = self.red, self.lead, self.rows, self.columns
        made, turns = red.body[0], self.length // (rows * blocks)
        assert isinstance(made, Reduce)
        k, q = te.reduce_axis((0, turns), "k"), te.reduce_axis((0, blocks * rows), "q")
        shape = list(red.output(0).shape)

        def element(*i: Any) -> Any:
            *outer, block, at = i
            row = (block * turns + k) * rows + te.indexdiv(at, columns)
            kept = split_index(te.indexmod(at, columns), self.kept[lead:])
            place = {a.var: x for a, x in zip((*red.axis, *red.reduce_axis), (*outer, *kept, *split_index(row, _extents(red))))}  # fmt: skip
            source = tuple(substitute(e, place) for e in made.source)
            return Reduce(made.combiner, source, (k,), made.condition)

        partial = te.compute((*shape[:lead], blocks, rows * columns), element, name=f"{red.name}_rows")

        def joined(*i: Any) -> Any:
            column: Any = 0
            for x, n in zip(i[lead:], self.kept[lead:]):
                column = column * n + x
            read = partial(*i[:lead], te.indexdiv(q, rows), te.indexmod(q, rows) * columns + column)
            return Reduce(made.combiner, (read,), (q,), made.condition)

        return partial, te.compute(shape, joined, name=red.name)


def _extents(red: ComputeOp) -> tuple[int, ...]:
    return tuple(extent_of(a) or 0 for a in red.reduce_axis)
