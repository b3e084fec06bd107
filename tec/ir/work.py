"""How much work a statement is: a fold over its loops and branches, for whatever is counted.

`Fold` knows what all counts share: statements after each other add up, a loop takes its trips', what is not known has its place in the subclass. What a
count is (clocks as an expression, or a row of numbers) and what a store, a call or a branch adds to it, a subclass says: `clocks` counts those of a core, as an
expression of what is known where a loop begins, for whether it is worth handing out; `choices.footprint` what a kernel asks of a GPU.

A loop whose trips depend on a loop around it takes those of that loop's first trip.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from . import expr as E
from . import stmt as S
from .dtype import dtype_info
from .visit import children, free_vars, substitute, walk_exprs

T = TypeVar("T")

UNKNOWN_TRIPS = 8  # of a loop whose number of trips is read from memory
LONG = 1 << 24  # clocks of what is not counted
CONDITIONS = 64  # that are looked at: more code would count than work
_CALL = 4  # clocks of an operation that is a call


class Fold(Generic[T]):
    """See the module. A subclass gives `zero`, `plus`, `repeated`, `branch`, `let` and `leaf`."""

    zero: T

    def __init__(self) -> None:
        self.first: dict[E.Var, E.Expr] = {}  # of loops: the variable at the first trip

    def stmt(self, s: S.Stmt) -> T:
        """The count of a statement."""
        if isinstance(s, S.Seq):
            total = self.zero
            for x in s.stmts:
                total = self.plus(total, self.stmt(x))
            return total
        if isinstance(s, S.For):
            extent = substitute(s.extent, self.first)
            self.first[s.var] = substitute(s.min, self.first)
            return self.repeated(s, extent, self.stmt(s.body))
        if isinstance(s, S.IfThenElse):
            cond = s.cond.args[0] if isinstance(s.cond, E.Call) and s.cond.op == "likely" else s.cond
            then, orelse = self.stmt(s.then), self.zero if s.orelse is None else self.stmt(s.orelse)
            return self.branch(substitute(cond, self.first), then, orelse)
        if isinstance(s, S.LetStmt):
            return self.plus(self.let(s), self.stmt(s.body))
        if isinstance(s, (S.Alloc, S.Attr)):
            return self.stmt(s.body)
        return self.leaf(s)

    # ---- what is counted

    def plus(self, a: T, b: T) -> T:
        """Of two statements one after the other."""
        raise NotImplementedError

    def repeated(self, loop: S.For, extent: E.Expr, once: T) -> T:
        """Of a loop whose body counts `once`; `extent` at the first trip of the loops around."""
        raise NotImplementedError

    def branch(self, cond: E.Expr, then: T, orelse: T) -> T:
        """Of two sides, one of which is taken; `cond` at the first trip of the loops around."""
        raise NotImplementedError

    def let(self, s: S.LetStmt) -> T:
        """Of the value that is bound, without the body."""
        raise NotImplementedError

    def leaf(self, s: S.Stmt) -> T:
        """Of a statement that has no other inside, or is a While."""
        raise NotImplementedError


def operands(x: E.Expr) -> tuple[E.Expr, ...]:
    """What an operation is of; a product that is added to something is one operation with it."""
    below = children(x)
    if isinstance(x, E.Add):
        return tuple(y for c in below for y in (children(c) if isinstance(c, E.Mul) else (c,)))
    return below


# ---- clocks of a core


def clocks(s: S.Stmt, is_known: Callable[[E.Var], bool], vector_bytes: int) -> E.Expr:
    """Clocks that a statement takes of one core, an int64 expression of variables that are known (`is_known`).

    A rough count: an operation of a vector is a clock, a load or a store of memory half of one, a multiplication that is added to something nothing. Calls, and loops
    without a number of trips, are taken to be long.
    """
    halves = _Clocks(is_known, vector_bytes).stmt(s)
    if isinstance(halves, int):
        return _wide(halves // 2 + 1)
    return E.Add(E.FloorDiv(halves, _wide(2)), _wide(1))


class _Clocks(Fold[E.Expr | int]):
    """Counts halves of clocks."""

    zero = 0

    def __init__(self, is_known: Callable[[E.Var], bool], vector_bytes: int):
        super().__init__()
        self.is_known, self.vector_bytes = is_known, vector_bytes
        self.conditions = 0

    def plus(self, a: E.Expr | int, b: E.Expr | int) -> E.Expr | int:
        return _sum(a, b)

    def let(self, s: S.LetStmt) -> int:
        return self.expr(s.value)

    def leaf(self, s: S.Stmt) -> int:
        if isinstance(s, S.BufferStore):
            return self._moved(s.buffer.scope, s.value) + self.expr(s.value)
        return 1 if isinstance(s, S.Assert) else 2 * LONG

    def branch(self, cond: E.Expr, then: E.Expr | int, orelse: E.Expr | int) -> E.Expr | int:
        """Of the side that is taken, where that is known: rows of a tile beyond the end. Else of both."""
        if isinstance(then, int) and isinstance(orelse, int) and then == orelse:
            return then
        if self.conditions == CONDITIONS or not self._is_size(cond):
            return _sum(then, orelse)
        self.conditions += 1
        return E.Select(cond, _wide(then), _wide(orelse))

    def _is_size(self, e: E.Expr) -> bool:
        """Whether a value is made of what is known."""
        read = any(isinstance(x, (E.BufferLoad, E.Call)) for x in walk_exprs(e))
        return not read and all(map(self.is_known, free_vars(e)))

    def repeated(self, loop: S.For, extent: E.Expr, once: E.Expr | int) -> E.Expr | int:
        if isinstance(extent, E.IntImm):
            return _times(max(1, extent.value), once)
        if not self._is_size(extent):
            return _times(UNKNOWN_TRIPS, once)
        trips = extent if extent.dtype == "int64" else E.Cast("int64", extent)
        return _times(E.Max(trips, E.IntImm(0, "int64")), once)

    def expr(self, e: E.Expr) -> int:
        """Of a value; what is inside of an index is not counted."""
        total = 0
        stack, seen = [e], set()
        while stack:
            x = stack.pop()
            if id(x) in seen:
                continue
            seen.add(id(x))
            if isinstance(x, E.BufferLoad):
                total += self._moved(x.buffer.scope, x)
                continue
            below = operands(x)
            stack.extend(below)
            if below and not isinstance(x, (E.Broadcast, E.Ramp)):
                total += 2 * self._vectors(x) * (_CALL if isinstance(x, E.Call) else 1)
        return total

    def _vectors(self, e: E.Expr) -> int:
        info = dtype_info(e.dtype)
        return max(1, -(-info.bytes * info.lanes // self.vector_bytes))

    def _moved(self, scope: str, value: E.Expr) -> int:
        return 0 if scope == "local" else self._vectors(value)


def _sum(a: E.Expr | int, b: E.Expr | int) -> E.Expr | int:
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    return E.Add(_wide(a), _wide(b))


def _times(a: E.Expr | int, b: E.Expr | int) -> E.Expr | int:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    return E.Mul(_wide(a), _wide(b))


def _wide(a: E.Expr | int) -> E.Expr:
    return E.IntImm(min(a, 1 << 48), "int64") if isinstance(a, int) else a
