"""Let ragged tiles on chip be computed in full: only global memory needs its bounds guarded.

    if likely(b*16 + t < n):                      s[t] = if_then_else(likely(b*16 + t < n), A[b*16 + t], 0)
        s[t] = A[b*16 + t]              ->
    if likely(b*16 + t < n):
        c[0] = c[0] + s[t]                        c[0] = c[0] + s[t]

In: kernels of stage "loops" whose shared and local buffers are filled under guards, as the elements beyond a tensor's edge
do not exist. Out: where a guard says something about the element alone, and every store to the buffer stands under it, the
elements beyond the edge are never written and never read; giving them a value changes nothing, and takes the branches out of
the inner loops (the loads stay vectors, registers stay registers). A guard stays if the index could leave the buffer
without it, or if it depends on a loop that the element does not (the ragged end of a reduction).
"""

from __future__ import annotations

import math
from dataclasses import field

from ...records import dataclass
from ...target import Target
from .. import build as B
from .. import expr as E
from .. import stmt as S
from ..arith import Analyzer, conjuncts
from ..buffer import Buffer
from ..dtype import dtype_info
from ..effects import is_kept
from ..func import Func
from ..intrin import INTRINS
from ..visit import any_expr, free_vars, map_stmt, map_stmts, visit
from .rewrite_util import SHARED_SCOPES, THREAD_TAGS, is_launch_loop, same_expr

# (The index's dimension, or -1; the slack's step along it; what is left of the condition once that index is taken out.)
_Key = tuple[int, int, E.Expr]


def pad_tiles(func: Func, target: Target) -> Func:
    """The function with full tiles on chip; see the module. CPU functions stay: their loops are partitioned instead."""
    if not target.is_gpu:
        return func

    def host(s: S.Stmt) -> S.Stmt:
        return _Padder().kernel(s) if is_launch_loop(s) else map_stmts(s, host)

    return func.with_body(host(func.body))


@dataclass(slots=True, eq=False)
class _Guard:
    """One likely condition of an IfThenElse, with the leaves below that could not do without it."""

    cond: E.Expr
    needed: bool = False


@dataclass(slots=True, eq=False)
class _Store:
    stmt: S.BufferStore
    guards: list[_Guard]  # inside of the buffer's Alloc, outermost first
    inner: set[int]  # variables that change while the buffer lives
    dropped: list[_Guard] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Tile:
    buffer: Buffer
    depth_loops: int
    depth_guards: int
    stores: list[_Store] = field(default_factory=list)
    opaque: bool = False
    holes: bool = True  # elements within the tile may stay without a value
    # By calls that give all elements of the tile, or of one of its slots, a value; None without any.
    filled: bool | None = None

    def is_summed(self) -> bool:
        """Whether these are registers that hold sums: set under no guard before matrix instructions add to them. A select of what they hold would make ptxas wait after each product of a
        warpgroup (C7514), since it takes halves of a pair out of the registers ahead of the last wait."""
        return self.buffer.scope == "local" and bool(self.stores) and not any(s.guards for s in self.stores)


def _fills(e: E.Call, buffer: Buffer) -> bool:
    """Whether a call gives all elements of a buffer a value, or of one of its slots: what its last dimensions say."""
    if not INTRINS[e.op].fills or e.attrs is None:
        return False
    shape, size = [n.value if isinstance(n, E.IntImm) else 0 for n in buffer.shape], math.prod(e.attrs["box"])
    return any(math.prod(shape[k:]) == size for k in range(len(shape)))


def _is_own_value(s: S.BufferStore) -> bool:
    """Whether a store gives an element its own value again, by `computed`."""
    v = s.value
    if type(v) is not E.Call or v.op != "computed" or not isinstance(v.args[0], E.BufferLoad):
        return False
    return v.args[0].buffer is s.buffer and all(map(same_expr, v.args[0].indices, s.indices))


class _Padder:
    def __init__(self) -> None:
        self.ana = Analyzer()
        self.threads: set[int] = set()
        self.tiles: dict[int, _Tile] = {}
        self.loops: list[E.Var] = []
        self.guards: list[_Guard] = []
        self.by_if: dict[int, list[_Guard]] = {}
        self.by_store: dict[int, _Store] = {}
        self.unknown: set[int] = set()  # let variables
        self.gone: list[E.Expr] = []  # guards dropped around the statement that is rewritten

    def kernel(self, root: S.Stmt) -> S.Stmt:
        self.scan(root)
        if not self.by_if:
            return root
        for tile in self.tiles.values():
            if not tile.opaque:
                self.decide(tile)
            elif (tile.filled and not tile.stores) or tile.is_summed():
                tile.holes = False
        for store in self.by_store.values():
            for g in store.guards:
                if not any(d is g for d in store.dropped):
                    g.needed = True
        return self.rewrite(root)

    # ---- what there is

    def scan(self, s: S.Stmt) -> None:
        """Note where each buffer is allocated and accessed, in which loops."""

        def child(x: S.Stmt) -> S.Stmt:
            self.scan(x)
            return x

        match s:
            case S.For():
                self.ana.bind(s.var, E.Range(s.min, s.extent))
                if is_launch_loop(s) and s.thread in THREAD_TAGS:
                    self.threads.add(id(s.var))
                self.loops.append(s.var)
                self.touch(s.min, s.extent)
                self.scan(s.body)
                self.loops.pop()
                return
            case S.Alloc() if s.buffer.scope == "local" or s.buffer.scope in SHARED_SCOPES:
                self.tiles[id(s.buffer)] = _Tile(s.buffer, len(self.loops), len(self.guards))
            case S.IfThenElse():
                mine = [_Guard(c, needed=s.orelse is not None) for c in conjuncts(s.cond) if _is_likely(c)]
                self.by_if[id(s)] = mine
                self.touch(s.cond)
                self.guards.extend(mine)
                self.scan(s.then)
                del self.guards[len(self.guards) - len(mine) :]
                if s.orelse is not None:
                    self.scan(s.orelse)
                return
            case S.LetStmt():
                self.unknown.add(id(s.var))
            case S.BufferStore():
                self.store(s)
                return
            case S.Evaluate() | S.AllReduce() | S.Assert() | S.While():
                for g in self.guards:
                    g.needed = True
                if isinstance(s, S.AllReduce):
                    for d in s.dests:
                        if id(d) in self.tiles:
                            self.tiles[id(d)].opaque = True
        map_stmt(s, child, self.touched)

    def touched(self, e: E.Expr) -> E.Expr:
        self.touch(e)
        return e

    def touch(self, *exprs: E.Expr) -> None:
        """Buffers whose address is taken are not looked into."""

        def on_expr(e: E.Expr) -> bool:
            if type(e) is E.Call and (INTRINS[e.op].pointer or not INTRINS[e.op].is_pure):
                writes = INTRINS[e.op].writes
                for k, a in enumerate(e.args):
                    if isinstance(a, E.BufferLoad) and id(a.buffer) in self.tiles:
                        tile = self.tiles[id(a.buffer)]
                        tile.opaque = True
                        if k in writes or INTRINS[e.op].pointer:
                            tile.filled = tile.filled is not False and _fills(e, a.buffer)
            return False

        for e in exprs:
            any_expr(e, on_expr)

    def store(self, s: S.BufferStore) -> None:
        if _is_own_value(s):  # it keeps a place, and an element without a value stays without one
            for g in self.guards:
                g.needed = True
            return
        self.touch(s.value, *s.indices)
        tile = self.tiles.get(id(s.buffer))
        if tile is None or s.predicate is not None or is_kept(s.value):
            for g in self.guards:
                g.needed = True
            if tile is not None:
                tile.opaque = True
            return
        for g in self.guards[: tile.depth_guards]:
            g.needed = True
        inner = {id(v) for v in self.loops[tile.depth_loops :]} | self.unknown
        if s.buffer.scope in SHARED_SCOPES:
            inner |= self.threads
        store = _Store(s, list(self.guards[tile.depth_guards :]), inner)
        tile.stores.append(store)
        self.by_store[id(s)] = store

    # ---- what may go

    def decide(self, tile: _Tile) -> None:
        keyed = [[(g, k) for g in st.guards if (k := self.key(g.cond, st)) is not None] for st in tile.stores]
        tile.holes = False
        for st, mine in zip(tile.stores, keyed):
            drop = [g for g, k in mine if all(any(_same_key(k, other) for _, other in keys) for keys in keyed)]
            tile.holes = tile.holes or len(drop) < len(st.guards)
            while drop and not self.inside(st, [g for g in st.guards if g not in drop]):
                # Keep the guards of the index itself: one that is enough, or those that say nothing about the block first.
                drop.sort(key=lambda g: len(free_vars(g.cond)))
                kept = [g for g in st.guards if g not in drop]
                back = next((g for g in drop if self.inside(st, [*kept, g])), drop[0])
                drop.remove(back)
                tile.holes = tile.holes or not self.follows(back.cond, st.stmt)
            st.dropped = drop

    def inside(self, st: _Store, kept: list[_Guard]) -> bool:
        return self.in_bounds(st.stmt.buffer, st.stmt.indices, [g.cond for g in kept])

    def follows(self, cond: E.Expr, store: S.BufferStore) -> bool:
        """Whether the condition holds for every element of the buffer: it keeps none of them without a value."""
        with self.ana.scope():
            for i, n in zip(store.indices, store.buffer.shape):
                self.ana.add_constraint(B.compare("lt", i, n))
                self.ana.add_constraint(E.GE(i, B.const(0, i.dtype)))
            return self.ana.can_prove(cond.args[0] if _is_likely(cond) else cond)  # type: ignore[attr-defined]

    def key(self, cond: E.Expr, st: _Store) -> _Key | None:
        """The condition as one on the stored element: its dimension and the rest, which is the same all the buffer's life."""
        c = cond.args[0]  # type: ignore[attr-defined]
        if not isinstance(c, (E.LT, E.LE, E.GT, E.GE)) or _reads(c) or c.a.dtype not in ("int32", "int64"):
            return None
        small, large = (c.a, c.b) if isinstance(c, (E.LT, E.LE)) else (c.b, c.a)
        slack = self.ana.simplify(B.sub(large, small))
        strict = isinstance(c, (E.LT, E.GT))
        if not self.moves(slack, st):
            return (-1, 0, B.sub(slack, 1) if strict else slack)
        for d, index in enumerate(st.stmt.indices):
            if dtype_info(index.dtype).lanes > 1:
                return None
            at = B.cast(slack.dtype, index)
            for step in (-1, 1, *self.steps(slack, index)):
                rest = self.ana.simplify(B.sub(slack, B.mul(at, step)))
                if not self.moves(rest, st):
                    return (d, step, B.sub(rest, 1) if strict else rest)
        return None

    def steps(self, slack: E.Expr, index: E.Expr) -> list[int]:
        """By how much the slack grows from an element to the next, where an axis of the buffer is one of rows that lie apart (a thread's, say)."""
        found = self.ana.detect_linear(slack, [index]) if isinstance(index, E.Var) else None
        step = found[0] if found is not None else None
        return [step.value] if isinstance(step, E.IntImm) and abs(step.value) > 1 else []

    def moves(self, e: E.Expr, st: _Store) -> bool:
        return any(id(v) in st.inner for v in free_vars(e))

    def in_bounds(self, buffer: Buffer, indices: tuple[E.Expr, ...], kept: list[E.Expr]) -> bool:
        with self.ana.scope():
            for c in kept:
                self.ana.add_constraint(c.args[0] if _is_likely(c) else c)  # type: ignore[attr-defined]
            for i, n in zip(indices, buffer.shape):
                if dtype_info(i.dtype).lanes > 1 or _reads(i):
                    return False
                if not (self.ana.can_prove(E.GE(i, B.const(0, i.dtype))) and self.ana.can_prove(B.compare("lt", i, n))):
                    return False
        return True

    def is_safe(self, e: E.Expr, kept: list[E.Expr]) -> bool:
        """Whether `e` may be evaluated where the dropped guards fail."""
        ok = True

        def on_expr(x: E.Expr) -> None:
            nonlocal ok
            if type(x) is E.BufferLoad:
                tile = self.tiles.get(id(x.buffer))
                own = tile is not None and not tile.holes and x.predicate is None
                ok = ok and own and self.in_bounds(x.buffer, x.indices, kept)
            elif isinstance(x, (E.Div, E.Mod, E.FloorDiv, E.FloorMod)) and dtype_info(x.dtype).is_int:
                ok = ok and isinstance(x.b, E.IntImm)

        visit(e, on_expr)
        return ok

    # ---- the new tree

    def rewrite(self, s: S.Stmt) -> S.Stmt:
        if isinstance(s, S.BufferStore):
            st = self.by_store.get(id(s))
            gone = [g for g in st.dropped if not g.needed] if st is not None else []
            if st is None or not gone:
                return s
            kept = [g.cond for g in st.guards if g not in gone]
            if self.is_safe(s.value, kept):
                return s
            value = B.if_then_else(B.all_of(*[g.cond for g in gone]), s.value, B.const(0, s.value.dtype))
            return S.BufferStore(s.buffer, value, s.indices, None, s.loc)
        if isinstance(s, S.IfThenElse) and any(not g.needed for g in self.by_if[id(s)]):
            gone_ids = {id(g.cond) for g in self.by_if[id(s)] if not g.needed}
            left = [c for c in conjuncts(s.cond) if id(c) not in gone_ids]
            outer = len(self.gone)
            self.gone += [g.cond for g in self.by_if[id(s)] if not g.needed]
            then = self.rewrite(s.then)
            out = S.IfThenElse(self.guarded(B.all_of(*left)), then) if left else then
            del self.gone[outer:]
            return out
        # What else is evaluated there: a tuple's reduction reads its inputs in lets of their own, a reduction's
        # `where` reads in a condition.
        if isinstance(s, S.Alloc):
            return map_stmts(s, self.rewrite)
        return map_stmt(s, self.rewrite, self.guarded)

    def guarded(self, e: E.Expr) -> E.Expr:
        """`e`, asked only where the guards dropped around it hold, if it could not be evaluated elsewhere."""
        if not self.gone or self.is_safe(e, []):
            return e
        return B.if_then_else(B.all_of(*self.gone), e, B.const(0, e.dtype))


def _is_likely(e: E.Expr) -> bool:
    return type(e) is E.Call and e.op == "likely"


def _same_key(a: _Key, b: _Key) -> bool:
    return a[:2] == b[:2] and same_expr(a[2], b[2])


def _reads(e: E.Expr) -> bool:
    return any_expr(e, lambda x: type(x) in (E.BufferLoad, E.Let))
