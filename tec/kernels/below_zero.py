"""Indices that are below zero wherever they are reached: `a[-1 - j]` in a loop from 0 on. Python counts them from the end, a kernel at run time does not.

In: the loop IR of a kernel. Out: a KernelError with the line of the first, or nothing. A constant index counts from the end and is none of them.
"""

from __future__ import annotations

from ..errors import KernelError, Loc
from ..ir import expr as E
from ..ir import stmt as S
from ..ir.arith.intervals import Interval, interval_of
from ..ir.visit import map_stmt, walk_exprs

_MOST = 2**62  # more than any loop counts to


def refuse_below_zero(body: S.Stmt) -> None:
    """Raises KernelError for an index that is negative for every value of the loops around it."""
    known: dict[int, Interval] = {}
    loc: Loc | None = None

    def ask(name: str, indices: tuple[E.Expr, ...]) -> None:
        for k, i in enumerate(indices):
            at = interval_of(i, known)
            if at is not None and at[1] < 0:
                raise KernelError(
                    f"index {k} of {name} is {i}, which is below zero wherever it is reached",
                    where=loc,
                    hint=f"an index that is known at run time does not count from the end: {name}.shape[{k}] + the index",
                )

    def expr(e: E.Expr) -> E.Expr:
        for x in walk_exprs(e):
            if isinstance(x, E.BufferLoad):
                ask(x.buffer.name, x.indices)
        return e

    def stmt(s: S.Stmt) -> S.Stmt:
        nonlocal loc
        loc = getattr(s, "loc", None) or loc
        if isinstance(s, S.For):
            low, count = interval_of(s.min, known), interval_of(s.extent, known)
            if low is not None:
                known[id(s.var)] = low[0], low[1] + (count[1] - 1 if count is not None else _MOST)
        elif isinstance(s, S.LetStmt):
            value = interval_of(s.value, known)
            if value is not None:
                known[id(s.var)] = value
        elif isinstance(s, S.BufferStore):
            ask(s.buffer.name, s.indices)
        return map_stmt(s, stmt, expr)

    stmt(body)
