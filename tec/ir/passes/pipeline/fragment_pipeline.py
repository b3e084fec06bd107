"""Registers filled one step ahead, across the slots of a ring: what the next sums read is on its way from shared memory during the sums before.

In: the work on one slot of a ring of bulk copies (see `bulk_pipeline`), a nest under the note `fragments_ahead`:

    for block in range(blocks):                 serial, or none
        for g in unrolled: [ a = shared...; for i in unrolled: [ b = shared...; sums of a and b ] ]

Written out, it is a row of leaves: some fills of local buffers, then sums. Out, for n slots, with two copies of each local buffer in turn:

    the first leaf's fills, of the first slot
    for t in range(steps * blocks):             step t // blocks, block t % blocks
        for each leaf: the next leaf's fills; sums
            behind the first: where a step begins, a barrier, and the first thread refills the slot that the step before read
            before the last: where a step ends, wait until the next slot is full; the next leaf's fills are then its own

Without this every slot begins with loads that all threads wait for, and ends at a barrier. The fills of the last turn read what nobody uses.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ....errors import LoweringError
from ... import build as B
from ... import expr as E
from ... import stmt as S
from ...buffer import Buffer
from ...effects import effects
from ...notes import FragmentsAhead
from ...visit import any_stmt, free_vars
from ..rewrite_util import SHARED_SCOPES, clone, const_int, redirected, reshaped


@dataclass(slots=True)
class Leaf:
    """`fills`: (which local buffer, the buffer as this leaf names it, the statement); `work` reads them and those of leaves before."""

    fills: list[tuple[int, Buffer, S.Stmt]]
    work: S.Stmt
    held: dict[int, Buffer] = field(default_factory=dict)


def wants_fragments_ahead(stmts: Sequence[S.Stmt]) -> bool:
    """Whether the work of a step asks for it."""
    return any(any_stmt(s, lambda x: isinstance(x, S.Attr) and isinstance(x.note, FragmentsAhead)) for s in stmts)


@dataclass(frozen=True, slots=True)
class Ring:
    """What `bulk_pipeline` has made of the loop's fills."""

    loop: S.For
    slots: int
    step: Callable[[Sequence[S.Stmt], E.Expr, E.Expr], S.Stmt]  # statements for one step, in a slot
    wait: Callable[[E.Expr], S.Stmt]  # until a step's slot is full; steps count from 0
    refill: Callable[[E.Expr], S.Stmt]  # behind the barrier: the slot of a step, if there is a step to come into it


def fragment_pipeline(ring: Ring, rest: Sequence[S.Stmt], barrier: S.Stmt) -> S.Stmt:
    """The loop's steps; see the module. Raises LoweringError where the nest has another form."""
    if len(rest) != 1:
        raise _unfit(f"{len(rest)} statements work on a slot")
    block, blocks, inner, turns = _block_loop(rest[0])
    loop, one = ring.loop, ring.loop.var.dtype

    def leaves(step: E.Expr, at: E.Expr) -> list[Leaf]:
        """The leaves of one block of a step, counted from 0."""
        body = inner if block is None else clone(inner, {block: B.cast(block.dtype, at)})
        out = _Leaves(turns)
        out.walk(ring.step([body], B.add(loop.min, step), B.floormod(step, ring.slots)), [])
        if any(n % 2 for n in out.counts.values()):
            raise _unfit("a local buffer is filled an odd number of times a block")
        return out.found

    kept: S.Stmt = S.Evaluate(E.Call("keep_order", (), "int32", {"firm": True}))
    zero = B.const(0, one)
    var = E.Var(f"{loop.var.name}_ahead", one)
    step, at, after = B.floordiv(var, blocks), B.floormod(var, blocks), B.add(var, 1)
    row = leaves(step, at)
    next_row = leaves(B.floordiv(after, blocks), B.floormod(after, blocks))
    if len(row) < 2:
        raise _unfit("it has one step, and nothing to load ahead of")
    held = Copies()
    first = held.fill(leaves(zero, zero)[0])
    inside: list[S.Stmt] = []
    for n, leaf in enumerate(row):
        now = held.work(leaf)
        if n + 1 < len(row):
            inside += [held.fill(row[n + 1]), kept, now]
        else:
            ends = B.compare("eq", at, blocks - 1)
            there_is = B.compare("lt", B.add(step, 1), loop.extent)
            full = S.IfThenElse(B.all_of(ends, there_is), ring.wait(B.add(step, 1)))
            inside += [full, held.fill(next_row[0]), kept, now]
        if n == 0:
            again = S.seq(barrier, S.IfThenElse(B.compare("gt", step, 0), ring.refill(B.sub(step, 1))))
            inside += _computed(leaf.work)
            inside.append(again if blocks == 1 else S.IfThenElse(B.compare("eq", at, 0), again))
    main = replace(
        loop, var=var, min=zero, extent=B.mul(loop.extent, blocks), body=S.seq(*inside), unroll=loop.unroll or 1
    )
    out = S.seq(ring.wait(zero), first, kept, main)
    for buffer in held.buffers.values():
        out = S.Alloc(buffer, out)
    return out


def leaves_of(work: S.Stmt) -> list[Leaf]:
    """The leaves of a nest under the note that has no serial loop. Raises LoweringError for a nest of another form."""
    block, _, inner, turns = _block_loop(work)
    if block is not None:
        raise _unfit(f"its loop {block} is serial")
    out = _Leaves(turns)
    out.walk(inner, [])
    return out.found


class Copies:
    """Two of each local buffer, which fills take in turn."""

    def __init__(self) -> None:
        self.buffers: dict[tuple[int, int], Buffer] = {}
        self.filled: dict[int, int] = {}  # of each local buffer, times so far

    def of(self, which: int, like: Buffer) -> Buffer:
        """The copy that was filled last."""
        key = which, self.filled[which] % 2
        if key not in self.buffers:
            self.buffers[key] = reshaped(like, like.shape, like.strides)
        return self.buffers[key]

    def fill(self, leaf: Leaf) -> S.Stmt:
        out = []
        for which, buffer, s in leaf.fills:
            self.filled[which] = self.filled.get(which, -1) + 1
            out.append(redirected(s, {id(buffer): self.of(which, buffer)}))
        return S.seq(*out)

    def work(self, leaf: Leaf) -> S.Stmt:
        return redirected(leaf.work, {id(b): self.of(which, b) for which, b in leaf.held.items()})


def _block_loop(s: S.Stmt) -> tuple[E.Var | None, int, S.Stmt, bool]:
    """(variable, extent, body) of the serial loop under the note, or (None, 1, the nest itself); and whether sums go there and back."""
    notes: list[S.Attr] = []
    while isinstance(s, S.Attr):
        notes.append(s)
        s = s.body
    var, extent = None, 1
    if isinstance(s, S.For) and s.kind == S.ForKind.SERIAL:
        var, extent = s.var, const_int(s.extent) or 0
        if extent < 1 or const_int(s.min) != 0:
            raise _unfit(f"its loop {s.var} has no constant extent")
        s = s.body
    turns = False
    for a in reversed(notes):
        if isinstance(a.note, FragmentsAhead):
            turns = a.note.turns
        else:
            s = S.Attr(a.note, s)
    return var, extent, s, turns


def _computed(work: S.Stmt) -> list[S.Stmt]:
    """The sums so far, before what stands behind: else LLVM moves them behind the barrier, and all threads wait for each other with nothing to do."""
    out: list[S.Stmt] = []
    for b in {id(a.buffer): a.buffer for a in effects(work).accesses if a.is_write}.values():
        shape = [const_int(d) or 0 for d in b.shape]
        if b.scope == "local" and b.dtype == "float32":
            for place in itertools.product(*map(range, shape)):
                at = tuple([B.const(x) for x in place])
                out.append(S.BufferStore(b, E.Call("computed", (E.BufferLoad(b, at),), b.dtype), at))
    return out


class _Leaves:
    """The nest, written out."""

    def __init__(self, turns: bool) -> None:
        self.turns = turns
        self.found: list[Leaf] = []
        self.counts: dict[int, int] = {}
        self.pending: list[tuple[int, Buffer, S.Stmt]] = []

    def walk(self, s: S.Stmt, held: list[Buffer], notes: tuple[S.Attr, ...] = ()) -> None:
        if isinstance(s, S.Attr):
            self.walk(s.body, held, (*notes, s))
        elif isinstance(s, S.For) and any_stmt(s, _is_local):
            count = const_int(s.extent)
            if s.kind != S.ForKind.UNROLLED or count is None or const_int(s.min) != 0:
                raise _unfit(f"loop {s.var} around loads into registers is not unrolled")
            for n in range(count):
                self.walk(clone(s.body, {s.var: B.const(n, s.var.dtype)}), held, notes)
        elif _is_local(s):
            assert isinstance(s, S.Alloc)
            which = len(held)
            body = s.body.stmts if isinstance(s.body, S.Seq) else (s.body,)
            fills = [x for x in body[:-1] if _fills(x, s.buffer)]
            if not fills or len(fills) != len(body) - 1:
                raise _unfit(f"{s.buffer.name} is not filled from shared memory before all of its work")
            self.counts[which] = self.counts.get(which, 0) + 1
            self.pending.append((which, s.buffer, S.seq(*fills)))
            self.walk(body[-1], [*held, s.buffer], notes)
        else:
            s = _there_and_back(s) if self.turns else s
            for a in reversed(notes):
                s = S.Attr(a.note, s)
            self.found.append(Leaf(self.pending, s, dict(enumerate(held))))
            self.pending = []


def _there_and_back(s: S.Stmt) -> S.Stmt:
    """A nest of unrolled loops around one sum, written out: along a row, and back along the next. Neighbours in time share operands; and what order ptxas is
    given decides which banks it puts registers in, for which no other handle is known."""
    loops: list[S.For] = []
    x = s
    while isinstance(x, S.For) and x.kind == S.ForKind.UNROLLED and const_int(x.min) == 0 and const_int(x.extent):
        loops.append(x)
        x = x.body
    sums = isinstance(x, S.BufferStore) and all(any(v is f.var for i in x.indices for v in free_vars(i)) for f in loops)
    if len(loops) < 2 or not sums:
        return s
    row, *columns = [range(const_int(f.extent) or 0) for f in loops]
    out: list[S.Stmt] = []
    for r in row:
        along = list(itertools.product(*columns))
        for at in reversed(along) if r % 2 else along:
            out.append(clone(x, {f.var: B.const(n, f.var.dtype) for f, n in zip(loops, (r, *at))}))
    return S.seq(*out)


def _is_local(s: S.Stmt) -> bool:
    return isinstance(s, S.Alloc) and s.buffer.scope == "local"


def _fills(s: S.Stmt, b: Buffer) -> bool:
    """Whether a statement does nothing but fill a local buffer from shared memory."""
    does = effects(s)
    reads_shared = [a.buffer.scope in SHARED_SCOPES for a in does.accesses if not a.is_write]
    return does.writes == {id(b)} and bool(reads_shared) and all(reads_shared) and not does.is_opaque


def _unfit(why: str) -> LoweringError:
    return LoweringError(
        f"fragments_ahead is for a nest of loops that loads local buffers from shared memory and sums: {why}",
        hint='s[C].pragma(block, "fragments_ahead") on the loop within a "software_pipeline"; unroll the loops below it',
        locate=False,
    )


__all__ = ["Copies", "Leaf", "Ring", "fragment_pipeline", "leaves_of", "wants_fragments_ahead"]
