"""sin, cos and tan, with argument reduction for every finite angle.

Angles up to 2**17 (2**28 in float64) are reduced by pi/2 held in three parts: with fused multiply-adds the first
subtraction is exact, as pi/2's first part has one bit less than the format. Larger ones go through integers (Payne and
Hanek 1983): only the bits of 2/pi that matter for the angle's exponent are multiplied with its significand. A
vector takes that path where one of its lanes needs it, a scalar of a GPU behind a branch; a scalar of a CPU computes
both and selects, so that loops of scalars vectorize.
"""

from __future__ import annotations

from collections.abc import Callable

from .. import expr as E
from ..dtype import with_lanes
from .math_builder import MathBuilder as M
from .math_tables import TWO_OVER_PI_WORDS


def _reduce(m: M, x: E.Expr) -> tuple[E.Expr, E.Expr]:
    """(r, q): x = r + q*pi/2 with |r| <= pi/4 (a little over), q an integer modulo 4 in the low bits."""
    near_r, near_q = _reduce_near(m, x)
    far_r, far_q = _reduce_far(m, x)
    near = m.let(_is_near(m, x), "near")
    return m.let(m.select(near, near_r, far_r), "r"), m.let(m.select(near, near_q, far_q), "q")


def _is_near(m: M, x: E.Expr) -> E.Expr:
    return E.LT(m.abs(x), m.f(2.0**17 if m.is_f32 else 2.0**28))


def _reduce_near(m: M, x: E.Expr) -> tuple[E.Expr, E.Expr]:
    n = m.let(m.nearest(m.mul(x, m.const("TWO_OVER_PI"))), "n")
    r = x
    for part in m.table("PIO2")[:3]:
        r = m.fma(n, m.f(-part), r)
    return r, m.small_int(n)


def _reduce_far(m: M, x: E.Expr) -> tuple[E.Expr, E.Expr]:
    r, q = _payne_hanek_f32(m, x) if m.is_f32 else _payne_hanek_f64(m, x)
    return m.select(E.LT(m.abs(x), m.inf), r, m.nan), q


def _branched(m: M, x: E.Expr, rest: Callable[[M, E.Expr, E.Expr], E.Expr]) -> E.Expr:
    """`rest(m, r, q)` of the reduction of x."""
    if m.lanes == 1 and not m.scalar_branches:
        return rest(m, *_reduce(m, x))
    sides = []
    for reduce in (_reduce_near, _reduce_far):
        own = m.fresh()
        r, q = reduce(own, x)
        sides.append(own.finish(rest(own, own.let(r, "r"), own.let(q, "q"))))
    near = _is_near(m, x)
    if m.lanes == 1:
        return m.call("if_then_else", near, *sides, dtype=m.dtype)
    return E.Select(E.Call("likely", (near,), near.dtype), sides[0], sides[1])


def _pick(m: M, words: list[int], index: E.Expr, hi: int, ahead: int) -> E.Expr:
    """words[index + ahead] for an index in [0, hi], by selection."""

    def word(k: int) -> E.Expr:
        return m.i(words[k + ahead] if k + ahead < len(words) else 0, "uint64")

    result = word(hi)
    for k in range(hi - 1, -1, -1):
        result = E.Select(E.LE(index, m.i(k)), word(k), result)
    return m.let(result, f"w{ahead}")


def _payne_hanek_f32(m: M, x: E.Expr) -> tuple[E.Expr, E.Expr]:
    wide = with_lanes("uint64", m.lanes)
    bits = m.let(m.to_bits(m.abs(x)), "bits")
    # x = mant * 2**s; bits of 2/pi of weight 2**-j with j <= s - 2 give multiples of 4.
    mant = m.call("bitor", m.bit_and(bits, m.i(0x7FFFFF)), m.i(0x800000))
    mant = m.let(E.Cast(wide, mant), "mant")
    skip = m.let(E.Sub(m.shr(bits, 23), m.i(150 + 2 - 32)), "skip")  # one zero word stands in front
    index = m.let(m.shr(skip, 5), "index")
    offset = m.let(E.Cast(wide, m.bit_and(skip, m.i(31))), "offset")
    words = [0, *TWO_OVER_PI_WORDS]
    w = [_pick(m, words, index, 4, k) for k in range(4)]

    def window(k: int) -> E.Expr:
        pair = m.call("bitor", m.shl(w[k], 32), w[k + 1])
        return m.shr(m.call("shl", pair, offset), 32)

    p = m.shl(E.Mul(mant, window(0)), 32)
    p = E.Add(p, E.Mul(mant, window(1)))
    p = m.let(E.Add(p, m.shr(E.Mul(mant, window(2)), 32)), "p")
    # The top two bits, rounded, are the quadrant; the rest is a signed fraction of it.
    q = m.let(m.shr(E.Add(p, m.i(1 << 61, "uint64")), 62), "qw")
    frac = m.call("reinterpret", E.Sub(p, m.shl(q, 62)), dtype=with_lanes("int64", m.lanes))
    r = m.mul(E.Cast(m.dtype, frac), m.f(float.fromhex("0x1.921fb6p-62")))
    return _signed(m, x, m.let(r, "far"), E.Cast(m.int_dtype, q))


def _signed(m: M, x: E.Expr, r: E.Expr, q: E.Expr) -> tuple[E.Expr, E.Expr]:
    """The reduction of x from that of |x|."""
    negative = m.let(E.LT(x, m.f(0.0)), "negative")
    q = m.let(q, "q")
    return m.select(negative, m.neg(r), r), m.select(negative, E.Sub(m.i(0), q), q)


def _payne_hanek_f64(m: M, x: E.Expr) -> tuple[E.Expr, E.Expr]:
    wide = with_lanes("uint64", m.lanes)
    bits = m.let(m.to_bits(m.abs(x)), "bits")
    mant = m.call("bitor", m.bit_and(bits, m.i((1 << 52) - 1)), m.i(1 << 52))
    mant = m.let(E.Cast(wide, mant), "mant")
    skip = m.let(E.Sub(m.shr(bits, 52), m.i(1075 + 2 - 64)), "skip")
    index = m.let(m.shr(skip, 6), "index")
    offset = m.let(E.Cast(wide, m.bit_and(skip, m.i(63))), "offset")
    pairs = [(a << 32) | b for a, b in zip(TWO_OVER_PI_WORDS[::2], TWO_OVER_PI_WORDS[1::2])]
    words = [0, *pairs]
    w = [_pick(m, words, index, 16, k) for k in range(4)]

    def window(k: int) -> E.Expr:
        # offset may be 0: the shift of the lower word is done in two steps, each below 64.
        low = m.call("shr", m.shr(w[k + 1], 1), E.Sub(m.i(63, "uint64"), offset))
        return m.let(m.call("bitor", m.call("shl", w[k], offset), low), f"g{k}")

    g = [window(0), window(1), window(2)]
    low_a = m.let(E.Mul(mant, g[1]), "low")
    low = m.let(E.Add(low_a, m.call("mulhi", mant, g[2])), "low")
    carry = m.select(E.LT(low, low_a), m.i(1, "uint64"), m.i(0, "uint64"))
    high = m.let(E.Add(E.Add(E.Mul(mant, g[0]), m.call("mulhi", mant, g[1])), carry), "high")
    q = m.let(m.shr(E.Add(high, m.i(1 << 61, "uint64")), 62), "qw")
    signed = with_lanes("int64", m.lanes)
    top = m.let(m.call("reinterpret", E.Sub(high, m.shl(q, 62)), dtype=signed), "top")
    # top + low/2**64, two's complement: first the 128-bit magnitude, then its leading 64 bits, so that nothing is lost.
    below = m.let(E.LT(top, m.i(0)), "below")
    utop = m.call("reinterpret", top, dtype=wide)
    borrow = m.select(E.EQ(low, m.i(0, "uint64")), m.i(1, "uint64"), m.i(0, "uint64"))
    hi = m.let(m.select(below, E.Add(m.call("bitnot", utop), borrow), utop), "hi")
    lo = m.let(m.select(below, E.Sub(m.i(0, "uint64"), low), low), "lo")
    value = m.let(m.mad(E.Cast(m.dtype, lo), m.f(2.0**-64), E.Cast(m.dtype, hi)), "value")
    fraction = m.let(m.mul(value, m.f(2.0**-62)), "fraction")
    r = m.mad(fraction, m.const("PIO2_SPLIT"), m.mul(fraction, m.const("PIO2_SPLIT", 1)))
    r = m.let(m.select(below, m.neg(r), r), "far")
    return _signed(m, x, r, E.Cast(m.int_dtype, q))


def _sin_cos(m: M, r: E.Expr) -> tuple[E.Expr, E.Expr]:
    z = m.let(m.mul(r, r), "z")
    s = m.mad(m.mul(r, z), m.poly(m.table("SIN"), z), r)
    h = m.let(m.mul(z, m.f(0.5)), "h")
    w = m.let(m.sub(m.f(1.0), h), "w")
    lost = m.sub(m.sub(m.f(1.0), w), h)  # the rounding of 1 - z/2
    c = m.add(w, m.mad(m.mul(z, z), m.poly(m.table("COS"), z), lost))
    return m.let(s, "s"), m.let(c, "c")


def _turned(m: M, x: E.Expr, turn: int) -> E.Expr:
    """sin(x + turn*pi/2)."""

    def rest(m: M, r: E.Expr, q: E.Expr) -> E.Expr:
        if turn:
            q = m.let(E.Add(q, m.i(turn)), "q")
        s, c = _sin_cos(m, r)
        odd = E.NE(m.bit_and(q, m.i(1)), m.i(0))
        y = m.let(m.select(odd, c, s), "y")
        minus = E.NE(m.bit_and(q, m.i(2)), m.i(0))
        return m.select(minus, m.neg(y), y)

    return _branched(m, x, rest)


def sin(m: M, x: E.Expr) -> E.Expr:
    return m.select(E.EQ(x, m.f(0.0)), x, _turned(m, x, 0))


def cos(m: M, x: E.Expr) -> E.Expr:
    return _turned(m, x, 1)


def tan(m: M, x: E.Expr) -> E.Expr:
    def rest(m: M, r: E.Expr, q: E.Expr) -> E.Expr:
        s, c = _sin_cos(m, r)
        odd = m.let(E.NE(m.bit_and(q, m.i(1)), m.i(0)), "odd")
        return m.div(m.select(odd, m.neg(c), s), m.select(odd, s, c))

    return m.select(E.EQ(x, m.f(0.0)), x, _branched(m, x, rest))
