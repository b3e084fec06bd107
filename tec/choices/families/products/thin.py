"""Products of a few rows whose matrix lies across the sum ([k, n]), on a GPU's vector units.

A thread has some neighbouring columns of all rows, so that each element of the matrix is loaded once, in pieces of up to 16 bytes, and neighbours load
neighbours. It asks for several steps' pieces at once. Where columns do not fill the machine, a kernel of its own makes the sums of parts first.

    piece     bytes of the matrix that a thread loads at once
    threads   of a work-group
    parts     of each sum
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from .... import te
from ....ir import Expr, Reduce
from ....ir.dtype import dtype_info
from ....ir.visit import substituter
from ....ops.dims import is_symbolic
from ....ops.registry import static_shape
from ....ops.typical import most
from ....schedule import Schedule
from ....target import Target
from ....te import ComputeOp, thread_axis
from ...cost import Footprint, Kernel
from ...group import Group, begin, const_shape, is_used, reads_of, reduce_size, same_shape, substitute
from ...parts.counts import moved_bytes
from ...parts.operands import accumulators
from ...parts.threads import over_groups
from ...rules.figures import Figures
from ...space import Choice, Scheduled, Space
from .. import priced_reductions
from ..gpu_reductions import GpuReduction
from ..sum_loops import equal_parts, in_parts

MOST_ROWS = 8  # more are better off as tiles
_MOST_SUMS = 64  # of a thread, each a register
_LEAST_STEPS = 8  # of a part: with fewer, the partial sums' own traffic counts
# Bytes of a piece where rows may be fewer: of single elements most loads would be of rows, some of which are not there.
_LEAST_PIECE = 8
_TRIP = 5  # loads that a price counts for those of a turn, whose next are asked for before the last have come
_JOIN_THREADS = 128  # of the second kernel's work-groups


class ThinProduct(Space):
    """See the module."""

    template: ClassVar[str] = "thin product"

    def __init__(self, group: Group, target: Target, red: ComputeOp, out: ComputeOp, rows: int):
        super().__init__(group, target)
        self.red, self.out, self.rows = red, out, rows
        *batch, there, self.columns = (n or 1 for n in const_shape(red.output(0)))
        self.outputs, self.length = math.prod(batch) * rows * self.columns, reduce_size(red) or 1
        self.makes_all_rows = there != rows
        self.bytes = max(dtype_info(t.dtype).bytes for t in red.inputs)
        self.parameters = {
            "piece": tuple(p for p in (16, 8, 4, 2) if p >= self.bytes),
            "threads": self.threads_up_to_limit(128, 64, 32),
            "parts": equal_parts(self.length, self.outputs),
        }

    @classmethod
    def match(cls, group: Group, target: Target) -> ThinProduct | None:
        """The space of a group whose only reduction is such a product, where something was measured for it."""
        found = group.ended_sum() if target.is_gpu else None
        if found is None or found[0].num_outputs > 1 or not same_shape(found[1].output(0), found[0].output(0)):
            return None
        red, out = found
        shape = static_shape(red.output(0))
        if len(shape) < 2 or is_symbolic((*shape[:-2], shape[-1])) or not reduce_size(red):
            return None
        rows = most(shape[-2])
        if rows is None or not 2 <= rows <= MOST_ROWS or not _is_product(red):
            return None
        space = cls(group, target, red, out, rows)
        if "steps" not in space.figures or next(space.drafts(), None) is None:
            return None
        # Where parts of the sum have to be joined by a second kernel, or are short, sums by themselves may be quicker: by the same price, of known sizes on a clocked machine.
        is_asked = target.machine.priced_by_model or not space.makes_all_rows
        sums = priced_reductions.match(group, target) if is_asked else None
        space.is_second = sums is not None and _alone_seconds(sums, space.figures) < space.seconds
        return space

    def lanes(self, choice: Choice) -> int:
        """Columns of a thread."""
        return int(choice["piece"]) // self.bytes

    def _threads(self, choice: Choice) -> int:
        """Of the launch that reads the matrix."""
        return self.outputs // (self.rows * self.lanes(choice)) * int(choice["parts"])

    def why_not(self, choice: Choice) -> str | None:
        lanes = self.lanes(choice)
        if self.columns % lanes:
            return "the columns are no whole number of pieces"
        if self.makes_all_rows and choice["piece"] < _LEAST_PIECE:
            return "of so short pieces most loads are of the rows, some of which may not be there"
        if lanes * self.rows > _MOST_SUMS:
            return "sums take too many registers"
        if self._threads(choice) < choice["threads"] or (choice["parts"] > 1 and self.outputs < _JOIN_THREADS):
            return "a work-group has more threads than there are columns"
        if choice["parts"] > 1 and self.length // choice["parts"] < _LEAST_STEPS:
            return "parts of the sums are too short"
        return None

    def sketch(self, choice: Choice) -> Footprint:
        parts, lanes, moved = choice["parts"], self.lanes(choice), float(moved_bytes(self.group))
        steps = -(-self.length // parts)
        threads = self._threads(choice)
        # Of a step: the matrix's piece, an element of each row, the multiply-adds, and the pieces' elements as float32.
        issued = steps * (self.rows * (lanes + 1) + 2 + (lanes + self.rows if self.bytes < 4 else 0))
        under_way = self._run(steps) if self.length % parts == 0 else 1
        asked = threads * steps * (choice["piece"] + self.rows * self.bytes / self.target.wavefront_size)
        sums = 4.0 * self.outputs * parts if parts > 1 else 0.0  # what parts leave, and the second kernel reads
        first = Kernel(
            threads / choice["threads"], choice["threads"], registers=self.rows * lanes + int(under_way) * choice["piece"] // 4,
            memory_bytes=moved + sums, asked_bytes=asked, issued=issued, waits=1 + steps / under_way * _TRIP,
        )  # fmt: skip
        if parts == 1:
            return Footprint((first,))
        left = Kernel(
            self.outputs / _JOIN_THREADS,
            _JOIN_THREADS,
            memory_bytes=sums,
            asked_bytes=sums,
            issued=2 * parts,
            waits=1 + parts / self._run(parts) * _TRIP,
        )
        return Footprint((first, left))

    def _run(self, steps: int) -> int:
        """Steps that are written out: the most that divide a part's, or of few such, some whose rest comes under conditions in a loop of its own."""
        most = self.figures.count("steps")
        exact = max(n for n in range(1, most + 1) if steps % n == 0)
        return exact if exact > most // 2 else min(most, steps)

    def build(self, choice: Choice) -> Scheduled:
        group, red, out = self._of_whole_rows() if self.makes_all_rows else (self.group, self.red, self.out)
        s, lanes, threads, is_alone = begin(group), self.lanes(choice), choice["threads"], out is red
        if choice["parts"] > 1:
            red = in_parts(s, red, choice["parts"], lambda part: self._place(s, part, part, lanes, threads))
            self._place(s, red if is_alone else out, red, 1, _JOIN_THREADS, by_rows=True)
        else:
            self._place(s, out, red, lanes, threads)
        return Scheduled(s, group.outputs, choice)

    def _of_whole_rows(self) -> tuple[Group, ComputeOp, ComputeOp]:
        """The group by a sum [..., block, row, column] of blocks of as many rows as a thread makes, that sum, and the output. Rows beyond the last read the last one's operands and
        are stored nowhere: a condition in the loop would keep the next loads from being asked for."""
        result, axes = self.red.output(0), self.red.axis
        shape: tuple[Any, ...] = tuple(static_shape(result))
        *batch, there, columns = shape
        last, blocks, rows = there.asexpr() - 1, ((there + self.rows - 1) // self.rows).asexpr(), self.rows

        def body(*at: Expr) -> Expr:
            *lead, block, row, column = at
            place = (*lead, te.min(block * rows + row, last), column)
            return substituter({a.var: e for a, e in zip(axes, place)})(self.red.body[0])

        def row_of(*at: Expr) -> Any:
            *lead, row, column = at
            return wide(*lead, te.indexdiv(row, rows), te.indexmod(row, rows), column)

        wide = te.compute((*batch, blocks, rows, columns), body, name=self.red.name)
        taken = te.compute(result.shape, row_of, name=f"{self.red.name}_rows")
        group = Group.of(substitute(self.group.outputs, {result: taken}))
        (out,) = group.output_ops
        assert isinstance(wide.op, ComputeOp) and isinstance(out, ComputeOp)
        return group, wide.op, out

    def _place(
        self, s: Schedule, out: ComputeOp, red: ComputeOp, lanes: int, threads: int, by_rows: bool = False
    ) -> None:
        """A thread for some columns of all rows, or of a row each. The last work-group begins earlier and repeats what the one before computes: no load is under a condition."""
        own, final = s[accumulators(s, red, out, "local")], s[out.output(0)]
        *lead, row, column = final.op.axis
        column, vec = final.split(column, factor=lanes)
        high = []
        if self.makes_all_rows and out is red:
            high = [lead.pop()]
        elif self.makes_all_rows:  # single rows where parts are joined
            *high, row = final.split(row, factor=1 if by_rows else self.rows)
        final.reorder(*high, *lead, column, row, vec)
        for axis in high:
            final.bind(axis, thread_axis("blockIdx.y"))
        lead += [column, row] if by_rows else [column]
        own.compute_at(final, over_groups(final, final.fuse(*lead), threads, repeated=True))
        if not by_rows:
            final.unroll(row)
        final.vectorize(vec)
        k, some = own.split(own.fuse(*own.op.reduce_axis), factor=self._run(reduce_size(own.op) or 1))
        *lead, row, column = own.op.axis
        own.reorder(*lead, k, some, row, column)
        own.unroll(some)
        own.unroll(row)
        own.vectorize(column)


def _alone_seconds(sums: GpuReduction, known: Figures) -> float:
    """Of sums by themselves, whose price leaves out what it takes that a work-group's threads read a column of the matrix side by side."""
    return sums.seconds * (known["across"] if "across" in known and sums.default["shared"] else 1.0)


def _is_product(red: ComputeOp) -> bool:
    """Whether each read is of the rows, or of the matrix with the columns side by side."""
    row, column = red.axis[-2].var, red.axis[-1].var
    kinds = set()
    for e in (e for e in reads_of(red) if e.indices):
        by_row, by_column = (is_used(x, *e.indices) for x in (row, column))
        if by_row and by_column:
            return False
        if by_column and (e.indices[-1] is not column or is_used(column, *e.indices[:-1])):
            return False
        kinds.add((by_row, by_column))
    return isinstance(red.body[0], Reduce) and {(True, False), (False, True)} <= kinds
