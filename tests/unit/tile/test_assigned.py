"""Numbers that a variable holds have a type of their own, as in Triton; one that is written in an expression takes its tile's."""

from __future__ import annotations

import numpy as np
import pytest

import tec.tile as tl
from tec.errors import KernelError

from .devices import On


@tl.jit
def _numbers(x, h, out, B: tl.constexpr):
    n = 4  # also a side of tiles
    at = tl.arange(0, n)
    c: tl.constexpr = 100
    hundred = 100
    v = tl.load(x + at)
    tl.store(out + at, v + hundred)
    tl.store(out + n + at, v + c)
    bias = ((1 - 127) << 23) - 1
    u = v.to(tl.uint32)
    u += bias
    tl.store(out + 2 * n + at, u >> 23)
    odd = 0x9E3779B9  # no int32 holds it: uint32
    odd = odd * 5
    tl.store(out + 3 * n + at, (tl.zeros((n,), tl.uint32) + odd) >> 1)
    below = -7
    tl.store(out + 4 * n + at, tl.zeros((n,), tl.int32) + below // 2)
    half, f = 0.5, tl.load(h + at)
    tl.static_assert((f * half).dtype == tl.float32)
    tl.static_assert((f * 0.5).dtype == tl.float16)
    tl.static_assert((f * -half).dtype == tl.float32)


def test_a_variables_number_has_its_own_type(on: On) -> None:
    out = on.zeros(20, dtype="int32")
    _numbers[(1,)](on.array(np.full(4, 100, "int8")), on.array(np.ones(4, "float16")), out, B=4)
    wide, wrapped = 100 + (((1 - 127) << 23) - 1) % 2**32 >> 23, 0x9E3779B9 * 5 % 2**32 >> 1
    np.testing.assert_array_equal(on.numpy(out)[::4], [200, -56, wide, wrapped, -3])


@tl.jit
def _beyond(x):
    tl.store(x + tl.arange(0, 4), tl.zeros((4,), tl.uint8) + 300)


def test_a_written_number_must_fit_the_tile() -> None:
    with pytest.raises(KernelError, match="scalar 300 is out of range for type uint8"):
        _beyond[(1,)](np.zeros(4, "int32"))


def test_a_grid_may_end_in_ones() -> None:
    x = np.zeros(8, "int32")
    _whole[(2, 1, 1, 1)](x)
    np.testing.assert_array_equal(x, [0, 0, 0, 0, 1, 1, 1, 1])


@tl.jit
def _whole(x):
    tl.store(x + tl.program_id(0) * 4 + tl.arange(0, 4), tl.program_id(0))


def test_a_constant_decides_on_the_right_too() -> None:
    x = np.zeros(4, "int32")
    _decided[(1,)](x, STORES=False)
    assert not x.any()
    with pytest.raises(KernelError, match="value is not defined"):
        _decided[(1,)](x, STORES=True)


@tl.jit
def _decided(x, STORES: tl.constexpr):
    at = tl.arange(0, 4)
    if tl.program_id(0) == 0 and STORES:
        tl.store(x + at, value)  # noqa: F821


@tl.jit
def _rounded(whole, real):
    at = tl.arange(0, 4)
    sign, least = 0x80000000, -2147483648
    tl.static_assert((tl.zeros((4,), tl.uint32) & ~sign).dtype == tl.uint32)
    tl.store(whole + at, tl.zeros((4,), tl.int64) + ~sign)
    tl.store(whole + 4 + at, tl.zeros((4,), tl.int64) + -least)
    tl.store(whole + 8 + at, tl.zeros((4,), tl.int64) + -sign // 3)
    odd, tenth, large = 16777217.0, 0.1, 1e38
    tl.static_assert((tl.zeros((4,), tl.float32) + large * 10).dtype == tl.float32)
    tl.store(real + at, tl.zeros((4,), tl.float64) + (odd - 16777216.0))
    tl.store(real + 4 + at, tl.zeros((4,), tl.float64) + tenth * 3)
    tl.store(real + 8 + at, tl.zeros((4,), tl.float64) + large * 10)
    tl.store(real + 12 + at, tl.zeros((4,), tl.float64) + -7.5 % (tenth * 20))
    seven = 7
    tl.store(real + 16 + at, tl.zeros((4,), tl.float64) + seven / 3)


def test_arithmetic_on_variables_stays_in_their_type(on: On) -> None:
    """Signs of unsigned and of the least integer wrap, and floats are those of float32, to the last bit."""
    whole, real = on.zeros(12, dtype="int64"), on.zeros(20, dtype="float64")
    _rounded[(1,)](whole, real)
    np.testing.assert_array_equal(on.numpy(whole)[::4], [2**31 - 1, -(2**31), 2**31 // 3])
    f = np.float32
    rest = np.fmod(f(-7.5), f(0.1) * f(20))
    np.testing.assert_array_equal(on.numpy(real)[::4], [0, f(0.1) * f(3), np.inf, rest, f(7) / f(3)])
