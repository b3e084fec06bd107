"""One compute unit in time: waves of work-groups issue their instructions, wait for each other and for memory.

An event at a time, the wave whose next instruction may start first; of those that may start at once the one of the highest priority (`s_setprio`),
then the one that has waited for longest (chips take the oldest: docs/decisions/time-model.md). Ports of each SIMD by kind (issue
slots, vector lanes, matrix pipe), the LDS (a port for each pair of SIMDs and the banks' clocks), the path to the L1, and, beyond it, the unit's share of
each level of memory as a server that gives so many bytes a clock, and what a unit did not take while it waited faster behind that (`_Server`). A wave starts its
instructions in order; counters of outstanding operations hold it at waits, and at the most that they can count. Work-groups take the places of those that end. They come no
faster than a die starts waves. What is left out: instruction fetch, register banks.

Sources of the rules are named in `issue` and, of the figures, in `tec.target`. LDS: 64-lane stores of 4 bytes take 8 clocks of a port that gives 64
bytes a clock, of 16 bytes 20 (rocprofiler-compute, "LDS"): the bytes, and 4 clocks more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from ..chips import Chip
from .issue import BARRIER, FREE, LDS, LOAD, MATRIX, NOP, PRIORITY, SCALAR, SMEM, STORE, TRANS, VALU, WAIT, Issue
from .steps import GroupSteps, WaveSteps

# The most operations that a counter can count: s_waitcnt's fields (ISA manuals).
_MOST = {"vmcnt": 63, "lgkmcnt": 15, "vscnt": 63, "loadcnt": 63, "storecnt": 63, "dscnt": 63, "kmcnt": 31}

_SHARED = ("matrix pipe", "VALU", "issue", "memory queue")  # what waves wait for in turn


@dataclass(slots=True)
class Share:
    """What an access costs beyond the L1, by the row of its event: of its lines, what part goes to each level, and how long it takes.

    `service`: clocks that one line of this row holds each of the servers `Rates.servers`; `latency`: clocks until the data is there.
    """

    service: tuple[float, ...]
    latency: float


@dataclass(slots=True)
class Rates:
    """The memory that a unit sees, in its clocks."""

    servers: tuple[str, ...]  # "L2", "MALL", "memory"
    shares: dict[int, Share]  # by row
    l1_bytes: float  # a clock
    line_bytes: int
    lds_latency: float
    scalar_latency: float
    memory_latency: float
    # Of each server's time for a line, what it takes where the other units leave all to this one.
    alone: tuple[float, ...]


@dataclass(slots=True)
class _Wave:
    steps: WaveSteps
    group: _Group
    simd: int
    number: int  # in the order of their start
    priority: int = 0  # of s_setprio, negated: the less, the earlier
    since: float = 0.0  # when its next instruction could have started, had nobody held what it shares
    step: int = -1
    pc: int = 0
    event: int = 0
    code: Sequence[Issue] = ()
    counts: Sequence[int] = ()
    ready: dict[int, float] = field(default_factory=dict)
    chained: dict[int, float] = field(default_factory=dict)
    queues: dict[str, list[float]] = field(default_factory=dict)
    marks: dict[int, float] = field(default_factory=dict)
    marked: frozenset[int] = frozenset()
    last: dict[str, int] = field(default_factory=dict)  # the kind of a counter's last operation


@dataclass(slots=True)
class _Server:
    """A unit's part of a level of memory: when it has given what it was asked for.

    A part of the bandwidth is the unit's, and what it does not take others do. Units whose waves all wait for memory do not do so at the same time for long: the first burst of all is
    served to one after another, and so the next ones come one after another. A burst behind such a wait therefore finds the level as good as alone, for as much as the unit's part would have been
    worth since the last one ended, and no more than stood in line by parts then, which is how far the units came apart. What all do at the same time (the first loads, results
    behind a long loop) goes by parts.
    """

    alone: float
    free: float = 0.0
    parts: float = 0.0  # when all were given by parts
    line: float = 0.0  # clocks by parts, the most that stood in line since the unit last had nothing on its way
    before: float = 0.0  # the same of the burst before
    credit: float = 0.0  # clocks by parts, of what is given as to a unit alone

    def take(self, t: float, clocks: float, waited: bool) -> float:
        """When what takes so many clocks by parts is given, if it is asked for at `t`; `waited`: nothing of the unit's was on its way then."""
        if t > self.free:
            if waited:
                self.before, self.line = self.line, 0.0
            self.credit = min(self.credit + t - self.free, self.before)
            self.free = t
        self.parts = max(self.parts, t) + clocks
        self.line = max(self.line, self.parts - t)
        quick = min(clocks, self.credit)
        self.credit -= quick
        self.free += clocks - quick * (1.0 - self.alone)
        return self.free


@dataclass(slots=True)
class _Group:
    steps: GroupSteps
    slot: int
    live: int
    waiting: list[tuple[_Wave, float]] = field(default_factory=list)  # at a barrier, since when
    started: float = 0.0
    waves: list[_Wave] = field(default_factory=list)


@dataclass(slots=True)
class UnitTime:
    """`clocks` from the first work-group's start to the last one's end, what was left out of loops included; `ends` of each group; `stalls`: clocks
    that waves waited, by what for; `held`: the same by the number of the instruction that waited."""

    clocks: float
    ends: list[float]
    stalls: dict[str, float]
    lives: float  # clocks that waves lived, together, without what was left out
    held: dict[int, float]


def gap_clocks(wave: _Wave) -> float:
    """How long the turns that were left out of a wave's loops take."""
    extra: list[tuple[int, float]] = []
    for after, before, turns in sorted(wave.steps.gaps):
        if after in wave.marks and before in wave.marks:
            inner = sum(t for s, t in extra if before < s <= after)
            extra.append((after, turns * (wave.marks[after] - wave.marks[before] + inner) / 3))
    return sum(t for _, t in extra)


class Unit:
    """A compute unit of `chip`; `lanes` of a wave."""

    def __init__(self, chip: Chip, lanes: int, rates: Rates, wave_clocks: float = 0.0):
        """`wave_clocks`: in which the unit gets a wave, of all that are started on its die."""
        self.chip, self.lanes, self.rates, self.wave_clocks = chip, lanes, rates, wave_clocks
        self.rdna = chip.limits.simd_lanes > 16
        self.slot = 1 if self.rdna else 4
        self.simds = chip.limits.simds
        self.lds_port_bytes = chip.limits.lds_bytes_a_clock // (1 if self.rdna else 2)

    def run(self, groups: list[GroupSteps], places: int) -> UnitTime:
        """`groups` one after another on `places` that hold one each."""
        self.heap: list[tuple[float, int, float, int, _Wave]] = []
        self.ports = [[0.0] * 8 for _ in range(self.simds)]  # when each is free, by kind of instruction
        self.pipes = [0.0] * self.simds  # matrix
        self.lanes_free = [0.0] * self.simds
        self.lds_ports = [0.0] * (1 if self.rdna else max(1, self.simds // 2))
        self.lds_core = self.l1 = 0.0
        self.servers = [_Server(alone) for alone in self.rates.alone]
        self.answered = 0.0  # until when something is on its way
        self.stalls: dict[str, float] = {}
        self.held: dict[int, float] = {}
        self.serial = 0
        self.begun = 0.0  # until when waves are being started
        lives = 0.0
        pending = list(reversed(groups))
        extra = [0.0] * places  # what was left out, of the groups of a place so far
        ends: list[float] = []
        final = 0.0
        for place in range(min(places, len(groups))):
            self._start(pending.pop(), place, 0.0)
        heap = self.heap
        while heap:
            t, *_, wave = heappop(heap)
            end = self._advance(wave, t)
            if end is None:
                continue
            group = wave.group
            group.live -= 1
            lives += end - group.started
            if group.live:
                if len(group.waiting) == group.live:
                    self._release(group, end)
                continue
            gap = max(gap_clocks(w) for w in group.waves)
            extra[group.slot] += gap
            ends.append(end + extra[group.slot])
            final = max(final, ends[-1])
            if pending:
                self._start(pending.pop(), group.slot, end)
        # What was stored last is on its way when the last wave has ended.
        final = max(final, max(extra) + max([self.l1, *(s.free for s in self.servers)]))
        return UnitTime(final, ends, self.stalls, lives, self.held)

    def _start(self, steps: GroupSteps, place: int, at: float) -> None:
        self.begun = at = max(at, self.begun) + len(steps.waves) * self.wave_clocks
        group = _Group(steps, place, len(steps.waves), started=at)
        for k, w in enumerate(steps.waves):
            marked = frozenset(s for a, b, _ in w.gaps for s in (a, b))
            wave = _Wave(w, group, self.serial % self.simds, self.serial, marked=marked)
            self.serial += 1
            group.waves.append(wave)
            wave.since = at + k
            self._push(at + k, wave)

    def _push(self, t: float, wave: _Wave) -> None:
        heappush(self.heap, (t, wave.priority, wave.since, wave.number, wave))

    def _release(self, group: _Group, t: float) -> None:
        for w, since in group.waiting:
            self._waited(w.code[w.pc - 1].number, t - since, "barrier")
            w.since = t + self.slot
            self._push(t + self.slot, w)
        group.waiting = []

    def _waited(self, number: int, clocks: float, why: str) -> None:
        self.stalls[why] = self.stalls.get(why, 0.0) + clocks
        self.held[number] = self.held.get(number, 0.0) + clocks

    def _stall(self, wave: _Wave, until: float, now: float, why: str) -> None:
        self._waited(wave.code[wave.pc].number, until - now, why)
        if why not in _SHARED:
            wave.since = until
        self._push(until, wave)

    def _advance(self, wave: _Wave, t: float) -> float | None:
        """Issue from `wave` at `t` and on, as long as no other wave comes first; the time of its end, once it is there."""
        heap, slot = self.heap, self.slot
        while True:
            if wave.pc >= len(wave.code):
                wave.step += 1
                if wave.step in wave.marked:
                    wave.marks[wave.step] = t
                if wave.step >= len(wave.steps.blocks):
                    return t
                block = wave.group.steps.program.blocks[wave.steps.blocks[wave.step]]
                wave.code, wave.counts, wave.pc = block.code, block.events, 0
                wave.event = wave.steps.first[wave.step]
                continue
            issue = wave.code[wave.pc]
            kind = issue.kind
            if kind == FREE:
                wave.event += wave.counts[wave.pc]
                wave.pc += 1
                continue
            if kind == WAIT:
                if not self._arrived(wave, issue, t):
                    return None
                wave.pc += 1
                continue  # no issue port: taken out of the instruction buffer
            if kind == BARRIER:
                group = wave.group
                wave.pc += 1
                group.waiting.append((wave, t))
                if len(group.waiting) == group.live:
                    self._release(group, t)
                return None
            if kind == PRIORITY:
                wave.priority = -issue.busy
                wave.pc += 1
                continue
            if kind == NOP:
                wave.pc += 1
                t += issue.busy
            else:
                at, why = self._earliest(wave, issue, t)
                if at > t:
                    self._stall(wave, at, t, why)
                    return None
                self._issue(wave, issue, t)
                wave.event += wave.counts[wave.pc]
                wave.pc += 1
                t += max(slot, issue.busy if kind in (VALU, TRANS) and self.rdna else 0)
            wave.since = t
            if heap and ((first := heap[0])[0] < t or (first[0] == t and first[1] < wave.priority)):
                self._push(t, wave)
                return None

    def _arrived(self, wave: _Wave, issue: Issue, t: float) -> bool:
        """Whether what a wait waits for is there; the wave is put off until then where it is not."""
        until, worst = t, LOAD
        for name, n in issue.waits:
            queue = wave.queues.get(name)
            if queue and len(queue) > n:
                there = max(queue[: len(queue) - n])
                if there > until:
                    until, worst = there, wave.last[name]
        if until > t:
            why = {LDS: "LDS", SMEM: "scalars"}.get(worst, "memory")
            self._stall(wave, until, t, f"wait for {why}")
            return False
        for name, n in issue.waits:
            queue = wave.queues.get(name)
            if queue and len(queue) > n:
                del queue[: len(queue) - n]
        return True

    def _earliest(self, wave: _Wave, issue: Issue, t: float) -> tuple[float, str]:
        """When a wavefront may issue an instruction, `t` at the earliest, and what it waits for: a result, a pipe, a counter."""
        kind, simd = issue.kind, wave.simd
        at, why = t, ""
        ready = wave.ready
        if ready:
            for r in issue.reads:
                x = ready.get(r)
                if x is not None and x > at:
                    at, why = x, "result"
        if kind == MATRIX:
            chained = wave.chained
            for r in issue.chained:
                x = chained.get(r)
                if x is not None and x > at:
                    at, why = x, "result"
            x = max(self.pipes[simd], self.lanes_free[simd])
            if x > at:
                at, why = x, "matrix pipe"
        elif kind in (VALU, TRANS):
            x = max(self.lanes_free[simd], self.pipes[simd] if self.rdna else 0.0)
            if x > at:
                at, why = x, "VALU"
        elif kind == SCALAR:
            x = self.ports[simd][SCALAR]
            if x > at:
                at, why = x, "issue"
        else:
            x = self.ports[simd][kind if kind == LDS else LOAD]
            if x > at:
                at, why = x, "issue"
            queue = wave.queues.get(issue.counter)
            most = _MOST.get(issue.counter, 63)
            if queue and len(queue) >= most and queue[-most] > at:
                at, why = queue[-most], "counter"
            if kind in (LOAD, STORE):
                # What is on its way fills queues: no more of it than memory takes to answer, which is all that keeps it busy.
                x = max(self.l1, *(s.free for s in self.servers)) - self.rates.memory_latency
                if x > at:
                    at, why = x, "memory queue"
        return at, why

    def _issue(self, wave: _Wave, issue: Issue, t: float) -> None:
        kind, simd = issue.kind, wave.simd
        if kind == MATRIX:
            self.pipes[simd] = t + issue.busy
            self.lanes_free[simd] = max(self.lanes_free[simd], t + (issue.busy if self.rdna else self.slot))
            for r in issue.writes:
                wave.ready[r] = t + issue.after
                wave.chained[r] = t + issue.busy
        elif kind in (VALU, TRANS):
            # A transcendental unit of its own goes on beside the lanes on RDNA; on CDNA it is the lanes.
            self.lanes_free[simd] = t + (self.slot if self.rdna and kind == TRANS else issue.busy)
            if issue.after:
                for r in issue.writes:
                    wave.ready[r] = t + issue.after
        elif kind == SCALAR:
            self.ports[simd][SCALAR] = t + self.slot
        elif kind == SMEM:
            self.ports[simd][LOAD] = t + self.slot
            self._outstanding(wave, issue, t + self.rates.scalar_latency)
        elif kind == LDS:
            self.ports[simd][LDS] = t + self.slot
            self._outstanding(wave, issue, self._lds(wave, simd, t))
        else:
            self.ports[simd][LOAD] = t + self.slot
            self._outstanding(wave, issue, self._memory(wave, issue, t))

    def _outstanding(self, wave: _Wave, issue: Issue, until: float) -> None:
        counter = issue.counter
        wave.last[counter] = issue.kind
        queue = wave.queues.setdefault(counter, [])
        if queue and counter != "kmcnt":
            until = max(until, queue[-1])  # they are counted down in order
        queue.append(until)
        if len(queue) > 256:
            del queue[:128]

    def _lds(self, wave: _Wave, simd: int, t: float) -> float:
        """When an LDS access is done: its bytes through the port, the banks' clocks (which hold the port as well)."""
        steps, n = wave.steps, wave.counts[wave.pc]
        clocks = sum(steps.events[wave.event : wave.event + n])
        if not clocks:
            return t + self.rates.lds_latency  # a permute, or all lanes off
        block = steps.blocks[wave.step]
        at = wave.event - steps.first[wave.step]
        program = wave.group.steps.program
        moved = self.lanes * sum(program.rows[r].nbytes for r in program.rows_of(block)[at : at + n])
        port = simd * len(self.lds_ports) // self.simds
        held = max(clocks, moved / self.lds_port_bytes) + (0 if self.rdna else 4)
        begin = max(t, self.lds_ports[port])
        self.lds_ports[port] = begin + held
        self.lds_core = max(self.lds_core, begin) + clocks
        return max(self.lds_ports[port], self.lds_core) + self.rates.lds_latency

    def _memory(self, wave: _Wave, issue: Issue, t: float) -> float:
        """When a global access is done: addresses and lines through the L1, then what of them goes on to each level."""
        rates, steps = self.rates, wave.steps
        program = wave.group.steps.program
        first, waited = wave.event, t >= self.answered
        rows = program.rows_of(wave.steps.blocks[wave.step])
        base = first - steps.first[wave.step]
        done = t
        for k in range(wave.counts[wave.pc]):
            row, n = rows[base + k], steps.events[first + k]
            # A load straight to LDS: what it writes there keeps the banks as a store does.
            if program.rows[row].kind.startswith("lds"):
                self.lds_core = max(self.lds_core, t) + n
                continue
            if not n:
                continue
            share = rates.shares[row]
            nbytes = program.rows[row].nbytes * self.lanes
            self.l1 = max(self.l1, t) + max(self.lanes / 16, min(nbytes, n * rates.line_bytes) / rates.l1_bytes, n)
            last = self.l1
            for server, cost in zip(self.servers, share.service):
                if cost:
                    last = max(last, server.take(t, n * cost, waited))
            done = max(done, last + share.latency)
        self.answered = max(self.answered, done)
        return done
