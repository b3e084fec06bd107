"""Products by warpgroups of types of 8 and 32 bits, whose operands lie along k, against NumPy: their loop IR in the interpreter."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

import tec.tile as tl
from tests import seeds
from tests.thinned import thinned_rows

from .nvidia import interpreted

HOPPER = "cuda -arch=sm_90a"
TYPES = {"fp8e4nv": "e4m3", "fp8e5": "e5m2", "i8": "s8", "fp32": "tf32"}


@tl.jit
def product(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), c.dtype.element_ty)
    for k in range(0, K, BK):
        ks = k + tl.arange(0, BK)
        x = tl.load(a + rows[:, None] * K + ks[None, :])
        total = tl.dot(x, tl.load(b + ks[:, None] + columns[None, :] * K), total)
    tl.store(c + rows[:, None] * N + columns[None, :], total)


@thinned_rows(2, "kind", TYPES)
def test_products_of_other_widths_go_by_warpgroups(kind: str) -> None:
    out = "*i32:16" if kind == "i8" else "*fp32:16"
    sizes = {"BM": 64, "BN": 64, "BK": 128 if kind != "fp32" else 32, "num_warps": 4, "num_stages": 3}
    text = product.asm(HOPPER, f"*{kind}:16", f"*{kind}:16", out, 4096, 4096, **sizes)
    assert re.search(rf"wgmma\.mma_async\S*\.{TYPES[kind]}\b", text)
    assert "cp.async.cg" in text and "mma.sync" not in text


@pytest.mark.parametrize("seed", seeds.some(2))
def test_their_values(seed: int) -> None:
    r = random.Random(seed)
    dtype = (np.int8, np.float32)[seed % 2]
    k = 128 if dtype is np.int8 else 32
    m, n, size = 64, 16, k * r.randint(1, 3)
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-8, 8, s).astype(dtype) for s in ((m, size), (n, size)))
    c = np.zeros((m, n), np.int32 if dtype is np.int8 else np.float32)
    interpreted(product, HOPPER, (1, 1), a, b, c, n, size, BM=64, BN=16, BK=k, num_warps=4, num_stages=r.choice([2, 3]))
    np.testing.assert_array_equal(c, a.astype(np.float64) @ b.astype(np.float64).T)


@tl.jit
def twice(a, b, c, d, M: tl.constexpr, R: tl.constexpr):
    r, s = tl.arange(0, M), tl.arange(0, R)
    at, few = r[:, None] * M + r[None, :], s[:, None] * M + r[None, :]
    held = tl.load(a + at)
    y, z = tl.zeros((M, M), tl.float32), tl.zeros((R, M), tl.float32)
    for i in range(2):
        if R < 64:
            z += tl.dot(tl.load(b + i * M * M + few), held)
        y += tl.dot(held, tl.load(b + i * M * M + at))
    tl.store(c + at, tl.dot(y.to(held.dtype), held))
    tl.store(d + few, z)


@pytest.mark.parametrize("dtype,rows", [(np.float32, 64), (np.float16, 16)])
def test_a_tile_that_stays_may_be_either_operand(dtype: type, rows: int) -> None:
    """It lies as the first product reads it, which is not how another, or another instruction, does."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, s).astype(dtype) for s in ((64, 64), (2, 64, 64)))
    c, d = np.zeros((64, 64), np.float32), np.zeros((rows, 64), np.float32)
    interpreted(twice, HOPPER, (1, 1), a, b, c, d, M=64, R=rows, num_warps=4)
    total = a.astype(np.float64) @ b.sum(0)
    np.testing.assert_array_equal(c, total.astype(dtype) @ a.astype(np.float64))
    if rows == 64:  # operands of 32 bits lie along k alone, which code generation asks for
        assert "wgmma.mma_async" in twice.asm(HOPPER, *["*fp32:16"] * 4, M=64, R=64, num_warps=4)
    else:
        np.testing.assert_array_equal(d, b.sum(0)[:rows].astype(np.float64) @ a)
