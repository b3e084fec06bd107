"""Software pipelines whose fills are bulk copies: one thread keeps a ring of tiles full, all threads work on them.

In: what `pipeline` found of a loop, all fills `bulk_load`s. Out, for n slots:

    full[n]: barriers in memory
    the first thread starts the copies of steps 0 .. n-1
    for k in range(extent):
        wait until full[k % n]
        compute step k from slot k % n
        barrier: all threads are through with the slot
        the first thread starts the copies of step k+n into it

`warp_specialize` (see `specialize_warps`) leaves the fetching to a warpgroup of its own instead, which pays where the work is done by
matrix units; here every thread has registers for its own part of the work. Under the note `fragments_ahead` what these load from a slot comes a
step of the work ahead (see `fragment_pipeline`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ... import build as B
from ... import expr as E
from ... import stmt as S
from ...buffer import Buffer
from ...dtype import dtype_info
from ...effects import is_call
from ...visit import map_stmt
from .fragment_pipeline import Ring, fragment_pipeline, wants_fragments_ahead


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


def bulk_pipeline(
    loop: S.For, fills: Sequence[S.Stmt], step: Callable[[Sequence[S.Stmt], E.Expr, E.Expr], S.Stmt],
    rest: Sequence[S.Stmt], slots: int, threads: Sequence[E.Var],
) -> S.Stmt:  # fmt: skip
    """The loop as a ring; see the module. step(statements, k, slot): those statements for one step of the loop, in a slot.
    `threads`: the launch indices that make up a thread's number."""
    full = Buffer("full", "uint64", (B.const(slots),), (), 0, "shared")
    one = loop.var.dtype
    is_first = B.all_of(*[B.compare("eq", v, 0) for v in threads])

    def fetch(k: E.Expr, slot: E.Expr) -> S.Stmt:
        announced = loaded_bytes([step(fills, k, slot)])
        barrier = E.BufferLoad(full, (slot,))
        announce = effect("mbarrier_expect", barrier, announced)
        return S.seq(announce, reporting(step(fills, k, slot), barrier))

    init = [effect("mbarrier_init", E.BufferLoad(full, (B.const(j),)), B.const(1)) for j in range(slots)]
    begin: list[S.Stmt] = [*init, effect("mbarrier_fence")]
    for j in range(slots):
        there_is = B.compare("lt", B.const(j, one), loop.extent)
        start = fetch(B.add(loop.min, B.const(j, one)), B.const(j))
        always = isinstance(loop.extent, E.IntImm) and j < loop.extent.value
        begin.append(start if always else S.IfThenElse(there_is, start))
    start_all = S.seq(S.IfThenElse(is_first, S.seq(*begin)), effect("barrier", scope="shared"))
    if wants_fragments_ahead(rest):

        def wait(k: E.Expr) -> S.Stmt:
            of = E.BufferLoad(full, (B.floormod(k, slots),))
            return effect("mbarrier_wait", of, B.floormod(B.floordiv(k, slots), 2))

        def refill(k: E.Expr) -> S.Stmt:
            ahead = B.add(k, slots)
            there_is = B.all_of(is_first, B.compare("lt", ahead, loop.extent))
            return S.IfThenElse(there_is, fetch(B.add(loop.min, ahead), B.floormod(k, slots)))

        steps = fragment_pipeline(Ring(loop, slots, step, wait, refill), rest, effect("barrier", scope="shared"))
        return S.Alloc(full, S.seq(start_all, steps), S.StorageNotes(ordered=True))
    var = E.Var(loop.var.name, one)
    at = B.sub(var, loop.min)
    slot = B.floormod(at, slots)
    parity = B.floormod(B.floordiv(at, slots), 2)
    ahead = B.add(at, slots)
    again = S.IfThenElse(B.all_of(is_first, B.compare("lt", ahead, loop.extent)), fetch(B.add(var, slots), slot))
    inside = S.seq(
        effect("mbarrier_wait", E.BufferLoad(full, (slot,)), parity),
        step(rest, var, slot),
        effect("barrier", scope="shared"),
        again,
    )
    main = replace(loop, var=var, body=inside, unroll=loop.unroll or 1)
    return S.Alloc(full, S.seq(start_all, main), S.StorageNotes(ordered=True))


__all__ = ["bulk_pipeline", "effect", "is_bulk_fill", "loaded_bytes", "reporting"]
