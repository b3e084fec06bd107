"""Loops and branches of a plan on the CPU: which stretch of the table of steps runs next, and what a trip changes in the arguments.

Calls and copies of a loop stand one behind the other in the table, as do their arguments; a trip is one call of the machine code that walks them. Between
trips the addresses of states change places and those of rows move on: one addition over the loop's arguments.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .plan import Choose, Repeat, Step
from .trips import trips_of

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
        self.parts: list[Stretch | HostLoop | HostBranch] = []
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

        def taken(name: str) -> list[int]:
            return layout.arguments_in(frozenset([name]), first, self.body.count)

        # Arguments that change places, with the numbers of the two values; those that move on, with the value and the direction.
        self.states = [
            (np.array(taken(c.now), np.int64), np.array(taken(c.after), np.int64), names[c.now], names[c.after])
            for c in step.carried
        ]
        self.items = [(np.array(taken(n), np.int64), names[n], back) for n, back in step.items]
        self.begin = layout.calls[first][0] if self.body.count else 0
        ends = first + self.body.count
        self.end = layout.calls[ends][0] if ends < len(layout.calls) else len(engine.pointers)

    def _read(self, what: str, kind: Any) -> int | None:
        value = self.asked.get(what)
        return None if value is None else int(kind.from_address(self.engine.address(value)).value)

    def run(self) -> None:
        engine, binding = self.engine, self.engine.binding
        assert binding is not None
        trips = trips_of(
            self.step,
            None if self.trips is None else int(binding.numbers[self.trips]),
            self._read("count", ctypes.c_int64),
        )
        if self._read("start", ctypes.c_uint8) == 0:
            trips = 0
        pointers = engine.pointers[self.begin : self.end]
        start = pointers.copy()
        swap, move = np.zeros_like(start), np.zeros_like(start)
        for now, after, a, b in self.states:
            gap = engine.address(b) - engine.address(a)
            swap[now - self.begin] = gap
            swap[after - self.begin] = -gap
        for places, value, back in self.items:
            row = engine.layout.nbytes(binding, value)
            move[places - self.begin] = row * back
            if back < 0:
                start[places - self.begin] += row * (trips - 1)
        done = 0
        while done < trips:
            np.add(start, swap if done & 1 else 0, out=pointers)
            start += move
            self.body.run()
            done += 1
            if self._read("going", ctypes.c_uint8) == 0:
                break
        if done & 1:  # the states are to be where they began
            for *_, a, b in self.states:
                ctypes.memmove(engine.address(a), engine.address(b), engine.layout.nbytes(binding, a))
