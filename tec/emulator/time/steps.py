"""Traces as steps that a compute unit can be run through: each a basic block with what its accesses touched.

A loop of many equal turns is cut to its first and last few (`KEEP`), with a mark that says how many were left out; how long one of them takes
is read off its neighbours, so that a long kernel costs no more to model than a short one.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ..translate.translation import Row
from .issue import Issue
from .trace import GroupTrace, WaveTrace

KEEP = 5  # turns kept on either side of what is left out


@dataclass(slots=True)
class Block:
    """A basic block: its instructions, and for each of them how many events an execution leaves."""

    code: list[Issue]
    events: list[int]


class Program:
    """The blocks of a translation, by the number of their row."""

    def __init__(self, issues: list[Issue], rows: list[Row]):
        self.issues, self.rows = issues, rows
        starts = sorted({r.start for r in rows if r.kind == "block"})
        nexts = dict(zip(starts, [*starts[1:], len(issues)]))
        # Where several begin at one instruction (a kernel's begin and a label there, two labels), a wave comes through the last of them in any case.
        last = {row.start: number for number, row in enumerate(rows) if row.kind == "block"}
        self.blocks: dict[int, Block] = {}
        block = -1
        for number, row in enumerate(rows):
            if row.kind == "block":
                block = number
                code = issues[row.start : nexts[row.start]] if last[row.start] == number else []
                self.blocks[block] = Block(code, [0] * len(code))
            else:
                self.blocks[block].events[row.start - rows[block].start] += 1
        self.per_block = {b: sum(x.events) for b, x in self.blocks.items()}
        self._rows: dict[int, list[int]] = {}

    def rows_of(self, block: int) -> list[int]:
        """The rows of a block's events, in order."""
        found = self._rows.get(block)
        if found is None:
            found = self._rows[block] = list(range(block + 1, block + 1 + self.per_block[block]))
        return found


@dataclass(slots=True)
class WaveSteps:
    """One wave, shortened. `blocks`: rows of blocks; `first`: where each one's events begin among `events`; `lines`: where the lines of each event
    begin in the trace. `gaps`: (step that follows the gap, step three turns before it, turns left out)."""

    blocks: list[int]
    first: list[int]
    events: list[int]
    gaps: list[tuple[int, int, int]]


def _runs(blocks: list[int]) -> tuple[list[tuple[int, int]], list[tuple[int, int, int]]]:
    """The stretches [from, to) of a wave's blocks that are kept, and its gaps as (index after the gap, index three turns before, turns)."""
    cuts: list[tuple[int, int]] = []  # left out
    gaps: list[tuple[int, int, int]] = []

    def shorten(at: int, end: int, depth: int) -> None:
        if end - at <= 4 * KEEP or depth > 8:
            return
        part = np.asarray(blocks[at:end])
        values, counts = np.unique(part, return_counts=True)
        for header in values[np.argsort(counts, kind="stable")]:
            places = np.flatnonzero(part == header) + at
            if len(places) <= 2 * KEEP + 4:
                continue
            turns = [tuple(blocks[a:b]) for a, b in itertools.pairwise(places)]
            i, found = 0, False
            before = at
            while i < len(turns):
                j = i
                while j < len(turns) and turns[j] == turns[i]:
                    j += 1
                if j - i > 2 * KEEP + 2:
                    first, last = int(places[i + KEEP]), int(places[j - KEEP])
                    shorten(before, int(places[i]), depth + 1)
                    shorten(int(places[i]), first, depth + 1)
                    cuts.append((first, last))
                    gaps.append((last, int(places[i + KEEP - 3]), j - i - 2 * KEEP))
                    before, found = last, True
                i = j
            if found:
                shorten(before, end, depth + 1)
                return

    shorten(0, len(blocks), 0)
    kept, at = [], 0
    for a, b in sorted(cuts):
        if a > at:
            kept.append((at, a))
        at = max(at, b)
    kept.append((at, len(blocks)))
    return kept, gaps


def wave_steps(program: Program, wave: WaveTrace) -> WaveSteps:
    """A wave's trace, shortened."""
    kinds, rows, counts = wave.kinds, wave.rows, wave.counts
    places = np.flatnonzero(kinds == 0)
    blocks = rows[places].tolist()
    kept, gaps = _runs(blocks)
    begins = [*(places + 1).tolist(), len(kinds) + 1]
    new: dict[int, int] = {}
    out_blocks: list[int] = []
    first: list[int] = []
    words = counts.tolist()
    events: list[int] = []
    for a, b in kept:
        for i in range(a, b):
            new[i] = len(out_blocks)
            out_blocks.append(blocks[i])
            first.append(len(events))
            at, n = begins[i], program.per_block[blocks[i]]
            got = words[at : min(at + n, begins[i + 1] - 1)]
            events += got + [0] * (n - len(got))
    return WaveSteps(out_blocks, first, events, [(new[a], new[b], n) for a, b, n in gaps if a in new and b in new])


@dataclass
class GroupSteps:
    """A work-group's waves, and what they did in whole (before shortening): instructions and busy clocks by kind."""

    trace: GroupTrace
    program: Program
    waves: list[WaveSteps] = field(default_factory=list)

    @cached_property
    def executions(self) -> dict[int, int]:
        """How often each block ran, over all waves."""
        out: dict[int, int] = {}
        for w in self.trace.waves:
            rows, counts = np.unique(w.rows[w.kinds == 0], return_counts=True)
            for r, n in zip(rows.tolist(), counts.tolist()):
                out[r] = out.get(r, 0) + n
        return out


def group_steps(program: Program, trace: GroupTrace) -> GroupSteps:
    return GroupSteps(trace, program, [wave_steps(program, w) for w in trace.waves])
