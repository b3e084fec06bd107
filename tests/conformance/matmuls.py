"""Matrix products in several schedules, and int8 dot products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from tec import te, topi

from .elementwise import integers, uniform
from .harness import Program, bind_all, case

F32 = np.float32


def matmul(m: int, n: int, k: int, dtype: str = "float32", acc: str | None = None) -> tuple[Any, Any, Any]:
    """C = A @ B with placeholders (m, k), (k, n)."""
    a, b = te.placeholder((m, k), dtype, name="A"), te.placeholder((k, n), dtype, name="B")
    r = te.reduce_axis((0, k), name="r")
    acc = acc or dtype
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r].astype(acc) * b[r, j].astype(acc), axis=r), name="C")
    return a, b, c


def _ref(a: Any, b: Any) -> Any:
    return (a.astype("d") @ b.astype("d")).astype(F32)


def _register(
    name: str, m: int, n: int, k: int, schedule: Callable[[Any, Any, Any, Any], None], kinds: tuple[str, ...]
) -> None:
    @case(name, uniform((m, k), (k, n)), _ref, rtol=1e-4, atol=1e-4, kinds=kinds)
    def make() -> Program:
        a, b, c = matmul(m, n, k)

        def apply(s: Any, target: Any) -> None:
            schedule(s, a, b, c)

        return Program([a, b, c], [c], apply, apply)


def _naive(s: Any, a: Any, b: Any, c: Any) -> None:
    bind_all(s, c, 32)


def _cpu_tiled(s: Any, a: Any, b: Any, c: Any) -> None:
    i, j = c.op.axis
    io, jo, ii, ji = s[c].tile(i, j, 8, 16)
    ko, ki = s[c].split(c.op.reduce_axis[0], factor=4)
    s[c].reorder(io, jo, ko, ii, ki, ji)
    s[c].vectorize(ji)
    s[c].unroll(ki)
    s[c].parallel(io)


def _cpu_packed(s: Any, a: Any, b: Any, c: Any) -> None:
    cc = s.cache_write(c, "local")
    bp = s.cache_read(b, "global", [cc])
    i, j = c.op.axis
    io, jo, ii, ji = s[c].tile(i, j, 4, 16)
    s[cc].compute_at(s[c], jo)
    ci, cj = cc.op.axis
    k = cc.op.reduce_axis[0]
    s[cc].reorder(k, ci, cj)
    s[cc].vectorize(cj)
    s[cc].unroll(ci)
    s[bp].compute_at(s[c], jo)
    s[bp].vectorize(bp.op.axis[1])
    s[c].vectorize(ji)


def gpu_tiled(tile: int, threads: int, step: int) -> Callable[[Any, Any, Any, Any], None]:
    """A tile of C a work-group, staged through shared memory, a register block a thread."""

    def apply(s: Any, a: Any, b: Any, c: Any) -> None:
        sa = s.cache_read(a, "shared", [c])
        sb = s.cache_read(b, "shared", [c])
        cl = s.cache_write(c, "local")
        la, lb = s.cache_read(sa, "local", [cl]), s.cache_read(sb, "local", [cl])
        bx, by = te.thread_axis("blockIdx.x"), te.thread_axis("blockIdx.y")
        tx, ty = te.thread_axis((0, threads), "threadIdx.x"), te.thread_axis((0, threads), "threadIdx.y")
        i, j = s[c].op.axis
        io, ii = s[c].split(i, factor=tile)
        jo, ji = s[c].split(j, factor=tile)
        ti, iv = s[c].split(ii, nparts=threads)
        tj, jv = s[c].split(ji, nparts=threads)
        s[c].reorder(io, jo, ti, tj, iv, jv)
        for axis, thread in ((io, by), (jo, bx), (ti, ty), (tj, tx)):
            s[c].bind(axis, thread)
        s[cl].compute_at(s[c], tj)
        k = s[cl].op.reduce_axis[0]
        ko, ki = s[cl].split(k, factor=step)
        ci, cj = s[cl].op.axis
        s[cl].reorder(ko, ki, ci, cj)
        s[sa].compute_at(s[cl], ko)
        s[sb].compute_at(s[cl], ko)
        s[la].compute_at(s[cl], ki)
        s[lb].compute_at(s[cl], ki)
        s[cl].unroll(ci)
        s[cl].unroll(cj)
        for t in (sa, sb):
            fused = s[t].fuse(*s[t].op.axis)
            _, f = s[t].split(fused, factor=threads * threads)
            fy, fx = s[t].split(f, factor=threads)
            s[t].bind(fy, ty)
            s[t].bind(fx, tx)

    return apply


_register("matmul_naive", 20, 36, 28, _naive, ("gpu",))
_register("matmul_cpu_tiled", 20, 36, 28, _cpu_tiled, ("cpu",))
_register("matmul_cpu_packed", 16, 32, 24, _cpu_packed, ("cpu",))
_register("matmul_shared_8x8", 32, 32, 32, gpu_tiled(16, 8, 8), ("gpu",))
_register("matmul_shared_ragged", 37, 29, 21, gpu_tiled(16, 8, 8), ("gpu",))
_register("matmul_shared_16x16", 64, 64, 48, gpu_tiled(32, 16, 16), ("gpu",))


@case("matmul_double_buffer", uniform((32, 64), (64, 32)), _ref, rtol=1e-4, atol=1e-4, kinds=("gpu",))
def _double_buffer() -> Program:
    a, b, c = matmul(32, 32, 64)

    def gpu(s: Any, target: Any) -> None:
        gpu_tiled(16, 8, 8)(s, a, b, c)
        for stage in s.stages:
            if stage.op.name.startswith(("A_shared", "B_shared")) and "local" not in stage.op.name:
                stage.double_buffer()

    return Program([a, b, c], [c], None, gpu)


@case("matmul_pipelined", uniform((32, 64), (64, 32)), _ref, rtol=1e-4, atol=1e-4)
def _pipelined() -> Program:
    """Stage and place by hand: both tiles are filled two turns ahead, the second of them behind the sums."""
    a, b, c = matmul(32, 32, 64)

    def gpu(s: Any, target: Any) -> None:
        gpu_tiled(16, 8, 8)(s, a, b, c)
        sums = next(stage for stage in s.stages if stage.op.name == "C_local")
        sums.software_pipeline(sums.leaf_iter_vars[0], (0, 0, 2), (0, 2, 1))

    def cpu(s: Any, target: Any) -> None:
        rows = s.cache_read(b, "global", [c])
        s[c].reorder(c.op.reduce_axis[0], *c.op.axis)
        s[rows].compute_at(s[c], c.op.reduce_axis[0])
        s[c].software_pipeline(c.op.reduce_axis[0], (0, 1))

    return Program([a, b, c], [c], cpu, gpu)


@case("matmul_f16_acc_f32", uniform((24, 40), (40, 16), dtype=np.float16), _ref, rtol=1e-3, atol=1e-3)
def _f16() -> Program:
    a, b, c = matmul(24, 16, 40, "float16", "float32")
    return Program([a, b, c], [c], None, lambda s, t: bind_all(s, c, 32) and None)


@case("matmul_bf16_acc_f32", uniform((24, 40), (40, 16), dtype=ml_dtypes.bfloat16), _ref, rtol=1e-3, atol=1e-3)
def _bf16() -> Program:
    a, b, c = matmul(24, 16, 40, "bfloat16", "float32")
    return Program([a, b, c], [c], None, lambda s, t: bind_all(s, c, 32) and None)


@case(
    "matmul_int8",
    integers((24, 40), (40, 16), lo=-128, hi=127, dtype="int8"),
    lambda a, b: a.astype("int32") @ b.astype("int32"),
)
def _int8() -> Program:
    a, b, c = matmul(24, 16, 40, "int8", "int32")
    return Program([a, b, c], [c], None, lambda s, t: bind_all(s, c, 32) and None)


@case("matmul_f64", uniform((11, 13), (13, 17), dtype=np.float64), lambda a, b: a @ b, rtol=1e-12)
def _f64() -> Program:
    a, b, c = matmul(11, 17, 13, "float64")
    return Program([a, b, c], [c], None, lambda s, t: bind_all(s, c, 32) and None)


@case("matmul_symbolic", uniform((19, 23), (23, 31)), _ref, rtol=1e-4, atol=1e-4)
def _symbolic() -> Program:
    m, n, k = te.var("m"), te.var("n"), te.var("k")
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")

    def gpu(s: Any, target: Any) -> None:
        io, jo, ii, ji = s[c].tile(c.op.axis[0], c.op.axis[1], 8, 8)
        for axis, tag in ((io, "blockIdx.y"), (jo, "blockIdx.x"), (ii, "threadIdx.y"), (ji, "threadIdx.x")):
            s[c].bind(axis, te.thread_axis(tag))

    return Program([a, b, c], [c], None, gpu)


@case(
    "batch_matmul",
    uniform((3, 10, 12), (3, 12, 14)),
    lambda a, b: np.matmul(a.astype("d"), b).astype(F32),
    rtol=1e-4,
    atol=1e-4,
)
def _batch() -> Program:
    a, b = te.placeholder((3, 10, 12), name="A"), te.placeholder((3, 12, 14), name="B")
    r = te.reduce_axis((0, 12), name="r")
    c = te.compute((3, 10, 14), lambda n, i, j: te.sum(a[n, i, r] * b[n, r, j], axis=r), name="C")
    return Program([a, b, c], [c], None, lambda s, t: bind_all(s, c, 32) and None)


@case(
    "matvec_rfactor",
    uniform((15, 300), (300,)),
    lambda a, x: (a.astype("d") @ x).astype(F32),
    rtol=1e-4,
    atol=1e-4,
    kinds=("gpu",),
)
def _matvec() -> Program:
    a, x = te.placeholder((15, 300), name="A"), te.placeholder((300,), name="x")
    r = te.reduce_axis((0, 300), name="r")
    y = te.compute((15,), lambda i: te.sum(a[i, r] * x[r], axis=r), name="y")

    def gpu(s: Any, target: Any) -> None:
        _, ki = s[y].split(y.op.reduce_axis[0], factor=32)
        i_o, i_i = s[y].split(y.op.axis[0], factor=4)
        s[y].bind(i_o, te.thread_axis("blockIdx.x"))
        s[y].bind(i_i, te.thread_axis("threadIdx.y"))
        s[y].bind(ki, te.thread_axis("threadIdx.x"))

    return Program([a, x, y], [y], None, gpu)


# ---- a fold of each row behind a product


def top_two() -> Any:
    """The reducer of (largest, its place, second largest, its place): of equals the first."""

    def ahead(x: Any, i: Any, y: Any, j: Any) -> Any:
        return te.any(x > y, te.all(x == y, i < j))

    def both(x: Any, y: Any) -> Any:
        (a, i, b, j), (c, k, d, m) = x, y
        wins = ahead(a, i, c, k)
        loser, its_second = (
            (te.select(wins, *p) for p in ((c, a), (k, i))),
            (te.select(wins, *p) for p in ((b, d), (j, m))),
        )
        (v, at), (w, to) = loser, its_second
        keeps = ahead(v, at, w, to)
        return te.select(wins, a, c), te.select(wins, i, k), te.select(keeps, v, w), te.select(keeps, at, to)

    def nothing(*types: str) -> Any:
        return tuple(te.min_value(t) if t.startswith("float") else te.max_value(t) for t in types)

    return te.comm_reducer(both, nothing, name="top_two")


def top_two_of_rows(m: int, n: int, k: int, dtype: str = "float16") -> tuple[list[Any], list[Any]]:
    """A and B; the two largest of each row of A @ B and their places."""
    a, b = te.placeholder((m, k), dtype, name="A"), te.placeholder((k, n), dtype, name="B")
    c = topi.nn.matmul(a, b)
    j = te.reduce_axis((0, n), name="j")
    none = te.const(float("-inf"), "float32"), te.max_value("int32")
    return [a, b], te.compute((m,), lambda i: top_two()((c[i, j].astype("float32"), j.var, *none), axis=j), name="top")


def _top_two_ref(a: Any, b: Any) -> Any:
    c = (a.astype("d") @ b.astype("d")).astype(a.dtype).astype(F32)
    at = np.argsort(-c, axis=1, kind="stable")[:, :2].astype("int32")
    values = np.take_along_axis(c, at, 1)
    return values[:, 0], at[:, 0], values[:, 1], at[:, 1]


@case("matmul_top_two", lambda r: [r.integers(-9, 9, s).astype("float16") for s in ((70, 48), (48, 130))], _top_two_ref)
def _top_two() -> Program:
    """The two largest of each row of a product, which is never stored (whole numbers: sums are exact in any order)."""
    from tec.choices import schedule

    inputs, outputs = top_two_of_rows(70, 130, 48)
    made = schedule(outputs)
    return Program([*inputs, *made.outputs], made.outputs, schedule=made.schedule)
