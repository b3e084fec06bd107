"""Move conditions that do not change in a loop out of it.

    for k in range(n):            if c:
        if c: body       ->           for k in range(n): body

In: any stage. A loop whose whole body is the guarded statement is changed so, and no code is repeated; a condition that
reads memory stays, as the body might write there.

On a CPU a loop that is for the most part rows of a ragged tile, of which each has a condition, stands twice, the second time for one row alone: it has a fraction of the
code, and a step of a decoder or of a recurrent layer has no other.

    for k in range(n):                       if likely(1 < left): for k in range(n): ...
        if likely(0 < left): row0     ->     else:                for k in range(n): row0
        if likely(1 < left): row1
        if likely(2 < left): row2
"""

from __future__ import annotations

from ...target import Target
from .. import expr as E
from .. import stmt as S
from ..arith import Analyzer, conjuncts
from ..effects import effects
from ..func import Func
from ..visit import map_stmt, visit
from .rewrite_util import clone


def hoist_conditions(func: Func, target: Target) -> Func:
    """The function with loop-invariant conditions outside of their loops."""

    def fs(s: S.Stmt) -> S.Stmt:
        out = map_stmt(s, fs, lambda e: e)
        if isinstance(out, S.For) and out.kind != S.ForKind.THREAD:
            out = _hoist(out)
            if isinstance(out, S.For) and out.kind == S.ForKind.SERIAL and not target.is_gpu:
                return _one_row(out)
        return out

    return func.with_body(fs(func.body))


def _hoist(loop: S.For) -> S.Stmt:
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


_ROWS = 3  # or more beside the first: then the second loop has no more than a quarter of the code of the first


def _one_row(loop: S.For) -> S.Stmt:
    """A loop over the rows of a ragged tile as two, the second of its first row."""
    body = loop.body.stmts if isinstance(loop.body, S.Seq) else ()
    if len(body) <= _ROWS or not all(isinstance(x, S.IfThenElse) and x.orelse is None for x in body):
        return loop
    if not all(_is_ragged(x.cond, loop.var) for x in body):  # type: ignore[attr-defined]
        return loop
    ana, rows = Analyzer(), dict[str, list[S.Stmt]]()
    conditions: dict[str, E.Expr] = {}
    for x in body:
        c = ana.simplify(x.cond.args[0])  # type: ignore[attr-defined]
        rows.setdefault(str(c), []).append(x)
        conditions[str(c)] = c
    first, *others = rows
    if len(others) < _ROWS:
        return loop
    with ana.constraint(E.Not(conditions[others[0]])):
        if not all(ana.can_prove(E.Not(conditions[c])) for c in others):
            return loop
    one = loop.with_body(S.Seq(tuple(rows[first])))
    return S.IfThenElse(E.Call("likely", (conditions[others[0]],), "bool"), loop, clone(one, {}))


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
