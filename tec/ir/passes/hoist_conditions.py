"""Move conditions that do not change in a loop out of it.

    for k in range(n):            if c:
        if c: body       ->           for k in range(n): body

In: any stage. Only a loop whose whole body is the guarded statement is changed, so no code is repeated; a condition that
reads memory stays, as the body might write there.
"""

from __future__ import annotations

from ...target import Target
from .. import expr as E
from .. import stmt as S
from ..effects import effects
from ..func import Func
from ..visit import map_stmt, visit


def hoist_conditions(func: Func, target: Target) -> Func:
    """The function with loop-invariant conditions outside of their loops."""

    def fs(s: S.Stmt) -> S.Stmt:
        out = map_stmt(s, fs, lambda e: e)
        if isinstance(out, S.For) and out.kind != S.ForKind.THREAD:
            return _hoist(out)
        return out

    return func.with_body(fs(func.body))


def _hoist(loop: S.For) -> S.Stmt:
    conds: list[E.Expr] = []
    body = loop.body
    while isinstance(body, S.IfThenElse) and body.orelse is None:
        conds.extend(_conjuncts(body.cond))
        body = body.then
    outside = [c for c in conds if _is_invariant(c, loop.var)]
    if not outside or not all(effects(c).is_constant for c in conds):
        return loop
    inside = [c for c in conds if not _is_invariant(c, loop.var)]
    for c in reversed(inside):
        body = S.IfThenElse(c, body)
    out: S.Stmt = S.For(loop.var, loop.min, loop.extent, body, loop.kind, loop.thread, loop.annotations)
    for c in reversed(outside):
        out = S.IfThenElse(c, out)
    return out


def _conjuncts(e: E.Expr) -> list[E.Expr]:
    return [*_conjuncts(e.a), *_conjuncts(e.b)] if type(e) is E.And else [e]


def _is_invariant(c: E.Expr, var: E.Var) -> bool:
    used = False

    def on_expr(x: E.Expr) -> None:
        nonlocal used
        used = used or x is var

    visit(c, on_expr)
    return not used
