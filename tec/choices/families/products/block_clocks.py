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
class Block:
    """A choice in numbers: the work-group's threads, and the sums of one along rows and columns."""

    threads: int
    high: int
    wide: int


def seconds(c: Contraction, target: Target, choice: Choice, block: Block) -> float:
    """The time of a product by a choice."""
    machine, known = target.machine, figures.of(TEMPLATE, target)
    m, n, k, batch = padding.sizes(c)
    rows, columns, step, parts, stages = (choice[x] for x in ("rows", "columns", "step", "split_k", "stages"))
    lanes, size = machine.macs(c.acc, matrix=False), dtype_info(c.acc).bytes
    groups = grid.count((rows, columns), (m, n), batch) * parts
    steps = -(-k // (step * parts))
    wave = target.wavefront_size
    filled = -(-block.threads // wave) * wave / block.threads
    rate = known.along("block_rate", block.high * block.wide) * (
        known["across_rate"] if block.wide > block.high else 1.0
    )
    waves, schedulers = -(-block.threads // wave), target.chip.simds
    if waves == schedulers - 1:  # the same one has nothing to do in all work-groups
        rate *= known["lopsided_rate"]
    sums = rows * columns * step / lanes / rate * filled
    brought = _copies(c, choice, known) / lanes
    out = known["out_bytes_a_clock"]
    if n % RUN and parts == 1:  # results leave one by one, those of each run under conditions of their own
        out /= known["single_out"] * max(1.0, block.wide / RUN)
    stored = rows * columns * size / out
    share = groups / machine.units
    at_once = max(1, min(_resident(target, choice, block, size), math.ceil(share)))
    busy = steps * (sums + brought) * _idle(waves * at_once, schedulers) + stored
    waits = steps * (known["step_clocks"] if stages == 1 else known["ring_clocks"] / (stages - 1) ** 0.5)
    alone = waits + known["ends_clocks"] + steps * (sums + brought) * _idle(waves, schedulers) + stored
    if share <= _SMOOTH:
        clocks = max(math.ceil(share) * busy, math.ceil(math.ceil(share) / at_once) * alone)
    else:
        clocks = max(share * busy, max(1.0, share / at_once) * alone)
    moved = batch * (m * k + k * n + m * n) * size / (machine.reached_gbps * 1e9)
    least: float = max(clocks / machine.clock_hz, moved)
    return float(least + machine.launch_seconds) + split_k.traffic_seconds(parts, batch * m * n, machine)


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


def _resident(target: Target, choice: Choice, block: Block, size: int) -> int:
    """Work-groups that a multiprocessor holds."""
    held = (block.high * block.wide + 3 * (block.high + block.wide)) * size // 4 + _OTHER_REGISTERS
    registers = min(_MOST_REGISTERS, max(_LEAST_REGISTERS, held))
    shared = choice["stages"] * (choice["rows"] + choice["columns"]) * (choice["step"] + RUN) * size
    return int(min(_FILE // (block.threads * registers), target.lds_bytes // shared, _MOST_RESIDENT))
