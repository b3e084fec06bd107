"""The interpreter's expressions: values of lanes, memory accesses, operations across lanes.

A scalar expression evaluates to an array [lanes] or [1] (all lanes agree), a vector expression to [lanes or 1, elements].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import Loc, TecError
from . import expr as E
from . import matrix
from .buffer import Buffer
from .dtype import dtype_info
from .interp_lanes import Lanes, Storage
from .interp_ops import BINARY, Array, apply, call_named, cast, fix, held, is_elementwise, reinterpret

if TYPE_CHECKING:
    from .interp import Launch
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
    """Evaluates expressions under the current lanes and mask."""

    def __init__(self, check: bool, wave: int, externs: Mapping[str, Callable[..., Any]]):
        self.check = check
        self.wave = wave
        self.externs = externs
        self.root = self.lanes = Lanes(1)
        self.mask: Array | None = None
        self.storages: dict[int, Storage] = {}
        self.launch: Launch | None = None
        self.races: Races | None = None
        self.loc: Loc | None = None
        self._strides: dict[int, tuple[Buffer, list[Array], Array | int]] = {}

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
        return np.array([e.value], held(e.dtype))

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
        from .visit import free_vars

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
        handler = _CALL.get(e.op)
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

    def _reinterpret(self, e: E.Call) -> Array:
        return reinterpret(self.eval(e.args[0]), e.args[0].dtype, e.dtype)

    def _nothing(self, e: E.Call) -> Array:
        return np.zeros(1, np.int32)

    def _undef(self, e: E.Call) -> Array:
        lanes = dtype_info(e.dtype).lanes
        return np.zeros((1,) if lanes == 1 else (1, lanes), held(e.dtype))

    def _barrier(self, e: E.Call) -> Array:
        if self.races is not None:
            self.races.barrier(str((e.attrs or {}).get("scope", "shared")))
        if self.check and self.mask is not None and self.launch is not None and (e.attrs or {}).get("scope") != "wave":
            counts = np.bincount(self.lanes.group[self.mask], minlength=self.lanes.groups)
            whole = np.bincount(self.lanes.group, minlength=self.lanes.groups)
            if ((counts > 0) & (counts < whole)).any():
                raise self.error("a barrier that only some threads of a work-group reach")
        return np.zeros(1, np.int32)

    # pointers

    def pointer(self, e: E.Expr) -> Pointer:
        """The address that an argument stands for; a BufferLoad stands for its element's."""
        if isinstance(e, E.BufferLoad):
            storage, idx = self.locate(e.buffer, e.indices)
            return Pointer(storage, idx if idx.ndim == 1 else idx[:, 0], e.buffer.dtype)
        p = self.eval(e)
        if not isinstance(p, Pointer):
            raise self.error(f"{e} is not an address")
        return p

    def _address(self, e: E.Call) -> Pointer:
        p = self.pointer(e.args[0])
        if len(e.args) > 1:
            p = Pointer(p.storage, p.offset + self.eval(e.args[1]).astype(np.int64), p.dtype)
        return p

    def _atomic(self, e: E.Call) -> Array:
        """One lane after the other: the old values, as some order of the threads would give them."""
        p = self.pointer(e.args[0])
        args = [self.full(self.eval(a)) for a in e.args[1:]]
        idx = self.full(self._bounded(p.storage, p.storage, p.offset, None))
        rows = p.storage.rows_for(self.lanes)
        data = self._data(p.storage, p.dtype)
        old = np.zeros(self.lanes.n, data.dtype)
        f = _ATOMICS[e.op]
        active = range(self.lanes.n) if self.mask is None else np.nonzero(self.mask)[0].tolist()
        for k in active:
            at = (0 if rows is None else int(rows[k]), int(idx[k]))
            if p.storage.init is not None and not p.storage.init[at]:
                raise self.error(f"{p.storage.name} is updated before it is written")
            old[k] = data[at]
            new = f(old[k : k + 1], *[a[k : k + 1] for a in args])
            data[at] = fix(new, p.dtype)[0]
        return old

    def _async_copy(self, e: E.Call) -> Array:
        dst, src = self.pointer(e.args[0]), self.pointer(e.args[1])
        for k in range(self.uniform(e.args[2], "the size of a copy")):
            value = self.read(src.storage, src.storage, src.offset + k, None, src.dtype)
            self.write(dst.storage, dst.storage, dst.offset + k, None, value, dst.dtype)
        return np.zeros(1, np.int32)

    # lanes of a wavefront

    def _threads(self) -> tuple[Array, Array, int, int]:
        """Each lane's work-group, thread in it, copy of that thread, and the number of copies."""
        if self.launch is None:
            raise self.error("an operation across the lanes of a wavefront, outside of a launch")
        copies = self.lanes.n // self.launch.lanes.n
        k = np.arange(self.lanes.n)
        t = k // copies
        return t // self.launch.threads, t % self.launch.threads, copies, self.launch.threads

    def _shuffle_lanes(self, e: E.Call) -> Array:
        group, thread, copies, threads = self._threads()
        value = self.full(self.eval(e.args[0]))
        arg, width = self.full(self.eval(e.args[1])).astype(np.int64), self.uniform(e.args[2], "the width of a shuffle")
        if not 0 < width <= self.wave:
            raise self.error(f"a shuffle of width {width} in wavefronts of {self.wave}")
        lane = thread % self.wave
        first = lane // width * width
        if e.op == "shuffle_xor":
            src = lane ^ arg
        elif e.op == "shuffle_up":
            src = lane - arg
        elif e.op == "shuffle_down":
            src = lane + arg
        else:
            src = first + arg % width
        src = thread - lane + np.where((src >= first) & (src < first + width), src, lane)
        src = np.where(src < threads, src, thread)
        result: Array = value[(group * threads + src) * copies + np.arange(self.lanes.n) % copies]
        return result

    def _waves(self) -> tuple[Array, int, Array]:
        """For each lane the number of its wavefront (copies apart), how many there are, and its lane number there."""
        group, thread, copies, threads = self._threads()
        per = -(-threads // self.wave)
        copy = np.arange(self.lanes.n) % copies
        return (
            (group * per + thread // self.wave) * copies + copy,
            (int(group[-1]) + 1) * per * copies,
            thread % self.wave,
        )

    def _ballot(self, e: E.Call) -> Array:
        wave, count, lane = self._waves()
        vote = self.full(self.eval(e.args[0])) & (np.ones(self.lanes.n, bool) if self.mask is None else self.mask)
        masks = np.zeros(count, np.uint64)
        np.bitwise_or.at(masks, wave[vote], np.uint64(1) << lane[vote].astype(np.uint64))
        result: Array = masks[wave]
        return result.astype(held(e.dtype))

    def _first_lane(self, e: E.Call) -> Array:
        wave, count, _ = self._waves()
        value = self.full(self.eval(e.args[0]))
        first = np.full(count, self.lanes.n - 1)
        active = np.arange(self.lanes.n) if self.mask is None else np.nonzero(self.mask)[0]
        np.minimum.at(first, wave[active], active)
        result: Array = value[first[wave]]
        return result

    def _wave_lane(self, e: E.Call) -> Array:
        return self._waves()[2].astype(held(e.dtype))

    def _ldmatrix(self, e: E.Call) -> Array:
        """8-row matrices of 16-byte rows: lane 8*j + r names row r of matrix j; lane t gets the 32 bits at row t // 4, word
        t % 4 of each (with trans: 16-bit elements at column t // 4, rows 2 * (t % 4) and the next)."""
        attrs = e.attrs or {}
        num, trans = int(attrs["num"]), bool(attrs.get("trans"))
        source = self.pointer(e.args[0])
        piece = 128 // dtype_info(source.dtype).bits
        start = self.full(source.offset)
        rows = np.stack(
            [self.full(self.read(source.storage, source.storage, start + i, None, source.dtype)) for i in range(piece)],
            1,
        ).reshape(-1, 32, piece)
        t = np.arange(32)
        parts = []
        for j in range(num):
            m = rows[:, 8 * j : 8 * j + 8]
            for i in range(piece // 4):
                parts.append(m[:, 2 * (t % 4) + i, t // 4] if trans else m[:, t // 4, piece // 4 * (t % 4) + i])
        return np.stack(parts, 2).reshape(-1, len(parts))

    def _mma(self, e: E.Call) -> Array:
        attrs = e.attrs or {}
        if "unit" not in attrs:
            raise self.error("an mma without a unit in its attrs", hint="make it with tec.ir.matrix.MatrixInstr.call")
        instr = matrix.instr_of(attrs)
        _, _, copies, threads = self._threads()
        if threads % instr.wave or copies != 1:
            raise self.error(
                f"a matrix product in a work-group of {threads} threads: wavefronts of {instr.wave} are needed"
            )
        if (
            self.mask is not None
            and (self.mask.reshape(-1, instr.wave).any(1) != self.mask.reshape(-1, instr.wave).all(1)).any()
        ):
            raise self.error("a matrix product that only some lanes of a wavefront reach")
        a, b, c = (
            self.full(v.reshape(len(v), -1)).reshape(-1, instr.wave, v.size // len(v)) for v in map(self.eval, e.args)
        )
        out = np.stack([matrix.compute(instr, a[w], b[w], c[w]) for w in range(len(a))])
        out = fix(out.reshape(self.lanes.n, -1), e.dtype)
        return out[:, 0] if dtype_info(e.dtype).lanes == 1 else out

    def _dot(self, e: E.Call) -> Array:
        a, b, c = (self.eval(x) for x in e.args)
        if e.op == "dot4":
            total: Array = c.astype(np.int64) + (a.astype(np.int64) * b.astype(np.int64)).sum(axis=1)
            return np.asarray(total.astype(np.int32))
        return fix(c.astype(np.float64) + (a.astype(np.float64) * b.astype(np.float64)).sum(axis=1), e.dtype)

    # functions outside

    def _extern(self, e: E.Call) -> Any:
        attrs = e.attrs or {}
        name = str(attrs.get("symbol") or attrs.get("name"))
        f = self.externs.get(name)
        args = [self.eval(a) for a in e.args]
        if f is None:
            arrays = [a for a in args if isinstance(a, np.ndarray)]
            out = call_named(name, arrays, e.dtype, e.args[0].dtype) if arrays and len(arrays) == len(args) else None
            if out is not None:
                return out
            if name.startswith(("llvm.amdgcn.s.sleep", "llvm.prefetch", "llvm.amdgcn.sched", "llvm.amdgcn.s.setprio")):
                return np.zeros(1, np.int32)
            raise self.error(
                f"the function {name!r} is not known to the interpreter", hint="pass it: run(..., externs={name: f})"
            )
        out = np.zeros(self.lanes.n, held(e.dtype))
        for k in range(self.lanes.n):
            if self.mask is None or self.mask[k]:
                got = f(*[self._extern_arg(a, k) for a in args])
                if got is not None:
                    out[k] = got
        return out

    def _extern_arg(self, a: Any, k: int) -> Any:
        if isinstance(a, Pointer):
            rows = a.storage.rows_for(self.lanes)
            row = 0 if rows is None else int(rows[k])
            if a.storage.init is not None:
                a.storage.init[row] = True  # the function may write it
            return a.storage.data[row, int(a.offset[k if len(a.offset) > 1 else 0]) :]
        if isinstance(a, str):
            return a
        return a[k if len(a) > 1 else 0]


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

_ATOMICS: dict[str, Callable[..., Array]] = {
    "atomic_add": lambda old, v: old + v,
    "atomic_min": lambda old, v: np.fmin(old, v) if old.dtype.kind == "f" else np.minimum(old, v),
    "atomic_max": lambda old, v: np.fmax(old, v) if old.dtype.kind == "f" else np.maximum(old, v),
    "atomic_and": np.bitwise_and,
    "atomic_or": np.bitwise_or,
    "atomic_xor": np.bitwise_xor,
    "atomic_exch": lambda old, v: v,
    "atomic_cas": lambda old, expected, desired: np.asarray(np.where(old == expected, desired, old)),
}

_EVAL: dict[type, Callable[[ExprMachine, Any], Any]] = {
    **dict.fromkeys(BINARY, ExprMachine._binary),
    E.Var: ExprMachine._var, E.IntImm: ExprMachine._imm, E.FloatImm: ExprMachine._imm, E.StringImm: ExprMachine._string,
    E.And: ExprMachine._and, E.Not: ExprMachine._not, E.Select: ExprMachine._select, E.Cast: ExprMachine._cast,
    E.Let: ExprMachine._let, E.Ramp: ExprMachine._ramp, E.Broadcast: ExprMachine._broadcast,
    E.Shuffle: ExprMachine._shuffle, E.BufferLoad: ExprMachine._load, E.Call: ExprMachine._call,
}  # fmt: skip

_CALL: dict[str, Callable[[ExprMachine, Any], Any]] = {
    "if_then_else": ExprMachine._if_then_else, "reinterpret": ExprMachine._reinterpret, "undef": ExprMachine._undef,
    "barrier": ExprMachine._barrier, "address_of": ExprMachine._address, "access_ptr": ExprMachine._address,
    "async_copy": ExprMachine._async_copy, "mma": ExprMachine._mma, "ldmatrix": ExprMachine._ldmatrix, "dot4": ExprMachine._dot, "dot2": ExprMachine._dot,
    "ballot": ExprMachine._ballot, "readfirstlane": ExprMachine._first_lane, "wave_lane": ExprMachine._wave_lane,
    **dict.fromkeys(("prefetch", "async_commit", "async_wait"), ExprMachine._nothing),
    **dict.fromkeys(_ATOMICS, ExprMachine._atomic),
    **dict.fromkeys(("shuffle_xor", "shuffle_up", "shuffle_down", "shuffle_idx"), ExprMachine._shuffle_lanes),
    **dict.fromkeys(
        ("call_extern", "call_pure_extern", "call_llvm_intrin", "call_llvm_pure_intrin"), ExprMachine._extern
    ),
}  # fmt: skip
