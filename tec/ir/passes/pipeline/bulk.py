"""Bulk copies within a pipeline: which statements make them, what they bring, and the barrier in memory that they report to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ... import build as B
from ... import expr as E
from ... import stmt as S
from ...dtype import dtype_info
from ...effects import is_call
from ...visit import map_stmt, substitute


def effect(op: str, *args: E.Expr, **attrs: object) -> S.Stmt:
    """The statement that a call stands for."""
    return S.Evaluate(E.Call(op, args, "int32", attrs or None))


def is_bulk_fill(s: S.Stmt) -> bool:
    """Whether a statement only loads by bulk copies (under conditions)."""
    if isinstance(s, S.Seq):
        return all(is_bulk_fill(x) for x in s.stmts)
    if isinstance(s, S.IfThenElse) and s.orelse is None:
        return is_bulk_fill(s.then)
    return is_call(s, "bulk_load")


def loaded_bytes(stmts: Sequence[S.Stmt]) -> E.Expr:
    """Bytes that the bulk loads of some statements bring; those under a condition count where it holds."""
    total: E.Expr = B.const(0)
    for s in stmts:
        if isinstance(s, S.Seq):
            total = B.add(total, loaded_bytes(s.stmts))
        elif isinstance(s, (S.Alloc, S.Attr)):
            total = B.add(total, loaded_bytes([s.body]))
        elif isinstance(s, S.IfThenElse) and s.orelse is None:
            total = B.add(total, B.select(s.cond, loaded_bytes([s.then]), B.const(0)))
        elif isinstance(s, S.Evaluate) and isinstance(s.value, E.Call) and s.value.op == "bulk_load":
            assert isinstance(s.value.args[0], E.BufferLoad)
            info = dtype_info(s.value.args[0].buffer.dtype)
            size = info.bytes * info.lanes
            for n in (s.value.attrs or {})["box"]:
                size *= n
            total = B.add(total, B.const(size))
    return total


def reporting(s: S.Stmt, barrier: E.Expr) -> S.Stmt:
    """Bulk loads with the barrier that they report to."""

    def fe(e: E.Expr) -> E.Expr:
        if type(e) is E.Call and e.op == "bulk_load":
            return E.Call(e.op, (*e.args, barrier), e.dtype, e.attrs)
        return e

    return map_stmt(s, lambda x: reporting(x, barrier), fe)


def of_group(e: E.Expr, groups: Mapping[E.Var, E.Expr]) -> E.Expr:
    """A warpgroup product whose operands are named by the group's number, known to be the same in all lanes; any other expression as it is."""
    if type(e) is not E.Call or e.op != "wgmma":
        return e
    a, b, acc = e.args
    return E.Call(e.op, (substitute(a, groups), substitute(b, groups), acc), e.dtype, e.attrs)
