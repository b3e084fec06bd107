"""Elementary functions as branch-free expressions, for float32 and float64 alike.

Each function takes a `MathBuilder` and arguments that may be used several times (variables or constants) and returns an
expression. Methods: argument reduction by a table of high and low constants with fused multiply-adds (Cody and Waite;
for huge angles Payne and Hanek), then minimax polynomials (`tools/derive_math.py`), then scaling through the exponent
field. Error bounds, measured against float64 or 60-digit arithmetic, stand in tests/unit/passes/test_lower_math.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from .. import expr as E
from .math_builder import MathBuilder as M
from .math_division import floor_divide, floor_remainder
from .math_logarithms import log, log1p, log2, log10, log_parts
from .math_trig import cos, sin, tan

LOG2_E = math.log2(math.e)
_ERFC_IS_ZERO = 8.0  # where the polynomial of `erf_beside` makes 2**-274 of it

# ---- exponentials


def _exp_reduced(m: M, r: E.Expr) -> E.Expr:
    """e**r for |r| <= ln2/2."""
    r = m.let(r, "r")
    p = m.poly(m.table("EXP"), r)
    return m.add(m.mad(p, m.mul(r, r), r), m.f(1.0))


def _exp_steps(m: M, x: E.Expr) -> tuple[E.Expr, E.Expr]:
    """x = n*ln2 + r."""
    n = m.let(m.nearest(m.mul(x, m.const("LOG2E"))), "n")
    r = m.mad(n, m.f(-m.table("LN2")[0]), x)
    return n, m.let(m.mad(n, m.f(-m.table("LN2")[1]), r), "r")


def _exp_limits(m: M) -> tuple[float, float]:
    return (-104.5, 89.0) if m.is_f32 else (-746.0, 710.0)


_NO_POWER = -87.9  # the exponent of 2 nearest to that of e**x is then -127, which has no normal number
_FAR_POWER = 252  # of 2: beyond all float32, and twice what one multiplication scales by


def _by_unit(m: M, shifted: E.Expr, rest: Callable[[E.Expr], E.Expr], halvings: int = 0) -> E.Expr:
    """A power by the chip's own instruction, from n, the nearest integer to its exponent of 2, which stands in the low bits of `shifted` (a sum with `m.magic`).
    Of `rest(-n)`, from -1/2 to 1/2, v_exp_f32 is right to a unit in the last place ("1ULP accuracy", AMD's ISA manuals, V_EXP_F32), ex2.approx to 2**-22
    (PTX ISA, ex2; exp is within 2.04 ulp by it, every third float on an H200). v_ldexp_f32 rounds results below the normal numbers once, and so do two multiplications by powers of 2. n is kept where it scales: what is
    beyond has a rest so far off that the unit gives infinity or 0 itself, and NaN goes through it. (Positive floats are in order as integers, which one
    v_med3_i32 keeps within limits, NaN too.)"""
    low, high = (m.magic_bits + side * _FAR_POWER for side in (-1, 1))
    bits = m.let(E.Max(E.Min(m.to_bits(shifted), m.i(high)), m.i(low)), "bits")
    y = m.call("exp2_fast", rest(m.let(m.sub(m.f(m.magic), m.from_bits(bits)), "n")))
    power = E.Sub(bits, m.i(m.magic_bits + halvings))
    return m.call("ldexp", y, power) if m.has_ldexp else m.shifted(y, power)


def exp(m: M, x: E.Expr, halvings: int = 0) -> E.Expr:
    """e**x / 2**halvings."""
    if m.has_exp2:
        # log2(e) in two pieces: of the first alone, x up to 104 would lose 12 units in the last place.
        high, low = m.const("LOG2E"), m.const("LOG2E", 1)
        return _by_unit(m, m.fma(x, high, m.f(m.magic)), lambda back: m.fma(x, low, m.fma(x, high, back)), halvings)
    lo, hi = _exp_limits(m)
    x = m.clamp(x, lo, hi + halvings)
    if m.is_f32:
        return _exp32(m, x, halvings)
    n, r = _exp_steps(m, x)
    if halvings:
        n = m.sub(n, m.f(float(halvings)))
    return m.scale(_exp_reduced(m, r), n)


def _exp32(m: M, x: E.Expr, halvings: int) -> E.Expr:
    """The same of float32 within its limits. n stands in the low bits of a sum with a large constant, twice the exponent's bias with it: of its two halves each has the bias once, so
    that a shift makes a power of two of each, and what is above the exponent falls out."""
    biased = m.f(m.magic + 2 * m.bias)
    shifted = m.let(m.mad(x, m.const("LOG2E"), biased), "shifted")
    n = m.let(m.sub(shifted, biased), "n")
    r = m.mad(n, m.f(-m.table("LN2")[1]), m.mad(n, m.f(-m.table("LN2")[0]), x))
    bits = m.let(E.Sub(m.to_bits(shifted), m.i(halvings)) if halvings else m.to_bits(shifted), "bits")
    half = m.let(m.shr(bits, 1), "half")
    powers = [m.from_bits(m.shl(part, m.mantissa)) for part in (half, E.Sub(bits, half))]
    return m.mul(m.mul(_exp_reduced(m, r), powers[0]), powers[1])


def exp_below(m: M, x: E.Expr) -> E.Expr:
    """e**x of x up to 0. float32 on a CPU: no power of 2 above the first has to be scaled by, and where it is below the normal numbers its exponent's bits are 0, which make 0 of the
    result: one multiply-add scales and adds the polynomial's 1. NaN stays."""
    if not m.is_f32:
        return exp(m, x)
    # Below it the nearest exponent of 2 is -127.
    x = m.let(m.select(E.LT(x, m.f(_NO_POWER)), m.f(_NO_POWER), x))
    biased = m.f(m.magic + m.bias)
    shifted = m.let(m.mad(x, m.const("LOG2E"), biased), "shifted")
    n = m.let(m.sub(shifted, biased), "n")
    r = m.let(m.mad(n, m.f(-m.table("LN2")[1]), m.mad(n, m.f(-m.table("LN2")[0]), x)), "r")
    power = m.let(m.from_bits(m.shl(m.to_bits(shifted), m.mantissa)), "power")
    return m.mad(m.mad(m.poly(m.table("EXP"), r), m.mul(r, r), r), power, power)


def _exp2_below(m: M, y: E.Expr) -> E.Expr:
    """2**y of float32, y up to 0: by the unit of a GPU; on a CPU as `exp_below`, with the polynomial's powers of ln2 in its constants. NaN stays."""
    if m.target.is_gpu:
        return E.Call("exp2_fast", (y,), y.dtype)
    y = m.let(m.select(E.LT(y, m.f(-127.0)), m.f(-127.0), y), "y")
    biased = m.f(m.magic + m.bias)
    shifted = m.let(m.add(y, biased), "shifted")
    r = m.let(m.sub(y, m.sub(shifted, biased)), "r")
    power = m.let(m.from_bits(m.shl(m.to_bits(shifted), m.mantissa)), "power")
    p = m.poly([c / LOG2_E ** (k + 1) for k, c in enumerate((1.0, *m.table("EXP")))], r)
    return m.mad(m.mul(p, r), power, power)


def exp2(m: M, x: E.Expr) -> E.Expr:
    if m.has_exp2:
        return _by_unit(m, m.add(x, m.f(m.magic)), lambda back: m.add(x, back))
    x = m.clamp(x, *((-151.0, 129.0) if m.is_f32 else (-1076.0, 1025.0)))
    n = m.let(m.nearest(x), "n")
    return m.scale(_exp_reduced(m, m.mul(m.sub(x, n), m.const("LN2_FULL"))), n)


def exp10(m: M, x: E.Expr) -> E.Expr:
    x = m.clamp(x, *((-46.0, 39.0) if m.is_f32 else (-324.5, 309.0)))
    n = m.let(m.nearest(m.mul(x, m.const("LOG2_10"))), "n")
    r = m.mad(n, m.f(-m.table("LOG10_2")[0]), x)
    r = m.let(m.mad(n, m.f(-m.table("LOG10_2")[1]), r), "r")
    return m.scale(_exp_reduced(m, m.mad(r, m.const("LN10"), m.mul(r, m.const("LN10", 1)))), n)


def expm1(m: M, x: E.Expr) -> E.Expr:
    lo, hi = (-18.0, 88.9) if m.is_f32 else (-40.0, 709.9)
    n, r = _exp_steps(m, m.clamp(x, lo, hi))
    p = m.let(m.mad(m.poly(m.table("EXP"), r), m.mul(r, r), r), "p")
    half = m.let(m.power_of_two(m.sub(m.small_int(n), m.i(1))), "h")  # 2**(n-1): 2**n would overflow too soon
    y = m.let(m.add(m.mul(half, p), m.sub(half, m.f(0.5))), "y")
    return m.select(E.EQ(x, m.f(0.0)), x, m.add(y, y))


def tanh(m: M, x: E.Expr) -> E.Expr:
    a = m.let(m.abs(x), "a")
    if m.is_f32:
        return m.copysign(_tanh32(m, a), x)
    b = m.let(m.clamp(a, 0.0, 20.0), "b")
    n, r = _exp_steps(m, m.let(m.add(b, b), "b2"))
    # With t = e**(2a) - 1, tanh is t / (t + 2). For small a is n = 0 and t the polynomial alone: nothing cancels.
    p = m.mad(m.poly(m.table("EXP"), r), m.mul(r, r), r)
    s = m.let(m.power_of_two(m.small_int(n)), "s")
    t = m.let(m.mad(s, p, m.sub(s, m.f(1.0))), "t")
    d = m.let(m.add(t, m.f(2.0)), "d")
    return m.copysign(_divide(m, t, d, m.sub(t, m.sub(d, m.f(2.0)))), x)


def _tanh32(m: M, a: E.Expr) -> E.Expr:
    """tanh of a >= 0, in as few operations as its accuracy takes. With 2a = n ln2 + 2r and s = 2**(n-1), h = (e**(2a) - 1) / 2 is
    s P(r) + (s - 1/2), where P(r) = e**(2r) - 1, and tanh is h / (h + 1): for small a is n = 0 and nothing cancels. n stands in the low bits of a sum
    with a large constant, the exponent's bias with it, from where one shift makes the power of two. (ln2 in one piece: its error times n,
    at most 28, is weighed down by the slope of tanh: 0.03 ulp at most.)"""
    b = m.let(m.select(E.GT(a, m.f(9.5)), m.f(9.5), a), "b")  # NaN stays
    biased = m.f(m.magic + m.bias - 1)
    shifted = m.let(m.mad(b, m.const("TWO_LOG2E"), biased), "shifted")
    s = m.let(m.from_bits(m.shl(m.to_bits(shifted), m.mantissa)), "s")
    r = m.let(m.mad(m.sub(shifted, biased), m.f(-0.5 * m.table("LN2_FULL")[0]), b), "r")
    q = m.poly([c * 2.0 ** (k + 2) for k, c in enumerate(m.table("EXP"))], r)
    p = m.mad(q, m.mul(r, r), m.add(r, r))
    h = m.let(m.mad(s, p, m.sub(s, m.f(0.5))), "h")
    inv = m.let(m.inverse(m.add(h, m.f(1.0))), "inv")
    q = m.let(m.mul(h, inv), "q")
    # What is left of h - q (h + 1), whatever h + 1 lost: h - q is exact for h up to 1, where h is no more than 2 q; beyond, what it is rounded by
    # becomes an ulp of the result at most, where errors of h count little.
    return m.mad(m.fma(m.neg(q), h, m.sub(h, q)), inv, q)


def _divide(m: M, num: E.Expr, d: E.Expr, lost: E.Expr) -> E.Expr:
    """num / (d + lost), where d was rounded by `lost`: one Newton step takes back the roundings of d and of the division,
    and squares the error of an inverse that is only near."""
    inv = m.let(m.inverse(d), "inv")
    q = m.let(m.mul(num, inv), "q")
    return m.mad(m.mad(m.neg(q), lost, m.fma(m.neg(q), d, num)), inv, q)


def sigmoid(m: M, x: E.Expr) -> E.Expr:
    e = m.let(exp(m, m.let(m.neg(m.abs(x)), "a")), "e")
    d = m.let(m.add(e, m.f(1.0)), "d")
    lost = m.sub(e, m.sub(d, m.f(1.0)))
    num = m.let(m.select(E.GE(x, m.f(0.0)), m.f(1.0), e), "num")
    return _divide(m, num, d, lost)


def _exp_of_half(m: M, x: E.Expr, sign: float = 1.0) -> E.Expr:
    """e**(sign * x) of a float16 in float32, by the chip's own power of 2: the product that is its argument is rounded by 2**-24 of at most 25 where the result is a float16
    above 0 and below infinity, so that the result is within 2**-19."""
    return m.call("exp2_fast", m.mul(x, m.f(sign * LOG2_E)))


def _sigmoid_of_half(m: M, x: E.Expr) -> E.Expr:
    """Both infinities come out by themselves: 1 / (1 + inf) and 1 / (1 + 0)."""
    return m.inverse(m.add(_exp_of_half(m, x, -1.0), m.f(1.0)))


def sinh(m: M, x: E.Expr) -> E.Expr:
    a = m.let(m.abs(x), "a")
    h = m.let(exp(m, a, halvings=1), "h")
    large = m.sub(h, m.div(m.f(0.25), h))
    z = m.let(m.mul(a, a), "z")
    small = m.mad(m.mul(a, z), m.poly(m.table("SINH"), z), a)
    return m.copysign(m.select(E.LT(a, m.f(1.0)), small, large), x)


def cosh(m: M, x: E.Expr) -> E.Expr:
    h = m.let(exp(m, m.let(m.abs(x), "a"), halvings=1), "h")
    return m.add(h, m.div(m.f(0.25), h))


# ---- inverse hyperbolic functions


def asinh(m: M, x: E.Expr) -> E.Expr:
    a = m.let(m.abs(x), "a")
    huge = m.let(E.GT(a, m.f(2.0**28 if m.is_f32 else 2.0**60)), "huge")
    b = m.let(m.select(huge, m.f(1.0), a), "b")
    q = m.let(m.mul(b, b), "q")
    grown = m.add(b, m.div(q, m.add(m.sqrt(m.add(q, m.f(1.0))), m.f(1.0))))
    y = log1p(m, m.let(m.select(huge, a, grown), "g"))
    return m.copysign(m.add(y, m.select(huge, m.const("LN2_FULL"), m.f(0.0))), x)


def acosh(m: M, x: E.Expr) -> E.Expr:
    huge = m.let(E.GT(x, m.f(2.0**28 if m.is_f32 else 2.0**60)), "huge")
    t = m.let(m.sub(m.select(huge, m.f(2.0), x), m.f(1.0)), "t")
    grown = m.add(t, m.sqrt(m.mad(t, t, m.add(t, t))))
    y = log1p(m, m.let(m.select(huge, x, grown), "g"))
    y = m.add(y, m.select(huge, m.const("LN2_FULL"), m.f(0.0)))
    return m.select(E.LT(x, m.f(1.0)), m.nan, y)


def atanh(m: M, x: E.Expr) -> E.Expr:
    a = m.let(m.abs(x), "a")
    g = m.let(m.div(m.add(a, a), m.sub(m.f(1.0), a)), "g")
    return m.copysign(m.mul(log1p(m, g), m.f(0.5)), x)


# ---- inverse trigonometric functions


def _asin_core(m: M, a: E.Expr) -> tuple[E.Expr, E.Expr]:
    """(whether a > 1/2, asin(a) for a <= 1/2 else asin(sqrt((1-a)/2)))."""
    big = m.let(E.GT(a, m.f(0.5)), "big")
    z = m.let(m.select(big, m.mul(m.sub(m.f(1.0), a), m.f(0.5)), m.mul(a, a)), "z")
    s = m.let(m.select(big, m.sqrt(z), a), "s")
    return big, m.let(m.mad(m.mul(s, z), m.poly(m.table("ASIN"), z), s), "p")


def asin(m: M, x: E.Expr) -> E.Expr:
    big, p = _asin_core(m, m.let(m.abs(x), "a"))
    far = m.sub(m.const("PIO2_SPLIT"), m.sub(m.add(p, p), m.const("PIO2_SPLIT", 1)))
    return m.copysign(m.select(big, far, p), x)


def acos(m: M, x: E.Expr) -> E.Expr:
    big, p = _asin_core(m, m.let(m.abs(x), "a"))
    p2 = m.let(m.add(p, p), "p2")
    left = m.sub(m.const("PI"), m.sub(p2, m.const("PI", 1)))
    far = m.select(E.GT(x, m.f(0.0)), p2, left)
    near = m.sub(m.const("PIO2_SPLIT"), m.sub(m.copysign(p, x), m.const("PIO2_SPLIT", 1)))
    return m.select(big, far, near)


def _atan_ratio(m: M, y: E.Expr, x: E.Expr) -> E.Expr:
    """atan(y/x) for y, x >= 0, not both 0 or infinite."""
    steep = m.let(E.GT(y, m.mul(x, m.f(2.414213562373095))), "steep")
    middle = m.let(E.GT(y, m.mul(x, m.f(0.4142135623730951))), "middle")
    num = m.select(steep, m.neg(x), m.select(middle, m.sub(y, x), y))
    den = m.select(steep, y, m.select(middle, m.add(y, x), x))
    t = m.let(m.div(num, den), "t")
    high = m.select(steep, m.const("PIO2_SPLIT"), m.select(middle, m.const("PIO4"), m.f(0.0)))
    low = m.select(steep, m.const("PIO2_SPLIT", 1), m.select(middle, m.const("PIO4", 1), m.f(0.0)))
    z = m.let(m.mul(t, t), "z")
    return m.add(high, m.add(t, m.mad(m.mul(t, z), m.poly(m.table("ATAN"), z), low)))


def atan(m: M, x: E.Expr) -> E.Expr:
    return m.copysign(_atan_ratio(m, m.let(m.abs(x), "a"), m.f(1.0)), x)


def atan2(m: M, y: E.Expr, x: E.Expr) -> E.Expr:
    ay, ax = m.let(m.abs(y), "ay"), m.let(m.abs(x), "ax")
    both_inf = m.let(E.And(E.EQ(ay, m.inf), E.EQ(ax, m.inf)), "both")
    big = m.let(m.select(E.GT(ay, ax), ay, ax), "big")
    top, low = (2.0**120, 2.0**-90) if m.is_f32 else (2.0**1000, 2.0**-900)
    up = m.f(2.0**50 if m.is_f32 else 2.0**110)
    factor = m.let(m.select(E.GT(big, m.f(top)), m.f(2.0**-8), m.select(E.LT(big, m.f(low)), up, m.f(1.0))), "scale")
    ay = m.let(m.select(both_inf, m.f(1.0), m.mul(ay, factor)), "ay")
    ax = m.select(both_inf, m.f(1.0), m.mul(ax, factor))
    ax = m.let(m.select(E.EQ(big, m.f(0.0)), m.f(1.0), ax), "ax")
    r = m.let(_atan_ratio(m, ay, ax), "r")
    left = E.LT(m.to_bits(x), m.i(0))
    r = m.select(left, m.sub(m.const("PI"), m.sub(r, m.const("PI", 1))), r)
    return m.copysign(r, y)


# ---- others


def erf(m: M, x: E.Expr) -> E.Expr:
    a = m.let(m.abs(x), "a")
    z = m.let(m.mul(a, a), "z")
    small = m.mad(a, m.poly(m.table("ERF"), z), a)
    edge = m.const("ERF_EDGE")
    if m.is_f32:
        b = m.clamp(a, 0.0, 4.0)
        # A power of 2, whose error (of a GPU's unit 2**-22) is of at most 0.2 of the result.
        power = [c * -LOG2_E for c in m.table("ERF_TAIL")]
        tail = m.sub(m.f(1.0), m.let(_exp2_below(m, m.let(m.poly(power, b), "power")), "rest"))
        return m.copysign(m.select(E.LT(a, edge), small, tail), x)
    b = m.clamp(a, 0.0, 6.0)
    u = m.let(m.div(m.sub(b, m.f(2.0)), m.add(b, m.f(2.0))), "u")
    q = m.mad(b, b, m.poly(m.table("ERF_TAIL"), u))
    n, r = _exp_steps(m, m.let(m.neg(q), "q"))
    tail = m.sub(m.f(1.0), m.mul(_exp_reduced(m, r), m.power_of_two(m.small_int(n))))
    return m.copysign(m.select(E.LT(a, edge), small, tail), x)


def erf_beside(m: M, x: E.Expr) -> E.Expr:
    """erf in float32 to 2**-23 of 1, for sums with numbers that are no smaller than 1/2 (1 + erf, as GELU has it): the tail's form down to 0
    is exact enough there, on a GPU 13 instructions for 24."""
    b = m.clamp(m.let(m.abs(x), "a"), 0.0, 4.0)
    power = [c * -LOG2_E for c in m.table("ERF_BESIDE")]
    rest = m.let(_exp2_below(m, m.let(m.poly(power, b), "power")), "rest")
    part = m.let(m.sub(m.f(1.0), rest), "part")
    # Not copysign: of a widened half LLVM takes the sign out of 16 bits, in five instructions an element.
    return m.select(E.LT(x, m.f(0.0)), m.neg(part), part)


def times_one_plus_erf(m: M, x: E.Expr, weight: float, scale: float) -> E.Expr:
    """weight * x * (1 + erf(scale * x)), GELU's form, to 2**-23 of x: twice weight * max(x, 0) less weight * |x| * erfc(scale * |x|), without the choice by
    sign and with the constants in the polynomial's: on a GPU 12 instructions for 18. `erf_beside`'s polynomial falls on beyond its interval, to where erfc is 0."""
    a = m.let(m.abs(x), "a")
    far = m.f(_ERFC_IS_ZERO / scale)
    a = m.let(E.Select(E.GT(a, far), far, a), "a")
    power = [c * -LOG2_E * scale**k for k, c in enumerate(m.table("ERF_BESIDE"))]
    power[0] += math.log2(weight)
    rest = m.let(_exp2_below(m, m.let(m.poly(power, a), "power")), "rest")
    positive: E.Expr = E.Max(x, m.f(0.0))  # where NaN may lose, since the product keeps it
    if weight != 0.5:
        positive = m.mul(positive, m.f(2 * weight))
    return m.mad(m.neg(a), rest, positive)


def rsqrt(m: M, x: E.Expr) -> E.Expr:
    return m.div(m.f(1.0), m.sqrt(x))


def hypot(m: M, x: E.Expr, y: E.Expr) -> E.Expr:
    a, b = m.let(m.abs(x), "a"), m.let(m.abs(y), "b")
    big = m.let(m.select(E.GT(a, b), a, b), "big")
    far, by = (2.0**62, 2.0**70) if m.is_f32 else (2.0**510, 2.0**600)
    huge = m.let(E.GT(big, m.f(far)), "huge")
    tiny = m.let(E.LT(big, m.f(1 / far)), "tiny")
    down = m.let(m.select(huge, m.f(1 / by), m.select(tiny, m.f(by), m.f(1.0))), "down")
    back = m.select(huge, m.f(by), m.select(tiny, m.f(1 / by), m.f(1.0)))
    p, q = m.let(m.mul(a, down), "p"), m.let(m.mul(b, down), "q")
    y2 = m.mul(m.sqrt(m.mad(p, p, m.mul(q, q))), back)
    return m.select(E.Or(E.EQ(a, m.inf), E.EQ(b, m.inf)), m.inf, y2)


def pow_(m: M, x: E.Expr, y: E.Expr) -> E.Expr:
    """x**y with the sign and special values of C's pow. log2(x) is held in two numbers, twice the significand."""
    a = m.let(m.abs(x), "a")
    e, f = log_parts(m, a)
    gh = m.let(m.add(f, m.f(2.0)), "gh")
    gl = m.let(m.sub(f, m.sub(gh, m.f(2.0))), "gl")
    inv = m.let(m.div(m.f(1.0), gh), "inv")
    sh = m.let(m.mul(f, inv), "sh")
    rest = m.fma(m.neg(sh), gl, m.fma(m.neg(sh), gh, f))
    sl = m.let(m.mul(rest, inv), "sl")
    z = m.let(m.mul(sh, sh), "z")
    zl = m.let(m.add(m.fma(sh, sh, m.neg(z)), m.mul(m.mul(sh, sl), m.f(2.0))), "zl")
    c3 = m.table("POW_C3")
    t3 = m.let(m.mul(z, m.f(c3[0])), "t3")
    t3l = m.add(m.fma(z, m.f(c3[0]), m.neg(t3)), m.mad(zl, m.f(c3[0]), m.mul(z, m.f(c3[1]))))
    u, ul = m.two_sum(t3, m.let(m.mul(m.mul(z, z), m.poly(m.table("POW"), z)), "w"))
    kh, kl = m.two_sum(m.const("TWO_LOG2E"), u)
    kl = m.let(m.add(kl, m.add(m.add(ul, t3l), m.const("TWO_LOG2E", 1))), "kl")
    ph = m.let(m.mul(sh, kh), "ph")
    pl = m.let(m.add(m.fma(sh, kh, m.neg(ph)), m.mad(sh, kl, m.mul(sl, kh))), "pl")
    lh, ll = m.two_sum(e, ph)
    ll = m.let(m.add(ll, pl), "ll")
    # Renormalise, then y * (lh + ll).
    lh, ll = m.two_sum(lh, ll)
    qh = m.let(m.mul(y, lh), "qh")
    limit = 250.0 if m.is_f32 else 2040.0
    ql = m.let(m.add(m.fma(y, lh, m.neg(qh)), m.mul(y, ll)), "ql")
    outside = m.let(E.GT(m.abs(qh), m.f(limit)), "outside")
    qh = m.let(m.select(outside, m.copysign(m.f(limit), qh), qh), "qh")
    ql = m.select(outside, m.f(0.0), ql)
    n = m.let(m.nearest(qh), "n")
    r = m.add(m.sub(qh, n), ql)
    result = m.let(m.scale(_exp_reduced(m, m.mul(r, m.const("LN2_FULL"))), n), "result")
    # Special values, from the general to the particular.
    one, zero = m.f(1.0), m.f(0.0)
    whole = m.let(E.EQ(m.call("trunc", y), y), "whole")
    half = m.let(m.mul(y, m.f(0.5)), "half")
    odd = m.let(E.And(whole, E.NE(m.call("trunc", half), half)), "odd")
    rising = m.let(E.GT(y, zero), "rising")
    result = m.select(E.EQ(a, zero), m.select(rising, zero, m.inf), result)
    result = m.select(E.EQ(a, m.inf), m.select(rising, m.inf, zero), result)
    y_inf = E.EQ(m.abs(y), m.inf)
    result = m.select(E.And(E.EQ(a, one), y_inf), one, result)
    result = m.let(result, "result")
    result = m.select(odd, m.copysign(result, x), result)
    negative = E.And(E.LT(x, zero), E.Not(whole))
    finite = E.LT(a, m.inf)
    result = m.select(E.And(negative, finite), m.nan, result)
    is_nan = E.Or(E.NE(x, x), E.NE(y, y))
    result = m.select(is_nan, m.add(x, y), result)
    return m.select(E.Or(E.EQ(y, zero), E.EQ(x, one)), one, result)


FUNCTIONS: dict[str, Callable[..., E.Expr]] = {
    "exp": exp, "exp_below": exp_below, "exp2": exp2, "exp10": exp10, "expm1": expm1, "log": log, "log2": log2, "log10": log10, "log1p": log1p,
    "sin": sin, "cos": cos, "tan": tan, "asin": asin, "acos": acos, "atan": atan, "atan2": atan2, "sinh": sinh,
    "cosh": cosh, "tanh": tanh, "asinh": asinh, "acosh": acosh, "atanh": atanh, "sigmoid": sigmoid, "erf": erf,
    "rsqrt": rsqrt, "hypot": hypot, "pow": pow_, "floor_divide": floor_divide, "floor_remainder": floor_remainder,
}  # fmt: skip
# The same of a float16 in float32 on a GPU, to be rounded to float16: a quarter of the operations and less.
OF_HALFS: dict[str, Callable[[M, E.Expr], E.Expr]] = {"exp": _exp_of_half, "sigmoid": _sigmoid_of_half}
