"""Guards of kernels whose threads run as loops, `if 0 < first + t < n`, as first steps and ends of these loops."""

from __future__ import annotations

from .. import build as B
from .. import expr as E
from .. import stmt as S
from ..arith import Analyzer, conjuncts
from ..dtype import dtype_info
from ..effects import effects
from ..visit import map_stmts, substitute_stmt


def inlined(s: S.Stmt) -> S.Stmt:
    """`s` with lets of indices in place of their variables, so that loops see what addresses are made of."""
    if isinstance(s, S.LetStmt) and dtype_info(s.var.dtype).kind in ("int", "bool") and effects(s.value).is_constant:
        if not effects(s.value).is_varying:
            return inlined(substitute_stmt(s.body, {s.var: s.value}))
    return map_stmts(s, inlined)


Ends = dict[int, list[E.Expr]]  # of loops, by their variables' ids


def trimmed(s: S.Stmt, loops: list[E.Var]) -> tuple[S.Stmt, Ends, Ends]:
    """A loop nest's body without guards that only begin a loop later or end it early, `if 0 < first + t < n`, and those first steps and ends."""
    starts: Ends = {}
    ends: Ends = {}
    ana = Analyzer()

    def end(c: E.Expr) -> bool:
        if not isinstance(c, (E.LT, E.LE, E.GT, E.GE)) or c.a.dtype != "int32" or not effects(c).is_constant:
            return False
        strict = isinstance(c, (E.LT, E.GT))
        room = B.sub(c.b, c.a) if isinstance(c, (E.LT, E.LE)) else B.sub(c.a, c.b)  # above 0, or at least 0
        terms = ana.detect_linear(room, loops)
        if terms is None:
            return False
        *coeffs, rest = [ana.simplify(x) for x in terms]
        moving = [(v, x) for v, x in zip(loops, coeffs) if not (isinstance(x, E.IntImm) and x.value == 0)]
        if len(moving) != 1 or not isinstance(moving[0][1], E.IntImm) or abs(moving[0][1].value) != 1:
            return False
        if moving[0][1].value == -1:
            ends.setdefault(id(moving[0][0]), []).append(rest if strict else B.add(rest, 1))
        else:
            starts.setdefault(id(moving[0][0]), []).append(B.sub(1 if strict else 0, rest))
        return True

    def strip(x: S.Stmt) -> S.Stmt:
        if isinstance(x, S.Alloc):
            return S.Alloc(x.buffer, strip(x.body), x.notes)
        if isinstance(x, S.IfThenElse) and x.orelse is None:
            conds = conjuncts(x.cond)
            kept = [c for c in conds if not end(c)]
            inner = strip(x.then) if not kept or len(kept) < len(conds) else x.then
            return S.IfThenElse(B.all_of(*kept), inner, None, x.loc) if kept else inner
        return x

    return strip(s), starts, ends


def is_store(s: S.Stmt) -> bool:
    """Whether a region is one store, possibly behind values that it uses: code that is short enough to stand twice."""
    while isinstance(s, S.LetStmt):
        s = s.body
    return isinstance(s, S.BufferStore)
