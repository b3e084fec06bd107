"""Special functions, element by element: the error function's complements and its inverse, gamma functions, Bessel functions.

All types compute in float64 and round once, so that the series need no care for cancellation; these functions are rarely where the time goes.

Sources: C. Lanczos, "A precision approximation of the gamma function", SIAM J. Numer. Anal. 1, 1964; M. J. Wichura, "Algorithm AS 241: the
percentage points of the normal distribution", Applied Statistics 37, 1988; M. Abramowitz and I. Stegun, "Handbook of Mathematical Functions",
1964: 6.4.7 and 23.2.5 (polygamma, zeta), 9.1.10, 9.2.5, 9.6.10 and 9.7.1 (Bessel).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from .. import te
from ..kernels.numbers import ERFC_DOUBLE, HALF_LOG_2PI, LANCZOS
from .elementwise import unary

# Of AS 241, lowest power first: numerators and denominators within 0.425 of a half, and in r = sqrt(-log(tail)) up to 5 and beyond.
_MIDDLE = (
    (3.3871328727963666080, 133.14166789178437745, 1971.5909503065514427, 13731.693765509461125, 45921.953931549871457, 67265.770927008700853,
     33430.575583588128105, 2509.0809287301226727),
    (1.0, 42.313330701600911252, 687.18700749205790830, 5394.1960214247511077, 21213.794301586595867, 39307.895800092710610,
     28729.085735721942674, 5226.4952788528545610),
)  # fmt: skip
_NEAR = (
    (1.42343711074968357734, 4.63033784615654529590, 5.76949722146069140550, 3.64784832476320460504, 1.27045825245236838258,
     0.241780725177450611770, 0.0227238449892691845833, 7.74545014278341407640e-4),
    (1.0, 2.05319162663775882187, 1.67638483018380384940, 0.689767334985100004550, 0.148103976427480074590, 0.0151986665636164571966,
     5.47593808499534494600e-4, 1.05075007164441684324e-9),
)  # fmt: skip
_FAR = (
    (6.65790464350110377720, 5.46378491116411436990, 1.78482653991729133580, 0.296560571828504891230, 0.0265321895265761230930,
     1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7),
    (1.0, 0.599832206555887937690, 0.136929880922735805310, 0.0148753612908506148525, 7.86869131145613259100e-4,
     1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15),
)  # fmt: skip


def special(name: str, f: Callable[..., Any]) -> None:
    """An operator on one input, whose `f` is given a float64."""
    unary(name, lambda x, **attrs: f(x.astype("float64"), **attrs).astype(x.dtype), traits="c")


def _f(value: float) -> Any:
    return te.const(value, "float64")


def _poly(coefficients: Sequence[float], x: Any) -> Any:
    """Horner's scheme, lowest power first."""
    y = _f(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        y = y * x + _f(c)
    return y


def _over(numerator: float, x: Any) -> Any:
    return _f(numerator) / x


# ---- the error function


def _scaled_tail(z: Any) -> Any:
    """(t, p) of z >= 0: t exp(p) is exp(z^2) erfc(z)."""
    t = _over(2.0, z + _f(2.0))
    return t, _poly(ERFC_DOUBLE[::-1], t * _f(2.0) - _f(1.0))


def _erfc(x: Any) -> Any:
    z = te.minimum(te.abs(x), _f(40.0))  # beyond it is 0 in any type
    t, p = _scaled_tail(z)
    high = te.trunc(z * _f(2.0**20)) / _f(2.0**20)  # its square is exact
    y = t * te.exp(-(high * high)) * te.exp(p - (z - high) * (z + high))
    return te.select(te.isnan(x), x, te.select(x < _f(0.0), _f(2.0) - y, y))


def _erfcx(x: Any) -> Any:
    """exp(x^2) erfc(x)."""
    t, p = _scaled_tail(te.abs(x))
    y = t * te.exp(p)
    return te.select(x < _f(0.0), _f(2.0) * te.exp(x * x) - y, y)


def _quantile(q: Any, tail: Any) -> Any:
    """Where the normal distribution is q + 1/2, whose smaller tail is `tail`."""
    middle = _f(0.180625) - q * q
    r = te.sqrt(-te.log(tail))
    ratios = [_poly(a, x) / _poly(b, x) for (a, b), x in ((_MIDDLE, middle), (_NEAR, r - _f(1.6)), (_FAR, r - _f(5.0)))]
    outer = te.select(tail == _f(0.0), _f(math.inf), te.select(r <= _f(5.0), ratios[1], ratios[2]))
    outer = te.select(q < _f(0.0), -outer, outer)
    return te.select(te.abs(q) <= _f(0.425), q * ratios[0], outer)


special("erfc", _erfc)
special("erfcx", _erfcx)
special("erfinv", lambda x: _quantile(x * _f(0.5), (_f(1.0) - te.abs(x)) * _f(0.5)) * _f(math.sqrt(0.5)))
special("ndtri", lambda p: _quantile(p - _f(0.5), te.minimum(p, _f(1.0) - p)))


# ---- gamma functions


def _lanczos(y: Any) -> tuple[Any, Any]:
    """The sum whose logarithm is a part of log gamma(y + 1), and its slope."""
    parts = [(c, y + _f(k + 1.0)) for k, c in enumerate(LANCZOS)]
    value, slope = _f(0.99999999999980993), _f(0.0)
    for c, d in parts:
        value = value + _over(c, d)
        slope = slope - _over(c, d * d)
    return value, slope


def _turned(v: Any) -> tuple[Any, Any, Any]:
    """(whether v lies below 1/2, the one of v and 1 - v that does not, pi times v less the nearest whole number)."""
    below = v < _f(0.5)
    return below, te.select(below, _f(1.0) - v, v), (v - te.nearbyint(v)) * _f(math.pi)


def _is_pole(v: Any) -> Any:
    return te.all(v <= _f(0.0), v == te.floor(v))


def _lgamma(v: Any) -> Any:
    below, w, angle = _turned(v)
    y = w - _f(1.0)
    t = y + _f(7.5)
    above = _f(HALF_LOG_2PI) + (y + _f(0.5)) * te.log(t) - t + te.log(_lanczos(y)[0])
    turned = _f(math.log(math.pi)) - te.log(te.abs(te.sin(angle))) - above
    return te.select(te.any(_is_pole(v), te.isinf(v)), _f(math.inf), te.select(below, turned, above))


def _digamma(v: Any) -> Any:
    below, w, angle = _turned(v)
    y = w - _f(1.0)
    t = y + _f(7.5)
    value, slope = _lanczos(y)
    above = te.log(t) + (y + _f(0.5)) / t - _f(1.0) + slope / value
    above = te.select(te.isinf(w), w, above)
    turned = above - _f(math.pi) * te.cos(angle) / te.sin(angle)
    pole = te.select(v == _f(0.0), te.copysign(_f(math.inf), -v), _f(math.nan))
    return te.select(_is_pole(v), pole, te.select(below, turned, above))


# Terms of zeta's sum before its rest is an integral with corrections (Euler and Maclaurin), by even Bernoulli numbers: of arguments from 1/2 on the
# first correction left out is below 1e-16.
_SUMMED = 10
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)


def _power(x: Any, n: int) -> Any:
    """x to a whole power above 0, by squaring."""
    y = None
    while n:
        y = x if n & 1 and y is None else y * x if n & 1 else y
        n >>= 1
        x = x * x
    return y


def _zeta(s: int, q: Any) -> Any:
    """The sum of (q + k)^-s over all k >= 0, of q >= 1/2."""
    total = _power(_over(1.0, q), s)
    for k in range(1, _SUMMED):
        total = total + _power(_over(1.0, q + _f(float(k))), s)
    far = q + _f(float(_SUMMED))
    back = _over(1.0, far)
    last = _power(back, s)
    corrections, rising = [], float(s)
    for j, b in enumerate(_BERNOULLI, 1):
        corrections.append(b / math.factorial(2 * j) * rising)
        rising *= (s + 2 * j - 1) * (s + 2 * j)
    whole = _power(back, s - 1) / _f(s - 1.0)
    return total + whole + last * (_f(0.5) + back * _poly(corrections, back * back))


def _slopes_of_cotangent(n: int) -> list[float]:
    """The n-th derivative of cot as a polynomial in it, lowest power first: c' is -(1 + c^2)."""
    p = [0.0, 1.0]
    for _ in range(n):
        d = [k * c for k, c in enumerate(p)][1:]
        p = [-a - b for a, b in zip([*d, 0.0, 0.0], [0.0, 0.0, *d])]
    return p


def _polygamma(v: Any, n: int) -> Any:
    if n == 0:
        return _digamma(v)
    below, w, angle = _turned(v)
    above = _zeta(n + 1, w) * _f((-1.0) ** (n + 1) * math.factorial(n))
    cotangent = te.cos(angle) / te.sin(angle)
    by_angle = _poly(_slopes_of_cotangent(n), cotangent) * _f(math.pi ** (n + 1))
    return te.select(below, above * _f((-1.0) ** n) - by_angle, above)


special("lgamma", _lgamma)
special("digamma", _digamma)
special("polygamma", _polygamma)


# ---- Bessel functions of order 0 and 1

# Up to here the power series, from here on the expansion for large arguments: both are right to 1e-12 there.
_LARGE = 15.0
_SERIES = 48
_EXPANSION = 24


def _series(order: int, alternates: bool) -> list[float]:
    """In x^2 / 4: 1 / (k! (k + order)!), with alternating signs for J."""
    return [
        (-1.0 if alternates and k % 2 else 1.0) / (math.factorial(k) * math.factorial(k + order))
        for k in range(_SERIES)
    ]


def _hankel(order: int) -> list[float]:
    """The coefficients of Hankel's expansion, of powers of 1 / x."""
    made = [1.0]
    for k in range(1, _EXPANSION):
        made.append(made[-1] * (4 * order * order - (2 * k - 1) ** 2) / (8 * k))
    return made


def _bessel_i(x: Any, order: int, scaled: bool) -> Any:
    """I of order 0 or 1; times exp(-|x|) where it is scaled."""
    a = te.abs(x)
    z = te.minimum(a, _f(_LARGE))
    near = _poly(_series(order, False), z * z * _f(0.25))
    far_at = te.maximum(a, _f(_LARGE))
    signs = [(-1.0) ** k * c for k, c in enumerate(_hankel(order))]
    far = _poly(signs, _over(1.0, far_at)) / te.sqrt(far_at * _f(2 * math.pi))
    if order:
        near = near * z * _f(0.5)
    if scaled:
        near = near * te.exp(-z)
    else:
        half = te.exp(far_at * _f(0.5))  # the whole power overflows before its product does
        far = far * half * half
        far = te.select(te.isinf(a), a, far)
    y = te.select(a <= _f(_LARGE), near, far)
    y = te.select(x < _f(0.0), -y, y) if order else y
    return te.select(te.isnan(x), x, y)


def _bessel_j(x: Any, order: int) -> Any:
    a = te.abs(x)
    z = te.minimum(a, _f(_LARGE))
    near = _poly(_series(order, True), z * z * _f(0.25))
    near = near * z * _f(0.5) if order else near
    far_at = te.maximum(a, _f(_LARGE))
    back = _over(1.0, far_at)
    c = _hankel(order)
    even, odd = ([(-1.0) ** k * v for k, v in enumerate(c[first::2])] for first in (0, 1))
    angle = far_at - _f((0.5 * order + 0.25) * math.pi)
    p, q = _poly(even, back * back), _poly(odd, back * back) * back
    far = te.sqrt(back * _f(2 / math.pi)) * (p * te.cos(angle) - q * te.sin(angle))
    y = te.select(te.isinf(a), _f(0.0), te.select(a <= _f(_LARGE), near, far))
    y = te.select(x < _f(0.0), -y, y) if order else y
    return te.select(te.isnan(x), x, y)


special("bessel_i", _bessel_i)
special("bessel_j", _bessel_j)
