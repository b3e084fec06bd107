"""NumPy's comparisons, extrema, rests and powers that the standard leaves out (`numpy_names`), written in functions of the standard."""

from __future__ import annotations

import math
from typing import Any

from . import creation, dtypes, elementwise, manipulation, searching, statistical
from .array import Array, pair


def _pair(a: Any, b: Any) -> tuple[Array, Array]:
    """Two arrays of one type; one may be given as a number."""
    m, n = pair(a, b)
    return Array(m), Array(n)


def _floating(x: Array) -> Array:
    """Integers become the default float."""
    return x if dtypes.is_float(x.dtype) or dtypes.is_complex(x.dtype) else manipulation.astype(x, dtypes.DEFAULT_FLOAT)


# ---- comparing


def isclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Array:
    """Test where |a - b| <= atol + rtol |b|, or both are the same infinity, or with `equal_nan` both are NaN."""
    x, y = _pair(a, b)
    if not (dtypes.is_float(x.dtype) or dtypes.is_complex(x.dtype)):  # their differences leave their types
        x, y = (manipulation.astype(v, dtypes.float64) for v in (x, y))
    near = elementwise.logical_and(elementwise.abs(x - y) <= atol + rtol * elementwise.abs(y), elementwise.isfinite(y))
    close = elementwise.logical_or(near, x == y)
    return elementwise.logical_or(close, _both_nan(x, y)) if equal_nan else close


def _both_nan(x: Array, y: Array) -> Array:
    return elementwise.logical_and(elementwise.isnan(x), elementwise.isnan(y))


def allclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Whether `isclose` holds everywhere. Computes."""
    return bool(statistical.all(isclose(a, b, rtol, atol, equal_nan)))


def array_equal(a: Array, b: Array, equal_nan: bool = False) -> bool:
    """Whether shapes and elements are the same, with `equal_nan` also where both are NaN. Computes."""
    if a.shape != b.shape:
        return False
    same = elementwise.equal(a, b)
    if equal_nan and dtypes.is_float(dtypes.result_type(a, b)):
        same = elementwise.logical_or(same, elementwise.logical_and(a != a, b != b))
    return bool(statistical.all(same))


# ---- arithmetic


def _of_numbers(f: Any, a: Any, b: Any) -> Array:
    x, y = _pair(a, b)
    found: Array = f(x, y)
    if not dtypes.is_float(x.dtype):
        return found
    return searching.where(elementwise.isnan(x), y, searching.where(elementwise.isnan(y), x, found))


def fmax(a: Any, b: Any) -> Array:
    """The greater of two; beside NaN the other."""
    return _of_numbers(elementwise.maximum, a, b)


def fmin(a: Any, b: Any) -> Array:
    """The lesser of two; beside NaN the other."""
    return _of_numbers(elementwise.minimum, a, b)


def fmod(a: Any, b: Any) -> Array:
    """The rest of the division, with the sign of `a`."""
    x, y = _pair(a, b)
    if dtypes.is_float(x.dtype):
        return elementwise.copysign(elementwise.remainder(elementwise.abs(x), elementwise.abs(y)), x)
    rest = elementwise.remainder(x, y)  # with the sign of y
    other = elementwise.logical_and(rest != 0, elementwise.logical_xor(x < 0, y < 0))
    return searching.where(other, rest - y, rest)


def fabs(x: Array) -> Array:
    """The absolute value, as a float."""
    return elementwise.abs(_floating(x))


def rint(x: Array) -> Array:
    """The nearest whole number, as a float; the even one of two."""
    return elementwise.round(_floating(x))


def logaddexp2(a: Array, b: Array) -> Array:
    """log2(2**a + 2**b)."""
    return elementwise.logaddexp(a * math.log(2), b * math.log(2)) * (1 / math.log(2))


def deg2rad(x: Array) -> Array:
    """Degrees in radians."""
    return x * (math.pi / 180)


def rad2deg(x: Array) -> Array:
    """Radians in degrees."""
    return x * (180 / math.pi)


def exp2(x: Array) -> Array:
    """2**x. Integers become the default float."""
    power = _floating(x)
    return elementwise.pow(creation.full((), 2.0, dtype=power.dtype, device=x.device), power)


def cbrt(x: Array) -> Array:
    """The cube root. Integers become the default float."""
    root = _floating(x)
    return elementwise.copysign(elementwise.pow(elementwise.abs(root), 1 / 3), root)


def float_power(a: Any, b: Any) -> Array:
    """a**b in float64 (complex128 of complex numbers)."""
    x, y = _pair(a, b)
    kind = dtypes.complex128 if dtypes.is_complex(x.dtype) else dtypes.float64
    return elementwise.pow(manipulation.astype(x, kind), manipulation.astype(y, kind))


radians, degrees = deg2rad, rad2deg


def divmod(a: Any, b: Any) -> tuple[Array, Array]:
    """(a // b, a % b)."""
    return elementwise.floor_divide(a, b), elementwise.remainder(a, b)


def modf(x: Array) -> tuple[Array, Array]:
    """The fraction and the whole part, both with the sign of `x`."""
    held = _floating(x)
    whole = elementwise.trunc(held)
    return elementwise.copysign(searching.where(elementwise.isinf(held), 0.0, held - whole), held), whole


def sinc(x: Array) -> Array:
    """sin(pi x) / (pi x), and 1 at 0."""
    turn = _floating(x) * math.pi
    safe = searching.where(turn == 0, 1.0, turn)
    return searching.where(turn == 0, 1.0, elementwise.sin(safe) / safe)


def heaviside(x: Array, at_zero: Any) -> Array:
    """0 below 0, 1 above, and `at_zero` at 0."""
    held = _floating(x)
    step = manipulation.astype(held > 0, held.dtype)
    return searching.where(elementwise.isnan(held), held, searching.where(held == 0, at_zero, step))


def isposinf(x: Array) -> Array:
    """Whether x is plus infinity."""
    return elementwise.logical_and(elementwise.isinf(x), x > 0)


def isneginf(x: Array) -> Array:
    """Whether x is minus infinity."""
    return elementwise.logical_and(elementwise.isinf(x), x < 0)


def isreal(x: Array) -> Array:
    """Whether the imaginary part is 0."""
    return elementwise.imag(x) == 0 if dtypes.is_complex(x.dtype) else creation.ones_like(x, dtype=dtypes.bool)


def iscomplex(x: Array) -> Array:
    """Whether the imaginary part is not 0."""
    return elementwise.logical_not(isreal(x))


def iscomplexobj(x: Any) -> bool:
    """Whether the type is complex."""
    return bool(dtypes.is_complex(x.dtype))


def isrealobj(x: Any) -> bool:
    """Whether the type is not complex."""
    return not iscomplexobj(x)


def angle(x: Array, deg: bool = False) -> Array:
    """The angle of complex numbers, in radians or degrees."""
    held = _floating(x)
    turn = elementwise.atan2(elementwise.imag(held), elementwise.real(held))
    return rad2deg(turn) if deg else turn


def ldexp(x: Array, exponent: Any) -> Array:
    """x * 2**exponent, also where 2**exponent itself is past the range of the type."""
    held = _floating(x)
    e = exponent if isinstance(exponent, Array) else creation.asarray(exponent, device=x.device)
    # Three factors, each within the range of the type for every exponent that leaves anything but 0 or infinity.
    e = elementwise.clip(manipulation.astype(e, dtypes.int64), -2200, 2200)
    third = e // 3
    factor = exp2(manipulation.astype(third, held.dtype))
    return held * factor * factor * exp2(manipulation.astype(e - 2 * third, held.dtype))
