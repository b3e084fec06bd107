"""Ask at run time what is not known when compiling: whether each access is inside of its buffer.

In: a CPU function of stage "loops". Out: the same with an Assert before each statement whose accesses cannot be proved to be
inside, under the conditions that the access stands under; what is proved costs nothing. A failed Assert names the te line,
and stops the function before the access is made. `attrs["unproved"]` lists what is asked. Part of the pipeline with
`TEC_CHECK=bounds` alone; the software GPU checks by itself.
"""

from __future__ import annotations

from ...errors import Loc
from ...target import Target
from .. import build as B
from .. import expr as E
from .. import stmt as S
from ..access_bounds import Access, describe_shape, is_inside
from ..arith import Analyzer
from ..buffer import FRAGMENT_SCOPES, Buffer
from ..effects import lasting
from ..func import Func
from ..visit import children, map_stmt, map_stmts, visit

# Of an element that need not be there: one past the end, for instance.
_POINTERS = ("access_ptr", "address_of", "prefetch")


def check_bounds(func: Func, target: Target) -> Func:
    """The function with its accesses asked; see the module."""
    if target.is_gpu:
        return func
    checker = _Checker()
    body = checker.stmt(func.body)
    return func.with_body(body, unproved=tuple(dict.fromkeys(checker.unproved)))


class _Checker:
    def __init__(self) -> None:
        self.ana = Analyzer()
        self.unproved: list[str] = []
        self.loc: Loc | None = None

    # ---- statements

    def stmt(self, s: S.Stmt) -> S.Stmt:
        """A statement behind the questions whether its accesses lie in their buffers."""
        asked: list[S.Stmt] = []
        self.loc = _loc_of(s)

        def expr(e: E.Expr) -> E.Expr:
            asked.extend(self.asserts(e))
            return e

        match s:
            case S.For():
                expr(s.min), expr(s.extent)
                with self.ana.scope():
                    self.ana.bind(s.var, E.Range(s.min, s.extent))
                    out: S.Stmt = map_stmts(s, self.stmt)
            case S.IfThenElse():
                expr(s.cond)
                with self.ana.constraint(lasting(s.cond, s.then)):
                    then = self.stmt(s.then)
                orelse = s.orelse
                if orelse is not None:
                    with self.ana.constraint(lasting(B.logical_not(s.cond), orelse)):
                        orelse = self.stmt(orelse)
                out = S.IfThenElse(s.cond, then, orelse, s.loc)
            case S.LetStmt():
                expr(s.value)
                with self.ana.scope():
                    self.ana.bind_value(s.var, s.value)
                    out = map_stmts(s, self.stmt)
            case S.While():
                expr(s.cond)
                out = S.While(s.cond, S.seq(self.stmt(s.body), *asked), s.loc)
            case S.BufferStore():
                map_stmt(s, self.stmt, expr)
                under = () if s.predicate is None else (s.predicate,)
                asked.extend(self.ask(s.buffer, s.indices, under, "writes"))
                out = s
            case _:
                out = map_stmt(s, self.stmt, expr)
        return S.seq(*asked, out)

    # ---- accesses

    def asserts(self, e: E.Expr) -> list[S.Stmt]:
        """What must hold for `e` to be evaluated, what its indices read first."""
        out: list[S.Stmt] = []
        seen: set[tuple[int, ...]] = set()

        def go(x: E.Expr, around: tuple[E.Expr | E.Let, ...]) -> None:
            key = (id(x), *map(id, around))
            if key in seen:
                return
            seen.add(key)
            if isinstance(x, E.Call) and x.op == "if_then_else":
                cond, yes, no = x.args
                go(cond, around)
                go(yes, (*around, cond))
                go(no, (*around, B.logical_not(cond)))
                return
            if isinstance(x, E.Let):
                go(x.value, around)
                go(x.body, (*around, x))
                return
            if isinstance(x, E.Call) and x.op in _POINTERS:
                for a in x.args[1:]:
                    go(a, around)
                return
            for c in children(x):
                go(c, around)
            if isinstance(x, E.BufferLoad):
                out.extend(
                    self.ask(x.buffer, x.indices, around if x.predicate is None else (*around, x.predicate), "reads")
                )

        go(e, ())
        return out

    def ask(self, buffer: Buffer, indices: tuple[E.Expr, ...], around: tuple[E.Expr, ...], verb: str) -> list[S.Stmt]:
        """An Assert that an access is inside, where that is not proved. `around`: conditions and Lets, outermost first."""
        if buffer.scope in FRAGMENT_SCOPES:
            return []
        guards = [g for g in around if not isinstance(g, E.Let)]
        access = Access(buffer.name, buffer.shape, indices, [g for g in guards if g.dtype == "bool"])
        with self.ana.scope():
            for g in around:
                if isinstance(g, E.Let):
                    self.ana.bind_value(g.var, g.value)
            if is_inside(access, self.ana):
                return []
        parts: list[E.Expr] = []
        for i, n in zip(indices, buffer.shape):
            ends = [i]
            if isinstance(i, E.Ramp):
                ends = [i.base, B.add(i.base, B.mul(i.stride, i.lanes - 1))]
            elif "x" in i.dtype:
                continue
            for x in ends:
                parts += [B.compare("ge", x, 0), B.compare("lt", x, n)]
        with self.ana.scope():
            for g in access.guards:
                self.ana.add_constraint(g)
            parts = [c for c in parts if not self.ana.can_prove(c)]
        if not parts:
            return []
        cond = B.all_of(*parts)
        for g in reversed(around):
            cond = E.Let(g.var, g.value, cond) if isinstance(g, E.Let) else _where(g, cond)
        where = f" at {self.loc}" if self.loc is not None else ""
        text = f"{verb} {access}, outside of {buffer.name} {describe_shape(buffer.shape)},{where}"
        self.unproved.append(f"{self.loc or '?'}: {verb} {access} of {buffer.name} {describe_shape(buffer.shape)}")
        return [S.Assert(cond, text)]


def _where(guard: E.Expr, cond: E.Expr) -> E.Expr:
    if guard.dtype != "bool":
        return cond  # lanes: asked for all of them
    return E.Call("if_then_else", (guard, cond, B.const(True)), "bool")


def _loc_of(s: S.Stmt) -> Loc | None:
    """The line of a statement, or the te line of the first store in it."""
    found: Loc | None = getattr(s, "loc", None)

    def on_stmt(x: S.Stmt) -> None:
        nonlocal found
        if found is None and isinstance(x, (S.BufferStore, S.AllReduce)):
            found = x.loc

    visit(s, None, on_stmt)
    return found
