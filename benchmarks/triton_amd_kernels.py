"""Triton kernels that benchmarks/triton_amd.py holds tec's against. Needs the triton package."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def product(
    a,
    b,
    c,
    m,
    n,
    k,
    by_k,
    by_n,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    BAND: tl.constexpr,
    DIES: tl.constexpr,
):  # type: ignore[no-untyped-def]
    # Element (i, j) of B lies at i * by_k + j * by_n. Tiles in bands of rows; program i runs on die i modulo DIES, and each die gets tiles that lie together.
    program, count = tl.program_id(0), tl.num_programs(0)
    if DIES > 1:
        each, rest = count // DIES, count % DIES
        die = program % DIES
        program = die * each + tl.minimum(die, rest) + program // DIES
    columns = tl.cdiv(n, BN)
    band = program // (BAND * columns)
    height = tl.minimum(tl.cdiv(m, BM) - band * BAND, BAND)
    row = band * BAND + (program % (BAND * columns)) % height
    column = (program % (BAND * columns)) // height
    rows, cols, steps = (row * BM + tl.arange(0, BM)) % m, (column * BN + tl.arange(0, BN)) % n, tl.arange(0, BK)
    pa, pb = a + rows[:, None] * k + steps[None, :], b + steps[:, None] * by_k + cols[None, :] * by_n
    kind: tl.constexpr = tl.int32 if a.dtype.element_ty == tl.int8 else tl.float32
    total = tl.zeros((BM, BN), kind)
    for _ in range(0, k, BK):
        total = tl.dot(tl.load(pa), tl.load(pb), total, input_precision="ieee", out_dtype=kind)
        pa += BK
        pb += BK * by_k
    rows, cols = row * BM + tl.arange(0, BM), column * BN + tl.arange(0, BN)
    inside = (rows[:, None] < m) & (cols[None, :] < n)
    tl.store(c + rows[:, None] * n + cols[None, :], total.to(c.dtype.element_ty), mask=inside)


@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    c = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * columns + c, mask=c < columns, other=-float("inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + tl.program_id(0) * columns + c, (e / tl.sum(e, 0)).to(out.dtype.element_ty), mask=c < columns)


@triton.jit
def layer_norm(x, out, columns, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    c = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * columns + c, mask=c < columns, other=0.0).to(tl.float32)
    v = tl.where(c < columns, v - tl.sum(v, 0) / columns, 0.0)
    y = v * tl.rsqrt(tl.sum(v * v, 0) / columns + 1e-5)
    tl.store(out + tl.program_id(0) * columns + c, y.to(out.dtype.element_ty), mask=c < columns)


@triton.jit
def rms_norm(x, out, weight, scales, rows, columns, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    # As aiter's: as many programs as compute units, each takes every so many-th row; the scale of a row is stored too.
    c = tl.arange(0, BLOCK)
    inside = c < columns
    for row in tl.range(tl.program_id(0), rows, PROGRAMS, num_stages=2):
        v = tl.load(x + row * columns + c, mask=inside, other=0.0, cache_modifier=".cg").to(tl.float32)
        w = tl.load(weight + c, mask=inside, other=0.0).to(tl.float32)
        scale = tl.rsqrt(tl.sum(v * v, 0) / columns + 1e-5)
        tl.store(scales + row, scale)
        tl.store(out + row * columns + c, (v * scale * w).to(out.dtype.element_ty), mask=inside)


@triton.jit
def attention(q, k, v, out, scale, length, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):  # type: ignore[no-untyped-def]
    # Scores in powers of two; every head's queries, keys and values are rows of D.
    base = tl.program_id(1).to(tl.int64) * length * D
    rows, cols, d = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    mine = tl.load(q + base + rows[:, None] * D + d[None, :])
    most, total = tl.full((BM,), -float("inf"), tl.float32), tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    pk, pv = k + base + cols[None, :] * D + d[:, None], v + base + cols[:, None] * D + d[None, :]
    for _ in range(0, length, BN):
        s = tl.dot(mine, tl.load(pk)) * scale
        new = tl.maximum(most, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        kept = tl.exp2(most - new)
        total = total * kept + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype.element_ty), tl.load(pv), acc * kept[:, None])
        most = new
        pk += BN * D
        pv += BN * D
    tl.store(out + base + rows[:, None] * D + d[None, :], (acc / total[:, None]).to(out.dtype.element_ty))
