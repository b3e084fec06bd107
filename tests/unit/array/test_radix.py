"""Sorting by digits: every type against NumPy, ties, both zeros, NaN of both signs, lines of either algorithm's length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec
from tec.array import onesweep, radix
from tests.thinned import thinned, thinned_rows

xp = tec.array
TYPES = ("bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64").split()


def elements(dtype: str, shape: tuple[int, ...]) -> Any:
    rng = np.random.default_rng(len(dtype) + shape[0])
    if dtype == "bool":
        return rng.random(shape) > 0.5
    if not dtype.startswith("float"):
        ends = np.iinfo(dtype)
        return rng.integers(ends.min, ends.max, shape, dtype=dtype, endpoint=True)
    x = rng.standard_normal(shape).astype(dtype)
    x.flat[::17] = np.nan
    x.flat[3:9] = [-0.0, 0.0, -np.inf, np.inf, -np.nan, -0.0]
    x.flat[20:30] = x.flat[40:50]
    return x


@thinned_rows(5, "dtype", TYPES)
def test_against_numpy(dtype: str) -> None:
    for shape, axis in (((radix.SHORTEST - 1,), 0), ((radix.SHORTEST,), 0), ((4, 300), 1), ((300, 2), 0)):
        x = elements(dtype, shape)
        a, n = xp.asarray(x), shape[axis]
        places = np.argsort(x, axis, kind="stable")
        np.testing.assert_array_equal(np.asarray(xp.argsort(a, axis=axis)), places)
        found = np.asarray(xp.sort(a, axis=axis))
        assert found.tobytes() == np.take_along_axis(x, places, axis).tobytes(), "the very elements, with their signs"
        back = n - 1 - np.flip(np.argsort(np.flip(x, axis), axis, kind="stable"), axis)
        np.testing.assert_array_equal(np.asarray(xp.argsort(a, axis=axis, descending=True)), back)


def test_wide_digits() -> None:
    """Lines long enough for digits of 11 bits, and one whose upper digits are all alike."""
    n = radix.FEW_WIDE + 1
    for x in (elements("float32", (n,)), np.random.default_rng(0).integers(0, 100, n), elements("uint64", (n,))):
        a = xp.asarray(x)
        np.testing.assert_array_equal(np.asarray(xp.sort(a)), np.sort(x))
        np.testing.assert_array_equal(np.asarray(xp.argsort(a)), np.argsort(x, kind="stable"))


def _in_order_on(chip: str, x: Any, descending: bool = False) -> None:
    """Two lines and more of several tiles; each pass is one launch."""
    dev = tec.rocm_emu(chip, check={"bounds", "race", "init"})
    first, _ = onesweep.sort(tec.nd.array(x[..., ::-1].copy(), dev), descending)
    values, places = onesweep.sort(tec.nd.array(x, dev), descending)  # by launches that are ready, on memory of its own
    back = x.shape[-1] - 1 - np.flip(np.argsort(np.flip(x, -1), -1, kind="stable"), -1)
    want = back if descending else np.argsort(x, axis=-1, kind="stable")
    np.testing.assert_array_equal(places.numpy(), want)
    assert values.numpy().tobytes() == np.take_along_axis(x, want, -1).tobytes()
    np.testing.assert_array_equal(first.numpy(), values.numpy())


def test_on_a_gpu_a_pass_a_digit() -> None:
    _in_order_on("gfx942", elements("uint8", (2, onesweep.THREADS * onesweep.items(8) + 300)))


@pytest.mark.slow
@thinned(1, ("chip", ["gfx942", "gfx1100"]), ("dtype", ["float16", "int32", "int64", "float64"]))
def test_on_a_gpu_every_width(chip: str, dtype: str) -> None:
    width = 8 * np.dtype(dtype).itemsize
    x = elements(dtype, (2, onesweep.THREADS * onesweep.items(width) * 2 + 300))
    x[:, 100:400] = x[:, :300]
    _in_order_on(chip, x)
    if dtype.startswith("int"):
        _in_order_on(chip, x, descending=True)
