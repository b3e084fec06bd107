"""The work of a step written out in leaves, and what a software pipeline puts between its sums.

In: the work on a step's slot, a nest under the note `fragments_ahead`:

    for g in unrolled: [ a = shared...; for i in unrolled: [ b = shared...; sums of a and b ] ]

Written out, it is a row of leaves: some fills of local buffers, then sums. Each leaf's fills come a leaf ahead of its sums, with two copies of each local buffer in
turn (`Copies`). `Weave` has the sums of a step in order; a pipeline places the rest of its turn before some of them:

    interleaved    a step's loads between the sums of the first half, the stores of what came between those of the last leaf, when all of the slot is read
    woven          the first leaf of the next step is filled before the last sums too; the pipeline's items say where else they stand

A wavefront starts its instructions in order. Where the loads of a step stand together, what is behind them waits until memory has taken those of all
wavefronts; where a leaf's fills stand before its own sums, the matrix unit waits for shared memory once a leaf (f16, 4096 cubed on MI300X by 128 x 128 tiles,
the time model: 269 us so, 264 with fills a leaf ahead, 231 with loads and stores between sums). Loads stay in the first half, so that half a step of sums is between
them and the stores. On a ring every slot would else begin with loads that all threads wait for, and end at a barrier.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import field

from ....errors import LoweringError
from ....records import dataclass
from ... import build as B
from ... import expr as E
from ... import stmt as S
from ...buffer import Buffer
from ...effects import effects
from ...notes import FragmentsAhead
from ...visit import any_stmt, free_vars
from ..rewrite_util import SHARED_SCOPES, clone, const_int, first_place, redirected, reshaped, stmt_size
from ..unroll import MOST_WRITTEN
from .expand import Item, Turn, Where, in_order
from .slots import held_until

KEPT: S.Stmt = S.Evaluate(E.Call("keep_order", (), "int32"))
FIRM: S.Stmt = S.Evaluate(E.Call("keep_order", (), "int32", {"firm": True}))
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
    """The sums of a step's leaves, with each leaf's fills but the first's before the sums of the leaf ahead. whole: a leaf's sums are one statement. marks: what
    stands before and behind all that is placed between sums, so that LLVM leaves it there."""

    def __init__(
        self, row: Sequence[Leaf], held: Copies, whole: bool = False, marks: tuple[S.Stmt, S.Stmt] = (KEPT, KEPT)
    ):
        self.marks = marks
        self.sums: list[S.Stmt] = []
        self.before: dict[int, list[S.Stmt]] = {}
        self.last = 0  # the number of the last leaf's first sum
        for n, leaf in enumerate(row):
            self.last = len(self.sums)
            self.sums += [held.work(leaf)] if whole else pieces_of(held.work(leaf))
            if n + 1 < len(row):
                self.before[self.last] = [held.fill(row[n + 1])]

    def place(self, where: Where, *stmts: S.Stmt) -> None:
        """Statements among the sums."""
        count, half = len(self.sums), len(self.sums) // 2
        if where == Where.AT_LAST:
            self.before.setdefault(self.last, []).extend(stmts)
        elif where == Where.BEHIND_FIRST:
            self.before.setdefault(1, [])[:0] = stmts
        elif where == Where.EARLY:
            self.deal(stmts, 0, max(1, half))
        elif where == Where.LATE:
            self.deal(stmts, min(max(self.last, half), count - 1), count, late=True)
        else:
            self.deal(stmts, *((0, self.last) if where == Where.TO_LAST else (self.last, count)))

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
            parts += [self.marks[0], *self.before[k], self.marks[1], one] if k in self.before else [one]
        return S.seq(*parts)


def interleaved(work: S.Stmt, loads: Sequence[S.Stmt] = (), stores: Sequence[S.Stmt] = ()) -> S.Stmt:
    """A step by itself, with `loads` and `stores` between its sums; see the module. Raises LoweringError for a nest of another form."""
    row, held = leaves_of(work), Copies()
    filled = held.fill(row[0])
    out = Weave(row, held)
    out.place(Where.EARLY, *loads)
    out.place(Where.LATE, *stores)
    return held.around(S.seq(filled, out.stmt))


def woven(items: Sequence[Item], leaves: Callable[[Turn], list[Leaf]], held: Copies, whole: bool = False, marks: tuple[S.Stmt, S.Stmt] = (KEPT, KEPT)) -> Callable[[Turn], S.Stmt]:  # fmt: skip
    """A turn with its items among the sums of the step that it ends, whose first leaf is filled already. `held` stays for all steps."""
    alone = in_order(items)

    def turn(t: Turn) -> S.Stmt:
        if t.in_prologue:
            return alone(t)
        out = Weave(leaves(t), held, whole, marks)
        for x in items:
            if x.is_of(t):
                out.place(x.where, x.make(t))
        return out.stmt

    return turn


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


def blocks_of(rest: Sequence[S.Stmt]) -> tuple[int, Callable[[E.Expr, Callable[[S.Stmt], S.Stmt]], list[Leaf]]]:
    """Blocks of a step's work, and the leaves of one of them after what a function makes of it. Raises LoweringError for a nest of another form, of one leaf,
    and where local buffers are filled an odd number of times a block."""
    if len(rest) != 1:
        raise _unfit(f"{len(rest)} statements work on a slot", *rest)
    block, blocks, inner, there_and_back = _block_loop(rest[0])

    def leaves(at: E.Expr, made: Callable[[S.Stmt], S.Stmt]) -> list[Leaf]:
        body = inner if block is None else clone(inner, {block: B.cast(block.dtype, at)})
        row = _Leaves(made(body), there_and_back).found
        if not are_even(row):
            raise _unfit("a local buffer is filled an odd number of times a block", body)
        if len(row) < 2:
            raise _unfit("it has one step, and nothing to load ahead of", inner)
        return row

    return blocks, leaves


def are_even(row: Sequence[Leaf]) -> bool:
    """Whether leaves fill each local buffer an even number of times: the next step's then take the same copies."""
    fills = [which for leaf in row for which, _, _ in leaf.fills]
    return all(fills.count(w) % 2 == 0 for w in fills)


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


def computed(work: S.Stmt) -> list[S.Stmt]:
    """The sums so far, before what stands behind: else LLVM moves them behind the barrier, and all threads wait for each other with nothing to do."""
    written = {id(a.buffer): a.buffer for a in effects(work).accesses if a.is_write}
    return [held_until(b) for b in written.values() if b.scope == "local" and b.dtype == "float32"]


class _Leaves:
    """The nest, written out."""

    def __init__(self, nest: S.Stmt, there_and_back: bool) -> None:
        _check_written(nest)
        self.there_and_back = there_and_back
        self.found: list[Leaf] = []
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
