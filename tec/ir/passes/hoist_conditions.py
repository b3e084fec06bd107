"""Move conditions that do not change in a loop out of it.

    for k in range(n):            if c:
        if c: body       ->           for k in range(n): body

In: any stage. A loop whose whole body is the guarded statement is changed so, and no code is repeated; a condition that
reads memory stays, as the body might write there.

On a CPU a loop over the rows of a ragged tile, of which each has a condition, becomes one loop for each number of rows. Sums then stay in registers: with conditions inside,
they do only where LLVM takes them all out of the loop, which it stops doing from some 24 sums on.

    for k in range(n):                       if likely(2 < left): for k in range(n): row0; row1; row2
        if likely(0 < left): row0     ->     else: if likely(1 < left): for k in range(n): row0; row1
        if likely(1 < left): row1            else: for k in range(n): row0
        if likely(2 < left): row2
"""

from __future__ import annotations

from itertools import pairwise

from ...target import Target
from .. import expr as E
from .. import stmt as S
from ..arith import Analyzer, conjuncts
from ..effects import effects
from ..func import Func
from ..visit import map_stmts, visit
from .rewrite_util import clone


def hoist_conditions(func: Func, target: Target) -> Func:
    """The function with loop-invariant conditions outside of their loops."""

    def fs(s: S.Stmt) -> S.Stmt:
        out = map_stmts(s, fs)
        if isinstance(out, S.For) and out.kind != S.ForKind.THREAD:
            out = hoisted(out)
            if isinstance(out, S.For) and out.kind == S.ForKind.SERIAL and not target.is_gpu:
                return _by_rows(out)
        return out

    return func.with_body(fs(func.body))


def hoisted(loop: S.For) -> S.Stmt:
    """A loop inside of the conditions that it does not change; itself where it has none."""
    conds: list[E.Expr] = []
    body = loop.body
    while isinstance(body, S.IfThenElse) and body.orelse is None:
        conds.extend(conjuncts(body.cond))
        body = body.then
    outside = [c for c in conds if _is_invariant(c, loop.var)]
    if not outside or not all(effects(c).is_constant for c in conds):
        return loop
    inside = [c for c in conds if not _is_invariant(c, loop.var)]
    for c in reversed(inside):
        body = S.IfThenElse(c, body)
    out: S.Stmt = loop.with_body(body)
    for c in reversed(outside):
        out = S.IfThenElse(c, out)
    return out


_ROWS = 3  # or more beside the first: LLVM takes the conditions of fewer out by itself
# Of all loops of a ragged tile; of a larger one the loop with conditions stays, beside that of one row.
_MOST_STATEMENTS = 800


def _by_rows(loop: S.For) -> S.Stmt:
    """A loop over the rows of a ragged tile as one for each number of rows, the most first."""
    body = loop.body.stmts if isinstance(loop.body, S.Seq) else ()
    if len(body) <= _ROWS or not all(isinstance(x, S.IfThenElse) and x.orelse is None for x in body):
        return loop
    if not all(_is_ragged(x.cond, loop.var) for x in body):  # type: ignore[attr-defined]
        return loop
    ana, rows = Analyzer(), dict[str, int]()  # condition -> the number of its row
    conditions: list[E.Expr] = []
    own: list[int] = []  # of each statement the number of its row
    for x in body:
        c = ana.simplify(x.cond.args[0])  # type: ignore[attr-defined]
        own.append(rows.setdefault(str(c), len(rows)))
        if len(rows) > len(conditions):
            conditions.append(c)
    if len(rows) <= _ROWS or not _each_implies_the_one_before(ana, conditions):
        return loop

    def of(stmts: list[S.Stmt]) -> S.Stmt:
        return clone(loop.with_body(S.Seq(tuple(stmts))), {})

    out = of([x for x, row in zip(body, own) if row == 0])
    if len(body) * len(rows) // 2 > _MOST_STATEMENTS:
        return S.IfThenElse(E.Call("likely", (conditions[1],), "bool"), of(list(body)), out)
    for last, c in enumerate(conditions[1:], 1):
        # The statements keep their order, and lose their conditions: the one around holds for all of these rows.
        some = [x.then for x, row in zip(body, own) if row <= last]  # type: ignore[attr-defined]
        out = S.IfThenElse(E.Call("likely", (c,), "bool"), of(some), out)
    return out


def _each_implies_the_one_before(ana: Analyzer, conditions: list[E.Expr]) -> bool:
    """Whether a row's condition fails wherever that of the row before it does."""
    for before, after in pairwise(conditions):
        with ana.constraint(E.Not(before)):
            if not ana.can_prove(E.Not(after)):
                return False
    return True


def _is_ragged(c: E.Expr, var: E.Var) -> bool:
    """A guard of a split that the loop does not change."""
    return type(c) is E.Call and c.op == "likely" and _is_invariant(c, var) and effects(c).is_constant


def _is_invariant(c: E.Expr, var: E.Var) -> bool:
    used = False

    def on_expr(x: E.Expr) -> None:
        nonlocal used
        used = used or x is var

    visit(c, on_expr)
    return not used
