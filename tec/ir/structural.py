"""Structural equality and hashing: whether two pieces of IR say the same, whatever their variables are called.

Variables and buffers that are bound inside (loops, lets, allocations, parameters) correspond by position. Free ones must be
the same objects, or with `map_free_vars=True` correspond one to one. Source locations and names do not count; the name
of a Func and its attrs do (but for "loc").
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import expr as E
from . import stmt as S
from .buffer import Buffer
from .func import Func, IRModule
from .schema import EXPRS, STMTS, compared, outside

_LEAVES = (str, bytes, bool, int, float, type(None))


def structural_equal(a: Any, b: Any, map_free_vars: bool = False) -> bool:
    """Whether `a` and `b` (Expr, Stmt, Func, IRModule, Buffer, Range, or tuples, lists and dicts of them) are equal."""
    return _Compare(map_free_vars).same(a, b)


def structural_hash(a: Any, map_free_vars: bool = False) -> int:
    """A hash that agrees with `structural_equal`; stable within a process."""
    return hash(_Digest(map_free_vars).of(a))


def flat_stmts(s: S.Stmt) -> list[S.Stmt]:
    """The statements of nested Seqs, in order, without no-ops."""
    if isinstance(s, S.Seq):
        return [x for child in s.stmts for x in flat_stmts(child)]
    if isinstance(s, S.Evaluate) and isinstance(s.value, E.IntImm):
        return []
    return [s]


# What tells two nodes apart, for those that bind nothing and say nothing in two ways.
_OWN_WAY = (E.Var, E.FloatImm, E.Call, E.Reduce, S.Seq, S.AllReduce)
# Of those that bind something: what stands outside of it.
_OUTSIDE = {cls: outside(cls) for cls in (*EXPRS, *STMTS) if cls.binds}  # type: ignore[attr-defined]
_FIELDS: dict[type, tuple[str, ...]] = {
    cls: compared(cls) for cls in (*EXPRS, *STMTS, E.Range, E.IterVar) if cls not in _OWN_WAY and cls not in _OUTSIDE
}


def _float_key(x: float, dtype: str) -> Any:
    """Tells -0.0 from 0.0, and takes all NaNs for one."""
    return dtype, "nan" if np.isnan(x) else x.hex()


def _buffer_parts(b: Buffer) -> tuple[Any, ...]:
    offset = b.elem_offset.value if isinstance(b.elem_offset, E.IntImm) else b.elem_offset
    return (b.dtype, b.scope, b.align_bytes, b.offset_factor, b.shape, b.strides, offset, b.data)


def _attrs_of(f: Func) -> dict[str, Any]:
    return {k: v for k, v in f.attrs.items() if k not in ("loc", "threads", "lowered_from", "unproved")}


def _reduce_parts(c: E.CommReducer) -> tuple[Any, ...]:
    return (c.name, c.identity, c.result)


class _Compare:
    def __init__(self, map_free: bool):
        self.map_free = map_free
        self.forward: dict[int, Any] = {}
        self.backward: dict[int, Any] = {}

    def bind(self, a: Any, b: Any) -> bool:
        """Let two variables or buffers correspond from here on."""
        if isinstance(a, E.Var) and (not isinstance(b, E.Var) or a.dtype != b.dtype):
            return False
        self.forward[id(a)] = b
        self.backward[id(b)] = a
        return True

    def _symbol(self, a: Any, b: Any) -> bool:
        to, back = self.forward.get(id(a)), self.backward.get(id(b))
        if to is not None or back is not None:
            return to is b and back is a
        if a is b:
            return True
        if isinstance(a, Buffer):
            return self.declare(a, b) if self.map_free else False
        return bool(self.map_free and a.dtype == b.dtype and self.bind(a, b))

    def declare(self, a: Buffer, b: Buffer) -> bool:
        """Let two buffers correspond, where what they say of themselves does."""
        known = id(a.data) in self.forward or id(b.data) in self.backward
        if not known:
            self.bind(a.data, b.data)
        if not self.same(_buffer_parts(a), _buffer_parts(b)):
            return False
        return self.bind(a, b)

    def same(self, a: Any, b: Any) -> bool:
        """Whether two nodes are equal up to the names of what they define."""
        t = type(a)
        if t is not type(b):
            if isinstance(a, S.Stmt) and isinstance(b, S.Stmt):  # a Seq of one
                return self._stmts(flat_stmts(a), flat_stmts(b)) if S.Seq in (t, type(b)) else False
            return False
        if t is E.Var:
            return self._symbol(a, b)
        if t is Buffer:
            return self._symbol(a, b)
        if t is E.FloatImm:
            return bool(_float_key(a.value, a.dtype) == _float_key(b.value, b.dtype))
        if t in (tuple, list):
            return len(a) == len(b) and all(self.same(x, y) for x, y in zip(a, b))
        if t is dict:
            return a.keys() == b.keys() and all(self.same(v, b[k]) for k, v in a.items())
        if t in _LEAVES:
            return bool(a == b)
        if (
            t is E.BufferLoad
            and a.buffer is not b.buffer
            and not self._known(a.buffer)
            and self._shares_data(a.buffer, b.buffer)
        ):
            return self.declare(a.buffer, b.buffer) and self._fields(a, b)
        if t is E.Call:
            return (
                a.op == b.op
                and a.dtype == b.dtype
                and self.same(a.args, b.args)
                and self.same(a.attrs or {}, b.attrs or {})
            )
        if t in _FIELDS:
            return self._fields(a, b)
        if t in _OUTSIDE:
            return self._scope(a, b)
        handler = getattr(self, f"_{t.__name__.lower()}", None)
        if handler is not None:
            return bool(handler(a, b))
        return a is b or _opaque_equal(a, b)

    def _fields(self, a: Any, b: Any) -> bool:
        for name in _FIELDS[type(a)]:
            x, y = getattr(a, name), getattr(b, name)
            if x is not y or isinstance(x, (E.Expr, S.Stmt, Buffer, tuple)):
                if isinstance(x, Buffer) and not self._known(x) and self._shares_data(x, y):
                    if not self.declare(x, y):
                        return False
                elif not self.same(x, y):
                    return False
        return True

    def _known(self, b: Buffer) -> bool:
        return id(b) in self.forward

    def _shares_data(self, a: Buffer, b: Any) -> bool:
        """Whether two undeclared buffers are views of storage that corresponds."""
        return isinstance(b, Buffer) and id(a.data) in self.forward and self.forward[id(a.data)] is b.data

    def _stmts(self, a: list[S.Stmt], b: list[S.Stmt]) -> bool:
        return len(a) == len(b) and all(self.same(x, y) for x, y in zip(a, b))

    def _seq(self, a: S.Seq, b: S.Seq) -> bool:
        return self._stmts(flat_stmts(a), flat_stmts(b))

    def _scope(self, a: Any, b: Any) -> bool:
        """Nodes that bind something: what stands outside of it, what is bound, and the body."""
        if not all(self.same(getattr(a, n), getattr(b, n)) for n in _OUTSIDE[type(a)]):
            return False
        return all(self._bound(getattr(a, n), getattr(b, n)) for n in a.binds) and self.same(a.body, b.body)

    def _bound(self, a: Any, b: Any) -> bool:
        if not isinstance(a, Buffer):
            return self.bind(a, b)
        for table, x in ((self.forward, a), (self.backward, b)):
            table.pop(id(x.data), None)
        return self.declare(a, b)

    def _commreducer(self, a: E.CommReducer, b: E.CommReducer) -> bool:
        if len(a.lhs) != len(b.lhs) or len(a.rhs) != len(b.rhs):
            return False
        if not all(self.bind(x, y) for x, y in zip((*a.lhs, *a.rhs), (*b.lhs, *b.rhs))):
            return False
        return self.same(_reduce_parts(a), _reduce_parts(b))

    def _allreduce(self, a: S.AllReduce, b: S.AllReduce) -> bool:
        parts = [(x.values, x.predicate, x.dests, x.threads) for x in (a, b)]
        return self.same(a.combiner, b.combiner) and self.same(*parts)

    def _reduce(self, a: E.Reduce, b: E.Reduce) -> bool:
        if len(a.axis) != len(b.axis) or a.value_index != b.value_index:
            return False
        for x, y in zip(a.axis, b.axis):
            if not self.same(x.dom, y.dom) or not self.bind(x.var, y.var):
                return False
        parts = [(x.source, x.condition, x.init) for x in (a, b)]
        return self.same(a.combiner, b.combiner) and self.same(*parts)

    def _func(self, a: Func, b: Func) -> bool:
        if a.name != b.name or len(a.params) != len(b.params):
            return False
        for v, w in zip(a.implicit_vars(), b.implicit_vars()):
            if not self.bind(v, w):
                return False
        for p, q in zip(a.params, b.params):
            if isinstance(p, E.Var) and not self.bind(p, q):
                return False
        for p, q in zip(a.params, b.params):
            if isinstance(p, Buffer) and not (isinstance(q, Buffer) and self.declare(p, q)):
                return False
        ta, tb = a.attrs.get("threads") or {}, b.attrs.get("threads") or {}
        if list(ta) != list(tb):
            return False
        for tag in ta:
            if not self.bind(ta[tag][0], tb[tag][0]) or not self.same(ta[tag][1], tb[tag][1]):
                return False
        return self.same(_attrs_of(a), _attrs_of(b)) and self.same(a.body, b.body)

    def _irmodule(self, a: IRModule, b: IRModule) -> bool:
        return list(a.functions) == list(b.functions) and all(self.same(a[k], b[k]) for k in a.functions)


def _opaque_equal(a: Any, b: Any) -> bool:
    if isinstance(a, (E.Expr, S.Stmt)):
        return False
    try:
        return bool(a == b)
    except TypeError:
        return False


class _Digest:
    """A nested tuple that two structurally equal pieces share: bound symbols become numbers in order of binding."""

    def __init__(self, map_free: bool):
        self.map_free = map_free
        self.numbers: dict[int, int] = {}

    def bind(self, x: Any) -> int:
        n = self.numbers[id(x)] = len(self.numbers)
        return n

    def _symbol(self, x: Any) -> Any:
        n = self.numbers.get(id(x))
        if n is None:
            if isinstance(x, Buffer):  # views count by what they say
                return ("buffer", x.dtype, x.scope, len(x.shape))
            if not self.map_free:
                return ("free", id(x))
            n = self.bind(x)
        return (n, x.dtype)

    def of(self, a: Any) -> Any:
        """A value to hash: equal for nodes that `same` finds equal."""
        t = type(a)
        if t is E.Var or t is Buffer:
            return self._symbol(a)
        if t is E.FloatImm:
            return _float_key(a.value, a.dtype)
        if t in (tuple, list):
            return (t.__name__, *[self.of(x) for x in a])
        if t is dict:
            return ("dict", *sorted((str(k), hash(self.of(v))) for k, v in a.items()))
        if t in _LEAVES:
            return a
        if isinstance(a, S.Stmt):
            stmts = flat_stmts(a)
            if len(stmts) != 1:
                return ("Seq", *[self.of(x) for x in stmts])
            a, t = stmts[0], type(stmts[0])
        if t is E.Call:
            return ("Call", a.op, a.dtype, self.of(a.args), self.of(a.attrs or {}))
        if t in _FIELDS:
            return (t.__name__, *[self.of(getattr(a, name)) for name in _FIELDS[t]])
        if t in _OUTSIDE:
            head = [self.of(getattr(a, n)) for n in _OUTSIDE[t]]
            new = [
                self._declare(x) if isinstance(x, Buffer) else self.bind(x) for x in (getattr(a, n) for n in a.binds)
            ]
            return (t.__name__, *head, *new, self.of(a.body))
        match a:
            case E.CommReducer():
                for v in (*a.lhs, *a.rhs):
                    self.bind(v)
                return ("CommReducer", self.of(_reduce_parts(a)))
            case S.AllReduce():
                return ("AllReduce", self.of(a.combiner), self.of((a.values, a.predicate, a.dests, a.threads)))
            case E.Reduce():
                doms = [(self.of(x.dom), self.bind(x.var)) for x in a.axis]
                return (
                    "Reduce",
                    a.value_index,
                    tuple(doms),
                    self.of(a.combiner),
                    self.of((a.source, a.condition, a.init)),
                )
            case Func():
                return self._func(a)
            case IRModule():
                return ("IRModule", *[(k, self.of(f)) for k, f in a.functions.items()])
        return (t.__name__,)

    def _declare(self, b: Buffer) -> Any:
        if id(b.data) not in self.numbers:
            self.bind(b.data)
        parts = self.of(_buffer_parts(b))
        return (self.bind(b), parts)

    def _func(self, f: Func) -> Any:
        for v in (*f.implicit_vars(), *[p for p in f.params if isinstance(p, E.Var)]):
            self.bind(v)
        params = [self._declare(p) if isinstance(p, Buffer) else p.dtype for p in f.params]
        threads = [(tag, self.bind(v), self.of(x)) for tag, (v, x) in (f.attrs.get("threads") or {}).items()]
        return ("Func", f.name, tuple(params), tuple(threads), self.of(_attrs_of(f)), self.of(f.body))
