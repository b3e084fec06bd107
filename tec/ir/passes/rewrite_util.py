"""Helpers that several passes share: cloning with fresh names, guards that let barriers through, memory effects.

`clone` copies a statement with fresh loop variables and buffers, for passes that repeat a body. `guarded` puts a
condition around a statement without enclosing anything that all threads must reach together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import Loc
from .. import build as B
from .. import expr as E
from .. import stmt as S
from ..buffer import Buffer
from ..effects import effects, is_call
from ..schema import FIELDS, STMTS, renewers
from ..visit import any_expr, map_expr, map_stmt, substituter, visit

SHARED_SCOPES = ("shared", "shared.dyn")
BLOCK_TAGS = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
THREAD_TAGS = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
LAUNCH_TAGS = BLOCK_TAGS + THREAD_TAGS


def const_int(e: Any) -> int | None:
    """The value of an integer constant, else None."""
    if isinstance(e, E.IntImm):
        return e.value
    return e if isinstance(e, int) else None


def is_launch_loop(s: S.Stmt) -> bool:
    """Whether `s` is a loop over a launch index (not a virtual thread)."""
    return isinstance(s, S.For) and s.kind == S.ForKind.THREAD and s.thread != "vthread"


def launch_nest(root: S.Stmt) -> tuple[list[S.For], S.Stmt]:
    """The loops over launch indices that `root` begins with, one inside of the other, and what the innermost holds."""
    nest: list[S.For] = []
    while isinstance(root, S.For) and is_launch_loop(root):
        nest.append(root)
        root = root.body
    return nest, root


def reshaped(old: Buffer, shape: tuple[E.Expr, ...], strides: tuple[E.Expr, ...] = ()) -> Buffer:
    """A fresh buffer like `old` with another shape."""
    return Buffer(old.name, old.dtype, shape, strides, 0, old.scope, old.align_bytes, loc=old.loc)


def same_expr(a: E.Expr, b: E.Expr) -> bool:
    """Whether two expressions are the same tree over the same variables and buffers."""
    if a is b:
        return True
    t = type(a)
    if t is not type(b) or a.dtype != b.dtype or t in _BY_IDENTITY:
        return False
    for f in FIELDS[t]:
        x, y = getattr(a, f.name), getattr(b, f.name)
        if f.holds != "expr":
            if x is not y and (f.holds == "buffer" or x != y):
                return False
        elif f.how == "many":
            if len(x) != len(y) or not all(map(same_expr, x, y)):
                return False
        elif x is None or y is None:
            if x is not y:
                return False
        elif not same_expr(x, y):
            return False
    return True


_BY_IDENTITY = frozenset((E.Var, E.Let, E.Reduce, E.TensorRead))


class Cloner:
    """Copies statements, substituting variables and giving fresh loop variables, let variables and buffers."""

    def __init__(self, values: Mapping[E.Var, E.Expr], fresh: bool = True):
        self.values: dict[E.Var, E.Expr] = dict(values)
        self.buffers: dict[int, Buffer] = {}
        self.fresh = fresh
        self._reset()

    def _reset(self) -> None:
        self._vars = substituter(self.values)
        self._memo: dict[int, tuple[E.Expr, E.Expr]] = {}

    def expr(self, e: E.Expr) -> E.Expr:
        if not self.buffers:
            return self._vars(e)
        return self._swap(self._vars(e))

    def _swap(self, e: E.Expr) -> E.Expr:
        t = type(e)
        if t is E.Var or t is E.IntImm or t is E.FloatImm:
            return e
        hit = self._memo.get(id(e))
        if hit is not None:
            return hit[1]
        out = map_expr(e, self._swap)
        if type(out) is E.BufferLoad:
            new = self.buffers.get(id(out.buffer))
            if new is not None:
                out = E.BufferLoad(new, out.indices, out.predicate)
        self._memo[id(e)] = (e, out)
        return out

    def stmt(self, s: S.Stmt) -> S.Stmt:
        out: S.Stmt = _RENEW[type(s)](s, self)
        return out

    # ---- what a statement binds, and what it names (see `schema.renewers`)

    def new_var(self, var: E.Var) -> E.Var:
        """A fresh variable that stands for `var` from here on."""
        if not self.fresh:
            return var
        new = E.Var(var.name, var.dtype, var.is_size)
        self.values[var] = new
        self._reset()
        return new

    def new_buffer(self, buffer: Buffer) -> Buffer:
        """A fresh buffer that stands for `buffer` from here on."""
        if not self.fresh:
            return buffer
        new = reshaped(buffer, tuple([self.expr(x) for x in buffer.shape]), buffer.strides)
        self.buffers[id(buffer)] = new
        self._memo = {}
        return new

    def var(self, var: E.Var) -> E.Var:
        return _as_var(self.values.get(var, var), var)

    def buffer(self, buffer: Buffer) -> Buffer:
        return self.buffers.get(id(buffer), buffer)


_RENEW = renewers(STMTS)


def _as_var(e: E.Expr, fallback: E.Var) -> E.Var:
    while isinstance(e, E.Cast):
        e = e.value
    return e if isinstance(e, E.Var) else fallback


def clone(s: S.Stmt, values: Mapping[E.Var, E.Expr]) -> S.Stmt:
    """`s` with variables replaced and everything it binds renewed."""
    return Cloner(values).stmt(s)


def redirected(s: S.Stmt, buffers: Mapping[int, Buffer], *lead: E.Expr) -> S.Stmt:
    """`s` with loads and stores of some buffers (by id) made in others instead, whose first indices are `lead`."""

    def fe(e: E.Expr) -> E.Expr:
        out = map_expr(e, fe)
        new = buffers.get(id(out.buffer)) if type(out) is E.BufferLoad else None
        return out if new is None else E.BufferLoad(new, (*lead, *out.indices), out.predicate)  # type: ignore[attr-defined]

    def fs(x: S.Stmt) -> S.Stmt:
        out = map_stmt(x, fs, fe)
        new = buffers.get(id(out.buffer)) if isinstance(out, S.BufferStore) else None
        if new is None:
            return out
        return S.BufferStore(new, out.value, (*lead, *out.indices), out.predicate, out.loc)  # type: ignore[attr-defined]

    return fs(s)


def named_buffers(s: S.Stmt) -> set[int]:
    """The ids of the buffers that a statement names."""
    found: set[int] = set()

    def on_expr(e: E.Expr) -> bool:
        if type(e) is E.BufferLoad:
            found.add(id(e.buffer))
        return False

    def on_stmt(x: S.Stmt) -> None:
        if isinstance(x, S.BufferStore):
            found.add(id(x.buffer))
        elif isinstance(x, S.AllReduce):
            found.update(map(id, x.dests))

    any_expr(s, on_expr)
    visit(s, None, on_stmt)
    return found


def is_named(s: S.Stmt, buffer: Buffer) -> bool:
    """Whether a statement names a buffer."""
    return id(buffer) in named_buffers(s)


def uses_var(e: E.Expr, var: E.Var) -> bool:
    """Whether an expression reads a variable."""
    return any_expr(e, lambda x: x is var)


def first_place(s: S.Stmt) -> Loc | None:
    """The user's line of the first statement below that knows it."""
    found: Loc | None = None

    def on_stmt(x: S.Stmt) -> None:
        nonlocal found
        found = found or getattr(x, "loc", None)

    visit(s, None, on_stmt)
    return found


def stmt_size(s: S.Stmt) -> int:
    """Stores, evaluations and the like below `s`: the measure of code size that unrolling uses."""
    count = 0

    def on_stmt(x: S.Stmt) -> None:
        nonlocal count
        if isinstance(x, (S.BufferStore, S.Evaluate, S.AllReduce)):
            count += 1

    visit(s, None, on_stmt)
    return count


# ---- guards


def needs_all_threads(s: S.Stmt) -> bool:
    """Whether something below `s` may need all threads of the work-group or the wavefront together: a reduction over threads, a
    barrier, lanes that take each other's values, or shared memory both written and read."""
    does = effects(s)
    if does.collective & {"group", "wave"}:
        return True
    written, read = (
        {id(a.buffer) for a in does.accesses if a.is_write is w and a.buffer.scope in SHARED_SCOPES}
        for w in (True, False)
    )
    return bool(written & read)


def sunk(s: S.IfThenElse) -> S.Stmt | None:
    """`s` with its condition moved inward past whatever all threads must reach together; None where it will not move.

    The condition is evaluated once, before either side can change what it reads.
    """
    cond: E.Expr = s.cond
    name = E.Var("held", "bool")
    if not effects(cond).is_constant:
        cond = name
    moved = guarded(cond, s.then)
    if s.orelse is not None:
        moved = S.seq(moved, guarded(B.logical_not(cond), s.orelse))
    if isinstance(moved, S.IfThenElse):
        return None
    return S.LetStmt(name, s.cond, moved) if cond is name else moved


def guarded(cond: E.Expr, s: S.Stmt) -> S.Stmt:
    """`if cond: s`, with the condition moved inward past whatever all threads must reach together."""
    if isinstance(cond, E.IntImm):
        return s if cond.value else S.NOP
    if not needs_all_threads(s):
        return S.IfThenElse(cond, s)
    match s:
        case S.Seq():
            return S.seq(*[guarded(cond, x) for x in s.stmts])
        case S.For():
            return s.with_body(guarded(cond, s.body))
        case S.Alloc():
            return S.Alloc(s.buffer, guarded(cond, s.body), s.notes)
        case S.Attr():
            return S.Attr(s.note, guarded(cond, s.body))
        case S.LetStmt():
            value = s.value
            if effects(value).accesses:
                value = B.if_then_else(cond, value, B.const(0, value.dtype))
            return S.LetStmt(s.var, value, guarded(cond, s.body))
        case S.AllReduce():
            return S.AllReduce(s.combiner, s.values, B.logical_and(cond, s.predicate), s.dests, s.threads, s.loc)
        case S.IfThenElse():
            if not effects(s.cond).is_constant:
                held = E.Var("held", "bool")
                moved = guarded(held, s.then)
                if s.orelse is not None:
                    moved = S.seq(moved, guarded(B.logical_and(cond, B.logical_not(held)), s.orelse))
                return S.LetStmt(held, B.if_then_else(cond, s.cond, B.const(False)), moved)
            then = guarded(B.logical_and(cond, s.cond), s.then)
            if s.orelse is None:
                return then
            return S.seq(then, guarded(B.logical_and(cond, B.logical_not(s.cond)), s.orelse))
        case S.Evaluate() if is_call(s, "barrier"):
            return s
    return S.IfThenElse(cond, s)


def widen(e: E.Expr) -> E.Expr:
    """`e` computed in int64 throughout: products of sizes must not wrap first."""
    if e.dtype == "int64":
        return e
    if isinstance(e, (E.Mul, E.Add, E.Sub)):
        x, y = widen(e.a), widen(e.b)
        if isinstance(e, E.Mul):
            return B.mul(x, y)
        return B.add(x, y) if isinstance(e, E.Add) else B.sub(x, y)
    return B.cast("int64", e)
