"""The work of one step of a software pipeline, interleaved: sums with what is loaded for later ones.

In: the work on a step's slot, a nest under the note `fragments_ahead`; loads of a later step from global memory into registers, and stores from there.

    for g in unrolled: [ a = shared...; b = shared...; for i, j in unrolled: sums of a and b ]

Out, with two copies of each local buffer in turn:

    the first leaf's fills
    for each leaf: the next leaf's fills; its sums
        between the sums of the first half: the loads
        between those of the last leaf, when all of the slot is read: the stores

A wavefront starts its instructions in order. Where the loads of a step stand together, what is behind them waits until memory has taken those of all
wavefronts; where a leaf's fills stand before its own sums, the matrix unit waits for shared memory once a leaf (f16, 4096 cubed on MI300X by 128 x 128 tiles,
the time model: 269 us so, 264 with fills a leaf ahead, 231 with loads and stores between sums). Loads stay in the first half, so that half a step of sums is between
them and the stores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ... import build as B
from ... import expr as E
from ... import stmt as S
from ...visit import any_stmt
from ..rewrite_util import clone, const_int
from .fragment_pipeline import Copies, Leaf, leaves_of


def interleaved(work: S.Stmt, loads: Sequence[S.Stmt] = (), stores: Sequence[S.Stmt] = ()) -> S.Stmt:
    """`work`, a nest under the note `fragments_ahead`, with `loads` and `stores` between its sums; see the module. Raises LoweringError for a nest of
    another form."""
    row, held = leaves_of(work), Copies()
    filled = held.fill(row[0])
    sums, before, first = _sums(row, held)
    half = len(sums) // 2
    _deal(loads, range(max(1, half)), False, before)
    _deal(stores, range(min(max(first, half), len(sums) - 1), len(sums)), True, before)
    out = S.seq(filled, _woven(sums, before))
    for buffer in held.buffers.values():
        out = S.Alloc(buffer, out)
    return out


def turning(
    step: Callable[[E.Expr], S.Stmt],
    loads: Callable[[E.Expr], S.Stmt],
    meeting: Callable[[int], S.Stmt],
    like: S.For,
    slots: int,
) -> S.Stmt | None:
    """All steps of a loop with some slots in which loads need no register. Threads meet before a step's last leaf, when all of its slot is read: a later
    step comes into it from there on, and the next one's first leaf is filled, so that no sum waits for shared memory, and loads are under way for
    `slots` - 1 steps. None where steps or leaves are few, or leaves odd.

    step: the work of one, on its slot; loads: what a step needs, into its slot; meeting: the barrier, behind a wait for loads but those of so many
    steps; like: the loop, whose notes to keep."""
    held, first, count = Copies(), like.min, const_int(like.extent) or 0
    var = E.Var(like.var.name, like.var.dtype)
    if count <= slots:
        return None
    rows = [leaves_of(step(x)) for x in (var, *(B.add(first, count - k) for k in range(slots, 0, -1)))]
    fills = [which for leaf in rows[0] for which, _, _ in leaf.fills]
    if len(rows[0]) < 2 or any(fills.count(w) % 2 for w in fills):
        return None
    coming = [loads(B.add(var, slots)), *[None] * slots]
    following = [leaves_of(step(B.add(var, 1)))[0], *(row[0] for row in rows[2:]), None]
    under_way = [slots - 2, *range(slots - 2, -1, -1), 0]
    parts = [
        *(loads(B.add(first, k)) for k in range(slots)),
        meeting(slots - 1),
        _KEPT,
        held.fill(leaves_of(step(first))[0]),
    ]
    made = []
    for row, later, next_, n_later in zip(rows, coming, following, under_way):
        sums, before, at = _sums(row, held)
        if next_ is not None:
            before[at] = [meeting(n_later), _KEPT, held.fill(next_)]
        if later is not None:
            _deal([later], range(at, len(sums)), False, before)
        made.append(_woven(sums, before))
    inside, *tail = made
    loop = replace(like, var=var, extent=B.const(count - slots, var.dtype), body=inside)
    out = S.seq(*parts, loop, *tail)
    for buffer in held.buffers.values():
        out = S.Alloc(buffer, out)
    return out


def _woven(sums: Sequence[S.Stmt], before: dict[int, list[S.Stmt]]) -> S.Stmt:
    """Sums with what stands before some of them."""
    parts: list[S.Stmt] = []
    for k, one in enumerate(sums):
        parts += [_KEPT, *before[k], _KEPT, one] if k in before else [one]
    return S.seq(*parts)


def carried(
    row: list[Leaf], after: Leaf | None, held: Copies, loads: Sequence[S.Stmt], stores: Sequence[S.Stmt], early: Sequence[S.Stmt]
) -> S.Stmt:  # fmt: skip
    """A step whose first leaf is filled already, and that fills the first of the next, `after`, before its last sums, where each of two steps has a slot. `stores`: the rest of the
    next step's slot, before that; the barrier between is the step's only one, and behind it nobody reads this step's slot: `early` is the first part of what comes
    there. So shared memory has as much to do in all parts of a step. `held` stays for all steps: their leaves are even in number (`is_carried`)."""
    sums, before, last = _sums(row, held)
    _deal(loads, range(len(sums) // 2), False, before)
    _deal(stores, range(last), False, before)
    if after is not None:
        # Else insert_barriers, which is exact, puts one between these fills, and another where the loop begins again.
        before.setdefault(last, []).extend([_BARRIER, held.fill(after)])
    _deal(early, range(last, len(sums)), False, before)
    return _woven(sums, before)


def is_carried(row: Sequence[Leaf]) -> bool:
    """Whether steps may begin with registers that the step before has filled: each leaf fills all of them, and the number of leaves is even."""
    kinds = [{which for which, *_ in leaf.fills} for leaf in row]
    return len(row) % 2 == 0 and all(k == kinds[0] for k in kinds)


def _sums(row: Sequence[Leaf], held: Copies) -> tuple[list[S.Stmt], dict[int, list[S.Stmt]], int]:
    """The sums of all leaves; what stands before them by their numbers: fills a leaf ahead; and the number of the last leaf's first."""
    sums: list[S.Stmt] = []
    before: dict[int, list[S.Stmt]] = {}
    first = 0
    for n, leaf in enumerate(row):
        first = len(sums)
        sums += pieces_of(held.work(leaf))
        if n + 1 < len(row):
            before[first] = [held.fill(row[n + 1])]
    return sums, before, first


_BARRIER: S.Stmt = S.Evaluate(E.Call("barrier", (), "int32", {"scope": "shared"}))
_KEPT: S.Stmt = S.Evaluate(E.Call("keep_order", (), "int32"))


def _deal(nests: Sequence[S.Stmt], places: range, late: bool, before: dict[int, list[S.Stmt]]) -> None:
    """The parts of the nests, in order, evenly before the sums at `places`: `late`, each as late as that allows, else as early."""
    pieces = [p for s in nests for p in pieces_of(s)]
    for k, piece in enumerate(pieces):
        at = ((k + 1) * len(places) - 1) // len(pieces) if late else k * len(places) // len(pieces)
        before.setdefault(places[at], []).append(piece)


def pieces_of(s: S.Stmt) -> Iterator[S.Stmt]:
    """A nest of unrolled loops of constant extents, written out."""
    if isinstance(s, S.Seq):
        for x in s.stmts:
            yield from pieces_of(x)
        return
    if isinstance(s, S.For) and s.kind == S.ForKind.UNROLLED:
        first, count = const_int(s.min), const_int(s.extent)
        if first is not None and count is not None and not any_stmt(s.body, lambda x: isinstance(x, S.Alloc)):
            for n in range(count):
                yield from pieces_of(clone(s.body, {s.var: B.const(first + n, s.var.dtype)}))
            return
    yield s


def first_half_first(waves: S.For) -> S.Stmt:
    """Priority for the first half of the wavefronts: the two of a vector unit else do the same at the same time. s_setprio heeds no mask, so the condition is a scalar's."""
    wave = E.Call("readfirstlane", (waves.var,), waves.var.dtype)
    attrs = {"name": "llvm.amdgcn.s.setprio", "void": True}
    first = S.Evaluate(E.Call("call_llvm_intrin", (B.const(1, "int16"),), "int32", attrs))
    return S.IfThenElse(B.compare("lt", wave, B.floordiv(waves.extent, 2)), first)


__all__ = ["carried", "first_half_first", "interleaved", "is_carried", "pieces_of", "turning"]
