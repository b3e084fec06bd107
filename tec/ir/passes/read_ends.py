"""The ends of loops whose guard reads them from memory: rows of a sparse matrix.

    for e in range(nz):                                   for e in range(max(min(nz, P[i + 1] - P[i]), 0)):
        if e < P[i + 1] - P[i]:                   ->          C[i] = C[i] + D[P[i] + e]
            C[i] = C[i] + D[P[i] + e]

In: serial loops around nothing but an `if` without `else`. Out: loops over the iterations that pass those conditions that read memory which the loop does not write
and that hold for a run of its variable. Conditions that read nothing are
`partition_loops`'.
"""

from __future__ import annotations

from .. import build as B
from .. import expr as E
from .. import stmt as S
from ..arith import conjuncts
from ..effects import effects
from ..visit import any_expr, any_stmt, map_stmts
from .rewrite_util import uses_var

_ORDER = (E.LT, E.LE, E.GT, E.GE)


def with_read_ends(s: S.Stmt) -> S.Stmt:
    """The statement with such loops; see the module."""
    return _stmt(s) if any_stmt(s, _asks_memory) else s


def _asks_memory(s: S.Stmt) -> bool:
    return isinstance(s, S.IfThenElse) and any(map(_reads, conjuncts(s.cond)))


def _reads(e: E.Expr) -> bool:
    return any_expr(e, lambda x: type(x) is E.BufferLoad)


def _stmt(s: S.Stmt) -> S.Stmt:
    """A statement whose loops that read under a condition of their own number end where the condition does."""
    s = map_stmts(s, _stmt)
    if not isinstance(s, S.For) or s.kind != S.ForKind.SERIAL or s.pipelined:
        return s
    if not isinstance(s.body, S.IfThenElse) or s.body.orelse is not None:
        return s
    inside = effects(s.body)
    if inside.is_opaque or inside.collective:
        return s
    begin, end = s.min, B.add(s.min, s.extent)
    outside: list[E.Expr] = []  # what the loop does not change: it guards the reads of the ends
    left: list[E.Expr] = []
    ends = 0
    for c in conjuncts(s.body.cond):
        mine = effects(c)
        stable = not mine.is_kept and not mine.reads & inside.writes
        found = _end(c, s.var) if stable and mine.accesses else None
        if found is not None:
            at = B.cast(end.dtype, found[0])
            begin, end = (begin, B.minimum(end, at)) if found[1] else (B.maximum(begin, at), end)
            ends += 1
        elif stable and not uses_var(c, s.var) and not ends:
            outside.append(c)
        else:
            left.append(c)
    if not ends:
        return s
    body = S.IfThenElse(B.all_of(*left), s.body.then, None, s.body.loc) if left else s.body.then
    loop = s.with_range(begin, B.maximum(B.sub(end, begin), 0), body)
    return S.IfThenElse(B.all_of(*outside), loop, None, s.body.loc) if outside else loop


def _end(c: E.Expr, var: E.Var) -> tuple[E.Expr, bool] | None:
    """Where a comparison begins (False) or no longer (True) to hold, for a variable that stands in it once."""
    if not isinstance(c, _ORDER):
        return None
    less, more = (c.a, c.b) if isinstance(c, (E.LT, E.LE)) else (c.b, c.a)  # less < more, or less <= more
    strict = isinstance(c, (E.LT, E.GT))
    a, b = _parted(less, var), _parted(more, var)
    if a is None or b is None or a[0] + b[0] != 1:
        return None
    if a[0]:  # var + rest < more
        return B.add(B.sub(b[1], a[1]), 0 if strict else 1), True
    return B.add(B.sub(a[1], b[1]), 1 if strict else 0), False


def _parted(e: E.Expr, var: E.Var) -> tuple[int, E.Expr] | None:
    """(how often the variable is added, the rest); None where it stands in another way."""
    if e is var:
        return 1, B.const(0, var.dtype)
    if not uses_var(e, var):
        return 0, e
    if isinstance(e, E.Add):
        a, b = _parted(e.a, var), _parted(e.b, var)
        return None if a is None or b is None else (a[0] + b[0], B.add(a[1], b[1]))
    if isinstance(e, E.Sub) and not uses_var(e.b, var):
        a = _parted(e.a, var)
        return None if a is None else (a[0], B.sub(a[1], e.b))
    return None
