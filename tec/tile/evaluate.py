"""A tile program run in NumPy, one program after the other: what the lowering is judged by, and TEC_INTERPRET=1.

Each op is one operation on whole arrays. Numbers mean what the loop IR's mean (`ir.interp_ops`): bfloat16 and the 8-bit floats are held as float32 and
rounded after each op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import ArgumentError, KernelError
from ..ir import expr as E
from ..ir import interp_ops as ops
from ..ir.dtype import FLOAT_MAX, dtype_info
from ..ir.visit import deep_recursion
from ..records import dataclass
from .grammar import DTYPES, Block, Op, Program, TileType, Value
from .values import tensor

Array = np.ndarray[Any, Any]
_MOST_TURNS = 1 << 24  # of a while loop: one program runs at a time, so a lock that another holds is never given back
_COMPARE = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
_NODES = {
    "add": E.Add,
    "sub": E.Sub,
    "mul": E.Mul,
    "div": E.Div,
    "idiv": E.Div,
    "imod": E.Mod,
    "min": E.Min,
    "max": E.Max,
}
_BITS = {"and": "bitand", "or": "bitor", "xor": "bitxor", "shl": "shl", "shr": "shr"}


@dataclass(slots=True)
class Pointers:
    """Pointers: an array's memory as one row, and elements from its start."""

    memory: Array
    dtype: str
    at: Array

    def addresses(self, dtype: str) -> Array:
        """As numbers."""
        first = self.memory.__array_interface__["data"][0]
        return np.asarray(first + np.asarray(self.at, np.int64) * self.memory.itemsize).astype(dtype)


class Machine:
    """One program."""

    def __init__(self, program: Program, pid: Sequence[int], grid: Sequence[int], args: Sequence[Any]):
        self.program, self.pid, self.grid, self.args = program, pid, grid, args
        self.values: dict[int, Any] = {}

    def get(self, v: Value) -> Any:
        return self.values[id(v)]

    def block(self, b: Block) -> None:
        for op in b.ops:
            method = getattr(self, "do_" + op.name)
            made = method(op)
            if len(op.results) == 1:
                self.values[id(op.results[0])] = made
            elif op.results:
                for r, m in zip(op.results, made):
                    self.values[id(r)] = m

    # ---- sources

    def do_const(self, op: Op) -> Array:
        return ops.fix(np.asarray(op.attrs["value"]), op.results[0].ty.dtype.tec)

    def do_arg(self, op: Op) -> Any:
        return self.args[op.attrs["index"]]

    def do_program_id(self, op: Op) -> Array:
        return np.asarray(self.pid[op.attrs["axis"]], np.int32)

    def do_num_programs(self, op: Op) -> Array:
        return np.asarray(self.grid[op.attrs["axis"]], np.int32)

    def do_arange(self, op: Op) -> Array:
        return np.arange(op.attrs["start"], op.attrs["start"] + op.results[0].ty.shape[0], dtype=np.int32)

    # ---- views

    def _view(self, op: Op, f: Callable[[Array], Array]) -> Any:
        x = self.get(op.operands[0])
        return Pointers(x.memory, x.dtype, f(x.at)) if isinstance(x, Pointers) else f(x)

    def do_splat(self, op: Op) -> Any:
        return self._view(op, lambda x: np.broadcast_to(x, op.results[0].ty.shape))

    do_broadcast = do_splat

    def do_expand_dims(self, op: Op) -> Any:
        return self._view(op, lambda x: np.expand_dims(x, op.attrs["axis"]))

    def do_reshape(self, op: Op) -> Any:
        return self._view(op, lambda x: np.reshape(x, op.results[0].ty.shape))

    def do_permute(self, op: Op) -> Any:
        return self._view(op, lambda x: np.transpose(x, op.attrs["order"]))

    def do_join(self, op: Op) -> Any:
        return np.stack([self.get(x) for x in op.operands], -1)

    def do_split(self, op: Op) -> Any:
        return np.asarray(self.get(op.operands[0])[..., op.attrs["half"]])

    def do_hold(self, op: Op) -> Any:
        return self.get(op.operands[0])

    # ---- arithmetic

    def do_unary(self, op: Op) -> Array:
        x, t, fn = self.get(op.operands[0]), op.operands[0].ty.dtype.tec, op.attrs["fn"]
        if fn == "neg":
            return ops.fix(-x if t != "bool" else x, t)
        if fn == "not":
            return np.asarray(np.invert(x))
        return ops.apply(fn, [x], op.results[0].ty.dtype.tec, t)

    def do_binary(self, op: Op) -> Array:
        a, b = (self.get(x) for x in op.operands)
        t, fn = op.operands[0].ty.dtype.tec, op.attrs["fn"]
        return binary(fn, a, b, t)

    def do_fma(self, op: Op) -> Array:
        t = op.results[0].ty.dtype.tec
        return ops.apply("fma", [self.get(x) for x in op.operands], t, t)

    def do_assembly(self, op: Op) -> Array:
        raise KernelError(
            "tl.inline_asm_elementwise is PTX, which NumPy does not execute", where=op.loc,
            hint="run the kernel on an NVIDIA GPU, or say the same by words of tl", locate=False,
        )  # fmt: skip

    def do_select(self, op: Op) -> Any:
        c, a, b = (self.get(x) for x in op.operands)
        if isinstance(a, Pointers):
            if a.memory is b.memory:
                return Pointers(a.memory, a.dtype, np.where(c, a.at, b.at))
            if np.any(c) and not np.all(c):
                raise KernelError(
                    "pointers of one tile into several arrays", where=op.loc, locate=False,
                    hint="TEC_INTERPRET=1 takes elements from one array at a time; run it on a device",
                )  # fmt: skip
            chosen = a if np.all(c) else b
            return Pointers(chosen.memory, chosen.dtype, np.broadcast_to(chosen.at, op.results[0].ty.shape))
        return np.where(c, a, b)

    def do_cast(self, op: Op) -> Any:
        x, have, to = self.get(op.operands[0]), op.operands[0].ty.dtype, op.results[0].ty.dtype
        if isinstance(x, Pointers):
            return x if to.is_ptr() else x.addresses(to.tec)
        if op.attrs.get("bitcast") and have.tec != to.tec:
            shape = np.shape(x)
            return ops.reinterpret(np.atleast_1d(x).ravel(), have.tec, to.tec).reshape(shape)
        x = np.asarray(x)
        if to.is_ptr():
            return self._pointed(op, x)
        if dtype_info(to.tec).is_float8 and have.is_floating() and have.tec != to.tec:
            if have.tec != "float64":
                x, have = ops.cast(x, have.tec, "float32"), DTYPES["float32"]
            x = np.clip(x, -FLOAT_MAX[to.tec], FLOAT_MAX[to.tec])
        return ops.cast(x, have.tec, to.tec)

    def _pointed(self, op: Op, x: Array) -> Pointers:
        """Addresses as pointers into the argument that they lie in."""
        for a in self.args:
            if isinstance(a, Pointers) and x.size:
                first = int(a.addresses("int64"))
                at = (x.astype(np.int64) - first) // a.memory.itemsize
                if ((at >= 0) & (at < max(a.memory.size, 1))).all():
                    return Pointers(a.memory, a.dtype, at)
        raise KernelError(
            "a pointer made of a number that is no address in an argument's array", where=op.loc, locate=False,
            hint="TEC_INTERPRET=1 knows the arrays that the kernel is given alone; run it on a device",
        )  # fmt: skip

    def do_addptr(self, op: Op) -> Pointers:
        p, by = (self.get(x) for x in op.operands)
        return Pointers(p.memory, p.dtype, p.at.astype(np.int64) + by.astype(np.int64))

    # ---- memory

    def _inside(self, op: Op, p: Pointers, mask: Array) -> Array:
        at = np.broadcast_to(p.at, mask.shape)[mask]
        wrong = at[(at < 0) | (at >= p.memory.size)]
        if wrong.size:
            raise KernelError(
                f"{op.name} outside of an array of {p.memory.size} elements: element {int(wrong.flat[0])}, in program {tuple(self.pid)}",
                where=op.loc, hint="mask it: tl.load(p, mask=at < n)", locate=False,
            )  # fmt: skip
        return at

    def do_load(self, op: Op) -> Array:
        p = self.get(op.operands[0])
        t = op.results[0].ty
        mask = np.broadcast_to(self.get(op.operands[1]) if len(op.operands) > 1 else np.True_, t.shape)
        other = self.get(op.operands[2]) if len(op.operands) > 2 else 0
        out = np.array(np.broadcast_to(other, t.shape), ops.held(t.dtype.tec))
        at = self._inside(op, p, mask)
        got = ops.to_held(p.memory[at], p.dtype)
        out[mask] = got != 0 if t.dtype.tec == "bool" and got.dtype != bool else ops.fix(got, t.dtype.tec)
        return out

    def do_store(self, op: Op) -> None:
        p, v = self.get(op.operands[0]), self.get(op.operands[1])
        shape = op.operands[0].ty.shape
        mask = np.broadcast_to(self.get(op.operands[2]) if len(op.operands) > 2 else np.True_, shape)
        at = self._inside(op, p, mask)
        p.memory[at] = written(np.broadcast_to(v, shape)[mask], p)

    def do_atomic(self, op: Op) -> Array:
        p, v = self.get(op.operands[0]), self.get(op.operands[1])
        t, fn = op.results[0].ty, op.attrs["fn"]
        mask = np.broadcast_to(self.get(op.operands[2]) if len(op.operands) > 2 else np.True_, t.shape)
        old = np.zeros(t.shape, ops.held(t.dtype.tec))
        values = np.broadcast_to(v, t.shape)
        self._inside(op, p, mask)
        for i in np.ndindex(*t.shape):
            if mask[i]:
                at = np.broadcast_to(p.at, t.shape)[i]
                before = np.array(ops.to_held(p.memory[at : at + 1], p.dtype))
                new = values[i] if fn == "xchg" else binary(fn, before, np.asarray([values[i]]), t.dtype.tec)[0]
                p.memory[at : at + 1] = written(np.asarray([new]), p)
                old[i] = before[0]
        return old

    def do_atomic_cas(self, op: Op) -> Array:
        p, c, v = (self.get(x) for x in op.operands)
        t = op.results[0].ty
        old = np.zeros(t.shape, ops.held(t.dtype.tec))
        self._inside(op, p, np.broadcast_to(np.True_, t.shape))
        for i in np.ndindex(*t.shape):
            at = np.broadcast_to(p.at, t.shape)[i]
            before = np.array(ops.to_held(p.memory[at : at + 1], p.dtype))
            if before[0] == np.broadcast_to(c, t.shape)[i]:
                p.memory[at : at + 1] = written(np.asarray([np.broadcast_to(v, t.shape)[i]]), p)
            old[i] = before[0]
        return old

    # ---- over an axis

    def combine(self, block: Block, left: Sequence[Array], right: Sequence[Array]) -> list[Array]:
        for a, x in zip(block.args, (*left, *right)):
            self.values[id(a)] = x
        self.block(block)
        return [np.asarray(self.get(y)) for y in block.yields]

    def do_reduce(self, op: Op) -> Any:
        k = op.attrs["axis"]
        parts = [np.moveaxis(self.get(x), k, 0) for x in op.operands]
        while len(parts[0]) > 1:  # pairs of halves: as exact as the devices' trees
            half = len(parts[0]) // 2
            parts = self.combine(op.blocks[0], [p[:half] for p in parts], [p[half:] for p in parts])
        made = [p[0] for p in parts]
        return made if len(made) > 1 else made[0]

    def do_scan(self, op: Op) -> Any:
        k, reverse = op.attrs["axis"], op.attrs["reverse"]
        parts = [np.array(np.moveaxis(self.get(x), k, 0)) for x in op.operands]
        if reverse:
            parts = [p[::-1].copy() for p in parts]
        for i in range(1, len(parts[0])):
            for p, made in zip(parts, self.combine(op.blocks[0], [p[i - 1] for p in parts], [p[i] for p in parts])):
                p[i] = made
        if reverse:
            parts = [p[::-1] for p in parts]
        out = [np.moveaxis(p, 0, k) for p in parts]
        return out if len(out) > 1 else out[0]

    def do_sort(self, op: Op) -> Array:
        x = np.sort(self.get(op.operands[0]), -1)
        return x[..., ::-1] if op.attrs["descending"] else x

    def do_gather(self, op: Op) -> Array:
        src, index = (self.get(x) for x in op.operands)
        return np.take_along_axis(src, index.astype(np.int64), op.attrs["axis"])

    def do_histogram(self, op: Op) -> Array:
        x, n = self.get(op.operands[0]), op.results[0].ty.shape[0]
        keep = (x >= 0) & (x < n)
        if len(op.operands) > 1:
            keep &= self.get(op.operands[1])
        return np.bincount(x[keep].astype(np.int64), minlength=n).astype(np.int32)

    def do_dot(self, op: Op) -> Array:
        a, b, acc = (self.get(x) for x in op.operands)
        wide: Any = np.int64 if op.results[0].ty.dtype.is_int() else np.float64
        return ops.fix(np.matmul(a.astype(wide), b.astype(wide)) + acc.astype(wide), op.results[0].ty.dtype.tec)

    # ---- control

    def do_for(self, op: Op) -> Any:
        low, high, step = (int(self.get(x)) for x in op.operands[:3])
        carried = [self.get(x) for x in op.operands[3:]]
        block = op.blocks[0]
        t = ops.held(block.args[0].ty.dtype.tec)
        for i in range(low, high, step):
            self.values[id(block.args[0])] = np.asarray(i, t)
            for a, x in zip(block.args[1:], carried):
                self.values[id(a)] = x
            self.block(block)
            carried = [self.get(y) for y in block.yields]
        return carried if len(carried) != 1 else carried[0]

    def do_while(self, op: Op) -> Any:
        carried = [self.get(x) for x in op.operands]
        test, body = op.blocks
        for _ in range(_MOST_TURNS):
            for a, x in zip(test.args, carried):
                self.values[id(a)] = x
            self.block(test)
            if not self.get(test.yields[0]):
                return carried if len(carried) != 1 else carried[0]
            for a, x in zip(body.args, carried):
                self.values[id(a)] = x
            self.block(body)
            carried = [self.get(y) for y in body.yields]
        raise KernelError(f"a loop that does not end in program {tuple(self.pid)}", where=op.loc, locate=False)

    def do_if(self, op: Op) -> Any:
        block = op.blocks[0 if self.get(op.operands[0]) else 1]
        self.block(block)
        made = [self.get(y) for y in block.yields]
        return made if len(made) != 1 else made[0]

    # ---- what is said

    def do_barrier(self, op: Op) -> None: ...

    def do_promise(self, op: Op) -> None: ...

    def do_print(self, op: Op) -> None:
        prefix = op.attrs["prefix"]
        if not op.operands:
            print(f"program {tuple(self.pid)} {prefix}")
        for x in op.operands:
            print(f"program {tuple(self.pid)} {prefix} {self.get(x)}")

    def do_assert(self, op: Op) -> None:
        if not np.all(self.get(op.operands[0])):
            raise KernelError(
                f"{op.attrs['message'] or 'an assertion does not hold'}\n  in program {tuple(self.pid)}",
                where=op.loc,
                locate=False,
            )


def binary(fn: str, a: Array, b: Array, t: str) -> Array:
    """A binary op on arrays of a dtype."""
    if fn in _COMPARE:
        return np.asarray(_COMPARE[fn](a, b))
    if t == "bool":
        return np.asarray(
            {"and": np.logical_and, "or": np.logical_or, "min": np.logical_and, "max": np.logical_or}.get(
                fn, np.not_equal
            )(a, b)
        )
    if fn in ("min", "max"):
        return np.asarray((np.fmin if fn == "min" else np.fmax)(a, b))
    if fn == "mulhi":
        u = np.dtype(f"uint{np.dtype(ops.held(t)).itemsize * 8}")
        return np.asarray(ops.apply("mulhi", [a.astype(u), b.astype(u)], u.name, u.name)).astype(a.dtype)
    with np.errstate(all="ignore"):
        if fn in ("idiv", "imod"):
            q = ops.trunc_div(a, b)
            return ops.fix(q if fn == "idiv" else a - q * b, t)
        if fn in ("add", "sub", "mul"):
            return ops.fix({"add": np.add, "sub": np.subtract, "mul": np.multiply}[fn](a, b), t)
        if fn == "div":
            return ops.fix(np.divide(a, b), t)
        name = _BITS.get(fn, fn)
        return ops.apply(name, [np.asarray(a), np.asarray(b)], t, t)


def written(values: Array, p: Pointers) -> Array:
    """Values as an array's memory holds them."""
    return (
        ops.from_held(values, p.memory, p.dtype)
        if p.dtype != "int8" or values.dtype != bool
        else values.astype(np.int8)
    )


@deep_recursion()
def launch(program: Program, grid: Sequence[int], args: Sequence[Any]) -> None:
    """Run all programs of a grid. `args`: for each parameter a tec.nd array of one dimension on the CPU, or a number. Raises KernelError."""
    given: list[Any] = []
    for (name, ty), a in zip(program.params, args):
        given.append(_argument(name, ty, a))
    for z in range(grid[2]):
        for y in range(grid[1]):
            for x in range(grid[0]):
                Machine(program, (x, y, z), grid, given).block(program.body)


def _argument(name: str, ty: TileType, a: Any) -> Any:
    if ty.dtype.is_ptr():
        if a.device.driver is not None:
            raise ArgumentError(
                f"{name} is on {a.device}, and TEC_INTERPRET=1 runs on the host", hint="pass NumPy arrays"
            )
        return Pointers(a._cpu_view(), a.dtype, np.asarray(0, np.int64))
    return np.asarray(a, ops.held(ty.dtype.tec))


__all__ = ["launch", "tensor"]
