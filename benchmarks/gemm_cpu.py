"""f32 matmul on the CPU, written as te plus schedule, against OpenBLAS.

    OPENBLAS_CORETYPE=SkylakeX python benchmarks/gemm_cpu.py [--size 1024] [--runs 21]

The schedule, from the outside in: column panels of `width` (shared out over threads); the panel of B is packed by
cache_read so that the inner loop reads it contiguously from the second-level cache; row tiles of `height`; the tile of C
lives in registers (cache_write to "local", vectorized and unrolled) while k goes by. Runs of both sides are interleaved
and the medians compared, so that a change of the machine's clock meets both alike.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from typing import Any

os.environ.setdefault("OPENBLAS_CORETYPE", "SkylakeX")  # before NumPy is imported
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from turns import in_turn, line

import tec
from tec import te


def schedule(
    n: int, target: tec.Target, parallel: bool, height: int = 8, vectors: int = 2, unroll: int = 1
) -> tuple[Any, list[Any]]:
    """The scheduled product of two n by n matrices."""
    lanes = target.vector_bytes // 4
    width = vectors * lanes
    a = te.placeholder((n, n), name="A")
    b = te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = tec.create_schedule(c.op)
    acc = s.cache_write(c, "local")
    panel = s.cache_read(b, "global", [acc])
    i, j = s[c].op.axis
    io, ii = s[c].split(i, factor=height)
    jo, ji = s[c].split(j, factor=width)
    s[c].reorder(jo, io, ii, ji)
    jv, jl = s[c].split(ji, factor=lanes)
    s[c].vectorize(jl)
    s[c].unroll(jv)
    s[c].unroll(ii)
    if parallel:
        s[c].parallel(jo)
    s[acc].compute_at(s[c], io)
    ai, aj = s[acc].op.axis
    (ak,) = s[acc].op.reduce_axis
    ko, ki = s[acc].split(ak, factor=unroll)
    ajo, ajl = s[acc].split(aj, factor=lanes)
    s[acc].reorder(ko, ki, ai, ajo, ajl)
    s[acc].vectorize(ajl)
    for axis in (ki, ai, ajo):
        s[acc].unroll(axis)
    s[panel].compute_at(s[c], jo)
    _, pj = s[panel].op.axis
    pv, pl = s[panel].split(pj, factor=lanes)
    s[panel].vectorize(pl)
    s[panel].unroll(pv)
    return s, [a, b, c]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--runs", type=int, default=21)
    args = parser.parse_args()
    n = args.size
    target = tec.Target("llvm")
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, n)).astype("float32") for _ in range(2))
    want = a @ b
    x, y, z = (tec.nd.array(v) for v in (a, b, np.zeros_like(a)))
    built = {}
    for parallel in (False, True):
        start = time.perf_counter()
        s, tensors = schedule(n, target, parallel)
        built[parallel] = tec.build(s, tensors, target, name="gemm")
        line(f"build, {'two threads' if parallel else 'one thread'}", time.perf_counter() - start, "s")
        built[parallel](x, y, z)
        np.testing.assert_allclose(z.numpy(), want, rtol=1e-3, atol=1e-3 * np.sqrt(n))
    out = np.empty_like(want)
    blas, one, two = in_turn(
        lambda: np.dot(a, b, out=out), lambda: built[False](x, y, z), lambda: built[True](x, y, z), rounds=args.runs
    )
    flops = 2.0 * n**3
    mine, theirs, both = (flops / statistics.median(t) / 1e9 for t in (one, blas, two))
    ratio = line(f"sgemm {n}, one thread", mine, "GFLOP/s", "OpenBLAS", theirs)
    line(f"sgemm {n}, {os.environ.get('TEC_NUM_THREADS', 'all')} threads", both, "GFLOP/s", "tec, one thread", mine)
    return 0 if ratio >= 0.8 else 1


if __name__ == "__main__":
    sys.exit(main())
