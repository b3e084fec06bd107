"""The math library of kernels over tiles, against Python's own functions."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import tec.tile as tl
from tec.tile import libdevice
from tests.seeds import first

from .devices import On

N = 64
OF_ONE: dict[str, Callable[[float], float]] = {
    "erfc": math.erfc, "lgamma": math.lgamma, "cbrt": math.cbrt, "signbit": lambda x: math.copysign(1, x) < 0, "isnan": math.isnan,
    "isinf": math.isinf, "tgamma": math.gamma, "normcdf": lambda x: 0.5 * math.erfc(-x / math.sqrt(2)), "ilogb": lambda x: math.frexp(x)[1] - 1,
    "float2int_rd": math.floor, "float2int_ru": math.ceil, "float2int_rn": round, "float2int_rz": math.trunc,
}  # fmt: skip
OF_TWO: dict[str, Callable[[float, float], float]] = {
    "copysign": math.copysign, "fmod": math.fmod, "atan2": math.atan2, "hypot": math.hypot, "remainder": math.remainder,
    "fdim": lambda x, y: max(x - y, 0.0),
}  # fmt: skip


@tl.jit
def library(x, y, out, N: tl.constexpr, ONE: tl.constexpr, TWO: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(x + at), tl.load(y + at)
    for k in tl.static_range(len(ONE)):
        tl.store(out + k * N + at, getattr(libdevice, ONE[k])(a).to(tl.float32))
    for k in tl.static_range(len(TWO)):
        tl.store(out + (len(ONE) + k) * N + at, getattr(libdevice, TWO[k])(a, b).to(tl.float32))
    tl.store(out + (len(ONE) + len(TWO)) * N + at, libdevice.erf(libdevice.erfinv(a / 5)))
    tl.store(out + (len(ONE) + len(TWO) + 1) * N + at, libdevice.nextafter(a, b))
    tl.store(out + (len(ONE) + len(TWO) + 2) * N + at, libdevice.pow(tl.abs(a), b))
    tl.store(out + (len(ONE) + len(TWO) + 3) * N + at, libdevice.cyl_bessel_i0(a))


def _differs(on: On, one: tuple[str, ...], two: tuple[str, ...]) -> None:
    rng = np.random.default_rng(first())
    x, y = (rng.uniform(-4, 4, N).astype(np.float32) for _ in range(2))
    out = on.zeros(len(one) + len(two) + 4, N)
    library[(1,)](on.array(x), on.array(y), out, N=N, ONE=one, TWO=two)
    got = on.numpy(out)
    for row, name in zip(got, one):
        np.testing.assert_allclose(row, [OF_ONE[name](float(v)) for v in x], rtol=3e-5, atol=3e-6, err_msg=name)
    for row, name in zip(got[len(one) :], two):
        want = [OF_TWO[name](float(v), float(w)) for v, w in zip(x, y)]
        np.testing.assert_allclose(row, want, rtol=3e-5, atol=3e-6, err_msg=name)
    inverse, after, power, bessel = got[len(one) + len(two) :]
    np.testing.assert_allclose(inverse, x / 5, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(after, np.nextafter(x, y))
    np.testing.assert_allclose(power, np.abs(x) ** y, rtol=1e-4)
    np.testing.assert_allclose(bessel, np.i0(x), rtol=1e-5)


def test_the_library_is_as_pythons(monkeypatch: pytest.MonkeyPatch) -> None:
    _differs(On("interpreter", monkeypatch), tuple(OF_ONE), tuple(OF_TWO))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_drawn_part_of_the_library_compiled(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(first())
    _differs(On(device, monkeypatch), tuple(draw.choice(list(OF_ONE), 2)), tuple(draw.choice(list(OF_TWO), 1)))
