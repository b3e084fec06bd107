"""Blocks of short rows side by side, as strips that run a row at a time: what is read and written goes on along lines of memory that are fetched ahead.

    for x in blocks:                                 for s in strips:
        if inside(x):                                    if inside(16 s) and inside(16 s + 15):
            for i in rows: for j in row: a       ->          for i in rows: for x in 16 blocks: for j in row: a
        else: b                                          else: block by block

Blocks are independent, so their threads may take turns.
"""

from __future__ import annotations

from typing import TypeGuard

from .. import build as B
from .. import expr as E
from .. import stmt as S
from ..arith import Analyzer, conjuncts
from ..visit import substitute, substitute_stmt
from .rewrite_util import clone, const_int, stmt_size, uses_var

_WIDTH = 256  # threads of a strip's row: 1 KiB of float32, of which the first lines are waited for
_MOST_STATEMENTS = 100  # of a block whose inner part is written out once more


def strips(across: S.For, body: S.Stmt, width: int) -> tuple[S.For, S.Stmt] | None:
    """In: the loop over blocks that lie beside each other, what a block of `width` threads a row does. Out: the loop over strips, and what a strip does; None where rows are long, or
    blocks have no inner part of rows."""
    count = _WIDTH // width
    if count < 2 or stmt_size(body) > _MOST_STATEMENTS or not isinstance(body, S.IfThenElse):
        return None
    if not _is_rows(body.then, across.var) or not _is_whole(body.cond, across.var):
        return None
    number = E.Var("strip", "int32", True)
    made = _with_edges(across, B.mul(number, count), count, body, body.then)
    extent = B.floordiv(B.add(across.extent, count - 1), count)
    return S.For(number, E.IntImm(0), extent, made, across.kind), made


def _with_edges(across: S.For, first: E.Expr, count: int, body: S.IfThenElse, rows: S.For) -> S.Stmt:
    """A strip by rows where all blocks have inner parts alone, or all but those at its ends."""
    var, last = across.var, B.add(first, count - 1)

    def by_rows(begin: E.Expr, n: int) -> S.Stmt:
        beside = E.Var(var.name, var.dtype, True)
        inner = substitute_stmt(rows.body, {var: B.add(begin, beside)})
        return clone(rows.with_body(S.For(beside, E.IntImm(0), E.IntImm(n), inner)), {})

    def inside(begin: E.Expr, end: E.Expr) -> E.Expr:
        return B.all_of(
            B.compare("lt", last, across.extent), *(substitute(body.cond, {var: at}) for at in (begin, end))
        )

    made: S.Stmt = S.For(var, first, B.minimum(count, B.sub(across.extent, first)), body)
    if count > 2:
        end = E.Var("end", var.dtype, True)
        ends = substitute_stmt(body, {var: B.add(first, B.mul(end, count - 1))})
        second = B.add(first, 1)
        parts = S.seq(S.For(end, E.IntImm(0), E.IntImm(2), clone(ends, {})), by_rows(second, count - 2))
        made = S.IfThenElse(inside(second, B.sub(last, 1)), parts, clone(made, {}))
    return S.IfThenElse(inside(first, last), by_rows(first, count), made)


def _is_rows(s: S.Stmt, block: E.Var) -> TypeGuard[S.For]:
    """Whether it goes over rows of threads, the same ones in blocks beside each other."""
    return (
        isinstance(s, S.For)
        and isinstance(s.body, S.For)
        and not uses_var(s.extent, block)
        and not uses_var(s.min, block)
    )


def _is_whole(cond: E.Expr, var: E.Var) -> bool:
    """Whether a condition that holds for two values holds for all between them: comparisons of what grows evenly."""
    analyzer = Analyzer()
    for c in conjuncts(cond):
        if not uses_var(c, var):
            continue
        found = analyzer.detect_linear(B.sub(c.a, c.b), [var]) if isinstance(c, (E.LT, E.LE, E.GT, E.GE)) else None
        if found is None or const_int(found[0]) is None:
            return False
    return True
