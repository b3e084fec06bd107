"""Kernels over tiles, as a user of Triton writes them: `benchmarks.tiles` runs this text with `tec.tile` and with `triton.language` in the place of `tl`."""

import tec.tile as tl


@tl.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    """C = A @ B of float16, in groups of GROUP rows of tiles."""
    p = tl.program_id(0)
    tiles_m = tl.cdiv(M, BM)
    tiles_n = tl.cdiv(N, BN)
    first = p // (GROUP * tiles_n) * GROUP
    height = min(tiles_m - first, GROUP)
    i = first + p % (GROUP * tiles_n) % height
    j = p % (GROUP * tiles_n) // height
    rows = i * BM + tl.arange(0, BM)
    columns = j * BN + tl.arange(0, BN)
    steps = tl.arange(0, BK)
    a_at = a + rows[:, None] * K + steps[None, :]
    b_at = b + steps[:, None] * N + columns[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(tl.cdiv(K, BK)):
        total = tl.dot(tl.load(a_at), tl.load(b_at), total)
        a_at += BK
        b_at += BK * N
    tl.store(c + rows[:, None] * N + columns[None, :], total.to(tl.float16))


@tl.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    """Softmax of a row, which one program holds."""
    at = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * columns + at, mask=at < columns, other=-float("inf"))
    e = tl.exp(row - tl.max(row, axis=0))
    tl.store(out + tl.program_id(0) * columns + at, e / tl.sum(e, axis=0), mask=at < columns)


@tl.jit
def attention(Q, K, V, O, n, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """Softmax(Q K^T scale) V of a head in one pass over the keys (Dao et al., 2022); n is a multiple of BM and BN."""
    head = tl.program_id(1) * n * D
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    q = tl.load(Q + head + rows[:, None] * D + d[None, :])
    acc = tl.zeros((BM, D), dtype=tl.float32)
    sums = tl.zeros((BM,), dtype=tl.float32)
    largest = tl.full((BM,), -1.0e6, dtype=tl.float32)
    for first in range(0, n, BN):
        keys = first + tl.arange(0, BN)
        score = tl.dot(q, tl.load(K + head + keys[None, :] * D + d[:, None])) * scale
        now = tl.maximum(largest, tl.max(score, 1))
        weights = tl.exp2(score - now[:, None])
        faded = tl.exp2(largest - now)
        v = tl.load(V + head + keys[:, None] * D + d[None, :])
        acc = tl.dot(weights.to(tl.float16), v, acc * faded[:, None])
        sums = sums * faded + tl.sum(weights, 1)
        largest = now
    tl.store(O + head + rows[:, None] * D + d[None, :], (acc / sums[:, None]).to(tl.float16))
