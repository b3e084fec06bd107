"""Random schedules through the whole pipeline: the interpreter must find the same numbers with and without them.

A failure prints its seed; the schedule's trace is in the assertion message.
"""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np
import pytest

import tec
from tec import te
from tec.driver import run_passes
from tec.ir import Buffer, IRModule
from tec.ir.interp import run
from tec.ir.passes.split_host_device import split_host_device
from tec.schedule import to_loops
from tec.target import Target
from tests import seeds

_FROM = int(os.environ.get("TEC_FUZZ_FROM", seeds.first()))
SEEDS = range(_FROM, int(os.environ.get("TEC_FUZZ_TO", _FROM + (16 if seeds.number() else 8))))


def program(rng: random.Random, least: int) -> tuple[list[Any], Any, dict[str, int]]:
    """(args, output tensor, values of the symbolic sizes)."""
    sizes: dict[str, int] = {}

    def dim(name: str, lo: int, hi: int) -> Any:
        value = rng.randint(lo, hi)
        if rng.random() < 0.3:
            sizes[name] = value
            return te.size_var(name)
        return value

    kind = rng.choice(["matmul", "stencil", "elementwise", "rowsum"])
    n, m = dim("n", least, 40), dim("m", least, 40)
    if kind == "matmul":
        k = dim("k", 2, 30)
        a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
        r = te.reduce_axis((0, k), name="r")
        return [a, b], te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C"), sizes
    if kind == "stencil":
        a = te.placeholder((n + 2, m + 2), name="A")
        mid = te.compute((n + 2, m + 2), lambda i, j: a[i, j] * 2.0 + 1.0, name="M")
        return [a], te.compute((n, m), lambda i, j: mid[i, j] + mid[i + 1, j + 2] - mid[i + 2, j], name="C"), sizes
    if kind == "rowsum":
        a = te.placeholder((n, m), name="A")
        r = te.reduce_axis((0, m), name="r")
        return [a], te.compute((n,), lambda i: te.sum(a[i, r], axis=r), name="C"), sizes
    a, b = te.placeholder((n, m), name="A"), te.placeholder((m,), name="B")
    padded = te.compute(
        (n, m + 3), lambda i, j: te.if_then_else(te.all(j >= 1, j < m), a[i, j - 1] + b[j], 0.5), name="P"
    )
    return [a, b], te.compute((n, m), lambda i, j: padded[i, j + 2] * 3.0, name="C"), sizes


def cpu_schedule(rng: random.Random, out: Any) -> Any:
    s = tec.create_schedule(out.op)
    c = out
    if rng.random() < 0.4:
        c = s.cache_write(out, "local" if rng.random() < 0.5 else "global")
    axes = list(s[out].op.axis)
    outer, inner = [], []
    for ax in axes:
        o, i = s[out].split(ax, factor=rng.choice([2, 3, 4, 8, 16]))
        outer.append(o)
        inner.append(i)
    s[out].reorder(*outer, *inner)
    if rng.random() < 0.7:
        s[out].vectorize(inner[-1])
    elif rng.random() < 0.5:
        s[out].unroll(inner[-1])
    if rng.random() < 0.4:
        s[out].parallel(outer[0])
    if c is not out:
        s[c].compute_at(s[out], outer[-1])
        if s[c].op.reduce_axis and rng.random() < 0.7:
            ro, ri = s[c].split(s[c].op.reduce_axis[0], factor=rng.choice([2, 4, 5]))
            s[c].reorder(ro, *s[c].op.axis, ri)
            if rng.random() < 0.5:
                s[c].unroll(ri)
        if rng.random() < 0.5 and not s[c].op.reduce_axis:
            s[c].vectorize(s[c].op.axis[-1])
    for t in producers(out):
        where = rng.choice(["inline", "root", "at"])
        if where == "inline":
            s[t].compute_inline()
        elif where == "at":
            s[t].compute_at(s[c], s[c].leaf_iter_vars[0]) if c is out else None
    return s


def producers(out: Any) -> list[Any]:
    return [t for t in out.op.inputs if not isinstance(t.op, te.PlaceholderOp)]


def gpu_schedule(rng: random.Random, out: Any) -> Any:
    s = tec.create_schedule(out.op)
    reads = list(out.op.inputs)
    reduced = bool(out.op.reduce_axis)
    for t in producers(out):
        s[t].compute_inline() if reduced else s[t].set_scope("shared")
    threads = rng.choice([4, 8])
    local = s.cache_write(out, "local") if reduced else None
    blocks, inner = [], []
    for k, ax in enumerate(reversed(list(s[out].op.axis))):
        tag = "xyz"[k]
        per = rng.choice([1, 2])
        b, rest = s[out].split(ax, factor=threads * per)
        t, i = s[out].split(rest, factor=per) if rng.random() < 0.5 else reversed(s[out].split(rest, nparts=per))
        inner.insert(0, i)
        s[out].bind(b, te.thread_axis(f"blockIdx.{tag}"))
        s[out].bind(t, te.thread_axis(f"threadIdx.{tag}"))
        blocks.insert(0, (b, t))
    s[out].reorder(*[b for b, _ in blocks], *[t for _, t in blocks], *inner)
    last_thread, last_block = blocks[-1][1], blocks[-1][0]
    if rng.random() < 0.5:
        (s[out].vectorize if rng.random() < 0.6 else s[out].unroll)(inner[-1])
    if local is not None:
        s[local].compute_at(s[out], last_thread)
        ro, ri = s[local].split(s[local].op.reduce_axis[0], factor=rng.choice([4, 7]))
        s[local].reorder(ro, ri, *s[local].op.axis)
        for t in reads:
            sh = s.cache_read(t, "shared", [local])
            s[sh].compute_at(s[local], ro)
            cooperate(s, sh, len(blocks), threads)
            if rng.random() < 0.6:
                s[sh].double_buffer()
            if rng.random() < 0.3 and len(s[sh].op.axis) > 1:
                s[sh].storage_align(s[sh].op.axis[0], 8, 1)
    else:
        for t in producers(out):
            s[t].compute_at(s[out], last_block)
            cooperate(s, t, len(blocks), threads)
    return s


def cooperate(s: Any, t: Any, dims: int, threads: int) -> None:
    """Bind the loops of a stage that fills shared memory to the threads of the block."""
    axes = s[t].op.axis
    rest = s[t].fuse(*axes) if len(axes) > 1 else axes[0]
    for k in range(dims):
        rest, inner = s[t].split(rest, factor=threads)
        s[t].bind(inner, te.thread_axis((0, threads), f"threadIdx.{'xyz'[k]}"))


def arrays(func: Any, sizes: dict[str, int], seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)

    def value(d: Any) -> int:
        return int(te_value(d, sizes))

    return {
        p.name: rng.integers(-4, 5, tuple(value(d) for d in p.shape)).astype(p.dtype)
        for p in func.params
        if isinstance(p, Buffer)
    }


def te_value(e: Any, sizes: dict[str, int]) -> int:
    from tec.ir.interp import eval_expr
    from tec.ir.visit import free_vars

    return eval_expr(e, {v: sizes[v.name] for v in free_vars(e)})


def check(seed: int, target: Target, kind: str) -> None:
    rng = random.Random(seed)
    args, out, sizes = program(rng, 3 if kind == "cpu" else 16)  # a block's threads all have an axis's step
    plain = to_loops(tec.create_schedule(out.op), [*args, out], name="plain")
    want = arrays(plain, sizes, seed)
    run(plain, want, sizes)
    s = cpu_schedule(rng, out) if kind == "cpu" else gpu_schedule(rng, out)
    loops = to_loops(s, [*args, out], name="f")
    lowered = run_passes(loops, target)
    got = arrays(plain, sizes, seed)
    got[out.op.name][...] = -77.0
    flat = {k: v.reshape(-1) for k, v in got.items()}
    if kind == "cpu":
        run(lowered, flat, sizes, check=True)
    else:
        host, kernels = split_host_device(lowered, target)
        run(
            host,
            flat,
            sizes,
            check=True,
            wave=target.wavefront_size,
            module=IRModule({f.name: f for f in (host, *kernels)}),
        )
    np.testing.assert_allclose(
        got[out.op.name], want[out.op.name], rtol=1e-5, err_msg=f"seed {seed}\n{s.trace}\n{sizes}\n{lowered}"
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_cpu_schedules(seed: int) -> None:
    check(seed, Target("llvm -mcpu=znver4"), "cpu")


@pytest.mark.parametrize("seed", SEEDS)
def test_gpu_schedules(seed: int) -> None:
    check(seed, Target("rocm -mcpu=gfx942"), "gpu")


def reduction(rng: random.Random) -> tuple[Any, list[Any], Any]:
    """A sum or a maximum over rows, factored by an axis that is bound to threads."""
    n, m = rng.randint(2, 9), rng.randint(2, 200)
    a = te.placeholder((n, m), name="A")
    r = te.reduce_axis((0, m), name="r")
    combine = rng.choice([te.sum, te.max])
    out = te.compute((n,), lambda i: combine(a[i, r], axis=r), name="C")
    s = tec.create_schedule(out.op)
    threads = rng.choice([4, 7, 16, 32, 64, 100, 128, 256])
    rows_per_block = rng.choice([1, 2])
    while threads * rows_per_block > 256:
        rows_per_block = 1
        threads //= 2
    ro, ri = s[out].split(out.op.reduce_axis[0], factor=threads)
    partial = s.rfactor(out, ri)
    bx, ty = s[out].split(s[out].op.axis[0], factor=rows_per_block)
    s[out].bind(bx, te.thread_axis("blockIdx.x"))
    s[out].bind(ty, te.thread_axis("threadIdx.y"))
    tx = te.thread_axis("threadIdx.x")
    s[out].bind(s[out].op.reduce_axis[0], tx)
    s[partial].compute_at(s[out], s[out].op.reduce_axis[0])
    return s, [a], out


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_reductions_across_threads(seed: int, chip: str) -> None:
    rng = random.Random(seed)
    target = Target(f"rocm -mcpu={chip}")
    s, args, out = reduction(rng)
    loops = to_loops(s, [*args, out], name="f")
    data = arrays(loops, {}, seed)
    a = data["A"].copy()
    host, kernels = split_host_device(run_passes(loops, target), target)
    module = IRModule({f.name: f for f in (host, *kernels)})
    run(host, {k: v.reshape(-1) for k, v in data.items()}, check=True, wave=target.wavefront_size, module=module)
    want = a.sum(1) if "max" not in str(loops) else a.max(1)
    np.testing.assert_allclose(data["C"], want, rtol=1e-5, err_msg=f"seed {seed}\n{s.trace}")
