"""Symbolic intervals: which values an expression takes while some variables range over intervals.

`IntSet(min, max)` holds the least and greatest value, None where there is none. Evaluation is exact for sums of distinct
variables, and for quotients, minima, choices and casts of them; a remainder is exact where the range does not cross a
multiple of the divisor. Otherwise the interval is too wide, never too narrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...records import dataclass
from .. import expr as E
from ..visit import map_expr
from .bounds import INDEX_DTYPES
from .facts import factors
from .linear import Lin

if TYPE_CHECKING:
    from .simplifier import Simplifier


@dataclass(frozen=True, slots=True, eq=False)
class IntSet:
    """The integers from `min` to `max`, both inclusive; None is unbounded."""

    min: E.Expr | None = None
    max: E.Expr | None = None

    @staticmethod
    def everything() -> IntSet:
        return IntSet(None, None)

    @staticmethod
    def point(e: E.Expr) -> IntSet:
        return IntSet(e, e)

    @staticmethod
    def interval(low: E.Expr | None, high: E.Expr | None) -> IntSet:
        return IntSet(low, high)

    @staticmethod
    def from_range(r: E.Range) -> IntSet:
        return IntSet(r.min, r.min + r.extent - 1)

    @property
    def is_point(self) -> bool:
        """Whether both ends are one expression (ends from an Analyzer are canonical, so that equal is identical)."""
        return self.min is not None and self.min is self.max

    def __iter__(self) -> Iterator[E.Expr | None]:
        return iter((self.min, self.max))

    def __repr__(self) -> str:
        low = "-inf" if self.min is None else str(self.min)
        high = "inf" if self.max is None else str(self.max)
        return f"[{low}, {high}]"


def as_int_set(value: Any) -> IntSet:
    """An IntSet from an IntSet, a Range or a (min, max) pair."""
    if isinstance(value, IntSet):
        return value
    if isinstance(value, E.Range):
        return IntSet.from_range(value)
    low, high = value
    return IntSet(low, high)


class SetEvaluator:
    """Evaluates canonical expressions over a domain of intervals; one object for one domain."""

    def __init__(self, f: Simplifier, domain: Mapping[E.Var, Any]):
        self.f = f
        self.domain: dict[int, IntSet] = {}
        for v, value in domain.items():
            s = as_int_set(value)
            low = None if s.min is None else f.simp(f.intern(s.min))
            high = low if s.max is s.min else None if s.max is None else f.simp(f.intern(s.max))
            self.domain[id(v)] = IntSet(low, high)
        self.memo: dict[int, IntSet] = {}
        self.touched: dict[int, bool] = {}

    def varies(self, e: E.Expr) -> bool:
        """Whether a variable of the domain is anywhere below `e`."""
        hit = self.touched.get(id(e))
        if hit is None:
            if type(e) is E.Var:
                hit = id(e) in self.domain
            else:
                found = False

                def look(x: E.Expr) -> E.Expr:
                    nonlocal found
                    found = found or self.varies(x)
                    return x

                map_expr(e, look)
                hit = found
            self.touched[id(e)] = hit
        return hit

    def eval(self, e: E.Expr) -> IntSet:
        """The set of a canonical simplified expression."""
        if type(e) is E.IntImm or not self.varies(e):
            return IntSet(e, e)
        hit = self.memo.get(id(e))
        if hit is None:
            hit = self.memo[id(e)] = self._eval(e)
        return hit

    def _simp(self, cls: Any, *parts: Any) -> E.Expr:
        return self.f.simp(self.f.make(cls, *parts))

    def _eval(self, e: Any) -> IntSet:
        """The set of an expression's values, by its kind."""
        t, f = type(e), self.f
        if t is E.Var:
            return self.domain[id(e)]
        if t in (E.Add, E.Sub, E.Mul) and e.dtype in INDEX_DTYPES:
            form = f.lin(e)
            if len(form.terms) == 1 and next(iter(form.terms.values()))[0] is e:
                return self._product(e)
            return self._linear(form, e.dtype)
        if t in (E.FloorDiv, E.Div):
            return self._quotient(t, e)
        if t in (E.FloorMod, E.Mod):
            return self._remainder(t, e)
        if t is E.Min or t is E.Max:
            return self._extremum(t, self.eval(e.a), self.eval(e.b))
        if t is E.Select:
            return self.union((self.eval(e.a), self.eval(e.b)))
        if t is E.Cast and e.dtype in INDEX_DTYPES and e.value.dtype in INDEX_DTYPES:
            s = self.eval(e.value)
            low = None if s.min is None else f.simp(f.intern(E.Cast(e.dtype, s.min)))
            high = None if s.max is None else f.simp(f.intern(E.Cast(e.dtype, s.max)))
            return IntSet(low, high)
        if t is E.Call:
            if e.op == "likely":
                return self.eval(e.args[0])
            if e.op == "if_then_else":
                return self.union((self.eval(e.args[1]), self.eval(e.args[2])))
            if e.op == "bitand" and type(e.args[1]) is E.IntImm and e.args[1].value >= 0:
                return IntSet(f.imm(0, e.dtype), e.args[1])
        if e.dtype == "bool":
            return IntSet(f.imm(0, "bool"), f.imm(1, "bool"))
        return IntSet()

    def _linear(self, form: Lin, dtype: str) -> IntSet:
        f = self.f
        low: Lin | None = Lin(form.const)
        high: Lin | None = Lin(form.const)
        point = True
        for atom, c in form.terms.values():
            s = self.eval(atom)
            point = point and s.is_point
            a, b = (s.min, s.max) if c > 0 else (s.max, s.min)
            low = None if low is None or a is None else low.plus(f.trusted_lin(a), c)
            high = None if high is None or b is None else high.plus(f.trusted_lin(b), c)
        first = None if low is None else f.from_lin(low, dtype)
        if point:
            return IntSet(first, first)
        return IntSet(first, None if high is None else f.from_lin(high, dtype))

    def _product(self, e: E.Expr) -> IntSet:
        f = self.f
        parts = factors(e)
        moving = [p for p in parts if not self.eval(p).is_point]
        if len(moving) > 1:
            sets = [self.eval(p) for p in parts]
            if all(s.min is not None and f.bound(s.min)[0] >= 0 for s in sets):
                return self._ends([s.min for s in sets], [s.max for s in sets])
            return IntSet()
        sets = [self.eval(p) for p in parts]
        if not moving:
            ends = [s.min for s in sets]
            return self._ends(ends, ends)
        signs = [f.bound(s.min) for p, s in zip(parts, sets) if p is not moving[0] and s.min is not None]
        if any(lo < 0 < hi for lo, hi in signs):
            return IntSet()
        negative = sum(1 for lo, hi in signs if hi <= 0 and lo < 0) % 2 == 1
        low = [s.max if negative and p is moving[0] else s.min for p, s in zip(parts, sets)]
        high = [s.min if negative and p is moving[0] else s.max for p, s in zip(parts, sets)]
        return self._ends(low, high)

    def _ends(self, low: list[E.Expr | None], high: list[E.Expr | None]) -> IntSet:
        def times(parts: list[E.Expr | None]) -> E.Expr | None:
            out: E.Expr | None = None
            for p in parts:
                if p is None:
                    return None
                out = p if out is None else self._simp(E.Mul, out, p)
            return out

        a = times(low)
        return IntSet(a, a if high is low else times(high))

    def _quotient(self, t: Any, e: Any) -> IntSet:
        s, d = self.eval(e.a), self.eval(e.b)
        if not d.is_point or d.min is None:
            return IntSet()
        lo, hi = self.f.bound(d.min)
        if lo > 0 or (lo >= 0 and type(d.min) is not E.IntImm):  # a divisor is never 0
            a, b = s.min, s.max
        elif hi < 0:
            a, b = s.max, s.min
        else:
            return IntSet()
        low = None if a is None else self._simp(t, a, d.min)
        return IntSet(low, low if a is b else None if b is None else self._simp(t, b, d.min))

    def _remainder(self, t: Any, e: Any) -> IntSet:
        f = self.f
        s, d = self.eval(e.a), self.eval(e.b)
        if not d.is_point or d.min is None or f.bound(d.min)[0] < 0:
            return IntSet()
        if s.is_point and s.min is not None:
            return IntSet.point(self._simp(t, s.min, d.min))
        top = self._simp(E.Sub, d.min, f.imm(1, e.dtype))
        if s.min is not None and s.max is not None and t is E.FloorMod:
            if self._simp(E.FloorDiv, s.min, d.min) is self._simp(E.FloorDiv, s.max, d.min):
                return IntSet(self._simp(t, s.min, d.min), self._simp(t, s.max, d.min))
        if t is E.Mod:
            if s.min is not None and f.bound(s.min)[0] >= 0:
                return IntSet(f.imm(0, e.dtype), top)
            return IntSet(self._simp(E.Sub, f.imm(1, e.dtype), d.min), top)
        if s.min is not None and s.max is not None and f.bound(s.min)[0] >= 0 and f.bound(s.max)[1] < f.bound(top)[0]:
            return IntSet(f.imm(0, e.dtype), s.max)
        return IntSet(f.imm(0, e.dtype), top)

    def _extremum(self, t: Any, a: IntSet, b: IntSet) -> IntSet:
        """Of a minimum: the lower end needs both, the upper end either; of a maximum the other way round."""

        def both(x: E.Expr | None, y: E.Expr | None) -> E.Expr | None:
            return None if x is None or y is None else self._simp(t, x, y)

        def either(x: E.Expr | None, y: E.Expr | None) -> E.Expr | None:
            return y if x is None else x if y is None else self._simp(t, x, y)

        if t is E.Min:
            return IntSet(both(a.min, b.min), either(a.max, b.max))
        return IntSet(either(a.min, b.min), both(a.max, b.max))

    def union(self, sets: Iterable[IntSet]) -> IntSet:
        """The smallest interval that holds them all."""
        items = list(sets)
        if not items:
            return IntSet()
        low, high = items[0].min, items[0].max
        for s in items[1:]:
            low = None if low is None or s.min is None else low if low is s.min else self._simp(E.Min, low, s.min)
            high = None if high is None or s.max is None else high if high is s.max else self._simp(E.Max, high, s.max)
        return IntSet(low, high)
