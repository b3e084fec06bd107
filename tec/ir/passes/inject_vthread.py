"""Turn virtual threads into code of one thread: the work of all of them, side by side.

In: loops of kind thread over "vthread". Out: none left. A loop that does not depend on the virtual thread is kept once,
with the virtual threads inside of it, so that their work interleaves (strided tiles, no bank conflicts, independent
chains of instructions); a buffer that each virtual thread fills with its own values gets a copy for each.
"""

from __future__ import annotations

from ...target import Target
from .. import expr as E
from .. import stmt as S
from ..buffer import Buffer
from ..effects import effects
from ..func import Func
from ..visit import any_expr, any_stmt, holds, map_stmt, map_stmts, visit
from .rewrite_util import clone, const_int, redirected, reshaped


def inject_vthread(func: Func, target: Target) -> Func:
    """No vthread loop left; see the module."""
    return func.with_body(_stmt(func.body))


def _stmt(s: S.Stmt) -> S.Stmt:
    out = map_stmts(s, _stmt)
    if isinstance(out, S.For) and out.kind == S.ForKind.THREAD and out.thread == "vthread":
        extent = const_int(out.extent)
        if extent == 1:
            return clone(out.body, {out.var: out.min})
        if extent is None:
            return S.For(out.var, out.min, out.extent, out.body)
        return _Injector(out).stmt(out.body)
    return out


def _is_straight(s: S.Stmt) -> bool:
    """Whether a nest of unrolled loops around one store: nothing but straight-line code in the end."""
    while isinstance(s, S.For) and s.kind == S.ForKind.UNROLLED:
        s = s.body
    return isinstance(s, S.BufferStore)


class _Injector:
    def __init__(self, loop: S.For):
        self.loop = loop
        self.varying: set[int] = {id(loop.var)}  # variables that depend on the virtual thread
        self.touched = self._touched(loop.body)
        self.copies: dict[int, Buffer] = {}

    def _touched(self, body: S.Stmt) -> set[int]:
        """Buffers allocated inside whose contents depend on the virtual thread."""
        local: set[int] = set()
        visit(body, None, lambda s: local.add(id(s.buffer)) if isinstance(s, S.Alloc) else None)
        touched: set[int] = set()
        while True:
            before = len(touched), len(self.varying)

            def depends(root: E.Expr) -> bool:
                return any_expr(root, lambda e: self._is_varying(e, touched))

            def go(s: S.Stmt, under: bool) -> None:
                if isinstance(s, S.For):
                    under = under or depends(s.min) or depends(s.extent)
                elif isinstance(s, S.LetStmt):
                    if depends(s.value):
                        self.varying.add(id(s.var))
                elif isinstance(s, (S.IfThenElse, S.While)):
                    under = under or depends(s.cond)
                elif isinstance(s, S.BufferStore) and id(s.buffer) in local:
                    if under or any(depends(e) for e in (s.value, *s.indices)):
                        touched.add(id(s.buffer))
                elif isinstance(s, S.AllReduce) and any(depends(e) for e in (*s.values, s.predicate)):
                    touched.update(id(d) for d in s.dests)

                def child(x: S.Stmt) -> S.Stmt:
                    go(x, under)
                    return x

                def called(e: E.Expr) -> E.Expr:
                    if under or depends(e):
                        touched.update(effects(e).writes & local)
                    return e

                map_stmt(s, child, called)

            go(body, False)
            if before == (len(touched), len(self.varying)):
                return touched

    def _is_varying(self, e: E.Expr, touched: set[int]) -> bool:
        return id(e) in self.varying or (type(e) is E.BufferLoad and id(e.buffer) in touched)

    def depends(self, root: E.Expr | S.Stmt) -> bool:
        def is_touched(s: S.Stmt) -> bool:
            dests = (s.buffer,) if isinstance(s, S.BufferStore) else s.dests if isinstance(s, S.AllReduce) else ()
            return any(id(d) in self.touched for d in dests)

        return any_expr(root, lambda e: self._is_varying(e, self.touched)) or (
            isinstance(root, S.Stmt) and any_stmt(root, is_touched)
        )

    def stmt(self, s: S.Stmt) -> S.Stmt:
        match s:
            case S.Seq():
                return S.seq(*[self.stmt(x) for x in s.stmts])
            case S.Alloc() if not holds(s.body, S.AllReduce):
                if id(s.buffer) not in self.touched:
                    return S.Alloc(s.buffer, self.stmt(s.body), s.notes)
                old = s.buffer
                new = reshaped(old, (self.loop.extent, *old.shape))
                self.copies[id(old)] = new
                return S.Alloc(new, self.stmt(s.body), s.notes.below_new_axis())
            case _ if not self.depends(s):
                return s
            case S.For() if _is_straight(s):
                return self.each(s)  # the order of its statements is the schedule's
            case S.For() if not (self.depends(s.min) or self.depends(s.extent)):
                return s.with_body(self.stmt(s.body))
            case S.IfThenElse() if not self.depends(s.cond):
                orelse = self.stmt(s.orelse) if s.orelse is not None else None
                return S.IfThenElse(s.cond, self.stmt(s.then), orelse)
            case S.LetStmt() if not self.depends(s.value):
                return S.LetStmt(s.var, s.value, self.stmt(s.body))
            case S.Attr():
                return S.Attr(s.note, self.stmt(s.body))
        return self.each(s)

    def each(self, s: S.Stmt) -> S.Stmt:
        """`s` once for each virtual thread."""
        var = E.Var(self.loop.var.name, self.loop.var.dtype)
        body = self._own_copy(clone(s, {self.loop.var: var}), var)
        return S.For(var, self.loop.min, self.loop.extent, body, S.ForKind.UNROLLED)

    def _own_copy(self, s: S.Stmt, var: E.Var) -> S.Stmt:
        if not self.copies:
            return s
        which = E.Sub(var, self.loop.min) if not (const_int(self.loop.min) == 0) else var
        return redirected(s, self.copies, which)
