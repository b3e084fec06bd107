"""Recurrent layers: a loop over time inside of one function.

CPU: a task is one direction of some batch entries, with its states in memory of its own; a step goes over the units in panels of some vectors, all gates
of a panel side by side, so that sums, activations and the new states of a unit are one loop and the weights one stream of memory. Nothing is
dispatched per step. Where there is but one task and a step is long, the panels of a step go over threads. GPU: see `recurrent_gpu`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

from ... import te
from ...ir import Expr
from ...ops.forms import Form
from ...ops.matmul import accumulator
from ...ops.recurrent import Plain, Recurrence
from ...target import Target
from ...te.ir_builder import BufferVar, IRBuilder
from ...te.like import Index
from .. import parallel
from ..cost import Footprint, Kernel, on_cores
from ..group import extent
from ..parts.counts import lanes_for
from ..space import Choice
from .recurrent_form import GPU_PANEL, TYPICAL, RecurrentForm

_SUMS = 24  # registers of sums at the most, where there are 32
MACS = 8  # multiply-adds a clock of a product of one row, whose weights come from the second-level cache


def preferred_panel(r: Recurrence, dtype: str, target: Target) -> int:
    """Units of a panel: some eight vectors of sums hide the latency of multiply-adds where one row is multiplied; a GPU's
    threads read weights of units side by side."""
    if target.is_gpu:
        return GPU_PANEL
    lanes = lanes_for(accumulator(dtype), target)
    gates = max(map(len, r.phases))
    wide = next((n for n in (8, 4, 2) if n * gates <= 8), 1)
    while wide > 1 and wide * lanes >= 2 * r.hidden:
        wide //= 2
    return wide * lanes


class CpuRecurrence(RecurrentForm):
    """Batch entries `rows` at a time by panels of `units`; `threads`: over "tasks" (directions and rows), over the "panels" of a step, or "none"."""

    template: ClassVar[str] = "cpu recurrence"

    @classmethod
    def serves(cls, form: Form, target: Target) -> bool:
        return not target.is_gpu

    def read_form(self) -> None:
        super().read_form()
        self.lanes = lanes_for(accumulator(self.form.inputs[0].dtype), self.target)
        self.parameters = {
            "units": (self.r.panel,) if self.r.panel else tuple(n * self.lanes for n in (1, 2, 4, 8)),
            "rows": tuple(n for n in (1, 2, 3, 4, 6, 8) if self.batch is None or n <= max(1, self.batch)),
            "threads": ("tasks", "panels", "none"),
        }

    @property
    def default(self) -> Choice:
        r, dtype = self.r, self.form.inputs[0].dtype
        units = r.panel or preferred_panel(r, dtype, self.target)
        sums = units // self.lanes * max(map(len, r.phases))
        # All entries at once read the weights once, as far as there are registers for their sums: a third is kept for operands.
        most = max(1, (_SUMS if self.target.vector_bytes >= 64 else _SUMS // 2) // sums)
        batch = TYPICAL if self.batch is None else max(1, self.batch)
        rows = max(n for n in self.parameters["rows"] if n <= min(most, batch))
        tasks = len(r.backward) * -(-batch // rows)
        threads = "none"
        if tasks > 1 and (self.batch is None or parallel.worth(tasks * self.steps * self.macs * rows / MACS / 2)):
            threads = "tasks"
        # A step of two products hands its work out twice, and threads read what others have just written.
        elif parallel.worth(self.macs * rows / MACS / (1 if len(r.phases) == 1 else self.figures["two_phases"])):
            threads = "panels"
        return self.choice(units=units, rows=rows, threads=threads)

    def sketch(self, choice: Choice) -> Footprint:
        """Multiply-adds at what one row's weights can be read, more where rows share them; steps that start threads pay for it."""
        rows = choice["rows"]
        batch = TYPICAL if self.batch is None else self.batch
        tasks = len(self.r.backward) * -(-batch // rows)
        clocks = self.steps * self.macs * max(1, rows / 2) / MACS
        if choice["threads"] == "panels":
            loops_ = max(1, self.steps * len(self.r.phases))
            return Footprint((Kernel(math.inf, issued=clocks / loops_, launches=tasks * loops_),), parallel=True)
        return on_cores(tasks * clocks, 0.0, choice["threads"] == "tasks", tasks)

    def body(self, choice: Choice, ib: IRBuilder, sources: list[BufferVar], results: list[BufferVar]) -> None:
        _Layer(self.r, ib, sources, results, choice).run()


class _Layer(Plain):
    """The loops of a layer; element access is the definition's."""

    def __init__(
        self, r: Recurrence, ib: IRBuilder, sources: list[BufferVar], results: list[BufferVar], choice: Choice
    ):
        super().__init__(r, ib, sources, results)
        self.units, self.rows, self.threads = choice["units"], choice["rows"], choice["threads"]
        self.panels = -(-self.hidden // self.units)
        self.full = self.panels * self.units  # units with those that fill the last panel
        self.tail = self.hidden % self.units

    def run(self) -> None:
        if not self.r.panel:
            self._pack()
        batch, rows = extent(self.batch), self.rows
        if batch is not None:
            blocks, rest = divmod(batch, rows)
            self._tasks(0, blocks, rows)
            if rest:
                self._tasks(blocks * rows, 1, rest)
            return
        blocks = te.indexdiv(self.batch, rows)
        self._tasks(0, blocks, rows)
        if rows > 1:
            self._tasks(blocks * rows, self.batch - blocks * rows, 1)

    def _tasks(self, first: Index, count: Index, rows: int) -> None:
        """`count` blocks of `rows` entries, from entry `first` on, each in every direction."""
        ib, directions = self.ib, len(self.r.backward)
        if isinstance(count, int) and count == 0:
            return
        kind = "parallel" if self.threads == "tasks" else "serial"
        with ib.for_range(0, count * directions, "task", kind=kind) as task:
            if directions == 1:
                _Task(self, 0, 0, first + task * rows, rows).run()
                return
            b, d = ib.let("b", first + te.indexdiv(task, 2) * rows), ib.let("d", te.indexmod(task, 2))
            if self.r.activations[0] == self.r.activations[1]:  # one code for both
                _Task(self, d, 0, b, rows).run()
                return
            with ib.if_scope(d == 0):
                _Task(self, 0, 0, b, rows).run()
            with ib.else_scope():
                _Task(self, 1, 1, b, rows).run()

    def _pack(self) -> None:
        """Weights that are no constants are put in panels at each run."""
        ib, n, units, acc = self.ib, self.hidden, self.units, self.acc
        elements = self.r.gates * self.full * n
        directions = len(self.r.backward)
        panels = ib.allocate(acc, (directions, elements), "panels")
        for d in range(directions):
            at = 0
            for gates in self.r.phases:
                with ib.for_range(0, self.panels, "p") as p, ib.for_range(0, n, "k") as k:
                    for i, g in enumerate(gates):
                        place = ib.let("place", at + ((p * n + k) * len(gates) + i) * units)
                        with ib.for_range(0, units, "u") as u:
                            unit = ib.let("unit", te.min(p * units + u, n - 1))
                            value = self.w[d, g * n + unit, k].astype(acc)
                            panels[d, place + u] = te.select(p * units + u < n, value, te.const(0, acc))
                at += len(gates) * self.full * n
        self.w = panels


class _Task:
    """Some batch entries in direction `d`, with the activations of direction `kind`: their states, and the loop over time."""

    def __init__(self, layer: _Layer, d: Index, kind: int, b: Index, rows: int):
        self.l, self.d, self.kind, self.b, self.rows = layer, d, kind, b, rows
        self.ib, self.r, self.acc = layer.ib, layer.r, layer.acc
        self.n, self.full, self.units = layer.hidden, layer.full, layer.units

    def _vector(self, n: int | None = None) -> Any:
        return self.ib.for_range(0, self.units if n is None else n, "lane", kind="vectorize")

    def run(self) -> None:
        """All steps of `rows` rows of the batch in a direction, whose state stays in the task's memory."""
        l, r, ib, full, rows = self.l, self.r, self.ib, self.full, self.rows
        self.h = ib.allocate(self.acc, (2 * rows * full,), "hidden")  # of this step and of the next
        self.c: Any = ib.allocate(self.acc, (rows * full,), "cell") if r.states == 2 else None
        two = len(r.phases) == 2
        self.reset: Any = ib.allocate(self.acc, (rows * full,), "reset") if two else None
        self.update: Any = ib.allocate(self.acc, (rows * full,), "update") if two else None
        for m in range(rows):
            with ib.for_range(0, self.n, "j") as j:
                self.h[m * full + j] = l.start(0, self.d, self.b + m, j)
                if self.c is not None:
                    self.c[m * full + j] = l.start(1, self.d, self.b + m, j)
            if l.tail:  # what fills the last panel is computed with the rest
                with ib.for_range(self.n, full, "j") as j:
                    for s in (self.h, self.c):
                        if s is not None:
                            s[m * full + j] = te.const(0, self.acc)
        with ib.for_range(0, l.steps, "step") as step:
            self.t = ib.let("t", l.time(self.d, step))
            self.now = ib.let("now", te.indexmod(step, 2) * (rows * full))
            self.after = ib.let("after", te.indexmod(step + 1, 2) * (rows * full))
            at = 0
            for phase, gates in enumerate(r.phases):
                kind = "parallel" if l.threads == "panels" else "serial"
                with ib.for_range(0, l.panels, "panel", kind=kind) as p:
                    self._panel(phase, p, at)
                at += len(gates) * full * self.n
        last = ib.let("last", te.indexmod(l.steps, 2) * (rows * full))
        for m in range(rows):
            with ib.for_range(0, self.n, "j") as j:
                l.ends[0][self.d, self.b + m, j] = self.h[last + m * full + j].astype(l.ends[0].dtype)
                if self.c is not None:
                    l.ends[1][self.d, self.b + m, j] = self.c[m * full + j].astype(l.ends[1].dtype)

    def _panel(self, phase: int, p: Expr, at: int) -> None:
        """The sums of a panel's units, and what becomes of them."""
        ib, units, gates, n = self.ib, self.units, self.r.phases[phase], self.n
        width = len(gates) * units
        begin = ib.let("begin", p * units)
        sums = ib.allocate(self.acc, (self.rows * width,), "sums", scope="local")
        for m in range(self.rows):
            for i, g in enumerate(gates):
                first = lambda j, m=m, g=g: self.l.first(self.d, self.b + m, self.t, g, j)  # noqa: E731
                self._load(sums, m * width + i * units, begin, first)
        vector = self.reset if phase else self.h
        where = 0 if phase else self.now
        with ib.for_range(0, n, "k") as k:
            row = ib.let("row", at + (p * n + k) * width)
            x = [ib.let("x", vector[where + (m * self.full + k)]) for m in range(self.rows)]
            for m in range(self.rows):
                for i in range(len(gates)):
                    with self._vector() as lane:
                        w = self.l.w[self.d, row + i * units + lane].astype(self.acc)
                        to = m * width + i * units
                        sums[to + lane] = sums[to + lane] + x[m] * w
        if self.rows == 1:
            self._row(0, begin, sums, phase)
            return
        # What follows is much code, and stands once for all rows: they are told apart in memory, not in registers.
        done = ib.allocate(self.acc, (self.rows * width,), "done", scope="local")
        for i in range(self.rows * len(gates)):
            with self._vector() as lane:
                done[i * units + lane] = sums[i * units + lane]
        with ib.for_range(0, self.rows, "m") as m:
            self._row(m, begin, done, phase)

    def _row(self, m: Index, begin: Index, sums: BufferVar, phase: int) -> None:
        gates = len(self.r.phases[phase])

        def at(i: int, lane: Index) -> Expr:
            return sums[(m * gates + i) * self.units + lane]

        got = [partial(at, i) for i in range(gates)]
        if phase + 1 == len(self.r.phases):
            self._finish(m, begin, got, phase)
            return
        with self._vector() as lane:
            place = m * self.full + begin + lane
            z, reset = self.r.reset(self.kind, [f(lane) for f in got], self.h[self.now + place])
            self.update[place] = z
            self.reset[place] = reset

    def _load(self, to: BufferVar, place: int, begin: Index, value: Any) -> None:
        """A panel of what has `hidden` units: the last one may have fewer, and then 0."""
        ib = self.ib

        def whole() -> None:
            with self._vector() as lane:
                to[place + lane] = value(begin + lane)

        if not self.l.tail:
            whole()
            return
        with ib.if_scope(begin + self.units <= self.n):
            whole()
        with ib.else_scope():
            with self._vector() as lane:
                to[place + lane] = te.const(0, self.acc)
            with ib.for_range(0, self.l.tail, "lane") as lane:
                to[place + lane] = value(begin + lane)

    def _more(self, m: Index, begin: Index, phase: int) -> Any:
        """`Recurrence.step`'s, as functions of a lane."""
        if phase:
            return lambda lane: self.update[m * self.full + begin + lane]
        if self.l.more(self.d, 0, 0, 0) is None:
            return lambda lane: None
        many = self.r.cell == "lstm"
        count = 3 if many else 1
        kept = self.ib.allocate(self.acc, (count * self.units,), "more", scope="local")

        def value(i: int, j: Index) -> Any:
            found = self.l.more(self.d, self.b + m, self.t, j)
            return found[i] if many else found

        for i in range(count):
            self._load(kept, i * self.units, begin, partial(value, i))
        if many:
            return lambda lane: [kept[i * self.units + lane] for i in range(3)]
        return lambda lane: kept[lane]

    def _finish(self, m: Index, begin: Index, sums: Sequence[Any], phase: int) -> None:
        """The new states of a panel, and its outputs."""
        ib, r, l = self.ib, self.r, self.l
        more = self._more(m, begin, phase)
        inside = l.inside(self.b + m, self.t)
        inside = None if inside is None else ib.let("inside", inside)
        with self._vector() as lane:
            place = m * self.full + begin + lane
            old = [self.h[self.now + place], *([self.c[place]] if self.c is not None else [])]
            new = r.step(self.kind, [f(lane) for f in sums], old, more(lane))
            if inside is not None:
                new = [te.select(inside, x, o) for x, o in zip(new, old)]
            # The cell first: the hidden state is made of the old one too.
            kept = [ib.let("new", x) for x in new]
            self.h[self.after + place] = kept[0]
            if self.c is not None:
                self.c[place] = kept[1]

        def shown(lane: Index) -> None:
            x = self.h[self.after + m * self.full + begin + lane]
            x = x if inside is None else te.select(inside, x, te.const(0, self.acc))
            l.y[self.t, self.d, self.b + m, begin + lane] = x.astype(l.y.dtype)

        if not l.tail:
            with self._vector() as lane:
                shown(lane)
            return
        with ib.if_scope(begin + self.units <= self.n), self._vector() as lane:
            shown(lane)
        with ib.else_scope(), ib.for_range(0, l.tail, "lane") as lane:
            shown(lane)
