"""What this machine's cores reach in multiply-adds, measured: the ceiling of a CPU's roofline.

A kernel of independent chains of vector FMAs, which stay in registers, on one core, and the best of many short runs: what other work
takes away is not the machine's.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import tec
from tec import te

from ..target import Target

_CHAINS, _STEPS, _RUNS = 12, 20_000, 60  # 12 chains cover four clocks of latency on three units; a run takes some 70 us


def fma_gflops() -> float:
    """GFLOP/s of float32 that one core reaches, a multiply-add counted as two."""
    lanes = Target("llvm").vector_bytes // 4

    def body(ins: list[Any], outs: list[Any]) -> Any:
        ib = te.ir_builder.create()
        x, out = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        acc = ib.allocate("float32", (_CHAINS, lanes), "acc", scope="local")

        def each(assign: Any) -> None:
            with (
                ib.for_range(0, _CHAINS, "c", kind="unrolled") as c,
                ib.for_range(0, lanes, "v", kind="vectorized") as v,
            ):
                assign(c, v)

        def begin(c: Any, v: Any) -> None:
            acc[c, v] = x[v]

        def step(c: Any, v: Any) -> None:
            acc[c, v] = te.fma(acc[c, v], x[v], x[v])

        def end(c: Any, v: Any) -> None:
            out[c, v] = acc[c, v]

        each(begin)
        with ib.for_range(0, _STEPS, "k"):
            each(step)
        each(end)
        return ib.get()

    x = te.placeholder((lanes,), name="x")
    y = te.extern((_CHAINS, lanes), [x], body, name="y", dtype="float32")
    f = tec.build(tec.create_schedule(y.op), [x, y], "llvm", name="peak")
    half, out = np.full(lanes, 0.5, np.float32), np.zeros((_CHAINS, lanes), np.float32)
    best = float("inf")
    for _ in range(_RUNS):
        start = time.perf_counter()
        f(half, out)
        best = min(best, time.perf_counter() - start)
    assert (out == 1).all(), "the chains end at 1"
    return 2e-9 * _CHAINS * lanes * _STEPS / best
