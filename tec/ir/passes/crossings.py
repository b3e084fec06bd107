"""Divisions of neighbouring places by a number, where lanes of a vector cross one multiple of it at most.

`ramp // c` has one of two values in each lane then, which are two scalars, and a comparison says which. Where several numbers are divided by, as the fused axes of an
elementwise result are by each of their sizes (`// 485 % 242`, `// 117370 % 9`), lanes cross a multiple of the finest one where they cross any: one division
gives the row of the first lane, what is asked of rows is asked of two scalars, and lanes compare once. An AMD GPU divides by a number in four instructions or more;
lane by lane that can be most of what a copy does.
"""

from __future__ import annotations

from collections.abc import Callable

from .. import build as B
from .. import expr as E
from .. import stmt as S
from ..arith import Analyzer
from ..dtype import dtype_info
from ..visit import any_expr, free_vars, visit
from .rewrite_util import const_int

Binary = Callable[[type, E.Expr, E.Expr], E.Expr]
_LIMIT = 1 << 30  # of places and sizes: what is added to them stays an int32


class Crossings:
    """The crossings of one vectorized loop over `var`. `lets`: variables that stand around its vector form, with their values."""

    def __init__(self, var: E.Var, lanes: int, body: S.Stmt, analyzer: Analyzer):
        self.lanes, self.analyzer = lanes, analyzer
        self.lets: list[tuple[E.Var, E.Expr]] = []
        self._inner = _bound_inside(body)
        self._found: list[tuple[E.Expr, int, tuple[E.Var, E.Var, E.Expr]]] = []
        self._divisors = sorted(_divisors(var, body))

    def divided(self, cls: type, ramp: E.Ramp, divisor: E.Expr) -> E.Expr | None:
        """`ramp // c` or `ramp % c`; None where lanes may cross more, or that is not known."""
        c = const_int(divisor)
        if c is None or not B.is_const(ramp.stride, 1) or ramp.base.dtype != "int32" or not self.lanes <= c < _LIMIT:
            return None
        fine = next((d for d in self._divisors if d >= self.lanes and c % d == 0), c)
        crossing = self._crossing(ramp.base, fine, cls is E.FloorMod and c == fine)
        if crossing is None:
            return None
        row, place, crossed = crossing
        times = c // fine
        if cls is E.FloorDiv:
            return self._either(crossed, *(B.floordiv(r, times) for r in (B.add(row, 1), row)))
        lanes = E.Ramp(place, ramp.stride, self.lanes)
        if times == 1:
            return E.Select(crossed, E.Ramp(B.sub(place, fine), ramp.stride, self.lanes), lanes)
        behind, before = (B.mul(B.floormod(r, times), fine) for r in (B.add(row, 1), row))
        return E.Select(
            crossed,
            E.Ramp(B.add(behind, B.sub(place, fine)), ramp.stride, self.lanes),
            E.Ramp(B.add(before, place), ramp.stride, self.lanes),
        )

    def _either(self, crossed: E.Expr, behind: E.Expr, before: E.Expr) -> E.Expr:
        return E.Select(crossed, E.Broadcast(behind, self.lanes), E.Broadcast(before, self.lanes))

    def _crossing(self, base: E.Expr, fine: int, by_rest: bool) -> tuple[E.Var, E.Var, E.Expr] | None:
        """The row of the first lane, its place there, and which lanes are in the next row. by_rest: another base with the same rest will do."""
        for other, size, found in self._found:
            if size == fine and (
                str(other) == str(base)
                or (by_rest and self.analyzer.can_prove(B.compare("eq", B.floormod(B.sub(other, base), fine), 0)))
            ):
                return found
        low, high = self.analyzer.const_int_bound(base)
        if low is None or high is None or low < 0 or high >= _LIMIT or any(v in self._inner for v in free_vars(base)):
            return None
        row, place = E.Var("row", "int32"), E.Var("place", "int32")
        self.lets.append((row, self.analyzer.simplify(B.floordiv(base, fine))))
        self.lets.append((place, self.analyzer.simplify(B.floormod(base, fine))))
        lanes = E.Ramp(place, E.IntImm(1, "int32"), self.lanes)
        crossed = E.GE(lanes, E.Broadcast(E.IntImm(fine, "int32"), self.lanes))
        self._found.append((base, fine, (row, place, crossed)))
        return row, place, crossed

    def around(self, s: S.Stmt) -> S.Stmt:
        for var, value in reversed(self.lets):
            s = S.LetStmt(var, value, s)
        return s


def of_one_of_two(cls: type, a: E.Expr, b: E.Expr, binary: Binary) -> E.Expr | None:
    """An operation on numbers of which each lane has one of two, as the same of what it has; None where that is more work than lane by lane."""
    chosen = a if isinstance(a, E.Select) else b
    if not isinstance(chosen, E.Select) or not isinstance(chosen.cond, E.GE):
        return None
    (a1, a0), (b1, b0) = _arms(a, chosen.cond), _arms(b, chosen.cond)
    if a1 is None or a0 is None or b1 is None or b0 is None:
        return None
    if any(isinstance(x, E.Ramp) for x in (a1, a0, b1, b0)) and cls not in (E.Add, E.Sub):
        return None
    lanes = dtype_info(chosen.cond.dtype).lanes
    behind, before = binary(cls, a1, b1), binary(cls, a0, b0)
    widened = [x if dtype_info(x.dtype).lanes == lanes else E.Broadcast(x, lanes) for x in (behind, before)]
    return E.Select(chosen.cond, *widened)


def _arms(e: E.Expr, cond: E.Expr) -> tuple[E.Expr | None, E.Expr | None]:
    """What lanes have where the condition holds and where not, as scalars or ramps: of a selection by it, or of a scalar."""
    if dtype_info(e.dtype).lanes == 1:
        return e, e
    if not isinstance(e, E.Select) or e.cond is not cond:
        return None, None
    first, second = (
        x.value if isinstance(x, E.Broadcast) else x if isinstance(x, E.Ramp) else None for x in (e.a, e.b)
    )
    return first, second


def _divisors(var: E.Var, body: S.Stmt) -> set[int]:
    """The numbers that places along `var` are divided by themselves."""
    found: set[int] = set()

    def on_expr(e: E.Expr) -> None:
        if type(e) in (E.FloorDiv, E.FloorMod) and (c := const_int(e.b)) is not None:  # type: ignore[attr-defined]
            own = e.a  # type: ignore[attr-defined]
            nested = any_expr(own, lambda x: type(x) in (E.FloorDiv, E.FloorMod))
            if dtype_info(e.dtype).is_int and not nested and any_expr(own, lambda x: x is var):
                found.add(c)

    visit(body, on_expr)
    return found


def _bound_inside(body: S.Stmt) -> set[E.Var]:
    """Variables that statements and expressions of the body give values to."""
    found: set[E.Var] = set()

    def on_expr(x: E.Expr) -> None:
        if isinstance(x, E.Let):
            found.add(x.var)

    def on_stmt(s: S.Stmt) -> None:
        if isinstance(s, (S.For, S.LetStmt)):
            found.add(s.var)

    visit(body, on_expr, on_stmt)
    return found
