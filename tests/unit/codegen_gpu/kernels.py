"""Small kernels that between them use everything a GPU emitter can be asked for; run as a program, compiles them all.

`python kernels.py "<target>"` prints one JSON line a kernel: its name, and its code's facts or the CodegenError. It runs
in a process of its own, since a mistake in what is handed to LLVM ends the process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

from tec.ir import (
    Alloc,
    Broadcast,
    Buffer,
    BufferLoad,
    BufferStore,
    Call,
    Cast,
    Evaluate,
    Expr,
    Func,
    Ramp,
    Stmt,
    Var,
    matrix,
    seq,
)
from tec.ir import build as B
from tec.ir.dtype import dtype_info, with_lanes
from tec.target import Target

N = 256
FLOATS = ("float16", "bfloat16", "float32", "float64")
INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def kernel(
    name: str, params: list[Any], body: Callable[[Var], Stmt], block: int = 64, grid: Any = 4, **attrs: Any
) -> Func:
    """A kernel of one-dimensional work-groups; `body` gets the global index."""
    bx, tx = Var("bx"), Var("tx")
    threads = {"blockIdx.x": (bx, B.convert(grid)), "threadIdx.x": (tx, B.const(block))}
    stmt = body(B.add(B.mul(bx, block), tx))  # type: ignore[arg-type]
    return Func(name, tuple(params), stmt, {"kernel": True, "threads": threads, "max_threads": block, **attrs})


def buf(name: str, dtype: str, n: Any = N, **kwargs: Any) -> Buffer:
    return Buffer(name, dtype, (B.convert(n),), **kwargs)


def elementwise(name: str, dtype: str, f: Callable[[Expr], Expr], out: str | None = None) -> Func:
    a, c = buf("a", dtype), buf("c", out or dtype)
    return kernel(name, [a, c], lambda i: BufferStore(c, f(BufferLoad(a, (i,))), (i,)))


def unary_calls(ops: str, dtype: str) -> Func:
    """One kernel with the sum of several functions of one value."""

    def f(x: Expr) -> Expr:
        total = x
        for op in ops.split():
            total = total + Call(op, (x,), x.dtype)
        return total

    return elementwise(f"math_{dtype}", dtype, f)


def arithmetic(dtype: str) -> Func:
    def f(x: Expr) -> Expr:
        y = x * x + B.const(3, dtype) - x
        y = B.minimum(y, x) + B.maximum(y, B.const(5, dtype))
        y = B.truncdiv(y, x) if not dtype_info(dtype).is_float else B.truediv(y, x)
        return B.select(x < y, y, x)

    return elementwise(f"arith_{dtype}", dtype, f)


def integer_ops(dtype: str) -> Func:
    def f(x: Expr) -> Expr:
        y = B.floordiv(x, B.const(7, dtype)) + B.floormod(x, B.const(5, dtype)) + B.truncmod(x, B.const(3, dtype))
        y = y + Call("mulhi", (x, y), dtype) + Call("popcount", (x,), dtype) + Call("clz", (x,), dtype)
        y = B.bitwise_xor(B.bitwise_and(y, x), B.bitwise_or(y, B.const(1, dtype)))
        return B.right_shift(B.left_shift(y, B.const(1, dtype)), B.const(2, dtype)) + Call("bitreverse", (x,), dtype)

    return elementwise(f"int_{dtype}", dtype, f)


def casts() -> Iterator[Func]:
    for src in (*FLOATS, "int8", "int32", "int64", "uint8", "uint32", "bool"):
        for dst in (*FLOATS, "int8", "int32", "int64", "uint16", "bool"):
            if src != dst:
                yield elementwise(f"cast_{src}_{dst}", src, lambda x, dst=dst: Cast(dst, x), dst)  # type: ignore[misc]


def vector_access(dtype: str, lanes: int) -> Func:
    a, c = buf("a", dtype, N * lanes), buf("c", dtype, N * lanes)

    def body(i: Expr) -> Stmt:
        at = (Ramp(B.mul(i, lanes), B.const(1), lanes),)
        x = BufferLoad(a, at)
        return BufferStore(c, x + x if dtype != "bool" else x, at)

    return kernel(f"vector_{dtype}x{lanes}", [a, c], body)


def shuffles(dtype: str, wave: int) -> Func:
    def f(x: Expr) -> Expr:
        w = B.const(wave)
        y = x
        masks = [m for m in (1, 2, 3, 4, 7, 8, 15, 16, 21, 32) if m < wave]
        for m in masks:
            y = (
                B.maximum(y, Call("shuffle_xor", (y, B.const(m), w), dtype))
                if dtype != "bool"
                else Call("shuffle_xor", (y, B.const(m), w), dtype)
            )
        for op in ("shuffle_up", "shuffle_down", "shuffle_idx"):
            y = Call(op, (y, B.const(3), B.const(wave // 2)), dtype)
        return y

    return elementwise(f"shuffle_{dtype}", dtype, f)


def wave_ops() -> Func:
    a, c = buf("a", "int32"), buf("c", "uint64")

    def body(i: Expr) -> Stmt:
        x = BufferLoad(a, (i,))
        mask = Call("ballot", (x > 3,), "uint64")
        first = Call("readfirstlane", (x,), "int32")
        lane = Call("wave_lane", (), "int32")
        return BufferStore(c, mask + Cast("uint64", first) + Cast("uint64", lane), (i,))

    return kernel("wave_ops", [a, c], body)


def barriers() -> Func:
    a, c = buf("a", "float32"), buf("c", "float32")
    shared = buf("s", "float32", 64, scope="shared")

    def body(i: Expr) -> Stmt:
        t = B.floormod(i, B.const(64))
        stmts = [BufferStore(shared, BufferLoad(a, (i,)), (t,))]
        for scope in ("shared", "global", "wave"):
            stmts.append(Evaluate(Call("barrier", (), "int32", {"scope": scope})))
            stmts.append(BufferStore(c, BufferLoad(shared, (B.sub(63, t),)), (i,)))
        return Alloc(shared, seq(*stmts))

    return kernel("barriers", [a, c], body)


def dynamic_shared() -> Func:
    a, n = buf("a", "float32"), Var("n")
    shared = buf("s", "float32", n, scope="shared.dyn")

    def body(i: Expr) -> Stmt:
        put = BufferStore(shared, BufferLoad(a, (i,)), (B.floormod(i, B.const(64)),))
        sync = Evaluate(Call("barrier", (), "int32"))
        return Alloc(shared, seq(put, sync, BufferStore(a, BufferLoad(shared, (B.const(0),)), (i,))))

    return kernel("dynamic_shared", [a, n], body)


def atomics(dtype: str, scope: str) -> Func:
    a, c = buf("a", dtype), buf("c", dtype)
    shared = buf("s", dtype, 64, scope="shared")
    to = c if scope == "global" else shared
    is_float = dtype_info(dtype).is_float
    ops = ["atomic_add", "atomic_exch"] + ([] if dtype == "float16" else ["atomic_min", "atomic_max"])
    ops += [] if is_float else ["atomic_and", "atomic_or", "atomic_xor"]

    def body(i: Expr) -> Stmt:
        x, at = BufferLoad(a, (i,)), (B.const(0),)
        calls: list[Any] = [Evaluate(Call(op, (BufferLoad(to, at), x), dtype)) for op in ops]
        calls.append(Evaluate(Call("atomic_cas", (BufferLoad(to, at), x, x), dtype)))
        return (
            seq(*calls)
            if scope == "global"
            else Alloc(shared, seq(*calls, BufferStore(c, BufferLoad(shared, at), (i,))))
        )

    return kernel(f"atomic_{dtype}_{scope}", [a, c], body)


def dots(op: str, dtype: str, acc: str) -> Func:
    lanes = int(op[-1])
    a, b, c = buf("a", dtype, N * lanes), buf("b", dtype, N * lanes), buf("c", acc)

    def body(i: Expr) -> Stmt:
        at = (Ramp(B.mul(i, lanes), B.const(1), lanes),)
        return BufferStore(c, Call(op, (BufferLoad(a, at), BufferLoad(b, at), BufferLoad(c, (i,))), acc), (i,))

    return kernel(f"{op}_{dtype}", [a, b, c], body)


def product(instr: matrix.MatrixInstr) -> Func:
    """One wavefront's product from and to memory in lane order."""
    wave = instr.wave
    bufs = [buf(r, dtype_info(instr.dtype(r)).element, wave * instr.elems(r)) for r in ("a", "b", "acc")]

    def body(i: Expr) -> Stmt:
        def at(role: str) -> tuple[Expr, ...]:
            n = instr.elems(role)
            return (B.convert(i) if n == 1 else Ramp(B.mul(i, n), B.const(1), n),)

        loads = [BufferLoad(b, at(r)) for b, r in zip(bufs, ("a", "b", "acc"))]
        return BufferStore(bufs[2], instr.call(*loads), at("acc"))

    return kernel("mma_" + "".join(x if x.isalnum() else "_" for x in instr.name), bufs, body, wave, 1)


def async_copies() -> Func:
    a, c = buf("a", "float32", 4 * N), buf("c", "float32", 4 * N)
    shared = buf("s", "float32", 256, scope="shared")

    def body(i: Expr) -> Stmt:
        t = B.mul(B.floormod(i, B.const(64)), 4)
        copy = Evaluate(
            Call("async_copy", (BufferLoad(shared, (t,)), BufferLoad(a, (B.mul(i, 4),)), B.const(4)), "int32")
        )
        done = [Evaluate(Call("async_commit", (), "int32")), Evaluate(Call("async_wait", (), "int32", {"n": 0}))]
        sync = Evaluate(Call("barrier", (), "int32"))
        at = Ramp(B.const(0), B.const(1), 4)
        return Alloc(
            shared,
            seq(copy, *done, sync, BufferStore(c, BufferLoad(shared, (at,)), (Ramp(B.mul(i, 4), B.const(1), 4),))),
        )

    return kernel("async_copies", [a, c], body)


def guarded() -> Func:
    n = Var("n")
    a, c = buf("a", "float32", n), buf("c", "float32", n)
    from tec.ir import IfThenElse

    return kernel(
        "guarded", [a, c, n, Var("flag", "bool"), Var("scale", "float16")],
        lambda i: IfThenElse(Call("likely", (i < n,), "bool"), BufferStore(c, BufferLoad(a, (i,)) * 2.0, (i,))),
        grid=B.floordiv(n + 63, 64),
    )  # fmt: skip


def masked(dtype: str, lanes: int) -> Func:
    """Vector accesses under a mask that differs from lane to lane: contiguous, reversed, strided, gathered."""
    a, c, n = buf("a", dtype, N * lanes), buf("c", dtype, N * lanes), Var("n")

    def body(i: Expr) -> Stmt:
        start = B.mul(i, lanes)
        at = Ramp(start, B.const(1), lanes)
        mask = at < Broadcast(n, lanes)
        back = Ramp(start + (lanes - 1), B.const(-1), lanes)
        spread = Ramp(start, B.const(3), lanes)
        gathered = B.floormod(at * at, Broadcast(B.const(N), lanes))
        total = BufferLoad(a, (at,), mask) + BufferLoad(a, (back,), mask) + BufferLoad(a, (spread,), mask)
        total = total + BufferLoad(a, (gathered,)) + BufferLoad(a, (spread,))
        return seq(
            BufferStore(c, total, (at,), mask), BufferStore(c, total, (spread,), mask), BufferStore(c, total, (back,))
        )

    return kernel(f"masked_{dtype}x{lanes}", [a, c, n], body)


def control() -> Func:
    """Loops of unknown length, while, let, a guarded load, wide vectors."""
    from tec.ir import For, Let, LetStmt, While

    a, c, n = buf("a", "float32", 16 * N), buf("c", "float32", 16 * N), Var("n")
    acc = buf("acc", "float32", 4, scope="local")
    j, v, w = Var("j"), Var("v"), Var("w", "float32")

    def body(i: Expr) -> Stmt:
        zero = B.const(0)
        wide = Ramp(B.mul(i, 16), B.const(1), 16)
        step = BufferStore(acc, BufferLoad(acc, (zero,)) + BufferLoad(a, (v,)), (zero,))
        loop = For(j, zero, n, LetStmt(v, B.floormod(i + j, B.const(N)), step))
        guarded = Call("if_then_else", (i < n, BufferLoad(a, (i,)), B.const(0.0)), "float32")
        let = Let(w, BufferLoad(acc, (zero,)), w * w + guarded)
        halve = While(BufferLoad(acc, (zero,)) > 1.0, BufferStore(acc, BufferLoad(acc, (zero,)) * 0.5, (zero,)))
        picked = BufferStore(acc, BufferLoad(acc, (B.floormod(i, B.const(4)),)), (B.const(1),))
        rest = [BufferStore(c, let, (i,)), BufferStore(c, BufferLoad(a, (wide,)), (wide,))]
        return Alloc(acc, seq(BufferStore(acc, B.const(0.0), (zero,)), loop, halve, picked, *rest))

    return kernel("control", [a, c, n], body)


EXACT = "sqrt floor ceil trunc round nearbyint rsqrt"


def all_kernels(target: Target) -> Iterator[Func]:
    """Every kernel that `target` should compile."""
    yield guarded()
    yield barriers()
    yield dynamic_shared()
    yield wave_ops()
    yield async_copies()
    yield control()
    for d in ("float32", "float16", "bfloat16", "int8", "float64"):
        yield masked(d, 4)
    for d in FLOATS:
        yield unary_calls(EXACT, d)
        yield arithmetic(d)
        for n in (2, 4, 8):
            if n * dtype_info(d).bytes <= 16:
                yield vector_access(d, n)
    for d in INTS:
        yield arithmetic(d)
        yield integer_ops(d)
        yield vector_access(d, 4)
    yield vector_access("bool", 4)
    yield from casts()
    for d in (*FLOATS, "int8", "int32", "int64", "bool"):
        yield shuffles(d, target.wavefront_size)
    for d in ("int32", "int64", "uint32", "float32", "float64", "float16"):
        for scope in ("global", "shared"):
            yield atomics(d, scope)
    for d in ("int8", "uint8"):
        yield dots("dot4", d, "int32")
    for d in ("float16", "bfloat16"):
        yield dots("dot2", d, "float32")
    for instr in matrix.instructions(target):
        yield product(instr)
        if instr.unit == "mfma" and instr.blocks == 1:
            wide = matrix.find(target, instr.in_dtype, instr.m, instr.n, 2 * instr.k)
            if wide is not None and wide.k != instr.k:
                yield product(wide)


def main() -> None:
    from tec.codegen.device import build_kernels
    from tec.errors import CodegenError

    target, read = Target(sys.argv[1]), sys.argv[2:]
    for f in all_kernels(target):
        line: dict[str, Any] = {"name": f.name}
        print(json.dumps({"start": f.name}), flush=True)
        try:
            code = build_kernels([f], target, "own", 3)
            line["kernels"] = code.kernels
            if target.kind == "cuda" or f.name in read:  # of AMD's a compilation of its own
                line["asm"] = code.asm
        except CodegenError as error:
            line["error"] = str(error)
        print(json.dumps(line), flush=True)


__all__ = ["all_kernels", "kernel", "with_lanes"]

if __name__ == "__main__":
    main()
