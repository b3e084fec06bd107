"""Fills of shared memory that go through registers: what a turn loads, a later turn stores.

    load @d, work, store @1          one slot or two, and d sets of registers, each a step's
    load @n, work, store @n          n + 1 slots, and one set
    fill @n, work                    fills that registers cannot take

With several sets and one slot values move on by a set each step, and LLVM is asked for as many steps a trip: then nothing is moved, and nothing waited for. With two
slots a step has one barrier, behind which the next one's first registers are filled (`_carried`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

from ....target import Target
from ... import stmt as S
from ..rewrite_util import const_int
from .expand import Item, Turn, Where, expand, in_order
from .fills import Pipeline
from .leaves import BARRIER, KEPT, Copies, leaves_of, pieces_of, wants_leaves, woven
from .slots import MAX_REGISTER_BYTES, Staged, has_branches, held_until, is_turned, moved_on, through_registers


def through_sets(pipe: Pipeline, target: Target, sets: int) -> S.Stmt | None:
    """The loop with so many sets of registers; None where fills have no way so, and for several sets where the loop's length is not known or short."""
    extent = const_int(pipe.loop.extent)
    if sets > 1 and (extent is None or extent <= sets):
        return None
    own: list[list[Staged]] = []
    room = MAX_REGISTER_BYTES
    for _ in range(sets):
        own.append([])
        for f in pipe.parts.fills:
            staged = through_registers(f, room, pipe.loop.var)
            if staged is None:
                return None if sets > 1 else _one_set(pipe, target, None)
            room -= staged.bytes
            own[-1].append(staged)
    return _several(pipe, own) if sets > 1 else _one_set(pipe, target, own[0])


def _one_set(pipe: Pipeline, target: Target, own: list[Staged] | None) -> S.Stmt | None:
    """The loop with one set of registers; fills that registers cannot take (None) go into a slot of their own before the work, where there is one."""
    n, work = pipe.depth, Item(pipe.work)
    if own is None and pipe.n_slots <= n:
        return None
    kept: list[S.Stmt] = []
    crossed = any(x.registers[0].dtype == "float32" and is_turned(f) for f, x in zip(pipe.parts.fills, own or ()))
    if crossed and target.chip.family.startswith("cdna"):
        # Turned words of 32 bits are copies of registers, which LLVM else makes where the loads are, waiting for each.
        kept = [KEPT, *[held_until(r) for x in own or () for r in x.registers]]

    def load(t: Turn) -> S.Stmt:
        return pipe.at([x.load for x in own or ()], t, n)

    def store(t: Turn) -> S.Stmt:
        return S.seq(pipe.at([*kept, *[x.store for x in own or ()]], t, n), *pipe.fence)

    def begun(t: Turn) -> S.Stmt:
        # All loads of a first step are under way before what one of them brought is stored: LLVM else waits for one after another.
        return t.guard(n, S.seq(load(t), store(t)))

    staged = [Item(begun, n, "prologue"), Item(load, n, "steady"), work, Item(store, n, "steady")]
    turn = in_order([pipe.filled(n), work] if own is None else staged, work, pipe.one_step)
    # Unrolled, a short loop would have the loads of all its steps under way at once, in more registers than there are.
    steady = replace(pipe.loop, unroll=pipe.loop.unroll or 1, pipelined=True)
    out = expand(steady, n, turn, alike=True).stmt
    for x in reversed(own or ()):
        out = _in_registers(x, out)
    return pipe.in_storage(out)


def _several(pipe: Pipeline, own: list[list[Staged]]) -> S.Stmt:
    """Several sets of registers; that of a step is its number in the turn's, `Turn.number`, round by round."""
    sets = len(own)

    def of(t: Turn, ahead: int) -> list[Staged]:
        return own[(t.number + ahead - 1) % sets]

    def load(t: Turn) -> S.Stmt:
        return pipe.at([x.load for x in of(t, sets)], t, sets)

    def stores(t: Turn, ahead: int) -> list[S.Stmt]:
        """What came for a step, into its slot."""
        return pieces_of(pipe.at([x.store for x in of(t, ahead)], t, ahead))

    # Values come in the order in which they were asked for: the first step's before those of the steps ahead.
    begun = [Item(load, sets), Item(lambda t: KEPT, None, "prologue")]
    held = Copies() if _are_carried(pipe, sets) else None
    if held is None:
        turn = _moving(pipe, own, [*begun, Item(pipe.work), Item(lambda t: S.seq(*stores(t, 1)), 1)])
    else:
        turn = woven([*begun, *_carried(pipe, held, stores)], lambda t: leaves_of(pipe.work(t)), held)
    # Written out where steps are carried, so that each one's slot is a number, by which insert_barriers tells slots apart.
    loop = replace(pipe.loop, unroll=sets if held is None else 1, pipelined=True)
    out = expand(loop, sets, turn, together=1 if held is None else sets, rounded=sets).stmt
    for x in itertools.chain(*own):
        out = _in_registers(x, out)
    return pipe.in_storage(out if held is None else held.around(out))


def _in_registers(x: Staged, body: S.Stmt) -> S.Stmt:
    for r in x.registers:
        body = S.Alloc(r, body)
    return body


def _moving(pipe: Pipeline, own: list[list[Staged]], items: list[Item]) -> Callable[[Turn], S.Stmt]:
    """A turn at whose end the values of all sets move on by a set, if there are later turns like it."""
    pairs = [p for one, next_ in itertools.pairwise(own) for p in zip(one, next_)]
    moved = [moved_on(*r) for x, y in pairs for r in zip(x.registers, y.registers)]
    turn = in_order(items, items[-2], pipe.one_step)
    return lambda t: turn(t) if t.in_prologue or t.left is not None else S.seq(turn(t), *moved)


def _are_carried(pipe: Pipeline, sets: int) -> bool:
    """Whether steps fill registers for the next one."""
    if pipe.n_slots < 2 or sets % pipe.n_slots or not wants_leaves(pipe.parts.rest):
        return False
    if any(map(has_branches, pipe.parts.fills)):
        return False
    row = leaves_of(pipe.work(Turn(pipe.loop, pipe.loop.min)))
    kinds = [{which for which, *_ in leaf.fills} for leaf in row]
    return len(row) % 2 == 0 and all(k == kinds[0] for k in kinds)


def _carried(pipe: Pipeline, held: Copies, stores: Callable[[Turn, int], list[S.Stmt]]) -> list[Item]:
    """Steps whose first leaf is filled already, and that fill the next one's before their last sums, where each of two steps has a slot: so shared memory has as
    much to do in all parts of a step. The barrier ahead of that is the step's only one, and behind it nobody reads this step's slot: the first half of what
    comes there is stored at once, the rest in the turn behind. `held` stays for all steps: their leaves are even in number."""

    def first_half(t: Turn) -> S.Stmt:
        some = stores(t, 2) if t.has(1) else []
        return S.seq(*some[: len(some) // 2])

    def second_half(t: Turn) -> S.Stmt:
        some = stores(t, 1)
        return S.seq(*some[len(some) // 2 :])

    return [
        Item(lambda t: S.seq(*stores(t, 1)), 1, "prologue"),
        Item(first_half, 2, "prologue"),
        Item(second_half, 1, "steady", Where.TO_LAST),
        # Else insert_barriers, which is exact, puts one between these fills, and another where the loop begins again.
        Item(lambda t: BARRIER, 1, "steady", Where.AT_LAST),
        Item(lambda t: held.fill(leaves_of(pipe.work(t, 1))[0]), 1, where=Where.AT_LAST),
        Item(first_half, 2, "steady", Where.FROM_LAST),
    ]
