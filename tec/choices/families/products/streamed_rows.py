"""A few rows times matrices as they lie, on a CPU: the rows of the second operand go by in order, some at a time, and the sums stay in the first cache.

A strip of columns whose sums stay in registers meets each row of the matrix in another page, where no prefetcher follows: products of few rows, which read each element once,
then wait for memory line by line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

from ....ir.dtype import dtype_info
from ....target import Target
from ....te import ComputeOp, Operation
from ... import parallel
from ...cost import Footprint, on_cores
from ...group import Group, const_shape, reduce_size, size_of
from ...parts.operands import accumulators, anchored, contraction
from ...parts.pointwise import begin_cpu
from ...rules import figures
from ...space import Choice, Scheduled, Space
from . import packing, tile_clocks

_MOST_ROWS = 4  # whose elements of some steps are registers
_TOGETHER = (8, 6, 5, 4, 3, 2, 1, 7)  # rows of the matrix: streams that a core's prefetchers follow
_SUMS_BYTES = 16384  # that stay in the first cache beside the lines that go by


class StreamedRows(Space):
    """`together` rows of the second operand at a time, each for `columns` of all rows of the result."""

    template: ClassVar[str] = "cpu product of few rows"

    def __init__(self, group: Group, target: Target, op: ComputeOp, out: ComputeOp):
        super().__init__(group, target)
        self.op, self.out = op, out
        *_, self.m, self.n = (d or 1 for d in const_shape(op.output(0)))
        self.k, self.size = reduce_size(op) or 1, dtype_info(op.output(0).dtype).bytes
        self.lanes = max(1, target.vector_bytes // self.size)
        self.parameters = {"together": _TOGETHER, "columns": self._widths(), "parallel": (True, False)}

    @classmethod
    def match(cls, group: Group, target: Target, op: Operation) -> StreamedRows | None:
        """A product of few rows whose second operand lies in rows."""
        pair = anchored(group, op)
        if pair is None or len(pair[0].axis) < 2 or len(op.reduce_axis) != 1 or "block" in op.attrs:
            return None
        *_, m, n = const_shape(op.output(0))
        known = m is not None and m <= _MOST_ROWS and n is not None and reduce_size(op) is not None
        dtype = op.output(0).dtype
        if not known or contraction(group, pair[0]) is None or dtype not in ("float32", "float64"):
            return None
        found = cls(group, target, *pair)
        return found if found.parameters["columns"] else None

    def _widths(self) -> tuple[int, ...]:
        """Whole vectors, of which few are computed twice at the end: the fewest runs that fit, and more for threads."""
        fewest = max(-(-self.m * self.n * self.size // _SUMS_BYTES), 1 + (self.n % self.lanes > 0))
        widths = (-(-self.n // (fewest * times) // self.lanes) * self.lanes for times in (1, 2, 4, 8, 16))
        return tuple(dict.fromkeys(w for w in widths if self.lanes <= w <= self.n))

    def drafts(self) -> Iterator[Choice]:
        """Steps that divide the sum, runs of all widths."""
        steps = [t for t in _TOGETHER if self.k % t == 0]
        work = self.m * self.n * self.k * (size_of(self.op.output(0).shape[:-2]) or 1)
        threads = parallel.worth(work / self.target.machine.macs("float32"))
        return self.legal({**self.parameters, "together": steps, "parallel": (threads,)})

    def why_not(self, choice: Choice) -> str | None:
        registers = self.m * choice["together"] + 2
        most = self.target.core.registers
        return f"{registers} vector registers of {most}" if registers > most else None

    def sketch(self, choice: Choice) -> Footprint:
        """For each vector of a row of the second operand its multiply-adds and its share of the sums' loads and stores; and its lines, which come in order."""
        tile, told = figures.of(tile_clocks.TEMPLATE, self.target), figures.of("cpu product", self.target)
        moved = self.m / choice["together"]  # sums that are loaded and stored
        step = max(self.m / self.target.core.fma, (1 + moved) / tile["loads"], moved, (1 + self.m + 2 * moved) / tile["width"])  # fmt: skip
        batch, width = size_of(self.op.output(0).shape[:-2]) or 1, choice["columns"]
        step = max(step, tile["latency"] / (width // self.lanes))  # a vector's steps wait for each other
        runs = -(-self.n // width)
        lines = batch * self.k * self.n * self.size / tile_clocks.LINE_BYTES
        far = told["memory_clocks"] if lines * tile_clocks.LINE_BYTES > self.target.core.l2_bytes else told["l2_clocks"]
        turns = batch * self.k / choice["together"]
        clocks = batch * self.k * runs * width / self.lanes * step + runs * turns * tile["tile"]
        clocks += lines * far / told["misses"]
        if runs > 1:
            clocks += batch * runs * self.k * packing.run_clocks(told, far, float(self.size * self.n))
        tasks = batch * runs
        return on_cores(clocks, 0.0, choice["parallel"], tasks if tasks < self.target.machine.units else math.inf)

    def build(self, choice: Choice) -> Scheduled:
        s = begin_cpu(self.group, self.target)
        sums, final = s[accumulators(s, self.op, self.out, "local")], s[self.out.output(0)]
        *lead, i, j = final.op.axis
        jo, ji = final.split(j, factor=choice["columns"], shift_inwards=True)
        vector, lane = final.split(ji, factor=self.lanes)
        final.reorder(*lead, jo, i, vector, lane)
        final.vectorize(lane)
        task = final.fuse(*lead, jo)
        if choice["parallel"]:
            final.parallel(task)
        sums.compute_at(final, task)
        *lead, i, j = sums.op.axis
        turn, step = sums.split(sums.op.reduce_axis[0], factor=choice["together"])
        vector, lane = sums.split(j, factor=self.lanes)
        sums.reorder(*lead, turn, vector, step, i, lane)
        for axis in (step, i):
            sums.unroll(axis)
        sums.vectorize(lane)
        return Scheduled(s, self.group.outputs, choice)
