"""Do two accesses of one buffer, made by different threads of a work-group, meet in one element?

`Conflicts.meet(first, second)` decides by enumeration: the index of each access is evaluated for every thread and every
value of the loops around it, and the owners of the elements are compared. What is the same for all threads (block
indices, loops around both accesses) must cancel, or be periodic (the `k % 2` of a double buffer); what cannot be
evaluated counts as a conflict. Enumeration takes swizzles, paddings and fused indices in its stride, where interval
arithmetic would give up.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import gcd
from typing import Any

import numpy as np

from ...errors import Loc
from .. import build as B
from .. import expr as E
from ..arith import Analyzer
from ..buffer import Buffer
from ..dtype import dtype_info
from ..visit import substitute, visit

_LIMIT = 1 << 19  # index values that one comparison may enumerate
Array = Any


@dataclass(slots=True)
class SharedAccess:
    """An access with the loops between it and the place of comparison, and the conditions on the way."""

    buffer: Buffer
    index: E.Expr | None  # None: somewhere in the buffer
    is_write: bool
    loc: Loc | None = None
    loops: list[tuple[E.Var, E.Expr, E.Expr]] = field(default_factory=list)
    conds: list[E.Expr] = field(default_factory=list)
    atomic: bool = False
    collective: bool = False  # made for the whole wavefront: no thread's own
    within: bool = False  # a barrier of the wavefront stands behind it already

    def with_loop(self, var: E.Var, lo: E.Expr, extent: E.Expr) -> SharedAccess:
        return replace(self, loops=[*self.loops, (var, lo, extent)])

    def substituted(self, values: dict[E.Var, E.Expr]) -> SharedAccess:
        index = substitute(self.index, values) if self.index is not None else None
        conds = [substitute(c, values) for c in self.conds]
        loops = [(v, substitute(lo, values), substitute(n, values)) for v, lo, n in self.loops]
        return replace(self, index=index, loops=loops, conds=conds)


class Meeting(enum.IntEnum):
    """Where the threads are that meet in an element."""

    NOWHERE = 0
    WITHIN = 1  # a wavefront, whose accesses to shared memory are made in order
    ANYWHERE = 2


class UnknownError(Exception):
    """An expression that cannot be evaluated here."""


class Conflicts:
    """threads: the launch's thread variables with their extents; wave: so many of them, one after another, go in step (0: none do)."""

    def __init__(self, threads: list[tuple[E.Var, int]], wave: int = 0):
        self.threads = threads
        self.wave = wave
        self.count = 1
        self.env: dict[int, Array] = {}
        ids = 1
        for _, extent in threads:
            ids *= extent
        lane = np.arange(ids, dtype=np.int64)
        for var, extent in threads:
            self.env[id(var)] = lane % extent
            lane = lane // extent
        self.count = ids
        # What was found, by ids; with each what the ids are of, so that they stay its own. Accesses of loops written out have most of their terms in common.
        self._known: dict[int, tuple[SharedAccess, _Touched]] = {}
        self._own: dict[tuple[Any, ...], tuple[Any, tuple[Array, Array]]] = {}
        self._uses: dict[tuple[int, ...], tuple[E.Expr, set[str]]] = {}
        self._lanes: dict[tuple[int, str], E.Var] = {}

    def meet(self, first: SharedAccess, second: SharedAccess, unknown: bool = True) -> Meeting:
        """Whether two threads may touch one element, one of them writing, the first access before the second, and whether such threads are of one
        wavefront; where that cannot be told, by `unknown` anywhere or nowhere."""
        if first.buffer.data is not second.buffer.data or not (first.is_write or second.is_write) or self.count == 1:
            return Meeting.NOWHERE
        if dtype_info(first.buffer.dtype).bytes != dtype_info(second.buffer.dtype).bytes:
            return Meeting.ANYWHERE  # views of the same bytes, whose elements have other numbers
        if first.atomic and second.atomic:
            return Meeting.NOWHERE
        if first.index is None or second.index is None:
            return Meeting.ANYWHERE
        try:
            return self._meet(first, second)
        except UnknownError:
            return Meeting.ANYWHERE if unknown else Meeting.NOWHERE

    def _meet(self, first: SharedAccess, second: SharedAccess) -> Meeting:
        uniform_a, a, who_a, step_a = self._touched(first)
        uniform_b, b, who_b, step_b = self._touched(second)
        step = gcd(step_a, step_b)
        if first.collective:
            who_a = np.full_like(who_a, self.count)
        if second.collective:
            who_b = np.full_like(who_b, self.count + 1)
        found = Meeting.NOWHERE
        wave = 0 if first.collective or second.collective else self.wave
        for shift in self._shifts(uniform_a, uniform_b):
            at_a, at_b = ((a + shift) % step, b % step) if step else (a + shift, b)
            if _overlap(at_a, who_a, at_b, who_b):
                if not wave or _overlap(at_a, who_a // wave, at_b, who_b // wave):
                    return Meeting.ANYWHERE
                found = Meeting.WITHIN
        return found

    def _touched(self, access: SharedAccess) -> _Touched:
        """What `_meet` asks of one access, found once: its uniform terms, the elements by the other ones, who touches each, and modulo what."""
        hit = self._known.get(id(access))
        if hit is None:
            uniform, own, loops = self._split(access)
            # A loop of unknown length adds multiples of its coefficient: compare modulo those.
            own, loops, step = _bounded(own, loops)
            hit = self._known[id(access)] = (access, (uniform, *self._common(own, loops, access.conds), step))
        return hit[1]

    def _common(self, own: _Terms, loops: _Loops, conds: list[E.Expr]) -> tuple[Array, Array]:
        """`_elements`, once for equal terms."""
        key = (
            *[(s, id(t)) for s, t in own], 0, *[(id(v), _known_int(lo), _known_int(n)) for v, lo, n in loops], 0, *map(id, conds)
        )  # fmt: skip
        hit = self._own.get(key)
        if hit is None:
            hit = self._own[key] = ((own, loops, conds), self._elements(own, loops, conds))
        return hit[1]

    # ---- the parts of an index

    def _split(self, access: SharedAccess) -> tuple[_Terms, _Terms, _Loops]:
        """The index's terms: those that are the same for all threads, and those of threads and inner loops; the loops."""
        inner = {id(v) for v, _, _ in access.loops}
        uniform: _Terms = []
        own: _Terms = []
        assert access.index is not None
        index = access.index
        loops = access.loops
        if isinstance(index, E.Ramp):
            kind = (index.lanes, index.base.dtype)
            lane = self._lanes.setdefault(kind, E.Var("lane", index.base.dtype))
            loops = [*loops, (lane, E.IntImm(0), E.IntImm(index.lanes))]
            inner.add(id(lane))
            index = B.add(index.base, B.mul(index.stride, lane))
        elif isinstance(index, E.Broadcast):
            index = index.value
        for sign, term in _terms(index, 1):
            kinds = self._kinds(term, inner)
            if kinds == {"uniform"} or not kinds:
                (uniform if kinds else own).append((sign, term))
            elif "uniform" in kinds:
                raise UnknownError
            else:
                own.append((sign, term))
        return uniform, own, loops

    def _kinds(self, term: E.Expr, inner: set[int]) -> set[str]:
        key = (id(term), *sorted(inner))
        hit = self._uses.get(key)
        if hit is not None:
            return hit[1]
        kinds: set[str] = set()

        def on_expr(e: E.Expr) -> None:
            if type(e) is E.Var:
                kinds.add("thread" if id(e) in self.env else "inner" if id(e) in inner else "uniform")
            elif type(e) is E.BufferLoad:
                raise UnknownError

        visit(term, on_expr)
        self._uses[key] = (term, kinds)
        return kinds

    def _elements(self, terms: _Terms, loops: _Loops, conds: list[E.Expr]) -> tuple[Array, Array]:
        """Every element that the access may touch, and the thread that does."""
        used: set[int] = set()
        for e in (*[t for _, t in terms], *conds):
            visit(e, lambda x: used.add(id(x)))
        env: dict[int, Array] = dict(self.env)
        shape = [self.count]
        axes: list[tuple[E.Var, int, int]] = []
        for var, lo, extent in loops:
            if id(var) not in used:
                continue
            n, first = _known_int(extent), _known_int(lo)
            if n is None or first is None:
                raise UnknownError
            axes.append((var, first, n))
            shape.append(n)
        if int(np.prod(shape)) > _LIMIT:
            raise UnknownError
        rank = len(shape)
        for key in env:
            env[key] = env[key].reshape([self.count] + [1] * (rank - 1))
        for k, (var, first, n) in enumerate(axes):
            env[id(var)] = (first + np.arange(n, dtype=np.int64)).reshape([1] * (k + 1) + [n] + [1] * (rank - k - 2))
        total: Array = np.zeros(shape, dtype=np.int64)
        for sign, term in terms:
            total = total + sign * evaluate(term, env)
        owner = np.broadcast_to(np.arange(self.count).reshape([self.count] + [1] * (rank - 1)), shape)
        mask = np.ones(shape, dtype=bool)
        for c in conds:
            try:
                mask &= np.broadcast_to(evaluate(c, env), shape).astype(bool)
            except UnknownError:
                continue  # the access may happen
        return total[mask], owner[mask]

    def _shifts(self, a: _Terms, b: _Terms) -> list[int]:
        """The values that the difference of the uniform parts may take."""
        if all(isinstance(t, E.IntImm) for _, t in (*a, *b)):
            return [sum(n * t.value for n, t in a) - sum(n * t.value for n, t in b)]  # type: ignore[attr-defined]
        diff: E.Expr = E.IntImm(0)
        for sign, term in a:
            diff = B.add(diff, term) if sign > 0 else B.sub(diff, term)
        for sign, term in b:
            diff = B.sub(diff, term) if sign > 0 else B.add(diff, term)
        diff = Analyzer().simplify(diff)
        if isinstance(diff, E.IntImm):
            return [diff.value]
        period, variables = _period(diff)
        if period is None or len(variables) != 1 or period > 64:
            raise UnknownError
        values = evaluate(diff, {id(variables[0]): np.arange(period, dtype=np.int64)})
        return sorted({int(v) for v in np.atleast_1d(values)})


_Terms = list[tuple[int, E.Expr]]
_Touched = tuple[_Terms, Array, Array, int]
_Loops = list[tuple[E.Var, E.Expr, E.Expr]]


def _terms(e: E.Expr, sign: int) -> _Terms:
    if isinstance(e, E.Add):
        return _terms(e.a, sign) + _terms(e.b, sign)
    if isinstance(e, E.Sub):
        return _terms(e.a, sign) + _terms(e.b, -sign)
    if isinstance(e, E.Mul) and isinstance(e.b, E.IntImm) and isinstance(e.a, (E.Add, E.Sub, E.Cast)):
        return [(s, E.Mul(t, e.b)) for s, t in _terms(e.a, sign)]
    if isinstance(e, E.Cast) and isinstance(e.value, (E.Add, E.Sub, E.Mul)) and e.dtype == "int64":
        return [(s, E.Cast(e.dtype, t)) for s, t in _terms(e.value, sign)]  # index arithmetic does not overflow
    return [(sign, e)]


def _known_int(e: E.Expr) -> int | None:
    return e.value if isinstance(e, E.IntImm) else None


def _bounded(terms: _Terms, loops: _Loops) -> tuple[_Terms, _Loops, int]:
    """The loops whose ranges are known (enlarged to constants where only bounded), the terms without the others, and the
    greatest common divisor of the others' coefficients."""
    known: _Loops = []
    unknown: set[int] = set()
    for var, lo, extent in loops:
        n = _known_int(extent)
        if n is None:
            n = Analyzer().const_int_bound(extent)[1]
        if n is None or n > _LIMIT or _known_int(lo) is None:
            unknown.add(id(var))
        else:
            known.append((var, lo, E.IntImm(max(n, 0))))
    if not unknown:
        return terms, known, 0
    kept: _Terms = []
    step = 0
    for sign, term in terms:
        used: set[int] = set()
        visit(term, lambda x, used=used: used.add(id(x)) if type(x) is E.Var else None)  # type: ignore[misc]
        if not used & unknown:
            kept.append((sign, term))
            continue
        coefficient = _coefficient(term)
        if coefficient is None:
            raise UnknownError
        step = gcd(step, coefficient)
    return kept, known, step


def _coefficient(term: E.Expr) -> int | None:
    """c of `var * c`, or None."""
    while isinstance(term, E.Cast):
        term = term.value
    if isinstance(term, E.Var):
        return 1
    if isinstance(term, E.Mul) and isinstance(term.b, E.IntImm):
        inner = _coefficient(term.a)
        return None if inner is None else inner * term.b.value
    return None


def _period(diff: E.Expr) -> tuple[int | None, list[E.Var]]:
    """The period of an expression that depends on its variables through remainders alone, and those variables."""
    variables: dict[int, E.Var] = {}
    period = 1
    ok = True

    def go(e: E.Expr, inside: bool) -> None:
        nonlocal period, ok
        if type(e) is E.Var:
            variables[id(e)] = e
            ok = ok and inside
        elif type(e) is E.FloorMod and isinstance(e.b, E.IntImm) and not inside:
            period = period * e.b.value // gcd(period, e.b.value)
            go(e.a, True)
        elif type(e) in (E.Add, E.Sub):
            go(e.a, inside)  # type: ignore[attr-defined]
            go(e.b, inside)  # type: ignore[attr-defined]
        elif type(e) is E.Mul and isinstance(e.b, E.IntImm):
            go(e.a, inside)
        elif type(e) is E.Cast:
            go(e.value, inside)
        elif type(e) is not E.IntImm:
            ok = False

    go(diff, False)
    return (period if ok else None), list(variables.values())


def _overlap(a: Array, who_a: Array, b: Array, who_b: Array) -> bool:
    """Whether some element of `a` is also in `b` under another thread."""
    if a.size == 0 or b.size == 0:
        return False
    low = min(int(a.min()), int(b.min()))
    size = max(int(a.max()), int(b.max())) - low + 1
    if size > 1 << 24:
        raise UnknownError
    first = np.full(size, -1, dtype=np.int64)
    last = np.full(size, -1, dtype=np.int64)
    first[a - low] = who_a
    last[(a - low)[::-1]] = who_a[::-1]
    # Where several threads hold an element, the two orders of assignment leave different owners.
    seen_first, seen_last = first[b - low], last[b - low]
    hit = seen_first >= 0
    return bool(np.any(hit & ((seen_first != who_b) | (seen_last != who_b))))


_NUMPY: dict[type, Callable[[Array, Array], Array]] = {
    E.Add: np.add, E.Sub: np.subtract, E.Mul: np.multiply, E.FloorDiv: np.floor_divide, E.FloorMod: np.mod,
    E.Min: np.minimum, E.Max: np.maximum, E.EQ: np.equal, E.NE: np.not_equal, E.LT: np.less, E.LE: np.less_equal,
    E.GT: np.greater, E.GE: np.greater_equal, E.And: np.logical_and, E.Or: np.logical_or,
}  # fmt: skip
_CALLS: dict[str, Callable[..., Array]] = {
    "bitand": np.bitwise_and, "bitor": np.bitwise_or, "bitxor": np.bitwise_xor, "shl": np.left_shift, "shr": np.right_shift,
    "likely": lambda x: x,
}  # fmt: skip


def evaluate(e: E.Expr, env: dict[int, Array]) -> Array:
    """An integer expression over arrays of values."""
    t = type(e)
    if isinstance(e, E.IntImm):
        return np.int64(e.value)
    if t is E.Var:
        value = env.get(id(e))
        if value is None:
            raise UnknownError
        return value
    op = _NUMPY.get(t)
    if op is not None:
        a, b = evaluate(e.a, env), evaluate(e.b, env)  # type: ignore[attr-defined]
        if t in (E.FloorDiv, E.FloorMod) and np.any(b == 0):
            raise UnknownError
        return op(a, b)
    if isinstance(e, (E.Div, E.Mod)):
        a, b = evaluate(e.a, env), evaluate(e.b, env)
        if np.any(b == 0):
            raise UnknownError
        return np.fmod(a, b) if t is E.Mod else (a - np.fmod(a, b)) // b
    if isinstance(e, E.Cast) and ("int" in e.dtype):
        return evaluate(e.value, env)
    if isinstance(e, E.Not):
        return np.logical_not(evaluate(e.a, env))
    if isinstance(e, E.Select):
        return np.where(evaluate(e.cond, env), evaluate(e.a, env), evaluate(e.b, env))
    if isinstance(e, E.Call):
        if e.op in _CALLS:
            return _CALLS[e.op](*[evaluate(a, env) for a in e.args])
        if e.op == "if_then_else":
            return np.where(*[evaluate(a, env) for a in e.args])
    raise UnknownError
