"""Do two accesses of one buffer, made by different threads of a work-group, meet in one element?

`Conflicts.meet(first, second)` decides by enumeration: the index of each access is evaluated for every thread and every
value of the loops around it, and the owners of the elements are compared. What is the same for all threads (block
indices, loops around both accesses) must cancel, or be periodic (the `k % 2` of a double buffer); what cannot be
evaluated counts as a conflict. Enumeration takes swizzles, paddings and fused indices in its stride, where interval
arithmetic would give up.
"""

from __future__ import annotations

import contextlib
import enum
import math
from dataclasses import field, replace
from typing import Any

import numpy as np

from ...errors import Loc
from ...records import dataclass
from .. import build as B
from .. import expr as E
from ..arith import Analyzer
from ..buffer import Buffer
from ..dtype import dtype_info
from ..index_values import Known, evaluated
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
        self.env: dict[E.Var, Array] = {}
        ids = 1
        for _, extent in threads:
            ids *= extent
        lane = np.arange(ids, dtype=np.int64)
        for var, extent in threads:
            self.env[var] = lane % extent
            lane = lane // extent
        self.count = ids
        # What was found, by ids; with each what the ids are of, so that they stay its own. Accesses of loops written out have most of their terms in common.
        self._known: dict[int, tuple[SharedAccess, _Touched]] = {}
        self._own: dict[tuple[Any, ...], tuple[Any, tuple[Array, Array]]] = {}
        self._uses: dict[tuple[int, ...], tuple[E.Expr, set[str]]] = {}
        self._lanes: dict[tuple[int, str], E.Var] = {}
        self._met: dict[tuple[int, int, int, int, bool, bool], Meeting] = {}
        self._owners: dict[tuple[int, int, bool], _Owners] = {}
        self._grids: dict[tuple[tuple[int, int, int], ...], _Grid] = {}
        self._known_shifts: dict[tuple[Any, ...], list[int]] = {}

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
        a, b = self._touched(first), self._touched(second)
        found = Meeting.NOWHERE
        for shift in self._shifts(a.uniform, b.uniform):
            # Accesses of loops written out are far more than the distances between them.
            key = (
                id(a.at),
                id(b.at),
                a.constant - b.constant + shift,
                math.gcd(a.step, b.step),
                first.collective,
                second.collective,
            )
            hit = self._met.get(key)
            if hit is None:
                hit = self._met[key] = self._apart(a, b, *key[2:])
            found = max(found, hit)
        return found

    def _apart(self, a: _Touched, b: _Touched, shift: int, step: int, all_a: bool, all_b: bool) -> Meeting:
        """`meet` of elements `shift` apart, modulo `step` where that is not 0. all_a, all_b: whether an access is the whole wavefront's."""
        if not a.at.size or not b.at.size or (not step and not b.low - a.high <= shift <= b.high - a.low):
            return Meeting.NOWHERE
        who_a = np.full_like(a.who, self.count) if all_a else a.who
        who_b = np.full_like(b.who, self.count + 1) if all_b else b.who
        at_b = b.at % step if step else b.at

        def overlap(wave: int) -> bool:
            of_b = who_b // wave if wave > 1 else who_b
            if step:
                return _Owners((a.at + shift) % step, who_a // wave).differ(at_b, of_b, 0, 0, step - 1)
            owners = self._owners.get((id(a.at), wave, all_a)) or _Owners(a.at, who_a // wave)
            self._owners[id(a.at), wave, all_a] = owners
            return owners.differ(at_b, of_b, shift, b.low, b.high)

        if not overlap(1):
            return Meeting.NOWHERE
        wave = 0 if all_a or all_b else self.wave
        return Meeting.WITHIN if wave and not overlap(wave) else Meeting.ANYWHERE

    def _touched(self, access: SharedAccess) -> _Touched:
        """What `_meet` asks of one access, found once."""
        hit = self._known.get(id(access))
        if hit is None:
            constant, uniform, own, loops = self._split(access)
            # A loop of unknown length adds multiples of its coefficient: compare modulo those.
            own, loops, step = _bounded(own, loops)
            at, who = self._common(own, loops, access.conds)
            low, high = (int(at.min()), int(at.max())) if at.size else (0, 0)
            hit = self._known[id(access)] = (access, _Touched(constant, uniform, at, who, step, low, high))
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

    def _split(self, access: SharedAccess) -> tuple[int, _Terms, _Terms, _Loops]:
        """The index's terms: the constant, those that are the same for all threads, and those of threads and inner loops; the loops."""
        constant = 0
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
        for times, term in _terms(index, 1):
            if isinstance(term, E.IntImm):
                constant += times * term.value
                continue
            kinds = self._kinds(term, inner)
            if kinds == {"uniform"} or not kinds:
                (uniform if kinds else own).append((times, term))
            elif "uniform" in kinds:
                raise UnknownError
            else:
                own.append((times, term))
        return constant, uniform, own, loops

    def _kinds(self, term: E.Expr, inner: set[int]) -> set[str]:
        key = (id(term), *sorted(inner))
        hit = self._uses.get(key)
        if hit is not None:
            return hit[1]
        kinds: set[str] = set()

        def on_expr(e: E.Expr) -> None:
            if type(e) is E.Var:
                kinds.add("thread" if e in self.env else "inner" if id(e) in inner else "uniform")
            elif type(e) is E.BufferLoad:
                raise UnknownError

        visit(term, on_expr)
        self._uses[key] = (term, kinds)
        return kinds

    def _elements(self, terms: _Terms, loops: _Loops, conds: list[E.Expr]) -> tuple[Array, Array]:
        """Every element that the access may touch, and the thread that does."""
        axes: list[tuple[E.Var, int, int]] = []
        used: set[int] = set()
        for e in (*[t for _, t in terms], *conds) if loops else ():
            visit(e, lambda x: used.add(id(x)))
        for var, lo, extent in loops:
            if id(var) not in used:
                continue
            n, first = _known_int(extent), _known_int(lo)
            if n is None or first is None:
                raise UnknownError
            axes.append((var, first, n))
        grid = self._grid(axes)
        total: Array = np.zeros(grid.owner.shape, dtype=np.int64)
        for times, term in terms:
            total += times * _values(term, grid.env, grid.known)
        masks: list[Array] = []
        for c in conds:
            with contextlib.suppress(UnknownError):  # then the access may happen
                masks.append(np.broadcast_to(_values(c, grid.env, grid.known), total.shape).astype(bool))
        if not masks:
            return total.ravel(), grid.owner.ravel()
        mask = np.logical_and.reduce(masks)
        return total[mask], grid.owner[mask]

    def _grid(self, axes: list[tuple[E.Var, int, int]]) -> _Grid:
        """The threads, by loops (variable, first value, length), once for the same loops."""
        key = tuple((id(v), first, n) for v, first, n in axes)
        hit = self._grids.get(key)
        if hit is None:
            shape = [self.count, *(n for _, _, n in axes)]
            if math.prod(shape) > _LIMIT:
                raise UnknownError
            ones = [1] * len(axes)
            env = {k: v.reshape([self.count, *ones]) for k, v in self.env.items()}
            for k, (var, first, n) in enumerate(axes):
                env[var] = (first + np.arange(n, dtype=np.int64)).reshape([1, *ones[:k], n, *ones[k + 1 :]])
            owner = np.broadcast_to(np.arange(self.count).reshape([self.count, *ones]), shape)
            hit = self._grids[key] = _Grid(axes, env, owner, {})
        return hit

    def _shifts(self, a: _Terms, b: _Terms) -> list[int]:
        """The values that the difference of the uniform parts may take."""
        if not a and not b:
            return [0]
        key = (*[(s, id(t)) for s, t in a], 0, *[(s, id(t)) for s, t in b])
        hit = self._known_shifts.get(key)
        if hit is None:
            hit = self._known_shifts[key] = _shifts(a, b)
        return hit


_Terms = list[tuple[int, E.Expr]]  # of a sum: how many times, what
_Loops = list[tuple[E.Var, E.Expr, E.Expr]]


@dataclass(slots=True)
class _Grid:
    """All threads at all values of some loops: what variables are there, which thread is where, and values that were found, by their expressions' ids."""

    axes: list[tuple[E.Var, int, int]]
    env: dict[E.Var, Array]
    owner: Array
    known: Known


@dataclass(slots=True)
class _Touched:
    """The elements of one access: `constant`, plus the terms that are the same for all threads, plus one of `at`, which thread `who` touches, and multiples of `step`
    (0: none). low, high: the least and the largest of `at`."""

    constant: int
    uniform: _Terms
    at: Array
    who: Array
    step: int
    low: int
    high: int


def _shifts(a: _Terms, b: _Terms) -> list[int]:
    """The values that the difference of two sums may take."""
    diff: E.Expr = E.IntImm(0)
    for times, term in (*a, *((-n, t) for n, t in b)):
        part = term if abs(times) == 1 else B.mul(term, abs(times))
        diff = B.add(diff, part) if times > 0 else B.sub(diff, part)
    diff = Analyzer().simplify(diff)
    if isinstance(diff, E.IntImm):
        return [diff.value]
    period, variables = _period(diff)
    if period is None or len(variables) != 1 or period > 64:
        raise UnknownError
    values = _values(diff, {variables[0]: np.arange(period, dtype=np.int64)})
    return sorted({int(v) for v in np.atleast_1d(values)})


def _terms(e: E.Expr, times: int) -> _Terms:
    """A sum's terms, each with what it counts."""
    if isinstance(e, E.Add):
        return _terms(e.a, times) + _terms(e.b, times)
    if isinstance(e, E.Sub):
        return _terms(e.a, times) + _terms(e.b, -times)
    if isinstance(e, E.Mul) and isinstance(e.b, E.IntImm) and isinstance(e.a, (E.Add, E.Sub, E.Cast)):
        return _terms(e.a, times * e.b.value)
    if isinstance(e, E.Cast) and isinstance(e.value, (E.Add, E.Sub, E.Mul)) and e.dtype == "int64":
        return [(n, E.Cast(e.dtype, t)) for n, t in _terms(e.value, times)]  # index arithmetic does not overflow
    return [(times, e)]


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
    for times, term in terms:
        used: set[int] = set()
        visit(term, lambda x, used=used: used.add(id(x)) if type(x) is E.Var else None)  # type: ignore[misc]
        if not used & unknown:
            kept.append((times, term))
            continue
        coefficient = _coefficient(term)
        if coefficient is None:
            raise UnknownError
        step = math.gcd(step, times * coefficient)
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
            period = period * e.b.value // math.gcd(period, e.b.value)
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


class _Owners:
    """Which thread touches each element of an access: as many as there are from the least element on, -1 for none."""

    def __init__(self, at: Array, who: Array):
        self.low = int(at.min())
        size = int(at.max()) - self.low + 1
        if size > 1 << 24:
            raise UnknownError
        # Where several threads hold an element, the two orders of assignment leave different owners.
        self.first, self.last = np.full(size, -1), np.full(size, -1)
        self.first[at - self.low] = who
        self.last[(at - self.low)[::-1]] = who[::-1]
        self.is_shared = not np.array_equal(self.first, self.last)

    def differ(self, at: Array, who: Array, shift: int, low: int, high: int) -> bool:
        """Whether some element of `at`, less `shift`, is touched here by another thread than its own. low, high: bounds of `at`."""
        begin = shift + self.low
        place = at - begin
        if low < begin or high - begin >= self.first.size:
            inside = (place >= 0) & (place < self.first.size)
            place, who = place[inside], who[inside]
        first = self.first[place]
        other = first != who
        if self.is_shared:
            other |= self.last[place] != who
        other &= first >= 0
        return bool(np.count_nonzero(other))


def _values(e: E.Expr, env: dict[E.Var, Array], known: Known | None = None) -> Array:
    """An integer expression where variables have the values of an array each."""
    found = evaluated(e, env, known) if dtype_info(e.dtype).lanes == 1 else None
    if found is None:
        raise UnknownError
    return found
