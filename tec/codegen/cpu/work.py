"""How long a loop takes of one core, in clocks, as an expression of what is known where it begins: whether it is worth handing out.

A rough count: an operation of a vector is a clock, a load or a store of memory half of one, a multiplication that is added to something nothing. A loop takes
its trips'; where they depend on a loop around it, those of that loop's first trip, and `UNKNOWN_TRIPS` where they are read from memory. Calls, and
loops without a number of trips, are taken to be long.
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir import expr as E
from ...ir import stmt as S
from ...ir.dtype import dtype_info
from ...ir.visit import children, free_vars, substitute, walk_exprs

LONG = 1 << 24  # clocks of what is not counted
UNKNOWN_TRIPS = 8
CONDITIONS = 64  # that are looked at: more code would count than work
_CALL = 4  # clocks of an operation that is a call


def clocks(s: S.Stmt, is_known: Callable[[E.Var], bool], vector_bytes: int) -> E.Expr:
    """Clocks of a statement, an int64 expression of variables that are known."""
    halves = _Count(is_known, vector_bytes).stmt(s)
    if isinstance(halves, int):
        return _wide(halves // 2 + 1)
    return E.Add(E.FloorDiv(halves, _wide(2)), _wide(1))


class _Count:
    """Counts halves of clocks."""

    def __init__(self, is_known: Callable[[E.Var], bool], vector_bytes: int):
        self.is_known, self.vector_bytes = is_known, vector_bytes
        self.conditions = 0
        self.first: dict[E.Var, E.Expr] = {}  # of loops: the variable at the first trip

    def stmt(self, s: S.Stmt) -> E.Expr | int:
        if isinstance(s, S.Seq):
            total: E.Expr | int = 0
            for x in s.stmts:
                total = _sum(total, self.stmt(x))
            return total
        if isinstance(s, S.For):
            trips = self._trips(s)
            self.first[s.var] = substitute(s.min, self.first)
            return _times(trips, self.stmt(s.body))
        if isinstance(s, S.IfThenElse):
            return self._branch(s)
        if isinstance(s, S.LetStmt):
            return _sum(self.expr(s.value), self.stmt(s.body))
        if isinstance(s, S.BufferStore):
            return self._moved(s.buffer.scope, s.value) + self.expr(s.value)
        if isinstance(s, (S.Alloc, S.Attr)):
            return self.stmt(s.body)
        if isinstance(s, S.Assert):
            return 1
        return 2 * LONG

    def _branch(self, s: S.IfThenElse) -> E.Expr | int:
        """Of the side that is taken, where that is known: rows of a tile beyond the end. Else of both."""
        then, orelse = self.stmt(s.then), 0 if s.orelse is None else self.stmt(s.orelse)
        cond = s.cond.args[0] if isinstance(s.cond, E.Call) and s.cond.op == "likely" else s.cond
        cond = substitute(cond, self.first)
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

    def _trips(self, s: S.For) -> E.Expr | int:
        extent = substitute(s.extent, self.first)
        if isinstance(extent, E.IntImm):
            return max(1, extent.value)
        if not self._is_size(extent):
            return UNKNOWN_TRIPS
        trips = extent if extent.dtype == "int64" else E.Cast("int64", extent)
        return E.Max(trips, E.IntImm(0, "int64"))

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
            below = children(x)
            if isinstance(x, E.Add):
                below = tuple(y for c in below for y in (children(c) if isinstance(c, E.Mul) else (c,)))
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
