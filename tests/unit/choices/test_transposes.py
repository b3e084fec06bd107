"""Which tiles turn an operand round by default."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import tec
from tec import te
from tec.choices import spaces, strictly
from tests import seeds


def test_a_ragged_tile_leaves_few_conditional_loads_to_a_thread() -> None:
    """85 channels at 13 x 13: each load waits for the one before. Whole tiles stay as they were."""

    def elements(channels: int, side: int) -> int:
        x = te.placeholder((side * side, channels), "float16", name="x")
        y = te.compute((1, channels, side, side), lambda n, c, i, j: x((n * side + i) * side + j, c), name="y")
        (space, *_) = spaces([y], "rocm -mcpu=mi300x")
        return int(space.default["tile"] ** 2 // space.default["threads"])

    assert elements(85, 13) <= 4
    assert elements(256, 56) == 16


def test_axes_that_are_read_by_parts_are_turned_round_with_right_values() -> None:
    """Pixels of all images by channels from plain images, and back with work around, by drawn tiles; the software GPU says the values."""
    rng, dev, target = random.Random(seeds.first(31)), tec.rocm_emu("gfx942", check="all"), "rocm -mcpu=gfx942"
    n, c, h, w, more = (
        rng.choice([1, 2, 3]),
        rng.choice([17, 24, 70]),
        rng.choice([4, 7]),
        rng.choice([5, 8]),
        rng.choice([0, 2]),
    )
    x = te.placeholder((n, c, h, w), "float16", name="x")
    image = np.random.default_rng(c).integers(-9, 9, (n, c, h, w)).astype("float16")
    flat = np.pad(image.transpose(0, 2, 3, 1).reshape(-1, c), ((0, 0), (0, more)))

    def pixel(p: Any, k: Any) -> Any:
        value = x(p // (h * w), k, p // w % h, p % w)
        return te.if_then_else(k < c, value, te.const(0, "float16")) if more else value

    into = te.compute((n * h * w, c + more), pixel, name="y")
    z = te.placeholder((n * h * w, c), "float16", name="z")
    squares = te.compute(z.shape, lambda p, k: z(p, k) * z(p, k), name="squares")
    back = te.compute((n, c, h, w), lambda i, k, a, b: squares((i * h + a) * w + b, k) + x(i, k, a, b), name="y")
    want = (flat[:, :c].astype("float16") ** 2).reshape(n, h, w, c).transpose(0, 3, 1, 2) + image
    for args, out, values, expected in (([x], into, [image], flat), ([z, x], back, [flat[:, :c].copy(), image], want)):
        with strictly():
            space = spaces([out], target)[0]
        assert space.template == "gpu transpose"
        made = space.apply(rng.choice(list(space.all)))
        got = tec.nd.array(np.zeros(expected.shape, "float16"), dev)
        tec.build(made.schedule, [*args, *made.outputs], target)(*(tec.nd.array(v, dev) for v in values), got)
        np.testing.assert_array_equal(got.numpy(), expected, err_msg=str(made.choice))


def test_axes_of_one_element_hide_no_sides() -> None:
    """Behind the last axis, and between the others."""
    dev, target = tec.rocm_emu("gfx90a", check="all"), "rocm -mcpu=gfx90a"
    for shape, perm in (((3, 33, 40, 1), (2, 0, 1, 3)), ((64, 1, 80, 1, 1), (2, 1, 0, 3, 4))):
        x = te.placeholder(shape, "float16", name="x")
        y = te.compute(
            [shape[k] for k in perm],
            lambda *i, x=x, perm=perm: x(*(i[perm.index(k)] for k in range(len(perm)))),
            name="y",
        )
        space = spaces([y], target)[0]
        assert space.template == "gpu transpose"
        made, value = space.apply(), np.arange(np.prod(shape)).reshape(shape).astype("float16")
        got = tec.nd.empty([shape[k] for k in perm], "float16", dev)
        tec.build(made.schedule, [x, *made.outputs], target)(tec.nd.array(value, dev), got)
        np.testing.assert_array_equal(got.numpy(), value.transpose(perm))


SHORT = [((37, 1, 90, 3), (2, 1, 0, 3)), ((5, 3, 70, 26), (0, 3, 2, 1)), ((24, 40, 7, 2), (1, 2, 0, 3))]


@pytest.mark.parametrize(("shape", "perm"), SHORT)
def test_short_runs_on_either_side_are_turned_round_by_tiles(shape: tuple[int, ...], perm: tuple[int, ...]) -> None:
    """A few elements that stay together, and a result whose rows are short: its neighbours along the next axis make a line, which the operand's lines leave to them."""
    dev, target = tec.rocm_emu("gfx942", check="all"), "rocm -mcpu=gfx942"
    x = te.placeholder(shape, "float16", name="x")
    y = te.compute([shape[k] for k in perm], lambda *i: x(*(i[perm.index(k)] for k in range(len(perm)))), name="y")
    space = spaces([y], target)[0]
    assert space.template == "gpu transpose"
    value = (np.arange(np.prod(shape)) % 2039).reshape(shape).astype("float16")
    for choice in (space.default, random.Random(seeds.first(7)).choice(list(space.all))):
        made, got = space.apply(choice), tec.nd.empty([shape[k] for k in perm], "float16", dev)
        tec.build(made.schedule, [x, *made.outputs], target)(tec.nd.array(value, dev), got)
        np.testing.assert_array_equal(got.numpy(), value.transpose(perm), err_msg=str(choice))
