"""Races on work-group memory: accesses of different threads that no barrier orders.

Lockstep execution hides a missing barrier. With `run(..., races=True)`, for lowered functions, each element of shared memory
remembers which thread wrote and which threads read it since which barrier, and an access that depends on the order of
threads raises. A barrier of scope "wave" orders the lanes of one wavefront only.

A warpgroup product reads its operands until a wait says that its group has ended: what it reads may not be written before, and behind the wait not without a barrier.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .interp_lanes import Storage

if TYPE_CHECKING:
    from .interp_expr import ExprMachine

Array = np.ndarray[Any, Any]
_NOBODY, _SEVERAL = -1, -2


class Track:
    """For each element: the last writer and the readers since, with the barriers they had passed."""

    __slots__ = ("flights", "reader", "reads", "writer", "writes")

    def __init__(self, shape: tuple[int, int]):
        self.writer = np.full(shape, _NOBODY, np.int64)
        self.reader = np.full(shape, _NOBODY, np.int64)
        self.writes = np.zeros((*shape, 2), np.int64)  # barriers passed: of the work-group, of the wavefront
        self.reads = np.zeros((*shape, 2), np.int64)
        self.flights = np.zeros(shape, np.int64)  # products under way that read the element


class Races:
    """One launch's barriers, and the checks of its accesses."""

    def __init__(self, machine: ExprMachine):
        self.machine = machine
        launch = machine.launch
        assert launch is not None
        self.threads = launch.threads
        n = launch.lanes.n
        self.passed = np.zeros((n, 2), np.int64)
        self.tracks: dict[int, tuple[Storage, Track]] = {}
        # By a warpgroup's first thread: what each group of products reads, the open one last.
        self.groups: dict[int, list[list[tuple[Storage, int, Array]]]] = {}

    def _track(self, storage: Storage) -> Track:
        hit = self.tracks.get(id(storage))
        if hit is None:
            hit = self.tracks[id(storage)] = (storage, Track(storage.data.shape))
        return hit[1]

    def who(self) -> Array:
        """Each lane's thread, numbered over the batch of work-groups."""
        m = self.machine
        assert m.launch is not None
        return m.lanes.ancestor(m.launch.lanes)

    def barrier(self, scope: str) -> None:
        m = self.machine
        who = self.who() if m.mask is None else self.who()[m.mask]
        who = np.unique(who)
        self.passed[who, 1] += 1
        if scope != "wave":
            self.passed[who, 0] += 1

    def _ordered(self, other: Array, when: Array, who: Array) -> Array:
        """Whether a barrier stands between the access of `other` (at `when`) and one by `who` now."""
        same_wave = other // self.machine.wave == who // self.machine.wave
        if self.threads % self.machine.wave:
            within = other % self.threads // self.machine.wave == who % self.threads // self.machine.wave
            same_wave = within & (other // self.threads == who // self.threads)
        now = self.passed[who]
        return np.asarray(np.where(same_wave, when[..., 1] < now[..., 1], when[..., 0] < now[..., 0]))

    def _spread(self, storage: Storage, row: Any, idx: Array) -> tuple[Array, Array, Array]:
        n = self.machine.lanes.n
        shape = (n, *idx.shape[1:])
        tail = [1] * (len(shape) - 1)
        rows = np.zeros(n, np.int64) if row is None else row
        who = np.broadcast_to(self.who().reshape(n, *tail), shape)
        rows = np.broadcast_to(np.asarray(rows).reshape(n, *tail), shape)
        idx = np.broadcast_to(idx, shape)
        if self.machine.mask is not None:
            keep = self.machine.mask
            return who[keep].reshape(-1), rows[keep].reshape(-1), idx[keep].reshape(-1)
        return who.reshape(-1), rows.reshape(-1), idx.reshape(-1)

    def read(self, storage: Storage, row: Any, idx: Array) -> None:
        t = self._track(storage)
        who, r, i = self._spread(storage, row, idx)
        writer = t.writer[r, i]
        bad = (writer != _NOBODY) & (writer != who) & ~self._ordered(writer, t.writes[r, i], who)
        self._report(bad, storage, i, writer, who, "written", "read")
        before, when = t.reader[r, i], t.reads[r, i]
        fresh = (before == _NOBODY) | (before == who) | (when[:, 0] < self.passed[who, 0])
        t.reader[r, i] = np.where(fresh, who, _SEVERAL)
        t.reads[r, i] = self.passed[who]
        # Several readers of an element in one statement: the last one is kept above, the others must count too.
        t.reader[r, i] = np.where(t.reader[r, i] == who, t.reader[r, i], _SEVERAL)

    def write(self, storage: Storage, who: Array, r: Array, i: Array, value: Array) -> None:
        t = self._track(storage)
        who, r, i = who.reshape(-1), r.reshape(-1), i.reshape(-1)
        writer, reader = t.writer[r, i], t.reader[r, i]
        flying = t.flights[r, i] > 0
        if flying.any():
            k = int(np.nonzero(flying)[0][0])
            raise self.machine.error(
                f"a race: element {int(i[k])} of {storage.name} ({storage.scope}) is written by thread {int(who[k]) % self.threads} while a warpgroup product reads it",
            )
        bad = (writer != _NOBODY) & (writer != who) & ~self._ordered(writer, t.writes[r, i], who)
        self._report(bad, storage, i, writer, who, "written", "written")
        late = t.reads[r, i][:, 0] < self.passed[who, 0]
        several = (reader == _SEVERAL) & ~late
        other = (reader >= 0) & (reader != who) & ~self._ordered(np.maximum(reader, 0), t.reads[r, i], who)
        self._report(several | other, storage, i, reader, who, "read", "written")
        t.writer[r, i] = who
        t.writes[r, i] = self.passed[who]
        t.reader[r, i] = _NOBODY
        again = t.writer[r, i] != who
        if again.any() and (storage.data[r, i][again] != value.reshape(-1)[again]).any():
            self._report(again, storage, i, t.writer[r, i], who, "written", "written")

    # ---- warpgroup products

    def begin(self, lane: int, storage: Storage, row: int, at: Array) -> None:
        """A product of the warpgroup whose first lane this is begins to read."""
        t, i = self._track(storage), at.reshape(-1)
        who = np.broadcast_to(self.who()[lane], i.shape)
        writer = t.writer[row, i]
        bad = (writer != _NOBODY) & ~self._ordered(writer, t.writes[row, i], who)
        self._report(bad, storage, i, writer, who, "written", "multiplied")
        t.flights[row, i] += 1  # each element once
        self.groups.setdefault(int(who[0]), [[]])[-1].append((storage, row, i))

    def commit(self, lane: int) -> None:
        """The products begun since the last commit are a group."""
        self.groups.setdefault(int(self.who()[lane]), [[]]).append([])

    def landed(self, lane: int, under_way: int) -> None:
        """At most so many groups of the warpgroup are still under way."""
        first = int(self.who()[lane])
        groups = self.groups.setdefault(first, [[]])
        while len(groups) - 1 > under_way:
            for storage, row, i in groups.pop(0):
                t = self._track(storage)
                t.flights[row, i] -= 1
                t.reader[row, i] = _SEVERAL
                t.reads[row, i] = self.passed[first]

    def _report(
        self, bad: Array, storage: Storage, i: Array, other: Array, who: Array, first: str, second: str
    ) -> None:
        if bad.any():
            k = int(np.nonzero(bad)[0][0])
            one = "several threads" if other[k] == _SEVERAL else f"thread {int(other[k]) % self.threads}"
            raise self.machine.error(
                f"a race: element {int(i[k])} of {storage.name} ({storage.scope}) is {first} by {one} and {second} by thread "
                f"{int(who[k]) % self.threads} with no barrier between",
            )
