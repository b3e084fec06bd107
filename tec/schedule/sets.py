"""Symbolic intervals: the values an index takes while some of its variables run.

In: an index expression and an Interval for each variable that runs; variables not listed stand still and may appear in
the result. Out: an Interval that covers every value; exact for sums of single uses, quotients and remainders by
constants, min and max. None as an end means unbounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..ir import build as B
from ..ir import expr as E
from ..ir.dtype import dtype_info
from .facts import Facts

End = E.Expr | None


class Interval(NamedTuple):
    """lo <= x <= hi, both ends included."""

    lo: End
    hi: End

    @property
    def is_point(self) -> bool:
        return self.lo is not None and self.lo is self.hi


EVERYTHING = Interval(None, None)
Env = Mapping[E.Var, Interval]


def point(e: E.Expr) -> Interval:
    return Interval(e, e)


def from_range(r: E.Range) -> Interval:
    """The interval of `min <= x < min + extent`."""
    return Interval(r.min, B.sub(B.add(r.min, r.extent), 1))


def union(a: Interval, b: Interval, facts: Facts) -> Interval:
    """The smallest interval known to hold both."""
    if a is b:
        return a
    lo = None if a.lo is None or b.lo is None else lower(a.lo, b.lo, facts)
    hi = None if a.hi is None or b.hi is None else upper(a.hi, b.hi, facts)
    return Interval(lo, hi)


def lower(a: E.Expr, b: E.Expr, facts: Facts) -> E.Expr:
    """min(a, b), as the one known to be the smaller where that is certain."""
    if facts.le(a, b):
        return a
    if facts.le(b, a):
        return b
    return facts.simplify(B.minimum(a, b))


def upper(a: E.Expr, b: E.Expr, facts: Facts) -> E.Expr:
    if facts.le(a, b):
        return b
    if facts.le(b, a):
        return a
    return facts.simplify(B.maximum(a, b))


class Evaluator:
    """Evaluates expressions to intervals under one environment; memoised on nodes."""

    def __init__(self, env: Env, facts: Facts):
        self.env = env
        self.facts = facts
        self._memo: dict[int, tuple[E.Expr, Interval]] = {}

    def __call__(self, e: E.Expr) -> Interval:
        hit = self._memo.get(id(e))
        if hit is not None:
            return hit[1]
        out = self._eval(e)
        simplify = self.facts.simplify
        if out.is_point:
            assert out.lo is not None
            out = point(simplify(out.lo))
        else:
            out = Interval(None if out.lo is None else simplify(out.lo), None if out.hi is None else simplify(out.hi))
        self._memo[id(e)] = (e, out)
        return out

    def _still(self, e: E.Expr) -> bool:
        """Whether no variable that runs occurs in `e`."""
        env = self.env
        if type(e) is E.Var:
            return e not in env
        from ..ir.visit import children

        return all(self._still(c) for c in children(e))

    def _eval(self, e: Any) -> Interval:
        t = type(e)
        if t is E.Var:
            return self.env.get(e) or point(e)
        if t is E.IntImm or t is E.FloatImm:
            return point(e)
        if t in (E.Select, E.BufferLoad, E.TensorRead, E.Call, E.Reduce, E.Let):
            return self._eval_rest(e, t)
        if t is E.Cast:
            v = self(e.value)
            if v.is_point:
                return point(e if v.lo is e.value else B.cast(e.dtype, v.lo))
            if dtype_info(e.value.dtype).is_int and dtype_info(e.dtype).is_int:
                return Interval(
                    None if v.lo is None else B.cast(e.dtype, v.lo), None if v.hi is None else B.cast(e.dtype, v.hi)
                )
            return EVERYTHING
        if not isinstance(e, E.BinaryExpr):
            return point(e) if self._still(e) else EVERYTHING
        a, b = self(e.a), self(e.b)
        if a.is_point and b.is_point:
            return point(e if a.lo is e.a and b.lo is e.b else _OPS[t](a.lo, b.lo))
        return self._eval_binary(t, a, b, e)

    def _eval_binary(self, t: type, a: Interval, b: Interval, e: Any) -> Interval:
        if t is E.Add:
            return Interval(_both(B.add, a.lo, b.lo), _both(B.add, a.hi, b.hi))
        if t is E.Sub:
            return Interval(_both(B.sub, a.lo, b.hi), _both(B.sub, a.hi, b.lo))
        if t is E.Mul:
            return self._product(a, b)
        if t is E.FloorDiv or t is E.Div or t is E.FloorMod or t is E.Mod:
            return self._divided(t, a, b)
        facts = self.facts
        if t is E.Min:
            hi = b.hi if a.hi is None else a.hi if b.hi is None else lower(a.hi, b.hi, facts)
            return Interval(None if a.lo is None or b.lo is None else lower(a.lo, b.lo, facts), hi)
        if t is E.Max:
            lo = b.lo if a.lo is None else a.lo if b.lo is None else upper(a.lo, b.lo, facts)
            return Interval(lo, None if a.hi is None or b.hi is None else upper(a.hi, b.hi, facts))
        return EVERYTHING

    def _product(self, a: Interval, b: Interval) -> Interval:
        if a.is_point:
            a, b = b, a
        if b.is_point:
            factor = b.lo
            assert factor is not None
            zero = B.const(0, factor.dtype)
            if self.facts.le(zero, factor):
                return Interval(_both(B.mul, a.lo, factor), _both(B.mul, a.hi, factor))
            if self.facts.le(factor, zero):
                return Interval(_both(B.mul, a.hi, factor), _both(B.mul, a.lo, factor))
            if a.lo is None or a.hi is None:
                return EVERYTHING
            x, y = B.mul(a.lo, factor), B.mul(a.hi, factor)
            return Interval(B.minimum(x, y), B.maximum(x, y))
        if a.lo is not None and b.lo is not None:
            zero = B.const(0, a.lo.dtype)
            if self.facts.le(zero, a.lo) and self.facts.le(zero, b.lo):
                return Interval(B.mul(a.lo, b.lo), _both(B.mul, a.hi, b.hi))
        return EVERYTHING

    def _divided(self, t: type, a: Interval, b: Interval) -> Interval:
        d = b.lo
        if not b.is_point or d is None or not self.facts.le(B.const(1, d.dtype), d):
            return EVERYTHING
        if t in (E.Div, E.Mod) and (a.lo is None or not self.facts.le(B.const(0, d.dtype), a.lo)):
            return EVERYTHING
        if t in (E.FloorDiv, E.Div):
            return Interval(_both(B.floordiv, a.lo, d), _both(B.floordiv, a.hi, d))
        last = B.sub(d, 1)
        if a.lo is not None and a.hi is not None:
            low, high = B.floordiv(a.lo, d), B.floordiv(a.hi, d)
            if self.facts.equal(low, high):
                return Interval(B.floormod(a.lo, d), B.floormod(a.hi, d))
        return Interval(B.const(0, d.dtype), last)

    def _eval_rest(self, e: Any, t: type) -> Interval:
        if t is E.Select or (t is E.Call and e.op == "if_then_else"):
            a, b = (e.a, e.b) if t is E.Select else (e.args[1], e.args[2])
            return union(self(a), self(b), self.facts)
        return point(e) if self._still(e) else EVERYTHING


_OPS: dict[type, Any] = {
    E.Add: B.add, E.Sub: B.sub, E.Mul: B.mul, E.Div: B.truncdiv, E.Mod: B.truncmod, E.FloorDiv: B.floordiv,
    E.FloorMod: B.floormod, E.Min: B.minimum, E.Max: B.maximum, E.And: B.logical_and, E.Or: B.logical_or,
}  # fmt: skip


def _both(op: Any, a: End, b: End) -> End:
    return None if a is None or b is None else op(a, b)


def evaluate(e: E.Expr, env: Env, facts: Facts) -> Interval:
    """The interval of one expression; see Evaluator. The expression is simplified first, which undoes correlations."""
    return Evaluator(env, facts)(facts.simplify(e))


def cover(interval: Interval, dom: E.Range, facts: Facts) -> E.Range:
    """The interval as a Range; an open end takes the domain's. The extent is a constant wherever one is known to do."""
    if interval.lo is None or interval.hi is None:
        return dom
    lo = facts.simplify(interval.lo)
    if interval.is_point:
        return E.Range(lo, B.const(1, lo.dtype))
    extent = facts.simplify(B.add(B.sub(interval.hi, interval.lo), 1))
    if not isinstance(extent, E.IntImm):
        extent = constant_extent(extent, dom, facts)
    return E.Range(lo, extent)


def constant_extent(extent: E.Expr, dom: E.Range, facts: Facts) -> E.Expr:
    """`extent`, or the constant that bounds it where the true one changes with loop variables (storage needs one size).

    An extent of outer symbols alone (n, the caller's) stays as it is.
    """
    from ..ir.visit import free_vars

    full = {id(v) for v in (*free_vars(dom.extent), *free_vars(dom.min))}
    if all(id(v) in full for v in free_vars(extent)):
        return extent
    _, hi = facts.bounds(extent)
    if hi is None:
        return extent
    whole = facts.constant(dom.extent)
    return B.const(min(hi, whole) if whole is not None else hi, extent.dtype)
