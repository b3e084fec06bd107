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


def _comes_along_k(shape: Shape, side: int, tile: int, step: int) -> bool:
    """Whether wavefronts read pieces along the sum from a tile of A (0) or B (1) in shared memory: the operand lies so, or threads turn it round."""
    rows = (shape.m, shape.n)[side]
    return shape.along_k[side] or not (
        shape.guarded or shape.runs[side] or (not shape.anywhere and (rows % tile or shape.k % step))
    )


def singles(t: Tiling, shape: Shape, known: Figures) -> float:
    """Bytes of shared memory's rate, of a step, that operands take which wavefronts read element by element, beyond what they take in pieces."""
    more = max(0.0, known["single_bytes"] - shape.bytes)
    sides = enumerate(_sides(t))
    return float(
        sum(rows * t.k * waves * more for side, (rows, waves) in sides if not _comes_along_k(shape, side, rows, t.k))
    )


def brought(t: Tiling, shape: Shape, target: Target, known: Figures) -> tuple[float, float]:
    """Of a step whose operands come in less than pieces: bytes more that the first cache is asked for, since lanes stand a piece apart, and clocks of the vector
    units, for addresses, conditions and putting pieces together."""
    chip, machine = target.chip, target.machine
    l1 = machine.level("L1")
    assert l1 is not None
    # A clock serves one line, however little of it is asked for.
    a_line = min(1.0, level_gbps(machine, "L1") * 1e9 / machine.units / machine.clock_hz / l1.line_bytes)
    asked = clocks = 0.0
    for (rows, _), run in zip(_sides(t), shape.runs):
        if run:
            asked += rows * t.step * max(0.0, PIECE_BYTES / run * a_line - shape.bytes)
            per_load = known["guarded_load" if shape.guarded else "narrow_load"]
            clocks += rows * t.step / run * per_load / (chip.simds * chip.simd_lanes)
    return asked, clocks


__all__ = ["PIECE_BYTES", "brought", "singles"]
