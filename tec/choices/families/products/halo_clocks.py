"""What convolutions from boxes of the image in shared memory (`halo`) should take on AMD: as products do (`tilings`), but that a box may serve several steps.

In: boxes, a tiling, a target. Out: seconds, and what limits them. The constants are of 42 drawn choices of six convolutions on an MI300X and an MI355X by the time
model.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ....ir.dtype import dtype_info
from ....records import dataclass
from ....target import Target, latency_ns, level_gbps
from ...rules import figures
from . import tile_order, tilings
from .tilings import PIECE_BYTES, Tiling

if TYPE_CHECKING:
    from ....ops.contraction import Convolved
    from ...parts.boxes import Boxes

# Times what a unit's busiest part, and the L2, should take, since not all beside it is hidden.
_WORK, _L2 = 1.4, 1.25
_STEP_CLOCKS = 60  # beside a step's work: a barrier, and waiting for it
# Times the clocks of rows of weights that those of a box take: lanes of several rows meet in banks.
_BOX_READS = 1.4
_UNDER_WAY = 63  # loads of a wavefront that its counter (vmcnt) tells apart
_STORE = 1.25  # as of products
# Vector instructions of a box's piece, of a piece of weights, of a weight that comes by itself.
_PIECE_CLOCKS, _WEIGHTS_CLOCKS, _SINGLE_CLOCKS = 30, 6, 12
# That the first cache is asked for by a wavefront's load of single elements, which stand in several rows.
_SINGLE_BYTES = 256
# Of the time that the L2 takes for a step's lines, what a work-group that waits for them sees.
_FAR_LINES = 0.6
# Times what the work takes: the choice whose price is least of many is one whose price is too low, by more where a chip's loads are waited for in order, and of windows along one axis.
_PICKED, _PICKED_IN_ORDER, _ONE_AXIS = 1.25, 1.4, 1.25
_AROUND = 3  # waits for memory before the first step and behind the last


def shared_bytes(b: Boxes, t: Tiling, size: int) -> int:
    """Of a box and the weights of a step."""
    piece, outs = PIECE_BYTES // size, t.n if b.of.channels_last else t.m
    weights = outs * (t.k + (0 if t.swizzle else piece)) * max(1, t.stages)
    return (math.prod(b.seen) * (b.block + piece) + weights) * size


@dataclass(frozen=True)
class _Brought:
    """A step's weights, or a box. far_bytes: in whole lines; path, issue, lds: clocks of the way from memory, of the vector units, of storing; loads: of all threads."""

    far_bytes: float
    path: float
    issue: float
    lds: float
    loads: float


def _brought(b: Boxes, t: Tiling, outs: int, target: Target) -> tuple[_Brought, _Brought]:
    """The weights of a step, and a box."""
    machine, of, size = target.machine, b.of, dtype_info(b.dtype).bytes
    l1, l2 = (level_gbps(machine, n) * 1e9 / machine.units / machine.clock_hz for n in ("L1", "L2"))
    lanes = target.chip.simds * target.chip.simd_lanes

    def made(elements: float, asked: float, run: float, row: float, loads: float, clocks: float) -> _Brought:
        far = elements * size * tile_order.lines(int(run * size), int(row * size))
        path = max(asked / l1, _FAR_LINES * far / l2)
        return _Brought(
            far, path, loads * clocks / lanes, _STORE * elements * size / machine.scratch_bytes_a_clock, loads
        )

    count, are_single = outs * t.k, of.weights_wide == 1
    run = PIECE_BYTES // size if are_single else b.block
    weights = made(count, count * size, run, of.channels, count / of.weights_wide, _SINGLE_CLOCKS if are_single else _WEIGHTS_CLOCKS)  # fmt: skip
    if of.wide > 1:
        run = min(b.block, of.channels)
        return weights, made(b.elements, b.elements * size, run, of.channels, b.elements / of.wide, _PIECE_CLOCKS)
    clocks = figures.of(tilings.TEMPLATE, target).along("gathered_load", sum(r > 1 for r in of.taps))
    asked = b.elements * max(size, _SINGLE_BYTES / target.wavefront_size)
    return weights, made(b.elements, asked, b.seen[-1], 1, b.elements, clocks)


def _held(b: Boxes, t: Tiling, target: Target) -> int:
    """Work-groups that a unit holds."""
    chip = target.chip
    registers = min(chip.vgprs, 48 + 2 * t.m * t.n // (t.waves * target.wavefront_size))
    slots, _ = chip.occupancy(registers, 0, t.waves, target.wavefront_size)
    lds = chip.unit_lds_bytes or target.lds_bytes
    return max(1, min(slots * chip.simds // t.waves, lds // shared_bytes(b, t, dtype_info(b.dtype).bytes)))


def _box_clocks(
    b: Boxes, t: Tiling, weights: _Brought, box: _Brought, together: int, target: Target
) -> tuple[float, float, str]:
    """Clocks of a unit that a box of one of the work-groups that it has at once takes; those of its last step, under which nothing comes; and what limits it."""
    machine, chip = target.machine, target.chip
    size, chain = dtype_info(b.dtype).bytes, figures.of(tilings.TEMPLATE, target)["chain_clocks"]
    wait = latency_ns(machine, "memory") * 1e-9 * machine.clock_hz
    macs = t.m * t.n * t.k / machine.macs(b.dtype)
    # A wavefront has the matrix pipes of one vector unit.
    own = macs * max(1.0, chip.simds / t.waves)
    sides = (t.m // t.waves_m, t.n // t.waves_n)
    pixels, channels = sides if b.of.channels_last else sides[::-1]
    lds = t.waves * (_BOX_READS * pixels + channels) * t.k * size / machine.scratch_bytes_a_clock + weights.lds
    trips = max(1.0, (box.loads + weights.loads) / (t.waves * target.wavefront_size) / _UNDER_WAY)
    steps = b.terms // b.step
    if steps == 1:
        parts = (
            (macs, "matrix"),
            (lds + box.lds, "LDS"),
            (weights.issue + box.issue, "issue"),
            (weights.path + box.path, "L1"),
        )
        work, limit = max(parts)
        work += _STEP_CLOCKS
        alone = (
            max(own + 0.5 * (lds + box.lds), weights.issue + box.issue, wait * trips, chain) + weights.path + box.path
        )
        alone += 0.0 if t.interleave else 0.5 * wait
    else:
        step, limit = max((macs, "matrix"), (lds, "LDS"), (weights.issue, "issue"), (weights.path, "L1"))
        work = steps * (step + _STEP_CLOCKS) + max(box.lds, box.issue, box.path)
        ahead = t.prefetch_distance
        near = max(own + 0.5 * lds, weights.issue, wait / ahead, chain) + weights.path / ahead
        # A box is waited for, and behind it the first weights.
        alone = steps * near + wait * (trips + 1) + box.path + box.issue
    last = own + lds + weights.issue + box.issue
    each, limit = max((_WORK * work, limit), (alone / together, "latency"))
    return each, last, limit


def least_seconds(of: Convolved, dtype: str, target: Target) -> float:
    """What no boxes go below: the sums at the rate that `seconds` has them at, or the memory's traffic; and waiting once for what comes first."""
    machine, size = target.machine, dtype_info(dtype).bytes
    macs = math.prod(of.extents) * of.groups * of.outs * of.channels * math.prod(of.taps)
    sums = _WORK * macs / (machine.macs(dtype) * machine.units * machine.clock_hz)
    moved = (_image_bytes(of, size) + _result_bytes(of, size, 1)) / (level_gbps(machine, "memory") * 1e9)
    return _AROUND * latency_ns(machine, "memory") * 1e-9 + _picked(of, target) * max(sums, moved)


def _picked(of: Convolved, target: Target) -> float:
    times = _PICKED if target.chip.counts_loads else _PICKED_IN_ORDER
    return times * (_ONE_AXIS if sum(r > 1 for r in of.taps) == 1 else 1.0)


def _image_bytes(of: Convolved, size: int) -> int:
    """Of the image and the weights."""
    image = math.prod(of.extents) * math.prod(of.strides) * of.groups * of.channels
    return (image + of.groups * of.outs * of.channels * math.prod(of.taps)) * size


def _result_bytes(of: Convolved, size: int, parts: int) -> int:
    return math.prod(of.extents) * of.groups * of.outs * (4 if parts > 1 else size) * parts


def seconds(b: Boxes, t: Tiling, outs: int, parts: int, target: Target) -> tuple[float, str]:
    """The time of the sums in so many parts, and what limits it."""
    machine, of, size = target.machine, b.of, dtype_info(b.dtype).bytes
    groups = math.prod(b.tiles) * of.groups * -(-of.outs // outs) * parts
    rounds, boxes = -(-groups // machine.units), -(-b.count // parts)
    weights, box = _brought(b, t, outs, target)
    each, last, limit = _box_clocks(b, t, weights, box, min(rounds, _held(b, t, target)), target)
    wait, memory = latency_ns(machine, "memory") * 1e-9, level_gbps(machine, "memory") * 1e9
    results = _result_bytes(of, size, parts)
    least = _image_bytes(of, size) + results
    far = groups * boxes * (b.terms // b.step * weights.far_bytes + box.far_bytes)
    own = (rounds * boxes * each + last) / machine.clock_hz + results / rounds / memory
    l2 = _L2 * far / (level_gbps(machine, "L2") * 1e9)
    found = max((own, limit), (l2, "L2"), (least / memory, "memory"))
    return _AROUND * wait + _picked(of, target) * found[0], found[1]
