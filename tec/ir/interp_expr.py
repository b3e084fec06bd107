"""The interpreter's expressions: values of lanes and memory accesses. Calls of operations: `tec.ir.interp_calls`.

A scalar expression evaluates to an array [lanes] or [1] (all lanes agree), a vector expression to [lanes or 1, elements].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..errors import Loc, TecError
from ..records import dataclass
from . import expr as E
from .buffer import Buffer
from .dtype import dtype_info
from .interp_lanes import Lanes, Storage
from .interp_ops import BINARY, Array, apply, cast, fix, held, is_elementwise
from .visit import free_vars

if TYPE_CHECKING:
    from .interp_machine import GroupBatch
    from .interp_races import Races


class InterpError(TecError):
    """A program that does something undefined, or that the interpreter cannot run."""

    def __init__(self, message: str, *, where: Loc | None = None, hint: str | None = None):
        super().__init__(message, where=where, hint=hint, locate=False)


@dataclass(slots=True)
class Pointer:
    """The address of an element: storage, and an offset in elements for each lane."""

    storage: Storage
    offset: Array
    dtype: str


class ExprMachine:
    """Evaluates expressions under the current lanes and mask. `calls`: what handles a call of each operation, by name."""

    calls: ClassVar[dict[str, Callable[[Any, E.Call], Any]]] = {}

    def __init__(self, check: bool, wave: int, externs: Mapping[str, Callable[..., Any]]):
        self.check = check
        self.wave = wave
        self.externs = externs
        self.root = self.lanes = Lanes(1)
        self.mask: Array | None = None
        self.storages: dict[int, Storage] = {}
        self.launch: GroupBatch | None = None
        self.races: Races | None = None
        self.tiles: dict[int, Array] = {}  # tile registers, by number
        self.loc: Loc | None = None
        self._strides: dict[int, tuple[Buffer, list[Array], Array | int]] = {}
        self._numbers: dict[int, tuple[E.Expr, Array]] = {}

    def error(self, message: str, hint: str | None = None) -> InterpError:
        return InterpError(message, where=self.loc, hint=hint)

    # ---- values

    def eval(self, e: E.Expr) -> Any:
        handler = _EVAL.get(type(e))
        if handler is None:
            raise self.error(f"{type(e).__name__} has no value in loop IR: {e}")
        return handler(self, e)

    def uniform(self, e: E.Expr, what: str) -> int:
        """The one value that an expression has for all active lanes."""
        v = self.eval(e)
        if len(v) > 1 and self.mask is not None:
            v = v[self.mask]
        if len(v) > 1 and v.min() != v.max():
            raise self.error(f"{what} is not the same for all threads: {e}")
        return int(v[0])

    def full(self, v: Array) -> Array:
        """A value with one entry for each lane."""
        return np.broadcast_to(v, (self.lanes.n, *v.shape[1:]))

    def _var(self, e: E.Var) -> Any:
        value = self.lanes.lookup(id(e))
        if value is None:
            if e.dtype == "handle" and id(e) in self.storages:
                s = self.storages[id(e)]
                return Pointer(s, np.zeros(1, np.int64), s.dtype)
            raise self.error(f"the variable {e.name} has no value")
        return value

    def _imm(self, e: E.IntImm | E.FloatImm) -> Array:
        hit = self._numbers.get(id(e))
        if hit is None:
            hit = self._numbers[id(e)] = (e, np.array([e.value], held(e.dtype)))
            hit[1].setflags(write=False)
        return hit[1]

    def _string(self, e: E.StringImm) -> str:
        return e.value

    def _binary(self, e: Any) -> Array:
        a, b = self.eval(e.a), self.eval(e.b)
        out = BINARY[type(e)](a, b)
        return fix(out, e.dtype) if e.dtype not in _NATIVE else out

    def _and(self, e: E.And) -> Array:
        """The right side under the left one's mask."""
        a: Array = self.eval(e.a)
        if a.ndim > 1 or len(a) == 1:
            if not a.any():
                return a
            return np.asarray(np.logical_and(a, self.eval(e.b)))
        return np.asarray(np.logical_and(a, self._guarded(a, e.b)))

    def _guarded(self, cond: Array, e: E.Expr) -> Any:
        """`e` evaluated where `cond` holds; anything elsewhere."""
        old = self.mask
        mask = cond if old is None else old & cond
        if not mask.any():
            info = dtype_info(e.dtype)
            return np.zeros((1,) if info.lanes == 1 else (1, info.lanes), held(e.dtype))
        self.mask = None if mask.all() else mask
        try:
            return self.eval(e)
        finally:
            self.mask = old

    def _not(self, e: E.Not) -> Array:
        return np.asarray(np.logical_not(self.eval(e.a)))

    def _choose(self, c: Array, a: Array, b: Array) -> Array:
        if c.ndim == 1 and (a.ndim > 1 or b.ndim > 1):
            c = c[:, None]
        return np.where(c, a, b)

    def _select(self, e: E.Select) -> Array:
        return self._choose(self.eval(e.cond), self.eval(e.a), self.eval(e.b))

    def _if_then_else(self, e: E.Call) -> Any:
        c: Array = self.eval(e.args[0])
        if len(c) == 1:
            return self.eval(e.args[1] if c.reshape(-1)[0] else e.args[2])
        active = c if self.mask is None else c | ~self.mask
        if active.all():
            return self.eval(e.args[1])
        return self._choose(c, self._guarded(c, e.args[1]), self._guarded(~c, e.args[2]))

    def _cast(self, e: E.Cast) -> Array:
        return cast(self.eval(e.value), e.value.dtype, e.dtype)

    def _let(self, e: E.Let) -> Any:
        self.lanes.env[id(e.var)] = self.eval(e.value)
        return self.eval(e.body)

    def _ramp(self, e: E.Ramp) -> Array:
        base, step = self.eval(e.base), self.eval(e.stride)
        return np.asarray(base[:, None] + step[:, None] * np.arange(e.lanes, dtype=base.dtype))

    def _broadcast(self, e: E.Broadcast) -> Array:
        v: Array = self.eval(e.value)
        return np.repeat(v.reshape(len(v), -1), e.lanes, axis=1) if v.ndim == 1 else np.tile(v, (1, e.lanes))

    def _shuffle(self, e: E.Shuffle) -> Array:
        parts = [self.eval(v) for v in e.vectors]
        n = max(len(p) for p in parts)
        whole = np.concatenate([np.broadcast_to(p.reshape(len(p), -1), (n, p.size // len(p))) for p in parts], axis=1)
        out = whole[:, list(e.indices)]
        return out[:, 0] if len(e.indices) == 1 else out

    # ---- memory

    def _layout(self, b: Buffer) -> tuple[list[Array], Array | int]:
        """Strides and offset of a buffer, in elements; remembered where they are the same for the whole run."""
        hit = self._strides.get(id(b))
        if hit is not None:
            return hit[1], hit[2]
        if b.strides:
            strides = [self.eval(s).astype(np.int64) for s in b.strides]
        else:
            strides, step = [], np.ones(1, np.int64)
            for d in reversed(b.shape):
                strides.append(step)
                step = step * self.eval(d).astype(np.int64)
            strides.reverse()
        exprs = [*b.strides, *b.shape]
        offset: Array | int = 0
        if isinstance(b.elem_offset, E.Expr):
            offset = self.eval(b.elem_offset).astype(np.int64)
            exprs.append(b.elem_offset)
        else:
            offset = int(b.elem_offset)
        if all(id(v) in self.root.env for x in exprs for v in free_vars(x)) and self.lanes is self.root:
            self._strides[id(b)] = (b, strides, offset)
        elif all(isinstance(x, E.IntImm) for x in exprs):
            self._strides[id(b)] = (b, strides, offset)
        return strides, offset

    def locate(self, b: Buffer, indices: tuple[E.Expr, ...], off: Array | None = None) -> tuple[Storage, Array]:
        """The storage, and for each lane (and vector element) the element's number in it."""
        storage = self.storages.get(id(b.data))
        if storage is None:
            raise self.error(f"the buffer {b.name} has no storage here")
        strides, flat = self._layout(b)
        if len(indices) != len(strides):
            raise self.error(f"{b.name} has {len(strides)} dimensions, indexed with {len(indices)}")
        values = [self.eval(i).astype(np.int64) for i in indices]
        wide = any(v.ndim > 1 for v in values)
        if self.check:
            self._check_dims(b, indices, values, off)
        total: Any = flat[:, None] if wide and isinstance(flat, np.ndarray) else flat
        for v, s in zip(values, strides):
            total = total + (v[:, None] if wide and v.ndim == 1 else v) * (s[:, None] if wide else s)
        total = np.asarray(total, np.int64)
        if total.ndim == 0:
            total = total.reshape(1)
        own = dtype_info(b.dtype).lanes
        if own > 1:
            total = (total.reshape(len(total), -1, 1) * own + np.arange(own)).reshape(len(total), -1)
        return storage, total

    def _check_dims(self, b: Buffer, indices: tuple[E.Expr, ...], values: list[Array], off: Array | None) -> None:
        for k, (i, v, d) in enumerate(zip(indices, values, b.shape)):
            extent = self.eval(d)
            bad = (v < 0) | (v >= (extent[:, None] if v.ndim > 1 else extent))
            if off is not None:
                bad = bad & ~off
            if self.mask is not None:
                bad = self.full(bad) & (self.mask[:, None] if bad.ndim > 1 else self.mask)
            if bad.any():
                worst = np.broadcast_to(v, bad.shape)[bad][0]
                raise self.error(
                    f"index {k} of {b.name} is {worst}, outside of 0 <= index < {int(np.max(extent))}: {b.name}[{', '.join(map(str, indices))}]",
                    hint=f"the index is {i}",
                )

    def _bounded(self, b: Any, storage: Storage, idx: Array, off: Array | None) -> Array:
        """`idx` with lanes that are switched off pointing at element 0; raises where an active one leaves the storage."""
        size = storage.data.shape[1]
        if idx.size and 0 <= idx.min() and idx.max() < size:
            return idx
        bad = (idx < 0) | (idx >= size)
        if off is not None:
            bad = bad & ~off
        live = bad
        if self.mask is not None:
            live = self.full(bad) & (self.mask[:, None] if bad.ndim > 1 else self.mask)
        if live.any():
            worst = np.broadcast_to(idx, live.shape)[live][0]
            raise self.error(f"access to element {worst} of {b.name}, which holds {size}")
        if size == 0:
            raise self.error(f"access to {b.name}, which is empty")
        return np.where((idx < 0) | (idx >= size), 0, idx)

    def _data(self, storage: Storage, dtype: str) -> Array:
        kind = held(dtype)
        if storage.data.dtype == kind:
            return storage.data
        if "bfloat16" in (storage.dtype, dtype):
            raise self.error(f"{storage.name} holds {storage.dtype} and is accessed as {dtype}")
        return storage.data.view(kind)

    def _load(self, e: E.BufferLoad) -> Array:
        off = None if e.predicate is None else ~self.eval(e.predicate)
        storage, idx = self.locate(e.buffer, e.indices, off)
        out = self.read(e.buffer, storage, idx, off, e.buffer.dtype)
        return out if off is None else np.where(off, np.zeros(1, out.dtype), out)

    def read(self, b: Any, storage: Storage, idx: Array, off: Array | None, dtype: str) -> Array:
        idx = self._bounded(b, storage, idx, off)
        rows = storage.rows_for(self.lanes)
        if self.races is not None and storage.scope.startswith("shared"):
            self.races.read(storage, rows, idx)
        if rows is None:
            where: Any = (0, idx)
        else:
            where = (rows[:, None] if idx.ndim > 1 else rows, idx)
        if storage.init is not None:
            known = storage.init[where]
            if off is not None:
                known = known | off
            if self.mask is not None:
                known = self.full(known) | ~(self.mask[:, None] if known.ndim > 1 else self.mask)
            if not known.all():
                spot = np.broadcast_to(idx, known.shape)[~known][0]
                raise self.error(f"{b.name} ({storage.scope}) is read at element {spot} before it is written")
        result: Array = self._data(storage, dtype)[where]
        return result

    def store(self, b: Buffer, indices: tuple[E.Expr, ...], value: Array, predicate: E.Expr | None) -> None:
        off = None if predicate is None else ~self.eval(predicate)
        storage, idx = self.locate(b, indices, off)
        self.write(b, storage, idx, off, value, b.dtype)

    def write(self, b: Any, storage: Storage, idx: Array, off: Array | None, value: Array, dtype: str) -> None:
        """Store a value in the lanes that are on; where memory is kept by thread, each to its own row."""
        idx = self._bounded(b, storage, idx, off)
        rows = storage.rows_for(self.lanes)
        data = self._data(storage, dtype)
        racy = self.races is not None and storage.scope.startswith("shared")
        if rows is None and len(idx) == 1 and len(value) == 1 and off is None and not racy:
            data[0, idx[0]] = value[0]
            if storage.init is not None:
                storage.init[0, idx[0]] = True
            return
        n = self.lanes.n
        shape = (n, *np.broadcast_shapes(idx.shape[1:], value.shape[1:]))
        idx, value = np.broadcast_to(idx, shape), np.broadcast_to(value, shape)
        row = np.zeros(n, np.int64) if rows is None else rows
        row = np.broadcast_to(row.reshape(n, *[1] * (len(shape) - 1)), shape)
        keep: Array | None = None
        if self.mask is not None:
            keep = np.broadcast_to(self.mask.reshape(n, *[1] * (len(shape) - 1)), shape)
        if off is not None:
            keep = ~np.broadcast_to(off, shape) if keep is None else keep & ~np.broadcast_to(off, shape)
        if keep is not None:
            row, idx, value = row[keep], idx[keep], value[keep]
        data[row, idx] = value
        if racy and self.races is not None:
            who = np.broadcast_to(self.races.who().reshape(n, *[1] * (len(shape) - 1)), shape)
            self.races.write(storage, who if keep is None else who[keep], row, idx, value)
        if storage.init is not None:
            storage.init[row, idx] = True

    # ---- calls

    def _call(self, e: E.Call) -> Any:
        handler = self.calls.get(e.op)
        if handler is not None:
            return handler(self, e)
        if is_elementwise(e.op):
            return apply(e.op, self._operands(e.args), e.dtype, e.args[0].dtype)
        raise self.error(f"{e.op} is not modelled by the interpreter")

    def _operands(self, args: tuple[E.Expr, ...]) -> list[Array]:
        values = [self.eval(a) for a in args]
        if len({v.ndim for v in values}) > 1:
            values = [v if v.ndim > 1 else v[:, None] for v in values]
        return values


_NATIVE = frozenset(
    f"{t}{lanes}"
    for t in (
        "float32",
        "float64",
        "float16",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "bool",
    )
    for lanes in ("", "x2", "x4", "x8", "x16")
)

_EVAL: dict[type, Callable[[ExprMachine, Any], Any]] = {
    **dict.fromkeys(BINARY, ExprMachine._binary),
    E.Var: ExprMachine._var, E.IntImm: ExprMachine._imm, E.FloatImm: ExprMachine._imm, E.StringImm: ExprMachine._string,
    E.And: ExprMachine._and, E.Not: ExprMachine._not, E.Select: ExprMachine._select, E.Cast: ExprMachine._cast,
    E.Let: ExprMachine._let, E.Ramp: ExprMachine._ramp, E.Broadcast: ExprMachine._broadcast,
    E.Shuffle: ExprMachine._shuffle, E.BufferLoad: ExprMachine._load, E.Call: ExprMachine._call,
}  # fmt: skip
