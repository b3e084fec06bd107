"""Rows: reductions along the trailing axes of one output (softmax, normalisation), and everything between them.

CPU: one pass of loops a row, everything else inside, rows over threads. GPU: a work-group a row, whose threads share each reduction; few very long rows go in parts,
a kernel for each reduction's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import ClassVar

from ...ir import Call, IterVar, Var
from ...ir.dtype import dtype_info
from ...ir.passes.vectorize_loops import COSTLY
from ...ir.visit import walk_exprs
from ...locks import cached_property
from ...schedule import Stage
from ...target import Target
from ...te import ComputeOp, Operation, Tensor, compute, thread_axis
from .. import parallel
from ..cost import Cost, Footprint, Kernel, on_cores
from ..group import Group, begin, extent_of, reads_of, reduce_size, same_shape, shape_key, size_of
from ..parts.counts import lanes_for, moved_bytes, work
from ..parts.pointwise import begin_cpu
from ..parts.threads import bind_all, dealt
from ..space import Choice, Scheduled, Space, Value
from .reductions import rows_in_lanes
from .sum_loops import equal_parts, group_per_output, in_parts

_REGISTERS = 32  # elements of a row that a thread keeps from pass to pass: with two passes' temporaries, half of what eight waves a SIMD may have
_ALONE = 64  # the same of a work-group of the most threads, which fills a unit by itself
_USUAL_THREADS = 256  # of a row: four wavefronts of 64
_FUNCTION, _MEET = 16, 4  # operations of an exponential, and of a step in which two lanes meet
_OPERATIONS = 2  # of an element in a pass: it is made from what was read, and added
_PART = 2048  # elements of a part of a row at least: 8 a thread, in pieces of 16 bytes
_PART_THREADS = 256
_OPEN_ROW = 256  # elements of a row of symbolic length, for the choice of threads


def match(group: Group, target: Target) -> Space | None:
    """The space of a group that is computed row by row: one output, which reads at its own row what is summed over rows."""
    reductions, ends = group.reductions(), group.output_ops
    out = ends[0] if reductions and len(ends) == 1 else None
    if (
        isinstance(out, ComputeOp)
        and out.reduce_axis
        and out.num_outputs == 1
        and len(reductions) > 1
        and target.is_gpu
    ):
        last = out.output(0)  # a sum over what other sums come to: as a value of the row, which is then written
        group = Group.of([compute(last.shape, lambda *i: last[i], name=f"{last.name}_row")])
        (out,) = group.output_ops
    if not isinstance(out, ComputeOp) or out.reduce_axis:
        return None
    outer = _common_rows(group, out, reductions, target.is_gpu)
    kind: type[GpuRows | CpuRows] = GpuRows if target.is_gpu else CpuRows
    return kind.match(group, target, out, outer) if outer else None


class CpuRows(Space):
    """All reductions inside of the output's loop over rows; vectors of `vectors` registers."""

    template: ClassVar[str] = "cpu rows"

    def __init__(self, group: Group, target: Target, out: ComputeOp, outer: int):
        super().__init__(group, target)
        self.out, self.outer = out, outer
        self.parameters = {"vectors": (1, 2, 4), "parallel": (True, False)}

    @classmethod
    def match(cls, group: Group, target: Target, out: ComputeOp, outer: int) -> CpuRows | None:
        reductions, one_a_row = group.reductions(), _is_one_a_row(out, outer)
        if not min(sum(extent_of(a) != 1 for a in red.axis) for red in reductions):
            return None
        if len(reductions) < 2 and (one_a_row or same_shape(reductions[0].output(0), out.output(0))):
            return None
        space = cls(group, target, out, outer)
        # What stays in the second cache is read again for nothing, and stages put more rows side by side.
        space.is_second = one_a_row and moved_bytes(group) <= target.core.l2_bytes
        return space

    @property
    def default(self) -> Choice:
        return self.choice(vectors=1, parallel=parallel.worth(work(self.out) * parallel.ROWS))

    def sketch(self, choice: Choice) -> Footprint:
        return on_cores(work(self.out) * parallel.ROWS, moved_bytes(self.group), choice["parallel"])

    def _is_kept(self, op: ComputeOp) -> bool:
        """Whether a stage is made once a row: several read it, and it takes longer to make than to store and load. Of rows that are vectors, and lie near meanwhile."""
        if op.reduce_axis or self.group.is_output(op) or len(self.group.consumers.get(op, [])) < 2:
            return False
        row = size_of(op.output(0).shape[self.outer :])
        fits = row is not None and lanes_for(op.output(0).dtype, self.target) <= row <= self.target.core.l2_bytes // 8
        own = len(op.axis) == self.outer + 1
        return fits and own and any(isinstance(e, Call) and e.op in COSTLY for b in op.body for e in walk_exprs(b))

    def build(self, choice: Choice) -> Scheduled:
        target, out, outer = self.target, self.out, self.outer
        kept = [op for op in self.group.ops if isinstance(op, ComputeOp) and self._is_kept(op)]
        s = begin_cpu(self.group, target, keep=kept)
        stage = s[out]
        lead_loop = stage.fuse(*out.axis[:outer])
        if choice["parallel"]:
            stage.parallel(lead_loop)
        for red in self.group.reductions():
            s[red].compute_at(stage, lead_loop)
            rows_in_lanes(s, red, target)
        for op in kept:  # for the row's length of it
            s[op].compute_at(stage, lead_loop)
            _, vec = s[op].split(op.axis[-1], factor=lanes_for(op.output(0).dtype, target), shift_inwards=True)
            s[op].vectorize(vec)
        inner = out.axis[-1]
        n = extent_of(inner)
        lanes = lanes_for(out.output(0).dtype, target) * choice["vectors"]
        if outer < len(out.axis) and (n is None or n >= lanes):
            _, vec = stage.split(inner, factor=lanes)
            stage.vectorize(vec)
        return Scheduled(s, self.group.outputs, choice)


class GpuRows(Space):
    """`threads` a row; `rows` a work-group, where a row has a wavefront's threads or fewer. `parts`: each reduction is made of so many parts of a row, by a kernel of
    its own, and so is the result: rows are read once more each time, by all units."""

    template: ClassVar[str] = "gpu rows"
    neutral: ClassVar[Mapping[str, Value]] = {"rows": 1, "parts": 1}
    outline: ClassVar[frozenset[str]] = frozenset({"threads"})

    def __init__(self, group: Group, target: Target, out: ComputeOp, outer: int):
        super().__init__(group, target)
        self.out, self.outer = out, outer
        self.has_one_a_row = _is_one_a_row(out, outer)
        # Rows of symbolic length: as many threads as suit short and middling ones.
        self.longest = max(_OPEN_ROW if n is None else n for n in self._lengths())
        # Clocks said that threads must keep a long row: on an H200 31,240 float32 take 137 us by 1,024 threads, which keep them, and 262 by 256, whose loops are
        # priced below these, as if the second cache gave the row again for nothing.
        self.is_ranked = self.longest > _REGISTERS * _USUAL_THREADS
        read = [t for r in group.reductions() for t in r.inputs if not t.op.inputs] or [out.output(0)]
        # Codes of a byte are made of wider numbers: of 16 a thread would read four pieces.
        self.element_bytes = max(2, min(dtype_info(t.dtype).bytes for t in (*read, out.output(0))))
        self.parameters = {
            "threads": (32, 64, 128, 256, 512, 1024, 16, 8), "piece": (16, 8, 4, 0), "rows": (1, 2, 4, 8, 16, 32), "parts": self._parts(),
        }  # fmt: skip

    def _parts(self) -> tuple[int, ...]:
        """In how many parts rows may go, so that there are some work-groups a unit: of rows of known length that are fewer than the units."""
        rows, units = size_of(self.out.output(0).shape[: self.outer]), self.target.machine.units
        length = self._length()
        alike = all(reduce_size(r) == length and r.num_outputs == 1 for r in self.group.reductions())
        if rows is None or length is None or not alike or rows >= units:
            return (1,)
        return (1, *(p for p in equal_parts(length, rows) if p > 1 and length >= p * _PART and rows * p <= 8 * units))

    def _length(self) -> int | None:
        if self.has_one_a_row:
            return reduce_size(self.group.reductions()[0])
        return size_of(a.dom.extent for a in self.out.axis[self.outer :] if a.dom is not None)

    @classmethod
    def match(cls, group: Group, target: Target, out: ComputeOp, outer: int) -> GpuRows | None:
        reductions = group.reductions()
        if outer >= len(out.axis) and len(reductions) < 2:
            return None
        if _is_one_a_row(out, outer) and (len(reductions) < 2 or len({reduce_size(r) for r in reductions}) > 1):
            return None  # one sum a row is a reduction
        if any(shape_key(r.output(0))[:outer] != shape_key(out.output(0))[:outer] for r in reductions):
            return None
        if any(size_of(r.output(0).shape[outer:]) != 1 for r in reductions):
            return None  # sums for each element of the row, not for the row
        return cls(group, target, out, outer)

    @property
    def default(self) -> Choice:
        # A wavefront of 32 or 64 for short rows: its sums need no barrier. Longer ones take four wavefronts, or as many as keep the row.
        threads = 32 if self.longest <= 64 else 64 if self.longest <= 1024 else _USUAL_THREADS
        if self.longest > _REGISTERS * threads and self.target.max_threads >= 1024:
            threads = 1024
        usual = {"threads": (threads,), "piece": self.parameters["piece"], "rows": (1,), "parts": (1,)}
        ruled = self.ruled(longest=self.longest, bytes=self.element_bytes, rows=self._rows())
        for told in (*ruled, {}):
            # Whole turns first: what some threads alone load is loaded again in the last pass.
            found = min(self.legal({**usual, **{k: (v,) for k, v in told.items()}}), key=self._is_ragged, default=None)
            if found is not None:
                break
        else:
            found = self.choice(threads=min(threads, self.target.max_threads), piece=0, rows=1, parts=1)
        others = [*self._short(), *self._parted_choices()]
        return min((found, *others), key=lambda c: self.cost(c).seconds) if others else found

    def _short(self) -> Iterator[Choice]:
        """Of short rows several by a wavefront, where a figure says up to how many bytes that is quicker; the price tells how many. Not where each row has a unit of its own."""
        rows = size_of(self.out.output(0).shape[: self.outer])
        if rows is not None and rows <= self.target.machine.units:
            return
        if "short" in self.figures and self.longest * self.element_bytes <= self.figures["short"]:
            shared = {"threads": (8, 16, 32), "piece": self.parameters["piece"], "rows": (8, 4, 2), "parts": (1,)}
            kept = (c for c in self.legal(shared) if self._in_registers(c["threads"]))
            yield from (c for c in kept if c["threads"] < 2 * self.longest)

    def _parted_choices(self) -> Iterator[Choice]:
        parts = self.parameters["parts"][1:]
        return self.legal({"threads": (_PART_THREADS,), "piece": (0,), "rows": (1,), "parts": parts})

    def why_not(self, choice: Choice) -> str | None:
        if choice["parts"] > 1:
            usual = choice["rows"] == 1 and choice["piece"] == 0 and choice["threads"] == _PART_THREADS
            return None if usual else "parts of rows have one number of threads, which load in pieces of their own"
        if choice["rows"] > 1 and (choice["threads"] > self.target.wavefront_size or self._rows() < choice["rows"]):
            return "a work-group has one row, or several of those there are, each by a wavefront's threads or fewer"
        run = self._run(choice)
        # Where a figure says so the last pieces of a row may be some threads' alone.
        whole = run if "ragged" in self.figures else run * choice["threads"]
        if choice["piece"] and (run < 2 or any(n is None or n % whole for n in self._lengths())):
            return "rows are no whole number of pieces for all threads"
        return None

    def _is_ragged(self, choice: Choice) -> bool:
        """Whether some threads have a piece more of a row, or all have single elements."""
        turn = self._run(choice) * choice["threads"]
        return not choice["piece"] or any(n is None or n % turn for n in self._lengths())

    def _rows(self) -> int:
        """Rows of the output; 1 where that is symbolic."""
        return size_of(self.out.output(0).shape[: self.outer]) or 1

    def _lengths(self) -> list[int | None]:
        return [self._length(), *[reduce_size(r) for r in self.group.reductions()]]

    @cached_property
    def _costly(self) -> int:
        """Operations of the functions that an element goes through in all passes."""
        bodies = [b for op in self.group.ops if isinstance(op, ComputeOp) for b in op.body]
        return _FUNCTION * sum(isinstance(e, Call) and e.op in COSTLY for b in bodies for e in walk_exprs(b))

    def _in_registers(self, threads: int) -> bool:
        alone = threads >= 1024 and self.target.machine.priced_by_model
        return all(n is not None and n <= (_ALONE if alone else _REGISTERS) * threads for n in self._lengths())

    def _run(self, choice: Choice) -> int:
        """Neighbours of a row that are one thread's, as many as it loads at once."""
        return max(1, int(choice["piece"]) // self.element_bytes)

    def sketch(self, choice: Choice) -> Footprint:
        """Passes over rows: each thread its elements of all of them, the sums of a work-group's wavefronts through shared memory. A row that is kept in registers is waited
        for once."""
        if choice["parts"] > 1:
            return self._parted(choice["parts"])
        threads, passes = choice["threads"], len(self.group.reductions()) + 1
        run = self._run(choice)
        # A whole piece or none: of rows of a few pieces some threads have nothing.
        own, moved = run * -(-self.longest // (run * threads)), moved_bytes(self.group)
        loads = own / run
        kept = self._in_registers(threads) and self._run(choice) > 1
        meets = (passes - 1) * (threads > self.target.wavefront_size)
        # Of the threads of a row, which meet by lanes that differ in a bit each.
        lanes = math.log2(min(threads, self.target.wavefront_size))
        return Footprint((Kernel(
            -(-self._rows() // choice["rows"]), threads * choice["rows"], 0, own if kept else 0, moved, moved * (1 if kept else passes),
            issued=own * (passes * _OPERATIONS + self._costly) + (passes - 1) * _MEET * lanes, waits=passes if kept else passes * loads, barriers=2 * meets,
        ),))  # fmt: skip

    def cost(self, choice: Choice) -> Cost:
        """By the sketch, and no less than what one unit draws: a row that its threads cannot keep comes from beyond the first cache in each pass."""
        found, threads = super().cost(choice), choice["threads"]
        kept = self._in_registers(threads) and self._run(choice) > 1
        if choice["parts"] > 1 or kept or "unit_bytes_a_clock" not in self.figures:
            return found
        machine, rows = self.target.machine, self._rows()
        reads = len(self.group.reductions()) + 1
        drawn = moved_bytes(self.group) / 2 / rows * (reads + 1) * math.ceil(rows / machine.units)
        seconds = drawn / self.figures["unit_bytes_a_clock"] / machine.clock_hz
        least = machine.launch_seconds + seconds
        return Cost(least, "L2") if least > found.seconds else found

    def _parted(self, parts: int) -> Footprint:
        """A kernel for the parts of each reduction, one that joins them, and one for the result."""
        rows, threads, moved = self._rows(), _PART_THREADS, moved_bytes(self.group)
        own = -(-self.longest // (parts * threads))
        loads = own / max(1, 16 // self.element_bytes)
        read, partial = moved / 2, 4.0 * rows * parts
        part = Kernel(rows * parts, threads, 0, 0, read, read, issued=own * _OPERATIONS, waits=loads, barriers=2)
        joined = Kernel(
            rows, threads, 0, 0, partial, partial, issued=parts / threads, waits=-(-parts // threads), barriers=2
        )
        last = Kernel(rows * self.longest / threads / 4, threads, 0, 0, moved, moved, issued=4 * _OPERATIONS, waits=1)
        return Footprint((part, joined) * len(self.group.reductions()) + (last,))

    def build(self, choice: Choice) -> Scheduled:
        """A work-group for some rows, its threads along them; each thread has the sums of its row. Rows in parts are `_build_parts`."""
        if choice["parts"] > 1:
            return self._build_parts(choice)
        s, out, outer, threads = begin(self.group), self.out, self.outer, choice["threads"]
        stage = s[out]
        lead = stage.fuse(*out.axis[:outer])
        block = lead
        if choice["rows"] > 1:
            # Where they do not divide all rows the last work-group begins earlier, and repeats some: a condition would stand around the threads' sums.
            block, lead = stage.split(lead, factor=choice["rows"], shift_inwards=True)
            stage.bind(lead, thread_axis("threadIdx.y"))
        stage.bind(block, thread_axis("blockIdx.x"))
        tx = thread_axis((0, threads), "threadIdx.x")
        run = self._run(choice)
        # The same elements of a row are a thread's in each pass, and the passes have no loop: what it has loaded stays in its registers.
        in_registers = self._in_registers(threads)

        def spread(of: Stage, along: IterVar) -> None:
            """A row over the threads, a run of elements each."""
            # As single elements: LLVM takes those of the last pass from the registers of the first, and joins the stores.
            turns = dealt(of, along, threads, tx, run)
            if run > 1 and in_registers:
                of.unroll(turns)

        if not self.has_one_a_row:
            spread(stage, stage.fuse(*out.axis[outer:]))
        for red in self.group.reductions():
            rstage = s[red]
            spread(rstage, rstage.fuse(*red.reduce_axis))
            rstage.compute_at(stage, lead)
            rstage.set_scope("local")  # each thread of the work-group has the sum
        return Scheduled(s, self.group.outputs, choice)

    def _build_parts(self, choice: Choice) -> Scheduled:
        s = begin(self.group)
        for red in self.group.reductions():
            now = s[red].op
            assert isinstance(now, ComputeOp)
            left = in_parts(s, now, choice["parts"], lambda p: group_per_output(s, p, p, _PART_THREADS))
            group_per_output(s, left, left, min(_PART_THREADS, 1 << (choice["parts"] - 1).bit_length()))
        out = s[self.out].op
        assert isinstance(out, ComputeOp)
        bind_all(s, out, _PART_THREADS, vector=16)
        return Scheduled(s, self.group.outputs, choice)


def _is_one_a_row(out: ComputeOp, outer: int) -> bool:
    """Whether the output has one element of each row: what its reductions come to, and no row."""
    return size_of(a.dom.extent for a in out.axis[outer:] if a.dom is not None) == 1


def _common_rows(group: Group, out: ComputeOp, reductions: list[ComputeOp], may_be_all: bool) -> int | None:
    """How many leading axes of the output all reductions share with it, and are read at; None where that is no row pattern. may_be_all: also where the output has an
    element of each row and no axis more."""
    shape = shape_key(out.output(0))
    best = len(shape) if may_be_all and len(reductions) > 1 else len(shape) - 1
    for red in reductions:
        own = shape_key(red.output(0))
        k = 0
        while k < min(len(own), len(shape)) and own[k] == shape[k]:
            k += 1
        if any(d != 1 for d in own[k:]):
            return None
        best = min(best, k)
    found = places(group, out)
    own_row = all(
        found.get(red, ())[:best] == tuple(None if n == 1 else d for d, n in enumerate(shape[:best]))
        for red in reductions
    )
    return best if own_row else None


def places(group: Group, out: ComputeOp) -> dict[Operation, tuple[int | None, ...]]:
    """Of each operation that the output reads, at any distance: which of the output's axes each dimension is read at; None for another index, for a
    dimension of one, and where readers differ. Equal extents say nothing: of a square both axes have them."""
    places: dict[Operation, tuple[int | None, ...]] = {
        out: tuple(None if n == 1 else d for d, n in enumerate(shape_key(out.output(0))))
    }
    for op in reversed(group.ops):
        found: list[tuple[Tensor, tuple[int | None, ...]]]
        if isinstance(op, ComputeOp):
            at = dict(zip((a.var for a in op.axis), places.get(op, ())))
            found = [
                (e.tensor, tuple(at.get(i) if isinstance(i, Var) else None for i in e.indices)) for e in reads_of(op)
            ]
        else:
            found = [(t, (None,) * len(t.shape)) for t in op.inputs]
        for t, place in found:
            before = places.get(t.op, place)
            places[t.op] = tuple(a if a == b else None for a, b in zip(before, place))
    return places
