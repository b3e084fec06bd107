"""Fills of shared memory that travel by themselves, as the order of a turn:

background          wait, start @n, work             copies that threads start, a group a step
                    wait, begin, end, meet, start    behind a wait for warpgroup products, into the slot that they have left
straight_to_slots   load @1, work, meet              copies of whole wavefronts; `woven` where leaves can be filled ahead
ring                wait, work, meet, fetch @n       bulk copies by one thread; `_across` where leaves can be filled ahead
                    wait, begin, end, meet, fetch    behind a wait for warpgroup products, into the slot that they have left
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ....target import Target
from ... import build as B
from ... import expr as E
from ... import stmt as S
from ...buffer import Buffer
from ...effects import is_call
from ...visit import map_stmts
from ..rewrite_util import const_int
from .background_copies import as_copies, copies_by_lanes, predicated
from .bulk import effect, loaded_bytes, reporting
from .expand import Item, Turn, Where, expand, in_order
from .fills import Pipeline
from .leaves import (
    BARRIER,
    FIRM,
    KEPT,
    Copies,
    Leaf,
    are_even,
    blocks_of,
    computed,
    leaves_of,
    pieces_of,
    wants_leaves,
    woven,
)


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

    def begun(t: Turn) -> S.Stmt:
        start = [t.guard(n, pipe.at(moves, t, n))] if t.has(n) else []
        if start and copies != "first" and not t.in_prologue and isinstance(start[0], S.IfThenElse):
            start = [predicated(start[0].then, start[0].cond)]
        return S.seq(*start, effect("async_commit"))

    if copies == "first":
        items = [Item(lambda t: wait), Item(begun, None), Item(pipe.work)]
    else:
        behind = Item(lambda t: _behind_wait(pipe.work(t), begun(t)))
        items = [Item(begun, None, "prologue"), Item(lambda t: wait), behind]
    turn = in_order(items)
    parts = expand(pipe.loop, n, turn, guarded=True)
    done = effect("async_wait", n=0)
    if not in_flight:
        return pipe.in_storage(S.seq(parts.stmt, done))
    return pipe.in_storage(S.seq(*parts.prologue, _flown(pipe.loop, *parts.steady), *parts.epilogue, done))


def _flown(loop: S.For, *steady: S.Stmt) -> S.Stmt:
    """Steps that leave products in flight, and the wait for the last of them. It stands on the way out of the loop alone: where a way around the loop meets it, ptxas
    takes what comes on that way for a write into sums under way, and waits after each product (C7515)."""
    return S.IfThenElse(B.compare("gt", loop.extent, 0), S.seq(*steady, effect("wgmma_wait", n=0)))


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
        return map_stmts(s, fs)

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
    slots, held, work = pipe.n_slots, Copies(), Item(pipe.work)

    def loads(ahead: int, where: Where = Where.EARLY) -> Item:
        return Item(lambda t: pipe.at(copies, t, ahead), ahead, where=where)

    def meeting(under_way: int) -> S.Stmt:
        """A barrier, behind a wait for the loads of all steps but so many."""
        return S.seq(effect("async_wait", n=under_way, copies=under_way * a_step), BARRIER)

    def met(t: Turn) -> S.Stmt:
        return S.seq(*([] if t.in_prologue else [KEPT]), meeting(0))

    def met_ahead(t: Turn) -> S.Stmt:
        under_way = slots - 1 if t.in_prologue else slots - 2 if t.left is None else t.left - 1
        return S.seq(meeting(under_way), KEPT, held.fill(leaves_of(pipe.work(t, 1))[0]))

    row = leaves_of(pipe.work(Turn(pipe.loop, pipe.loop.min))) if wants_leaves(pipe.parts.rest) else []
    # Of two slots each has code of its own: offsets of shared memory are then constants, and a step has no vector arithmetic.
    like = replace(pipe.loop, unroll=pipe.loop.unroll or (2 if slots == 2 else 1), pipelined=True)
    if extent > slots and len(row) > 1 and are_even(row):
        # Threads meet when all of a slot is read: a later step comes into it from there on, so that loads are under way for slots - 1 steps, and no sum waits for shared memory.
        items = [
            Item(met_ahead, 1, "steady", Where.AT_LAST),
            loads(slots, Where.FROM_LAST),
            Item(met_ahead, 1, "prologue"),
        ]
        whole = held.around(expand(like, slots, woven(items, lambda t: leaves_of(pipe.work(t)), held)).stmt)
    else:
        turn = in_order([loads(1), work, Item(met, 1)], work, pipe.one_step)
        whole = expand(replace(like, unroll=1), 1, turn).stmt
    # What else lies in this memory comes later.
    return pipe.in_storage(S.seq(whole, meeting(0)), ordered=True)


def ring(pipe: Pipeline, threads: Sequence[S.For], copies: str = "first", in_flight: bool = False) -> S.Stmt:
    """Bulk copies: one thread keeps a ring of tiles full, all threads work on them. `specialize_warps` leaves the fetching to a warpgroup of its own instead, which pays
    where the work is done by matrix units; here every thread has registers for its own part of the work.

    `threads`: the loops over threads around. copies, in_flight: see `SoftwarePipeline`."""
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
        if t.in_prologue:
            return t.guard(n, fetch(t, t.count(n)))
        return S.IfThenElse(B.all_of(is_first, B.compare("lt", t.count(n), loop.extent)), fetch(t, t.count()))

    def left(t: Turn) -> S.Stmt:
        """A step's work, which fills the slot of the step before again when its products have ended."""
        before = again(Turn(loop, B.sub(t.base, 1), t.offset, guarded=True))
        return _behind_wait(pipe.work(t), S.IfThenElse(B.compare("gt", t.count(), 0), before))

    items = [Item(lambda t: wait(t.count())), Item(pipe.work), Item(lambda t: BARRIER), Item(again, n)]
    if copies != "first":
        items = [Item(again, n, "prologue"), items[0], Item(left)]
    turn = in_order(items)
    init = [effect("mbarrier_init", E.BufferLoad(full, (B.const(j),)), B.const(1)) for j in range(n)]
    parts = expand(replace(loop, unroll=loop.unroll or 1), n, turn, guarded=True)
    start: S.Stmt = S.IfThenElse(is_first, S.seq(*init, effect("mbarrier_fence"), *parts.prologue))
    steps = S.seq(*parts.steady)
    if copies != "first":
        # Threads may have stored to this memory before, or wait on its barriers still.
        start = S.seq(*pipe.fence, BARRIER, start)
        steps = _flown(loop, steps) if in_flight else steps
    elif wants_leaves(pipe.parts.rest):
        steps = _across(pipe, wait, again)
    out = S.Alloc(full, S.seq(start, BARRIER, steps), S.StorageNotes(ordered=True))
    # Programs over tiles have all of their barriers by now, and the rings of their loops share memory.
    return pipe.in_storage(out, ordered=copies == "first")


def _across(pipe: Pipeline, wait: Callable[[E.Expr], S.Stmt], again: Callable[[Turn], S.Stmt]) -> S.Stmt:
    """The steps of a ring, each of one or several blocks; what a block's first leaf reads is filled before the last sums of the block ahead:

    for t in range(steps * blocks):             step t // blocks, block t % blocks
        for each leaf: the next leaf's fills; sums
            behind the first: where a step begins, a barrier, and the first thread refills the slot that the step before read
            before the last: where a step ends, wait until the next slot is full; the next leaf's fills are then its own

    The fills of the last turn read what nobody uses. wait: until a step's slot, counted from 0, is full; again: fill the slot of a turn's step again."""
    loop, held = pipe.loop, Copies()
    blocks, leaves_at = blocks_of(pipe.parts.rest)

    def step_of(t: Turn, ahead: int = 0) -> E.Expr:
        return B.floordiv(t.step(ahead), blocks)

    def leaves(t: Turn, ahead: int = 0) -> list[Leaf]:
        of = Turn(loop, B.add(loop.min, step_of(t, ahead)))
        return leaves_at(B.floormod(t.step(ahead), blocks), lambda s: pipe.at([s], of))

    def filled(t: Turn) -> S.Stmt:
        """The next slot full, if this turn is a step's last."""
        if t.in_prologue:
            return wait(t.step(1))
        next_step = B.add(step_of(t), 1)
        ends = B.compare("eq", B.floormod(t.step(), blocks), blocks - 1)
        return S.IfThenElse(B.all_of(ends, B.compare("lt", next_step, loop.extent)), wait(next_step))

    def freed(t: Turn) -> S.Stmt:
        """The slot of the step before filled again, behind the sums so far."""
        k = step_of(t)
        refill = again(Turn(loop, B.add(loop.min, B.sub(k, 1))))
        free = S.seq(BARRIER, S.IfThenElse(B.compare("gt", k, 0), refill))
        begins = B.compare("eq", B.floormod(t.step(), blocks), 0)
        return S.seq(*computed(leaves(t)[0].work), free if blocks == 1 else S.IfThenElse(begins, free))

    items = [
        Item(filled, 1, where=Where.AT_LAST),
        Item(lambda t: held.fill(leaves(t, 1)[0]), 1, where=Where.AT_LAST),
        Item(lambda t: FIRM, None, "prologue"),
        Item(freed, where=Where.BEHIND_FIRST),
    ]
    turns = replace(loop, var=E.Var(f"{loop.var.name}_ahead", loop.var.dtype), min=B.const(0, loop.var.dtype), extent=B.mul(loop.extent, blocks), unroll=loop.unroll or 1)  # fmt: skip
    turn = woven(items, leaves, held, whole=True, marks=(S.NOP, FIRM))
    return held.around(expand(turns, 1, turn, guarded=True).stmt)
