"""How much work a statement is: a fold over its loops and branches, for whatever is counted.

`Fold` knows what all counts share: statements after each other add up, a loop takes its trips', what is not known has its place in the subclass. What a
count is (clocks as an expression, or a row of numbers) and what a store, a call or a branch adds to it, a subclass says: `codegen.cpu.work` counts clocks of a
core, `choices.footprint` what a kernel asks of a GPU.

A loop whose trips depend on a loop around it takes those of that loop's first trip.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from . import expr as E
from . import stmt as S
from .visit import substitute

T = TypeVar("T")

UNKNOWN_TRIPS = 8  # of a loop whose number of trips is read from memory


class Fold(Generic[T]):
    """See the module. A subclass gives `zero`, `plus`, `repeated`, `branch`, `let` and `leaf`."""

    zero: T

    def __init__(self) -> None:
        self.first: dict[E.Var, E.Expr] = {}  # of loops: the variable at the first trip

    def stmt(self, s: S.Stmt) -> T:
        """The count of a statement."""
        if isinstance(s, S.Seq):
            total = self.zero
            for x in s.stmts:
                total = self.plus(total, self.stmt(x))
            return total
        if isinstance(s, S.For):
            extent = substitute(s.extent, self.first)
            self.first[s.var] = substitute(s.min, self.first)
            return self.repeated(s, extent, self.stmt(s.body))
        if isinstance(s, S.IfThenElse):
            cond = s.cond.args[0] if isinstance(s.cond, E.Call) and s.cond.op == "likely" else s.cond
            then, orelse = self.stmt(s.then), self.zero if s.orelse is None else self.stmt(s.orelse)
            return self.branch(substitute(cond, self.first), then, orelse)
        if isinstance(s, S.LetStmt):
            return self.plus(self.let(s), self.stmt(s.body))
        if isinstance(s, (S.Alloc, S.Attr)):
            return self.stmt(s.body)
        return self.leaf(s)

    # ---- what is counted

    def plus(self, a: T, b: T) -> T:
        """Of two statements one after the other."""
        raise NotImplementedError

    def repeated(self, loop: S.For, extent: E.Expr, once: T) -> T:
        """Of a loop whose body counts `once`; `extent` at the first trip of the loops around."""
        raise NotImplementedError

    def branch(self, cond: E.Expr, then: T, orelse: T) -> T:
        """Of two sides, one of which is taken; `cond` at the first trip of the loops around."""
        raise NotImplementedError

    def let(self, s: S.LetStmt) -> T:
        """Of the value that is bound, without the body."""
        raise NotImplementedError

    def leaf(self, s: S.Stmt) -> T:
        """Of a statement that has no other inside, or is a While."""
        raise NotImplementedError
