"""Division of floats that floors, as NumPy has it (`npy_divmod`), for float32 and float64.

The remainder comes first and is exact (C's fmod); the quotient is found from it, so that one that was rounded up to a whole number is not
taken. By 0, and with infinities and NaN, both give what NumPy gives.
"""

from __future__ import annotations

from .. import expr as E
from .math_builder import MathBuilder as M


def _remainder(m: M, x: E.Expr, y: E.Expr) -> tuple[E.Expr, E.Expr]:
    """(the remainder with the sign of x, whether that is not 0 and the sign of y is the other)."""
    r = m.let(m.call("fmod", x, y), "r")
    zero = m.f(0.0)
    return r, m.let(E.Or(E.And(E.LT(y, zero), E.GT(r, zero)), E.And(E.GT(y, zero), E.LT(r, zero))), "off")


def floor_remainder(m: M, x: E.Expr, y: E.Expr) -> E.Expr:
    """x - floor(x / y) * y, exact but for the one addition of y."""
    r, off = _remainder(m, x, y)
    return m.select(E.EQ(r, m.f(0.0)), m.copysign(m.f(0.0), y), m.select(off, m.add(r, y), r))


def floor_divide(m: M, x: E.Expr, y: E.Expr) -> E.Expr:
    """floor(x / y)."""
    r, off = _remainder(m, x, y)
    q = m.let(m.div(m.sub(x, r), y), "q")
    q = m.let(m.select(off, m.sub(q, m.f(1.0)), q), "q")
    whole = m.let(m.call("floor", q), "whole")
    whole = m.select(E.GT(m.sub(q, whole), m.f(0.5)), m.add(whole, m.f(1.0)), whole)
    plain = m.let(m.div(x, y), "plain")
    found = m.select(E.EQ(q, m.f(0.0)), m.copysign(m.f(0.0), plain), whole)
    return m.select(E.EQ(y, m.f(0.0)), plain, found)
