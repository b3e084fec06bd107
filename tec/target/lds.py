"""Which lanes of a wave an LDS serves together, by the instruction's width: they meet where two of them want different words of one bank.

Sources: gfx950, HipKittens' phase and bank solvers (analysis/paper_experiments/phases; counters of conflicts, all pairs of lanes): reads of 4 dwords in 4 phases of 16 lanes over 64 banks, of 2
dwords in 2 phases of 32 over 64, of 3 dwords in 8 phases of 8 over 32, writes of 2 dwords in 4 phases of 16 lanes in a row over 32. gfx942, reads of 4 dwords in 8 phases of 8 lanes over 32
banks: ROCm's blog on LDS bank conflicts, and a microbenchmark on an MI300 that times pairs of lanes (pyhip). Writes of 4 dwords on gfx950 are taken to be as those of 2. What nobody measured goes by
lanes in a row, 32 dwords at once.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..records import dataclass


@dataclass(frozen=True, slots=True)
class LdsPhase:
    """`lanes` that are served together, over `banks` of 4 bytes. `order`: the lanes of half a wave of 64, a phase after another; in a row where it is empty."""

    banks: int
    lanes: int
    order: tuple[int, ...] = ()

    def lanes_of(self, wave: int) -> tuple[int, ...]:
        """All lanes of a wave in the order of phases."""
        order = self.order or tuple(range(32))
        return tuple(half + lane for half in range(0, wave, 32) for lane in order)


def _order(*runs: tuple[int, int]) -> tuple[int, ...]:
    return tuple(lane for first, last in runs for lane in range(first, last + 1))


_EIGHTS = _order((0, 3), (20, 23), (4, 7), (16, 19), (8, 11), (28, 31), (12, 15), (24, 27))
_SIXTEENS = _order((0, 3), (12, 15), (20, 27), (4, 11), (16, 19), (28, 31))

# By (chip, kind, dwords of a lane).
_MEASURED: Mapping[tuple[str, str, int], LdsPhase] = {
    ("gfx942", "load", 4): LdsPhase(32, 8, _EIGHTS),
    ("gfx950", "load", 2): LdsPhase(64, 32),
    ("gfx950", "load", 3): LdsPhase(32, 8, _EIGHTS),
    ("gfx950", "load", 4): LdsPhase(64, 16, _SIXTEENS),
    ("gfx950", "store", 2): LdsPhase(32, 16),
    ("gfx950", "store", 4): LdsPhase(32, 8),
}


def lds_phase(chip: str, banks: int, kind: str, nbytes: int) -> LdsPhase:
    """The phase of a "load", "store" or "atomic" of `nbytes` a lane on a chip with so many banks."""
    dwords = max(1, nbytes // 4)
    return _MEASURED.get((chip, kind, dwords)) or LdsPhase(banks, max(1, 32 // dwords))
