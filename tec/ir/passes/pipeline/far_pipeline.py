"""Software pipelines with the loads of some steps under way, each step's in registers of its own; for `pipeline`.

With one slot values move on by a set of registers each step, and LLVM is asked for as many steps a turn: then nothing is moved, and nothing waited for. With two
slots a step has one barrier, behind which the next one's first registers are filled (`interleave.carried`).
"""

from __future__ import annotations

import itertools
from typing import Any

from ... import build as B
from ... import expr as E
from ... import stmt as S
from ...buffer import Buffer
from ..rewrite_util import clone, const_int
from .fragment_pipeline import Copies, Leaf, leaves_of, wants_fragments_ahead
from .interleave import carried, is_carried, pieces_of
from .slots import MAX_REGISTER_BYTES, has_branches, moved_on, through_registers

_Staged = tuple[S.Stmt, S.Stmt, Buffer, int]  # loads, stores, the registers between, their bytes


def far_pipeline(made: Any, ahead: int) -> S.Stmt | None:
    """The loads of `ahead` steps under way; None where the loop's length is not known or short, or registers cannot take them. made: the `_Pipeline`."""
    extent = const_int(made.loop.extent)
    if extent is None or extent <= ahead:
        return None
    sets = [[through_registers(f, MAX_REGISTER_BYTES) for f in made.body.fills] for _ in range(ahead)]
    used = sum(x[3] for one in sets for x in one if x is not None)
    if any(x is None for one in sets for x in one) or used > MAX_REGISTER_BYTES:
        return None
    return _Far(made, [[x for x in one if x is not None] for one in sets], extent).build()


class _Far:
    def __init__(self, made: Any, own: list[list[_Staged]], extent: int):
        self.made, self.own, self.extent, self.ahead = made, own, extent, len(own)
        self.first: E.Expr = made.loop.min
        self.held = Copies() if self.is_carried() else None

    def is_carried(self) -> bool:
        """Whether steps fill registers for the next one."""
        body, slots = self.made.body, self.made.n_slots
        if (
            slots < 2
            or self.ahead % slots
            or not wants_fragments_ahead(body.rest)
            or any(map(has_branches, body.fills))
        ):
            return False
        return is_carried(self.leaves(self.first))

    def step(self, of: E.Expr, n: int) -> E.Expr:
        """The step so many behind another."""
        at: E.Expr = self.made.ana.simplify(B.add(of, n))
        return at

    def placed(self, stmts: list[S.Stmt], step: E.Expr) -> S.Stmt:
        """Statements for a step, in its slot."""
        slot = self.made.ana.simplify(self.made.slot_of(B.sub(step, self.first)))
        out: S.Stmt = self.made.wrapped(clone(S.seq(*stmts), {}), step, slot)
        return out

    def leaves(self, step: E.Expr) -> list[Leaf]:
        return leaves_of(self.placed(self.made.body.rest, step))

    def loads(self, into: list[_Staged], step: E.Expr) -> S.Stmt:
        return self.placed([x[0] for x in into], step)

    def stores(self, of: list[_Staged], step: E.Expr) -> list[S.Stmt]:
        """What came for a step, into its slot."""
        return list(pieces_of(self.placed([x[1] for x in of], step)))

    def turn(self, step: E.Expr, first: int, left: int) -> S.Stmt:
        """A step whose next one waits in set `first`, and behind which `left` come."""
        own, ahead, after = self.own, self.ahead, self.step(step, 1)
        begun = [self.loads(own[(first + ahead - 1) % ahead], self.step(step, ahead))] if left >= ahead else []
        ended = self.stores(own[first % ahead], after) if left else []
        if self.held is None:
            out: S.Stmt = self.made.one_step(begun, self.placed(self.made.body.rest, step), ended)
            return out
        early = self.stores(own[(first + 1) % ahead], self.step(step, 2)) if left > 1 else []
        early, rest = early[: len(early) // 2], ended[len(ended) // 2 :]
        return carried(self.leaves(step), self.leaves(after)[0] if left else None, self.held, begun, rest, early)

    def build(self) -> S.Stmt:
        loop, own, ahead, extent = self.made.loop, self.own, self.ahead, self.extent
        kept_order = S.Evaluate(E.Call("keep_order", (), "int32"))
        trips = (extent - ahead) // ahead * ahead
        # Values come in the order in which they were asked for: the first step's before those of the steps ahead, by the set that is still free.
        parts = [s for n in range(ahead) for s in (self.loads(own[n - 1], self.step(self.first, n)), kept_order)]
        parts += self.stores(own[ahead - 1], self.first)
        var = E.Var(loop.var.name, loop.var.dtype)
        if self.held is not None:
            begun = self.stores(own[0], self.step(self.first, 1))
            parts += [*begun[: len(begun) // 2], self.held.fill(self.leaves(self.first)[0])]
            # Written out, so that each step's slot is a number, by which insert_barriers tells slots apart.
            steps = [self.step(B.add(self.first, B.mul(var, ahead)), n) for n in range(ahead)]
            inside = S.seq(*[self.turn(x, n, extent) for n, x in enumerate(steps)])
            begin, count, unroll = B.const(0, var.dtype), trips // ahead, 1
        else:
            moved = [moved_on(x[2], y[2]) for one, next_ in itertools.pairwise(own) for x, y in zip(one, next_)]
            inside = S.seq(self.turn(var, 0, extent), *moved)
            begin, count, unroll = self.first, trips, ahead
        if trips:
            n_trips = B.const(count, var.dtype)
            parts.append(S.For(var, begin, n_trips, inside, loop.kind, loop.thread, unroll, pipelined=True))
        parts += [self.turn(self.step(self.first, n), n - trips, extent - 1 - n) for n in range(trips, extent)]
        out = S.seq(*parts)
        for register in (*[x[2] for one in own for x in one], *(self.held.buffers.values() if self.held else ())):
            out = S.Alloc(register, out)
        done: S.Stmt = self.made.in_storage(out)
        return done
