"""Statements written by hand, in Python's own block structure: for `tec.extern` and tensor intrinsics.

ib = tec.te.ir_builder.create()
a, c = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
with ib.for_range(0, n, "i") as i:
    with ib.if_scope(a[i] > 0):
        c[i] = a[i]
    with ib.else_scope():
        c[i] = 0.0
return ib.get()
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import ExprError, caller_loc, listed
from ..ir import build
from ..ir.blocks import Open, close
from ..ir.buffer import FRAGMENT_SCOPES, GLOBAL, LOCAL, SHARED, SHARED_DYN, Buffer
from ..ir.dtype import dtype_info, normalize_dtype, with_lanes
from ..ir.expr import BufferLoad, Expr, IterVar, Ramp, Var
from ..ir.notes import make
from ..ir.spelling import Spelled
from ..ir.stmt import (
    Alloc,
    Assert,
    Attr,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    Stmt,
    While,
)  # fmt: skip
from ..ir.visit import free_vars
from .build import as_shape, check_name
from .tensor import Tensor, as_index

_KINDS = (ForKind.SERIAL, ForKind.PARALLEL, ForKind.VECTORIZED, ForKind.UNROLLED)


class BufferVar(Spelled):
    """A buffer to read and write by indexing: `a[i, j]`, `a[i, j] = v`; one index into more dimensions counts row-major."""

    def __init__(self, builder: IRBuilder, buffer: Buffer):
        self._builder = builder
        self.buffer = buffer

    @property
    def dtype(self) -> str:
        """The type of its elements."""
        return self.buffer.dtype

    @property
    def shape(self) -> tuple[Expr, ...]:
        """Its extents."""
        return self.buffer.shape

    def asexpr(self) -> Expr:
        """As a value, a buffer is a pointer to its first element."""
        return self.buffer.access_ptr("rw")

    def __getitem__(self, index: Any) -> Expr:
        return BufferLoad(self.buffer, self._indices(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        idx = self._indices(index)
        e = build.convert(value, self.buffer.dtype)
        lanes = dtype_info(idx[-1].dtype).lanes if idx else 1
        want = with_lanes(self.buffer.dtype, lanes * dtype_info(self.buffer.dtype).lanes)
        if e.dtype != want and build.const_value(e) is None and dtype_info(e.dtype).element != dtype_info(want).element:
            raise ExprError(
                f"{e.dtype} stored to buffer {self.buffer.name} of {self.buffer.dtype}: {e}",
                hint="cast the value: v.astype(...)",
            )
        self._builder.emit(BufferStore(self.buffer, build.cast(want, e), idx, None, self._builder.loc()))

    def _indices(self, index: Any) -> tuple[Expr, ...]:
        given = index if isinstance(index, (tuple, list)) else (index,)
        b = self.buffer
        what = f"index of buffer {b.name}"
        items = tuple(i if isinstance(i, Ramp) else as_index(i, what) for i in given)
        if len(items) == b.ndim or (b.ndim == 0 and len(items) == 1 and build.const_value(items[0]) == 0):
            return items[: b.ndim]
        by_stride = {v for x in b.strides or () for v in free_vars(x)}
        if len(items) != 1 or any(v in by_stride for i in items for v in free_vars(i)):
            raise ExprError(
                f"buffer {b.name} has {b.ndim} dimensions, indexed with {len(items)}",
                hint="give an index for each dimension; one index counts the elements row by row, whatever the strides",
            )
        flat: list[Expr] = []
        rest = items[0]
        for extent in reversed(b.shape[1:]):
            flat.append(build.floormod(rest, extent))
            rest = build.floordiv(rest, extent)
        return (rest, *reversed(flat))


class IRBuilder:
    """Collects statements; `get()` gives the whole. See the module."""

    def __init__(self) -> None:
        self._blocks: list[list[Stmt | Open]] = [[]]

    # ---- statements

    def emit(self, stmt: Any) -> None:
        """Appends a statement, or an expression for its effect."""
        if isinstance(stmt, Expr):
            stmt = Evaluate(stmt)
        if not isinstance(stmt, (Stmt, Open)):
            raise ExprError(f"cannot emit {stmt!r}", hint="emit takes a statement or a call")
        self._blocks[-1].append(stmt)

    def get(self) -> Stmt:
        """The statements so far, as one; the builder is empty afterwards."""
        if len(self._blocks) != 1:
            raise ExprError("ib.get() inside of an open scope", hint="call it after the with blocks")
        body = close(self._blocks.pop())
        self._blocks.append([])
        return body

    @staticmethod
    def loc() -> Any:
        return caller_loc()

    @contextmanager
    def _block(self) -> Iterator[list[Stmt | Open]]:
        block: list[Stmt | Open] = []
        self._blocks.append(block)
        try:
            yield block
        finally:
            self._blocks.pop()

    # ---- control flow

    @contextmanager
    def for_range(
        self,
        begin: Any,
        end: Any,
        name: str = "i",
        dtype: Any = None,
        kind: str = ForKind.SERIAL,
        for_type: str | None = None,
    ) -> Iterator[Var]:
        """A loop of begin <= i < end; `kind`: serial, parallel, vectorized or unrolled (also "unroll", "vectorize")."""
        kind = for_type or kind
        kind = {"unroll": ForKind.UNROLLED, "vectorize": ForKind.VECTORIZED}.get(kind, kind)
        if kind not in _KINDS:
            raise ExprError(f"unknown kind of loop {kind!r}", hint=f"one of {', '.join(_KINDS)}")
        what = f"bound of loop {name}"
        lo, hi = as_index(begin, what), as_index(end, what)
        if dtype is None:
            lo, hi = build.match(lo, hi)
        else:
            lo, hi = build.cast(normalize_dtype(dtype), lo), build.cast(normalize_dtype(dtype), hi)
        var = Var(check_name(name, "loop"), lo.dtype, build.is_const(lo, 0))
        with self._block() as block:
            yield var
        self.emit(For(var, lo, build.sub(hi, lo), close(block), kind))

    @contextmanager
    def while_loop(self, condition: Any) -> Iterator[None]:
        """Repeats its block while `condition` holds; the condition reads buffers that the block changes."""
        with self._block() as block:
            yield
        self.emit(While(_condition(condition), close(block)))

    @contextmanager
    def if_scope(self, condition: Any) -> Iterator[None]:
        """Its block runs where `condition` holds: `with ib.if_scope(i < n): ...`."""
        with self._block() as block:
            yield
        self.emit(IfThenElse(_condition(condition), close(block)))

    @contextmanager
    def else_scope(self) -> Iterator[None]:
        """The other branch of the if_scope right before it."""
        last = self._blocks[-1][-1] if self._blocks[-1] else None
        if not isinstance(last, IfThenElse) or last.orelse is not None:
            raise ExprError(
                "else_scope without an if_scope right before it",
                hint="with ib.if_scope(c): ... and, next, with ib.else_scope(): ...",
            )
        with self._block() as block:
            yield
        self._blocks[-1][-1] = IfThenElse(last.cond, last.then, close(block))

    @contextmanager
    def new_scope(self) -> Iterator[None]:
        """A block of its own: allocations and lets inside end with it."""
        with self._block() as block:
            yield
        self.emit(close(block))

    def scope_attr(self, node: Any, key: str, value: Any) -> None:
        """A note on all that follows in this block: a pragma of `Stage.pragma`; ("thread_extent", n) on a thread axis launches n threads."""
        if key == "thread_extent":
            if not isinstance(node, IterVar) or not node.thread_tag:
                raise ExprError("thread_extent is a note on a thread axis", hint='tx = tec.thread_axis("threadIdx.x")')
            extent = as_index(value, f"extent of {node.thread_tag}")
            zero = build.const(0, node.var.dtype)
            self.emit(Open(lambda body: For(node.var, zero, extent, body, ForKind.THREAD, node.thread_tag)))
            return
        note = make(str(key).removeprefix("pragma_").removeprefix("pragma."), value)
        self.emit(Open(lambda body: Attr(note, body)))

    # ---- values and storage

    def let(self, name: str, value: Any) -> Var:
        """A variable that holds `value` for the rest of this block."""
        e = build.convert(value)
        var = Var(check_name(name, "let"), e.dtype)
        self.emit(Open(lambda body: LetStmt(var, e, body)))
        return var

    def allocate(self, dtype: Any, shape: Any, name: str = "buf", scope: str = GLOBAL) -> BufferVar:
        """Storage for the rest of this block; undefined at first."""
        scope = scope or GLOBAL
        if scope not in (GLOBAL, SHARED, SHARED_DYN, LOCAL, *FRAGMENT_SCOPES):
            raise ExprError(f"unknown scope {scope!r} of buffer {name}", hint="global, shared, shared.dyn or local")
        buffer = Buffer(
            check_name(name, "buffer"), normalize_dtype(dtype), as_shape(shape, f"buffer {name}"), scope=scope
        )
        self.emit(Open(lambda body: Alloc(buffer, body)))
        return BufferVar(self, buffer)

    def buffer_ptr(self, buffer: Buffer) -> BufferVar:
        """The buffer, to be read and written by indexing."""
        if isinstance(buffer, Tensor):
            raise ExprError(
                f"tensor {buffer.name} given to buffer_ptr",
                hint="use the Buffers that the function is given: ins[0], outs[0]",
            )
        if not isinstance(buffer, Buffer):
            raise ExprError(f"buffer_ptr of {buffer!r}", hint="it takes a Buffer")
        return BufferVar(self, buffer)

    def assert_(self, condition: Any, message: str) -> None:
        """Stops the function with `message` where `condition` does not hold (CPU)."""
        self.emit(Assert(_condition(condition), message))

    def likely(self, condition: Any) -> Expr:
        """The condition, expected to hold."""
        return build.call("likely", _condition(condition))


def _condition(value: Any) -> Expr:
    e = build.convert(value)
    if e.dtype != "bool":
        raise ExprError(f"a condition of type {e.dtype}: {e}", hint="write a comparison such as x != 0")
    return e


def create() -> IRBuilder:
    """A new, empty builder."""
    return IRBuilder()


__dir__ = listed(__name__)
