"""Let work-groups leave at once that store nothing.

In: kernels as launch nests, with their barriers. Out: a kernel whose stores to global memory all stand below one condition on the block
indices runs below that condition as a whole, and the condition is gone inside.

    left[t] = if_then_else(b // 2 < 98, x[...], 0.0)          if b // 2 < 98:
    barrier()                                                     left[t] = x[...]
    if b // 2 < 98:                                    ->         barrier()
        out[...] = left[...]                                      out[...] = left[...]

A grid that is rounded up to the number of dies has such work-groups. Without this they load, multiply and wait for nothing. All threads of
a work-group leave together, so none waits for them at a barrier. A kernel in which work-groups act on each other stays as it is.
"""

from __future__ import annotations

from functools import reduce

from ...target import Target
from .. import expr as E
from .. import stmt as S
from ..arith import conjuncts
from ..effects import effects
from ..func import Func
from ..intrin import INTRINS
from ..visit import any_expr, map_expr, map_stmt, visit
from .rewrite_util import BLOCK_TAGS, SHARED_SCOPES, is_launch_loop, launch_nest, same_expr

_OWN_SCOPES = (*SHARED_SCOPES, "local")  # of memory that no other work-group sees
# Calls that have a state of their own, which is the work-group's.
_OWN_CALLS = ("keep_order", "computed", "async_copy", "async_commit", "async_wait")


def leave_idle_groups(func: Func, target: Target) -> Func:
    """The function with kernels that begin by asking whether the work-group has anything to store."""

    def host(s: S.Stmt) -> S.Stmt:
        if is_launch_loop(s):
            return _kernel(s)
        return map_stmt(s, host, _keep)

    # Grids are rounded up to the dies of AMD's GPUs alone.
    if target.kind != "rocm" or func.attrs.get("simt"):
        return func
    return func.with_body(host(func.body))


def _keep(e: E.Expr) -> E.Expr:
    return e


def _kernel(root: S.Stmt) -> S.Stmt:
    nest, body = launch_nest(root)
    blocks = {id(f.var) for f in nest if f.thread in BLOCK_TAGS}
    found = _needed(body, blocks)
    if not found:
        return root
    for c in found:
        body = _without(body, c)
    for c in reversed(found):
        body = S.IfThenElse(E.Call("likely", (c,), "bool"), body)
    for f in reversed(nest):
        body = f.with_body(body)
    return body


def _bare(c: E.Expr) -> E.Expr:
    return c.args[0] if type(c) is E.Call and c.op == "likely" else c


def _needed(s: S.Stmt, blocks: set[int]) -> list[E.Expr] | None:
    """The conditions on block indices under which alone a statement does anything outside of its work-group; None where it never does."""
    if isinstance(s, S.IfThenElse):
        then = _needed(s.then, blocks)
        if then is not None:
            then = [*(c for c in map(_bare, conjuncts(_bare(s.cond))) if _is_of_group(c, blocks)), *then]
        orelse = None if s.orelse is None else _needed(s.orelse, blocks)
        return _common(_common(_of_exprs(s.cond), then), orelse)
    if isinstance(s, S.Seq):
        return reduce(_common, (_needed(x, blocks) for x in s.stmts), None)
    if isinstance(s, (S.For, S.While, S.LetStmt, S.Alloc, S.Attr)):
        found: list[list[E.Expr] | None] = []

        def on_stmt(x: S.Stmt) -> S.Stmt:
            found.append(_needed(x, blocks))
            return x

        def on_expr(e: E.Expr) -> E.Expr:
            found.append(_of_exprs(e))
            return e

        map_stmt(s, on_stmt, on_expr)
        return reduce(_common, found)
    return _of_exprs(s)


def _of_exprs(s: E.Expr | S.Stmt) -> list[E.Expr] | None:
    """No condition where a statement without others inside, or an expression, acts on more than its work-group; see `_needed`."""
    stores = any(a.is_write and a.buffer.scope not in _OWN_SCOPES for a in effects(s).accesses)
    return [] if stores or isinstance(s, S.Assert) or any_expr(s, _acts_outside) else None


def _acts_outside(e: E.Expr) -> bool:
    return type(e) is E.Call and INTRINS[e.op].opaque and e.op not in _OWN_CALLS


def _is_of_group(c: E.Expr, blocks: set[int]) -> bool:
    """Whether a condition is of block indices and constants alone."""
    does, own, some = effects(c), True, False

    def on_expr(e: E.Expr) -> None:
        nonlocal own, some
        if isinstance(e, E.Var):
            own, some = own and id(e) in blocks, True

    visit(c, on_expr)
    return own and some and does.is_constant and not does.is_varying


def _common(a: list[E.Expr] | None, b: list[E.Expr] | None) -> list[E.Expr] | None:
    if a is None or b is None:
        return b if a is None else a
    return [x for x in a if any(same_expr(x, y) for y in b)]


def _without(s: S.Stmt, cond: E.Expr) -> S.Stmt:
    """A statement in which a condition holds everywhere."""
    true = E.IntImm(1, "bool")

    def fe(e: E.Expr) -> E.Expr:
        return true if e.dtype == "bool" and same_expr(e, cond) else map_expr(e, fe)

    def fs(x: S.Stmt) -> S.Stmt:
        return map_stmt(x, fs, fe)

    return fs(s)
