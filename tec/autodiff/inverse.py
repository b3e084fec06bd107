"""Which elements of a computation read a given element of a tensor: index equations, solved.

    B[i] reads A[s*i + k] for k in [0, K):   of A[a] the readers are   k in [0, K), i = (a - k) / s  where s divides and 0 <= i < n

Each dimension is an equation `element == index(variables)`. Where the index is linear, the variable with the largest range is expressed
by the others (fewer steps are left to sum over), under the conditions that it is whole and in its range; `x // c` and `x % c` get
a new variable for what they drop. What cannot be solved (a gather by another tensor) stays a condition over all values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from ..ir import build as B
from ..ir import expr as E
from ..ir.arith import Analyzer
from ..ir.visit import free_vars, substitute
from ..records import dataclass


@dataclass
class Readers:
    """Variables that are left, with their ranges; those that were expressed, in terms of those; and what must hold."""

    free: dict[E.Var, E.Range]
    solved: dict[E.Var, E.Expr] = field(default_factory=dict)
    conditions: list[E.Expr] = field(default_factory=list)


def readers(
    element: Sequence[tuple[E.Var, E.Expr]], indices: Sequence[E.Expr], variables: dict[E.Var, E.Range]
) -> Readers:
    """Who reads `element` (variables with their extents) through `indices` of `variables` with their ranges."""
    return _Solver(element, variables).run([v for v, _ in element], indices)


class _Solver:
    def __init__(self, element: Sequence[tuple[E.Var, E.Expr]], variables: dict[E.Var, E.Range]):
        self.out = Readers(dict(variables))
        self.arith = Analyzer()
        for v, extent in element:
            self.arith.bind(v, E.Range(B.const(0, extent.dtype), extent))
        for v, r in variables.items():
            self.arith.bind(v, r)

    def run(self, element: Sequence[E.Expr], indices: Sequence[E.Expr]) -> Readers:
        open_ = list(zip(element, indices))
        while open_:
            # Plain variables first: they make the others simpler.
            open_.sort(key=lambda eq: not isinstance(self._now(eq[1]), E.Var))
            left, right = open_.pop(0)
            right = self._now(right)
            if not self._linear(left, right):
                more = self._division(left, right)
                if more is None:
                    self._require(B.compare("eq", left, right))
                else:
                    open_.append(more)
        self.out.conditions = [c for c in map(self._now, self.out.conditions) if not B.is_const(c, 1)]
        return self.out

    def _now(self, e: E.Expr) -> E.Expr:
        simple: E.Expr = self.arith.simplify(substitute(e, self.out.solved))
        return simple

    def _require(self, c: E.Expr) -> None:
        self.out.conditions.append(c)

    def _linear(self, left: E.Expr, right: E.Expr) -> bool:
        """Take `left == right` to express a variable; False where `right` is not linear."""
        names = [v for v in self.out.free if any(v is x for x in free_vars(right))]
        form = self.arith.detect_linear(right, names)
        if form is None:
            return False
        steps = [(v, c.value) for v, c in zip(names, form) if isinstance(c, E.IntImm) and c.value]
        if len(steps) != sum(not B.is_const(c, 0) for c in form[:-1]):
            return False  # a step that is not a number
        if not steps:
            self._require(B.compare("eq", left, right))
            return True
        v, step = max(steps, key=lambda s: (self._extent(s[0]), -abs(s[1])))
        rest = form[-1]
        for other, c in steps:
            if other is not v:
                rest = B.add(rest, B.mul(other, c))
        away = B.sub(left, rest) if step > 0 else B.sub(rest, left)
        size = abs(step)
        if size != 1:
            self._require(B.compare("eq", B.floormod(away, size), 0))
        self._solve(v, self.arith.simplify(B.floordiv(away, size) if size != 1 else away))
        return True

    def _extent(self, v: E.Var) -> int:
        high = self.arith.const_int_bound(self.out.free[v].extent)[1]
        return 1 << 62 if high is None else high

    def _solve(self, v: E.Var, value: E.Expr) -> None:
        r = self.out.free.pop(v)
        self._require(B.compare("ge", value, r.min))
        self._require(B.compare("lt", value, B.add(r.min, r.extent)))
        self.out.solved = {w: substitute(e, {v: value}) for w, e in self.out.solved.items()}
        self.out.solved[v] = value

    def _division(self, left: E.Expr, right: E.Expr) -> tuple[E.Expr, E.Expr] | None:
        """`left == x // c` or `left == x % c` as an equation for x, with a variable for what the division drops."""
        if (
            not isinstance(right, (E.FloorDiv, E.FloorMod, E.Div, E.Mod))
            or not isinstance(right.b, E.IntImm)
            or right.b.value <= 0
        ):
            return None
        low, high = self.arith.const_int_bound(right.a)
        if low is None or high is None or low < 0:
            return None
        c = right.b.value
        if isinstance(right, (E.FloorDiv, E.Div)):
            dropped, extent = "rest", c
        else:
            dropped, extent = "times", high // c + 1
            self._require(B.compare("lt", left, c))
        v = E.Var(dropped, right.dtype)
        r = E.Range(B.const(0, right.dtype), B.const(extent, right.dtype))
        self.out.free[v] = r
        self.arith.bind(v, r)
        whole = B.add(B.mul(left, c), v) if dropped == "rest" else B.add(B.mul(v, c), left)
        return whole, right.a
