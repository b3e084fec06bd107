"""Long sums by runs: the sum of each run of steps is made by itself, and added to what the runs before gave.

    for k in range(n):                                  for run in range((n + 1023) // 1024):
        y[a : a + 16] = y[a : a + 16] + f(k)     ->         part[0 : 16] = 0
                                                            for k in range(run * 1024, extent=min(n - run * 1024, 1024)):
                                                                part[0 : 16] = part[0 : 16] + f(k)
                                                            y[a : a + 16] = y[a : a + 16] + part[0 : 16]

In: flat buffers of a CPU, behind `vectorize` and `hoist_conditions`: serial loops, one within the other or one alone, under a note `InRuns` around one store, which
adds to what it reads at a place that the loops do not move. Rounding errors of one chain grow with its length, and where a million elements of one sign are added they
are all rounded the same way. Sums no longer than a run keep their bits.
"""

from __future__ import annotations

import math
from itertools import pairwise

from ...target import Target
from .. import build as B
from .. import expr as E
from .. import stmt as S
from ..buffer import LOCAL, Buffer
from ..dtype import dtype_info
from ..func import Func
from ..notes import InRuns
from ..visit import any_expr, map_stmts, walk_exprs
from .lane_forms import neighbours
from .rewrite_util import clone, const_int, same_expr, uses_var

_LONG = 4  # runs of sums side by side, up to which an open loop is one chain
_MOST = 1024  # elements of a buffer whose sums lie side by side: a tile's


def sum_in_runs(func: Func, target: Target) -> Func:
    """The function with such sums by runs; see the module."""
    return func.with_body(_stmt(func.body, 0))


def _stmt(s: S.Stmt, steps: int) -> S.Stmt:
    """steps: of a run; 0 where no note asks for runs."""
    if isinstance(s, S.Attr) and isinstance(s.note, InRuns):
        return _stmt(s.body, s.note.steps)
    if isinstance(s, S.For) and steps and (made := _by_runs(s, steps) or _side_by_side(s, steps)) is not None:
        return made
    if isinstance(s, S.For) and steps and isinstance(s.body, S.IfThenElse) and s.body.orelse is not None:
        cond = s.body.cond  # whether a vector of results is whole, say
        if not uses_var(cond, s.var) and not any_expr(cond, lambda e: isinstance(e, E.BufferLoad)):
            then, orelse = s.with_body(s.body.then), clone(s.with_body(s.body.orelse), {})
            return S.IfThenElse(cond, _stmt(then, steps), _stmt(orelse, steps), s.body.loc)
    return map_stmts(s, lambda x: _stmt(x, steps))


def _by_runs(loop: S.For, steps: int) -> S.Stmt | None:
    """A sum's loop, or loops, by runs; as it is where it is short, and None where this is no sum, or where the loops within are the long ones."""
    found = _sum_of(loop)
    if found is None:
        return None
    within, store, added = found
    length, inner = const_int(loop.extent), _turns(within)
    is_long = inner is None or inner > steps  # what is within by itself
    if is_long and length is not None and length <= steps:
        return None
    if not is_long and length is not None and length * (inner or 1) <= steps:
        return loop
    turns = steps if is_long else max(1, steps // (inner or 1))  # of this loop in a run
    lanes, index = dtype_info(store.value.dtype).lanes, loop.extent.dtype
    shape = (B.const(lanes, "int32"),)
    part = Buffer(f"{store.buffer.name}_run", store.buffer.dtype, shape, scope=LOCAL)
    zero = B.const(0, "int32")
    place = (zero if lanes == 1 else E.Ramp(zero, B.const(1, "int32"), lanes),)
    nothing = B.const(0.0, store.buffer.dtype)
    run = E.Var(f"{loop.var.name}_run", index)
    gone = B.mul(run, B.const(turns, index))
    own = E.BufferLoad(part, place)
    adding: S.Stmt = S.BufferStore(part, B.add(own, added), place, None, store.loc)
    for f in reversed(within):
        adding = f.with_body(adding)
    if is_long and isinstance(adding, S.For):
        adding = _by_runs(adding, steps) or adding
    body = S.Seq((
        S.BufferStore(part, nothing if lanes == 1 else E.Broadcast(nothing, lanes), place, None, store.loc),
        loop.with_range(B.add(loop.min, gone), B.minimum(B.sub(loop.extent, gone), B.const(turns, index)), adding),
        S.BufferStore(store.buffer, B.add(E.BufferLoad(store.buffer, store.indices, store.predicate), own), store.indices, store.predicate, store.loc),
    ))  # fmt: skip
    runs = B.floordiv(B.add(loop.extent, B.const(turns - 1, index)), B.const(turns, index))
    return S.For(run, B.const(0, index), runs, S.Alloc(part, body), unroll=1)


def _side_by_side(loop: S.For, steps: int) -> S.Stmt | None:
    """A loop whose step adds to several sums at numbered places of small buffers (a tile of a product in registers), by runs. None where it does something else, or is short."""
    length = const_int(loop.extent)
    is_short = length is not None and length <= steps
    if loop.kind != S.ForKind.SERIAL or loop.pipelined or is_short or not isinstance(loop.body, S.Seq):
        return None
    found = _Sums(loop.var)
    body = found.moved(loop.body)
    if body is None or not found.are_apart():
        return None
    runs = _runs_of(loop, steps, found, body)
    # Beside the sums of a run those of a tile do not all stay in registers: an open loop has both forms.
    is_long = B.compare("gt", loop.extent, B.const(_LONG * steps, loop.extent.dtype))
    return runs if length is not None else S.IfThenElse(is_long, runs, clone(loop, {}))


class _Sums:
    """The sums of a loop's step: `parts` for the buffers in which they lie, the `places` of which each is one, and what is `added`."""

    def __init__(self, var: E.Var):
        self.var = var
        self.parts: dict[int, Buffer] = {}
        self.places: dict[tuple[int, int, int], S.BufferStore] = {}
        self.added: list[E.Expr] = []

    def moved(self, s: S.Stmt) -> S.Stmt | None:
        """The statements where parts take the place of sums; None where one is no sum, or the loop changes whether it is made."""
        if isinstance(s, S.Seq):
            made = [self.moved(x) for x in s.stmts]
            return None if None in made else S.Seq(tuple([x for x in made if x is not None]))
        if isinstance(s, S.IfThenElse):
            if uses_var(s.cond, self.var) or any_expr(s.cond, lambda e: isinstance(e, E.BufferLoad)):
                return None
            then, orelse = self.moved(s.then), None if s.orelse is None else self.moved(s.orelse)
            is_whole = then is not None and (s.orelse is None or orelse is not None)
            return S.IfThenElse(s.cond, then, orelse, s.loc) if is_whole and then is not None else None
        span = neighbours(s) if isinstance(s, S.BufferStore) and _is_small(s.buffer) else None
        added = _added(s, [self.var]) if span is not None and isinstance(s, S.BufferStore) else None
        if span is None or added is None or not isinstance(s, S.BufferStore):
            return None
        whole = s.buffer
        part = self.parts.setdefault(id(whole), Buffer(f"{whole.name}_run", whole.dtype, whole.shape, scope=LOCAL))
        self.places.setdefault((id(whole), *span), s)
        self.added.append(added)
        return S.BufferStore(
            part, B.add(E.BufferLoad(part, s.indices, s.predicate), added), s.indices, s.predicate, s.loc
        )

    def are_apart(self) -> bool:
        """Whether no two places share an element, and nothing that is added reads a sum."""
        overlap = any(a[0] == b[0] and b[1] < a[2] for a, b in pairwise(sorted(self.places)))
        read = (e for a in self.added for e in walk_exprs(a))
        return not overlap and not any(isinstance(e, E.BufferLoad) and id(e.buffer) in self.parts for e in read)


def _runs_of(loop: S.For, steps: int, sums: _Sums, step: S.Stmt) -> S.Stmt:
    """The loop over runs: parts begin with nothing, take a run's steps, and go to the sums, also where no step did: nothing is added there."""
    index = loop.extent.dtype
    run = E.Var(f"{loop.var.name}_run", index)
    gone = B.mul(run, B.const(steps, index))
    begun: list[S.Stmt] = []
    ended: list[S.Stmt] = []
    for p in sums.places.values():
        part, nothing = sums.parts[id(p.buffer)], B.const(0.0, p.buffer.dtype)
        lanes = dtype_info(p.value.dtype).lanes
        begun.append(
            S.BufferStore(part, nothing if lanes == 1 else E.Broadcast(nothing, lanes), p.indices, None, p.loc)
        )
        total = B.add(E.BufferLoad(p.buffer, p.indices), E.BufferLoad(part, p.indices))
        ended.append(S.BufferStore(p.buffer, total, p.indices, None, p.loc))
    turns = B.minimum(B.sub(loop.extent, gone), B.const(steps, index))
    body: S.Stmt = S.Seq((*begun, loop.with_range(B.add(loop.min, gone), turns, step), *ended))
    for part in sums.parts.values():
        body = S.Alloc(part, body)
    runs = B.floordiv(B.add(loop.extent, B.const(steps - 1, index)), B.const(steps, index))
    return S.For(run, B.const(0, index), runs, body, unroll=1)


def _is_small(buffer: Buffer) -> bool:
    size = const_int(buffer.shape[0])
    return size is not None and size <= _MOST


def _sum_of(loop: S.For) -> tuple[list[S.For], S.BufferStore, E.Expr] | None:
    """(the serial loops within, each all that the one around it does; the store in the last; what it adds); None where this is no sum."""
    nest: list[S.For] = []
    s: S.Stmt = loop
    while isinstance(s, S.For) and s.kind == S.ForKind.SERIAL and not s.pipelined:
        nest.append(s)
        s = s.body
    added = _added(s, [f.var for f in nest]) if nest and isinstance(s, S.BufferStore) else None
    return (nest[1:], s, added) if added is not None and isinstance(s, S.BufferStore) else None


def _turns(nest: list[S.For]) -> int | None:
    """Of loops together; None where one is open."""
    turns = [const_int(f.extent) for f in nest]
    return None if None in turns else math.prod(n or 0 for n in turns)


def _added(store: S.BufferStore, loops: list[E.Var]) -> E.Expr | None:
    """What a step adds to a sum of floats whose place, and whose mask, all steps have; None where the store is none."""
    value, info = store.value, dtype_info(store.buffer.dtype)
    if not isinstance(value, E.Add) or not info.is_float or info.lanes != 1:
        return None
    mask = store.predicate
    if any(uses_var(e, var) for var in loops for e in (*store.indices, *((mask,) if mask is not None else ()))):
        return None
    for own, added in ((value.a, value.b), (value.b, value.a)):
        if (
            isinstance(own, E.BufferLoad)
            and own.buffer is store.buffer
            and all(map(same_expr, own.indices, store.indices))
            and (own.predicate is mask or (own.predicate is not None and mask is not None and same_expr(own.predicate, mask)))
            and not any_expr(added, lambda e: isinstance(e, E.BufferLoad) and e.buffer.data is store.buffer.data)
        ):  # fmt: skip
            return added
    return None
