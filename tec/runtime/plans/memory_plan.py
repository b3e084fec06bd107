"""Memory planning: offsets in one arena for values with lifetimes, as close to the lower bound as a greedy plan comes.

In: `Lifetime`s (bytes, first and last step, both inclusive). Out: offsets and the arena's size. Each goes to the
smallest gap between those that live at the same time, largest first (the greedy-by-size of Pisarchyk and Lee, 2020, "Efficient
Memory Management for Deep Neural Net Inference"). What then ends above the lower bound is placed first in another round (the
squeaky wheel of Joslin and Clements, 1999); the smallest plan of some rounds is taken.

`lifetimes` finds them in a network's plan, and `place` gives a plan without offsets its own, once sizes are numbers.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...records import dataclass
from .plan import Choose, Env, Plan, Repeat, Step
from .steps import burst_of

ALIGN = 256


@dataclass(frozen=True)
class Lifetime:
    name: str
    nbytes: int
    first: int
    last: int


_ROUNDS = 16


def plan(lifetimes: list[Lifetime]) -> tuple[dict[str, int], int]:
    """(offset by name, bytes of the arena)."""
    if not lifetimes:
        return {}, 0
    bound = lower_bound(lifetimes)
    order = np.array(sorted(range(len(lifetimes)), key=lambda k: (-lifetimes[k].nbytes, lifetimes[k].first)))
    sizes, first, last = (
        np.array(a, np.int64)
        for a in zip(*((-(-max(x.nbytes, 1) // ALIGN) * ALIGN, x.first, x.last) for x in lifetimes))
    )
    best: tuple[int, Any, Any] | None = None
    for _ in range(_ROUNDS):
        start = _greedy(sizes[order], first[order], last[order])
        end = start + sizes[order]
        total = int(end.max())
        if best is None or total < best[0]:
            best = total, order, start
        if total <= bound:
            break
        over = end > bound
        order = np.concatenate([order[over], order[~over]])
    assert best is not None
    total, order, start = best
    return {lifetimes[k].name: int(at) for k, at in zip(order, start)}, total


def _greedy(sizes: Any, first: Any, last: Any) -> Any:
    """Offsets, in the order given."""
    start, end = np.zeros(len(sizes), np.int64), np.zeros(len(sizes), np.int64)
    for k, size in enumerate(sizes):
        busy = np.nonzero((first[:k] <= last[k]) & (last[:k] >= first[k]))[0]
        at = 0
        if len(busy):
            busy = busy[np.argsort(start[busy], kind="stable")]
            reach = np.maximum.accumulate(end[busy])
            below = np.concatenate([[0], reach[:-1]])  # where the gap under each begins
            gap = start[busy] - below
            fits = np.nonzero(gap >= size)[0]
            at = below[fits[np.argmin(gap[fits])]] if len(fits) else reach[-1]
        start[k], end[k] = at, at + size
    return start


def lower_bound(lifetimes: list[Lifetime]) -> int:
    """The largest number of bytes that live at one step: no plan can do with less."""
    change: dict[int, int] = {}
    for x in lifetimes:
        nbytes = -(-max(x.nbytes, 1) // ALIGN) * ALIGN
        change[x.first] = change.get(x.first, 0) + nbytes
        change[x.last + 1] = change.get(x.last + 1, 0) - nbytes
    most = now = 0
    for step in sorted(change):
        now += change[step]
        most = max(most, now)
    return most


def share(lifetimes: list[Lifetime]) -> dict[str, int]:
    """The slot of each: two that live at the same step never share one. The largest first, each to the slot whose size is nearest."""
    largest: list[int] = []  # of each slot; the first to take it
    firsts: list[list[int]] = []  # the steps from which those of a slot live, in order,
    lasts: list[list[int]] = []  # and to which they do
    found: dict[str, int] = {}
    for x in sorted(lifetimes, key=lambda x: (-x.nbytes, x.first)):
        best, place = -1, 0
        for k, (first, last) in enumerate(zip(firsts, lasts)):
            at = bisect(first, x.first)
            free = (at == 0 or last[at - 1] < x.first) and (at == len(first) or x.last < first[at])
            if free and (best < 0 or largest[k] < largest[best]):
                best, place = k, at
        if best < 0:
            best = len(largest)
            largest.append(x.nbytes)
            firsts.append([])
            lasts.append([])
        firsts[best].insert(place, x.first)
        lasts[best].insert(place, x.last)
        found[x.name] = best
    return found


def lifetimes(network: Plan, env: Env, strict: bool = True) -> list[Lifetime]:
    """Of the values in the arena, for the sizes `env`: from the first step that takes it to the last, the network's outputs to the
    end. What shows or is a part of a value lives as that one does. Not `strict`: a size that cannot be worked out counts as one byte."""
    values = network.values
    whole = {name: network.root(name) for name in values}
    for name in reversed(values):  # parts are named before what they are parts of
        for p in values[name].parts:
            whole[p] = whole[name]
    found = _Lives(network, whole)
    found.walk(network.steps)
    for o in network.outputs:
        name = whole[whole[o.value]]
        if name in found.last:
            found.last[name] = found.step
    first, last = found.first, found.last

    def nbytes(name: str) -> int:
        try:
            return values[name].nbytes(env)
        except (ZeroDivisionError, KeyError):
            if strict:
                raise
            return 1

    return [Lifetime(n, nbytes(n), first[n], last[n]) for n in first]


class _Lives:
    """The first and the last step that takes each value of the arena; the steps of loops and branches are counted with the others."""

    def __init__(self, network: Plan, whole: dict[str, str]):
        self.network, self.whole = network, whole
        self.first: dict[str, int] = {}
        self.last: dict[str, int] = {}
        self.step = 0

    def take(self, name: str) -> str:
        """A step takes a value: the value of the arena that it lies in."""
        held = self.whole[self.whole[name]]
        if self.network.values[held].place == "arena":
            self.first.setdefault(held, self.step)
            self.last[held] = self.step
        return held

    def walk(self, steps: Sequence[Step]) -> None:
        joined = burst_of(steps)
        for k, step in enumerate(steps):
            if not isinstance(step, (Repeat, Choose)):
                for s in (steps[m] for m in joined.get(k, (k,))):  # what runs at the same time holds its values as long
                    for a in s.values:
                        self.take(a)
                self.step += 1
                continue
            begin = self.step
            kept = {self.take(a) for a in step.values}
            self.step += 1
            for part in step.parts:
                self.walk(part)
            if isinstance(step, Repeat):
                # What a trip finds is there for the next one too, and so is what moves from trip to trip.
                for held, k in self.first.items():
                    if self.last[held] >= begin and (k < begin or held in kept):
                        self.last[held] = self.step
            self.step += 1


def place(network: Plan, env: Env) -> Plan:
    """The plan of a network with the offsets of its arena for the sizes `env`."""
    offsets, total = plan(lifetimes(network, env))
    for name in reversed(network.values):
        at = offsets.get(name, 0)
        for p in network.values[name].parts:
            offsets[p] = at
            at += network.values[p].nbytes(env)
    values = {n: replace(v, offset=offsets.get(n, 0)) if v.place == "arena" else v for n, v in network.values.items()}
    return replace(network, values=values, arena_bytes=total)
