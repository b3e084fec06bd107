"""Which work-groups of a launch stand for all of them, where they have unequal work: causal and ragged kernels.

The blocks that a work-group executes are counted without a trace of them (`Tracer.count`), which says how often each of its loops turns; with what a block's instructions hold
that is the work-group's weight. A few of the launch are looked at first. Where those are alike all are taken to be, and any work-group stands for the others. Else every
work-group gets its weight: by a table over the coordinates that decide it, as far as other work-groups agree, or a drawn sample stands for
all. Work-groups are then dealt out as the chip does, to the dies in turn and on a die to the first place that is free, and the unit that ends last is the one that is run in time.

The weights only say who is like whom and scale the sample's totals to the launch's: times are of the unit that is run.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from heapq import heapify, heapreplace

import numpy as np

from ..chips import Chip
from .issue import LDS, LOAD, MATRIX, SCALAR, SMEM, STORE, TRANS, VALU
from .steps import Program
from .trace import Tracer

ALIKE = 0.05  # weights this near to each other, of their mean, are one stratum
PROBES = 24  # drawn work-groups that are looked at, beside those at the grid's corners
TABLE = 1024  # the most work-groups that are counted
DEALT = 1 << 16  # of launches larger than this, work-groups are dealt evenly: each unit has a sample's share
_BLOCKS = 1 << 21  # blocks that counting may execute; of a kernel that runs whole a sixteenth


@dataclass(frozen=True, slots=True)
class Chosen:
    """Work-groups to be run in time, in the order of their start. `share`: of the launch's work that they do; `unit`: of the work of the unit that ends
    last, which has `count` of them."""

    groups: list[int]
    share: float
    unit: float
    count: int

    @property
    def busy(self) -> float:
        """How many units are at work, on the mean of the time that the last one takes: experts without tokens leave work-groups that end at once."""
        return self.unit / self.share


def block_weights(program: Program, chip: Chip, rows: int) -> np.ndarray:
    """What one execution of each block holds of a unit, in clocks: by the number of the block's row."""
    slot = 1 if chip.limits.simd_lanes > 16 else 4
    out = np.zeros(rows)
    for row, block in program.blocks.items():
        for i in block.code:
            if i.kind in (VALU, TRANS, MATRIX):
                out[row] += i.busy
            elif i.kind in (SCALAR, SMEM, LDS, LOAD, STORE):
                out[row] += slot
    return out


def _corners(grid: tuple[int, int, int]) -> list[int]:
    """The work-groups at the ends and in the middle of each axis."""
    places = [sorted({0, n // 2, n - 1}) for n in grid]
    return [x + grid[0] * (y + grid[1] * z) for z, y, x in itertools.product(*reversed(places))]


def _table(tracer: Tracer, weight: np.ndarray, known: dict[int, float], most: int) -> np.ndarray | None:
    """The weights of all work-groups, where few coordinates decide them: those of the axes that `known` weights agree with. None where none do."""
    x, y, z = tracer.grid
    number = np.arange(tracer.total, dtype=np.int64)
    places = (number % x, number // x % y, number // (x * y))
    ids = np.fromiter(known, np.int64)
    values = np.fromiter(known.values(), float)
    for count in (1, 2, 3):
        for axes in itertools.combinations(range(3), count):
            size = int(np.prod([tracer.grid[a] for a in axes]))
            if size > most:
                continue
            # The first work-group of each place along these axes: the others' coordinates are 0.
            keep = np.all([places[a] == 0 for a in range(3) if a not in axes] or [np.ones(len(number), bool)], axis=0)
            counted = tracer.count(number[keep].tolist()) @ weight
            step, key = 1, np.zeros(tracer.total, np.int64)
            for a in axes:
                key += places[a] * step
                step *= tracer.grid[a]
            table = np.zeros(step)
            table[key[keep]] = counted
            found = table[key]
            if np.allclose(found[ids], values, rtol=ALIKE / 2, atol=0):
                return found
    return None


def _deal(weights: np.ndarray, dies: int, units: int, places: int) -> list[int]:
    """The work-groups of the unit that ends last, in the order of their start, where each die gives them to the place that is free first."""
    total, each = len(weights), max(1, units // dies)
    best: tuple[float, int, int] = (-1.0, 0, 0)
    owner = np.zeros(total, np.int64)
    of = weights.tolist()
    for die in range(dies):
        heap = [(0.0, place, unit) for place in range(places) for unit in range(each)]
        heapify(heap)
        for g in range(die, total, dies):
            free, place, unit = heap[0]
            end = free + of[g]
            owner[g] = unit
            heapreplace(heap, (end, place, unit))
            best = max(best, (end, -die, -unit))
    _, die, unit = best
    mine = np.arange(-die, total, dies)
    return [int(g) for g in mine[owner[mine] == -unit]]


def choose(tracer: Tracer, program: Program, chip: Chip, places: int, most: int) -> Chosen | None:
    """The work-groups of the unit that ends last, at most `most` of them; None where the launch's work-groups are alike."""
    total, machine = tracer.total, chip.machine
    if total < 2 or not tracer.branches:
        return None
    weight = block_weights(program, chip, len(tracer.rows))
    draw = np.random.default_rng(0)
    probes = sorted({*_corners(tracer.grid), *draw.integers(0, total, PROBES).tolist()})
    counts = tracer.count(probes)
    known = dict(zip(probes, (counts @ weight).tolist()))
    values = np.fromiter(known.values(), float)
    if not values.max() or values.max() - values.min() <= ALIKE * values.mean():
        return None
    room = _BLOCKS // (16 if tracer.function.needs_data else 1)
    affordable = int(np.clip(room / max(1.0, float(counts.sum(axis=1).mean())), 64, TABLE))
    weights = _table(tracer, weight, known, affordable)
    if weights is None:
        ids = np.sort(draw.choice(total, min(total, affordable), replace=False))
        sample = tracer.count(ids.tolist()) @ weight
    else:
        ids, sample = np.arange(total), weights
    if len(ids) == total <= DEALT:
        mine = _deal(sample, max(1, machine.dies), machine.units, places)
        unit, count = float(sample[mine].sum()), len(mine)
        all_ = float(sample.sum())
    else:
        all_ = float(sample.mean()) * total
        count = -(-total // machine.units)
        mine = np.sort(draw.choice(len(ids), min(len(ids), count, most), replace=False)).tolist()
        unit = max(all_ / machine.units, float(sample.max()))
    if len(mine) > most:  # some of them: by chance, since every n-th may be alike
        mine = sorted(draw.choice(mine, most, replace=False).tolist())
    part = float(sample[mine].sum())
    if not part or not all_:
        return None
    return Chosen([int(ids[g]) for g in mine], part / all_, part / unit, count)
