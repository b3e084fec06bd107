"""Logarithms of float32 and float64 as branch-free expressions (see `math_functions`): x = 2**e * (1 + f), and a polynomial of f, or of a quotient of it."""

from __future__ import annotations

from .. import expr as E
from .math_builder import MathBuilder as M

_DIRECT_BITS = 0x3F2AAAAB  # of 2/3
_FOUR_BITS = 0x40800000


def _is_direct(m: M) -> bool:
    """A GPU divides in some ten instructions, in which a polynomial of f has twice the degree."""
    return m.is_f32 and m.target.is_gpu


def _direct(m: M, e: E.Expr, f: E.Expr, low: E.Expr | None = None) -> E.Expr:
    """ln(2**e * (1 + f + low)) for 1 + f in [2/3, 4/3)."""
    square, p = m.mul(f, f), m.poly(m.table("LOG_DIRECT"), f)
    near = m.mad(square, p, f) if low is None else m.add(f, m.mad(square, p, low))
    return m.mad(e, m.const("LN2_FULL"), near)


def log_parts(m: M, x: E.Expr, is_direct: bool = False) -> tuple[E.Expr, E.Expr]:
    """x = 2**e * (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), or in [2/3, 4/3) where no quotient follows, for positive finite x: (e as a float, f)."""
    tiny = 2.0 ** (1 - m.bias)
    lift = m.mantissa + 2
    small = m.let(E.LT(x, m.f(tiny)), "small")
    y = m.select(small, m.mul(x, m.f(2.0**lift)), x)
    root_bits = (_DIRECT_BITS if is_direct else 0x3F3504F3) if m.is_f32 else 0x3FE6A09E667F3BCD
    t = m.let(E.Sub(m.to_bits(y), m.i(root_bits)), "t")
    e = m.float_of(m.shr(t, m.mantissa))
    e = m.let(m.sub(e, m.select(small, m.f(float(lift)), m.f(0.0))), "e")
    mant = m.from_bits(E.Add(m.bit_and(t, m.i((1 << m.mantissa) - 1)), m.i(root_bits)))
    return e, m.let(m.sub(mant, m.f(1.0)), "f")


def _log_tail(m: M, f: E.Expr) -> tuple[E.Expr, E.Expr]:
    """ln(1 + f) = f - (g*f - t): g = f/2 and t, which is of the third order."""
    s = m.let(m.div(f, m.add(f, m.f(2.0))), "s")
    z = m.let(m.mul(s, s), "z")
    g = m.let(m.mul(f, m.f(0.5)), "g")
    return g, m.mul(s, m.mad(z, m.poly(m.table("LOG"), z), m.mul(g, f)))


def _log_special(m: M, x: E.Expr, y: E.Expr) -> E.Expr:
    y = m.select(E.EQ(x, m.inf), m.inf, y)
    outside = m.select(E.EQ(x, m.f(0.0)), m.neg(m.inf), m.nan)
    return m.select(E.GT(x, m.f(0.0)), y, outside)


def _log_finite(m: M, x: E.Expr, correction: E.Expr | None = None) -> E.Expr:
    is_direct = _is_direct(m)
    e, f = log_parts(m, x, is_direct)
    if is_direct:
        return _direct(m, e, f)
    g, t = _log_tail(m, f)
    # Fused, e*ln2 loses nothing to rounding, and ln2 as a float32 happens to be right to 28 bits: 0.1 ulp of the smallest result with e != 0.
    whole = m.fused and m.is_f32
    low = t if whole else m.mad(e, m.const("LN2", 1), t)
    if correction is not None:
        low = m.add(low, correction)
    return m.mad(e, m.const("LN2_FULL" if whole else "LN2"), m.add(f, m.mad(m.neg(g), f, low)))


def log(m: M, x: E.Expr) -> E.Expr:
    return _log_special(m, x, _log_finite(m, x))


def log2(m: M, x: E.Expr) -> E.Expr:
    e, f = log_parts(m, x)
    g, t = _log_tail(m, f)
    # f is exact and ln(1+f) - f is small: log2(e) is split so that the large product loses nothing.
    low = m.let(m.mad(m.neg(g), f, t), "low")
    y = m.mad(low, m.const("LOG2E"), m.mul(m.add(f, low), m.const("LOG2E", 1)))
    return _log_special(m, x, m.add(e, m.mad(f, m.const("LOG2E"), y)))


def log10(m: M, x: E.Expr) -> E.Expr:
    e, f = log_parts(m, x)
    g, t = _log_tail(m, f)
    low = m.let(m.mad(m.neg(g), f, t), "low")
    y = m.mad(low, m.const("LOG10E"), m.mul(m.add(f, low), m.const("LOG10E", 1)))
    y = m.mad(e, m.const("LOG10_2", 1), y)
    return _log_special(m, x, m.mad(e, m.const("LOG10_2"), m.mad(f, m.const("LOG10E"), y)))


def _log1p_finite(m: M, x: E.Expr) -> E.Expr:
    """ln(1 + x): with 2**e near 1 + x, f = x * 2**-e + (2**-e - 1), which is rounded for e = 1 alone, where the first is the smaller. Powers go by the exponent's bits."""
    u = m.let(m.add(x, m.f(1.0)), "u")
    e = m.let(m.bit_and(E.Sub(m.to_bits(u), m.i(_DIRECT_BITS)), m.i(-1 << m.mantissa)), "e")
    scaled = m.let(m.from_bits(E.Sub(m.to_bits(x), e)), "scaled")
    power = m.from_bits(E.Sub(m.i(_FOUR_BITS), e))  # 4 * 2**-e, which is normal where 2**-e is not
    start = m.let(m.mad(m.f(0.25), power, m.f(-1.0)), "start")
    f = m.let(m.add(scaled, start), "f")
    return _direct(m, m.float_of(m.shr(e, m.mantissa)), f, m.sub(scaled, m.sub(f, start)))


def log1p(m: M, x: E.Expr) -> E.Expr:
    if _is_direct(m):
        return _log1p_special(m, x, _log1p_finite(m, x))
    u = m.let(m.add(x, m.f(1.0)), "u")
    lost = m.select(E.GE(x, m.f(1.0)), m.sub(m.f(1.0), m.sub(u, x)), m.sub(x, m.sub(u, m.f(1.0))))
    return _log1p_special(m, x, _log_finite(m, u, m.div(lost, u)))


def _log1p_special(m: M, x: E.Expr, y: E.Expr) -> E.Expr:
    y = m.select(E.EQ(x, m.inf), m.inf, y)
    y = m.select(E.GT(x, m.f(-1.0)), y, m.select(E.EQ(x, m.f(-1.0)), m.neg(m.inf), m.nan))
    return m.select(E.EQ(x, m.f(0.0)), x, y)
