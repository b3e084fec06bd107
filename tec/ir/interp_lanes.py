"""Lanes of the interpreter: the loop iterations and threads that run in lockstep, and the storage they see.

A level of `Lanes` is a set of lanes made from those of the level above: the threads of a batch of work-groups, or the
iterations of a loop that do not depend on each other (`Independence`). A value is an array with one entry a lane, or
one entry where all lanes agree.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import expr as E
from . import stmt as S
from .arith import Analyzer
from .arith.linear import Lin
from .intrin import INTRINS
from .visit import free_vars, visit

Array = np.ndarray[Any, Any]


class Lanes:
    """`n` lanes; lane k was lane `index[k]` of `parent`. `group` numbers the sets of lanes that share work-group memory."""

    __slots__ = ("_maps", "env", "group", "groups", "index", "n", "parent")

    def __init__(self, n: int, parent: Lanes | None = None, index: Array | None = None):
        self.n = n
        self.parent = parent
        self.index = index
        self.env: dict[int, Any] = {}
        self._maps: dict[int, Array] = {}
        self.group: Array = np.zeros(n, np.int64)
        self.groups = 1

    def ancestor(self, level: Lanes) -> Array:
        """For each lane, the lane of `level` that it came from."""
        if level is self:
            return np.arange(self.n)
        hit = self._maps.get(id(level))
        if hit is None:
            assert self.parent is not None and self.index is not None
            hit = self._maps[id(level)] = (
                self.index if self.parent is level else self.parent.ancestor(level)[self.index]
            )
        return hit

    def lookup(self, key: int) -> Any:
        """A variable's value, one entry a lane; None where it is unbound."""
        value = self.env.get(key)
        if value is None and self.parent is not None:
            value = self.parent.lookup(key)
            if isinstance(value, np.ndarray) and len(value) > 1:
                assert self.index is not None
                value = value[self.index]
            if value is not None:
                self.env[key] = value
        return value

    def expand(self, count: int, private_groups: bool) -> tuple[Lanes, Array]:
        """`count` lanes for each lane, and each one's number among them; with `private_groups` each has its own work-group memory."""
        child = Lanes(self.n * count, self, np.repeat(np.arange(self.n), count))
        k = np.tile(np.arange(count), self.n)
        if private_groups:
            child.group, child.groups = np.repeat(self.group, count) * count + k, self.groups * count
        else:
            child.group, child.groups = np.repeat(self.group, count), self.groups
        return child, k


class Storage:
    """Memory of one allocation: `data[row, element]`; `rows` says which row each lane of `level` sees (None: row 0)."""

    __slots__ = ("_rows", "data", "dtype", "init", "level", "name", "rows", "scope")

    def __init__(self, name: str, dtype: str, scope: str, data: Array, level: Lanes, rows: Array | None):
        self.name = name
        self.dtype = dtype
        self.scope = scope
        self.data = data
        self.level = level
        self.rows = rows
        self.init: Array | None = None
        self._rows: tuple[Lanes | None, Array | None] = (None, None)

    def rows_for(self, lanes: Lanes) -> Array | None:
        if self.rows is None:
            return None
        if self._rows[0] is not lanes:
            self._rows = (lanes, self.rows if lanes is self.level else self.rows[lanes.ancestor(self.level)])
        return self._rows[1]


class Independence:
    """Which loops may run all their iterations side by side: none writes what another one touches."""

    def __init__(self) -> None:
        self._cache: dict[int, tuple[S.For, int]] = {}

    def storage_elems(self, loop: S.For) -> int:
        """Elements allocated inside of an independent loop for each iteration; -1 where the loop is not independent."""
        hit = self._cache.get(id(loop))
        if hit is None:
            hit = self._cache[id(loop)] = (loop, self._analyze(loop))
        return hit[1]

    def _analyze(self, loop: S.For) -> int:
        """See `storage_elems`."""
        stores: dict[int, list[tuple[Any, tuple[E.Expr, ...]]]] = {}
        loads: dict[int, list[tuple[Any, tuple[E.Expr, ...]]]] = {}
        own: set[int] = set()
        inner: dict[int, tuple[E.Var, E.Range | None]] = {}
        elems, fine = 0, True

        def on_expr(e: E.Expr) -> None:
            nonlocal fine
            if type(e) is E.BufferLoad:
                loads.setdefault(id(e.buffer.data), []).append((e.buffer, e.indices))
            elif type(e) is E.Call and (INTRINS[e.op].pointer or not INTRINS[e.op].is_pure):
                fine = False
            elif type(e) is E.Let:
                inner[id(e.var)] = (e.var, None)

        def on_stmt(s: S.Stmt) -> None:
            nonlocal fine, elems
            if isinstance(s, S.BufferStore):
                stores.setdefault(id(s.buffer.data), []).append((s.buffer, s.indices))
            elif isinstance(s, S.For):
                if s.kind == S.ForKind.THREAD or id(s.var) in inner or s.var is loop.var:
                    fine = False
                inner[id(s.var)] = (s.var, E.Range(s.min, s.extent))
            elif isinstance(s, S.LetStmt):
                fine = fine and id(s.var) not in inner
                inner[id(s.var)] = (s.var, None)
            elif isinstance(s, S.Alloc):
                own.add(id(s.buffer.data))
                size = 1
                for d in s.buffer.shape:
                    if not isinstance(d, E.IntImm):
                        fine = False
                    else:
                        size *= d.value
                elems += size
                fine = fine and not s.buffer.scope.startswith("shared")
            elif isinstance(s, (S.While, S.AllReduce, S.Assert)):
                fine = False

        visit(loop.body, on_expr, on_stmt)
        if not fine:
            return -1
        ana = Analyzer()
        for var, rng in inner.values():
            if rng is not None:
                ana.bind(var, rng)
        for key, writes in stores.items():
            if key in own:
                continue
            accesses = [*writes, *loads.get(key, [])]
            first = accesses[0][0]
            if any(b is not first for b, _ in accesses):
                return -1
            if not any(
                _disjoint(ana, loop.var, set(inner), [idx[d] for _, idx in accesses]) for d in range(len(first.shape))
            ):
                return -1
        return elems


def _disjoint(ana: Analyzer, var: E.Var, inner: set[int], indices: list[E.Expr]) -> bool:
    """Whether different values of `var` give different values of all of these indices: c*var + base + something below |c|."""
    stride: int | None = None
    base: Lin | None = None
    low, high = 0, 0
    for e in indices:
        span = 0
        if isinstance(e, E.Ramp):
            if not isinstance(e.stride, E.IntImm):
                return False
            span = e.stride.value * (e.lanes - 1)
            e = e.base
        if e.dtype not in ("int32", "int64"):
            return False
        form = ana.lin(ana.intern(e))
        outer, moving = Lin(), Lin(form.const)
        c = 0
        for atom, k in form.terms.values():
            names = list(free_vars(atom))
            if atom is var:
                c = k
            elif any(v is var for v in names):
                return False
            elif any(id(v) in inner for v in names) or ana.has_data(atom):
                moving = moving.plus(Lin.of(atom), k)
            else:
                outer = outer.plus(Lin.of(atom), k)
        lo, hi = ana.bound_lin(moving)
        lo, hi = lo + min(span, 0), hi + max(span, 0)
        if base is None:
            stride, base, low, high = c, outer, lo, hi
        elif c != stride or not outer.same_terms(base):
            return False
        low, high = min(low, lo), max(high, hi)
    return bool(stride) and high - low < abs(stride or 0)
