"""Sums that a thread holds in registers, finished ahead of the conditional stores that take them away (NVIDIA).

In, stage "loops", after `pad_tiles`: storage of a thread that statements fill, and behind them nests that store it under conditions (the ragged edge of a tile). Out: the same with
each sum passed through an empty statement that keeps its place (`computed`) in between. Without it LLVM moves the last multiply-adds of a sum into the branch of its store, behind
the loads of all of them, and ptxas spills: 282 x 944 x 144 by tiles of 64 x 64, 268 bytes of them in the 168 registers of a thread, none with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from ....target import Target
from ... import expr as E
from ... import stmt as S
from ...buffer import Buffer
from ...effects import Effects, effects
from ...func import Func
from ...visit import any_expr, any_stmt, map_stmts
from ..rewrite_util import const_int
from .slots import held_until

_LEAST = 8  # sums of a thread from which on they crowd its registers
_BY_UNITS = ("mma", "wgmma", "wgmma_registers", "wgmma_wait")  # whose results are where they are made


def hold_sums(func: Func, target: Target) -> Func:
    """Sums finished ahead of conditional stores; see the module."""
    if target.kind != "cuda" or func.attrs.get("simt"):
        return func

    known: dict[int, tuple[S.Stmt, Effects]] = {}  # of statements that allocations in one another ask for again

    def does(s: S.Stmt) -> Effects:
        if id(s) not in known:
            known[id(s)] = s, effects(s)
        return known[id(s)][1]

    def fs(s: S.Stmt) -> S.Stmt:
        if isinstance(s, S.Alloc) and _holds_sums(s):
            return replace(s, body=_held(map_stmts(s.body, fs), s.buffer, does))
        return map_stmts(s, fs)

    return func.with_body(fs(func.body))


def _holds_sums(s: S.Alloc) -> bool:
    b = s.buffer
    sizes = [const_int(d) for d in b.shape]
    if b.scope != "local" or b.dtype != "float32" or None in sizes or math.prod(d or 1 for d in sizes) < _LEAST:
        return False
    return not any_expr(s.body, lambda e: isinstance(e, E.Call) and e.op in _BY_UNITS)


def _held(s: S.Stmt, b: Buffer, effects_of: Callable[[S.Stmt], Effects]) -> S.Stmt:
    """A statement with the buffer's values finished before the first part of it that stores them under a condition."""
    if isinstance(s, (S.Attr, S.Alloc)):
        return replace(s, body=_held(s.body, b, effects_of))
    if not isinstance(s, S.Seq):
        return s
    filled = False
    for k, x in enumerate(s.stmts):
        does = effects_of(x)
        if filled and id(b) in does.reads and _stores_under(x, b):
            if id(b) in does.writes:
                return S.seq(*s.stmts[:k], _held(x, b, effects_of), *s.stmts[k + 1 :])
            return S.seq(*s.stmts[:k], held_until(b), *s.stmts[k:])
        filled = filled or id(b) in does.writes
    if len(s.stmts) and id(b) in effects_of(s.stmts[-1]).writes:
        return S.seq(*s.stmts[:-1], _held(s.stmts[-1], b, effects_of))
    return s


def _stores_under(s: S.Stmt, b: Buffer) -> bool:
    """Whether a store to global memory that reads the buffer stands under a condition."""

    def is_store(x: S.Stmt) -> bool:
        return isinstance(x, S.BufferStore) and x.buffer.scope == "global" and id(b) in effects(x).reads

    def is_branch(x: S.Stmt) -> bool:
        return isinstance(x, S.IfThenElse) and any_stmt(x, is_store)

    return any_stmt(s, is_branch)
