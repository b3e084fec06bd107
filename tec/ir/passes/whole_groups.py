"""Let work-groups beyond the last tile do nothing at all, in place of asking at each of their steps whether they are one.

    for blockIdx.x:                                 for blockIdx.x:
        for k: if likely(tile < n): c = c + ...         if tile < n:
        if likely(tile < n): out[...] = c        ->         for k: c = c + ...
                                                            out[...] = c

In: kernels of stage "loops" with more work-groups than tiles: as many for each die, or whole bands of rows. Out: where all that a work-group leaves behind stands under a condition
that is the same for all its threads, the kernel's body stands under it once, and nothing inside does. Barriers stay where all threads of a work-group come or none. Without this, LLVM
keeps the sums of a step that was left out beside those of one that was not, in registers of their own, and moves them at each step (96 moves of 64 bits beside 64 products of
matrices).
"""

from __future__ import annotations

from ...target import Target
from .. import build as B
from .. import expr as E
from .. import stmt as S
from ..arith import Analyzer, conjuncts
from ..effects import effects
from ..func import Func
from ..visit import free_vars, map_expr, map_stmt, map_stmts, walk_exprs
from .rewrite_util import BLOCK_TAGS, SHARED_SCOPES, is_launch_loop, launch_nest, same_expr

_COMPARED = (E.LT, E.LE, E.GT, E.GE)
_OWN = ("local", *SHARED_SCOPES)  # scopes that end with the work-group


def whole_groups(func: Func, target: Target) -> Func:
    """The function with such conditions around its kernels; see the module."""
    if target.kind != "rocm":
        return func

    def host(s: S.Stmt) -> S.Stmt:
        return _kernel(s) if is_launch_loop(s) else map_stmts(s, host)

    body = host(func.body)
    return func if body is func.body else func.with_body(body)


def _kernel(root: S.Stmt) -> S.Stmt:
    nest, body = launch_nest(root)
    blocks = {loop.var for loop in nest if loop.thread in BLOCK_TAGS}
    common = _common(body, [], blocks)
    if not common:
        return root
    made: S.Stmt = S.IfThenElse(B.all_of(*common), _without(body, common))
    for loop in reversed(nest):
        made = loop.with_body(made)
    return made


def _common(s: S.Stmt, around: list[E.Expr], blocks: set[E.Var]) -> list[E.Expr] | None:
    """The conditions of block indices alone that all of a statement's lasting effects stand under; None where it has none."""
    if isinstance(s, S.IfThenElse):
        own = [c for c in _parts(s.cond) if _is_of_blocks(c, blocks)]
        found = _common(s.then, [*around, *own], blocks)
        return found if s.orelse is None else _both(found, _common(s.orelse, around, blocks))
    found, is_leaf = None, True

    def child(x: S.Stmt) -> S.Stmt:
        nonlocal found, is_leaf
        found, is_leaf = _both(found, _common(x, around, blocks)), False
        return x

    map_stmts(s, child)
    return list(around) if is_leaf and _lasts(s) else found


def _both(a: list[E.Expr] | None, b: list[E.Expr] | None) -> list[E.Expr] | None:
    if a is None or b is None:
        return a if b is None else b
    return [c for c in a if any(_is_same(c, d) for d in b)]


def _is_same(a: E.Expr, b: E.Expr) -> bool:
    """Whether two conditions are the same, their sums in any order."""
    if same_expr(a, b):
        return True
    if type(a) is not type(b) or not isinstance(a, _COMPARED) or not isinstance(b, _COMPARED):
        return False
    ana = Analyzer()
    return ana.can_prove_equal(a.a, b.a) and ana.can_prove_equal(a.b, b.b)


def _lasts(s: S.Stmt) -> bool:
    """Whether a statement leaves something behind its work-group: it writes memory, or does what nobody here knows."""
    known = effects(s)
    if any(a.buffer.scope not in _OWN for a in known.accesses if a.is_write):
        return True
    return known.is_opaque or (known.is_kept and not known.accesses and not known.collective)


def _parts(cond: E.Expr) -> list[E.Expr]:
    """The conditions that must all hold, without their marks of being likely."""
    return [c.args[0] if isinstance(c, E.Call) and c.op == "likely" else c for c in conjuncts(cond)]


def _is_of_blocks(c: E.Expr, blocks: set[E.Var]) -> bool:
    if any(isinstance(x, (E.BufferLoad, E.Call)) for x in walk_exprs(c)):
        return False
    used = free_vars(c)
    return bool(used) and all(v in blocks for v in used)


def _without(s: S.Stmt, holds: list[E.Expr]) -> S.Stmt:
    """A statement where the conditions hold."""

    def on_expr(e: E.Expr) -> E.Expr:
        if e.dtype == "bool" and any(_is_same(e, c) for c in holds):
            return B.const(True, "bool")
        if isinstance(e, E.And):
            a, b = on_expr(e.a), on_expr(e.b)
            return a if _is_true(b) else b if _is_true(a) else e if a is e.a and b is e.b else E.And(a, b)
        made = map_expr(e, on_expr)
        if isinstance(made, E.Call) and made.op == "likely" and _is_true(made.args[0]):
            return made.args[0]
        if isinstance(made, E.Call) and made.op == "if_then_else" and _is_true(made.args[0]):
            return made.args[1]
        return made

    def on_stmt(x: S.Stmt) -> S.Stmt:
        if isinstance(x, S.IfThenElse) and _is_true(on_expr(x.cond)):
            return on_stmt(x.then)
        return map_stmt(x, on_stmt, on_expr)

    return on_stmt(s)


def _is_true(e: E.Expr) -> bool:
    return isinstance(e, E.IntImm) and e.dtype == "bool" and e.value != 0
