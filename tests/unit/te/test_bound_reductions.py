"""Reductions with any of their axes bound to any launch index, and the others to none; shifts by counts from memory."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import tec
from tec import te
from tests import seeds

TAGS = ("blockIdx.x", "blockIdx.y", "threadIdx.x", "threadIdx.y")


def _drawn(seed: int) -> None:
    """A row sum whose axes are split or not, and bound to drawn launch indices or none: one block alone, threads alone, neither in order."""
    r = random.Random(seed)
    rows, columns, terms = r.choice((1, 3, 12)), r.choice((1, 4)), r.choice((1, 5, 32))
    k = te.reduce_axis((0, terms), "k")
    A = te.placeholder((rows, columns, terms), name="A")
    through = r.random() < 0.5
    B = te.compute((rows, columns, terms), lambda i, j, t: A[i, j, t] + 1, name="B") if through else A
    C = te.compute((rows, columns), lambda i, j: te.sum(B[i, j, k], axis=k), name="C")
    s = te.create_schedule(C.op)
    i, j = C.op.axis
    if r.random() < 0.5:
        axes = list(s[C].split(i, r.choice((2, 4))))
        s[C].reorder(*axes, j, s[C].op.reduce_axis[0])
        axes.append(j)
    else:
        axes = [i, j]
    tags = r.sample(TAGS, len(axes))
    bound = [a for a, tag in zip(axes, tags) if r.random() < 0.7 and s[C].bind(a, te.thread_axis(tag)) is not False]
    if not bound:
        s[C].bind(axes[0], te.thread_axis("blockIdx.x"))
    if through:
        s[B].compute_at(s[C], axes[-1])
        if r.random() < 0.5:
            s[B].set_scope(r.choice(("shared", "local")))
    x = np.random.default_rng(seed).integers(-4, 5, (rows, columns, terms)).astype(np.float32)
    f = tec.build(s, [A, C], "rocm -mcpu=gfx942")
    device = tec.rocm_emu("gfx942")
    out = tec.nd.array(np.zeros((rows, columns), np.float32), device)
    f(tec.nd.array(x, device), out)
    np.testing.assert_array_equal(out.numpy(), (x + through).sum(-1), err_msg=f"seed {seed}: {tags}")


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_drawn_reductions(first: int) -> None:
    for seed in seeds.some(10, first):
        _drawn(seed)


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_blocks_without_threads(chip: str) -> None:
    """A kernel that binds blockIdx alone: its one thread sums each row, one after another."""
    k = te.reduce_axis((0, 32), "k")
    A = te.placeholder((96, 32), name="A")
    C = te.compute((96,), lambda m: te.sum(A[m, k], axis=k), name="C")
    s = te.create_schedule(C.op)
    outer, _ = s[C].split(C.op.axis[0], 32)
    s[C].bind(outer, te.thread_axis("blockIdx.x"))
    device = tec.rocm_emu(chip, check="race,init")
    x = np.random.default_rng(1).integers(-9, 10, (96, 32)).astype(np.float32)
    out = tec.nd.array(np.full(96, np.nan, np.float32), device)
    tec.build(s, [A, C], f"rocm -mcpu={chip}")(tec.nd.array(x, device), out)
    np.testing.assert_array_equal(out.numpy(), x.sum(1))


def test_shifts_by_products_of_what_is_loaded() -> None:
    @tec.kernel
    def k(x: Any, y: Any, o: Any) -> None:
        i = tec.grid_idx(1)
        a = i // y[i]
        o[i] = (i >> i * x[i]) + (x[i] << (y[i] * x[i] - i) * (x[i] + y[i])) + a

    r = np.random.default_rng(0)
    x, y = (r.integers(1, 4, 64).astype(np.int32) for _ in range(2))
    o, i = np.zeros(64, np.int32), np.arange(64, dtype=np.int32)
    k[2, 32](x, y, o)
    np.testing.assert_array_equal(o, (i >> i * x) + np.left_shift(x, (y * x - i) * (x + y)) + i // y)
