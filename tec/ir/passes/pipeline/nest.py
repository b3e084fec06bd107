"""Loops and conditions around one store: the form of statements that a pipeline takes apart."""

from __future__ import annotations

from collections.abc import Sequence

from ....records import dataclass
from ... import expr as E
from ... import stmt as S
from ...visit import free_vars


def is_choice(e: E.Expr) -> bool:
    """Whether an expression is one of two, of which the other is not evaluated."""
    return type(e) is E.Call and e.op == "if_then_else"


def masked(e: E.Expr, lane: E.Var | None = None) -> tuple[E.Expr, E.Expr | None, E.IntImm | E.FloatImm | None]:
    """A value that is made under a condition of all lanes (of any, where no lane is named), the condition, and the number that stands else; (`e`, None, None) where it is another expression."""
    if is_choice(e):
        cond, value, other = e.args  # type: ignore[attr-defined]
        if isinstance(other, (E.IntImm, E.FloatImm)) and (lane is None or lane not in free_vars(cond)):
            return value, cond, other
    return e, None, None


@dataclass(slots=True)
class Nest:
    """`around`: loops (none over threads) and conditions (without another branch), outermost first; `store` stands inside."""

    around: list[S.For | S.IfThenElse]
    store: S.BufferStore

    @staticmethod
    def of(s: S.Stmt) -> Nest | None:
        """A statement's nest; None where it is none."""
        around: list[S.For | S.IfThenElse] = []
        while not isinstance(s, S.BufferStore):
            if isinstance(s, S.For) and s.kind != S.ForKind.THREAD:
                around.append(s)
                s = s.body
            elif isinstance(s, S.IfThenElse) and s.orelse is None:
                around.append(s)
                s = s.then
            else:
                return None
        return Nest(around, s)

    @property
    def loops(self) -> list[S.For]:
        return [x for x in self.around if isinstance(x, S.For)]

    def with_inside(self, body: S.Stmt, around: Sequence[S.For | S.IfThenElse] | None = None) -> S.Stmt:
        """The nest, or the part of it in `around`, around something else."""
        for x in reversed(self.around if around is None else around):
            body = x.with_body(body) if isinstance(x, S.For) else S.IfThenElse(x.cond, body)
        return body
