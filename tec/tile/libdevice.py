"""The math library of kernels over tiles: `triton.language.extra.libdevice`, by tec's own functions and by series where it has none.

Functions take tiles and numbers, and give the type of their first argument unless they say otherwise; floats of 16 bits are computed as float32. Names that end in
`_rn`, `_rz`, `_rd` and `_ru` round to nearest, toward 0, down and up; of additions, products and quotients only the first is here.

Sources of the series: erfinv by Giles, "Approximating the erfinv function" (2010), single precision; lgamma by Stirling's series after a shift (Abramowitz and Stegun
6.1.41); erfc by the expansion in exp(-x * x) of Numerical Recipes 6.2; i0 and i1 by Abramowitz and Stegun 9.8.1 to 9.8.4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from . import arithmetic as W
from .builder import current, float32, int1, int32, int64
from .grammar import DTYPES, dtype
from .words import where

_HALF_LN_2PI = 0.5 * math.log(2.0 * math.pi)
_UINT = {8: "uint8", 16: "uint16", 32: "uint32", 64: "uint64"}
_SIGNED = {8: "int8", 16: "int16", 32: "int32", 64: "int64"}


def _number(x: Any) -> Any:
    """An argument as a tile of floats."""
    b = current()
    x = b.of_number(x)
    return b.cast(x, float32) if x.ty.dtype.is_int() else x


def _wide(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn` in float32 at least, and the result in the type of the first argument."""

    def word(*args: Any) -> Any:
        b = current()
        xs = [_number(a) for a in args]
        for k in range(1, len(xs)):
            xs[0], xs[k] = b.pair(xs[0], xs[k])
        xs = [b.same_shape(x, xs[0])[0] for x in xs]
        dt = xs[0].ty.dtype
        wide = dt if dt.primitive_bitwidth >= 32 else float32
        made = fn(*[b.cast(x, wide) for x in xs])
        return b.cast(made, dt) if made.ty.dtype == wide else made

    word.__name__ = word.__qualname__ = fn.__name__.strip("_")
    word.__doc__ = fn.__doc__
    return word


def _two(name: str, doc: str) -> Callable[..., Any]:
    def fn(x: Any, y: Any) -> Any:
        return current().binary(name, x, y)

    fn.__name__, fn.__doc__ = name, doc
    return _wide(fn)


def _is(name: str, doc: str) -> Callable[..., Any]:
    def fn(x: Any) -> Any:
        return current().unary(name, x, int1)

    fn.__name__, fn.__doc__ = name, doc
    return _wide(fn)


def _bits(x: Any, table: dict[int, str] = _SIGNED) -> Any:
    b = current()
    x = b.of_number(x)
    return b.cast(x, DTYPES[table[x.ty.dtype.primitive_bitwidth]], bitcast=True)


def _as(name: str) -> Callable[[Any], Any]:
    def word(x: Any) -> Any:
        b = current()
        return b.cast(b.of_number(x), DTYPES[name], bitcast=True)

    word.__name__, word.__doc__ = f"as_{name}", f"The bits of x as {name}."
    return word


def _to(name: str, rounding: str) -> Callable[[Any], Any]:
    """To an integer type, after rounding."""

    def word(x: Any) -> Any:
        b = current()
        x = b.of_number(x)
        made = x if rounding == "z" else b.unary({"n": "nearbyint", "d": "floor", "u": "ceil"}[rounding], x)
        return b.cast(made, DTYPES[name])

    word.__name__, word.__doc__ = f"to_{name}_r{rounding}", f"x as {name}, rounded."
    return word


def _cast_to(name: str) -> Callable[[Any], Any]:
    def word(x: Any) -> Any:
        b = current()
        return b.cast(b.of_number(x), DTYPES[name])

    word.__name__, word.__doc__ = f"to_{name}", f"x as {name}, rounded to nearest."
    return word


def _series(x: Any, coefficients: Sequence[float]) -> Any:
    """A polynomial, highest power first."""
    total = x * 0.0 + coefficients[0]
    for c in coefficients[1:]:
        total = total * x + c
    return total


# ---- what a number is, and its bits


def signbit(x: Any) -> Any:
    """Whether the sign bit of a float is set."""
    return _bits(x) < 0


def copysign(x: Any, y: Any) -> Any:
    """|x| with the sign of y."""
    b = current()
    x, y = b.pair(_number(x), _number(y))
    return where(signbit(y), -W.abs(x), W.abs(x))


def nextafter(x: Any, y: Any) -> Any:
    """The next float after x on the way to y."""
    b = current()
    x, y = b.pair(_number(x), _number(y))
    bits = _bits(x)
    step = where((y > x) == (x > 0), bits * 0 + 1, bits * 0 - 1)
    least = where(y > 0, bits * 0 + 1, _bits(-W.abs(x) * 0.0) + 1)
    moved = b.cast(where(x == 0, least, bits + step), x.ty.dtype, bitcast=True)
    return where((x != x) | (y != y), x + y, where(x == y, y, moved))


def _counted(name: str, doc: str) -> Callable[[Any], Any]:
    def word(x: Any) -> Any:
        b = current()
        return b.cast(b.unary(name, _bits(x, _UINT)), int32)

    word.__name__, word.__doc__ = name, doc
    return word


clz, popc = _counted("clz", "How many high bits are 0."), _counted("popcount", "How many bits are 1.")


def brev(x: Any) -> Any:
    """The bits in the reverse order."""
    b = current()
    x = b.of_number(x)
    return b.cast(b.unary("bitreverse", _bits(x, _UINT)), x.ty.dtype)


def ffs(x: Any) -> Any:
    """The place of the lowest bit that is 1, from 1 on; 0 where there is none."""
    x = _bits(x)
    low = x & (0 - x)
    return where(x == 0, 0, x.ty.dtype.primitive_bitwidth - clz(low))


# ---- functions


@_wide
def pow(x: Any, y: Any) -> Any:
    """x to the power of y."""
    return current().binary("pow", x, y)


@_wide
def remainder(x: Any, y: Any) -> Any:
    """x - n * y, n the whole number nearest to x / y."""
    b = current()
    r = b.binary("fmod", x, y)
    far, size = W.abs(r) * 2, W.abs(y)
    odd = b.binary("fmod", b.unary("trunc", (W.abs(x) - W.abs(r)) / size), size * 0 + 2) == 1
    return where((far > size) | ((far == size) & odd), r - copysign(size, r), r)


# log(erfc(z) exp(z^2) / t) in t = 1 / (1 + z / 2), highest power first
_ERFC = (0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418, 0.37409196, 1.00002368, -1.26551223)  # fmt: skip


@_wide
def erfc(x: Any) -> Any:
    """1 - erf(x), also where that is near 0."""
    z = W.abs(x)
    t = 1.0 / (1.0 + 0.5 * z)
    p = _series(t, _ERFC)
    far = t * W.exp(p - z * z)
    return where(z < 0.5, 1.0 - W.erf(x), where(x < 0, 2.0 - far, far))


@_wide
def erfcx(x: Any) -> Any:
    """exp(x * x) * erfc(x)."""
    z = W.abs(x)
    t = 1.0 / (1.0 + 0.5 * z)
    p = _series(t, _ERFC)
    far = t * W.exp(p)
    return where(x < 0, 2.0 * W.exp(x * x) - far, far)


@_wide
def erfinv(x: Any) -> Any:
    """The y whose erf is x."""
    w = -W.log((1.0 - x) * (1.0 + x))
    near = _series(w - 2.5, (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164, 0.246640727, 1.50140941))  # fmt: skip
    far = _series(W.sqrt(w) - 3.0, (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047, 1.00167406, 2.83297682))  # fmt: skip
    made = where(w < 5.0, near, far) * x
    return where(W.abs(x) == 1.0, x * float("inf"), made)


def erfcinv(x: Any) -> Any:
    """The y whose erfc is x."""
    return erfinv(1.0 - _number(x))


def normcdf(x: Any) -> Any:
    """The share of a normal distribution below x."""
    return 0.5 * erfc(_number(x) * -math.sqrt(0.5))


def normcdfinv(x: Any) -> Any:
    """The x below which so much of a normal distribution is."""
    return erfinv(2.0 * _number(x) - 1.0) * math.sqrt(2.0)


@_wide
def lgamma(x: Any) -> Any:
    """The logarithm of |gamma(x)|."""
    mirrored = x < 0.5
    y = where(mirrored, 1.0 - x, x)
    shifted, product = y, y * 0.0 + 1.0
    for _ in range(6):  # Stirling's series holds from about 6 on
        small = shifted < 6.0
        product = where(small, product * shifted, product)
        shifted = where(small, shifted + 1.0, shifted)
    u = 1.0 / shifted
    tail = u * _series(u * u, (-1 / 1680, 1 / 1260, -1 / 360, 1 / 12))
    made = (shifted - 0.5) * W.log(shifted) - shifted + _HALF_LN_2PI + tail - W.log(product)
    turn = x - W.floor(x)
    other = math.log(math.pi) - W.log(W.abs(W.sin(turn * math.pi))) - made
    pole = mirrored & (turn == 0.0)
    return where(pole | (W.abs(x) == float("inf")), float("inf"), where(mirrored, other, made))


@_wide
def tgamma(x: Any) -> Any:
    """The gamma function."""
    size = W.exp(lgamma(x))
    half = W.floor(x) * 0.5
    return where((x < 0) & (half != W.floor(half)), -size, size)


def _bessel(near: Sequence[float], far: Sequence[float], odd: bool) -> Callable[[Any], Any]:
    def fn(x: Any) -> Any:
        z = W.abs(x)
        t = z * (1.0 / 3.75)
        small = _series(t * t, near) * (z if odd else 1.0)
        large = W.exp(z) / W.sqrt(where(z > 1.0, z, 1.0)) * _series(1.0 / where(t > 1.0, t, 1.0), far)
        made = where(t < 1.0, small, large)
        return where(x < 0, -made, made) if odd else made

    return _wide(fn)


cyl_bessel_i0 = _bessel(
    (0.0045813, 0.0360768, 0.2659732, 1.2067492, 3.0899424, 3.5156229, 1.0),
    (0.00392377, -0.01647633, 0.02635537, -0.02057706, 0.00916281, -0.00157565, 0.00225319, 0.01328592, 0.39894228),
    False,
)
cyl_bessel_i1 = _bessel(
    (0.00032411, 0.00301532, 0.02658733, 0.15084934, 0.51498869, 0.87890594, 0.5),
    (-0.00420059, 0.01787654, -0.02895312, 0.02282967, -0.01031555, 0.00163801, -0.00362018, -0.03988024, 0.39894228),
    True,
)


@_wide
def cbrt(x: Any) -> Any:
    """The cube root."""
    z = W.abs(x)
    y = W.exp2(W.log2(where(z > 0, z, 1.0)) * (1.0 / 3.0))
    y = y - (y - z / (y * y)) * (1.0 / 3.0)
    return copysign(where((z == 0) | (z == float("inf")), z, y), x)


@_wide
def logb(x: Any) -> Any:
    """The exponent of x, as a float."""
    e = W.floor(W.log2(W.abs(x)))
    e = where(W.exp2(e) > W.abs(x), e - 1.0, e)
    return where(W.exp2(e + 1.0) <= W.abs(x), e + 1.0, e)


def ilogb(x: Any) -> Any:
    """The exponent of x, int32."""
    return current().cast(logb(x), int32)


def ldexp(x: Any, n: Any) -> Any:
    """x * 2 ** n."""
    b = current()
    half = b.cast(b.of_number(n), int32) // 2
    x = _number(x)
    return x * W.exp2(b.cast(half, x.ty.dtype)) * W.exp2(b.cast(b.of_number(n) - half, x.ty.dtype))


def fdim(x: Any, y: Any) -> Any:
    """x - y where that is positive, else 0."""
    return W.maximum(_number(x) - _number(y), 0.0)


def saturatef(x: Any) -> Any:
    """x within 0 and 1."""
    return W.minimum(W.maximum(_number(x), 0.0), 1.0)


def _norm(*xs: Any) -> Any:
    return W.sqrt(sum((x * x for x in map(_number, xs[1:])), _number(xs[0]) * _number(xs[0])))


def norm3d(x: Any, y: Any, z: Any) -> Any:
    """sqrt(x * x + y * y + z * z)."""
    return _norm(x, y, z)


def norm4d(x: Any, y: Any, z: Any, w: Any) -> Any:
    """sqrt(x * x + y * y + z * z + w * w)."""
    return _norm(x, y, z, w)


def hadd(x: Any, y: Any) -> Any:
    """(x + y) // 2 without overflow, rounded down."""
    return (x & y) + ((x ^ y) >> 1)


def rhadd(x: Any, y: Any) -> Any:
    """(x + y + 1) // 2 without overflow."""
    return (x | y) - ((x ^ y) >> 1)


def sad(x: Any, y: Any, z: Any) -> Any:
    """|x - y| + z."""
    return where(x > y, x - y, y - x) + z


def mul24(x: Any, y: Any) -> Any:
    """The product of the low 24 bits of two integers."""
    return ((x << 8) >> 8) * ((y << 8) >> 8)


def mulhi(x: Any, y: Any) -> Any:
    """The upper half of the product of two integers."""
    b = current()
    x, y = b.pair(x, y)
    if x.ty.dtype.is_int_unsigned():
        return W.umulhi(x, y)
    wide: dtype = int64
    if x.ty.dtype.primitive_bitwidth == wide.primitive_bitwidth:
        upper = W.umulhi(x, y)
        return upper - where(x < 0, y, 0) - where(y < 0, x, 0)
    return b.cast((b.cast(x, wide) * b.cast(y, wide)) >> x.ty.dtype.primitive_bitwidth, x.ty.dtype)


def _rounding() -> dict[str, Any]:
    """Conversions by how they round."""
    made: dict[str, Any] = {}
    names = {"int": "int32", "uint": "uint32", "ll": "int64", "ull": "uint64"}
    for short, full in names.items():
        for source in ("float", "double"):
            made |= {f"{source}2{short}_r{r}": _to(full, r) for r in "nzdu"}
        made |= {f"{short}2float_rn": _cast_to("float32"), f"{short}2double_rn": _cast_to("float64")}
    return made | {"double2float_rn": _cast_to("float32")}


def library() -> SimpleNamespace:
    """All names."""
    own = {
        n: f
        for n, f in globals().items()
        if callable(f) and not n.startswith("_") and getattr(f, "__module__", "") == __name__ and n != "library"
    }
    made: dict[str, Any] = {
        **own, **_rounding(), "isnan": _is("isnan", "Whether x is no number."), "isinf": _is("isinf", "Whether x is infinite."),
        "finitef": _is("isfinite", "Whether x is finite."), "isfinited": _is("isfinite", "Whether x is finite."),
        "fmod": _two("fmod", "What is left of x / y toward 0."), "atan2": _two("atan2", "The angle of (y, x)."),
        "hypot": _two("hypot", "sqrt(x * x + y * y)."),
        "float_as_int": _as("int32"), "float_as_uint": _as("uint32"), "int_as_float": _as("float32"), "uint_as_float": _as("float32"),
        "double_as_longlong": _as("int64"), "longlong_as_double": _as("float64"), "llrint": _to("int64", "n"), "llround": lambda x: current().cast(current().unary("round", x), int64),
        "fast_powf": pow, "fast_tanhf": W.tanh, "scalbn": ldexp, "rsqrt_rn": W.rsqrt, "fma_rn": W.fma,
        "add_rn": lambda x, y: x + y, "sub_rn": lambda x, y: x - y, "mul_rn": lambda x, y: x * y,
        "sinpi": lambda x: W.sin(x * math.pi), "cospi": lambda x: W.cos(x * math.pi), "rhypot": lambda x, y: 1.0 / _norm(x, y),
        "rnorm3d": lambda x, y, z: 1.0 / _norm(x, y, z), "rnorm4d": lambda *x: 1.0 / _norm(*x), "rcbrt": lambda x: 1.0 / cbrt(x),
    }  # fmt: skip
    return SimpleNamespace(**made)


__all__ = ["library"]
