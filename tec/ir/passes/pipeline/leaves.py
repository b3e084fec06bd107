"""The work of a step written out in leaves, and what a software pipeline puts between its sums.

In: the work on a step's slot, a nest under the note `fragments_ahead`:

    for g in unrolled: [ a = shared...; for i in unrolled: [ b = shared...; sums of a and b ] ]

Written out, it is a row of leaves: some fills of local buffers, then sums. Each leaf's fills come a leaf ahead of its sums, with two copies of each local buffer in
turn (`Copies`). `Weave` has the sums of a step in order; a pipeline places the rest of its turn before some of them:

    interleaved    a step's loads between the sums of the first half, the stores of what came between those of the last leaf, when all of the slot is read
    carried        the first leaf of the next step is filled before the last sums, behind the step's only barrier
    across         the same over the slots of a ring of bulk copies, whose work may have a serial loop over blocks

A wavefront starts its instructions in order. Where the loads of a step stand together, what is behind them waits until memory has taken those of all
wavefronts; where a leaf's fills stand before its own sums, the matrix unit waits for shared memory once a leaf (f16, 4096 cubed on MI300X by 128 x 128 tiles,
the time model: 269 us so, 264 with fills a leaf ahead, 231 with loads and stores between sums). Loads stay in the first half, so that half a step of sums is between
them and the stores. On a ring every slot would else begin with loads that all threads wait for, and end at a barrier.
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
from ..rewrite_util import SHARED_SCOPES, clone, const_int, first_place, redirected, reshaped, stmt_size
from ..unroll import MOST_WRITTEN
from .expand import Turn, expand

_KEPT: S.Stmt = S.Evaluate(E.Call("keep_order", (), "int32"))
_FIRM: S.Stmt = S.Evaluate(E.Call("keep_order", (), "int32", {"firm": True}))
BARRIER: S.Stmt = S.Evaluate(E.Call("barrier", (), "int32", {"scope": "shared"}))


@dataclass(slots=True)
class Leaf:
    """`fills`: (which local buffer, the buffer as this leaf names it, the statement); `work` reads them and those of leaves before."""

    fills: list[tuple[int, Buffer, S.Stmt]]
    work: S.Stmt
    held: dict[int, Buffer] = field(default_factory=dict)


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

    def around(self, s: S.Stmt) -> S.Stmt:
        """A statement within the storage of all copies."""
        for b in self.buffers.values():
            s = S.Alloc(b, s)
        return s


class Weave:
    """The sums of a step's leaves, with each leaf's fills but the first's before the sums of the leaf ahead; `last`: the number of the last leaf's first sum."""

    def __init__(self, row: Sequence[Leaf], held: Copies):
        self.sums: list[S.Stmt] = []
        self.before: dict[int, list[S.Stmt]] = {}
        for n, leaf in enumerate(row):
            self.last = len(self.sums)
            self.sums += pieces_of(held.work(leaf))
            if n + 1 < len(row):
                self.before[self.last] = [held.fill(row[n + 1])]

    def put(self, *stmts: S.Stmt) -> None:
        """Before the last leaf's first sum."""
        self.before.setdefault(self.last, []).extend(stmts)

    def deal(self, nests: Sequence[S.Stmt], first: int, end: int, late: bool = False) -> None:
        """The parts of the nests, in order, evenly before the sums from `first` to `end`: `late`, each as late as that allows, else as early."""
        pieces = [p for s in nests for p in pieces_of(s)]
        places = range(first, end)
        for k, piece in enumerate(pieces):
            at = ((k + 1) * len(places) - 1) // len(pieces) if late else k * len(places) // len(pieces)
            self.before.setdefault(places[at], []).append(piece)

    @property
    def stmt(self) -> S.Stmt:
        parts: list[S.Stmt] = []
        for k, one in enumerate(self.sums):
            parts += [_KEPT, *self.before[k], _KEPT, one] if k in self.before else [one]
        return S.seq(*parts)


def interleaved(work: S.Stmt, loads: Sequence[S.Stmt] = (), stores: Sequence[S.Stmt] = ()) -> S.Stmt:
    """A step by itself, with `loads` and `stores` between its sums; see the module. Raises LoweringError for a nest of another form."""
    row, held = leaves_of(work), Copies()
    filled = held.fill(row[0])
    out = Weave(row, held)
    count = len(out.sums)
    half = count // 2
    out.deal(loads, 0, max(1, half))
    out.deal(stores, min(max(out.last, half), count - 1), count, late=True)
    return held.around(S.seq(filled, out.stmt))


def carried(
    row: list[Leaf], after: Leaf | None, held: Copies, loads: Sequence[S.Stmt], stores: Sequence[S.Stmt], early: Sequence[S.Stmt]
) -> S.Stmt:  # fmt: skip
    """A step whose first leaf is filled already, and that fills the first of the next, `after`, before its last sums, where each of two steps has a slot. `stores`: the rest of the
    next step's slot, before that; the barrier between is the step's only one, and behind it nobody reads this step's slot: `early` is the first part of what comes
    there. So shared memory has as much to do in all parts of a step. `held` stays for all steps: their leaves are even in number (`is_carried`)."""
    out = Weave(row, held)
    out.deal(loads, 0, len(out.sums) // 2)
    out.deal(stores, 0, out.last)
    if after is not None:
        # Else insert_barriers, which is exact, puts one between these fills, and another where the loop begins again.
        out.put(BARRIER, held.fill(after))
    out.deal(early, out.last, len(out.sums))
    return out.stmt


def is_carried(row: Sequence[Leaf]) -> bool:
    """Whether steps may begin with registers that the step before has filled: each leaf fills all of them, and the number of leaves is even."""
    kinds = [{which for which, *_ in leaf.fills} for leaf in row]
    return len(row) % 2 == 0 and all(k == kinds[0] for k in kinds)


def direct(
    loop: S.For, slots: int, work: Callable[[Turn, int], S.Stmt], loads: Callable[[Turn, int], S.Stmt], meeting: Callable[[int], S.Stmt]
) -> S.Stmt | None:  # fmt: skip
    """All steps of a loop with some slots in which loads need no register. Threads meet before a step's last leaf, when all of its slot is read: a later
    step comes into it from there on, and the next one's first leaf is filled, so that no sum waits for shared memory, and loads are under way for
    `slots` - 1 steps. None where steps or leaves are few, or leaves odd.

    work: of the step so many turns ahead, on its slot; loads: what it needs, into its slot; meeting: the barrier, behind a wait for loads but those of so many
    steps."""
    held = Copies()
    row = leaves_of(work(Turn(loop, loop.min), 0))
    fills = [which for leaf in row for which, _, _ in leaf.fills]
    if (const_int(loop.extent) or 0) <= slots or len(row) < 2 or any(fills.count(w) % 2 for w in fills):
        return None

    def next_first(t: Turn) -> S.Stmt:
        return held.fill(leaves_of(work(t, 1))[0])

    def turn(t: Turn) -> S.Stmt:
        if t.in_prologue:
            first = [meeting(slots - 1), _KEPT, next_first(t)] if t.number == -1 else []
            return S.seq(loads(t, slots), *first)
        out = Weave(leaves_of(work(t, 0)), held)
        if t.has(1):
            out.before[out.last] = [meeting(slots - 2 if t.left is None else t.left - 1), _KEPT, next_first(t)]
        if t.has(slots):
            out.deal([loads(t, slots)], out.last, len(out.sums))
        return out.stmt

    return held.around(expand(loop, slots, turn).stmt)


def across(
    loop: S.For, slots: int, rest: Sequence[S.Stmt], step: Callable[[Sequence[S.Stmt], E.Expr], S.Stmt], wait: Callable[[E.Expr], S.Stmt], refill: Callable[[E.Expr], S.Stmt]
) -> S.Stmt:  # fmt: skip
    """All steps of a ring of bulk copies, each of one or several blocks; what a block's first leaf reads is filled before the last sums of the block ahead:

    for t in range(steps * blocks):             step t // blocks, block t % blocks
        for each leaf: the next leaf's fills; sums
            behind the first: where a step begins, a barrier, and the first thread refills the slot that the step before read
            before the last: where a step ends, wait until the next slot is full; the next leaf's fills are then its own

    The fills of the last turn read what nobody uses. step(statements, k): statements for a step, counted from 0, in its slot; wait: until a step's slot is
    full; refill: the slot of a step, if there is a step to come into it. Raises LoweringError where the nest has another form."""
    if len(rest) != 1:
        raise _unfit(f"{len(rest)} statements work on a slot", *rest)
    block, blocks, inner, there_and_back = _block_loop(rest[0])
    one = loop.var.dtype

    def leaves(t: E.Expr) -> list[Leaf]:
        """The leaves of a turn's block."""
        at = B.floormod(t, blocks)
        body = inner if block is None else clone(inner, {block: B.cast(block.dtype, at)})
        out = _Leaves(step([body], B.floordiv(t, blocks)), there_and_back)
        if any(n % 2 for n in out.counts.values()):
            raise _unfit("a local buffer is filled an odd number of times a block", body)
        return out.found

    held = Copies()

    def turn(t: Turn) -> S.Stmt:
        if t.in_prologue:
            return S.seq(wait(t.step(1)), held.fill(leaves(t.step(1))[0]), _FIRM)
        k, at = B.floordiv(t.step(), blocks), B.floormod(t.step(), blocks)
        row = leaves(t.step())
        if len(row) < 2:
            raise _unfit("it has one step, and nothing to load ahead of", inner)
        out: list[S.Stmt] = []
        for n, leaf in enumerate(row):
            now = held.work(leaf)
            if n + 1 == len(row):
                ends = B.compare("eq", at, blocks - 1)
                there_is = B.compare("lt", B.add(k, 1), loop.extent)
                out.append(S.IfThenElse(B.all_of(ends, there_is), wait(B.add(k, 1))))
            out += [held.fill(row[n + 1] if n + 1 < len(row) else leaves(t.step(1))[0]), _FIRM, now]
            if n == 0:
                again = S.seq(BARRIER, S.IfThenElse(B.compare("gt", k, 0), refill(B.sub(k, 1))))
                out += _computed(leaf.work)
                out.append(again if blocks == 1 else S.IfThenElse(B.compare("eq", at, 0), again))
        return S.seq(*out)

    turns = replace(
        loop, var=E.Var(f"{loop.var.name}_ahead", one), min=B.const(0, one), extent=B.mul(loop.extent, blocks), unroll=loop.unroll or 1
    )  # fmt: skip
    return held.around(expand(turns, 1, turn, guarded=True).stmt)


# ---- a nest taken apart


def wants_leaves(stmts: Sequence[S.Stmt]) -> bool:
    """Whether the work of a step asks for it."""
    return any(any_stmt(s, lambda x: isinstance(x, S.Attr) and isinstance(x.note, FragmentsAhead)) for s in stmts)


def leaves_of(work: S.Stmt) -> list[Leaf]:
    """The leaves of a nest under the note that has no serial loop. Raises LoweringError for a nest of another form."""
    block, _, inner, there_and_back = _block_loop(work)
    if block is not None:
        raise _unfit(f"its loop {block} is serial", work)
    return _Leaves(inner, there_and_back).found


def pieces_of(s: S.Stmt) -> list[S.Stmt]:
    """A nest of unrolled loops of constant extents, written out. Raises LoweringError for more than `MOST_WRITTEN` statements."""
    _check_written(s)
    out: list[S.Stmt] = []
    _write(s, out)
    return out


def _write(s: S.Stmt, out: list[S.Stmt]) -> None:
    if isinstance(s, S.Seq):
        for x in s.stmts:
            _write(x, out)
    elif (extent := _unrolled(s)) is not None and not any_stmt(s.body, lambda x: isinstance(x, S.Alloc)):  # type: ignore[attr-defined]
        assert isinstance(s, S.For)
        for n in range(extent):
            _write(clone(s.body, {s.var: B.add(s.min, n)}), out)
    else:
        out.append(s)


def _unrolled(s: S.Stmt) -> int | None:
    """The steps of an unrolled loop of constant range."""
    return (
        const_int(s.extent)
        if isinstance(s, S.For) and s.kind == S.ForKind.UNROLLED and const_int(s.min) is not None
        else None
    )


def _check_written(s: S.Stmt) -> None:
    """Refuse a nest whose unrolled loops are more than `MOST_WRITTEN` statements."""

    def size(x: S.Stmt) -> int:
        if isinstance(x, S.Seq):
            return sum(map(size, x.stmts))
        if isinstance(x, (S.Attr, S.Alloc)):
            return size(x.body)
        extent = _unrolled(x)
        if extent is not None:
            assert isinstance(x, S.For)
            return extent * size(x.body)
        return max(1, stmt_size(x))

    if (n := size(s)) > MOST_WRITTEN:
        raise LoweringError(
            f"a software pipeline would write the unrolled loops of a step out as {n:,} statements; {MOST_WRITTEN:,} are the most",
            where=first_place(s),
            hint="smaller tiles, or fewer unrolled loops: split them, and leave the outer part serial",
            locate=False,
        )


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
            raise _unfit(f"its loop {s.var} has no constant extent", s)
        s = s.body
    there_and_back = False
    for a in reversed(notes):
        if isinstance(a.note, FragmentsAhead):
            there_and_back = a.note.turns
        else:
            s = S.Attr(a.note, s)
    return var, extent, s, there_and_back


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

    def __init__(self, nest: S.Stmt, there_and_back: bool) -> None:
        _check_written(nest)
        self.there_and_back = there_and_back
        self.found: list[Leaf] = []
        self.counts: dict[int, int] = {}
        self.pending: list[tuple[int, Buffer, S.Stmt]] = []
        self.walk(nest, [])

    def walk(self, s: S.Stmt, held: list[Buffer], notes: tuple[S.Attr, ...] = ()) -> None:
        if isinstance(s, S.Attr):
            self.walk(s.body, held, (*notes, s))
        elif isinstance(s, S.For) and any_stmt(s, _is_local):
            count = const_int(s.extent)
            if s.kind != S.ForKind.UNROLLED or count is None or const_int(s.min) != 0:
                raise _unfit(f"loop {s.var} around loads into registers is not unrolled", s)
            for n in range(count):
                self.walk(clone(s.body, {s.var: B.const(n, s.var.dtype)}), held, notes)
        elif _is_local(s):
            assert isinstance(s, S.Alloc)
            which = len(held)
            body = s.body.stmts if isinstance(s.body, S.Seq) else (s.body,)
            fills = [x for x in body[:-1] if _fills(x, s.buffer)]
            if not fills or len(fills) != len(body) - 1:
                raise _unfit(f"{s.buffer.name} is not filled from shared memory before all of its work", s)
            self.counts[which] = self.counts.get(which, 0) + 1
            self.pending.append((which, s.buffer, S.seq(*fills)))
            self.walk(body[-1], [*held, s.buffer], notes)
        else:
            s = _there_and_back(s) if self.there_and_back else s
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


def _unfit(why: str, *stmts: S.Stmt) -> LoweringError:
    return LoweringError(
        f"fragments_ahead is for a nest of loops that loads local buffers from shared memory and sums: {why}",
        where=next((at for s in stmts if (at := first_place(s)) is not None), None),
        hint='s[C].pragma(block, "fragments_ahead") on the loop within a "software_pipeline"; unroll the loops below it',
        locate=False,
    )


__all__ = [
    "BARRIER", "Copies", "Leaf", "across", "carried", "direct", "interleaved", "is_carried", "leaves_of", "pieces_of", "wants_leaves",
]  # fmt: skip
