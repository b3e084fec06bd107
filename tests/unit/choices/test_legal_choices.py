"""Which choices are legal: what is listed in full and what is drawn by chance, for a space of millions of combinations of which some hundred are legal."""

from __future__ import annotations

import collections
import itertools
import random

import pytest

import tec
from tec import te, topi
from tec.choices import Choice, Made, Space, spaces
from tec.choices.proof import alone, lower
from tec.driver import run_passes


def product(target: str) -> Space:
    a, b = te.placeholder((24, 64), "float16", name="A"), te.placeholder((64, 32), "float16", name="B")
    return next(s for s in spaces([topi.matmul(a, b)], target) if s.template == "matrix product")


def key(choice: Choice) -> tuple[object, ...]:
    return tuple(sorted(choice.items()))


@pytest.mark.parametrize(("target", "combinations"), [("cuda -arch=sm_80", 8_000), ("rocm -mcpu=gfx942", 80_000)])
def test_all_legal_choices_are_listed(target: str, combinations: int) -> None:
    space, rng = product(target), random.Random(0)
    listed = {key(c) for c in space.all}
    by_chance = ({n: rng.choice(o) for n, o in space.parameters.items()} for _ in range(combinations))
    legal = {key(c) for v in by_chance if space.why_not(c := space.choice(**v)) is None}
    assert legal <= listed and legal
    assert all(space.is_legal(dict(c)) for c in random.Random(1).sample(sorted(listed), 50))


@pytest.mark.parametrize("target", ["cuda -arch=sm_80", "rocm -mcpu=gfx942", "rocm -mcpu=gfx1100"])
def test_what_is_drawn_is_legal_and_reaches_most(target: str) -> None:
    space = product(target)
    drawn = list(itertools.islice(space.drawn(random.Random(0)), 600))
    assert all(space.is_legal(c) for c in drawn)
    # Of 600 to 1,400; of as many combinations by chance some 20 are legal at best.
    assert len({key(c) for c in drawn}) > 200
    has = collections.Counter((name, value) for c in space.all for name, value in c.items())
    assert {v for v, n in has.items() if n > 20} <= {v for c in drawn for v in c.items()}
    assert isinstance(lower(space, drawn[-1], alone), Made)


def test_parts_of_a_sum_meet_in_whole_rounds_of_threads() -> None:
    """Rows that a last round has beyond the tile would be multiplied as well, and are no whole instructions: 16 x 96 sums, four a thread, of 256 are 22 rows in two rounds."""
    a, b = te.placeholder((182, 512), "bfloat16", name="A"), te.placeholder((512, 192), "bfloat16", name="B")
    found = spaces([topi.matmul(a, b)], "rocm -mcpu=gfx942")
    space = next(s for s in found if s.template == "matrix product")
    choice = space.choice(
        rows=16, columns=64, step=32, waves_m=1, waves_n=1, swizzle=True, stages=1, prefetch_distance=1, group_m=0, interleave=True, slice_k=4,
        ping_pong=False, direct_to_lds=False, instruction="16x16x32", split_k=1,
    )  # fmt: skip
    assert space.why_not({**choice, "columns": 96}) == "256 threads have not all as many sums"
    for columns in (16, 32, 64, 128):  # less than a round, one, and two
        with tec.Target("rocm -mcpu=gfx942") as target:
            run_passes(alone(space.apply({**choice, "columns": columns})), target)
