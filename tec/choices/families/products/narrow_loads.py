"""What operands cost a product on AMD's matrix units that do not come in pieces of 16 bytes: windows that are gathered, rows that begin anywhere.

In: a tiling and a shape (`tilings`). Out: what its price adds to the clocks of shared memory, of the first cache and of the vector units.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....target import Target, level_gbps
from ...rules.figures import Figures

if TYPE_CHECKING:
    from .tilings import Shape, Tiling

PIECE_BYTES = 16  # the widest access of a thread


def _sides(t: Tiling) -> tuple[tuple[int, int], tuple[int, int]]:
    """(rows of the tile, wavefronts that read each of them) of A and B."""
    return (t.m, t.waves_n), (t.n, t.waves_m)


def gathers(t: Tiling, rows: int, size: int, target: Target) -> bool:
    """Whether each thread has as many whole pieces along the sum of a tile of so many rows, whose elements of `size` bytes it loads one by one; those of a wavefront at the same place of
    the sum, which the scalar unit then finds in the window: the vector unit would take several times as long."""
    wave, piece = target.wavefront_size, PIECE_BYTES // size
    threads = t.waves // t.slice_k * wave
    return size <= 4 and t.k % piece == 0 and rows % wave == 0 and rows * t.k % (threads * piece) == 0


def _comes_along_k(t: Tiling, shape: Shape, side: int, target: Target) -> bool:
    """Whether wavefronts read pieces along the sum from a tile of A (0) or B (1) in shared memory: the operand lies so, or threads turn it round."""
    rows, tile = (shape.m, shape.n)[side], (t.m, t.n)[side]
    if shape.along_k[side] or _is_gathered(t, shape, side, target):
        return True
    return not (shape.guarded or shape.runs[side] or (not shape.anywhere and (rows % tile or shape.k % t.k)))


def _is_gathered(t: Tiling, shape: Shape, side: int, target: Target) -> bool:
    """Whether threads load the operand's elements one by one, neighbours those of neighbouring rows, and put pieces along the sum together."""
    single = not shape.along_k[side] and shape.runs[side] == 1
    return single and gathers(t, (t.m, t.n)[side], shape.bytes, target)


def _is_of_taps(shape: Shape, side: int) -> bool:
    """Whether the elements of each piece along the sum are channels of one place of the window: where that is, and whether it is in the image, is found once for all of them."""
    tap = shape.taps[side]
    return not shape.along_k[side] and tap > 1 and tap % (PIECE_BYTES // shape.bytes) == 0


def singles(t: Tiling, shape: Shape, target: Target, known: Figures) -> float:
    """Bytes of shared memory's rate, of a step, that operands take which wavefronts read element by element, beyond what they take in pieces."""
    more = max(0.0, known["single_bytes"] - shape.bytes)
    sides = enumerate(_sides(t))
    return float(
        sum(rows * t.k * waves * more for side, (rows, waves) in sides if not _comes_along_k(t, shape, side, target))
    )


def brought(t: Tiling, shape: Shape, target: Target, known: Figures) -> tuple[float, float, float]:
    """Of a step whose operands come in less than pieces: bytes more that the first cache is asked for, since lanes stand a piece apart; clocks of the vector
    units, or of the scalar unit, for addresses, conditions and putting pieces together; and those of them that come before the loads."""
    chip, machine = target.chip, target.machine
    l1 = machine.level("L1")
    assert l1 is not None
    # A clock serves one line, however little of it is asked for.
    a_line = min(1.0, level_gbps(machine, "L1") * 1e9 / machine.units / machine.clock_hz / l1.line_bytes)
    asked = clocks = first = elements = 0.0
    for side, ((rows, _), run) in enumerate(zip(_sides(t), shape.runs)):
        if _is_gathered(t, shape, side, target):  # a load asks for the lines of neighbours, that lie anywhere
            elements, load = rows * t.step, "gathered_load"
            lines = 1 + -(-target.wavefront_size * shape.bytes // l1.line_bytes)
            asked += elements * max(0.0, lines * l1.line_bytes / target.wavefront_size * a_line - shape.bytes)
        elif run:
            elements, load = rows * t.step / run, "guarded_load" if shape.guarded else "narrow_load"
            asked += rows * t.step * max(0.0, PIECE_BYTES / run * a_line - shape.bytes)
        else:
            continue
        if _is_of_taps(shape, side):
            load = "tap_load"
        own = (
            elements
            * (known[load] if load == "narrow_load" else known.along(load, shape.sides[side]))
            / (chip.simds * chip.simd_lanes)
        )
        clocks, first = clocks + own, first + 0.5 * own * _is_gathered(t, shape, side, target)
    return asked, clocks, first
