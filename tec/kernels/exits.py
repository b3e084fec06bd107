"""Ways out of a block: which statements may leave it, by return, break or continue, and what follows them then."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from ..ir import stmt as S
from .expressions import Expressions
from .frames import Key

EXITS = (ast.Return, ast.Break, ast.Continue)


class Exits(Expressions):
    """What may leave a block, and flags that say that something has."""

    def exits(self, s: ast.AST) -> set[type]:
        """The kinds of exits (return, break, continue) by which a statement may leave the block that it stands in."""
        found: set[type] = set()
        if isinstance(s, EXITS):
            found = {type(s)}
        elif isinstance(s, (ast.For, ast.While)):
            found = self.inner_exits(s.body) & {ast.Return}
        elif isinstance(s, ast.If):
            found = self.inner_exits([*s.body, *s.orelse])
        elif isinstance(s, ast.Assert):
            found = {ast.Return}
        if self.known.failing and any(self.may_fail(x) for x in ast.iter_child_nodes(s) if not isinstance(x, ast.stmt)):
            found = found | {ast.Return}
        return found

    def inner_exits(self, body: list[ast.stmt]) -> set[type]:
        return {k for x in body for k in self.exits(x)}

    def may_fail(self, e: ast.AST) -> bool:
        """Whether an expression calls a helper whose assertion may fail."""
        return any(id(x) in self.known.failing for x in ast.walk(e))

    def unless_left(self, left: set[type], s: ast.stmt, then: Callable[[], Any]) -> None:
        """What `then` translates, where none of the exits was taken."""
        self.node = s
        with self.branch() as items:
            then()
            now = set(self.assigned)
        if items:
            self.emit(S.IfThenElse(self.lowered(self.flags_of(left), s), self.body(items), None, self.where(s)))
        self.assigned = now  # the way past them leaves the block as well

    def flags_of(self, left: set[type]) -> list[Key]:
        out: list[Key] = []
        if ast.Return in left:
            out.append(self.frame.returned)
        if ast.Break in left:
            out.append(self.frame.loops[-1].broken)
        if ast.Continue in left:
            out.append(self.frame.loops[-1].skipped)
        return out

    def fail(self, node: ast.AST) -> None:
        """The thread ends: this function is left, and the one that called it will be."""
        self.raise_flag(self.frame.returned, True, node)
        if self.frame.caller is not None:
            self.frame.fails = True
            self.store(self.frame.failed, True, node)


def leaves(body: list[ast.stmt]) -> bool:
    """Whether a block always ends in an exit."""
    if not body:
        return False
    last = body[-1]
    return (
        isinstance(last, EXITS)
        or (isinstance(last, ast.If) and leaves(last.body) and leaves(last.orelse))
        or any(isinstance(x, EXITS) for x in body)
    )
