"""Cut loops of a CPU where the conditions of a value change, and ask what a loop does not change outside of it.

    for i in range(n):                                   for i in range(n):
        for j in range(m + 9):                               if i < p:
            y[..] = if_then_else(i < p and j >= 4       ->       for j in range(4): y[..] = 0
                                 and j < m + 4,                  for j in range(m): y[..] = x[..]
                                 x[..], 0)                       for j in range(5): y[..] = 0
                                                             else: for j in range(m + 9): y[..] = 0

In: flat buffers, before `vectorize_loops`, which makes vectors of the parts: copies without a question, instead of loads under a mask. Nests of serial loops around
one store are changed, whose values hold `if_then_else` (of padding, of concatenation). A condition is solved for a loop's variable where it is a constant times
that variable beside a constant. Of a long loop that is a part of a row, whose conditions change where the part says, the ends are asked first: if they
answer alike, so does all between them. A nest that would become too many stores stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from ...target import Target
from .. import build as B
from .. import expr as E
from .. import stmt as S
from ..arith import Analyzer, conjuncts
from ..effects import effects
from ..func import Func
from ..visit import any_expr, children, map_expr, map_stmts, substitute, walk_exprs
from .rewrite_util import clone, const_int, uses_var

_LONG = 256  # turns of a loop that are worth a question ahead of it
_MOST_STORES = 32  # that a nest may become: a padded value of four dimensions is 15
# Of each comparison with 0: from which number on it holds (True), or no longer does (False).
_BOUNDS: dict[type, tuple[int, bool]] = {E.LT: (0, False), E.LE: (1, False), E.GE: (0, True), E.GT: (1, True)}


class _TooManyError(Exception):
    """Internal: the nest stays as it is."""


def cut_loops(func: Func, target: Target) -> Func:
    """The function with loops of one condition's answer each; see the module."""
    if target.is_gpu or not _has_choice(func.body):
        return func
    return func.with_body(_stmt(func.body))


def _has_choice(s: S.Stmt) -> bool:
    return any_expr(s, _is_choice)


def _is_choice(e: E.Expr) -> bool:
    return type(e) is E.Call and e.op == "if_then_else"


def _stmt(s: S.Stmt) -> S.Stmt:
    loops, store = _nest(s)
    if not loops or store is None or not _has_choice(store):
        return map_stmts(s, _stmt)
    try:
        return _Cutter(loops).level(0, store)
    except _TooManyError:
        return s


def _nest(s: S.Stmt) -> tuple[list[S.For], S.BufferStore | None]:
    """Serial loops around each other, and the one store in them."""
    loops: list[S.For] = []
    while isinstance(s, S.For) and s.kind == S.ForKind.SERIAL and not s.unroll and not s.pipelined:
        loops.append(s)
        s = s.body
    is_plain = isinstance(s, S.BufferStore) and s.predicate is None
    return loops, s if is_plain else None  # type: ignore[return-value]


class _Cutter:
    def __init__(self, loops: list[S.For]):
        self.loops = loops
        self.analyzer = Analyzer()
        self.stores = 0

    def level(self, k: int, store: S.BufferStore) -> S.Stmt:
        """The loops from `k` on around a store."""
        if k == len(self.loops):
            self.stores += 1
            if self.stores > _MOST_STORES:
                raise _TooManyError
            return store
        later = [*(loop.var for loop in self.loops[k:]), *_named(store.value)]
        known = self._known(store.value, later)
        if known:  # the same in all of these loops
            taken = self.level(k, self._with(store, dict.fromkeys(map(id, known), True)))
            other = self.level(k, self._with(store, {id(known[0]): False}, known))
            return S.IfThenElse(B.all_of(*known), clone(taken, {}), clone(other, {}))
        return self._cut(k, store)

    def _cut(self, k: int, store: S.BufferStore) -> S.Stmt:
        """Loop `k` in parts."""
        loop = self.loops[k]
        low, extent = const_int(loop.min), const_int(loop.extent)
        if low is not None and extent is None:
            return self._cut_open(k, store)
        if low is None or extent is None or extent < 1:
            return loop.with_body(self.level(k + 1, store))
        asked = [
            (c, at, up) for c in _conditions(store.value) if (found := self._solved(c, loop.var)) for at, up in [found]
        ]
        if not asked and extent >= _LONG and (moving := self._changing(k, store)) is not None:
            return self._whole_or_mixed(k, store, moving)
        ends = sorted({low, low + extent, *(at for _, at, _ in asked if low < at < low + extent)})
        parts = []
        for begin, end in pairwise(ends):
            answers = {id(c): (begin >= at) == up for c, at, up in asked}
            body = self.level(k + 1, self._with(store, answers) if answers else store)
            part = S.For(
                loop.var, B.const(begin, loop.var.dtype), B.const(end - begin, loop.var.dtype), body, loop.kind
            )
            parts.append(part if len(ends) == 2 else clone(part, {}))
        return S.seq(*parts)

    def _cut_open(self, k: int, store: S.BufferStore) -> S.Stmt:
        """Loop `k` of open length in parts, where the places of its conditions' changes have an order for all sizes; a place outside of the loop is at its end."""
        loop, later = self.loops[k], [*(x.var for x in self.loops[k + 1 :]), *_named(store.value)]
        end = self.analyzer.simplify(B.add(loop.min, B.maximum(loop.extent, B.const(0, loop.extent.dtype))))
        asked = [
            (c, self._between(loop.min, found[0], end), found[1]) for c in _conditions(store.value)
            if (found := self._place(c, loop.var)) is not None and not any(uses_var(found[0], v) for v in later)
        ]  # fmt: skip
        ends = [loop.min, end]
        for _, at, _ in asked:
            where = next((n for n, e in enumerate(ends) if self.analyzer.can_prove(B.compare("le", at, e))), None)
            if where is None or (where and not self.analyzer.can_prove(B.compare("le", ends[where - 1], at))):
                return loop.with_body(self.level(k + 1, store))
            if not self.analyzer.can_prove_equal(at, ends[where]):
                ends.insert(where, at)
        parts = []
        for begin, stop in pairwise(ends):
            answers = {id(c): self.analyzer.can_prove(B.compare("ge", begin, at)) == up for c, at, up in asked}
            body = self.level(k + 1, self._with(store, answers) if answers else store)
            steps = self.analyzer.simplify(B.sub(stop, begin))
            part = S.For(loop.var, begin, steps, body, loop.kind)
            parts.append(part if len(ends) == 2 else clone(part, {}))
        return S.seq(*parts)

    def _between(self, low: E.Expr, at: E.Expr, high: E.Expr) -> Any:
        """A place, or the end that it is beyond."""
        if not self.analyzer.can_prove(B.compare("le", low, at)):
            at = B.maximum(low, at)
        if not self.analyzer.can_prove(B.compare("le", at, high)):
            at = B.minimum(at, high)
        return self.analyzer.simplify(at)

    def _place(self, c: E.Expr, var: E.Var) -> tuple[E.Expr, bool] | None:
        """As `_solved`, of a variable that a comparison takes once, for a place that is no number."""
        found = self._linear(c, var)
        if found is None or abs(found[0]) != 1:
            return None
        bound, holds_above = _BOUNDS[type(c)]
        if found[0] < 0:
            return self.analyzer.simplify(B.add(found[1], 1 - bound)), not holds_above
        return self.analyzer.simplify(B.sub(B.const(bound, var.dtype), found[1])), holds_above

    def _changing(self, k: int, store: S.BufferStore) -> E.Expr | None:
        """A condition that changes at most once in loop `k`, at a place that depends on the loops around."""
        var, later = self.loops[k].var, [*(loop.var for loop in self.loops[k + 1 :]), *_named(store.value)]
        for c in _conditions(store.value):
            found = self._linear(c, var)
            if found is not None and not any(uses_var(found[1], v) for v in later):
                return c
        return None

    def _whole_or_mixed(self, k: int, store: S.BufferStore, c: E.Expr) -> S.Stmt:
        """Loop `k` without a condition that its first and its last turn answer alike, and with it."""
        loop = self.loops[k]
        last = B.add(loop.min, B.sub(loop.extent, 1))
        ends = [substitute(c, {loop.var: at}) for at in (loop.min, last)]
        whole, none = (self._cut(k, self._with(store, {id(c): answer})) for answer in (True, False))
        mixed = loop.with_body(self.level(k + 1, store))
        rest = S.IfThenElse(B.any_of(*ends), clone(mixed, {}), clone(none, {}))
        return S.IfThenElse(B.all_of(*ends), clone(whole, {}), rest)

    def _known(self, value: E.Expr, later: Sequence[E.Var]) -> list[E.Expr]:
        """Conditions of the outermost choice that has such ones, none of which the loops to come change."""
        if _is_choice(value):
            known = [c for c in conjuncts(value.args[0]) if _is_plain(c) and not any(uses_var(c, v) for v in later)]  # type: ignore[attr-defined]
            if known:
                return known
        below = value.args[1:] if _is_choice(value) else _operands(value)  # type: ignore[attr-defined]
        return next((found for e in below if (found := self._known(e, later))), [])

    def _solved(self, c: E.Expr, var: E.Var) -> tuple[int, bool] | None:
        """From which value of the variable on a comparison holds (True), or no longer does (False)."""
        found = self._linear(c, var)
        rest = const_int(self.analyzer.simplify(found[1])) if found is not None else None
        if found is None or rest is None:
            return None
        step = found[0]
        # step * v + rest, compared with 0, as  at least `bound`  or  its opposite.
        bound, holds_above = _BOUNDS[type(c)]
        if step < 0:  # at least `bound` where -step * v <= rest - bound
            return (rest - bound) // -step + 1, not holds_above
        return -((rest - bound) // step), holds_above

    def _linear(self, c: E.Expr, var: E.Var) -> tuple[int, E.Expr] | None:
        """(step, rest) of a comparison's left side less its right one, step * var + rest; None where it is no such number, or a step of 0."""
        if type(c) not in _BOUNDS or not uses_var(c, var) or not _is_plain(c):
            return None
        found = self.analyzer.detect_linear(B.sub(c.a, c.b), [var])  # type: ignore[attr-defined]
        step = const_int(found[0]) if found is not None else None
        return (step, found[1]) if found is not None and step else None

    def _with(self, store: S.BufferStore, answers: dict[int, bool], known: Sequence[E.Expr] = ()) -> S.BufferStore:
        value = _answered(store.value, answers)
        return S.BufferStore(store.buffer, value, store.indices, None, store.loc)


def _named(value: E.Expr) -> list[E.Var]:
    """The variables that a value binds in itself, which stand for nothing outside of it."""
    return [x.var for x in walk_exprs(value) if isinstance(x, E.Let)]


def _operands(e: E.Expr) -> tuple[E.Expr, ...]:
    """What is evaluated to have a value, but for the places of what is read."""
    return () if isinstance(e, E.BufferLoad) else children(e)


def _conditions(value: E.Expr) -> list[E.Expr]:
    """All conditions of choices in a value."""
    own = conjuncts(value.args[0]) if _is_choice(value) else []  # type: ignore[attr-defined]
    below = value.args[1:] if _is_choice(value) else _operands(value)  # type: ignore[attr-defined]
    return [*own, *(c for e in below for c in _conditions(e))]


def _is_plain(c: E.Expr) -> bool:
    return effects(c).is_constant and not isinstance(c, E.IntImm)


def _answered(e: E.Expr, answers: dict[int, bool]) -> E.Expr:
    """A value where some conditions are known, by their identity."""
    if _is_choice(e):
        left: list[E.Expr] = []
        for c in conjuncts(e.args[0]):  # type: ignore[attr-defined]
            answer = answers.get(id(c))
            if answer is False:
                return _answered(e.args[2], answers)  # type: ignore[attr-defined]
            if answer is None:
                left.append(c)
        a, b = (_answered(x, answers) for x in e.args[1:])  # type: ignore[attr-defined]
        if not left:
            return a
        same = len(left) == len(conjuncts(e.args[0])) and a is e.args[1] and b is e.args[2]  # type: ignore[attr-defined]
        return e if same else B.if_then_else(B.all_of(*left), a, b)
    return e if isinstance(e, E.BufferLoad) else map_expr(e, lambda x: _answered(x, answers))
