"""The expander of software pipelines: prologue, steady state and epilogue of a loop whose turns work on several of its steps.

In: a loop, and what one turn of the pipeline does, as a function of the `Turn`: which of the loop's steps it may work on. A turn's own step is the one that
it ends; parts of it begin steps that are some turns `ahead`. Out, where the loop's length is known:

    prologue        turns -ahead .. -1, written out: what is ahead of the loop's first steps
    steady state    a loop over the turns in which every step exists
    epilogue        the last turns, in which no step begins: written out, or a loop of their own

Where the length is not known, or the steps that begin are guarded anyway, the steady state has all turns and asks whether a step exists (`Turn.guard`).

Source: modulo scheduling as in Lam, "Software Pipelining" (PLDI 1988); MLIR's and Triton's PipelineExpander take stage and order as data too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum

from ....records import dataclass
from ... import build as B
from ... import expr as E
from ... import stmt as S
from ...arith import Analyzer
from ..rewrite_util import const_int


@dataclass(frozen=True, slots=True)
class Turn:
    """The steps of `loop` that one turn may work on: `base` + `offset` is the step that it ends, as the loop counts. `number`: which turn it is: below 0 in the prologue, counted
    from the steady state's end in the epilogue, and within one trip of the steady loop there. `left`: steps behind its own (None: as many as are asked for)."""

    loop: S.For
    base: E.Expr
    offset: int = 0
    number: int = 0
    in_prologue: bool = False
    left: int | None = None
    guarded: bool = False

    def has(self, ahead: int) -> bool:
        """Whether there may be a step so many turns ahead of its own."""
        return not (self.in_prologue and self.number + ahead < 0) and (self.left is None or ahead <= self.left)

    def step(self, ahead: int = 0) -> E.Expr:
        """That step, as the loop counts."""
        return B.add(self.base, B.const(self.offset + ahead, self.base.dtype))

    def count(self, ahead: int = 0) -> E.Expr:
        """That step, counted from 0."""
        return B.add(B.sub(self.base, self.loop.min), B.const(self.offset + ahead, self.base.dtype))

    def guard(self, ahead: int, s: S.Stmt) -> S.Stmt:
        """A statement under the condition that there is a step so many ahead, where that is not known."""
        if not self.guarded or not ahead:
            return s
        cond = Analyzer().simplify(B.compare("lt", self.count(ahead), self.loop.extent))
        return s if isinstance(cond, E.IntImm) and cond.value else S.IfThenElse(cond, s)


@dataclass(frozen=True, slots=True)
class Expanded:
    """The three parts of a pipeline, in order."""

    prologue: list[S.Stmt]
    steady: list[S.Stmt]
    epilogue: list[S.Stmt]

    @property
    def stmt(self) -> S.Stmt:
        return S.seq(*self.prologue, *self.steady, *self.epilogue)


def expand(
    loop: S.For, ahead: int, turn: Callable[[Turn], S.Stmt], together: int = 1, rounded: int = 1, guarded: bool = False, alike: bool = False
) -> Expanded:  # fmt: skip
    """The loop as a pipeline whose turns begin steps at most `ahead` turns before they end.

    turn: what one of them does. together: turns that one trip of the steady loop writes out, each with a `number` of its own; rounded: its turns are a
    multiple of so many (of `together` anyway), and the epilogue has the rest. guarded: the steady loop has all turns, and steps that may not exist stand
    under `Turn.guard`. alike: what a turn does is for its own step or for the one `ahead`; the epilogue's turns are then alike, and where there are several
    they are a loop. A loop whose length is not known is one or the other. The steady loop keeps the notes of `loop`.
    """
    extent, one = const_int(loop.extent), loop.var.dtype
    simplify = Analyzer().simplify
    guarded = guarded or (extent is None and not alike)

    def fixed(k: int, number: int, in_prologue: bool = False) -> S.Stmt:
        left = None if extent is None else extent - 1 - k
        return turn(Turn(loop, loop.min, k, number, in_prologue, left, guarded or extent is None))

    prologue = [fixed(k, k, True) for k in range(-ahead, 0)]
    var = E.Var(loop.var.name, one)
    if guarded:
        return Expanded(prologue, [replace(loop, var=var, body=turn(Turn(loop, var, guarded=True)))], [])
    steady: list[S.Stmt] = []
    if extent is None:
        count = simplify(B.maximum(B.sub(loop.extent, ahead), 0))
        steady.append(replace(loop, var=var, extent=count, body=turn(Turn(loop, var))))
    else:
        rounded = max(together, rounded)
        n = max(0, extent - ahead) // rounded * rounded
        count = B.const(n, one)
        if n and together == 1:
            steady.append(replace(loop, var=var, extent=count, body=turn(Turn(loop, var))))
        elif n:
            base = B.add(loop.min, B.mul(var, together))
            body = S.seq(*[turn(Turn(loop, base, k, k)) for k in range(together)])
            steady.append(replace(loop, var=var, min=B.const(0, one), extent=B.const(n // together, one), body=body))
        if not alike or extent - n == 1:
            return Expanded(prologue, steady, [fixed(k, k - n) for k in range(n, extent)])
    tail = E.Var(loop.var.name, one)
    rest = turn(Turn(loop, tail, left=0))
    first_left = simplify(B.add(loop.min, count))
    return Expanded(prologue, steady, [S.For(tail, first_left, simplify(B.sub(loop.extent, count)), rest)])


class Where(Enum):
    """Where an item stands among the sums of a step's leaves (`leaves.Weave`)."""

    EARLY = "dealt evenly over the first half"
    LATE = "over the last leaf's, when all of the slot is read, each as late as that allows"
    TO_LAST = "over those ahead of the last leaf's"
    FROM_LAST = "over the last leaf's"
    AT_LAST = "in one piece before the last leaf's"
    BEHIND_FIRST = "in one piece behind the first leaf's"


@dataclass(frozen=True, slots=True)
class Item:
    """One statement of a pipeline's turn, which `make` gives for it. ahead: it is for the step so many turns ahead of the turn's own, and is left out where there is
    none (None: each turn has it, those of the prologue too). part: "prologue" or "steady" (and what follows), where only those turns have it. where: its place
    among the sums, for a turn that weaves them."""

    make: Callable[[Turn], S.Stmt]
    ahead: int | None = 0
    part: str = ""
    where: Where = Where.EARLY

    def is_of(self, t: Turn) -> bool:
        """Whether a turn has it."""
        return self.part != ("steady" if t.in_prologue else "prologue") and (self.ahead is None or t.has(self.ahead))


Joined = Callable[[list[S.Stmt], S.Stmt, list[S.Stmt]], S.Stmt]


def in_order(items: Sequence[Item], work: Item | None = None, joined: Joined | None = None) -> Callable[[Turn], S.Stmt]:
    """A turn that does its items one after another. joined: makes one statement of what stands before `work` (one of the items), the work, and what stands behind it."""

    def turn(t: Turn) -> S.Stmt:
        made = [(x, x.make(t)) for x in items if x.is_of(t)]
        at = next((k for k, (x, _) in enumerate(made) if x is work), None)
        stmts = [s for _, s in made]
        if joined is None or at is None:
            return S.seq(*stmts)
        return joined(stmts[:at], stmts[at], stmts[at + 1 :])

    return turn
