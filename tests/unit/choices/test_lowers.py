"""Every choice that is legal is lowered: drawn layers of networks in small and odd sizes, for every kind of target, to the last pass before LLVM.

Fixed seeds here. `TEC_LOWER_DRAWS=20000 TEC_SEED=7 pytest tests/unit/choices/test_lowers.py` draws other ones, and as many as asked; a failure names the draw.
"""

from __future__ import annotations

import os
import random

import pytest

from .draws import KINDS, draw
from .lowering import TARGETS, lower, target_of

SEED = int(os.environ.get("TEC_SEED", "0"))
DRAWS = int(os.environ.get("TEC_LOWER_DRAWS", "100"))
_BATCHES = 10  # tests that share the draws, so that cores do too


@pytest.mark.parametrize("batch", range(_BATCHES))
def test_what_is_drawn_is_lowered(batch: int) -> None:
    died = []
    for number in range(batch, DRAWS, _BATCHES):
        rng = random.Random(f"{SEED} {number}")
        target = target_of(rng)
        case = draw(rng)
        death = lower(case, target, rng)
        if death is not None:
            died.append(f"draw {number} of seed {SEED}: {case.kind} {case.words} for {target}: {death}")
    assert not died, "\n".join(died)


def test_every_kind_and_target_is_drawn() -> None:
    some = [random.Random(f"0 {number}") for number in range(300)]
    drawn = [(target_of(r), draw(r).kind) for r in some]
    assert {t for t, _ in drawn} == set(TARGETS) and {k for _, k in drawn} == set(KINDS)
