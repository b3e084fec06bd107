"""Loops and branches of a plan on the CPU: which stretch of the table of steps runs next, and what a trip changes in the arguments.

Calls and copies of a loop stand one behind the other in the table, as do their arguments. Between trips the addresses of states change places and those of
rows move on. A loop without others in it is one call of machine code, which does that too (`tec.codegen.support.step_loop`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...records import dataclass
from ..devices.device import cpu
from ..modules.cpu_code import trip_loop
from ..plans.plan import Choose, Exchange, Repeat, Step
from ..plans.trip_counts import trips_of

if TYPE_CHECKING:
    from .host_engine import HostEngine


@dataclass(frozen=True, slots=True)
class Stretch:
    """Calls and copies without a loop or a branch among them, by their numbers."""

    first: int
    count: int


class HostSteps:
    """A list of steps."""

    def __init__(self, engine: HostEngine, steps: Sequence[Step], first: int = 0):
        self.engine = engine
        self.first = first
        self.count: int = 0  # of calls and copies, those of loops and branches too
        self.parts: list[Stretch | HostLoop | HostBranch | HostExchange] = []
        for step in steps:
            at = first + self.count
            if isinstance(step, Repeat):
                loop = HostLoop(engine, step, at)
                self.parts.append(loop)
                self.count += loop.body.count
            elif isinstance(step, Choose):
                branch = HostBranch(engine, step, at)
                self.parts.append(branch)
                self.count += branch.count
            elif isinstance(step, Exchange):
                self.parts.append(HostExchange(engine, step))
                self.count += 1
            else:
                last = self.parts[-1] if self.parts else None
                if isinstance(last, Stretch):
                    self.parts[-1] = Stretch(last.first, last.count + 1)
                else:
                    self.parts.append(Stretch(at, 1))
                self.count += 1

    def run(self) -> None:
        for part in self.parts:
            if isinstance(part, Stretch):
                self.engine.run_steps(part.first, part.count)
            else:
                part.run()


class HostExchange:
    """See `Exchange`."""

    def __init__(self, engine: HostEngine, step: Exchange):
        self.engine, self.step = engine, step

    def run(self) -> None:
        self.engine.exchange(self.step)


class HostBranch:
    """See `Choose`."""

    def __init__(self, engine: HostEngine, step: Choose, first: int):
        self.engine = engine
        self.condition = engine.layout.names[step.condition]
        self.then = HostSteps(engine, step.then, first)
        self.orelse = HostSteps(engine, step.orelse, first + self.then.count)
        self.count: int = self.then.count + self.orelse.count

    def run(self) -> None:
        truth = ctypes.c_uint8.from_address(self.engine.address(self.condition)).value
        (self.then if truth else self.orelse).run()


class HostLoop:
    """See `Repeat`."""

    def __init__(self, engine: HostEngine, step: Repeat, first: int):
        self.engine, self.step = engine, step
        self.body = HostSteps(engine, step.steps, first)
        layout, names = engine.layout, engine.layout.names
        self.trips = layout.trips.get(id(step))
        self.asked = {k: names[n] for k in ("count", "start", "going") if (n := getattr(step, k)) is not None}

        def taken(name: str) -> Any:
            return np.array(layout.arguments_in(frozenset([name]), first, self.body.count), np.int64)

        # Arguments that change places, with the numbers of the two values; those that move on, with the value and the direction.
        self.states = [(taken(c.now), taken(c.after), names[c.now], names[c.after]) for c in step.carried]
        self.items = [(taken(n), names[n], back) for n, back in step.items]
        moved = [x for now, after, *_ in self.states for x in (now, after)] + [x for x, *_ in self.items]
        self.places = np.unique(np.concatenate(moved)) if moved else np.zeros(0, np.int64)
        row = np.zeros(len(engine.pointers), np.int64)
        row[self.places] = np.arange(len(self.places))
        self.states = [(row[now], row[after], a, b) for now, after, a, b in self.states]
        self.items = [(row[x], value, back) for x, value, back in self.items]
        # Where each of them stands in the arguments, what it is at first, the change on odd trips, that of each trip.
        self.cells = np.zeros((len(self.places), 4), np.int64)
        self.cells[:, 0] = engine.pointers.ctypes.data + 8 * self.places
        self.words = np.zeros(7, np.int64)
        self.run_trips = trip_loop()
        self.is_plain = all(isinstance(p, Stretch) for p in self.body.parts)

    def _read(self, what: str, kind: Any) -> int | None:
        value = self.asked.get(what)
        return None if value is None else int(kind.from_address(self.engine.address(value)).value)

    def run(self) -> None:
        """Run the steps inside as often as the count and the condition say; states end where they began."""
        engine, binding = self.engine, self.engine.binding
        assert binding is not None
        trips = trips_of(
            self.step,
            None if self.trips is None else int(binding.numbers[self.trips]),
            self._read("count", ctypes.c_int64),
        )
        if self._read("start", ctypes.c_uint8) == 0:
            trips = 0
        cells, places = self.cells, self.places
        before = engine.pointers[places]
        cells[:, 1] = before
        cells[:, 2:] = 0
        for now, after, a, b in self.states:
            gap = engine.address(b) - engine.address(a)
            cells[now, 2] += gap
            cells[after, 2] -= gap
        for rows, value, back in self.items:
            nbytes = engine.layout.nbytes(binding, value)
            cells[rows, 3] += nbytes * back
            if back < 0:
                cells[rows, 1] += nbytes * (trips - 1)
        plain = self.is_plain and cpu().profile is None
        done = self._in_one_call(trips) if plain else self._one_by_one(trips)
        engine.pointers[places] = before  # a loop around this one runs it again
        if done & 1:  # the states are to be where they began
            for *_, a, b in self.states:
                ctypes.memmove(engine.address(a), engine.address(b), engine.layout.nbytes(binding, a))

    def _in_one_call(self, trips: int) -> int:
        """All trips in machine code; how many there were."""
        engine, going, words = self.engine, self.asked.get("going"), self.words
        words[:6] = (
            engine.table_at(self.body.first), self.body.count, trips, 0 if going is None else engine.address(going),
            len(self.cells), self.cells.ctypes.data,
        )  # fmt: skip
        at, status = self.run_trips(words.ctypes.data)
        if status:
            engine.fail(self.body.first + at, status)
        return int(words[6])

    def _one_by_one(self, trips: int) -> int:
        """The same where the steps hold loops or branches, or are timed."""
        start, swap, move = self.cells[:, 1].copy(), self.cells[:, 2], self.cells[:, 3]
        for done in range(trips):
            self.engine.pointers[self.places] = start + swap if done & 1 else start
            start += move
            self.body.run()
            if self._read("going", ctypes.c_uint8) == 0:
                return done + 1
        return trips
