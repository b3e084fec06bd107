"""Symbolic intervals: the values an index takes while some of its variables run.

In: an index expression and an Interval for each variable that runs; variables not listed stand still and may appear in
the result. Out: an Interval that covers every value (evaluated by `tec.ir.arith`). None as an end means unbounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..ir import build as B
from ..ir import expr as E
from ..ir.arith.int_set import SetEvaluator
from ..ir.visit import free_vars
from .index_arith import IndexArith

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


def union(a: Interval, b: Interval, arith: IndexArith) -> Interval:
    """The smallest interval known to hold both."""
    if a is b:
        return a
    lo = None if a.lo is None or b.lo is None else lower(a.lo, b.lo, arith)
    hi = None if a.hi is None or b.hi is None else upper(a.hi, b.hi, arith)
    return Interval(lo, hi)


def lower(a: E.Expr, b: E.Expr, arith: IndexArith) -> E.Expr:
    """min(a, b), as the one known to be the smaller where that is certain."""
    if arith.le(a, b):
        return a
    if arith.le(b, a):
        return b
    return arith.simplify(B.minimum(a, b))


def upper(a: E.Expr, b: E.Expr, arith: IndexArith) -> E.Expr:
    if arith.le(a, b):
        return b
    if arith.le(b, a):
        return a
    return arith.simplify(B.maximum(a, b))


class Evaluator:
    """Evaluates expressions to intervals under one environment; memoised on nodes."""

    def __init__(self, env: Env, arith: IndexArith):
        self.env = env
        self.arith = arith
        self._inner = SetEvaluator(arith.analyzer, env)

    def __call__(self, e: E.Expr) -> Interval:
        a = self.arith.analyzer
        s = self._inner.eval(a.simp(a.intern(e)))
        # An end that memory says is none: storage and loops are made before it is known.
        lo = None if s.min is None or self.arith.reads(s.min) else s.min
        return Interval(lo, lo if s.is_point else None if s.max is None or self.arith.reads(s.max) else s.max)


def cover(interval: Interval, dom: E.Range, arith: IndexArith) -> E.Range:
    """The interval as a Range; an open end takes the domain's. The extent is a constant wherever one is known to do."""
    if interval.lo is None or interval.hi is None:
        return dom
    lo = arith.simplify(interval.lo)
    if interval.is_point:
        return E.Range(lo, B.const(1, lo.dtype))
    extent = arith.simplify(B.add(B.sub(interval.hi, interval.lo), 1))
    if isinstance(extent, E.IntImm):
        return E.Range(lo, extent)
    symbols = {id(v) for v in (*free_vars(dom.extent), *free_vars(dom.min))}
    if all(id(v) in symbols for v in free_vars(extent)):
        return E.Range(lo, extent)  # the caller's symbols alone: one size
    # The true extent changes with loops around, and storage needs one size: a constant that will do, or all.
    _, hi = arith.bounds(extent)
    if hi is None:
        return dom
    whole = arith.constant(dom.extent)
    if whole is not None and whole <= hi:
        # As many as there are, from `lo` on, are all that is needed where none comes before the first.
        return E.Range(lo, B.const(whole, extent.dtype)) if arith.le(dom.min, lo) else dom
    return E.Range(lo, B.const(hi, extent.dtype))
