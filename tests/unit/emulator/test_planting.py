"""Drawn kernels with a planted bug (`planting`): each is found, at its line, and the same kernel without it is left alone."""

from __future__ import annotations

import itertools

import pytest

from tec.emulator.errors import EmulationError
from tests import seeds
from tests.thinned import thinned_rows

from .planted import launch, marked, text
from .planting import DIALECTS, PLANTS, draw

ROWS = [(c, p, k) for k, (p, c) in enumerate(itertools.product(PLANTS, DIALECTS))]


@thinned_rows(len(PLANTS), ("chip", "plant", "seed"), ROWS)
def test_a_planted_bug_is_found_at_its_line(chip: str, plant: str, seed: int) -> None:
    bug = draw(chip, plant, seeds.first(seed))
    asm = text(chip, bug.body)
    with pytest.raises(EmulationError, match=f"(?s){bug.said}") as e:
        launch(chip, bug.body, bug.check, bug.grid, bug.block, False, 0, threads=1)
    assert e.value.line == marked(asm), f"{e.value}\n{asm}"


@pytest.mark.parametrize("chip", DIALECTS)
def test_the_same_kernels_without_it_are_left_alone(chip: str) -> None:
    for seed in seeds.some(2):
        right = draw(chip, "", seed)
        launch(chip, right.body, "all", 1, right.block, False, 0, threads=2)
