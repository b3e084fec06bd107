"""Reductions: every reducer, in one thread, across threads by rfactor, tuple reducers, scans, softmax, layer norm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tec import te

from .elementwise import uniform
from .harness import Program, case

F32 = np.float32


def row_reduce_gpu(out: Any, threads: int = 64) -> Callable[[Any, Any], None]:
    """One row a thread."""

    def apply(s: Any, target: Any) -> None:
        bx, tx = s[out].split(out.op.axis[0], factor=threads)
        s[out].bind(bx, te.thread_axis("blockIdx.x"))
        s[out].bind(tx, te.thread_axis("threadIdx.x"))

    return apply


def _rows(reduce: Callable[[Any, Any], Any], dtype: str = "float32", m: int = 30, n: int = 41) -> Callable[[], Program]:
    def make() -> Program:
        a = te.placeholder((m, n), dtype, name="A")
        k = te.reduce_axis((0, n), name="k")
        b = te.compute((m,), lambda i: reduce(a[i, k], k), name="B")
        return Program([a, b], [b], None, row_reduce_gpu(b, 16))

    return make


def _ints(r: np.random.Generator) -> list[Any]:
    return [r.integers(-9, 9, (30, 41)).astype("int32")]


case("sum_rows", uniform((30, 41)), lambda a: a.sum(1, dtype="d").astype(F32), rtol=1e-5, atol=1e-5)(
    _rows(lambda x, k: te.sum(x, axis=k))
)
case("max_rows", uniform((30, 41)), lambda a: a.max(1))(_rows(lambda x, k: te.max(x, axis=k)))
case("min_rows", uniform((30, 41)), lambda a: a.min(1))(_rows(lambda x, k: te.min(x, axis=k)))


def _rows_with_nans(r: np.random.Generator) -> list[Any]:
    a = r.uniform(-2, 2, (30, 41)).astype(F32)
    a[r.random(a.shape) < 0.02] = np.nan
    a[7] = np.nan
    return [a]


case("max_rows_of_nan", _rows_with_nans, lambda a: np.nanmax(np.insert(a, 0, -np.inf, 1), 1))(
    _rows(lambda x, k: te.max(x, axis=k))
)
case("maximum_rows", _rows_with_nans, lambda a: np.maximum.reduce(a, 1))(_rows(lambda x, k: te.maximum(x, axis=k)))
case("minimum_rows", _rows_with_nans, lambda a: np.minimum.reduce(a, 1))(_rows(lambda x, k: te.minimum(x, axis=k)))
case("prod_rows", uniform((30, 41), lo=0.9, hi=1.1), lambda a: a.prod(1, dtype="d").astype(F32), rtol=1e-5)(
    _rows(lambda x, k: te.prod(x, axis=k))
)
case("sum_rows_int32", _ints, lambda a: a.sum(1, dtype="int32"))(_rows(lambda x, k: te.sum(x, axis=k), "int32"))
case("any_rows", _ints, lambda a: (a > 7).any(1))(_rows(lambda x, k: te.any(x > 7, axis=k), "int32"))
case("all_rows", _ints, lambda a: (a > -9).all(1))(_rows(lambda x, k: te.all(x > -9, axis=k), "int32"))
case("sum_where", uniform((30, 41)), lambda a: np.where(a > 0, a, 0).sum(1, dtype="d").astype(F32), atol=1e-5)(
    _rows(lambda x, k: te.sum(x, axis=k, where=x > 0.0))
)


def _cross_thread(
    threads: int, make_reduce: Callable[[Any, Any], Any], m: int, n: int, dtype: str = "float32"
) -> Callable[[], Program]:
    """rfactor the reduction and bind the factored axis to threadIdx.x."""

    def make() -> Program:
        a = te.placeholder((m, n), dtype, name="A")
        k = te.reduce_axis((0, n), name="k")
        b = te.compute((m,), lambda i: make_reduce(a[i, k], k), name="B")

        def cpu(s: Any, target: Any) -> None:
            ko, ki = s[b].split(s[b].op.reduce_axis[0], factor=16)
            s.rfactor(b, ki)

        def gpu(s: Any, target: Any) -> None:
            ko, ki = s[b].split(s[b].op.reduce_axis[0], factor=threads)
            bf = s.rfactor(b, ki)
            s[b].bind(s[b].op.axis[0], te.thread_axis("blockIdx.x"))
            tx = te.thread_axis("threadIdx.x")
            s[b].bind(s[b].op.reduce_axis[0], tx)
            s[bf].compute_at(s[b], s[b].op.reduce_axis[0])
            s[b].set_store_predicate(tx.var == 0)

        return Program([a, b], [b], cpu, gpu)

    return make


for _threads in (16, 32, 64, 128, 256):
    case(
        f"rfactor_sum_{_threads}", uniform((5, 1000)), lambda a: a.sum(1, dtype="d").astype(F32), rtol=1e-4, atol=1e-4
    )(_cross_thread(_threads, lambda x, k: te.sum(x, axis=k), 5, 1000))
case("rfactor_max_64", uniform((5, 777)), lambda a: a.max(1))(_cross_thread(64, lambda x, k: te.max(x, axis=k), 5, 777))
case(
    "rfactor_maximum_64",
    lambda r: [np.where(r.random((5, 777)) < 0.001, np.nan, 1).astype(F32)],
    lambda a: np.maximum.reduce(a, 1),
)(_cross_thread(64, lambda x, k: te.maximum(x, axis=k), 5, 777))
case("rfactor_sum_f64", uniform((3, 400), dtype=np.float64), lambda a: a.sum(1), rtol=1e-12)(
    _cross_thread(128, lambda x, k: te.sum(x, axis=k), 3, 400, "float64")
)


def _argmax_reducer() -> Any:
    def combine(x: Any, y: Any) -> Any:
        left = te.any(x[1] > y[1], te.all(x[1] == y[1], x[0] <= y[0]))
        return te.select(left, x[0], y[0]), te.select(left, x[1], y[1])

    return te.comm_reducer(combine, lambda t0, t1: (te.const(-1, t0), te.min_value(t1)), name="argmax")


def _argmax_inputs(r: np.random.Generator) -> list[Any]:
    return [
        np.broadcast_to(np.arange(50, dtype="int32"), (9, 50)).copy(),
        r.permutation(450).reshape(9, 50).astype(F32),
    ]


@case("argmax_rows", _argmax_inputs, lambda i, v: (v.argmax(1).astype("int32"), v.max(1)))
def _argmax() -> Program:
    idx, val = te.placeholder((9, 50), "int32", name="idx"), te.placeholder((9, 50), name="val")
    k = te.reduce_axis((0, 50), name="k")
    t0, t1 = te.compute((9,), lambda i: _argmax_reducer()((idx[i, k], val[i, k]), axis=k), name="T")
    return Program([idx, val, t0, t1], [t0], None, row_reduce_gpu(t0, 8))


@case("argmax_cross_thread", _argmax_inputs, lambda i, v: (v.argmax(1).astype("int32"), v.max(1)), kinds=("gpu",))
def _argmax_cross() -> Program:
    idx, val = te.placeholder((9, 50), "int32", name="idx"), te.placeholder((9, 50), name="val")
    k = te.reduce_axis((0, 50), name="k")
    t0, t1 = te.compute((9,), lambda i: _argmax_reducer()((idx[i, k], val[i, k]), axis=k), name="T")

    def gpu(s: Any, target: Any) -> None:
        ko, ki = s[t0].split(s[t0].op.reduce_axis[0], factor=32)
        s[t0].bind(t0.op.axis[0], te.thread_axis("blockIdx.x"))
        s[t0].bind(ki, te.thread_axis("threadIdx.x"))

    return Program([idx, val, t0, t1], [t0], None, gpu)


@case("sum_all_2d", uniform((23, 31)), lambda a: np.asarray(a.sum(dtype="d"), F32).reshape(1), rtol=1e-4, atol=1e-4)
def _sum_all() -> Program:
    a = te.placeholder((23, 31), name="A")
    i, j = te.reduce_axis((0, 23), name="i"), te.reduce_axis((0, 31), name="j")
    b = te.compute((1,), lambda _: te.sum(a[i, j], axis=[i, j]), name="B")

    def gpu(s: Any, target: Any) -> None:
        fused = s[b].fuse(*s[b].op.reduce_axis)
        ko, ki = s[b].split(fused, factor=64)
        s[b].bind(s[b].op.axis[0], te.thread_axis("blockIdx.x"))
        s[b].bind(ki, te.thread_axis("threadIdx.x"))

    return Program([a, b], [b], None, gpu)


@case("cumsum_scan", uniform((20, 33)), lambda a: a.cumsum(0, dtype="d").astype(F32), atol=1e-5)
def _cumsum() -> Program:
    m, n = 20, 33
    x = te.placeholder((m, n), name="X")
    state = te.placeholder((m, n), name="state")
    init = te.compute((1, n), lambda _, i: x[0, i], name="init")
    update = te.compute((m, n), lambda t, i: state[t - 1, i] + x[t, i], name="update")
    out = te.scan(init, update, state, inputs=[x], name="scan")

    def gpu(s: Any, target: Any) -> None:
        bx, tx = te.thread_axis("blockIdx.x"), te.thread_axis("threadIdx.x")
        for t in (init, update):
            outer, inner = s[t].split(t.op.axis[1], factor=16)
            s[t].bind(outer, bx)
            s[t].bind(inner, tx)

    return Program([x, out], [out], None, gpu)


def _softmax_ref(a: Any) -> Any:
    e = np.exp(a.astype("d") - a.max(1, keepdims=True))
    return (e / e.sum(1, keepdims=True)).astype(F32)


@case("softmax_rows", uniform((12, 100), lo=-5, hi=5), _softmax_ref)
def _softmax() -> Program:
    m, n = 12, 100
    a = te.placeholder((m, n), name="A")
    k, k2 = te.reduce_axis((0, n), name="k"), te.reduce_axis((0, n), name="k2")
    top = te.compute((m,), lambda i: te.max(a[i, k], axis=k), name="top")
    e = te.compute((m, n), lambda i, j: te.exp(a[i, j] - top[i]), name="E")
    total = te.compute((m,), lambda i: te.sum(e[i, k2], axis=k2), name="total")
    out = te.compute((m, n), lambda i, j: e[i, j] / total[i], name="out")

    def gpu(s: Any, target: Any) -> None:
        bx, tx = te.thread_axis("blockIdx.x"), te.thread_axis("threadIdx.x")
        s[e].compute_inline()
        s[out].bind(out.op.axis[0], bx)
        _, inner = s[out].split(out.op.axis[1], factor=32)
        s[out].bind(inner, tx)
        for t in (top, total):
            _, ki = s[t].split(t.op.reduce_axis[0], factor=32)
            s[t].bind(ki, tx)
            s[t].compute_at(s[out], out.op.axis[0])
            s[t].set_scope("shared")

    return Program([a, out], [out], None, gpu)


def _layernorm_ref(a: Any, g: Any, b: Any) -> Any:
    a = a.astype("d")
    return ((a - a.mean(1, keepdims=True)) / np.sqrt(a.var(1, keepdims=True) + 1e-5) * g + b).astype(F32)


@case("layernorm", uniform((10, 96), (96,), (96,)), _layernorm_ref, rtol=1e-4, atol=1e-5)
def _layernorm() -> Program:
    m, n = 10, 96
    a, g, b = te.placeholder((m, n), name="A"), te.placeholder((n,), name="G"), te.placeholder((n,), name="B")
    k, k2 = te.reduce_axis((0, n), name="k"), te.reduce_axis((0, n), name="k2")
    mean = te.compute((m,), lambda i: te.sum(a[i, k] * (1.0 / n), axis=k), name="mean")
    var = te.compute(
        (m,), lambda i: te.sum((a[i, k2] - mean[i]) * (a[i, k2] - mean[i]) * (1.0 / n), axis=k2), name="var"
    )
    out = te.compute((m, n), lambda i, j: (a[i, j] - mean[i]) * te.rsqrt(var[i] + 1e-5) * g[j] + b[j], name="out")

    def gpu(s: Any, target: Any) -> None:
        bx, tx = te.thread_axis("blockIdx.x"), te.thread_axis("threadIdx.x")
        s[out].bind(out.op.axis[0], bx)
        _, inner = s[out].split(out.op.axis[1], factor=32)
        s[out].bind(inner, tx)
        for t in (mean, var):
            _, ki = s[t].split(t.op.reduce_axis[0], factor=32)
            s[t].bind(ki, tx)
            s[t].compute_at(s[out], out.op.axis[0])
            s[t].set_scope("shared")

    return Program([a, g, b, out], [out], None, gpu)
