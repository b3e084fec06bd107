"""Kernels over tiles that the tests run on every device: what Triton's users write first."""

import tec.tile as tl


@tl.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask)


@tl.jit
def softmax(out, x, in_stride, out_stride, rows, columns, BLOCK: tl.constexpr):
    """Rows that go round by the number of programs."""
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0)):
        at = tl.arange(0, BLOCK)
        mask = at < columns
        v = tl.load(x + row * in_stride + at, mask=mask, other=-float("inf"))
        e = tl.exp(v - tl.max(v, axis=0))
        tl.store(out + row * out_stride + at, e / tl.sum(e, axis=0), mask=mask)


@tl.jit
def dropout(x, out, n, p, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    v = tl.load(x + at, mask=mask)
    tl.store(out + at, tl.where(tl.rand(seed, at) > p, v / (1 - p), 0.0), mask=mask)


@tl.jit
def norm(X, Y, W, B, Mean, Rstd, stride, N, eps, BLOCK: tl.constexpr):
    """Layer norm of a row, in blocks."""
    row = tl.program_id(0)
    X += row * stride
    Y += row * stride
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for first in range(0, N, BLOCK):
        at = first + tl.arange(0, BLOCK)
        total += tl.load(X + at, mask=at < N, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / N
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for first in range(0, N, BLOCK):
        at = first + tl.arange(0, BLOCK)
        x = tl.load(X + at, mask=at < N, other=0.0).to(tl.float32)
        x = tl.where(at < N, x - mean, 0.0)
        total += x * x
    rstd = 1 / tl.sqrt(tl.sum(total, axis=0) / N + eps)
    tl.store(Mean + row, mean)
    tl.store(Rstd + row, rstd)
    for first in range(0, N, BLOCK):
        at = first + tl.arange(0, BLOCK)
        mask = at < N
        x = tl.load(X + at, mask=mask, other=0.0).to(tl.float32)
        tl.store(Y + at, (x - mean) * rstd * tl.load(W + at, mask=mask) + tl.load(B + at, mask=mask), mask=mask)


@tl.jit
def _mean(x, n):
    return tl.sum(x, axis=0) / n


@tl.jit
def norm_backward(DX, DY, DW, DB, X, W, Mean, Rstd, Lock, stride, N, GROUPS: tl.constexpr, BLOCK: tl.constexpr):
    """Gradients of a row; those of weights are added to one of GROUPS rows under a lock."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < N
    group = row % GROUPS
    Lock += group
    Count = Lock + GROUPS
    DW = DW + group * N + at
    DB = DB + group * N + at
    x = tl.load(X + row * stride + at, mask=mask, other=0).to(tl.float32)
    dy = tl.load(DY + row * stride + at, mask=mask, other=0).to(tl.float32)
    w = tl.load(W + at, mask=mask).to(tl.float32)
    rstd = tl.load(Rstd + row)
    xhat = tl.where(mask, (x - tl.load(Mean + row)) * rstd, 0.0)
    wdy = tl.where(mask, w * dy, 0.0)
    dx = (wdy - (xhat * _mean(xhat * wdy, N) + _mean(wdy, N))) * rstd
    tl.store(DX + row * stride + at, dx, mask=mask)
    dw = (dy * xhat).to(w.dtype)
    db = dy.to(w.dtype)
    while tl.atomic_cas(Lock, 0, 1) == 1:
        pass
    if tl.load(Count) == 0:
        tl.atomic_xchg(Count, 1)
    else:
        dw += tl.load(DW, mask=mask)
        db += tl.load(DB, mask=mask)
    tl.store(DW, dw, mask=mask)
    tl.store(DB, db, mask=mask)
    tl.debug_barrier()
    tl.atomic_xchg(Lock, 0)


@tl.jit
def column_sums(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    at = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for i in range(0, M, BM):
        rows = i + tl.arange(0, BM)
        mask = (rows[:, None] < M) & (at[None, :] < N)
        total += tl.load(x + rows[:, None] * N + at[None, :], mask=mask, other=0.0)
    tl.store(out + at, tl.sum(total, axis=0), mask=at < N)


@tl.jit
def matmul(
    a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """C = A @ B in groups of rows of tiles; ACTIVATION "leaky_relu" or ""."""
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    i, j = tl.swizzle2d(tl.program_id(0) // tiles_n, tl.program_id(0) % tiles_n, tiles_m, tiles_n, GROUP)
    rows = (i * BM + tl.arange(0, BM)) % M
    columns = (j * BN + tl.arange(0, BN)) % N
    steps = tl.arange(0, BK)
    a_at = a + (rows[:, None] * stride_am + steps[None, :] * stride_ak)
    b_at = b + (steps[:, None] * stride_bk + columns[None, :] * stride_bn)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        x = tl.load(a_at, mask=steps[None, :] < K - k * BK, other=0.0)
        y = tl.load(b_at, mask=steps[:, None] < K - k * BK, other=0.0)
        total = tl.dot(x, y, total)
        a_at += BK * stride_ak
        b_at += BK * stride_bk
    if ACTIVATION == "leaky_relu":
        total = tl.where(total >= 0, total, 0.01 * total)
    rows = i * BM + tl.arange(0, BM)
    columns = j * BN + tl.arange(0, BN)
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + rows[:, None] * stride_cm + columns[None, :] * stride_cn, total.to(tl.float16), mask=mask)


@tl.jit
def _attend(
    acc, sums, largest, q, K, V, start, end, rows, n, scale, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr
):
    """Keys from `start` to `end`, in steps of BN: sums of values, of weights, and the largest score so far."""
    d = tl.arange(0, D)
    for first in range(start, end, BN):
        keys = first + tl.arange(0, BN)
        k = tl.load(K + keys[None, :] * D + d[:, None], mask=keys[None, :] < n, other=0.0)
        score = tl.dot(q, k) * scale
        seen = keys[None, :] < n
        if CAUSAL:
            seen = seen & (rows[:, None] >= keys[None, :])
        score = tl.where(seen, score, -1.0e6)
        now = tl.maximum(largest, tl.max(score, 1))
        weights = tl.exp2(score - now[:, None])
        faded = tl.exp2(largest - now)
        v = tl.load(V + keys[:, None] * D + d[None, :], mask=keys[:, None] < n, other=0.0)
        acc = tl.dot(weights.to(v.dtype), v, acc * faded[:, None])
        sums = sums * faded + tl.sum(weights, 1)
        largest = now
    return acc, sums, largest


@tl.jit
def attention(Q, K, V, O, n, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr):
    """Softmax(Q K^T scale) V of a head, in one pass over the keys (Dao et al., 2022)."""
    head = tl.program_id(1) * n * D
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    here = rows[:, None] * D + d[None, :]
    q = tl.load(Q + head + here, mask=rows[:, None] < n, other=0.0)
    acc = tl.zeros((BM, D), tl.float32)
    sums = tl.zeros((BM,), tl.float32)
    largest = tl.full((BM,), -1.0e6, tl.float32)
    end = tl.minimum((tl.program_id(0) + 1) * BM, n) if CAUSAL else n
    acc, sums, largest = _attend(
        acc, sums, largest, q, K + head, V + head, 0, end, rows, n, scale * 1.44269504, BN, D, CAUSAL
    )
    tl.store(O + head + here, acc / sums[:, None], mask=rows[:, None] < n)


@tl.jit
def grouped(pointers, sizes, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Products whose arrays are given by address: pointers[3 g] .. of A, B and C, sizes[3 g] .. M, N, K."""
    g = tl.program_id(0)
    m, n, k = tl.load(sizes + 3 * g), tl.load(sizes + 3 * g + 1), tl.load(sizes + 3 * g + 2)
    a = tl.load(pointers + 3 * g).to(tl.pointer_type(tl.float16))
    b = tl.load(pointers + 3 * g + 1).to(tl.pointer_type(tl.float16))
    c = tl.load(pointers + 3 * g + 2).to(tl.pointer_type(tl.float32))
    for tile in range(tl.cdiv(m, BM) * tl.cdiv(n, BN)):
        rows = tile // tl.cdiv(n, BN) * BM + tl.arange(0, BM)[:, None]
        columns = tile % tl.cdiv(n, BN) * BN + tl.arange(0, BN)[None, :]
        total = tl.zeros((BM, BN), tl.float32)
        for at in range(0, k, BK):
            ks = at + tl.arange(0, BK)
            x = tl.load(a + rows * k + ks[None, :], mask=(rows < m) & (ks[None, :] < k), other=0.0)
            y = tl.load(b + ks[:, None] * n + columns, mask=(ks[:, None] < k) & (columns < n), other=0.0)
            total = tl.dot(x, y, total)
        tl.store(c + rows * n + columns, total, mask=(rows < m) & (columns < n))
