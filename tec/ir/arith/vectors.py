"""Simplification of vectors: operations on ramps and broadcasts are done on their scalars where that is exact."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import expr as E
from ..visit import map_expr
from .bounds import INDEX_DTYPES

if TYPE_CHECKING:
    from .simplifier import Simplifier


def vector(f: Simplifier, t: Any, a: Any, b: Any) -> E.Expr | None:
    """Operations on ramps and broadcasts, done on their scalars."""
    ta, tb = type(a), type(b)
    if ta is E.Broadcast and tb is E.Broadcast and a.lanes == b.lanes:
        return f.intern(E.Broadcast(f.simp(f.make(t, a.value, b.value)), a.lanes))
    if t in E.TURNED and ta is E.Broadcast:
        return vector(f, E.TURNED[t], b, a)
    if t in E.TURNED and ta is E.FloorMod:
        return _digit_by_constant(f, t, a, b)
    if E.Ramp not in (ta, tb):
        return None
    if t is E.Add or t is E.Sub:
        base_a, step_a = (a.base, a.stride) if ta is E.Ramp else (a.value, None) if ta is E.Broadcast else (None, None)
        base_b, step_b = (b.base, b.stride) if tb is E.Ramp else (b.value, None) if tb is E.Broadcast else (None, None)
        if base_a is None or base_b is None:
            return None
        zero = f.number(0, base_a.dtype)
        base = f.simp(f.make(t, base_a, base_b))
        step = f.simp(f.make(t, step_a if step_a is not None else zero, step_b if step_b is not None else zero))
        lanes = a.lanes
        if type(step) is E.IntImm and step.value == 0:
            return f.intern(E.Broadcast(base, lanes))
        return f.intern(E.Ramp(base, step, lanes))
    if t is E.Mul and E.Broadcast in (ta, tb):
        r, s = (a, b.value) if ta is E.Ramp else (b, a.value)
        return f.intern(E.Ramp(f.simp(f.make(E.Mul, r.base, s)), f.simp(f.make(E.Mul, r.stride, s)), r.lanes))
    if (
        ta is E.Ramp
        and tb is E.Broadcast
        and type(b.value) is E.IntImm
        and type(a.stride) is E.IntImm
        and a.base.dtype in INDEX_DTYPES
    ):
        return _vector_by_constant(f, t, a, b)
    return None


def _vector_by_constant(f: Simplifier, t: Any, a: E.Ramp, b: E.Broadcast) -> E.Expr | None:
    """Ramp // c, Ramp % c and Ramp < c where all lanes agree on the quotient or the answer."""
    c, step, dtype = b.value.value, a.stride.value, a.base.dtype  # type: ignore[attr-defined]
    last = f.simp(f.make(E.Add, a.base, f.imm(step * (a.lanes - 1), dtype)))
    if t in (E.FloorDiv, E.FloorMod) and c > 0:
        first_q = f.simp(f.make(E.FloorDiv, a.base, b.value))
        if first_q is f.simp(f.make(E.FloorDiv, last, b.value)):
            if t is E.FloorDiv:
                return f.intern(E.Broadcast(first_q, a.lanes))
            return f.intern(E.Ramp(f.simp(f.make(E.FloorMod, a.base, b.value)), a.stride, a.lanes))
        if step % c == 0:
            if t is E.FloorDiv:
                return f.intern(E.Ramp(first_q, f.imm(step // c, dtype), a.lanes))
            return f.intern(E.Broadcast(f.simp(f.make(E.FloorMod, a.base, b.value)), a.lanes))
    if t in (E.LT, E.LE, E.GT, E.GE):
        x, y = f.simp(f.make(t, a.base, b.value)), f.simp(f.make(t, last, b.value))
        if x is y:  # a ramp goes one way: the lanes between agree as well
            return f.intern(E.Broadcast(x, a.lanes))
    return None


def _digit_by_constant(f: Simplifier, t: Any, a: Any, b: Any) -> E.Expr | None:
    """Ramp // c % m < k, which is Ramp % (c*m) < c*k, where all lanes agree on the answer; and the other comparisons."""
    parts = (a.b, getattr(a.a, "b", None), b)
    if type(a.a) is not E.FloorDiv or type(a.a.a) is not E.Ramp or t not in E.TURNED:
        return None
    if not all(type(p) is E.Broadcast and type(p.value) is E.IntImm and p.value.value > 0 for p in parts):
        return None
    m, c, k = (p.value.value for p in parts)  # type: ignore[union-attr]
    if t in (E.LE, E.GT):  # <= k is < k + 1
        t, k = (E.LT if t is E.LE else E.GE), k + 1
    dtype = a.a.a.base.dtype
    if dtype not in INDEX_DTYPES or c * max(m, k) >= 1 << 31:
        return None
    digits = f.simp(f.make(E.FloorMod, a.a.a, E.Broadcast(f.imm(c * m, dtype), b.lanes)))
    if type(digits) is not E.Ramp:
        return None
    found = f.simp(f.make(t, digits, E.Broadcast(f.imm(c * k, dtype), b.lanes)))
    return found if type(found) is E.Broadcast else None


def ramp(f: Simplifier, e: E.Ramp) -> E.Expr:
    base, step = f.simp(e.base), f.simp(e.stride)
    if type(step) is E.IntImm and step.value == 0:
        return f.intern(E.Broadcast(base, e.lanes))
    if e.lanes == 1:
        return base
    return f.intern(E.Ramp(base, step, e.lanes))


def shuffle(f: Simplifier, e: E.Shuffle) -> E.Expr:
    out: Any = f.intern(map_expr(e, f.simp))
    if len(out.vectors) == 1 and len(out.indices) == 1:
        v, i = out.vectors[0], out.indices[0]
        if type(v) is E.Broadcast:
            return v.value
        if type(v) is E.Ramp:
            return f.simp(f.make(E.Add, v.base, f.simp(f.make(E.Mul, v.stride, f.number(i, v.stride.dtype)))))
    return out  # type: ignore[no-any-return]
