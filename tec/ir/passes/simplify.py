"""Simplify every expression with what its place in the program implies: loop ranges, branch conditions, let values.

Unit loops lose their variable, branches and assertions that are decided lose their test. The function itself comes back
where nothing changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...target import Target
from .. import expr as E
from .. import stmt as S
from ..arith import Analyzer
from ..buffer import Buffer
from ..effects import is_kept, lasting
from ..func import Func
from ..intrin import INTRINS
from ..schema import map_tuple
from ..visit import map_expr, map_stmt, walk_exprs


def simplify(func: Func, target: Target) -> Func:
    """The function with simplified expressions."""
    ana = Analyzer()
    for p in func.params:
        if isinstance(p, Buffer) and p.offset_factor and isinstance(p.elem_offset, E.Var):
            ana.bind_modulus(p.elem_offset, p.offset_factor)
    for var, extent in (func.attrs.get("threads") or {}).values():
        ana.bind(var, E.Range(E.IntImm(0, var.dtype), extent))
    return func.with_body(_Walk(ana, func.body).stmt(func.body))


def _kept_calls(e: E.Expr) -> list[str]:
    """The calls below `e` that do more than give a value; a node that is shared counts once."""
    return sorted(x.op for x in walk_exprs(e) if type(x) is E.Call and INTRINS[x.op].is_kept)


class _Walk:
    def __init__(self, ana: Analyzer, body: S.Stmt):
        self.ana = ana
        self.has_kept = is_kept(body)

    def expr(self, e: E.Expr) -> E.Expr:
        if self.ana.is_plain(e):
            return e
        out: E.Expr = self.ana.simplify(e)
        if self.has_kept and out is not e and is_kept(e) and _kept_calls(out) != _kept_calls(e):
            return map_expr(e, self.expr)  # `x * 0` is 0, and x happens all the same
        return out

    def stmt(self, s: S.Stmt) -> S.Stmt:
        handler = _HANDLERS.get(type(s))
        return handler(self, s) if handler is not None else map_stmt(s, self.stmt, self.expr)

    def loop(self, s: S.For) -> S.Stmt:
        low, extent = self.expr(s.min), self.expr(s.extent)
        if isinstance(extent, E.IntImm) and extent.value <= 0:
            return S.NOP
        with self.ana.scope():
            self.ana.bind(s.var, E.Range(low, extent))
            if not isinstance(extent, E.IntImm):
                self.ana.add_constraint(E.GE(extent, E.IntImm(1, extent.dtype)))  # the body runs
            body = self.stmt(s.body)
        if low is s.min and extent is s.extent and body is s.body:
            return s
        return s.with_range(low, extent, body)

    def branch(self, s: S.IfThenElse) -> S.Stmt:
        cond = self.expr(s.cond)
        if isinstance(cond, E.IntImm):
            if cond.value:
                return self.stmt(s.then)
            return self.stmt(s.orelse) if s.orelse is not None else S.NOP
        with self.ana.constraint(lasting(cond, s.then)):
            then = self.stmt(s.then)
        orelse = s.orelse
        if orelse is not None:
            with self.ana.constraint(lasting(E.Not(cond), orelse)):
                orelse = self.stmt(orelse)
        if cond is s.cond and then is s.then and orelse is s.orelse:
            return s
        return S.IfThenElse(cond, then, orelse, s.loc)

    def let(self, s: S.LetStmt) -> S.Stmt:
        value = self.expr(s.value)
        with self.ana.scope_of(s.var):
            self.ana.bind_value(s.var, value)
            body = self.stmt(s.body)
        if isinstance(value, (E.Var, E.IntImm, E.FloatImm)):
            return body  # the binding replaced every use
        return s if value is s.value and body is s.body else S.LetStmt(s.var, value, body, s.loc)

    def check(self, s: S.Assert) -> S.Stmt:
        cond = self.expr(s.cond)
        if isinstance(cond, E.IntImm) and cond.value:
            return S.NOP
        return s if cond is s.cond else S.Assert(cond, s.message)

    def seq(self, s: S.Seq) -> S.Stmt:
        """What an assertion says holds for the statements after it."""
        if not any(isinstance(x, S.Assert) for x in s.stmts):
            stmts = map_tuple(s.stmts, self.stmt)
            return s if stmts is s.stmts else S.seq(*stmts)
        out: list[S.Stmt] = []
        with self.ana.scope():
            for k, x in enumerate(s.stmts):
                out.append(self.stmt(x))
                if isinstance(x, S.Assert):
                    self.ana.add_constraint(lasting(x.cond, S.Seq(s.stmts[k + 1 :])))
        return s if all(a is b for a, b in zip(out, s.stmts)) else S.seq(*out)


_HANDLERS: dict[type, Callable[[_Walk, Any], S.Stmt]] = {
    S.For: _Walk.loop,
    S.IfThenElse: _Walk.branch,
    S.LetStmt: _Walk.let,
    S.Assert: _Walk.check,
    S.Seq: _Walk.seq,
}
