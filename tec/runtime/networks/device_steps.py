"""Loops and branches of a plan on a GPU: calls follow one another in the executor's stream, and a loop gives them other arrays at each trip.

What sizes alone decide is queued without a wait, and can be captured with the rest. A condition or a trip count that the device makes is waited for and
read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..arrays.ndarray import NDArray
from ..devices.stream import Stream
from ..plans.layout import Binding, PlanLayout
from ..plans.plan import Call, Choose, Plan, Repeat, Step
from ..plans.steps import flat
from ..plans.trip_counts import trips_of

Calls = list[tuple[Any, list[Any]]]  # of all calls and copies in order: the function, its arguments


def copy(target: NDArray, source: NDArray) -> None:
    """A `Copy`."""
    target.copyfrom(source)


def _count(steps: Sequence[Step]) -> int:
    return sum(1 for _ in flat(steps))


def queued(steps: Sequence[Step], layout: PlanLayout, binding: Binding) -> int:
    """How many calls and copies a run of steps whose loops sizes bound comes to."""
    total = 0
    for s in steps:
        if isinstance(s, Repeat):
            bound = layout.trips.get(id(s))
            total += queued(s.steps, layout, binding) * (0 if bound is None else int(binding.numbers[bound]))
        else:
            total += 1
    return total


class DeviceSteps:
    """One run of a plan's steps on the arrays of a binding."""

    def __init__(
        self,
        plan: Plan,
        layout: PlanLayout,
        stream: Stream,
        calls: Calls,
        arrays: Mapping[str, NDArray],
        binding: Binding,
    ):
        self.plan, self.layout, self.stream = plan, layout, stream
        self.calls, self.arrays, self.binding = calls, arrays, binding
        self.values = [s.values for s in plan.flat]
        self.names = [s.args if isinstance(s, Call) else (s.target, s.source) for s in plan.flat]

    def run(self) -> None:
        self._steps(self.plan.steps, 0, {})

    def _steps(self, steps: Sequence[Step], at: int, moved: Mapping[str, NDArray]) -> int:
        """Queue steps, whose first call or copy has the number `at`; `moved`: the arrays that stand elsewhere in this trip. Gives the number behind
        the last."""
        for step in steps:
            if isinstance(step, Repeat):
                at = self._loop(step, at, moved)
            elif isinstance(step, Choose):
                truth = self._read(step.condition, moved)
                for part, taken in ((step.then, truth), (step.orelse, not truth)):
                    at = self._steps(part, at, moved) if taken else at + _count(part)
            else:
                function, args = self.calls[at]
                if moved:
                    here = [moved.get(n) if isinstance(n, str) else None for n in self.names[at]]
                    args = [a if to is None else _at(a, to.storage, to.address) for a, to in zip(args, here)]
                function(*args)
                at += 1
        return at

    def _read(self, name: str, moved: Mapping[str, NDArray]) -> int:
        self.stream.sync()
        return int(moved.get(name, self.arrays[name]).numpy().reshape(-1)[0])

    def _loop(self, step: Repeat, at: int, outer: Mapping[str, NDArray]) -> int:
        bound = self.layout.trips.get(id(step))
        count = None if step.count is None else self._read(step.count, outer)
        trips = trips_of(step, None if bound is None else int(self.binding.numbers[bound]), count)
        if step.start is not None and not self._read(step.start, outer):
            trips = 0
        behind = at + _count(step.steps)
        taken = {n for k in range(at, behind) for n in self.values[k]}
        done = 0
        while done < trips:
            self._steps(step.steps, at, {**outer, **self._moved(step, taken, outer, done, trips)})
            done += 1
            if step.going is not None and not self._read(step.going, outer):
                break
        if done & 1:  # the states are to be where they began
            for c in step.carried:
                self.arrays[c.now].copyfrom(self.arrays[c.after])
        return behind

    def _moved(
        self, step: Repeat, taken: set[str], outer: Mapping[str, NDArray], trip: int, trips: int
    ) -> dict[str, NDArray]:
        """The arrays that are not where they are at first."""
        moved: dict[str, NDArray] = {}
        places = {c.now: c.after for c in step.carried} | {c.after: c.now for c in step.carried}
        rows = dict(step.items)
        for name in taken:
            array = outer.get(name, self.arrays[name])
            for x in self.plan.chain(name):
                if x in rows:
                    k = trip if rows[x] > 0 else trips - 1 - trip
                    array = _at(array, array.storage, array.address + k * self.arrays[x].nbytes)
                elif x in places and trip & 1:
                    here, there = self.arrays[x], self.arrays[places[x]]
                    array = _at(array, there.storage, array.address + there.address - here.address)
            if array is not self.arrays[name]:
                moved[name] = array
        return moved


def _at(a: NDArray, storage: Any, address: int) -> NDArray:
    return NDArray(storage, address, a.shape, a.dtype, a.strides if not a.is_contiguous else None)
