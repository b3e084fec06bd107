"""Fills of shared memory that travel by themselves, as the order of a turn:

background          wait, start @n, work             copies that threads start, a group a step
                    wait, begin, end, meet, start    behind a wait for warpgroup products, into the slot that they have left
straight_to_slots   load @1, work, meet              copies of whole wavefronts; `leaves.direct` where leaves can be filled ahead
ring                wait, work, meet, fetch @n       bulk copies by one thread; `leaves.across` where leaves can be filled ahead
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ....target import Target
from ... import build as B
from ... import expr as E
from ... import stmt as S
from ...buffer import Buffer
from ...effects import is_call
from ...visit import map_stmt
from ..rewrite_util import const_int
from .background_copies import as_copies, copies_by_lanes, predicated
from .bulk import effect, loaded_bytes, reporting
from .expand import Turn, expand
from .fills import KEPT, Pipeline
from .leaves import BARRIER, across, direct, pieces_of, wants_leaves


def copies_in_background(target: Target) -> bool:
    """Whether a thread can start copies of a few bytes from global to shared memory, each to an address of its own."""
    return target.chip.async_lds and target.chip.family == "sm"


def background(pipe: Pipeline, copies: str = "first", in_flight: bool = False) -> S.Stmt | None:
    """On copies in the background. A group each step, empty or not, so that the count of groups under way says which step they are of.

    copies, in_flight: see `SoftwarePipeline`."""
    found = [as_copies(f) for f in pipe.parts.fills]
    moves = [c for c in found if c is not None]
    if pipe.n_slots < 2 or len(moves) < len(found):
        return None
    n = pipe.depth
    wait = S.seq(effect("async_wait", n=n - 1), *pipe.fence, BARRIER)

    def turn(t: Turn) -> S.Stmt:
        start = [t.guard(n, pipe.at(moves, t, n))] if t.has(n) else []
        if start and copies != "first" and not t.in_prologue and isinstance(start[0], S.IfThenElse):
            start = [predicated(start[0].then, start[0].cond)]
        begun = S.seq(*start, effect("async_commit"))
        if t.in_prologue:
            return begun
        if copies == "first":
            return S.seq(wait, begun, pipe.work(t))
        return S.seq(wait, _behind_wait(pipe.work(t), begun))

    parts = expand(pipe.loop, n, turn, guarded=True)
    done = effect("async_wait", n=0)
    if not in_flight:
        return pipe.in_storage(S.seq(parts.stmt, done))
    # The last wait stands on the way out of the loop alone: where a way around the loop meets it, ptxas takes what comes on that way for a write into
    # sums under way, and waits after each product (C7515).
    steps = S.IfThenElse(B.compare("gt", pipe.loop.extent, 0), S.seq(*parts.steady, effect("wgmma_wait", n=0)))
    return pipe.in_storage(S.seq(*parts.prologue, steps, *parts.epilogue, done))


def _behind_wait(work: S.Stmt, begun: S.Stmt) -> S.Stmt:
    """The start of copies behind the first statement that waits for warpgroup products, and a barrier."""
    done = False

    def fs(s: S.Stmt) -> S.Stmt:
        nonlocal done
        if done:
            return s
        if isinstance(s, (S.Evaluate, S.BufferStore)) and is_call(s.value, "wgmma_wait"):
            done = True
            return S.seq(s, BARRIER, begun)
        return map_stmt(s, fs, lambda e: e)

    return fs(work)


def straight_to_slots(pipe: Pipeline, threads: list[S.For]) -> S.Stmt | None:
    """Later steps' copies straight into their slots, a barrier a step, which waits for the next one's; None where they are not in the lanes' order, or
    steps are not counted."""
    extent = const_int(pipe.loop.extent)
    found = [copies_by_lanes(f, threads) for f in pipe.parts.fills]
    copies = [c for c in found if c is not None]
    if pipe.n_slots < 2 or extent is None or extent < 2 or len(copies) < len(found):
        return None
    a_step = sum(len(pieces_of(c)) for c in copies)

    def loads(t: Turn, ahead: int) -> S.Stmt:
        return pipe.at(copies, t, ahead)

    def meeting(under_way: int) -> S.Stmt:
        return S.seq(effect("async_wait", n=under_way, copies=under_way * a_step), BARRIER)

    def turn(t: Turn) -> S.Stmt:
        if t.in_prologue:
            return S.seq(loads(t, 1), meeting(0))
        begun, met = ([loads(t, 1)], [KEPT, meeting(0)]) if t.has(1) else ([], [])
        return pipe.one_step(begun, pipe.work(t), met)

    # Of two slots each has code of its own: offsets of shared memory are then constants, and a step has no vector arithmetic.
    like = replace(pipe.loop, unroll=pipe.loop.unroll or (2 if pipe.n_slots == 2 else 1), pipelined=True)
    whole = direct(like, pipe.n_slots, pipe.work, loads, meeting) if wants_leaves(pipe.parts.rest) else None
    whole = whole or expand(replace(like, unroll=1), 1, turn).stmt
    # What else lies in this memory comes later.
    return pipe.in_storage(S.seq(whole, meeting(0)), ordered=True)


def ring(pipe: Pipeline, threads: Sequence[S.For]) -> S.Stmt:
    """Bulk copies: one thread keeps a ring of tiles full, all threads work on them. `specialize_warps` leaves the fetching to a warpgroup of its own instead, which pays
    where the work is done by matrix units; here every thread has registers for its own part of the work.

    `threads`: the loops over threads around."""
    loop, n = pipe.loop, pipe.n_slots
    full = Buffer("full", "uint64", (B.const(n),), (), 0, "shared")
    is_first = B.all_of(*[B.compare("eq", f.var, 0) for f in threads])

    def barrier(k: E.Expr) -> E.Expr:
        """Of a step's slot; steps count from 0 here."""
        return E.BufferLoad(full, (pipe.ana.simplify(B.floormod(k, n)),))

    def fetch(t: Turn, slot_of: E.Expr) -> S.Stmt:
        fill, at = pipe.at(pipe.parts.fills, t, n, slot_of), barrier(slot_of)
        return S.seq(effect("mbarrier_expect", at, loaded_bytes([fill])), reporting(fill, at))

    def wait(k: E.Expr) -> S.Stmt:
        return effect("mbarrier_wait", barrier(k), B.floormod(B.floordiv(k, n), 2))

    def again(t: Turn) -> S.Stmt:
        """The slot that is free now, for the step that comes into it."""
        return S.IfThenElse(B.all_of(is_first, B.compare("lt", t.count(n), loop.extent)), fetch(t, t.count()))

    def turn(t: Turn) -> S.Stmt:
        if t.in_prologue:
            return t.guard(n, fetch(t, t.count(n))) if t.has(n) else S.NOP
        return S.seq(wait(t.count()), pipe.work(t), BARRIER, again(t))

    init = [effect("mbarrier_init", E.BufferLoad(full, (B.const(j),)), B.const(1)) for j in range(n)]
    parts = expand(replace(loop, unroll=loop.unroll or 1), n, turn, guarded=True)
    start = S.IfThenElse(is_first, S.seq(*init, effect("mbarrier_fence"), *parts.prologue))
    steps = S.seq(*parts.steady)
    if wants_leaves(pipe.parts.rest):

        def counted(k: E.Expr) -> Turn:
            return Turn(loop, B.add(loop.min, k))

        def refill(k: E.Expr) -> S.Stmt:
            return again(counted(k))

        def step(stmts: Sequence[S.Stmt], k: E.Expr) -> S.Stmt:
            return pipe.at(stmts, counted(k))

        steps = across(loop, n, pipe.parts.rest, step, wait, refill)
    out = S.Alloc(full, S.seq(start, BARRIER, steps), S.StorageNotes(ordered=True))
    return pipe.in_storage(out, ordered=True)


__all__ = ["background", "copies_in_background", "ring", "straight_to_slots"]
