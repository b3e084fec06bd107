"""Kernels whose threads stride over shared work, on a CPU: loops turned inside out, late starts and the block's own atomics keep every value."""

from __future__ import annotations

import io
import random
from typing import Any

import numpy as np
import pytest

import tec
from tests import seeds

RNG = np.random.default_rng(seeds.first(41))


@tec.kernel
def sums(x, out, last):
    t = tec.grid_idx(1)
    s, n = np.float64(0), 0
    for i in range(t, len(x), tec.grid_size(1)):
        s += x[i]
        n += i
    out[t] = s
    last[t] = n


@tec.kernel
def counts(x, out, mine):
    here = tec.shared(8, np.int32)
    low = tec.shared(1, np.int32)
    t = tec.thread_idx.x
    if t < 8:
        here[t] = 0
    if t == 0:
        low[0] = 1 << 20
    tec.barrier()
    for i in range(tec.block_idx.x * 5 + t, len(x), tec.block_dim.x):
        mine[tec.block_idx.x, i] = tec.atomic_add(here, x[i], 1)
        tec.atomic_min(low, 0, x[i] + i)
        tec.atomic_xor(here, (x[i] + 1) % 8, 0)
    tec.barrier()
    if t < 8:
        out[tec.block_idx.x, t] = here[t]
    if t == 8:
        out[tec.block_idx.x, t] = low[0]


@tec.kernel
def inside(x, y, a, b):
    j, i = tec.grid_idx(2)
    n, m = x.shape
    if a <= i < n - b and j > a and m - b >= j:
        y[i, j] = x[i, j] + 1


@pytest.mark.parametrize("seed", range(4))
def test_sums_of_strides(seed: int) -> None:
    rng = random.Random(seeds.stream(f"strides {seed}"))
    n, grid, block = rng.randint(0, 700), rng.randint(1, 5), rng.choice([1, 7, 32, 64])
    x = RNG.integers(0, 100, n).astype(np.float64)
    out, last = np.zeros(grid * block), np.zeros(grid * block, np.int32)
    sums[grid, block](x, out, last)
    want = [(x[t :: grid * block].sum(), sum(range(t, n, grid * block))) for t in range(grid * block)]
    assert list(zip(out.tolist(), last.tolist())) == want, (n, grid, block)


@pytest.mark.parametrize("seed", range(3))
def test_the_blocks_own_atomics(seed: int) -> None:
    rng = random.Random(seeds.stream(f"own atomics {seed}"))
    n, grid, block = rng.randint(1, 300), rng.randint(1, 3), rng.choice([9, 32, 100])
    x = RNG.integers(0, 8, n).astype(np.int32)
    out, mine = np.zeros((grid, 9), np.int32), np.full((grid, n), -1, np.int32)
    counts[grid, block](x, out, mine)
    for g in range(grid):
        part = x[5 * g :]
        assert out[g, :8].tolist() == np.bincount(part, minlength=8).tolist(), (n, grid, block)
        assert out[g, 8] == min((v + k for k, v in enumerate(x.tolist()) if k >= 5 * g), default=1 << 20)
        for v in range(8):  # each value's counts are given once each
            found = sorted(mine[g, k] for k in range(5 * g, n) if x[k] == v)
            assert found == list(range(len(found)))


def test_an_atomic_sum_of_the_block_wraps_around() -> None:
    @tec.kernel
    def wraps(out):
        s = tec.shared(1, np.int32)
        if tec.thread_idx.x == 0:
            s[0] = 2147483647
        tec.barrier()
        tec.atomic_add(s, 0, 1)
        tec.barrier()
        out[0] = s[0]

    out = np.zeros(1, np.int32)
    wraps[1, 4](out)
    assert out[0] == -2147483645


@pytest.mark.parametrize("seed", range(4))
def test_guards_that_begin_loops_later(seed: int) -> None:
    rng = random.Random(seeds.stream(f"guards {seed}"))
    n, m, a, b = rng.randint(1, 40), rng.randint(1, 70), rng.randint(0, 20), rng.randint(1, 9)
    block: Any = rng.choice([(16, 16), (32, 4), (5, 3)])
    x = RNG.integers(0, 9, (n, m)).astype(np.float32)
    y, want = np.zeros_like(x), np.zeros_like(x)
    grid = (tec.cdiv(m, block[0]), tec.cdiv(n, block[1]))
    inside[grid, block](x, y, a, b)
    for i in range(n):
        for j in range(m):
            if a <= i < n - b and j > a and m - b >= j:
                want[i, j] = x[i, j] + 1
    assert (y == want).all(), (n, m, a, b, block)


@tec.kernel
def counted(x, out):
    for i in range(tec.grid_idx(1), len(x), tec.grid_size(1)):
        out[x[i] + tec.block_idx.x * 8] += 1


def test_threads_without_more_steps_do_not_look_for_them() -> None:
    """Where no thread of a block takes more steps than another, the loop of the rest is passed over: a division a thread, in each block."""
    text = io.StringIO()
    x, out = RNG.integers(0, 8, 270), np.zeros((3, 8), np.int32)
    with tec.device_code("ir", file=text):
        counted[3, 32](x, out.reshape(-1))
    for b in range(3):
        own = np.concatenate([x[k : k + 32] for k in range(32 * b, 270, 96)])
        assert out[b].tolist() == np.bincount(own, minlength=8).tolist()
    lines = [line.strip() for line in text.getvalue().splitlines()]
    own_steps = next(k for k, line in enumerate(lines) if "range(max(min(" in line and "extent=" in line)
    assert lines[own_steps - 1].startswith("for threadIdx") and lines[own_steps - 2].startswith("if max(min(")


@tec.kernel
def copied(x, out, at):
    for i in range(tec.grid_idx(1), len(out), tec.grid_size(1)):
        out[i] = x[at[i]]


def test_what_the_next_steps_read_is_asked_for_ahead() -> None:
    """Of a grid's stride no processor sees the pattern: the lines of a later step are asked for, where threads read side by side."""
    text = io.StringIO()
    x, at = RNG.random(9).astype(np.float32), RNG.integers(0, 9, 3000)
    out = np.zeros(3000, np.float32)
    with tec.device_code("llvm", file=text):
        copied[4, 64](x, out, at)
    assert (out == x[at]).all()
    # Of `at`, 64 numbers of 8 bytes a step; not of `x`, whose place is read.
    assert text.getvalue().count("call void @llvm.prefetch") == 8
