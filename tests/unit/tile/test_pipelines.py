"""Loops over products: loads that fill shared memory in the background, operands as the units read them, one barrier a turn."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest

import tec.tile as tl
from tests import seeds

from . import kernels as K
from .nvidia import interpreted, loops

HOPPER, AMPERE, CDNA = "cuda -arch=sm_90a", "cuda -arch=sm_80", "rocm -mcpu=gfx942"


def counted(text: str, *words: str) -> tuple[int, ...]:
    return tuple(len(re.findall(w, text)) for w in words)


def matmul_case(target: str, m: int, n: int, k: int, turned: tuple[bool, bool], **constants: Any) -> None:
    rng = np.random.default_rng(m + n + k)
    a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
    c = np.zeros((m, n), np.float16)
    given = [np.ascontiguousarray(x.T) if t else x for x, t in zip((a, b), turned)]
    strides = [s for x, t in ((a, turned[0]), (b, turned[1])) for s in ((1, x.shape[0]) if t else (x.shape[1], 1))]
    grid = (-(-m // constants["BM"]) * -(-n // constants["BN"]),)
    args = (*given, c, m, n, k, *strides, n, 1)
    interpreted(K.matmul, target, grid, *args, GROUP=2, ACTIVATION="", **constants)
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32), rtol=2e-3, atol=2e-2)


@pytest.mark.parametrize("seed", seeds.some(7))
def test_masked_products_with_operands_as_they_lie(seed: int) -> None:
    """Tiles that stick out on every side, both operands along either axis, sizes that 16 divides and that nothing does."""
    r = random.Random(seed)
    target = (HOPPER, AMPERE, CDNA)[seed % 3]
    turned = (r.random() < 0.5, r.random() < 0.5)
    m, n = 16 * r.randint(3, 5), 16 * r.randint(3, 5)
    k = r.choice([16 * r.randint(5, 9), 75])
    side = 64 if target == HOPPER else 32
    bn = r.choice([side, 2 * side])
    matmul_case(target, m, n, k, turned, BM=64, BN=bn, BK=side, num_warps=4, num_stages=r.choice([2, 3]))


@pytest.mark.parametrize("target", [HOPPER, AMPERE])
def test_attention_keeps_its_weights_in_registers(target: str) -> None:
    h, n, d = 1, 96, 64
    q, k, v = np.random.default_rng(3).standard_normal((3, h, n, d)).astype(np.float16)
    o, scale = np.zeros_like(q), 0.15
    constants = {"BM": 64, "BN": 64, "D": d, "CAUSAL": True, "num_warps": 4, "num_stages": 2}
    interpreted(K.attention, target, (2, h), q, k, v, o, n, scale, **constants)
    score = q.astype(np.float32) @ k.astype(np.float32).transpose(0, 2, 1) * scale
    score = np.where(np.tri(n, dtype=bool), score, -1e6)
    weights = np.exp(score - score.max(-1, keepdims=True))
    np.testing.assert_allclose(o, weights @ v.astype(np.float32) / weights.sum(-1, keepdims=True), atol=4e-3)
    pointers = ["*fp16:16"] * 4
    text = K.attention.asm(target, *pointers, 1024, scale, **constants)
    body = max(loops(text), key=len)
    fills, barriers, stores, loads = counted(
        body, r"cp\.async\.cg", r"bar(?:rier)?\.(?:cta\.)?sync", r"st\.shared", r"ld\.(?:global|shared)"
    )
    assert fills == 8 and barriers == 1 and stores == loads == 0, (fills, barriers, stores, loads)


def test_main_loops() -> None:
    """A turn of a product's loop: copies of 16 bytes, one barrier, operands by ldmatrix or by the unit itself."""
    args = ["*fp16:16"] * 3 + [512] * 3 + [512, 1, 512, 1, 512, 1]
    for target, products, moves in ((HOPPER, r"wgmma\.mma_async", 0), (AMPERE, r"mma\.sync", 24)):
        text = K.matmul.asm(target, *args, BM=128, BN=128, BK=64, GROUP=8, ACTIVATION="", num_warps=8, num_stages=3)
        body = max(loops(text), key=len)
        found = counted(
            body, r"cp\.async\.cg", r"bar(?:rier)?\.(?:cta\.)?sync", "ldmatrix", "ld.shared|st.shared|ld.global"
        )
        assert found == (8, 1, moves, 0)
        assert len(re.findall(products, body)) == (4 if target == HOPPER else 64)


@tl.jit
def together(a, b, c, n, BLOCK: tl.constexpr):
    """A loop that writes what a later turn loads."""
    at = tl.arange(0, BLOCK)
    y = tl.load(b + at[:, None] * BLOCK + at[None, :])
    for i in range(n):
        x = tl.load(a + i * BLOCK * BLOCK + at[:, None] * BLOCK + at[None, :])
        total = tl.dot(x, y)
        tl.store(a + (i + 1) * BLOCK * BLOCK + at[:, None] * BLOCK + at[None, :], total.to(tl.float16))
    tl.store(c + at, tl.load(b + at))


@pytest.mark.parametrize("target", [HOPPER, AMPERE])
def test_a_loop_that_writes_what_it_loads_is_no_pipeline(target: str) -> None:
    rng = np.random.default_rng(0)
    a = np.zeros((4, 64, 64), np.float16)
    a[0], b, c = rng.random((64, 64)), (rng.random((64, 64)) / 32).astype(np.float16), np.zeros(64, np.float16)
    want = a[0].astype(np.float32)
    interpreted(together, target, (1,), a, b, c, 3, BLOCK=64, num_stages=3)
    for i in range(3):
        want = (want @ b.astype(np.float32)).astype(np.float16).astype(np.float32)
        np.testing.assert_allclose(a[i + 1], want, rtol=2e-2)
