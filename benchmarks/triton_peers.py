"""Triton kernels for benchmarks/gpu.py to race against: add, row softmax, layer and root-mean-square norm, matrix product. Needs the triton package."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit
def _add(a, b, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(a + at, mask=inside) + tl.load(b + at, mask=inside), mask=inside)


@triton.jit
def _softmax(a, out, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * WIDTH + tl.arange(0, WIDTH)
    row = tl.load(a + at)
    e = tl.exp(row - tl.max(row, axis=0))
    tl.store(out + at, e / tl.sum(e, axis=0))


@triton.jit
def _layer_norm(a, out, WIDTH: tl.constexpr, CENTRED: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * WIDTH + tl.arange(0, WIDTH)
    row = tl.load(a + at).to(tl.float32)
    if CENTRED:
        row -= tl.sum(row, axis=0) / WIDTH
    tl.store(out + at, (row * tl.rsqrt(tl.sum(row * row, axis=0) / WIDTH + 1e-5)).to(out.dtype.element_ty))


@triton.jit
def _matmul(a, b, c, n, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, BAND: tl.constexpr):  # type: ignore[no-untyped-def]
    # Tiles go by bands of rows, so that neighbours in time share operands in the second-level cache.
    tile, columns = tl.program_id(0), n // N
    band = tile // (BAND * columns)
    row = band * BAND + tile % BAND
    column = (tile % (BAND * columns)) // BAND
    rows, cols, steps = row * M + tl.arange(0, M), column * N + tl.arange(0, N), tl.arange(0, K)
    pa, pb = a + rows[:, None] * n + steps[None, :], b + steps[:, None] * n + cols[None, :]
    total = tl.zeros((M, N), tl.float32)
    for _ in range(0, n, K):
        total = tl.dot(tl.load(pa), tl.load(pb), total)
        pa += K
        pb += K * n
    tl.store(c + rows[:, None] * n + cols[None, :], total.to(c.dtype.element_ty))


def add(a: Any, b: Any, out: Any) -> None:
    n = a.numel()
    _add[(triton.cdiv(n, 1024),)](a, b, out, n, BLOCK=1024)


def softmax(a: Any, out: Any) -> None:
    _softmax[(a.shape[0],)](a, out, WIDTH=a.shape[1], num_warps=16)


def layer_norm(a: Any, out: Any) -> None:
    _layer_norm[(a.shape[0],)](a, out, WIDTH=a.shape[1], CENTRED=True, num_warps=8)


def rms_norm(a: Any, out: Any) -> None:
    _layer_norm[(a.shape[0],)](a, out, WIDTH=a.shape[1], CENTRED=False, num_warps=8)


def matmul(a: Any, b: Any, c: Any) -> None:
    """Square, 16-bit floats, a multiple of 256."""
    n = a.shape[0]
    _matmul[((n // 128) * (n // 256),)](a, b, c, n, M=128, N=256, K=64, BAND=8, num_warps=8, num_stages=3)
