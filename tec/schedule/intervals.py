"""Symbolic intervals: the values an index takes while some of its variables run.

In: an index expression and an IntSet for each variable that runs; variables not listed stand still and may appear in
the result. Out: an IntSet that covers every value (evaluated by `tec.ir.arith`). None as an end means unbounded.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..ir import build as B
from ..ir import expr as E
from ..ir.arith.int_set import IntSet, SetEvaluator
from ..ir.visit import free_vars
from .index_arith import IndexArith


def union(a: IntSet, b: IntSet, arith: IndexArith) -> IntSet:
    """The smallest interval known to hold both."""
    if a is b:
        return a
    lo = None if a.min is None or b.min is None else lower(a.min, b.min, arith)
    hi = None if a.max is None or b.max is None else upper(a.max, b.max, arith)
    return IntSet(lo, hi)


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


Env = Mapping[E.Var, IntSet]


class Evaluator:
    """Evaluates expressions to intervals under one environment; memoised on nodes."""

    def __init__(self, env: Env, arith: IndexArith):
        self.env = env
        self.arith = arith
        self._inner = SetEvaluator(arith.analyzer, env)

    def __call__(self, e: E.Expr) -> IntSet:
        a = self.arith.analyzer
        s = self._inner.eval(a.simp(a.intern(e)))
        # An end that memory says is none: storage and loops are made before it is known.
        lo = None if s.min is None or self.arith.reads(s.min) else s.min
        return IntSet(lo, lo if s.is_point else None if s.max is None or self.arith.reads(s.max) else s.max)


def cover(interval: IntSet, dom: E.Range, arith: IndexArith) -> E.Range:
    """The interval as a Range; an open end takes the domain's. The extent is a constant wherever one is known to do."""
    if interval.min is None or interval.max is None:
        return dom
    lo = arith.simplify(interval.min)
    if interval.is_point:
        return E.Range(lo, B.const(1, lo.dtype))
    extent = arith.simplify(B.add(B.sub(interval.max, interval.min), 1))
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
