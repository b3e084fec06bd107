"""tvm.tir.stmt_functor: walks and substitution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tec import ir
from tec.ir.visit import children, map_stmt, map_stmts, substitute_stmt, visit
from tec.ir.visit import substitute as _substitute

from ..names import absent

__all__ = ["ir_transform", "post_order_visit", "pre_order_visit", "substitute"]


def post_order_visit(stmt: Any, fvisit: Callable[[Any], Any]) -> None:
    """Call `fvisit` on each node, children first."""
    visit(stmt, fvisit, fvisit)


def pre_order_visit(stmt: Any, fvisit: Callable[[Any], bool]) -> None:
    """Call `fvisit` on each node, parents first; children only where it gives True."""

    def expr(e: ir.Expr) -> ir.Expr:
        if fvisit(e):
            for c in children(e):
                expr(c)
        return e

    def statement(s: ir.Stmt) -> ir.Stmt:
        if fvisit(s):
            map_stmt(s, statement, expr)
        return s

    statement(stmt) if isinstance(stmt, ir.Stmt) else expr(stmt)


def substitute(node: Any, vmap: Any) -> Any:
    """`node` with variables replaced."""
    return substitute_stmt(node, vmap) if isinstance(node, ir.Stmt) else _substitute(node, vmap)


def ir_transform(stmt: ir.Stmt, preorder: Any, postorder: Any, only_enable: Any = None) -> ir.Stmt:
    """Rewrites statements: `preorder(node)` replaces a node as it is met, `postorder(node)` after its children; None keeps it."""
    kinds = set(only_enable or ())

    def enabled(s: Any) -> bool:
        return not kinds or f"tir.{type(s).__name__}" in kinds

    def instead(f: Any, s: ir.Stmt) -> ir.Stmt | None:
        made: ir.Stmt | None = f(s) if f is not None and enabled(s) else None
        return made

    def go(s: ir.Stmt) -> ir.Stmt:
        if (new := instead(preorder, s)) is not None:
            return new
        made = map_stmts(s, go)
        return instead(postorder, made) or made

    return go(stmt)


__getattr__ = absent(__name__)
