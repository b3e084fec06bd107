"""Data movement: transpose through LDS, views with strides, vector access, shared reuse, local arrays, concat, pad."""

from __future__ import annotations

from typing import Any

import numpy as np

from tec import te

from .elementwise import uniform
from .harness import Program, bind_all, case, cpu_elementwise, gpu_elementwise

F32 = np.float32


@case("transpose_shared", uniform((48, 40)), lambda a: a.T.copy())
def _transpose() -> Program:
    m, n, t = 48, 40, 8
    a = te.placeholder((m, n), name="A")
    b = te.compute((n, m), lambda i, j: a[j, i], name="B")

    def gpu(s: Any, target: Any) -> None:
        sa = s.cache_read(a, "shared", [b])
        io, jo, ii, ji = s[b].tile(b.op.axis[0], b.op.axis[1], t, t)
        for axis, tag in ((io, "blockIdx.y"), (jo, "blockIdx.x"), (ii, "threadIdx.y"), (ji, "threadIdx.x")):
            s[b].bind(axis, te.thread_axis(tag))
        s[sa].compute_at(s[b], jo)
        y, x = sa.op.axis
        s[sa].bind(y, te.thread_axis("threadIdx.y"))
        s[sa].bind(x, te.thread_axis("threadIdx.x"))
        s[sa].storage_align(y, 8, 1)

    return Program([a, b], [b], cpu_elementwise(b, lanes=4), gpu)


@case("copy_vector4", uniform((16, 64)), lambda a: a + 1)
def _vector4() -> Program:
    a = te.placeholder((16, 64), name="A")
    b = te.compute(a.shape, lambda i, j: a[i, j] + 1.0, name="B")

    def gpu(s: Any, target: Any) -> None:
        fused = s[b].fuse(*b.op.axis)
        outer, vec = s[b].split(fused, factor=4)
        bx, tx = s[b].split(outer, factor=32)
        s[b].bind(bx, te.thread_axis("blockIdx.x"))
        s[b].bind(tx, te.thread_axis("threadIdx.x"))
        s[b].vectorize(vec)

    return Program([a, b], [b], cpu_elementwise(b), gpu)


@case("global_intermediate", uniform((300,)), lambda a: np.exp(a) * 2 + np.exp(a)[::-1], rtol=1e-5)
def _global_intermediate() -> Program:
    n = 300
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: te.exp(a[i]), name="B")
    c = te.compute((n,), lambda i: b[i] * 2.0 + b[n - 1 - i], name="C")
    return Program([a, c], [c], cpu_elementwise(b, c), gpu_elementwise(b, c))


@case("concat_pad", uniform((10, 7), (10, 5)), lambda a, b: np.pad(np.concatenate([a, b], 1), ((1, 2), (0, 3))))
def _concat_pad() -> Program:
    a, b = te.placeholder((10, 7), name="A"), te.placeholder((10, 5), name="B")
    c = te.compute(
        (10, 12), lambda i, j: te.if_then_else(j < 7, a[i, te.minimum(j, 6)], b[i, te.maximum(j - 7, 0)]), name="cat"
    )
    d = te.compute((13, 15), lambda i, j: te.if_then_else(te.all(i >= 1, i < 11, j < 12), c[i - 1, j], 0.0), name="pad")

    def both(schedule: Any) -> Any:
        def apply(s: Any, target: Any) -> None:
            s[c].compute_inline()
            schedule(s, target)

        return apply

    return Program([a, b, d], [d], both(cpu_elementwise(d)), both(gpu_elementwise(d)))


@case("local_array_reversed", uniform((8, 16)), lambda a: np.cumsum(a[:, ::-1], 1, dtype="d").astype(F32), atol=1e-5)
def _local_array() -> Program:
    """A per-thread array in registers, indexed by loop variables."""
    m, n = 8, 16
    a = te.placeholder((m, n), name="A")
    r = te.compute((m, n), lambda i, j: a[i, n - 1 - j], name="R")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((m, n), lambda i, j: te.sum(te.select(k <= j, r[i, k], 0.0), axis=k), name="C")

    def gpu(s: Any, target: Any) -> None:
        s[c].bind(c.op.axis[0], te.thread_axis("threadIdx.x"))
        s[r].compute_at(s[c], c.op.axis[0])
        s[r].set_scope("local")

    def cpu(s: Any, target: Any) -> None:
        s[r].compute_at(s[c], c.op.axis[0])

    return Program([a, c], [c], cpu, gpu)


@case("shared_neighbours", uniform((256,)), lambda a: a + np.roll(a, -1) * (np.arange(256) % 32 != 31))
def _shared_neighbours() -> Program:
    """Each thread reads what its neighbour wrote to shared memory: a barrier is needed."""
    n, t = 256, 32
    a = te.placeholder((n,), name="A")
    sh = te.compute((n,), lambda i: a[i], name="S")
    b = te.compute((n,), lambda i: sh[i] + te.if_then_else(i % t != t - 1, sh[te.minimum(i + 1, n - 1)], 0.0), name="B")

    def gpu(s: Any, target: Any) -> None:
        bx, tx = s[b].split(b.op.axis[0], factor=t)
        s[b].bind(bx, te.thread_axis("blockIdx.x"))
        s[b].bind(tx, te.thread_axis("threadIdx.x"))
        s[sh].compute_at(s[b], bx)
        s[sh].set_scope("shared")
        o, i = s[sh].split(sh.op.axis[0], factor=t)
        s[sh].bind(i, te.thread_axis("threadIdx.x"))

    return Program([a, b], [b], None, gpu)


@case("extern_prefix", uniform((64,)), lambda a: np.cumsum(a, dtype="d").astype(F32), atol=1e-5, kinds=("cpu",))
def _extern() -> Program:
    a = te.placeholder((64,), name="A")

    def body(ins: Any, outs: Any) -> Any:
        ib = te.ir_builder.create()
        src, dst = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        dst[0] = src[0]
        with ib.for_range(1, 64, name="i") as i:
            dst[i] = dst[i - 1] + src[i]
        return ib.get()

    b = te.extern((64,), [a], body, dtype="float32", name="prefix")
    return Program([a, b], [b])


@case("vthread_add", uniform((128,), (128,)), lambda a, b: a + b, kinds=("gpu",))
def _vthread() -> Program:
    a, b = te.placeholder((128,), name="A"), te.placeholder((128,), name="B")
    c = te.compute((128,), lambda i: a[i] + b[i], name="C")

    def gpu(s: Any, target: Any) -> None:
        vx, rest = s[c].split(c.op.axis[0], nparts=2)
        bx, tx = s[c].split(rest, factor=16)
        s[c].reorder(bx, vx, tx)
        s[c].bind(bx, te.thread_axis("blockIdx.x"))
        s[c].bind(vx, te.thread_axis("vthread"))
        s[c].bind(tx, te.thread_axis("threadIdx.x"))

    return Program([a, b, c], [c], None, gpu)


@case("strided_view", lambda r: [r.random((12, 40)).astype(F32)], lambda a: a[:, 3::4] * 2)
def _strided() -> Program:
    a = te.placeholder((12, 40), name="A")
    b = te.compute((12, 10), lambda i, j: a[i, j * 4 + 3] * 2.0, name="B")
    return Program([a, b], [b], cpu_elementwise(b, lanes=4), gpu_elementwise(b))


@case(
    "cache_write_epilogue",
    uniform((16, 24), (24, 20)),
    lambda a, b: np.maximum(a.astype("d") @ b, 0).astype(F32),
    rtol=1e-4,
    atol=1e-4,
)
def _epilogue() -> Program:
    a, b = te.placeholder((16, 24), name="A"), te.placeholder((24, 20), name="B")
    k = te.reduce_axis((0, 24), name="k")
    c = te.compute((16, 20), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((16, 20), lambda i, j: te.maximum(c[i, j], 0.0), name="D")

    def gpu(s: Any, target: Any) -> None:
        _, tx = bind_all(s, d, 32)
        s[c].compute_at(s[d], tx)
        s[c].set_scope("local")

    def cpu(s: Any, target: Any) -> None:
        s[c].compute_at(s[d], d.op.axis[0])
        s[d].vectorize(s[d].split(d.op.axis[1], factor=4)[1])

    return Program([a, b, d], [d], cpu, gpu)
