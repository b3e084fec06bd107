"""Relations between the loops of a stage: Split, Fuse, Rebase, Singleton.

Each is one class with its propagations beside each other:

- `extents_down(ranges)`: parent ranges -> child ranges (what the loops run over);
- `index_up(values, ranges)`: child values -> parent values (what the loops' variables mean);
- `index_down(values, ranges)`: parent values -> child values (where a parent's value is found);
- `domain_up(intervals, ranges, arith)`: child intervals -> parent intervals (what is touched while children run);
- `overrun_up(over, ranges, arith)`: which parents' values may reach their end because the children's loops run further;
  returns the children that need a guard of their own, since their overrun would land on a neighbour's value.

All dicts are keyed by IterVar. Every relation leaves ranges of children starting at 0. tests/unit/schedule proves the
propagations against each other by exhaustion.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from ..errors import LoweringError
from ..ir import build as B
from ..ir.arith.int_set import IntSet
from ..ir.dtype import int_range
from ..ir.expr import Expr, IntImm, IterVar, Mul, Range
from ..records import dataclass
from .index_arith import IndexArith

Ranges = dict[IterVar, Range]
Values = dict[IterVar, Expr]
Intervals = dict[IterVar, IntSet]


def ceildiv(a: Any, b: Any) -> Expr:
    """a / b rounded up, for b > 0."""
    if isinstance(a, IntImm) and isinstance(b, IntImm):  # the sum below would wrap beside the type's end
        return B.const(-(-a.value // b.value), a.dtype)
    return B.floordiv(B.add(a, B.sub(b, 1)), b)


def plus(a: Expr, b: Expr) -> Expr:
    """a + b; a negative constant is subtracted."""
    if isinstance(b, IntImm) and b.value < 0:
        return B.sub(a, -b.value)
    return B.add(a, b)


def from_zero(extent: Expr) -> Range:
    return Range(B.const(0, extent.dtype), extent)


def _whole(s: IntSet, r: Range, arith: IndexArith) -> bool:
    """Whether a set is all of a range."""
    if s.min is None or s.max is None:
        return False
    return arith.le(s.min, r.min) and arith.le(B.sub(B.add(r.min, r.extent), 1), s.max)


@dataclass(slots=True, eq=False)
class Split:
    """parent -> outer, inner with parent = outer * inner extent + inner. Exactly one of factor and nparts is given.

    fixed: the inner loop keeps the whole factor even where the parent is shorter (a thread's or intrinsic's extent).
    shift_inwards: a last step that would run past the parent's end starts earlier instead, and repeats some of the values before: parent = min(outer * inner extent,
    extent - inner extent) + inner. Of extents that are known, and of others where they are `long` enough; else there are guards.
    long: an extent that is not known is the factor at least; `to_loops` asserts it.
    """

    parent: IterVar
    outer: IterVar
    inner: IterVar
    factor: Expr | None = None
    nparts: Expr | None = None
    shift_inwards: bool = False
    long: bool = False

    @property
    def parents(self) -> tuple[IterVar, ...]:
        return (self.parent,)

    @property
    def children(self) -> tuple[IterVar, ...]:
        return (self.outer, self.inner)

    def extents_down(self, ranges: Ranges, fixed: frozenset[IterVar] | set[IterVar] = frozenset()) -> None:
        extent = ranges[self.parent].extent
        if self.factor is not None:
            factor = B.cast(extent.dtype, self.factor)
            if self.inner not in fixed and isinstance(factor, IntImm) and isinstance(extent, IntImm):
                factor = B.const(max(1, min(factor.value, extent.value)), extent.dtype)
            ranges[self.inner] = from_zero(factor)
            ranges[self.outer] = from_zero(ceildiv(extent, factor))
        else:
            assert self.nparts is not None
            parts = B.cast(extent.dtype, self.nparts)
            if self.outer not in fixed and isinstance(parts, IntImm) and isinstance(extent, IntImm):
                parts = B.const(max(1, min(parts.value, extent.value)), extent.dtype)
            ranges[self.outer] = from_zero(parts)
            ranges[self.inner] = from_zero(ceildiv(extent, parts))

    def index_up(self, values: Values, ranges: Ranges) -> None:
        if self.outer not in values or self.inner not in values:
            return
        value = B.add(self._start(values[self.outer], ranges), values[self.inner])
        values[self.parent] = plus(value, ranges[self.parent].min)

    def asked(self, ranges: Ranges) -> Expr | None:
        """The condition on an extent that is not known under which its last step can begin earlier; None where nothing is asked."""
        step, whole = ranges[self.inner].extent, ranges[self.parent].extent
        is_asked = self.shift_inwards and self.long and isinstance(step, IntImm) and not isinstance(whole, IntImm)
        return B.compare("ge", whole, step) if is_asked else None

    def _last(self, ranges: Ranges) -> Expr | None:
        """The start of the last step where that is shifted inwards; None where no step is."""
        step, whole = ranges[self.inner].extent, ranges[self.parent].extent
        if self.asked(ranges) is not None:
            return B.sub(whole, step)
        if not self.shift_inwards or not isinstance(step, IntImm) or not isinstance(whole, IntImm):
            return None
        is_cut = whole.value > step.value and whole.value % step.value
        return B.const(whole.value - step.value, whole.dtype) if is_cut else None

    def _start(self, outer: Expr, ranges: Ranges) -> Expr:
        """The first value of a step, from 0 on."""
        start, last = B.mul(outer, ranges[self.inner].extent), self._last(ranges)
        return start if last is None else B.minimum(start, B.cast(start.dtype, last))

    def index_down(self, values: Values, ranges: Ranges) -> None:
        if self.parent not in values:
            return
        at = B.sub(values[self.parent], ranges[self.parent].min)
        step = ranges[self.inner].extent
        values[self.outer] = B.floordiv(at, step)
        last = self._last(ranges)
        values[self.inner] = (
            B.floormod(at, step) if last is None else B.sub(at, self._start(values[self.outer], ranges))
        )

    def domain_up(self, intervals: Intervals, ranges: Ranges, arith: IndexArith) -> None:
        if self.outer not in intervals and self.inner not in intervals:
            return
        outer, inner = intervals[self.outer], intervals[self.inner]
        whole = ranges[self.parent]
        if _whole(outer, ranges[self.outer], arith) and _whole(inner, ranges[self.inner], arith):
            intervals[self.parent] = IntSet.from_range(whole)
            return
        ends = []
        for o, i in zip(outer, inner):
            ends.append(None if o is None or i is None else B.add(B.add(self._start(o, ranges), i), whole.min))
        intervals[self.parent] = (
            IntSet.point(ends[0]) if outer.is_point and inner.is_point and ends[0] is not None else IntSet(*ends)
        )

    def overrun_up(self, over: dict[IterVar, bool], ranges: Ranges, arith: IndexArith) -> tuple[IterVar, ...]:
        # outer >= its extent puts the parent at or past its end; inner >= its extent is the next outer step's value.
        outer, inner, whole = (ranges[x].extent for x in (self.outer, self.inner, self.parent))
        if isinstance(outer, IntImm) and isinstance(inner, IntImm) and isinstance(whole, IntImm):
            fits = outer.value * inner.value <= whole.value  # the product may be one past the type's end
        else:
            fits = arith.le(B.mul(outer, inner), whole)
        over[self.parent] = over.get(self.outer, False) or not (fits or self._last(ranges) is not None)
        return (self.inner,) if over.get(self.inner) else ()


def _step(extent: Expr) -> Expr:
    """What the inner of two fused axes counts to: 1 where it is empty, and so is the fused axis, whose indices nobody asks for."""
    return B.const(1, extent.dtype) if isinstance(extent, IntImm) and extent.value == 0 else extent


def _widened(dtype: str, e: Expr) -> Expr:
    """An extent in a wider type, multiple by multiple: places in memory are counted so, and a quotient by 2 * n meets its remainder there."""
    if isinstance(e, Mul) and e.dtype != dtype:
        return B.mul(_widened(dtype, e.a), _widened(dtype, e.b))
    return B.cast(dtype, e)


@dataclass(slots=True, eq=False)
class Fuse:
    """outer, inner -> fused with fused = outer * inner extent + inner."""

    outer: IterVar
    inner: IterVar
    fused: IterVar

    @property
    def parents(self) -> tuple[IterVar, ...]:
        return (self.outer, self.inner)

    @property
    def children(self) -> tuple[IterVar, ...]:
        return (self.fused,)

    def _wide(self, e: Expr) -> Expr:
        """In the fused loop's type, which is wider than its parents' where it takes more steps than theirs count."""
        return _widened(self.fused.var.dtype, e)

    def extents_down(self, ranges: Ranges, fixed: frozenset[IterVar] | set[IterVar] = frozenset()) -> None:
        ranges[self.fused] = from_zero(
            B.mul(self._wide(ranges[self.outer].extent), self._wide(ranges[self.inner].extent))
        )

    def _up(self, value: Expr, ranges: Ranges) -> tuple[Expr, Expr]:
        """What the parents' values are for one of the fused loop."""
        outer, inner = ranges[self.outer], ranges[self.inner]
        if isinstance(outer.extent, IntImm) and outer.extent.value == 1:
            # A quotient by what no one knows is seldom proved to be 0.
            return outer.min, plus(B.cast(inner.extent.dtype, value), inner.min)
        step = self._wide(_step(inner.extent))
        return (
            plus(B.cast(outer.extent.dtype, B.floordiv(value, step)), outer.min),
            plus(B.cast(inner.extent.dtype, B.floormod(value, step)), inner.min),
        )

    def index_up(self, values: Values, ranges: Ranges) -> None:
        if self.fused in values:
            values[self.outer], values[self.inner] = self._up(values[self.fused], ranges)

    def index_down(self, values: Values, ranges: Ranges) -> None:
        if self.outer not in values or self.inner not in values:
            return
        o = self._wide(B.sub(values[self.outer], ranges[self.outer].min))
        i = self._wide(B.sub(values[self.inner], ranges[self.inner].min))
        values[self.fused] = B.add(B.mul(o, self._wide(ranges[self.inner].extent)), i)

    def domain_up(self, intervals: Intervals, ranges: Ranges, arith: IndexArith) -> None:
        s = intervals.get(self.fused)
        if s is None:
            return
        outer, inner = ranges[self.outer], ranges[self.inner]
        whole_inner = IntSet.from_range(inner)
        if s.min is None or s.max is None or _whole(s, ranges[self.fused], arith):
            intervals[self.outer] = IntSet.from_range(outer)
            intervals[self.inner] = whole_inner
            return
        if s.is_point:
            at, of = self._up(s.min, ranges)
            intervals[self.outer], intervals[self.inner] = (
                IntSet.point(arith.simplify(at)),
                IntSet.point(arith.simplify(of)),
            )
            return
        (first, low), (last, high) = self._up(s.min, ranges), self._up(s.max, ranges)
        if arith.equal(first, last):  # within one row
            intervals[self.outer] = IntSet.point(arith.simplify(first))
            intervals[self.inner] = IntSet(arith.simplify(low), arith.simplify(high))
            return
        intervals[self.outer] = IntSet(arith.simplify(first), arith.simplify(last))
        intervals[self.inner] = whole_inner

    def overrun_up(self, over: dict[IterVar, bool], ranges: Ranges, arith: IndexArith) -> tuple[IterVar, ...]:
        # A fused loop that runs too far makes the outer value too large; the inner one is a remainder.
        far = over.get(self.fused, False)
        over[self.inner] = False
        narrows = self.fused.var.dtype != self.outer.var.dtype
        if far and (narrows or not isinstance(ranges[self.inner].extent, IntImm)):
            # `fused < m*n` is one comparison; `fused // n < m` would keep its division by what no one knows, or the number of a step in fewer bits.
            over[self.outer] = False
            return (self.fused,)
        outer = ranges[self.outer].extent
        is_one = isinstance(outer, IntImm) and outer.value == 1  # whose place is no quotient: see `_up`
        over[self.outer], over[self.inner] = far and not is_one, far and is_one
        return ()


@dataclass(slots=True, eq=False)
class Rebase:
    """parent -> rebased, which runs from 0."""

    parent: IterVar
    rebased: IterVar

    @property
    def parents(self) -> tuple[IterVar, ...]:
        return (self.parent,)

    @property
    def children(self) -> tuple[IterVar, ...]:
        return (self.rebased,)

    def extents_down(self, ranges: Ranges, fixed: frozenset[IterVar] | set[IterVar] = frozenset()) -> None:
        ranges[self.rebased] = from_zero(ranges[self.parent].extent)

    def index_up(self, values: Values, ranges: Ranges) -> None:
        if self.rebased in values:
            values[self.parent] = plus(values[self.rebased], ranges[self.parent].min)

    def index_down(self, values: Values, ranges: Ranges) -> None:
        if self.parent in values:
            values[self.rebased] = B.sub(values[self.parent], ranges[self.parent].min)

    def domain_up(self, intervals: Intervals, ranges: Ranges, arith: IndexArith) -> None:
        s = intervals.get(self.rebased)
        if s is None:
            return
        low = ranges[self.parent].min
        if s.is_point:
            assert s.min is not None
            intervals[self.parent] = IntSet.point(arith.simplify(plus(s.min, low)))
        else:
            intervals[self.parent] = IntSet(
                None if s.min is None else arith.simplify(plus(s.min, low)),
                None if s.max is None else arith.simplify(plus(s.max, low)),
            )

    def overrun_up(self, over: dict[IterVar, bool], ranges: Ranges, arith: IndexArith) -> tuple[IterVar, ...]:
        over[self.parent] = over.get(self.rebased, False)
        return ()


@dataclass(slots=True, eq=False)
class Singleton:
    """A loop of one step that stems from nothing: a place to attach to in a stage of no loops."""

    iter: IterVar
    parents: tuple[IterVar, ...] = field(default=(), init=False)

    @property
    def children(self) -> tuple[IterVar, ...]:
        return (self.iter,)

    def extents_down(self, ranges: Ranges, fixed: frozenset[IterVar] | set[IterVar] = frozenset()) -> None:
        ranges[self.iter] = from_zero(B.const(1))

    def index_up(self, values: Values, ranges: Ranges) -> None:
        pass

    def index_down(self, values: Values, ranges: Ranges) -> None:
        values[self.iter] = B.const(0)

    def domain_up(self, intervals: Intervals, ranges: Ranges, arith: IndexArith) -> None:
        pass

    def overrun_up(self, over: dict[IterVar, bool], ranges: Ranges, arith: IndexArith) -> tuple[IterVar, ...]:
        return ()


Relation = Split | Fuse | Rebase | Singleton


def guarded_loops(
    relations: list[Relation], roots: tuple[IterVar, ...], ranges: Ranges, arith: IndexArith
) -> list[IterVar]:
    """Axes and loops whose value must be guarded to stay within their range, given that every leaf loop stays in its own."""
    over: dict[IterVar, bool] = {}
    inner: list[IterVar] = []
    for r in reversed(relations):
        inner.extend(r.overrun_up(over, ranges, arith))
    return inner + [iv for iv in roots if over.get(iv)]  # what the inner ones say makes others provable


def check_counts(relation: Relation, ranges: Ranges) -> None:
    """Refuse a fused loop, or a split one with its last part rounded up, of more steps than its variable counts. Symbolic ones: the pass `check_extents`.

    Raises: LoweringError with the steps.
    """
    if not isinstance(relation, (Split, Fuse)):
        return
    outer, inner = ranges[relation.outer].extent, ranges[relation.inner].extent
    if not isinstance(outer, IntImm) or not isinstance(inner, IntImm):
        return
    loop = relation.parent if isinstance(relation, Split) else relation.fused
    steps, most = outer.value * inner.value, int_range(loop.var.dtype)[1]
    if steps > most + isinstance(relation, Split):  # whose variable never reaches the count itself
        how = "split into" if isinstance(relation, Split) else "fused of"
        raise LoweringError(
            f"{loop.name}, {how} {outer.value:,} x {inner.value:,}, would run {steps:,} times: its {loop.var.dtype} variable counts to {most:,}",
            where=loop.loc,
            hint="fuse fewer axes (bind others to blockIdx.y and blockIdx.z), or compute the tensor in parts of fewer than 2,147,483,648 "
            "elements",
            locate=False,
        )
