"""What a product on vector units takes of a GPU whose threads copy in the background: the price that blocks of `register_blocks` are chosen by there.

A work-group has clocks of the vector units, which those beside it share, and clocks in which it waits: for the barriers and copies of each step, of which a ring of slots
has some under way, and at its beginning and its end. Its figures are rows of "ring of blocks" (`rules.figures`).
"""

from __future__ import annotations

import math

from ....ir.dtype import dtype_info
from ....ops.contraction import Contraction
from ....records import dataclass
from ....target import Target
from ...parts import grid, padding, split_k
from ...parts.sums import RUN
from ...rules import figures
from ...space import Choice

TEMPLATE = "ring of blocks"
_OTHER_REGISTERS = 48  # of a thread beside sums and what it multiplies
_LEAST_REGISTERS, _MOST_REGISTERS = 64, 255
_FILE = 1 << 16  # registers of a multiprocessor
_MOST_RESIDENT = 32  # work-groups of one
_THROUGH_REGISTERS = 1.5  # times as many instructions for what is loaded and then stored in shared memory
_SMOOTH = 6  # work-groups of each multiprocessor from which on the last ones do not count as a round


@dataclass(frozen=True)
class _Shape:
    """What choices have that differ in the parts of their sums alone. clocks: of a step; waits: clocks in which a step waits; stored: clocks of the results, of one part and of
    several; resident: work-groups that a multiprocessor holds."""

    groups: int
    waves: int
    clocks: float
    waits: float
    stored: tuple[float, float]
    resident: int


class Clocks:
    """The times of a product of some sizes (m, n, k, batch) by its choices. What several of them have in common is found once: thousands are priced."""

    def __init__(self, c: Contraction, target: Target, sizes: tuple[int, int, int, int]):
        self._c, self._target, self._sizes = c, target, sizes
        self._known = figures.of(TEMPLATE, target)
        self._shapes: dict[tuple[object, ...], _Shape] = {}
        m, n, k, batch = sizes
        moved = batch * (m * k + k * n + m * n) * dtype_info(c.acc).bytes
        self._least = moved / (target.machine.reached_gbps * 1e9)

    def seconds(self, choice: Choice, threads: tuple[int, int]) -> float:
        """The time by a choice. threads: of a work-group, along rows and columns."""
        machine, known, (m, n, k, batch) = self._target.machine, self._known, self._sizes
        parts, step = choice["split_k"], choice["step"]
        key = choice["rows"], choice["columns"], step, choice["stages"], threads
        x = self._shapes.get(key)
        if x is None:
            x = self._shapes[key] = self._shape(choice, threads)
        schedulers, steps = self._target.chip.simds, -(-k // (step * parts))
        share, stored = x.groups * parts / machine.units, x.stored[parts > 1]
        at_once = max(1, min(x.resident, math.ceil(share)))
        busy = steps * x.clocks * _idle(x.waves * at_once, schedulers) + stored
        alone = steps * x.waits + known["ends_clocks"] + steps * x.clocks * _idle(x.waves, schedulers) + stored
        if share <= _SMOOTH:
            clocks = max(math.ceil(share) * busy, math.ceil(math.ceil(share) / at_once) * alone)
        else:
            clocks = max(share * busy, max(1.0, share / at_once) * alone)
        least: float = max(clocks / machine.clock_hz, self._least)
        return float(least + machine.launch_seconds) + split_k.traffic_seconds(parts, batch * m * n, machine)

    def _shape(self, choice: Choice, of_group: tuple[int, int]) -> _Shape:
        c, target, known, (m, n, _, batch) = self._c, self._target, self._known, self._sizes
        rows, columns, step, stages = (choice[x] for x in ("rows", "columns", "step", "stages"))
        threads, high, wide = of_group[0] * of_group[1], rows // of_group[0], columns // of_group[1]
        lanes, size = target.machine.macs(c.acc, matrix=False), dtype_info(c.acc).bytes
        waves, schedulers = -(-threads // target.wavefront_size), target.chip.simds
        filled = waves * target.wavefront_size / threads
        rate = known.along("block_rate", high * wide) * (known["across_rate"] if wide > high else 1.0)
        if waves == schedulers - 1:  # the same one has nothing to do in all work-groups
            rate *= known["lopsided_rate"]
        sums = rows * columns * step / lanes / rate * filled
        brought = _copies(c, choice, known) / lanes
        out = whole = known["out_bytes_a_clock"]
        if n % RUN:  # results leave one by one, those of each run under conditions of their own
            whole = out / (known["single_out"] * max(1.0, wide / RUN))
        return _Shape(
            grid.count((rows, columns), (m, n), batch), waves, sums + brought,
            known["step_clocks"] if stages == 1 else known["ring_clocks"] / (stages - 1) ** 0.5,
            (rows * columns * size / whole, rows * columns * size / out), _resident(target, choice, threads, high, wide, size),
        )  # fmt: skip


def _idle(waves: int, schedulers: int) -> float:
    """How many times as long work takes as with all lanes, where so many wavefronts have a multiprocessor for themselves: each stays with one scheduler,
    and the one that has most is waited for."""
    return -(-waves // schedulers) * schedulers / waves


def _copies(c: Contraction, choice: Choice, known: figures.Figures) -> float:
    """Instructions of all threads for what a step brings."""
    total = 0.0
    again = _THROUGH_REGISTERS if choice["stages"] == 1 else 1.0
    for o, lines in ((c.a, choice["rows"]), (c.b, choice["columns"])):
        run = min(RUN, padding.run(c, o))
        total += lines * choice["step"] * (known["wide_clocks"] / run if run > 1 else known["single_clocks"]) * again
        total += lines * choice["step"] * known["guard_clocks"] if o.guarded else 0.0
    return total


def _resident(target: Target, choice: Choice, threads: int, high: int, wide: int, size: int) -> int:
    """Work-groups that a multiprocessor holds, whose threads have `high` by `wide` sums each."""
    held = (high * wide + 3 * (high + wide)) * size // 4 + _OTHER_REGISTERS
    registers = min(_MOST_REGISTERS, max(_LEAST_REGISTERS, held))
    shared = choice["stages"] * (choice["rows"] + choice["columns"]) * (choice["step"] + RUN) * size
    return int(min(_FILE // (threads * registers), target.lds_bytes // shared, _MOST_RESIDENT))
