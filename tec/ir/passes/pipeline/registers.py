"""Fills of shared memory that go through registers: what a turn loads, a later turn stores.

    load @d, work, store @1          one slot or two, and d sets of registers, each a step's
    load @n, work, store @n          n + 1 slots, and one set
    fill @n, work                    fills that registers cannot take

With several sets and one slot values move on by a set each step, and LLVM is asked for as many steps a trip: then nothing is moved, and nothing waited for. With two
slots a step has one barrier, behind which the next one's first registers are filled (`leaves.carried`).
"""

from __future__ import annotations

import itertools
from dataclasses import replace

from ....target import Target
from ... import stmt as S
from ..rewrite_util import const_int
from .expand import Turn, expand
from .fills import KEPT, Pipeline
from .leaves import Copies, Leaf, carried, is_carried, leaves_of, pieces_of, wants_leaves
from .slots import MAX_REGISTER_BYTES, Staged, has_branches, held_until, is_turned, moved_on, through_registers


def through_sets(pipe: Pipeline, target: Target, sets: int) -> S.Stmt | None:
    """The loop with so many sets of registers; None where they cannot take the fills, and for several sets where the loop's length is not known or short."""
    extent = const_int(pipe.loop.extent)
    if sets > 1 and (extent is None or extent <= sets):
        return None
    own: list[list[Staged]] = []
    room = MAX_REGISTER_BYTES
    for _ in range(sets):
        own.append([])
        for f in pipe.parts.fills:
            staged = through_registers(f, room)
            if staged is None:
                return None
            room -= staged.bytes
            own[-1].append(staged)
    return _Several(pipe, own).build() if sets > 1 else _one_set(pipe, own[0], target)


def straight(pipe: Pipeline) -> S.Stmt | None:
    """Fills that registers cannot take go into a slot of their own before the work; None where there is none."""
    n = pipe.depth
    if pipe.n_slots <= n:
        return None

    def turn(t: Turn) -> S.Stmt:
        fill = [t.guard(n, pipe.fill(t, n)), *pipe.fence] if t.has(n) else []
        return S.seq(*fill) if t.in_prologue else pipe.one_step(fill, pipe.work(t), [])

    return pipe.in_storage(expand(_alone(pipe.loop), n, turn, alike=True).stmt)


def _alone(loop: S.For) -> S.For:
    """The loop, for the notes of the steady one. Unrolled, a short loop would have the loads of all its steps under way at once, in more registers than there are."""
    return replace(loop, unroll=loop.unroll or 1, pipelined=True)


def _one_set(pipe: Pipeline, own: list[Staged], target: Target) -> S.Stmt:
    n = pipe.depth
    kept: list[S.Stmt] = []
    turned = any(x.register.dtype == "float32" and is_turned(f) for f, x in zip(pipe.parts.fills, own))
    if turned and target.chip.family.startswith("cdna"):
        # Turned words of 32 bits are copies of registers, which LLVM else makes where the loads are, waiting for each.
        kept = [KEPT, *[held_until(x.register) for x in own]]

    def turn(t: Turn) -> S.Stmt:
        if t.in_prologue:
            return S.seq(t.guard(n, pipe.fill(t, n)), *pipe.fence) if t.has(n) else S.NOP
        begun = [pipe.at([x.load for x in own], t, n)] if t.has(n) else []
        ended = [pipe.at([*kept, *[x.store for x in own]], t, n), *pipe.fence] if t.has(n) else []
        out = pipe.one_step(begun, pipe.work(t), ended)
        for x in reversed(own) if begun else ():
            out = S.Alloc(x.register, out)
        return out

    return pipe.in_storage(expand(_alone(pipe.loop), n, turn, alike=True).stmt)


class _Several:
    """Several sets of registers; that of a step is its number in the turn's, `Turn.number`, round by round."""

    def __init__(self, pipe: Pipeline, own: list[list[Staged]]):
        self.pipe, self.own = pipe, own
        self.held = Copies() if self.is_carried() else None

    def is_carried(self) -> bool:
        """Whether steps fill registers for the next one."""
        pipe = self.pipe
        if pipe.n_slots < 2 or len(self.own) % pipe.n_slots or not wants_leaves(pipe.parts.rest):
            return False
        return not any(map(has_branches, pipe.parts.fills)) and is_carried(self.leaves(Turn(pipe.loop, pipe.loop.min)))

    def leaves(self, t: Turn, ahead: int = 0) -> list[Leaf]:
        return leaves_of(self.pipe.work(t, ahead))

    def of(self, t: Turn, ahead: int) -> list[Staged]:
        return self.own[(t.number + ahead - 1) % len(self.own)]

    def stores(self, t: Turn, ahead: int) -> list[S.Stmt]:
        """What came for a step, into its slot."""
        return pieces_of(self.pipe.at([x.store for x in self.of(t, ahead)], t, ahead)) if t.has(ahead) else []

    def turn(self, t: Turn) -> S.Stmt:
        pipe, held, sets = self.pipe, self.held, len(self.own)
        begun = [pipe.at([x.load for x in self.of(t, sets)], t, sets)] if t.has(sets) else []
        ended = self.stores(t, 1)
        early = self.stores(t, 2) if held is not None and t.number >= -1 else []
        early = early[: len(early) // 2]
        if t.in_prologue:
            # Values come in the order in which they were asked for: the first step's before those of the steps ahead.
            first = [*early, held.fill(self.leaves(t, 1)[0])] if held is not None and t.number == -1 else []
            return S.seq(*begun, KEPT, *ended, *first)
        if held is not None:
            after = self.leaves(t, 1)[0] if t.has(1) else None
            return carried(self.leaves(t), after, held, begun, ended[len(ended) // 2 :], early)
        moved = []
        if t.left is None:
            pairs = [p for one, next_ in itertools.pairwise(self.own) for p in zip(one, next_)]
            moved = [moved_on(x.register, y.register) for x, y in pairs]
        return S.seq(pipe.one_step(begun, pipe.work(t), ended), *moved)

    def build(self) -> S.Stmt:
        sets = len(self.own)
        loop = replace(self.pipe.loop, unroll=sets if self.held is None else 1, pipelined=True)
        # Written out where steps are carried, so that each one's slot is a number, by which insert_barriers tells slots apart.
        out = expand(loop, sets, self.turn, together=1 if self.held is None else sets, rounded=sets).stmt
        for x in itertools.chain(*self.own):
            out = S.Alloc(x.register, out)
        return self.pipe.in_storage(out if self.held is None else self.held.around(out))


__all__ = ["straight", "through_sets"]
