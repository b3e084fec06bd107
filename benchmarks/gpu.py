"""Kernels on one NVIDIA GPU: tec against PyTorch (cuBLAS) and Triton, in turn in one run. One JSON object a line.

    python benchmarks/gpu.py [--quick] [names...]

`value` and `peer_value` are medians of interleaved runs timed with events; bandwidth counts bytes read and written once.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import tec
from tec import te

TARGET = "cuda -arch=sm_90"
REPEAT = 9


def bind(s: Any, t: Any, axis: Any, tag: str) -> None:
    s[t].bind(axis, te.thread_axis(tag))


def elementwise(n: int, inputs: int) -> Any:
    """Copy (one input) or sum of two, a float4 a thread."""
    ins = [te.placeholder((n,), name=f"A{k}") for k in range(inputs)]
    out = te.compute((n,), lambda i: ins[0][i] + ins[1][i] if inputs == 2 else ins[0][i], name="C")
    s = tec.create_schedule(out.op)
    outer, vec = s[out].split(out.op.axis[0], factor=4)
    bx, tx = s[out].split(outer, factor=256)
    s[out].vectorize(vec)
    bind(s, out, bx, "blockIdx.x")
    bind(s, out, tx, "threadIdx.x")
    return tec.build(s, [*ins, out], TARGET, name="elementwise")


def total(n: int) -> Any:
    """Two kernels: one sum a work-group, then one work-group over these."""
    blocks, threads, vec = 2048, 256, 4
    a = te.placeholder((n,), name="A")
    k = te.reduce_axis((0, n // blocks), name="k")
    part = te.compute((blocks,), lambda b: te.sum(a[b * (n // blocks) + k], axis=k), name="part")
    k2 = te.reduce_axis((0, blocks), name="k2")
    out = te.compute((1,), lambda _: te.sum(part[k2], axis=k2), name="total")
    s = tec.create_schedule(out.op)
    ko, kv = s[part].split(k, factor=vec)
    ko, kt = s[part].split(ko, factor=threads)
    own = s.rfactor(part, kt)
    tx = te.thread_axis("threadIdx.x")
    bind(s, part, part.op.axis[0], "blockIdx.x")
    s[part].bind(s[part].op.reduce_axis[0], tx)
    s[own].compute_at(s[part], s[part].op.reduce_axis[0])
    s[own].unroll(s[own].op.reduce_axis[1])
    ko, _ = s[own].split(s[own].op.reduce_axis[0], factor=8)
    s[own].unroll(_)
    bind(s, out, out.op.axis[0], "blockIdx.x")
    _, kt2 = s[out].split(k2, factor=threads)
    s[out].bind(kt2, te.thread_axis("threadIdx.x"))
    return tec.build(s, [a, out], TARGET, name="total")


def softmax(m: int, n: int) -> Any:
    """A work-group a row; the row stays in shared memory, an element read once and written once."""
    threads = 1024
    a = te.placeholder((m, n), name="A")
    k, k2 = te.reduce_axis((0, n), name="k"), te.reduce_axis((0, n), name="k2")
    row = te.compute((m, n), lambda i, j: a[i, j], name="row")
    top = te.compute((m,), lambda i: te.max(row[i, k], axis=k), name="top")
    e = te.compute((m, n), lambda i, j: te.exp(row[i, j] - top[i]), name="E")
    sums = te.compute((m,), lambda i: te.sum(e[i, k2], axis=k2), name="sums")
    out = te.compute((m, n), lambda i, j: e[i, j] * (1.0 / sums[i]), name="out")
    s = tec.create_schedule(out.op)
    tx = te.thread_axis((0, threads), "threadIdx.x")

    def share(stage: Any, axis: Any) -> Any:
        rest, vec = stage.split(axis, factor=4)
        outer, inner = stage.split(rest, factor=threads)
        stage.bind(inner, tx)
        return outer, vec

    bind(s, out, out.op.axis[0], "blockIdx.x")
    outer, vec = share(s[out], out.op.axis[1])
    s[out].vectorize(vec)
    s[out].unroll(outer)
    s[e].compute_inline()
    s[row].compute_at(s[out], out.op.axis[0])
    s[row].set_scope("shared")
    outer, vec = share(s[row], row.op.axis[1])
    s[row].unroll(outer)
    s[row].vectorize(vec)
    for t in (top, sums):
        s[t].compute_at(s[out], out.op.axis[0])
        outer, vec = share(s[t], s[t].op.reduce_axis[0])
        s[t].unroll(outer)
        s[t].unroll(vec)
        s[t].set_scope("shared")
    return tec.build(s, [a, out], TARGET, name="softmax")


def transpose(n: int) -> Any:
    """32 x 32 tiles through shared memory, four rows a thread."""
    a = te.placeholder((n, n), name="A")
    b = te.compute((n, n), lambda i, j: a[j, i], name="B")
    s = tec.create_schedule(b.op)
    sa = s.cache_read(a, "shared", [b])
    io, jo, ii, ji = s[b].tile(b.op.axis[0], b.op.axis[1], 32, 32)
    tx, ty = te.thread_axis((0, 32), "threadIdx.x"), te.thread_axis((0, 8), "threadIdx.y")
    bind(s, b, io, "blockIdx.y")
    bind(s, b, jo, "blockIdx.x")
    _, ty_i = s[b].split(ii, factor=8)
    s[b].bind(ty_i, ty)
    s[b].bind(ji, tx)
    s[sa].compute_at(s[b], jo)
    _, y = s[sa].split(sa.op.axis[0], factor=8)
    s[sa].bind(y, ty)
    s[sa].bind(sa.op.axis[1], tx)
    s[sa].storage_align(sa.op.axis[0], 32, 1)
    return tec.build(s, [a, b], TARGET, name="transpose")


def matmul_f32(n: int, tile: int = 128, step: int = 16, threads: int = 16, stages: int = 2) -> Any:
    """128 x 128 tiles, 8 x 8 a thread as four 4 x 4 blocks; `stages` of software pipelining."""
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = tec.create_schedule(c.op)
    sa, sb = s.cache_read(a, "shared", [c]), s.cache_read(b, "shared", [c])
    cl = s.cache_write(c, "local")
    la, lb = s.cache_read(sa, "local", [cl]), s.cache_read(sb, "local", [cl])
    tx, ty = te.thread_axis((0, threads), "threadIdx.x"), te.thread_axis((0, threads), "threadIdx.y")
    vx, vy = te.thread_axis((0, 2), "vthread"), te.thread_axis((0, 2), "vthread")
    i, j = s[c].op.axis
    by, yi = s[c].split(i, factor=tile)
    bx, xi = s[c].split(j, factor=tile)
    tyz, yi = s[c].split(yi, nparts=2)
    tyo, yi = s[c].split(yi, nparts=threads)
    txz, xi = s[c].split(xi, nparts=2)
    txo, xi = s[c].split(xi, nparts=threads)
    s[c].reorder(by, bx, tyz, txz, tyo, txo, yi, xi)
    for axis, thread in (
        (by, te.thread_axis("blockIdx.y")),
        (bx, te.thread_axis("blockIdx.x")),
        (tyz, vy),
        (txz, vx),
        (tyo, ty),
        (txo, tx),
    ):
        s[c].bind(axis, thread)
    s[c].vectorize(xi)
    s[c].unroll(yi)
    s[cl].compute_at(s[c], txo)
    ko, ki = s[cl].split(s[cl].op.reduce_axis[0], factor=step)
    ci, cj = s[cl].op.axis
    s[cl].reorder(ko, ki, ci, cj)
    for axis in (ki, ci, cj):
        s[cl].unroll(axis)
    s[cl].pragma(ko, "software_pipeline", stages)
    s[sa].compute_at(s[cl], ko)
    s[sb].compute_at(s[cl], ko)
    s[la].compute_at(s[cl], ki)
    s[lb].compute_at(s[cl], ki)
    s[lb].vectorize(lb.op.axis[1])
    for t, inner in ((sa, 4), (sb, 4)):
        fused = s[t].fuse(*s[t].op.axis)
        rest, vec = s[t].split(fused, factor=inner)
        rest, x = s[t].split(rest, factor=threads)
        _, y = s[t].split(rest, factor=threads)
        s[t].bind(y, ty)
        s[t].bind(x, tx)
        s[t].vectorize(vec)
    s[sa].storage_align(sa.op.axis[0], step, 4)
    return tec.build(s, [a, b, c], TARGET, name="matmul")


def matmul_matrix(n: int, dtype: str) -> Any:
    """The matrix-unit template (mma.sync), f32 or int32 sums."""
    from tec.choices import matrix_units

    acc = "int32" if dtype == "int8" else "float32"
    a, b = te.placeholder((n, n), dtype, name="A"), te.placeholder((n, n), dtype, name="B")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k].astype(acc) * b[k, j].astype(acc), axis=k), name="C")
    d = te.compute((n, n), lambda i, j: c[i, j].astype(dtype if dtype != "int8" else "int32"), name="D")
    out = d if dtype != "int8" else c
    s = tec.create_schedule(out.op)
    target = tec.Target(TARGET)
    if not matrix_units.schedule(s, c.op, out.op, target):
        raise RuntimeError(f"no matrix unit for {dtype}")
    return tec.build(s, [a, b, out], target, name="matmul")


def triton_peers() -> Any:
    """The Triton kernels, or None without the package."""
    try:
        import triton_peers as peers
    except ImportError:
        return None
    return peers


def event_ms(torch: Any, f: Callable[[], Any], number: int) -> float:
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(number):
        f()
    stop.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(stop)) / number


def race(
    torch: Any,
    name: str,
    unit: str,
    amount: float,
    mine: Callable[[], Any],
    peer: Callable[[], Any],
    peer_name: str,
    number: int = 5,
) -> None:
    """Interleaved medians; `amount` / time is the figure."""
    dev = tec.cuda(0)
    a, b = dev.event(), dev.event()
    mine()
    peer()
    dev.sync()
    torch.cuda.synchronize()
    ms: tuple[list[float], list[float]] = ([], [])
    for _ in range(REPEAT):
        a.record()
        for _ in range(number):
            mine()
        b.record()
        b.sync()
        ms[0].append(a.elapsed_ms(b) / number)
        ms[1].append(event_ms(torch, peer, number))
    x, y = (amount / (statistics.median(m) * 1e-3) for m in ms)
    print(
        json.dumps(
            {
                "name": name,
                "value": round(x, 3),
                "unit": unit,
                "peer": peer_name,
                "peer_value": round(y, 3),
                "ratio": round(x / y, 3),
            }
        ),
        flush=True,
    )


def main() -> None:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    dev = tec.cuda(0)
    peers = triton_peers()
    quick = "--quick" in sys.argv
    chosen = [a for a in sys.argv[1:] if not a.startswith("-")]
    n = 1 << (24 if quick else 28)
    rows = 2048 if quick else 16384
    gb = 1e-9

    def wanted(name: str) -> bool:
        return not chosen or any(name.startswith(c) for c in chosen)

    def run(name: str, job: Callable[[], None]) -> None:
        if not wanted(name):
            return
        try:
            job()
        except Exception as error:
            print(json.dumps({"name": name, "error": f"{type(error).__name__}: {str(error)[:400]}"}), flush=True)

    def check(name: str, got: Any, want: Any, tol: float) -> None:
        g = torch.from_dlpack(got)
        err = float(((g - want).abs().max() / want.abs().max()).item())
        assert err <= tol, f"{name}: relative error {err}"

    x, y = torch.rand(n, device="cuda"), torch.rand(n, device="cuda")
    z = torch.empty_like(x)

    def nd(t: Any) -> Any:
        return tec.nd.from_dlpack(t)

    def copy() -> None:
        f, out = elementwise(n, 1), tec.nd.empty((n,), "float32", dev)
        f(nd(x), out)
        check("copy", out, x, 0)
        ax = nd(x)
        race(
            torch,
            f"copy 2^{n.bit_length() - 1} f32",
            "GB/s",
            8 * n * gb,
            lambda: f(ax, out),
            lambda: z.copy_(x),
            "torch.copy_",
        )

    def add() -> None:
        f, out = elementwise(n, 2), tec.nd.empty((n,), "float32", dev)
        ax, ay = nd(x), nd(y)
        f(ax, ay, out)
        check("add", out, x + y, 0)
        race(
            torch,
            f"add 2^{n.bit_length() - 1} f32",
            "GB/s",
            12 * n * gb,
            lambda: f(ax, ay, out),
            lambda: torch.add(x, y, out=z),
            "torch.add",
        )
        if peers:
            race(
                torch,
                f"add 2^{n.bit_length() - 1} f32",
                "GB/s",
                12 * n * gb,
                lambda: f(ax, ay, out),
                lambda: peers.add(x, y, z),
                "Triton",
            )

    def sum_() -> None:
        f, out = total(n), tec.nd.empty((1,), "float32", dev)
        ax = nd(x)
        f(ax, out)
        check("sum", out, x.double().sum().float().reshape(1), 1e-4)
        race(
            torch,
            f"sum 2^{n.bit_length() - 1} f32",
            "GB/s",
            4 * n * gb,
            lambda: f(ax, out),
            lambda: x.sum(),
            "torch.sum",
        )

    def softmax_() -> None:
        a = torch.randn(rows, 16384, device="cuda")
        f, out = softmax(rows, 16384), tec.nd.empty((rows, 16384), "float32", dev)
        an = nd(a)
        f(an, out)
        check("softmax", out, torch.softmax(a, 1), 1e-5)
        race(
            torch,
            f"softmax {rows}x16384",
            "GB/s",
            8 * rows * 16384 * gb,
            lambda: f(an, out),
            lambda: torch.softmax(a, 1),
            "torch.softmax",
        )
        if peers:
            o = torch.empty_like(a)
            race(
                torch,
                f"softmax {rows}x16384",
                "GB/s",
                8 * rows * 16384 * gb,
                lambda: f(an, out),
                lambda: peers.softmax(a, o),
                "Triton",
            )

    def transpose_() -> None:
        m = 4096 if quick else 16384
        a = torch.rand(m, m, device="cuda")
        f, out = transpose(m), tec.nd.empty((m, m), "float32", dev)
        an, o = nd(a), torch.empty_like(a)
        f(an, out)
        check("transpose", out, a.T, 0)
        race(torch, f"transpose {m}", "GB/s", 8 * m * m * gb, lambda: f(an, out), lambda: o.copy_(a), "torch.copy_")

    def matmul() -> None:
        for m in (1024,) if quick else (4096, 8192):
            a, b = torch.rand(m, m, device="cuda"), torch.rand(m, m, device="cuda")
            c = torch.empty_like(a)
            f, out = matmul_f32(m), tec.nd.empty((m, m), "float32", dev)
            an, bn = nd(a), nd(b)
            f(an, bn, out)
            check("matmul", out, a @ b, 1e-4)
            race(
                torch,
                f"matmul f32 {m}",
                "TFLOP/s",
                2 * m**3 * 1e-12,
                lambda f=f, an=an, bn=bn, out=out: f(an, bn, out),
                lambda a=a, b=b, c=c: torch.mm(a, b, out=c),
                "cuBLAS",
                3,
            )

    def matmul_units() -> None:
        for m in (1024,) if quick else (2048, 8192):
            for dtype, kind in (("float16", torch.float16), ("bfloat16", torch.bfloat16)):
                a, b = (
                    (torch.randn(m, m, device="cuda") * 0.1).to(kind),
                    (torch.randn(m, m, device="cuda") * 0.1).to(kind),
                )
                c = torch.empty_like(a)
                f, out = matmul_matrix(m, dtype), tec.nd.empty((m, m), dtype, dev)
                an, bn = nd(a), nd(b)
                f(an, bn, out)
                check(f"matmul {dtype}", out, a @ b, 2e-2)
                race(
                    torch,
                    f"matmul {dtype} {m}",
                    "TFLOP/s",
                    2 * m**3 * 1e-12,
                    lambda f=f, an=an, bn=bn, out=out: f(an, bn, out),
                    lambda a=a, b=b, c=c: torch.mm(a, b, out=c),
                    "cuBLAS",
                    3,
                )
                if peers:
                    race(
                        torch,
                        f"matmul {dtype} {m}",
                        "TFLOP/s",
                        2 * m**3 * 1e-12,
                        lambda f=f, an=an, bn=bn, out=out: f(an, bn, out),
                        lambda a=a, b=b, c=c: peers.matmul(a, b, c),
                        "Triton",
                        3,
                    )
                    check(f"Triton's matmul {dtype}", out, c, 2e-2)

    def tf32() -> None:
        m = 1024
        a, b = torch.randn(m, m, device="cuda"), torch.randn(m, m, device="cuda")
        from tec.choices import matrix_units

        ta, tb = te.placeholder((m, m), name="A"), te.placeholder((m, m), name="B")
        k = te.reduce_axis((0, m), name="k")
        tc = te.compute((m, m), lambda i, j: te.sum(ta[i, k] * tb[k, j], axis=k), name="C")
        s = tec.create_schedule(tc.op)
        if not matrix_units.schedule(s, tc.op, tc.op, tec.Target(TARGET), unit="tf32"):
            raise RuntimeError("no tf32 unit")
        f, out = tec.build(s, [ta, tb, tc], TARGET, name="tf32"), tec.nd.empty((m, m), "float32", dev)
        f(nd(a), nd(b), out)
        check("tf32", out, a @ b, 2e-3)
        print(
            json.dumps(
                {
                    "name": "tf32 product by mma.sync is right to 2e-3",
                    "value": 1,
                    "unit": "",
                    "peer": "",
                    "peer_value": 1,
                    "ratio": 1,
                }
            )
        )

    def launch() -> None:
        f = elementwise(1024, 2)
        a, b, c = (tec.nd.empty((1024,), "float32", dev) for _ in range(3))
        f(a, b, c)
        dev.sync()
        start = time.perf_counter()
        for _ in range(2000):
            f(a, b, c)
        mine = (time.perf_counter() - start) / 2000 * 1e6
        dev.sync()
        s, t, u = (torch.rand(1024, device="cuda") for _ in range(3))
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(2000):
            torch.add(s, t, out=u)
        peer = (time.perf_counter() - start) / 2000 * 1e6
        print(
            json.dumps(
                {
                    "name": "launch",
                    "value": round(mine, 2),
                    "unit": "us",
                    "peer": "torch.add",
                    "peer_value": round(peer, 2),
                    "ratio": round(mine / peer, 3),
                }
            ),
            flush=True,
        )
        with dev.capture() as graph:
            for _ in range(100):
                f(a, b, c)
        graph.launch()
        dev.sync()
        times = []
        for _ in range(20):
            start = time.perf_counter()
            graph.launch()
            dev.sync()
            times.append((time.perf_counter() - start) / 100 * 1e6)
        print(
            json.dumps(
                {
                    "name": "graph of 100 kernels, a kernel",
                    "value": round(statistics.median(times), 3),
                    "unit": "us",
                    "peer": "goal",
                    "peer_value": 2.5,
                    "ratio": round(statistics.median(times) / 2.5, 3),
                }
            ),
            flush=True,
        )

    for name, job in (
        ("copy", copy),
        ("add", add),
        ("sum", sum_),
        ("softmax", softmax_),
        ("transpose", transpose_),
        ("matmul f32", matmul),
        ("matmul 16 bit", matmul_units),
        ("tf32", tf32),
        ("launch", launch),
    ):
        run(name, job)


if __name__ == "__main__":
    main()
