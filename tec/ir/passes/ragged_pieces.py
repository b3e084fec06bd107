"""Pieces of rows that no vector divides, on a target whose loads may begin at any element: the last piece of a row is read so that it ends where the row ends.

In: `if_then_else(first + lane < end, A[place + lane], 0)` whose `first` is a multiple of the lanes beyond some number, and `end` a number. So either all lanes are
there, none, or the same few of each row's last piece. Out: one load under a condition that lanes share. For the last piece it begins earlier, within the row, and
a shuffle by a number moves its elements to the front and puts zeros behind them. A masked load would become a branch for each lane.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from .. import build as B
from .. import expr as E
from .. import stmt as S
from ..arith import Analyzer, conjuncts
from ..buffer import Buffer
from ..dtype import dtype_info, with_lanes
from ..visit import free_vars, map_expr, map_stmt, substitute, visit
from .rewrite_util import const_int


def by_one_load(
    e: E.Call, lanes: int, expr: Callable[[E.Expr], E.Expr], uses_lane: Callable[[E.Expr], bool], analyzer: Analyzer
) -> E.Expr | None:
    """`if_then_else` of a load under a condition of which one part differs between lanes; None where it is another, or has no such form. expr: an expression's vector form."""
    cond, value, other = e.args
    if not B.is_const(other, 0):
        return None
    if type(value) is E.Cast:
        inner = value.value
        piece = by_one_load(
            E.Call(e.op, (cond, inner, B.const(0, inner.dtype)), inner.dtype), lanes, expr, uses_lane, analyzer
        )
        return None if piece is None else E.Cast(with_lanes(value.dtype, lanes), piece)
    parts = conjuncts(cond)
    own = [p for p in parts if uses_lane(p)]
    if len(own) != 1 or type(value) is not E.BufferLoad:
        return None
    return one_load(expr(own[0]), [expr(p) for p in parts if p is not own[0]], expr(value), analyzer)


def one_load(guard: E.Expr, scalars: list[E.Expr], load: E.Expr, analyzer: Analyzer) -> E.Expr | None:
    """What the lanes of `guard` load, 0 in the others, by one load; None where it is not known to lie in the buffer. scalars: conditions that all lanes share."""
    if not isinstance(guard, E.LT) or not isinstance(load, E.BufferLoad) or load.buffer.scope != "global":
        return None
    first, end = guard.a, const_int(guard.b.value) if isinstance(guard.b, E.Broadcast) else None
    index = load.indices[0]
    if not isinstance(first, E.Ramp) or not isinstance(index, E.Ramp) or end is None or load.predicate is not None:
        return None
    lanes, info = first.lanes, dtype_info(load.buffer.dtype)
    if not all(B.is_const(r.stride, 1) for r in (first, index)) or info.lanes > 1 or info.bits < 8:
        return None
    coeff, rest = (int(x) for x in analyzer.modular(first.base))
    there = (end - rest) % lanes
    if coeff % lanes or not there:
        return None
    beyond = lanes - there
    low, _ = analyzer.const_int_bound(analyzer.simplify(B.sub(index.base, first.base)))
    if low is None or low + end - lanes < 0:
        return None
    is_last = B.compare("eq", first.base, end - there)
    earlier = E.Select(is_last, B.const(beyond, index.base.dtype), B.const(0, index.base.dtype))
    piece: E.Expr = E.BufferLoad(load.buffer, (E.Ramp(B.sub(index.base, earlier), index.stride, lanes),))
    cond = B.compare("lt", first.base, end)
    for other in scalars:
        cond = E.And(other, cond)
    zero = B.const(0, load.buffer.dtype)
    piece = E.Call("if_then_else", (cond, piece, E.Broadcast(zero, lanes)), piece.dtype)
    var = E.Var("piece", with_lanes(load.buffer.dtype, lanes))
    moved = E.Shuffle((var, zero), tuple(min(beyond + k, lanes) for k in range(lanes)))
    return E.Let(var, piece, E.Select(E.Broadcast(is_last, lanes), moved, var))


def moved_late(body: S.Stmt) -> S.Stmt:
    """Pieces that wait in local buffers are kept as they were loaded, and moved to the front where they are used: a piece that is moved at once is waited for at once.

    In buffers all of whose pieces are moved under one condition, of threads or of the turn of a loop in which they come and go, and in those that they are copied to, readers ask
    the condition again. Of others that are stored in whole pieces, as those of loads some turns ahead, a flag a piece says whether it is to be moved.
    """
    groups = _Groups()
    groups.walk(body, ())
    rules, flagged = groups.rules()
    flags = {key: _flags(buffer, lanes) for key, (buffer, lanes) in flagged.items()}

    def stmt(s: S.Stmt) -> S.Stmt:
        if isinstance(s, S.BufferStore) and id(s.buffer) in rules:
            value = s.value if _is_kept(s) else expr(s.value)
            if isinstance(s.value, E.Let) and _is_moved(s.value):
                value = s.value.value
            kept = S.BufferStore(s.buffer, value, s.indices, s.predicate, s.loc)
            # Behind it: the value may be made of what was there, which asks the flag of that.
            return S.seq(kept, _flag_stored(s, flags)) if id(s.buffer) in flags else kept
        if isinstance(s, S.Alloc) and id(s.buffer) in flags:
            return S.Alloc(flags[id(s.buffer)], map_stmt(s, stmt, expr))
        return map_stmt(s, stmt, expr)

    def expr(e: E.Expr) -> E.Expr:
        e = map_expr(e, expr)
        if not isinstance(e, E.BufferLoad) or id(e.buffer) not in rules:
            return e
        moved = rules[id(e.buffer)]
        if id(e.buffer) not in flags:
            return _read(e, moved, _last(moved))
        flag = E.BufferLoad(flags[id(e.buffer)], (_flag_index(e, dtype_info(moved.var.dtype).lanes),))
        return _read(e, moved, B.compare("ne", flag, B.const(0, flag.dtype)))

    return stmt(body) if rules else body


def _flags(buffer: Buffer, lanes: int) -> Buffer:
    """Of each of a buffer's pieces, whether it is to be moved."""
    return Buffer(f"{buffer.name}_ends", "int32", (B.floordiv(buffer.shape[0], lanes),), scope="local")


def _flag_index(e: E.BufferLoad | S.BufferStore, lanes: int) -> E.Expr:
    """Where the flags of the pieces lie that an access is of."""
    index = e.indices[0]
    if isinstance(index, E.Ramp) and not B.is_const(index.stride, 1):
        return E.Ramp(B.floordiv(index.base, lanes), B.floordiv(index.stride, lanes), index.lanes)
    return B.floordiv(index.base if isinstance(index, E.Ramp) else index, lanes)


def _flag_stored(s: S.BufferStore, flags: dict[int, Buffer]) -> S.Stmt | None:
    """The flag of a piece that is stored; None where it stays."""
    lanes, value = dtype_info(s.value.dtype).lanes, s.value
    flag: E.Expr = B.const(0, "int32")
    if isinstance(value, E.Let) and _is_moved(value):
        flag = E.Select(_last(value), B.const(1, "int32"), flag)
    elif isinstance(value, E.BufferLoad) and id(value.buffer) in flags:
        flag = E.BufferLoad(flags[id(value.buffer)], (_flag_index(value, lanes),))
    elif _is_kept(s):
        return None
    return S.BufferStore(flags[id(s.buffer)], flag, (_flag_index(s, lanes),))


def _read(e: E.BufferLoad, moved: E.Let, last: E.Expr) -> E.Expr:
    """What is read of pieces that are kept as they were loaded. last: whether they are a row's last ones."""
    lanes, beyond = dtype_info(moved.var.dtype).lanes, _indices(moved)[0]
    if _place(e, lanes) is None:  # a whole piece
        assert isinstance(moved.body, E.Select)
        var = E.Var("piece", e.dtype)
        front = substitute(moved.body.a, {moved.var: var})
        return E.Let(var, e, E.Select(E.Broadcast(last, lanes), front, var))
    many, index = dtype_info(e.dtype).lanes, e.indices[0]
    other: E.Expr = B.const(0, e.buffer.dtype)
    if (_place(e, lanes) or 0) + beyond < lanes:
        at = (
            E.Ramp(B.add(index.base, beyond), index.stride, many) if isinstance(index, E.Ramp) else B.add(index, beyond)
        )
        other = E.BufferLoad(e.buffer, (at,))
    elif many > 1:
        other = E.Broadcast(other, many)
    return E.Select(E.Broadcast(last, many) if many > dtype_info(last.dtype).lanes else last, other, e)


def _place(e: E.BufferLoad, lanes: int) -> int | None:
    """Which element of a piece, or of each of some, is read; None for a whole one."""
    index = e.indices[0]
    if isinstance(index, E.Ramp) and B.is_const(index.stride, 1):
        return None
    return int(Analyzer().modular(index.base if isinstance(index, E.Ramp) else index)[1]) % lanes


def _is_fit(e: E.BufferLoad, lanes: int) -> bool:
    """Whether `_read` knows what is read: whole pieces, or an element of each."""
    index = e.indices[0]
    coeff, rest = Analyzer().modular(index.base if isinstance(index, E.Ramp) else index)
    if e.predicate is not None or coeff % lanes:
        return False
    if not isinstance(index, E.Ramp):
        return dtype_info(index.dtype).lanes == 1
    stride = const_int(index.stride)
    return stride is not None and (stride % lanes == 0 or (stride == 1 and index.lanes == lanes and rest % lanes == 0))


class _Groups:
    """Local buffers of pieces, those together that are copied to each other, and how each group's pieces are moved."""

    def __init__(self) -> None:
        self.moved: dict[int, list[E.Let]] = {}  # buffer -> what is stored there
        self.copies: list[tuple[int, int]] = []
        self.unfit: set[int] = set()
        self.threads: set[E.Var] = set()
        self.turns: dict[int, set[E.Var]] = {}  # variables of the loops around all that is done with a buffer
        self.read: dict[int, list[E.BufferLoad]] = {}
        self.again: set[int] = set()  # stored behind a reading: what is read there may be of another turn
        self.stored: dict[int, list[S.BufferStore]] = {}

    def walk(self, s: S.Stmt, turns: tuple[E.Var, ...]) -> None:
        """Take note of the statements, in their order. A buffer is fit where all that is stored there is moved alike, or comes from a fit one."""
        if isinstance(s, S.For):
            if s.thread.startswith(("threadIdx", "blockIdx")):
                self.threads.add(s.var)
            else:
                turns = (*turns, s.var)

        def expr(e: E.Expr) -> E.Expr:
            visit(e, lambda x: self._reading(x, turns))
            return e

        def inner(x: S.Stmt) -> S.Stmt:
            self.walk(x, turns)
            return x

        map_stmt(s, inner, expr)
        if isinstance(s, S.BufferStore) and s.buffer.scope == "local":
            self._storing(s, turns)

    def _within(self, key: int, turns: tuple[E.Var, ...]) -> None:
        self.turns[key] = self.turns.get(key, set(turns)) & set(turns)

    def _storing(self, s: S.BufferStore, turns: tuple[E.Var, ...]) -> None:
        key, value = id(s.buffer), s.value
        self._within(key, turns)
        self.stored.setdefault(key, []).append(s)
        if key in self.read:
            self.again.add(key)
        if _is_moved(value):
            assert isinstance(value, E.Let)
            self.moved.setdefault(key, []).append(value)
        elif isinstance(value, E.BufferLoad) and _is_kept(s):
            self.copies.append((key, id(value.buffer)))
        elif not _is_kept(s) and not (isinstance(value, E.Broadcast) and B.is_const(value.value, 0)):
            self.unfit.add(key)

    def _reading(self, e: E.Expr, turns: tuple[E.Var, ...]) -> None:
        if isinstance(e, E.BufferLoad) and e.buffer.scope == "local":
            self.read.setdefault(id(e.buffer), []).append(e)
            self._within(id(e.buffer), turns)

    def rules(self) -> tuple[dict[int, E.Let], dict[int, tuple[Buffer, int]]]:
        """Of each fit buffer an example of how its pieces are moved; and those that need flags, with the lanes of a piece."""
        joined: dict[int, set[int]] = {}
        for key in (*self.moved, *itertools.chain(*self.copies)):
            joined.setdefault(key, {key})
        for a, b in self.copies:
            if joined[a] is not joined[b]:
                joined[a] |= joined[b]
                for key in joined[b]:
                    joined[key] = joined[a]
        out: dict[int, E.Let] = {}
        flagged: dict[int, tuple[Buffer, int]] = {}
        for group in {id(g): g for g in joined.values()}.values():
            moved = [m for key in group for m in self.moved.get(key, ())]
            if not moved:
                continue
            lanes = dtype_info(moved[0].var.dtype).lanes
            if not all(_is_fit(e, lanes) for key in group for e in self.read.get(key, ())):
                continue
            if self._is_known(group, moved):
                out |= dict.fromkeys(group, moved[0])
            elif self._is_whole(group, moved, lanes):
                out |= dict.fromkeys(group, moved[0])
                flagged |= {key: (self.stored[key][0].buffer, lanes) for key in group}
        return out, flagged

    def _is_known(self, group: set[int], moved: list[E.Let]) -> bool:
        """Whether readers can ask the condition again."""
        turns = set(free_vars(_last(moved[0]))) - self.threads
        if group & self.unfit or not all(_how(m) == _how(moved[0]) for m in moved):
            return False
        return not turns or (len(group) == 1 and not group & self.again and all(turns <= self.turns[key] for key in group))  # fmt: skip

    def _is_whole(self, group: set[int], moved: list[E.Let], lanes: int) -> bool:
        """Whether all that is stored are whole pieces, all of which are moved by as much, so that each has a flag."""
        if not all((_indices(m), m.var.dtype) == (_indices(moved[0]), moved[0].var.dtype) for m in moved):
            return False
        return all(key in self.stored and all(_is_piece(s, lanes) for s in self.stored[key]) for key in group)


def _is_moved(value: E.Expr) -> bool:
    """Whether a value is what `one_load` makes."""
    return isinstance(value, E.Let) and isinstance(value.body, E.Select) and isinstance(value.body.a, E.Shuffle) and value.body.b is value.var  # fmt: skip


def _is_kept(s: S.BufferStore) -> bool:
    """Whether a store leaves pieces as they are: of another buffer's, or of its own under a mark."""
    value = s.value
    if isinstance(value, E.Call) and value.op == "computed":
        return _reads(value.args[0], s.buffer)
    return isinstance(value, E.BufferLoad) and value.buffer.scope == "local"


def _is_piece(s: S.BufferStore, lanes: int) -> bool:
    """Whether a store is of one whole piece, and what it copies too."""
    places: list[E.BufferLoad | S.BufferStore] = [s]
    if isinstance(s.value, E.BufferLoad) and s.value.buffer.scope == "local":
        places.append(s.value)
    for x in places:
        index = x.indices[0]
        if x.predicate is not None or not isinstance(index, E.Ramp) or index.lanes != lanes or not B.is_const(index.stride, 1):  # fmt: skip
            return False
        coeff, rest = Analyzer().modular(index.base)
        if coeff % lanes or rest % lanes:
            return False
    return True


def _last(moved: E.Let) -> E.Expr:
    """The condition for the last piece."""
    assert isinstance(moved.body, E.Select) and isinstance(moved.body.cond, E.Broadcast)
    return moved.body.cond.value


def _indices(moved: E.Let) -> tuple[int, ...]:
    """Which lanes go to the front."""
    assert isinstance(moved.body, E.Select) and isinstance(moved.body.a, E.Shuffle)
    return moved.body.a.indices


def _reads(e: E.Expr, buffer: Buffer) -> bool:
    return isinstance(e, E.BufferLoad) and e.buffer is buffer


def _how(moved: E.Let) -> tuple[object, ...]:
    """How a piece is moved. A loop's steps and what is left behind them say the same sum in other orders."""
    last = _last(moved)
    condition = (sorted(map(str, _addends(last.a))), str(last.b)) if isinstance(last, E.EQ) else str(last)
    return condition, _indices(moved), moved.var.dtype


def _addends(e: E.Expr) -> list[E.Expr]:
    return [*_addends(e.a), *_addends(e.b)] if isinstance(e, E.Add) else [e]
