"""Functions of math, NumPy and operator in kernels, against Python's own; what can be called besides plain functions."""

from __future__ import annotations

import functools
import math
import operator
import random
from typing import Any

import numpy as np
import pytest

import tec
from tests import seeds
from tests.thinned import thinned

DEVICES = [tec.cpu(), tec.rocm_emu("gfx942")]
devices = pytest.mark.parametrize("dev", DEVICES, ids=str)
EDGES = [0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 27.0, -27.5, 170.5, 1e-30, -1e-30, 1e30, math.inf, -math.inf, math.nan]
OF_ONE = (
    math.cbrt,
    math.erfc,
    math.gamma,
    math.lgamma,
    np.sign,
    np.square,
    np.reciprocal,
    np.sinc,
    np.deg2rad,
    np.signbit,
    np.negative,
)
ERROR = {"float32": 4e-6, "float64": 2e-12}


@tec.kernel
def floats(x, y, out):
    i = tec.grid_idx(1)
    if i < len(x):
        a, b = x[i], y[i]
        for k in tec.static_range(len(OF_ONE)):
            out[k, i] = OF_ONE[k](a)
        n = len(OF_ONE)
        fraction, whole = math.modf(a)
        out[n, i], out[n + 1, i] = fraction, whole
        out[n + 2, i] = np.logaddexp(a, b)
        out[n + 3, i] = np.heaviside(a, b)
        out[n + 4, i] = np.clip(a, -1.0, b)
        out[n + 5, i] = np.where(np.logical_and(a > 0, b > 0), a, b)
        out[n + 6, i] = math.isclose(a, b, rel_tol=0.5)
        out[n + 7, i] = round(b, 2)


def expected(a: float, b: float) -> list[float]:
    def of(f: Any, *v: float) -> float:
        try:
            return float(f(*(np.float64(q) if isinstance(f, np.ufunc) else q for q in v)))
        except OverflowError:
            return math.inf
        except ValueError:  # at a pole: lgamma is infinite, gamma is not a number, as in C
            return math.inf if f is math.lgamma else math.copysign(math.inf, v[0]) if v[0] == 0 else math.nan

    with np.errstate(all="ignore"):
        return [*[of(f, a) for f in OF_ONE], *math.modf(a), of(np.logaddexp, a, b), of(np.heaviside, a, b), float(np.clip(a, -1.0, b)),
                a if a > 0 and b > 0 else b, float(math.isclose(a, b, rel_tol=0.5)), round(b, 2)]  # fmt: skip


@thinned(1, ("dtype", ["float64", "float32"]), ("dev", [DEVICES[0], pytest.param(DEVICES[1], marks=pytest.mark.slow)]))
def test_functions_of_floats_give_what_python_gives(dtype: str, dev: Any) -> None:
    rng = random.Random(seeds.stream(dtype))
    spread = [rng.choice([-1, 1]) * math.exp(rng.uniform(-6, 4)) for _ in range(60)]
    x = np.array([*EDGES, *spread], dtype)
    y = np.array([rng.uniform(-0.9, 8) for _ in x], dtype)
    want = np.array([expected(float(a), float(b)) for a, b in zip(x, y)]).T
    rows = len(want)
    out = tec.nd.array(np.zeros((rows, len(x)), dtype), dev)
    floats[1, 128](tec.nd.array(x, dev), tec.nd.array(y, dev), out)
    with np.errstate(all="ignore"):
        want = want.astype(dtype)
        got = out.numpy()
    for k in range(rows):
        # There the argument's last bit counts.
        near_pole = np.abs(x - np.rint(x)) < 1e-3 if k in (2, 3) else np.zeros(len(x), bool)
        ok = near_pole & (x < 0) & ~np.isnan(want[k]) & ~np.isinf(want[k])
        name = OF_ONE[k].__name__ if k < len(OF_ONE) else str(k)
        np.testing.assert_allclose(
            got[k][~ok], want[k][~ok], rtol=ERROR[dtype], atol=ERROR[dtype] * (k in (3, 7)), err_msg=name
        )


@tec.kernel
def integers(x, y, out):
    i = tec.grid_idx(1)
    if i < len(x):
        a, b = x[i], y[i]
        out[0, i] = math.gcd(a, b)
        out[1, i] = math.lcm(a, b)
        out[2, i] = math.isqrt(abs(a))
        out[3, i] = np.sign(a)
        out[4, i] = np.floor_divide(a, b) if b != 0 else 0
        out[5, i] = operator.xor(a, b)
        out[6, i] = sum((a, b, 1))
        out[7, i] = np.invert(a)
        out[8, i] = np.clip(a, None, 5)
        out[9, i] = np.less(a, b)


@devices
def test_functions_of_integers(dev: Any) -> None:
    rng = random.Random(seeds.stream("integers"))
    x = [0, 7, -12, *(rng.randint(-(10**4), 10**4) for _ in range(40))]
    y = [0, 0, 18, *(rng.choice([rng.randint(-50, 50), 30, -30]) for _ in range(40))]
    out = tec.nd.array(np.zeros((10, len(x)), np.int64), dev)
    integers[1, 64](tec.nd.array(np.array(x, np.int64), dev), tec.nd.array(np.array(y, np.int64), dev), out)
    want = [[math.gcd(a, b), math.lcm(a, b), math.isqrt(abs(a)), (a > 0) - (a < 0), a // b if b else 0, a ^ b, a + b + 1, ~a, min(a, 5), a < b]
            for a, b in zip(x, y)]  # fmt: skip
    np.testing.assert_array_equal(out.numpy(), np.array(want).T)


class Line:
    """An object with methods: `Line(2, 1).at(x)` is 2 x + 1."""

    def __init__(self, slope: float, start: float):
        self.slope, self.start = slope, start

    def at(self, x: Any) -> Any:
        return self.slope * x + self.start


def weighted(a: Any, b: Any, c: Any) -> Any:
    return a + 10 * b + 100 * c


LINE = Line(2.0, 1.0)
PART = functools.partial(weighted, 3.0, c=2.0)
ADD, TIMES = (lambda a, b: a + b), (lambda a, b: a * b)  # two on one line, of the same parameters


@tec.kernel
def callables(x, out):
    i = tec.grid_idx(1)
    if i < len(x):
        at = (1.0, 2.0)
        out[0, i] = LINE.at(x[i])
        out[1, i] = PART(x[i])
        out[2, i] = weighted(x[i], *at)
        out[3, i] = ADD(x[i], 3.0)
        out[4, i] = TIMES(x[i], 3.0)


@devices
def test_methods_partials_and_lambdas_on_one_line(dev: Any) -> None:
    x = np.arange(8, dtype=np.float32)
    out = tec.nd.array(np.zeros((5, 8), np.float32), dev)
    callables[1, 32, 0](tec.nd.array(x, dev), out)  # stream 0 is the default one
    np.testing.assert_array_equal(out.numpy(), [2 * x + 1, 3 + 10 * x + 200, x + 210, x + 3, x * 3])
