"""Functions of math and NumPy that loop IR has no operation for: plain functions of numbers, which the translator inlines like a user's.

Sources: J. F. Hart et al., "Computer Approximations", 1968 (the forms); C. Lanczos, "A precision approximation of the gamma function",
SIAM J. Numer. Anal. 1, 1964, with the coefficients for g = 7. `tests/unit/kernels/test_numbers.py` holds each against Python's.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from . import language as tec

UNSIGNED = ("uint8", "uint16", "uint32", "uint64")

# log(erfc(z) exp(z^2) / t) for z >= 0, t = 2 / (2 + z): polynomials in u = 2 t - 1, highest power first, through the Chebyshev nodes. Their errors:
# 1e-7 and 3e-16, relative to erfc.
ERFC_SINGLE = (
    4.657862288850425e-06, 0.0003324407019737343, -0.00021942688170480622, -0.002045806027275416, 0.0017864968325701151, 0.0087016008956311,
    -0.009877244398432398, -0.04687426828089252, 0.047343527644479334, 0.6726421700206594, -0.6717940840566923,
)  # fmt: skip
ERFC_DOUBLE = (
    -1.3791307091711107e-08, 2.992327305770758e-08, 8.354694238740855e-08, -2.9024439955999927e-07, -5.745724111914076e-08, 1.2851059663435587e-06,
    -1.3853380961247155e-06, -2.965932985910632e-06, 8.63948536674404e-06, 1.4209509994658064e-07, -3.0223285604111394e-05, 3.174564452587232e-05,
    7.141197420995916e-05, -0.00017430363340430627, -9.373724844136099e-05, 0.0006736790125595953, -0.00014624658593819772, -0.002345812534455851,
    0.0017589335383343834, 0.00882493855975445, -0.009872689365754328, -0.04689561023126843, 0.047343306841898185, 0.6726432239776576,
    -0.6717940840566923,
)  # fmt: skip
LANCZOS = (
    676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059, 12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6,
    1.5056327351493116e-7,
)  # fmt: skip
HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


# ---- of integers and floats alike


def sign(x: Any) -> Any:
    if x.dtype in UNSIGNED:
        return min(x, 1)
    return 1 if x > 0 else -1 if x < 0 else 0 if x == 0 else x


def square(x: Any) -> Any:
    return x * x


def positive(x: Any) -> Any:
    return x


def negative(x: Any) -> Any:
    return -x


def clip(x: Any, low: Any, high: Any) -> Any:
    above = x if low is None else np.maximum(x, low)
    return above if high is None else np.minimum(above, high)


def gcd(a: Any, b: Any) -> Any:
    x, y = abs(a), abs(b)
    while y != 0:
        x, y = y, x % y
    return x


def lcm(a: Any, b: Any) -> Any:
    common = gcd(a, b)
    return abs(a) // max(common, 1) * abs(b)


def isqrt(n: Any) -> Any:
    root = int(math.sqrt(np.float64(n)))
    if root * root > n:
        root -= 1
    if (root + 1) * (root + 1) <= n:
        root += 1
    return root


def rounded(x: Any, decimals: Any = 0) -> Any:
    scale = 10.0**decimals
    return np.rint(x * scale) / scale


# ---- of floats


def reciprocal(x: Any) -> Any:
    return 1.0 / x


def heaviside(x: Any, at_zero: Any) -> Any:
    return 0.0 if x < 0 else 1.0 if x > 0 else at_zero if x == 0 else x


def signbit(x: Any) -> Any:
    return math.copysign(1.0, x) < 0.0


def modf(x: Any) -> Any:
    whole = np.trunc(x)
    return math.copysign(0.0 if math.isinf(x) else x - whole, x), whole


def cbrt(x: Any) -> Any:
    size = abs(x)
    y = math.exp(math.log(size) / 3.0)
    y -= (y * y * y - size) / (3.0 * y * y)  # a step of Newton's
    return x if size == 0.0 or math.isinf(x) else math.copysign(y, x)


def logaddexp(a: Any, b: Any) -> Any:
    larger = np.maximum(a, b)
    return larger + 0.6931471805599453 if a == b else larger + math.log1p(math.exp(-abs(a - b)))


def logaddexp2(a: Any, b: Any) -> Any:
    larger = np.maximum(a, b)
    return larger + 1.0 if a == b else larger + math.log1p(np.exp2(-abs(a - b))) * 1.4426950408889634


def sinc(x: Any) -> Any:
    y = x * math.pi
    return 1.0 if x == 0 else math.sin(y) / y


def isclose(a: Any, b: Any, rel_tol: Any = 1e-9, abs_tol: Any = 0.0) -> Any:
    near = abs(a - b) <= max(rel_tol * max(abs(a), abs(b)), abs_tol)
    return a == b or (near and not math.isinf(a) and not math.isinf(b))


def numpy_isclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8) -> Any:
    near = abs(a - b) <= atol + rtol * abs(b)
    return a == b or (near and not math.isinf(a) and not math.isinf(b))


def erfc(x: Any) -> Any:
    z = min(abs(x), 40.0)  # beyond it is 0 in any type
    t = 2.0 / (2.0 + z)
    u = 2.0 * t - 1.0
    p = u * 0.0
    for c in ERFC_DOUBLE if x.dtype == "float64" else ERFC_SINGLE:
        p = p * u + c
    step = 1048576.0 if x.dtype == "float64" else 128.0  # z without its last bits: its square is exact
    high = np.trunc(z * step) / step
    y = t * math.exp(-high * high) * math.exp(p - (z - high) * (z + high))
    return x if math.isnan(x) else 2.0 - y if x < 0 else y


def _lanczos(y: Any) -> Any:
    a = np.float64(0.99999999999980993)
    for k in tec.static_range(8):
        a += LANCZOS[k] / (y + (k + 1))
    return a


def _gamma_above(x: Any) -> Any:
    """Gamma of x >= 0.5, a float64. Above 171.7 it is infinite."""
    y = min(x, 180.0) - 1.0
    a, t = _lanczos(y), y + 7.5
    half = math.pow(t, 0.5 * (y + 0.5))  # the whole power overflows before its product with exp(-t) does
    return 2.5066282746310002 * a * half * math.exp(-t) * half


def gamma(x: Any) -> Any:
    v = np.float64(x)
    reflected = v < 0.5
    above = _gamma_above(1.0 - v if reflected else v)
    by_pi = math.pi / (_sin_pi(v) * above)
    pole = v <= 0.0 and v == np.floor(v)
    y = by_pi if reflected else above
    return v if math.isnan(v) else np.nan if pole and v != 0.0 else math.copysign(np.inf, v) if v == 0.0 else y


def lgamma(x: Any) -> Any:
    v = np.float64(x)
    reflected = v < 0.5
    w = 1.0 - v if reflected else v
    y = w - 1.0
    a, t = _lanczos(y), y + 7.5
    above = HALF_LOG_2PI + (y + 0.5) * math.log(t) - t + math.log(a)
    by_pi = 1.1447298858494002 - math.log(abs(_sin_pi(v))) - above
    pole = v <= 0.0 and v == np.floor(v)
    return np.inf if pole or math.isinf(v) else by_pi if reflected else above


def _sin_pi(x: Any) -> Any:
    """sin(pi x), whose argument is reduced before the product."""
    return math.sin(math.pi * (x - 2.0 * np.rint(0.5 * x)))
