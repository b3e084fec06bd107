"""Fills of shared memory as copies in the background: `async_copy` of 4, 8 or 16 bytes a thread.

On NVIDIA each thread says where its bytes go. On CDNA 4 a wavefront says where its first lane's go, and those of the others lie behind them in order
(`buffer_load_dwordx4 ... lds`): a swizzled tile is filled so too when lanes change places, each bringing what belongs where the hardware puts it.
"""

from __future__ import annotations

import math

import numpy as np

from ... import build as B
from ... import expr as E
from ... import stmt as S
from ...arith import Analyzer
from ...buffer import GLOBAL
from ...dtype import dtype_info
from ...index_values import evaluated
from ...visit import free_vars, map_expr, map_stmts, substitute
from ..rewrite_util import clone, const_int
from .nest import masked

LANES = 64  # of a wavefront whose copies lie in the lanes' order
LANE_BYTES = 16
REACH = 1 << 31  # bytes of a buffer whose places have 32 bits


def as_copies(s: S.Stmt) -> S.Stmt | None:
    """A fill as async copies of 4, 8 or 16 bytes: loops and conditions around a vectorized loop that copies neighbours, or around the copy of one element."""
    if isinstance(s, S.BufferStore):
        one = S.For(E.Var("one"), B.const(0), B.const(1), s, S.ForKind.VECTORIZED)
        return as_copies(one)
    if isinstance(s, S.For) and s.kind == S.ForKind.VECTORIZED:
        x, n = s.body, const_int(s.extent)
        if isinstance(x, S.IfThenElse) and x.orelse is None and all(v is not s.var for v in free_vars(x.cond)):
            return as_copies(S.IfThenElse(x.cond, s.with_body(x.then)))
        if not isinstance(x, S.BufferStore) or n is None or const_int(s.min) != 0:
            return None
        load, cond, other = masked(x.value, s.var)
        info = dtype_info(x.buffer.dtype)
        if not isinstance(load, E.BufferLoad) or (other is not None and other.value != 0):
            return None
        if x.predicate is not None or load.predicate is not None or load.buffer.scope != "global":
            return None
        if load.buffer.dtype != x.buffer.dtype or load.buffer.strides or n * info.bytes * info.lanes not in (4, 8, 16):
            return None
        ana = Analyzer()
        ana.bind(s.var, E.Range(s.min, s.extent))
        ends: list[tuple[E.Expr, ...]] = []
        for at in (load.indices, x.indices):
            first = tuple([substitute(i, {s.var: B.const(0, s.var.dtype)}) for i in at])
            for k, (i, low) in enumerate(zip(at, first)):
                want = s.var if k == len(at) - 1 else B.const(0, i.dtype)
                if B.const_value(ana.simplify(B.sub(B.sub(i, low), want))) != 0:
                    return None
            ends.append(first)
        copy = (E.BufferLoad(x.buffer, ends[1]), E.BufferLoad(load.buffer, ends[0]), B.const(n))
        if cond is not None:
            return S.Evaluate(E.Call("async_copy", (*copy, cond), "int32", {"masked": True}))
        return S.Evaluate(E.Call("async_copy", copy, "int32"))
    if isinstance(s, S.For) and s.kind != S.ForKind.THREAD:
        body = as_copies(s.body)
        return None if body is None else s.with_body(body)
    if isinstance(s, S.IfThenElse) and s.orelse is None:
        then = as_copies(s.then)
        return None if then is None else S.IfThenElse(s.cond, then)
    return None


def predicated(s: S.Stmt, cond: E.Expr) -> S.Stmt:
    """Copies of `as_copies` that bring zeros where a condition is false, with no branch: their addresses are then ready before they may start. What these read of memory, such
    as a table of pages, is read under the condition too."""

    def read(e: E.Expr) -> E.Expr:
        if isinstance(e, E.BufferLoad) and e.buffer.scope == GLOBAL:
            return B.if_then_else(cond, e, B.const(0, e.dtype))
        return map_expr(e, read)

    if isinstance(s, S.Evaluate) and isinstance(s.value, E.Call) and s.value.op == "async_copy":
        to, source, *rest = s.value.args
        args: list[E.Expr] = [to, map_expr(source, read), *map(read, rest)]
        is_masked = bool((s.value.attrs or {}).get("masked"))
        args[3:] = [B.all_of(cond, args[3])] if is_masked else [cond]
        return S.Evaluate(E.Call("async_copy", tuple(args), "int32", {"masked": True}), s.loc)
    return map_stmts(s, lambda x: predicated(x, cond))


def copies_by_lanes(s: S.Stmt, threads: list[S.For]) -> S.Stmt | None:
    """A fill as copies whose places are in the lanes' order, `async_copy(to, from, elements, lane)`; None where no order of the lanes makes it so.

    threads: the loops over threads around."""
    copies = as_copies(s)
    lane = next((f for f in threads if f.thread == "threadIdx.x"), None)
    if copies is None or lane is None or const_int(lane.extent) != LANES:
        return None
    loops = [f for f in threads if f is not lane]
    x = copies
    while isinstance(x, S.For):
        loops.append(x)
        x = x.body
    if not isinstance(x, S.Evaluate) or not isinstance(x.value, E.Call) or len(x.value.args) > 3:
        return None  # under a condition: lanes that bring nothing leave holes
    to, source, count = x.value.args
    assert isinstance(to, E.BufferLoad) and isinstance(source, E.BufferLoad)
    sizes = [const_int(d) for d in source.buffer.shape]
    if not all(sizes) or math.prod(d or 0 for d in sizes) * dtype_info(source.buffer.dtype).bytes >= REACH:
        return None
    element, row = dtype_info(to.buffer.dtype), const_int(to.buffer.shape[-1])
    piece = const_int(count) or 0
    if piece * element.bytes * element.lanes != LANE_BYTES or to.buffer.strides or row is None or LANES * piece % row:
        return None
    order = _order(to, piece, lane, loops)
    if order is None:
        return None
    of = substitute(source, {lane.var: order})
    first = substitute(to, {lane.var: B.const(0, lane.var.dtype)})
    assert isinstance(first, E.BufferLoad)
    across = row // piece
    *lead, high, low = first.indices
    high = B.add(high, B.floordiv(lane.var, across))
    low = B.add(low, B.mul(B.floormod(lane.var, across), piece))
    into = E.BufferLoad(to.buffer, (*lead, high, low))
    out: S.Stmt = S.Evaluate(E.Call("async_copy", (into, of, count, lane.var), "int32"))
    for f in reversed([f for f in loops if f not in threads]):
        out = f.with_body(out)
    return clone(out, {})


def _order(to: E.BufferLoad, piece: int, lane: S.For, loops: list[S.For]) -> E.Expr | None:
    """The lane whose part a lane is to bring, so that they lie in order; None where lanes have no such order, or another in another turn of `loops`."""
    sizes = [const_int(f.extent) or 0 for f in (*loops, lane)]
    if any(const_int(f.min) != 0 for f in (*loops, lane)) or not all(sizes):
        return None
    shape = [const_int(d) for d in to.buffer.shape]
    if any(d is None for d in shape):
        return None
    place: E.Expr = B.const(0)
    for i, d in zip(to.indices, shape):
        place = B.add(B.mul(place, d), i)
    at = dict(zip((f.var for f in (*loops, lane)), np.indices(sizes, sparse=True)))
    found = evaluated(place, at)
    if found is None:
        return None
    table = np.broadcast_to(found, sizes).reshape(-1, LANES)
    order = (table[0] - table[0].min()) // piece
    in_order = np.sort(table, axis=1) == table.min(axis=1, keepdims=True) + piece * np.arange(LANES)
    same = (table - table.min(axis=1, keepdims=True)) // piece == order
    if table[0].min() or not in_order.all() or not same.all() or (order[order] != np.arange(LANES)).any():
        return None
    ana = Analyzer()
    ana.bind(lane.var, E.Range(lane.min, lane.extent))
    first = substitute(place, {f.var: B.const(0, f.var.dtype) for f in loops})
    out: E.Expr = ana.simplify(B.floordiv(first, piece))
    return out
