"""The loops of a hybrid script under a schedule.

In: an ExternOp whose `axis` names loops of its body, and the relations and annotations of its stage. Out: the body with these loops as the stage has them.
Loops that stand directly in one another are a `Nest`; splits, fuses and orders stay within one. What a schedule may do with a loop follows from what its
statements write: `Nest.carried` are the loops whose steps meet at one element.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ir import expr as E
from ..ir import stmt as S
from ..ir.effects import Access, effects
from ..ir.structural import structural_equal
from ..ir.visit import Rewriter, free_vars, visit
from ..records import dataclass
from ..te.operation import ExternOp
from .show import fail

if TYPE_CHECKING:
    from .stage import Stage
    from .to_loops import Lowering


@dataclass(frozen=True, slots=True)
class Nest:
    """Loops directly in one another, outermost first, and what stands in the innermost."""

    loops: tuple[E.IterVar, ...]
    body: S.Stmt

    def carried(self) -> tuple[set[E.IterVar], str]:
        """Loops whose steps write an element that others of their steps touch, and the name of one such buffer.

        A buffer counts as well understood where all of its accesses have the same indices, each of them a loop's variable or without one: the other
        loops then come back to an element. Of others every loop is taken to do so.
        """
        out: set[E.IterVar] = set()
        name = ""
        own = _allocated(self.body)
        by_buffer: dict[int, list[Access]] = {}
        for a in effects(self.body).accesses:
            if id(a.buffer) not in own:
                by_buffer.setdefault(id(a.buffer), []).append(a)
        for found in by_buffer.values():
            if any(a.is_write for a in found):
                back = self._come_back(found)
                name = found[0].buffer.name if back and not name else name
                out |= back
        return out, name

    def _come_back(self, found: list[Access]) -> set[E.IterVar]:
        first = found[0].indices
        variables = {iv.var: iv for iv in self.loops}
        alike = all(
            len(a.indices) == len(first) and all(structural_equal(i, j) for i, j in zip(a.indices, first))
            for a in found[1:]
        )
        plain = {i for i in first if isinstance(i, E.Var)}
        rest = [v for i in first if not isinstance(i, E.Var) for v in free_vars(i) if v in variables and v not in plain]
        if not alike or rest:
            return set(self.loops)
        return {iv for v, iv in variables.items() if v not in plain}


def nests(op: ExternOp) -> list[Nest]:
    """The nests of a script's own loops, in the order of the program."""
    own = {iv.var: iv for iv in op.axis}
    out: list[Nest] = []

    def walk(s: S.Stmt, r: Rewriter) -> S.Stmt:
        assert isinstance(s, S.For)
        if s.var in own:
            nest = _nest(s, own)
            out.append(nest)
            r.stmt(nest.body)
        else:
            r.stmt_children(s)
        return s

    Rewriter({}, {S.For: walk}).stmt(op.body)
    return out


def _nest(s: S.For, own: dict[E.Var, E.IterVar]) -> Nest:
    loops: list[E.IterVar] = []
    at: S.Stmt = s
    while isinstance(at, S.For) and at.var in own:
        loops.append(own[at.var])
        at = at.body
    return Nest(tuple(loops), at)


def _allocated(s: S.Stmt) -> set[int]:
    out: set[int] = set()

    def note(x: S.Stmt) -> None:
        if isinstance(x, S.Alloc):
            out.add(id(x.buffer))

    visit(s, None, note)
    return out


def roots_of(stage: Stage, iv: E.IterVar) -> set[E.IterVar]:
    """The operation's own loops that `iv` was made of."""
    out = {iv}
    for r in reversed(stage.relations):
        if any(c in out for c in r.children):
            out = (out - set(r.children)) | set(r.parents)
    return out


# ---- what a schedule may do


def check_one_nest(stage: Stage, loops: list[E.IterVar], what: str) -> Nest | None:
    """The nest that `loops` of a script belong to, None for another operation; a ScheduleError where they belong to several."""
    if not isinstance(stage.op, ExternOp) or not loops:
        return None
    found = [n for n in nests(stage.op) if any(roots_of(stage, iv) & set(n.loops) for iv in loops)]
    if len(found) != 1:
        raise fail(
            stage, f"{what} of {', '.join(iv.name for iv in loops)}, between which the script {stage.name} has other statements",
            mark=loops[-1], hint="loops directly in one another alone change places or become one",
        )  # fmt: skip
    return found[0]


def check_order(stage: Stage, loops: list[E.IterVar]) -> None:
    """A new order of a script's loops: steps that meet at one element keep theirs."""
    nest = check_one_nest(stage, loops, "reorder")
    if nest is None:
        return
    carried, name = nest.carried()
    kept = [iv for iv in loops if roots_of(stage, iv) & carried]
    before = [iv for iv in stage.leaf if any(iv is x for x in kept)]
    if any(a is not b for a, b in zip(kept, before)):
        raise fail(
            stage, f"reorder of {', '.join(iv.name for iv in kept)} in the script {stage.name}: their steps write {name} at places that others of them touch",
            mark=kept[0], hint="the order of such steps is part of the result",
        )  # fmt: skip


def check_steps_apart(stage: Stage, iv: E.IterVar, what: str) -> None:
    """A script's loop whose steps run at one time does not write the same element in two of them."""
    nest = check_one_nest(stage, [iv], what)
    if nest is None:
        return
    carried, name = nest.carried()
    if roots_of(stage, iv) & carried:
        raise fail(
            stage, f"{what} of loop {iv.name} of the script {stage.name}: its steps write {name} at places that others of them touch", mark=iv,
            hint=f"where you know better, say so in the script: for {iv.name} in {'bind(tag, n)' if what == 'bind' else what + '(n)'}",
        )  # fmt: skip


# ---- lowering


def lower_script(low: Lowering, stage: Stage, op: ExternOp) -> S.Stmt:
    """The body with its loops as the stage has them."""
    if not op.axis:
        return op.body
    values = low.leaf_values(stage)
    low.root_values(stage, values)
    subs = {iv.var: values[iv] for iv in op.axis}
    conds = low.predicates(stage, values)
    heads = {n.loops[0].var: n for n in nests(op)}

    def on_var(e: E.Var, r: Rewriter) -> E.Expr:
        return subs.get(e, e)

    def on_for(s: S.For, r: Rewriter) -> S.Stmt:
        nest = heads.get(s.var)
        if nest is None:
            return r.stmt_children(s)
        mine = [iv for iv in stage.leaf if roots_of(stage, iv) & set(nest.loops)]
        names = {iv.var for iv in mine}
        body = low.guarded(stage, [c for c in conds if names & set(free_vars(c))], r.stmt(nest.body))
        return low.nest(stage, mine, body)

    return Rewriter({E.Var: on_var}, {S.For: on_for}).stmt(op.body)
