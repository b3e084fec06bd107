"""Where the lines that a launch touches come from: the L1 of a unit, the L2 of a die, the MALL, memory.

From traces of work-groups that run at the same time: all those that a chip holds at once step through their streams together, so an access finds
its line in a cache where the line was touched before and not more lines than the cache holds have come in between. What lies in between is
taken from the mean rate at which lines come that are new (a footprint, not a cache with sets and ways). Work-groups are dealt to the dies in
turn ("workgroup i goes to XCD i % 8", rocm-libraries 6501), each with an L2 of its own; then to the units of a die in turn.

The distinct lines of the whole launch are the floor of what memory gives, where the last cache holds them all; else it is what is new among the
work-groups that run together. Left out: TLBs, channels that many addresses fall on, lines that two kernels after one another share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..chips import Chip
from .trace import GroupTrace, Tracer

LINE_BYTES = 128
WINDOW_GROUPS = 1024  # of the work-groups that run together, so many are traced at most
WINDOW_LINES = 3_000_000  # and so many lines of them
SAMPLE_GROUPS = 256  # for the distinct lines of a launch
# A line that another wave asked for not more than so many lines ago is still on its way: its second reader waits as long as its first.
LAG_LINES = 32


@dataclass(slots=True)
class Stream:
    """Accesses of many waves: the line, when (its place among the wave's lines), the row of its event; and the work-group's number."""

    line: np.ndarray
    time: np.ndarray
    row: np.ndarray
    group: np.ndarray
    store: np.ndarray

    def take(self, mask: np.ndarray) -> Stream:
        return Stream(self.line[mask], self.time[mask], self.row[mask], self.group[mask], self.store[mask])


def stream(groups: Sequence[GroupTrace]) -> Stream:
    """The lines of all waves of the groups."""
    parts: list[tuple[np.ndarray, ...]] = []
    for g in groups:
        for w in g.waves:
            touches = (w.kinds == 1) | (w.kinds == 3)
            counts = w.counts[touches].astype(np.int64)
            n = min(int(counts.sum()), len(w.lines))
            rows, stores = np.repeat(w.rows[touches], counts)[:n], np.repeat(w.kinds[touches] == 3, counts)[:n]
            parts.append((w.lines[:n], np.arange(n, dtype=np.int64), rows, np.full(n, g.group, np.int64), stores))
    if not parts:
        empty = np.zeros(0, np.int64)
        return Stream(empty, empty, empty, empty, empty.astype(bool))
    line, time, row, group, store = (np.concatenate(x) for x in zip(*parts))
    return Stream(line, time, row, group, store)


def misses(s: Stream, capacity_lines: float) -> tuple[np.ndarray, np.ndarray]:
    """Of each access: whether the cache does not have its line; and whether the line is not there yet when it is asked for (`LAG_LINES`)."""
    n = len(s.line)
    if not n:
        return np.zeros(0, bool), np.zeros(0, bool)
    order = np.lexsort((s.time, s.line))
    line, time = s.line[order], s.time[order]
    first = np.ones(n, bool)
    first[1:] = line[1:] != line[:-1]
    gap = np.zeros(n, np.int64)
    gap[1:] = time[1:] - time[:-1]
    rate = first.sum() / (time.max() + 1)  # new lines that come while a wave takes one
    miss_sorted = first | (gap * rate > capacity_lines)
    start = np.maximum.accumulate(np.where(miss_sorted, np.arange(n), 0))
    late_sorted = miss_sorted | (time - time[start] < LAG_LINES) & (np.arange(n) != start)
    miss, late = np.empty(n, bool), np.empty(n, bool)
    miss[order], late[order] = miss_sorted, late_sorted
    return miss, late


def count_distinct(lines: np.ndarray) -> int:
    """How many values there are, by sorting: numpy's `unique` hashes, which takes many times as long on numbers in a row."""
    ordered = np.sort(lines)
    return int(1 + np.count_nonzero(ordered[1:] != ordered[:-1])) if len(ordered) else 0


def by_row(row: np.ndarray, mask: np.ndarray, size: int) -> np.ndarray:
    """How many of the accesses of `mask` each row has."""
    return np.asarray(np.bincount(row[mask], minlength=size), float)


@dataclass(slots=True)
class Traffic:
    """By row: the share of its lines that the L1 has not, that the L2 has not, that the MALL (the last cache) has not; the same for the lines that
    are waited for. `distinct_lines` of the launch, `lines` that it touches in all, as estimated."""

    l1_miss: np.ndarray
    l2_miss: np.ndarray
    last_miss: np.ndarray
    l2_late: np.ndarray
    last_late: np.ndarray
    distinct_lines: float
    lines: float


def _distinct(tracer: Tracer, room: int, whole: float) -> float:
    """The distinct lines of a launch: counted, where it has few work-groups, else by how their number grows with the sample.

    `whole`: lines of one work-group in all, of which a sample may see the first ones only."""
    total = tracer.total
    if total <= SAMPLE_GROUPS:
        groups = list(range(total))
    else:
        groups = sorted(np.random.default_rng(0).choice(total, SAMPLE_GROUPS, replace=False).tolist())
    traces = tracer.run(groups, 1 << 15, room, lds=False)
    s = stream(traces)
    if not len(s.line):
        return 0.0
    seen = count_distinct(s.line)
    times = max(1.0, whole * len(groups) / len(s.line))  # lines past the traces' ends
    if total <= SAMPLE_GROUPS:
        return float(seen * times)
    half = np.isin(s.group, np.asarray(groups)[np.random.default_rng(1).permutation(len(groups))[: len(groups) // 2]])
    fewer = count_distinct(s.line[half])
    growth = float(np.clip(np.log2(seen / max(1, fewer)), 0.0, 1.0))
    growth = 1.0 if growth > 0.97 else growth
    return float(seen * times * (total / len(groups)) ** growth)


def measure(tracer: Tracer, chip: Chip, places: int, sampled: list[GroupTrace], warm: bool, mean: float) -> Traffic:
    """The traffic of a launch of which a unit holds `places` work-groups at once. `sampled`: whole traces of the work-groups of one unit.
    `warm`: what the last cache holds was there before. `mean`: how many work-groups of the mean work the sampled ones make."""
    machine, rows = chip.machine, len(tracer.rows)
    dies = max(1, machine.dies)
    units = machine.units
    touched = stream(sampled)
    if not len(touched.line):  # no memory: the windows' work-groups would run for nothing
        return Traffic(none := np.zeros(rows), none, none, none, none, 0.0, 0.0)
    per_group = len(touched.line) / mean
    own = by_row(touched.row, np.ones(len(touched.row), bool), rows)
    l1, l2, mall = machine.level("L1"), machine.level("L2"), machine.level("MALL")

    def share(part: np.ndarray, of: np.ndarray) -> np.ndarray:
        return np.asarray(np.divide(part, of, out=np.zeros(rows), where=of > 0))

    first = stream(sampled[: max(1, places)])
    miss, _ = misses(first, (l1.size_bytes if l1 else 0) / LINE_BYTES)
    l1_miss = share(by_row(first.row, miss | first.store, rows), by_row(first.row, np.ones(len(first.row), bool), rows))

    resident = min(tracer.total, units * places)
    groups = list(range(resident))
    if resident > WINDOW_GROUPS:
        groups = _spread(resident, dies, WINDOW_GROUPS)
    room = int(np.clip(WINDOW_LINES // (len(groups) * tracer.waves), 128, 1 << 18))
    window = stream(tracer.run(groups, 1 << 15, room, lds=False))
    scale = resident / len(groups)
    die = window.take(window.group % dies == 0)
    l2_lines = l2.size_bytes / LINE_BYTES if l2 else 0
    miss2, late2 = misses(die, l2_lines / scale)
    all2 = by_row(die.row, np.ones(len(die.row), bool), rows)
    l2_miss, l2_late = share(by_row(die.row, miss2, rows), all2), share(by_row(die.row, late2, rows), all2)
    last = mall or l2
    last_lines = (last.size_bytes if last else 0) / LINE_BYTES
    if mall is None:
        missl, latel, counts = miss2, late2, all2
        row = die.row
    else:
        missl, latel = misses(window, last_lines / scale)
        counts, row = by_row(window.row, np.ones(len(window.row), bool), rows), window.row
    last_miss, last_late = share(by_row(row, missl, rows), counts), share(by_row(row, latel, rows), counts)
    # Rows whose lines come after the windows' ends are each work-group's own (results, most often): a line that it touches again soon, to write
    # another part of it, is in the L2 still.
    unseen = (own > 0) & (all2 == 0)
    if unseen.any():
        ends = touched.take(unseen[touched.row])
        again, _ = misses(ends, l2_lines * dies / max(1, resident))
        fresh = share(by_row(ends.row, again, rows), own)
        for a in (l2_miss, l2_late, last_miss, last_late):
            a[unseen] = fresh[unseen]
    lines = per_group * tracer.total
    distinct = min(lines, _distinct(tracer, room, per_group)) if lines else 0.0
    expected = float((own * last_miss).sum()) / mean * tracer.total
    if expected and distinct <= last_lines:
        times = 0.0 if warm else min(1.0, distinct / expected)
        last_miss = last_miss * times
        last_late = last_late * (0.0 if warm else 1.0)
    elif expected < distinct and expected:
        last_miss = np.minimum(1.0, last_miss * distinct / expected)
    return Traffic(l1_miss, l2_miss, np.minimum(last_miss, l2_miss), l2_late, last_late, distinct, lines)


def _spread(resident: int, dies: int, most: int) -> list[int]:
    """Work-groups of all dies, those that follow each other on a die together, since they share most."""
    each = max(1, most // dies)
    return sorted(d + dies * i for d in range(dies) for i in range(each) if d + dies * i < resident)
