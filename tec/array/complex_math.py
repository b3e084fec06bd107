"""Operators and functions of complex nodes, made of operators on their parts.

Functions but for the plain ones work in float64 for both types: complex64 then has no overflow in between and its last digits right.
Sources: W. Kahan, "Branch cuts for complex elementary functions", 1987 (sqrt, tanh, the inverse functions); R. L. Smith, "Algorithm 116: Complex
division", 1962. Signs of zero and infinities follow C99, annex G, as the array API standard lists them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from . import build, dtypes
from .complexes import COMPLEX
from .errors import ArrayTypeError
from .node import Node, scalar

Parts = tuple[Node, Node]


def _num(like: Node, value: float) -> Node:
    return scalar(float(value), like.dtype, like.device)


def _b(op: str) -> Callable[[Node, Any], Node]:
    return lambda a, b: build.binary(op, a, b if isinstance(b, Node) else _num(a, b))


_add, _sub, _mul, _div = _b("add"), _b("subtract"), _b("multiply"), _b("divide")
_copysign, _hypot, _atan2, _max, _min = _b("copysign"), _b("hypot"), _b("atan2"), _b("maximum"), _b("minimum")


def _u(op: str) -> Callable[[Node], Node]:
    return lambda a: build.unary(op, a)


_neg, _abs, _exp, _sin, _cos, _tan = _u("neg"), _u("abs"), _u("exp"), _u("sin"), _u("cos"), _u("tan")
_sinh, _cosh, _asinh, _sqrt, _log, _log1p, _expm1 = (
    _u("sinh"), _u("cosh"), _u("asinh"), _u("sqrt"), _u("log"), _u("log1p"), _u("expm1"),
)  # fmt: skip


def _is(op: str, a: Node, b: Any) -> Node:
    return build.binary(op, a, b if isinstance(b, Node) else _num(a, b), dtypes.bool)


def _where(cond: Node, a: Any, b: Any) -> Node:
    like = a if isinstance(a, Node) else b
    a, b = (v if isinstance(v, Node) else _num(like, v) for v in (a, b))
    return build.where(cond, a, b)


def _and(a: Node, b: Node) -> Node:
    return build.binary("logical_and", a, b)


def _or(a: Node, b: Node) -> Node:
    return build.binary("logical_or", a, b)


def _test(op: str) -> Callable[[Node], Node]:
    return lambda a: build.unary(op, a, dtypes.bool)


_isnan, _isinf, _isfinite, _signbit = _test("isnan"), _test("isinf"), _test("isfinite"), _test("signbit")


def _wild(a: Node) -> Node:
    """Whether a part is infinite or NaN."""
    return build.unary("logical_not", _isfinite(a))


def _times(zero_wins: Node, other: Node) -> Node:
    """A product in which a zero of the first stays a zero, whatever the second is."""
    return _where(_is("equal", zero_wins, 0.0), zero_wins, _mul(zero_wins, other))


# ---- plain


def _multiply(a: Parts, b: Parts) -> Parts:
    return _sub(_mul(a[0], b[0]), _mul(a[1], b[1])), _add(_mul(a[0], b[1]), _mul(a[1], b[0]))


def _divide(x: Parts, y: Parts) -> Parts:
    """Smith's: the smaller part of the divisor over the larger one never overflows."""
    (a, b), (c, d) = x, y
    by_real = _is("greater_equal", _abs(c), _abs(d))
    large, small = _where(by_real, c, d), _where(by_real, d, c)
    ratio = _where(_is("equal", small, 0.0), small, _div(small, large))
    ratio = _where(_is("equal", large, 0.0), 0.0, ratio)
    below = _add(large, _mul(small, ratio))
    # by the real part: (a + b r, b - a r); else (b + a r, b r - a)
    real = _div(_add(_where(by_real, a, b), _mul(_where(by_real, b, a), ratio)), below)
    imag = _where(by_real, _sub(b, _mul(a, ratio)), _sub(_mul(b, ratio), a))
    return real, _div(imag, below)


def _square(x: Parts) -> Parts:
    a, b = x
    return _mul(_sub(a, b), _add(a, b)), _mul(_mul(a, b), 2.0)


def _sign(x: Parts) -> Parts:
    size = _hypot(*x)
    zero = _is("equal", size, 0.0)
    return _where(zero, 0.0, _div(x[0], size)), _where(zero, 0.0, _div(x[1], size))


# ---- functions, of parts in float64


def _exp_parts(size: Node, a: Node, b: Node) -> Parts:
    none = _is("equal", a, -math.inf)  # then nothing but the signs of the cosine and the sine counts
    real = _where(none, _times(size, _unit(_cos(b))), _mul(size, _cos(b)))
    imag = _where(none, _times(size, _unit(_sin(b))), _mul(size, _sin(b)))
    return real, _where(_is("equal", b, 0.0), b, imag)


def _unit(x: Node) -> Node:
    """x; 1 where it is NaN."""
    return _where(_isnan(x), 1.0, x)


def _expc(x: Parts) -> Parts:
    a, b = x
    size = _exp(a)
    real, imag = _exp_parts(size, a, b)
    # exp(-inf + anything i) is 0, exp(inf + inf i) is inf + NaN i, exp(inf + NaN i) as well
    wild = _and(_is("equal", a, math.inf), _wild(b))
    return _where(wild, math.inf, real), imag


def _expm1c(x: Parts) -> Parts:
    a, b = x
    half = _sin(_mul(b, 0.5))
    near = _sub(_mul(_expm1(_add(a, 0.0)), _cos(b)), _mul(_mul(half, half), 2.0))
    real, imag = _expc(x)
    small = _is("less", _abs(a), 1.0)
    return _where(small, near, _sub(real, 1.0)), imag


def _log_size(a: Node, b: Node) -> Node:
    """log |a + b i|, accurate where that is near 1."""
    large, small = _max(_abs(a), _abs(b)), _min(_abs(a), _abs(b))
    near = _mul(_log1p(_add(_mul(_sub(large, 1.0), _add(large, 1.0)), _mul(small, small))), 0.5)
    close = _and(_is("greater", large, 0.5), _is("less", large, 3.0))
    # the square root of 1/8 of the largest numbers does not overflow
    far = _add(_log(_hypot(_mul(a, 0.25), _mul(b, 0.25))), math.log(4.0))
    size = _hypot(a, b)
    return _where(close, near, _where(_is("less", large, 1e-300), _log(size), far))


def _log_double(a: Node, b: Node) -> Node:
    """log |2 (a + b i)|, where the double is out of reach too."""
    return _add(_log_size(_mul(a, 0.5), _mul(b, 0.5)), 2 * math.log(2.0))


def _logc(x: Parts) -> Parts:
    return _log_size(*x), _atan2(x[1], x[0])


def _scaled_log(scale: float) -> Callable[[Parts], Parts]:
    def function(x: Parts) -> Parts:
        a, b = _logc(x)
        return _mul(a, scale), _mul(b, scale)

    return function


def _log1pc(x: Parts) -> Parts:
    a, b = x
    near = _mul(_log1p(_add(_mul(a, _add(a, 2.0)), _mul(b, b))), 0.5)
    above = _add(a, 1.0)
    close = _and(_is("less", _abs(a), 0.5), _is("less", _abs(b), 1.0))
    return _where(close, near, _log_size(above, b)), _atan2(b, above)


def _sqrtc(x: Parts) -> Parts:
    a, b = x
    size = _max(_abs(a), _abs(b))
    large, tiny = _is("greater", size, 1e300), _is("less", size, 1e-290)
    scale = _where(large, 2.0**-4, _where(tiny, 2.0**80, _num(a, 1.0)))
    back = _where(large, 2.0**2, _where(tiny, 2.0**-40, _num(a, 1.0)))
    p, q = _mul(a, scale), _mul(b, scale)
    t = _sqrt(_mul(_add(_abs(p), _hypot(p, q)), 0.5))
    other = _where(_is("equal", t, 0.0), _abs(q), _div(_abs(q), _mul(t, 2.0)))
    left = _signbit(a)
    real, imag = _mul(_where(left, other, t), back), _mul(_copysign(_where(left, t, other), b), back)
    endless = _isinf(b)
    at_left, at_right = _is("equal", a, -math.inf), _is("equal", a, math.inf)
    nan_b = _isnan(b)
    real = _where(
        endless, math.inf, _where(at_right, math.inf, _where(at_left, _where(nan_b, math.nan, _num(a, 0.0)), real))
    )
    flat = _where(nan_b, b, _copysign(_num(a, 0.0), b))
    imag = _where(endless, b, _where(at_right, flat, _where(at_left, _copysign(_num(a, math.inf), b), imag)))
    return real, imag


def _sinhc(x: Parts) -> Parts:
    a, b = x
    inf_a = _isinf(a)
    wild_b = _wild(b)
    real = _where(_and(_is("equal", a, 0.0), wild_b), a, _where(_and(inf_a, wild_b), a, _times(_cos(b), _sinh(a))))
    real = _where(_is("equal", a, 0.0), a, real)
    imag = _where(_is("equal", b, 0.0), b, _times(_sin(b), _cosh(a)))
    return real, imag


def _coshc(x: Parts) -> Parts:
    a, b = x
    inf_a = _isinf(a)
    wild_b = _wild(b)
    real = _where(_and(inf_a, wild_b), math.inf, _times(_cos(b), _cosh(a)))
    zero = _mul(_copysign(_num(a, 1.0), a), _copysign(_num(a, 0.0), b))
    either = _or(_is("equal", a, 0.0), _is("equal", b, 0.0))
    return real, _where(either, zero, _times(_sin(b), _sinh(a)))


def _tanhc(x: Parts) -> Parts:
    a, b = x
    far = _is("greater", _abs(a), 20.0)
    t, s = _tan(b), _sinh(_where(far, 1.0, a))
    beta = _add(_mul(t, t), 1.0)
    rho = _sqrt(_add(_mul(s, s), 1.0))
    below = _add(_mul(beta, _mul(s, s)), 1.0)
    wild = _and(_isfinite(a), _wild(b))
    one = _where(wild, math.nan, _copysign(_num(a, 1.0), a))
    real = _where(far, one, _div(_mul(_mul(beta, rho), s), below))
    tail = _mul(_mul(_mul(_sin(b), _cos(b)), 4.0), _exp(_mul(_abs(a), -2.0)))
    endless = _isinf(a)
    imag = _where(endless, 0.0, _where(far, tail, _div(t, below)))
    imag = _where(_is("equal", b, 0.0), b, imag)
    # tanh(0 + inf i) is 0 + NaN i
    real = _where(_is("equal", a, 0.0), a, real)
    return real, imag


def _turned(function: Callable[[Parts], Parts]) -> Callable[[Parts], Parts]:
    """-i f(i x): sin of sinh, tan of tanh, asin of asinh, atan of atanh."""

    def turned(x: Parts) -> Parts:
        real, imag = function((_neg(x[1]), x[0]))
        return imag, _neg(real)

    return turned


def _cosc(x: Parts) -> Parts:
    return _coshc((_neg(x[1]), x[0]))


def _larger(x: Parts) -> Node:
    """Whether squares of the number are out of reach."""
    return _is("greater", _max(_abs(x[0]), _abs(x[1])), 1e150)


def _acosc(x: Parts) -> Parts:
    a, b = x
    p, q = _sqrtc((_sub(_num(a, 1.0), a), _neg(b))), _sqrtc((_add(a, 1.0), b))
    real = _mul(_atan2(p[0], q[0]), 2.0)
    imag = _asinh(_sub(_mul(q[0], p[1]), _mul(q[1], p[0])))
    far = _larger(x)
    log = _log_double(a, b)
    real, imag = _where(far, _atan2(_abs(b), a), real), _where(far, _copysign(log, _neg(b)), imag)
    nan_a, nan_b, inf_a, inf_b = _kinds(a, b)
    real = _where(
        _and(nan_b, _is("equal", a, 0.0)), math.pi / 2, _where(_or(nan_a, _and(inf_a, nan_b)), math.nan, real)
    )
    return real, _where(_and(nan_b, inf_a), math.inf, _where(_and(nan_a, inf_b), _neg(b), imag))


def _kinds(a: Node, b: Node) -> tuple[Node, Node, Node, Node]:
    """Whether the first and the second is NaN, and whether they are infinite."""
    return _isnan(a), _isnan(b), _isinf(a), _isinf(b)


def _asinhc(x: Parts) -> Parts:
    a, b = x
    p, q = _sqrtc((_add(b, 1.0), _neg(a))), _sqrtc((_sub(_num(b, 1.0), b), a))
    real = _asinh(_sub(_mul(p[0], q[1]), _mul(q[0], p[1])))
    imag = _atan2(b, _sub(_mul(p[0], q[0]), _mul(p[1], q[1])))
    far = _larger(x)
    log = _log_double(a, b)
    real, imag = _where(far, _copysign(log, a), real), _where(far, _atan2(b, _abs(a)), imag)
    nan_a, nan_b, inf_a, inf_b = _kinds(a, b)
    real = _where(_and(nan_b, inf_a), a, _where(_and(nan_a, inf_b), math.inf, real))
    return real, _where(_and(nan_a, _is("equal", b, 0.0)), b, _where(_or(nan_a, nan_b), math.nan, imag))


def _acoshc(x: Parts) -> Parts:
    a, b = x
    p, q = _sqrtc((_sub(a, 1.0), b)), _sqrtc((_add(a, 1.0), b))
    real = _asinh(_add(_mul(p[0], q[0]), _mul(p[1], q[1])))
    imag = _mul(_atan2(p[1], q[0]), 2.0)
    far = _larger(x)
    log = _log_double(a, b)
    real, imag = _where(far, log, real), _where(far, _atan2(b, a), imag)
    nan_a, nan_b, inf_a, inf_b = _kinds(a, b)
    real = _where(_or(_and(nan_b, inf_a), _and(nan_a, inf_b)), math.inf, real)
    imag = _where(_and(nan_b, _is("equal", a, 0.0)), math.pi / 2, _where(_or(nan_a, nan_b), math.nan, imag))
    return real, imag


def _atanhc(x: Parts) -> Parts:
    a, b = x
    r = _abs(a)
    s = _copysign(_num(a, 1.0), a)
    i = _mul(b, s)  # atanh is odd: the right half
    rest = _sub(_num(a, 1.0), r)
    real = _mul(_log1p(_div(_mul(r, 4.0), _add(_mul(rest, rest), _mul(i, i)))), 0.25)
    imag = _mul(_atan2(_mul(i, 2.0), _sub(_mul(rest, _add(r, 1.0)), _mul(i, i))), 0.5)
    far = _larger(x)
    size = _hypot(_mul(r, 0.5), _mul(i, 0.5))
    real = _where(far, _div(_div(_mul(r, 0.25), size), size), real)
    nan_a, nan_b, inf_a, inf_b = _kinds(a, b)
    real = _where(_or(inf_a, inf_b), 0.0, real)
    imag = _where(far, _where(nan_b, b, _copysign(_num(a, math.pi / 2), i)), imag)
    real = _where(_and(nan_b, _is("equal", a, 0.0)), a, _where(_and(nan_a, inf_b), 0.0, _mul(real, s)))
    return real, _where(_and(nan_a, inf_b), _copysign(_num(a, math.pi / 2), b), _mul(imag, s))


def _powerc(x: Parts, y: Parts) -> Parts:
    size, angle = _logc(x)
    zero = _and(_is("equal", x[0], 0.0), _is("equal", x[1], 0.0))
    none = _and(_is("equal", y[0], 0.0), _is("equal", y[1], 0.0))
    real, imag = _expc(_multiply(y, (_where(zero, 0.0, size), _where(zero, 0.0, angle))))
    of_zero = _where(_is("greater", y[0], 0.0), 0.0, _num(x[0], math.nan))
    real = _where(none, 1.0, _where(zero, of_zero, real))
    return real, _where(none, 0.0, _where(zero, of_zero, imag))


_PLAIN: dict[str, Callable[[Parts], Parts]] = {
    "identity": lambda x: x,
    "neg": lambda x: (_neg(x[0]), _neg(x[1])),
    "conj": lambda x: (x[0], _neg(x[1])),
    "square": _square,
    "round_even": lambda x: (build.unary("round_even", x[0]), build.unary("round_even", x[1])),
}
_FUNCTIONS: dict[str, Callable[[Parts], Parts]] = {
    "signum": _sign, "reciprocal": lambda x: _divide((_num(x[0], 1.0), _num(x[0], 0.0)), x), "exp": _expc, "expm1": _expm1c, "log": _logc, "log1p": _log1pc,
    "log2": _scaled_log(1 / math.log(2.0)), "log10": _scaled_log(1 / math.log(10.0)), "sqrt": _sqrtc,
    "sinh": _sinhc, "cosh": _coshc, "tanh": _tanhc, "sin": _turned(_sinhc), "cos": _cosc, "tan": _turned(_tanhc),
    "asinh": _asinhc, "acosh": _acoshc, "atanh": _atanhc, "asin": _turned(_asinhc), "acos": _acosc, "atan": _turned(_atanhc),
}  # fmt: skip
_TWO: dict[str, tuple[Callable[[Parts, Parts], Parts], bool]] = {
    "add": (lambda a, b: (_add(a[0], b[0]), _add(a[1], b[1])), False),
    "subtract": (lambda a, b: (_sub(a[0], b[0]), _sub(a[1], b[1])), False),
    "multiply": (_multiply, False),
    "divide": (_divide, True),
    "power": (_powerc, True),
}


def _refuse(op: str, n: Node) -> ArrayTypeError:
    return ArrayTypeError(f"{op} of {n.dtype}", hint="tec.array.real(x), imag(x) and abs(x) are real")


def _wide(x: Parts) -> Parts:
    return build.cast(x[0], dtypes.float64), build.cast(x[1], dtypes.float64)


def _narrow(x: Parts, n: Node) -> Node:
    part = dtypes.PART[n.dtype.name]
    shape = build.common_shape(x, "the parts")
    return build.joined(*[build.broadcast_to(build.cast(p, part), shape) for p in x])


def unary(op: str, n: Node) -> Node:
    """An operator on a complex node. Raises ArrayTypeError where there is none."""
    x = build.parts(n)
    if op == "abs":
        return build.binary("hypot", *x)
    if op in ("isfinite", "isinf", "isnan"):
        both = "logical_and" if op == "isfinite" else "logical_or"
        return build.binary(both, build.unary(op, x[0], dtypes.bool), build.unary(op, x[1], dtypes.bool))
    if op in _PLAIN:
        return build.joined(*_PLAIN[op](x))
    if op not in _FUNCTIONS:
        raise _refuse(op, n)
    return _narrow(_FUNCTIONS[op](_wide(x)), n)


def binary(op: str, a: Node, b: Node) -> Node:
    """An operator on two complex nodes of one type."""
    x, y = build.parts(a), build.parts(b)
    if op in ("equal", "not_equal"):
        same = [build.binary(op, p, q, dtypes.bool) for p, q in zip(x, y)]
        return build.binary("logical_and" if op == "equal" else "logical_or", same[0], same[1])
    if op not in _TWO:
        raise _refuse(op, a)
    function, wide = _TWO[op]
    if wide and a.dtype == "complex64":
        return _narrow(function(_wide(x), _wide(y)), a)
    return _narrow(function(x, y), a)


def product(n: Node, axis: int) -> Node:
    """The product along an axis, whose extent stays as 1: halves times halves."""
    while (m := n.shape[axis]) > 1:
        half = m // 2
        first, second = (build.narrow(n, axis, k * half, half) for k in (0, 1))
        made = build.binary("multiply", first, second)
        n = build.concat([made, build.narrow(n, axis, m - 1, 1)], axis) if m % 2 else build.boundary(made)
    return n


def running_product(n: Node, axis: int) -> Node:
    """The products up to each element, in log2(n) passes (Hillis and Steele, 1986)."""
    step = 1
    while step < (m := n.shape[axis]):
        later = build.binary("multiply", build.narrow(n, axis, 0, m - step), build.narrow(n, axis, step, m - step))
        n = build.concat([build.narrow(n, axis, 0, step), later], axis)
        step *= 2
    return n


COMPLEX.update(unary=unary, binary=binary, product=product, running_product=running_product)
