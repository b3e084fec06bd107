"""The interpreter's calls: atomics, barriers, operations across lanes, matrix units, outside functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..runtime.arrays import ndarray
from ..runtime.modules.callbacks import call, parse
from . import build as B
from . import expr as E
from . import interp_bulk, interp_tiles, matrix, scaled_matrix
from .dtype import dtype_info
from .interp_expr import ExprMachine, Pointer
from .interp_ops import Array, call_named, fix, held, reinterpret

if TYPE_CHECKING:
    pass


class CallMachine(ExprMachine):
    """Evaluates calls of operations; the rest is `ExprMachine`'s."""

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

    def _atomic_run(self, e: E.Call) -> Array:
        first = e.args[0]
        assert isinstance(first, E.BufferLoad)
        for k, value in enumerate(e.args[1:]):
            at = (*first.indices[:-1], B.add(first.indices[-1], k))
            self._atomic(E.Call("atomic_add", (E.BufferLoad(first.buffer, at), value), first.dtype))
        return np.zeros(self.lanes.n, np.int32)

    def _async_copy(self, e: E.Call) -> Array:
        if (e.attrs or {}).get("masked"):
            return self._masked_copy(e)
        dst, src = self.pointer(e.args[0]), self.pointer(e.args[1])
        for k in range(self.uniform(e.args[2], "the size of a copy")):
            value = self.read(src.storage, src.storage, src.offset + k, None, src.dtype)
            self.write(dst.storage, dst.storage, dst.offset + k, None, value, dst.dtype)
        return np.zeros(1, np.int32)

    def _masked_copy(self, e: E.Call) -> Array:
        """Lanes whose condition is false write 0, and read nothing."""
        dst, source = self.pointer(e.args[0]), e.args[1]
        assert isinstance(source, E.BufferLoad)
        *lead, last = source.indices
        for k in range(self.uniform(e.args[2], "the size of a copy")):
            load = E.BufferLoad(source.buffer, (*lead, B.add(last, k)))
            value = self.eval(B.if_then_else(e.args[3], load, B.cast(load.dtype, B.const(0))))
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
        a, b, c = self._wave_operands(e, instr.wave)
        out = np.stack([matrix.compute(instr, a[w], b[w], c[w]) for w in range(len(a))])
        out = fix(out.reshape(self.lanes.n, -1), e.dtype)
        return out[:, 0] if dtype_info(e.dtype).lanes == 1 else out

    def _mma_scaled(self, e: E.Call) -> Array:
        instr = scaled_matrix.scaled_of(e.attrs or {})
        a, b, c, sa, sb = self._wave_operands(e, scaled_matrix.WAVE)
        out = [scaled_matrix.compute(instr, a[w], b[w], c[w], sa[w, :, 0], sb[w, :, 0]) for w in range(len(a))]
        return fix(np.stack(out).reshape(self.lanes.n, -1), e.dtype)

    def _wave_operands(self, e: E.Call, wave: int) -> list[Array]:
        """A matrix instruction's arguments, [wavefronts, lanes, elements] each."""
        _, _, copies, threads = self._threads()
        if threads % wave or copies != 1:
            raise self.error(f"a matrix product in a work-group of {threads} threads: wavefronts of {wave} are needed")
        if self.mask is not None and (self.mask.reshape(-1, wave).any(1) != self.mask.reshape(-1, wave).all(1)).any():
            raise self.error("a matrix product that only some lanes of a wavefront reach")
        return [self.full(v.reshape(len(v), -1)).reshape(-1, wave, v.size // len(v)) for v in map(self.eval, e.args)]

    def _dot(self, e: E.Call) -> Array:
        a, b, c = (self.eval(x) for x in e.args)
        is_whole = not dtype_info(e.dtype).is_float
        wide = np.int64 if is_whole else np.float64
        products = a.astype(wide) * b.astype(wide)
        lanes = dtype_info(e.dtype).lanes
        if lanes > 1:
            products = products.reshape(len(products), lanes, -1)
        total: Array = c.astype(wide) + products.sum(axis=-1)
        return np.asarray(total.astype(np.int32)) if is_whole else fix(total, e.dtype)

    # functions outside

    def _extern(self, e: E.Call) -> Any:
        attrs = e.attrs or {}
        name = str(attrs.get("symbol") or attrs.get("name"))
        f = self.externs.get(name)
        args = [self.eval(a) for a in e.args]
        packed = parse(name) if f is None else None
        if packed is not None:
            f = partial(_call_packed, *packed)
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


def _call_packed(name: str, arguments: Any, *values: Any) -> int:
    """A registered function, given arrays that share the interpreter's memory."""

    def array(data: Array, shape: tuple[int, ...], dtype: str, written: bool) -> Any:
        return ndarray.from_numpy(data[: prod(shape)].reshape(shape))

    kinds = [kind for a in arguments for kind in (a.kind,) * a.slots]
    return call(name, arguments, [v.ctypes.data if k == "pointer" else v for k, v in zip(kinds, values)], array)


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

CallMachine.calls = {
    "if_then_else": CallMachine._if_then_else, "reinterpret": CallMachine._reinterpret, "undef": CallMachine._undef,
    "barrier": CallMachine._barrier, "address_of": CallMachine._address, "access_ptr": CallMachine._address,
    "async_copy": CallMachine._async_copy, "mma": CallMachine._mma, "mma_scaled": CallMachine._mma_scaled, "ldmatrix": CallMachine._ldmatrix, "dot4": CallMachine._dot, "dot4_narrow": CallMachine._dot, "dot2": CallMachine._dot,
    **interp_bulk.CALLS, **interp_tiles.CALLS, "ballot": CallMachine._ballot, "readfirstlane": CallMachine._first_lane, "wave_lane": CallMachine._wave_lane,
    **dict.fromkeys(("prefetch", "async_commit", "async_wait", "keep_order", "fence"), CallMachine._nothing),
    **dict.fromkeys(_ATOMICS, CallMachine._atomic), "atomic_add_run": CallMachine._atomic_run,
    **dict.fromkeys(("shuffle_xor", "shuffle_up", "shuffle_down", "shuffle_idx"), CallMachine._shuffle_lanes),
    **dict.fromkeys(
        ("call_extern", "call_pure_extern", "call_llvm_intrin", "call_llvm_pure_intrin", "assembly", "assembly_once"),
        CallMachine._extern,
    ),
}  # fmt: skip


def register_meaning(op: str, meaning: Callable[[CallMachine, E.Call], Array]) -> None:
    """Let the interpreter read calls of `op` by `meaning(machine, call)`: `machine.eval(argument)` gives an argument's values."""
    CallMachine.calls[op] = meaning
