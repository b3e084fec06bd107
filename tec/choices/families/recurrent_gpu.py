"""Recurrent layers on a GPU, in one of two ways.

"loop": a work-group has one batch entry in one direction and goes through time by itself, the state in shared memory; nothing is launched per step, and
one compute unit reads all weights at each. "launches": a kernel a step (and phase), launched one after another, whose work-groups have 32 units of some
batch entries each; so all compute units share the weights. Either way a thread has one unit and a part of the sum over the state, whose parts
meet in shared memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from ... import te
from ...ir import Expr
from ...ir.dtype import dtype_info
from ...ops.forms import Form
from ...ops.matmul import accumulator
from ...ops.recurrent import Plain
from ...target import Target
from ...te.ir_builder import BufferVar, IRBuilder
from ...te.like import Index
from ..cost import Cost, Footprint, Kernel
from ..group import extent
from ..parts import loops
from ..space import Choice
from .recurrent_form import GPU_PANEL, RecurrentForm

_PARTS = 8  # of a sum over the state, in a kernel a step: 256 threads
_MOST_THREADS = 1024
_BYTES = 64  # that a compute unit takes from the second-level cache in a clock (CDNA 3 and Ampere alike)
_STEP_CLOCKS = 600  # of a step's barriers, shared memory and activations, one waiting for the other


class GpuRecurrence(RecurrentForm):
    """`time`: "loop" or "launches" (see the module); `rows`: batch entries of a work-group in a kernel a step."""

    template: ClassVar[str] = "gpu recurrence"

    @classmethod
    def serves(cls, form: Form, target: Target) -> bool:
        return target.is_gpu

    def read_form(self) -> None:
        super().read_form()
        self.full = -(-self.hidden // GPU_PANEL) * GPU_PANEL
        # A work-group that goes through time has a thread for each unit.
        times = ("loop", "launches") if self.full <= _MOST_THREADS else ("launches",)
        self.parameters = {"time": times, "rows": (1, 2, 4)}
        self.acc_bytes = dtype_info(accumulator(self.form.inputs[0].dtype)).bytes
        self.widest = max(map(len, self.r.phases))

    def why_not(self, choice: Choice) -> str | None:
        alone = choice["time"] == "launches" or choice["rows"] == 1
        return None if alone else "a work-group goes through time with one batch entry"

    def sketch(self, choice: Choice) -> Footprint:
        """Parts of sums in shared memory, and the state; the price is `cost`."""
        if choice["time"] == "loop":
            states = len(self.r.phases)
            need, threads = (self.parts * self.widest + states) * self.full, self.full * self.parts
        else:
            need, threads = _PARTS * choice["rows"] * self.widest * GPU_PANEL, _PARTS * GPU_PANEL
        return Footprint((Kernel(threads=threads, shared_bytes=need * self.acc_bytes),))

    @property
    def parts(self) -> int:
        """Of a sum, where a work-group has all units: as many as it has threads and shared memory for."""
        most = max(1, min(_PARTS, _MOST_THREADS // self.full))
        room = (self.target.static_lds_bytes // self.acc_bytes - 2 * self.full) // (self.widest * self.full)
        return 1 << max(0, min(most, room).bit_length() - 1)

    def cost(self, choice: Choice) -> Cost:
        """A step: the weights through one compute unit or through all, and either its barriers or its launches."""
        machine = self.target.machine
        batch = 1 if self.batch is None else max(1, self.batch)
        weights = self.macs * dtype_info(self.form.inputs[0].dtype).bytes / _BYTES
        directions, phases = len(self.r.backward), len(self.r.phases)
        clock = machine.clock_hz
        if choice["time"] == "loop":
            rounds = -(-directions * batch // machine.units)
            return Cost(self.steps * rounds * (weights + phases * _STEP_CLOCKS) / clock, "memory")
        groups = directions * self.full // GPU_PANEL * -(-batch // choice["rows"])
        one = weights / (self.full // GPU_PANEL) + phases * _STEP_CLOCKS
        rounds = -(-groups // machine.units)
        return Cost(self.steps * (phases * machine.launch_seconds + rounds * one / clock), "launch")

    def body(self, choice: Choice, ib: IRBuilder, sources: list[BufferVar], results: list[BufferVar]) -> None:
        kind = _InOneKernel if choice["time"] == "loop" else _ByLaunches
        kind(self, ib, sources, results, choice["rows"]).run()


class _Kernel(Plain):
    """What both ways share."""

    def __init__(
        self, space: GpuRecurrence, ib: IRBuilder, sources: list[BufferVar], results: list[BufferVar], rows: int
    ):
        super().__init__(space.r, ib, sources, results)
        self.space, self.rows, self.full = space, rows, space.full
        self.tail = self.hidden % GPU_PANEL != 0

    def by_direction(self, d: Index, emit: Any) -> None:
        """`emit(kind)` for the activations of the direction; one code where they are the same."""
        acts = self.r.activations
        if len(acts) == 1 or acts[0] == acts[1]:
            emit(0)
            return
        with self.ib.if_scope(d == 0):
            emit(0)
        with self.ib.else_scope():
            emit(1)

    def joined(
        self, gates: Any, at: tuple[Any, Any, Any, Any], parts: int, part: Callable[[int, int], Any]
    ) -> list[Expr]:
        """The sums of gates at (direction, entry, step, unit), each the sum of `part(p, i)` for gate i."""
        d, b, t, u = at
        sums = []
        for i, g in enumerate(gates):
            total = loops.scalar(self.ib, self.acc, "total", self.first(d, b, t, g, u))
            for p in range(parts):
                total[0] = total[0] + part(p, i)
            sums.append(self.ib.let("sum", total[0]))
        return sums

    def stepped(
        self, kind: int, sums: list[Expr], states: list[Expr], more: Expr | None, b: Expr, t: Expr
    ) -> tuple[list[Any], Any]:
        """States after a step, and what is shown of it: beyond the end of an entry as they were, and 0."""
        old = [self.ib.let("old", x) for x in states]
        new = [self.ib.let("new", x) for x in self.r.step(kind, sums, old, more)]
        inside = self.inside(b, t)
        if inside is not None:
            new = [self.ib.let("new", te.select(inside, x, o)) for x, o in zip(new, old)]
        return new, new[0] if inside is None else te.select(inside, new[0], te.const(0, self.acc))

    def real(self, unit: Expr) -> Expr:
        """A unit that there is."""
        return te.min(unit, self.hidden - 1) if self.tail else unit

    def weight_at(self, d: Index, phase: int, i: int, unit: Expr, k: Index) -> Any:
        """The weight of a phase's gate i."""
        r, n, gates = self.r, self.hidden, self.r.phases[phase]
        if not r.panel:
            return self.w[d, gates[i] * n + self.real(unit), k].astype(self.acc)
        at = sum(len(g) for g in r.phases[:phase]) * self.full * n
        block, lane = te.indexdiv(unit, GPU_PANEL), te.indexmod(unit, GPU_PANEL)
        return self.w[d, at + ((block * n + k) * len(gates) + i) * GPU_PANEL + lane].astype(self.acc)

    def part(self, phase: int, d: Index, unit: Expr, part: Index, parts: int, rows: int, read: Any, to: Any) -> None:
        """One thread's part of the sums of a unit, in shared memory: `to(row, gate, value)`."""
        ib, n, gates = self.ib, self.hidden, self.r.phases[phase]
        each = -(-n // parts)
        sums = ib.allocate(self.acc, (rows * len(gates),), "sums", scope="local")
        for e in range(rows * len(gates)):
            sums[e] = te.const(0, self.acc)
        begin = part * each
        count = each if each * parts == n else te.max(0, te.min(each, n - begin))
        with ib.for_range(0, count, "k") as k:
            w = [ib.let("w", self.weight_at(d, phase, i, unit, begin + k)) for i in range(len(gates))]
            for m in range(rows):
                x = ib.let("x", read(m, begin + k))
                for i in range(len(gates)):
                    e = m * len(gates) + i
                    sums[e] = sums[e] + x * w[i]
        for m in range(rows):
            for i in range(len(gates)):
                to(m, i, sums[m * len(gates) + i])


class _InOneKernel(_Kernel):
    """Time inside of a kernel: threadIdx.x is the unit, threadIdx.y the part of the sum."""

    def run(self) -> None:
        """A work-group for a row of the batch and a direction: a thread has a unit, or a part of its sums."""
        ib, r, full, parts = self.ib, self.r, self.full, self.space.parts
        with loops.launch(self.ib, (self.batch, len(r.backward)), (full, parts)) as (b, d, unit, part):
            h = ib.allocate(self.acc, (full,), "hidden", scope="shared")
            kept = ib.allocate(self.acc, (full,), "kept", scope="shared") if len(r.phases) == 2 else None
            shared = ib.allocate(self.acc, (parts * self.space.widest * full,), "parts", scope="shared")
            own = ib.allocate(self.acc, (2,), "own", scope="local")  # the cell, or the update gate
            u = ib.let("u", self.real(unit))
            first = part == 0
            with ib.if_scope(first):
                h[unit] = self.start(0, d, b, u)
                own[0] = self.start(1, d, b, u) if r.states == 2 else te.const(0, self.acc)
            with ib.for_range(0, self.steps, "step") as step:
                t = ib.let("t", self.time(d, step))
                for phase, gates in enumerate(r.phases):
                    source = kept if phase else h

                    def to(m: int, i: int, value: Expr) -> None:
                        shared[(part * self.space.widest + i) * full + unit] = value

                    self.part(phase, d, unit, part, parts, 1, lambda m, k, s=source: s[k], to)
                    with ib.if_scope(first):
                        sums = self.joined(gates, (d, b, t, u), parts, lambda p, i: shared[(p * self.space.widest + i) * full + unit])  # fmt: skip
                        at = (d, b, t, u, unit)
                        self.by_direction(d, partial(self._finish, phase, sums, at, h, kept, own))
            with loops.where(self.ib, first, unit < self.hidden if self.tail else True):
                self.ends[0][d, b, u] = h[unit].astype(self.ends[0].dtype)
                if r.states == 2:
                    self.ends[1][d, b, u] = own[0].astype(self.ends[1].dtype)

    def _finish(
        self, phase: int, sums: list[Expr], at: Any, h: BufferVar, kept: Any, own: BufferVar, kind: int
    ) -> None:
        r = self.r
        d, b, t, u, unit = at
        if phase + 1 < len(r.phases):
            z, reset = r.reset(kind, sums, h[unit])
            own[0] = z
            kept[unit] = reset
            return
        more = own[0] if phase else self.more(d, b, t, u)
        new, shown = self.stepped(kind, sums, [h[unit], *([own[0]] if r.states == 2 else [])], more, b, t)
        h[unit] = new[0]
        if r.states == 2:
            own[0] = new[1]
        with loops.where(self.ib, unit < self.hidden if self.tail else True):
            self.y[t, d, b, u] = shown.astype(self.y.dtype)


class _ByLaunches(_Kernel):
    """A kernel a step and phase. States lie in global memory, the hidden one twice: as it is, and as it becomes."""

    def run(self) -> None:
        ib, r, full = self.ib, self.r, self.full
        batch = extent(self.batch)
        self.entries = self.batch if batch is None else batch
        self.blocks = te.indexdiv(self.batch + (self.rows - 1), self.rows) if batch is None else -(-batch // self.rows)
        self.ragged = self.rows > 1 and (batch is None or batch % self.rows != 0)
        directions = len(r.backward)
        size = self.entries * (directions * full)
        self.h = ib.allocate(self.acc, (size * 2,), "hidden")
        self.c: Any = ib.allocate(self.acc, (size,), "cell") if r.states == 2 else None
        two = len(r.phases) == 2
        self.kept: Any = ib.allocate(self.acc, (size,), "kept") if two else None
        self.update: Any = ib.allocate(self.acc, (size,), "update") if two else None
        self.size = size
        self._each_unit(self._begin)
        with ib.for_range(0, self.steps, "step") as step:
            for phase in range(len(r.phases)):
                self._step(step, phase)
        self._each_unit(self._end)

    def place(self, d: Index, b: Index, unit: Index) -> Any:
        return (d * self.entries + b) * self.full + unit

    def _each_unit(self, emit: Any) -> None:
        threads = min(256, self.full)
        blocks = -(-self.full // threads)
        with loops.launch(self.ib, (blocks, self.entries, len(self.r.backward)), (threads,)) as (x, b, d, thread):
            unit = self.ib.let("unit", x * threads + thread)
            with loops.where(self.ib, unit < self.hidden if self.hidden != blocks * threads else True):
                emit(d, b, unit)

    def _begin(self, d: Index, b: Index, unit: Index) -> None:
        self.h[self.place(d, b, unit)] = self.start(0, d, b, unit)
        if self.c is not None:
            self.c[self.place(d, b, unit)] = self.start(1, d, b, unit)

    def _end(self, d: Index, b: Index, unit: Index) -> None:
        last = te.indexmod(self.steps, 2) * self.size
        self.ends[0][d, b, unit] = self.h[last + self.place(d, b, unit)].astype(self.ends[0].dtype)
        if self.c is not None:
            self.ends[1][d, b, unit] = self.c[self.place(d, b, unit)].astype(self.ends[1].dtype)

    def _step(self, step: Index, phase: int) -> None:
        """One phase of a step: the kernel in which each thread has a unit, whose sums some threads share."""
        ib, r, rows, gates = self.ib, self.r, self.rows, self.r.phases[phase]
        grid = (self.full // GPU_PANEL, self.blocks, len(r.backward))
        with loops.launch(self.ib, grid, (GPU_PANEL, _PARTS)) as (panel, block, d, lane, part):
            unit = ib.let("unit", panel * GPU_PANEL + lane)
            u = ib.let("u", self.real(unit))
            t = ib.let("t", self.time(d, step))
            now = ib.let("now", te.indexmod(step, 2) * self.size)
            after = ib.let("after", te.indexmod(step + 1, 2) * self.size)
            shared = ib.allocate(self.acc, (_PARTS * rows * len(gates) * GPU_PANEL,), "parts", scope="shared")

            def entry(m: Index) -> Any:
                b = block * rows + m
                return te.min(b, self.entries - 1) if self.ragged else b

            def read(m: int, k: Index) -> Any:
                return self.kept[self.place(d, entry(m), k)] if phase else self.h[now + self.place(d, entry(m), k)]

            def slot(p: Any, m: Index, i: int) -> Any:
                return ((p * rows + m) * len(gates) + i) * GPU_PANEL + lane

            def to(m: int, i: int, value: Expr) -> None:
                shared[slot(part, m, i)] = value

            def part_of(m: int, p: int, i: int) -> Any:
                return shared[slot(p, m, i)]

            self.part(phase, d, unit, part, _PARTS, rows, read, to)
            for m in range(rows):
                inside = block * rows + m < self.entries if self.ragged else True
                with loops.where(self.ib, part == m, unit < self.hidden if self.tail else True, inside):
                    b = ib.let("b", entry(m))
                    sums = self.joined(gates, (d, b, t, u), _PARTS, partial(part_of, m))
                    at = (d, b, t, u, ib.let("place", self.place(d, b, unit)), now, after)
                    self.by_direction(d, partial(self._finish, phase, sums, at))

    def _finish(self, phase: int, sums: list[Expr], at: Any, kind: int) -> None:
        r = self.r
        d, b, t, u, place, now, after = at
        if phase + 1 < len(r.phases):
            self.update[place], self.kept[place] = r.reset(kind, sums, self.h[now + place])
            return
        more = self.update[place] if phase else self.more(d, b, t, u)
        states = [self.h[now + place], *([self.c[place]] if self.c is not None else [])]
        new, shown = self.stepped(kind, sums, states, more, b, t)
        self.h[after + place] = new[0]
        if self.c is not None:
            self.c[place] = new[1]
        self.y[t, d, b, u] = shown.astype(self.y.dtype)
