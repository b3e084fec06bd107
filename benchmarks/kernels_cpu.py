"""Kernels of `tec.kernel` on one thread of the CPU against numba's `njit` loops of the same work: processor time, in turn.

    pip install numba
    python benchmarks/kernels_cpu.py [names...]

The kernels are written as for a GPU: a thread for each item, blocks of 256 or 16 x 16, and the histogram and the sum with grid strides.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
import time
from typing import Any

os.environ.setdefault("TEC_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

import numba
import numpy as np
from turns import in_turn, line

import tec

F = np.float32
RNG = np.random.default_rng(0)


@numba.njit
def saxpy_loop(a, x, y):
    for i in range(x.size):
        y[i] = a * x[i] + y[i]


@tec.kernel
def saxpy(a, x, y):
    i = tec.grid_idx(1)
    if i < x.size:
        y[i] = a * x[i] + y[i]


@numba.njit
def matmul_loop(a, b, c):
    for i in range(c.shape[0]):
        for j in range(c.shape[1]):
            s = F(0)
            for k in range(a.shape[1]):
                s += a[i, k] * b[k, j]
            c[i, j] = s


@tec.kernel
def matmul(a, b, c):
    j, i = tec.grid_idx(2)
    if i < c.shape[0] and j < c.shape[1]:
        s = F(0)
        for k in range(a.shape[1]):
            s += a[i, k] * b[k, j]
        c[i, j] = s


@numba.njit
def stencil_loop(u, v):
    for i in range(1, u.shape[0] - 1):
        for j in range(1, u.shape[1] - 1):
            v[i, j] = u[i, j] + F(0.1) * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] - F(4) * u[i, j])


@tec.kernel
def stencil(u, v):
    j, i = tec.grid_idx(2)
    if 0 < i < u.shape[0] - 1 and 0 < j < u.shape[1] - 1:
        v[i, j] = u[i, j] + F(0.1) * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] - F(4) * u[i, j])


@numba.njit
def sum_loop(x, out):
    s = F(0)
    for i in range(x.size):
        s += x[i]
    out[0] = s


@tec.kernel
def sum_strides(x, out):
    s = F(0)
    for i in range(tec.grid_idx(1), x.size, tec.grid_size(1)):
        s += x[i]
    s = tec.block_reduce(s, "add")
    if tec.thread_idx.x == 0:
        tec.atomic_add(out, 0, s)


@numba.njit
def histogram_loop(x, h):
    for i in range(x.size):
        h[x[i]] += 1


@tec.kernel
def histogram(x, h):
    here, t = tec.shared(256, np.int32), tec.thread_idx.x
    here[t] = 0
    tec.barrier()
    for i in range(tec.grid_idx(1), x.size, tec.grid_size(1)):
        tec.atomic_add(here, x[i], 1)
    tec.barrier()
    tec.atomic_add(h, t, here[t])


@numba.njit
def nbody_loop(p, acc, eps):
    for i in range(p.shape[0]):
        ax = ay = az = F(0)
        for j in range(p.shape[0]):
            dx, dy, dz = p[j, 0] - p[i, 0], p[j, 1] - p[i, 1], p[j, 2] - p[i, 2]
            d = dx * dx + dy * dy + dz * dz + eps
            f = p[j, 3] / (d * math.sqrt(d))
            ax, ay, az = ax + f * dx, ay + f * dy, az + f * dz
        acc[i, 0], acc[i, 1], acc[i, 2] = ax, ay, az


@tec.kernel
def nbody(p, acc, eps):
    i = tec.grid_idx(1)
    if i < p.shape[0]:
        ax = ay = az = F(0)
        for j in range(p.shape[0]):
            dx, dy, dz = p[j, 0] - p[i, 0], p[j, 1] - p[i, 1], p[j, 2] - p[i, 2]
            d = dx * dx + dy * dy + dz * dz + eps
            f = p[j, 3] / (d * math.sqrt(d))
            ax, ay, az = ax + f * dx, ay + f * dy, az + f * dz
        acc[i, 0], acc[i, 1], acc[i, 2] = ax, ay, az


def cases() -> dict[str, tuple[Any, Any, np.ndarray, int]]:
    """name -> (numba's and tec's run on an output, the output as it begins, calls between two looks at the clock)."""
    n = 1 << 20
    x, y, u = RNG.random(n, F), RNG.random(n, F), RNG.random((1024, 1024), F)
    a, b, p = RNG.random((256, 256), F), RNG.random((256, 256), F), RNG.random((1024, 4), F)
    k = RNG.integers(0, 256, n).astype(np.int32)
    small = F(1e-6)

    def summed(out: Any) -> None:
        out.fill(0)
        sum_strides[16, 256](x, out)

    return {
        "saxpy of 2^20": (lambda o: saxpy_loop(small, x, o), lambda o: saxpy[4096, 256](small, x, o), y, 100),
        "matmul 256 cubed": (
            lambda o: matmul_loop(a, b, o),
            lambda o: matmul[(16, 16), (16, 16)](a, b, o),
            np.zeros((256, 256), F),
            4,
        ),
        "stencil 1024 x 1024": (
            lambda o: stencil_loop(u, o),
            lambda o: stencil[(64, 64), (16, 16)](u, o),
            u.copy(),
            50,
        ),
        "sum of 2^20 by grid strides": (lambda o: sum_loop(x, o), summed, np.zeros(1, F), 50),
        "histogram of 2^20 in 256": (
            lambda o: histogram_loop(k, o),
            lambda o: histogram[16, 256](k, o),
            np.zeros(256, np.int32),
            50,
        ),
        "n-body of 1024": (
            lambda o: nbody_loop(p, o, F(0.01)),
            lambda o: nbody[8, 128](p, o, F(0.01)),
            np.zeros((1024, 3), F),
            10,
        ),
    }


def main(names: list[str]) -> None:
    for name, (theirs, ours, start, calls) in cases().items():
        if names and not any(n in name for n in names):
            continue
        one, two = start.copy(), start.copy()
        theirs(one)
        ours(two)
        np.testing.assert_allclose(one, two, rtol=2e-3, atol=1e-3, err_msg=name)

        def repeated(run: Any, out: Any, times: int = calls) -> Any:
            def block() -> None:
                for _ in range(times):
                    run(out)

            return block

        found = in_turn(repeated(ours, two), repeated(theirs, one), rounds=11, clock=time.process_time)
        mine, peer = (statistics.median(t) / calls * 1e3 for t in found)
        line(name, mine, "ms", "numba", peer)


if __name__ == "__main__":
    main(sys.argv[1:])
