"""Triton kernels as people write them; needs the triton package."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest

try:
    import triton
    import triton.language as tl
except ImportError:  # `make foreign` has an environment with it
    pytest.skip("triton is not installed", allow_module_level=True)

import tec.emulator.triton as emulated

from .conftest import CHECKS

pytestmark = pytest.mark.slow

F32, F16, I32 = np.float32, np.float16, np.int32


@triton.jit
def add(x, y, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, i < n) + tl.load(y + i, i < n), i < n)


@triton.jit
def gelu(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, i < n)
    tl.store(out + i, 0.5 * v * (1 + tl.erf(v * 0.7071067811865476)), i < n)


@triton.jit
def softmax(x, out, n, B: tl.constexpr):
    c = tl.arange(0, B)
    v = tl.load(x + tl.program_id(0) * n + c, c < n, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + tl.program_id(0) * n + c, e / tl.sum(e, 0), c < n)


@triton.jit
def layer_norm(x, w, b, out, n, B: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * n + c, c < n, other=0.0)
    mean = tl.sum(v, 0) / n
    d = tl.where(c < n, v - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(d * d, 0) / n + 1e-5)
    tl.store(out + row * n + c, d * scale * tl.load(w + c, c < n) + tl.load(b + c, c < n), c < n)


@triton.jit
def rms_norm(x, w, out, n, B: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((B,), tl.float32)
    for at in range(0, n, B):
        c = at + tl.arange(0, B)
        v = tl.load(x + row * n + c, c < n, other=0.0).to(tl.float32)
        total += v * v
    scale = tl.rsqrt(tl.sum(total, 0) / n + 1e-6)
    for at in range(0, n, B):
        c = at + tl.arange(0, B)
        tl.store(
            out + row * n + c, (tl.load(x + row * n + c, c < n) * scale * tl.load(w + c, c < n)).to(tl.float16), c < n
        )


@triton.jit
def matmul(
    a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, RELU: tl.constexpr
):
    pid, rows, cols = tl.program_id(0), tl.cdiv(M, BM), tl.cdiv(N, BN)
    group = pid // (GROUP * cols)
    size = min(rows - group * GROUP, GROUP)
    pm, pn = group * GROUP + pid % (GROUP * cols) % size, pid % (GROUP * cols) // size
    m, n, k = pm * BM + tl.arange(0, BM), pn * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for at in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + at + k[None, :], (m[:, None] < M) & (at + k[None, :] < K), other=0.0)
        y = tl.load(b + (at + k)[:, None] * N + n[None, :], (at + k[:, None] < K) & (n[None, :] < N), other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
    if RELU:
        acc = tl.maximum(acc, 0.0)
    tl.store(c + m[:, None] * N + n[None, :], acc, (m[:, None] < M) & (n[None, :] < N))


@triton.jit
def matmul_int8(a, b, c, K, N, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.int32)
    for at in range(0, K, BK):
        acc += tl.dot(tl.load(a + m[:, None] * K + at + k[None, :]), tl.load(b + (at + k)[:, None] * N + n[None, :]))
    tl.store(c + m[:, None] * N + n[None, :], acc)


@triton.jit
def split_k(a, b, c, K, N, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PARTS: tl.constexpr):
    m, n, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for at in range(tl.program_id(2) * BK, K, BK * PARTS):
        acc += tl.dot(tl.load(a + m[:, None] * K + at + k[None, :]), tl.load(b + (at + k)[:, None] * N + n[None, :]))
    tl.atomic_add(c + m[:, None] * N + n[None, :], acc)


@triton.jit
def attention(q, k, v, out, n, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    head, m, d = tl.program_id(1) * n * D, tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    queries = tl.load(q + head + m[:, None] * D + d[None, :])
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for at in range(0, (tl.program_id(0) + 1) * BM, BN):
        j = at + tl.arange(0, BN)
        s = tl.dot(queries, tl.load(k + head + j[None, :] * D + d[:, None])) * scale
        s = tl.where(m[:, None] >= j[None, :], s, -float("inf"))
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp(s - new[:, None])
        alpha = tl.exp(top - new)
        total = total * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None] + tl.dot(p.to(tl.float16), tl.load(v + head + j[:, None] * D + d[None, :]))
        top = new
    tl.store(out + head + m[:, None] * D + d[None, :], acc / total[:, None])


@triton.jit
def cumsum(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + tl.program_id(0) * n + i, tl.cumsum(tl.load(x + tl.program_id(0) * n + i, i < n, other=0), 0), i < n)


@triton.jit
def _combine(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@triton.jit
def recurrence(a, b, out, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    _, h = tl.associative_scan((tl.load(a + i), tl.load(b + i)), 0, _combine)
    tl.store(out + i, h)


@triton.jit
def histogram(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(out + tl.arange(0, 32), tl.histogram(tl.load(x + i, i < n, other=0), 32, i < n))


@triton.jit
def arg_max(x, out, n, B: tl.constexpr):
    c = tl.arange(0, B)
    tl.store(out + tl.program_id(0), tl.argmax(tl.load(x + tl.program_id(0) * n + c, c < n, other=-float("inf")), 0))


@triton.jit
def sort_rows(x, out, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.sort(tl.load(x + i)))


@triton.jit
def embedding(table, index, out, n, D: tl.constexpr):
    d = tl.arange(0, D)
    row = tl.load(index + tl.program_id(0))
    tl.store(out + tl.program_id(0) * D + d, tl.load(table + row * D + d))


@triton.jit
def scatter_add(x, index, out, n, D: tl.constexpr):
    d = tl.arange(0, D)
    tl.atomic_add(out + tl.load(index + tl.program_id(0)) * D + d, tl.load(x + tl.program_id(0) * D + d))


@triton.jit
def dropout(x, out, kept, n, p, seed, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    keep = tl.rand(seed, i) > p
    tl.store(out + i, tl.where(keep, tl.load(x + i, i < n) / (1 - p), 0.0), i < n)
    tl.store(kept + i, keep.to(tl.int8), i < n)


@triton.jit
def cross_entropy(x, label, loss, n, B: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * n + c, c < n, other=-float("inf"))
    top = tl.max(v, 0)
    tl.store(loss + row, top + tl.log(tl.sum(tl.exp(v - top), 0)) - tl.load(x + row * n + tl.load(label + row)))


@triton.jit
def transpose(x, out, M, N, B: tl.constexpr):
    m, n = tl.program_id(0) * B + tl.arange(0, B), tl.program_id(1) * B + tl.arange(0, B)
    v = tl.load(x + m[:, None] * N + n[None, :], (m[:, None] < M) & (n[None, :] < N))
    tl.store(out + n[:, None] * M + m[None, :], tl.trans(v), (n[:, None] < N) & (m[None, :] < M))


@triton.jit
def quantize(x, out, scale, n, B: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * n + c, c < n, other=0.0)
    s = tl.max(tl.abs(v), 0) / 127.0
    tl.store(out + row * n + c, tl.floor(v / s + 0.5).to(tl.int8), c < n)
    tl.store(scale + row, s)


@triton.jit
def conv1d(x, w, out, n, TAPS: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    acc = tl.zeros((B,), tl.float32)
    for t in tl.static_range(TAPS):
        acc += tl.load(w + t) * tl.load(x + i + t, i + t < n, other=0.0)
    tl.store(out + i, acc, i < n)


@triton.jit
def max_pool(x, out, W, OW, B: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, B)
    best = tl.full((B,), -float("inf"), tl.float32)
    for dy in range(2):
        for dx in range(2):
            best = tl.maximum(best, tl.load(x + (2 * row + dy) * W + 2 * c + dx, c < OW, other=-float("inf")))
    tl.store(out + row * OW + c, best, c < OW)


@triton.jit
def _welford(mean1, m1, n1, mean2, m2, n2):
    n = n1 + n2
    d = mean2 - mean1
    part = tl.where(n == 0.0, 0.0, n2 / n)
    return mean1 + d * part, m1 + m2 + d * d * n1 * part, n


@triton.jit
def variance(x, mean, var, n, B: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * n + c, c < n, other=0.0)
    one = tl.where(c < n, 1.0, 0.0)
    m, s, count = tl.reduce((v, tl.zeros_like(v), one), 0, _welford)
    tl.store(mean + row, m)
    tl.store(var + row, s / count)


@triton.jit
def rotary(x, cos, sin, out, H: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, H)
    a, b = tl.load(x + row * 2 * H + c), tl.load(x + row * 2 * H + H + c)
    co, si = tl.load(cos + row * H + c), tl.load(sin + row * H + c)
    tl.store(out + row * 2 * H + c, a * co - b * si)
    tl.store(out + row * 2 * H + H + c, b * co + a * si)


@triton.jit
def locked_sum(x, out, lock, n, B: tl.constexpr):
    c = tl.arange(0, B)
    v = tl.load(x + tl.program_id(0) * n + c, c < n, other=0.0)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(out + c, tl.load(out + c, c < n) + v, c < n)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def collatz(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, i < n, other=1)
    steps = tl.zeros((B,), tl.int32)
    while tl.max(v, 0) > 1:
        steps += (v > 1).to(tl.int32)
        v = tl.where(v > 1, tl.where(v % 2 == 0, v // 2, 3 * v + 1), v)
    tl.store(out + i, steps, i < n)


@triton.jit
def functions(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, i < n, other=1.0)
    tl.store(
        out + i, tl.sin(v) * tl.exp2(v) + tl.log2(tl.abs(v) + 1) + tl.cos(v) * tl.floor(v) + tl.fma(v, v, 1.0), i < n
    )


@triton.jit
def to_bf16(x, y, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = (tl.load(x + i, i < n).to(tl.bfloat16) * tl.load(y + i, i < n).to(tl.bfloat16)).to(tl.float32)
    tl.store(out + i, v, i < n)


@triton.jit
def swiglu(x, y, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + i, i < n).to(tl.float32)
    tl.store(out + i, (a * tl.sigmoid(a) * tl.load(y + i, i < n)).to(tl.float16), i < n)


@triton.jit
def batched_outer(x, y, out, N: tl.constexpr):
    b, i = tl.program_id(0), tl.arange(0, N)
    u, v = tl.load(x + b * N + i), tl.load(y + b * N + i)
    tl.store(out + b * N * N + i[:, None] * N + i[None, :], u[:, None] * v[None, :])


@triton.jit
def matvec(a, x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN)
    acc = tl.zeros((BM,), tl.float32)
    for at in range(0, N, BN):
        w = tl.load(a + m[:, None] * N + at + n[None, :], (m[:, None] < M) & (at + n[None, :] < N), other=0.0)
        acc += tl.sum(w * tl.load(x + at + n, at + n < N, other=0.0)[None, :], 1)
    tl.store(out + m, acc, m < M)


@triton.jit
def adam(p, g, m, v, lr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    on = i < n
    grad = tl.load(g + i, on)
    m1 = 0.9 * tl.load(m + i, on) + 0.1 * grad
    v1 = 0.999 * tl.load(v + i, on) + 0.001 * grad * grad
    tl.store(p + i, tl.load(p + i, on) - lr * m1 / (tl.sqrt(v1) + 1e-8), on)
    tl.store(m + i, m1, on)
    tl.store(v + i, v1, on)


def _x(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


CASES: dict[str, Callable[[], Iterator[tuple[np.ndarray, np.ndarray, float]]]] = {}


def case(make):
    CASES[make.__name__.removeprefix("run_")] = make
    return make


# Each launches its kernel and gives (result, wanted, tolerance).
@case
def run_add():
    x, y, out = _x(1000), _x(1000, seed=1), np.zeros(1000, F32)
    add[(4,)](x, y, out, 1000, B=256)
    yield out, x + y, 0


@case
def run_gelu():
    x, out = _x(1000), np.zeros(1000, F32)
    gelu[(4,)](x, out, 1000, B=256)
    yield out, 0.5 * x * (1 + np.array([math.erf(v / math.sqrt(2)) for v in x.tolist()])), 1e-5


def _softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@case
def run_softmax():
    x, out = _x(5, 300), np.zeros((5, 300), F32)
    softmax[(5,)](x, out, 300, B=512)
    yield out, _softmax(x), 1e-5


@case
def run_layer_norm():
    x, w, b, out = _x(4, 200), _x(200, seed=1), _x(200, seed=2), np.zeros((4, 200), F32)
    layer_norm[(4,)](x, w, b, out, 200, B=256)
    yield out, (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * w + b, 1e-4


@case
def run_rms_norm():
    x, w, out = _x(3, 700).astype(F16), _x(700, seed=1).astype(F16), np.zeros((3, 700), F16)
    rms_norm[(3,)](x, w, out, 700, B=256)
    f = x.astype(F32)
    yield out, f / np.sqrt((f * f).mean(1, keepdims=True) + 1e-6) * w.astype(F32), 1e-2


@case
def run_matmul():
    for dtype, tolerance in ((F32, 1e-3), (F16, 1e-2)):
        a, b = _x(100, 72).astype(dtype), _x(72, 60, seed=1).astype(dtype)
        c = np.zeros((100, 60), F32)
        matmul[(4 * 2,)](a, b, c, 100, 60, 72, BM=32, BN=32, BK=32, GROUP=2, RELU=True, num_warps=4)
        yield c, np.maximum(a.astype(F32) @ b.astype(F32), 0), tolerance


@case
def run_matmul_int8():
    rng = np.random.default_rng(0)
    a, b, c = (
        rng.integers(-128, 128, (64, 64)).astype(np.int8),
        rng.integers(-128, 128, (64, 64)).astype(np.int8),
        np.zeros((64, 64), I32),
    )
    matmul_int8[(2, 2)](a, b, c, 64, 64, BM=32, BN=32, BK=32)
    yield c, a.astype(I32) @ b.astype(I32), 0


@case
def run_split_k():
    a, b, c = _x(32, 256).astype(F16), _x(256, 32, seed=1).astype(F16), np.zeros((32, 32), F32)
    split_k[(1, 1, 4)](a, b, c, 256, 32, BM=32, BN=32, BK=32, PARTS=4)
    yield c, a.astype(F32) @ b.astype(F32), 2e-2


@case
def run_attention():
    q, k, v = (_x(2, 128, 32, seed=s).astype(F16) for s in range(3))
    out = np.zeros((2, 128, 32), F32)
    attention[(4, 2)](q, k, v, out, 128, 1 / math.sqrt(32), D=32, BM=32, BN=32)
    s = q.astype(F32) @ k.astype(F32).swapaxes(1, 2) / math.sqrt(32)
    s = np.where(np.tril(np.ones((128, 128), bool)), s, -np.inf)
    yield out, _softmax(s) @ v.astype(F32), 1e-2


@case
def run_cumsum():
    x = np.random.default_rng(0).integers(-9, 9, (3, 400)).astype(I32)
    out = np.zeros_like(x)
    cumsum[(3,)](x, out, 400, B=512)
    yield out, x.cumsum(1), 0


@case
def run_recurrence():
    a, b, out = np.abs(_x(2, 256)) % F32(0.9), _x(2, 256, seed=1), np.zeros((2, 256), F32)
    recurrence[(2,)](a, b, out, B=256)
    h, want = np.zeros(2), []
    for t in range(256):
        h = h * a[:, t] + b[:, t]
        want.append(h)
    yield out, np.stack(want, 1), 1e-4


@case
def run_histogram():
    x, out = np.random.default_rng(0).integers(0, 32, 900).astype(I32), np.zeros(32, I32)
    histogram[(4,)](x, out, 900, B=256)
    yield out, np.bincount(x, minlength=32), 0


@case
def run_arg_max():
    x, out = _x(6, 200), np.zeros(6, I32)
    arg_max[(6,)](x, out, 200, B=256)
    yield out, x.argmax(1), 0


@case
def run_sort_rows():
    x, out = _x(2, 128), np.zeros((2, 128), F32)
    sort_rows[(2,)](x, out, B=128)
    yield out, np.sort(x, 1), 0


@case
def run_embedding():
    table, index, out = _x(50, 64), np.random.default_rng(0).integers(0, 50, 9).astype(I32), np.zeros((9, 64), F32)
    embedding[(9,)](table, index, out, 9, D=64)
    yield out, table[index], 0


@case
def run_scatter_add():
    x, index, out = _x(20, 64), np.random.default_rng(0).integers(0, 5, 20).astype(I32), np.zeros((5, 64), F32)
    scatter_add[(20,)](x, index, out, 20, D=64)
    want = np.zeros_like(out)
    np.add.at(want, index, x)
    yield out, want, 1e-4


@case
def run_dropout():
    x, out, kept = _x(2000), np.zeros(2000, F32), np.zeros(2000, np.int8)
    dropout[(8,)](x, out, kept, 2000, 0.25, 7, B=256)
    yield out, np.where(kept, x / F32(0.75), 0), 1e-6
    yield np.array([0.70 < kept.mean() < 0.80]), np.array([True]), 0


@case
def run_cross_entropy():
    x, label, loss = _x(6, 100), np.random.default_rng(0).integers(0, 100, 6).astype(I32), np.zeros(6, F32)
    cross_entropy[(6,)](x, label, loss, 100, B=128)
    yield loss, -np.log(_softmax(x)[np.arange(6), label]), 1e-4


@case
def run_transpose():
    x, out = _x(70, 50), np.zeros((50, 70), F32)
    transpose[(3, 2)](x, out, 70, 50, B=32)
    yield out, x.T, 0


@case
def run_quantize():
    x, out, scale = _x(4, 100), np.zeros((4, 100), np.int8), np.zeros(4, F32)
    quantize[(4,)](x, out, scale, 100, B=128)
    yield scale, np.abs(x).max(1) / 127, 1e-5
    yield out, np.floor(x / scale[:, None] + 0.5), 1


@case
def run_conv1d():
    x, w, out = _x(500), _x(5, seed=1), np.zeros(500, F32)
    conv1d[(2,)](x, w, out, 500, TAPS=5, B=256)
    yield out, np.convolve(np.pad(x, (0, 4)), w[::-1], "valid"), 1e-4


@case
def run_max_pool():
    x, out = _x(20, 30), np.zeros((10, 15), F32)
    max_pool[(10,)](x, out, 30, 15, B=16)
    yield out, x.reshape(10, 2, 15, 2).max((1, 3)), 0


@case
def run_variance():
    x, mean, var = _x(3, 300) + F32(5), np.zeros(3, F32), np.zeros(3, F32)
    variance[(3,)](x, mean, var, 300, B=512)
    yield mean, x.mean(1), 1e-4
    yield var, x.var(1), 1e-3


@case
def run_rotary():
    x, angle, out = _x(4, 64), _x(4, 32, seed=1), np.zeros((4, 64), F32)
    co, si = np.cos(angle), np.sin(angle)
    rotary[(4,)](x, co, si, out, H=32)
    yield out, np.concatenate([x[:, :32] * co - x[:, 32:] * si, x[:, 32:] * co + x[:, :32] * si], 1), 1e-5


@case
def run_locked_sum():
    x, out, lock = _x(6, 200), np.zeros(200, F32), np.zeros(1, I32)
    locked_sum[(6,)](x, out, lock, 200, B=256)
    yield out, x.sum(0), 1e-4
    yield lock, np.zeros(1), 0


@case
def run_collatz():
    x, out = np.arange(1, 201).astype(I32), np.zeros(200, I32)
    collatz[(2,)](x, out, 200, B=128)
    want = []
    for v in x.tolist():
        k = 0
        while v > 1:
            v, k = (v // 2 if v % 2 == 0 else 3 * v + 1), k + 1
        want.append(k)
    yield out, np.array(want), 0


@case
def run_functions():
    x, out = _x(300), np.zeros(300, F32)
    functions[(2,)](x, out, 300, B=256)
    yield out, np.sin(x) * np.exp2(x) + np.log2(np.abs(x) + 1) + np.cos(x) * np.floor(x) + x * x + 1, 1e-4


@case
def run_to_bf16():
    x, y, out = _x(300), _x(300, seed=1), np.zeros(300, F32)
    to_bf16[(2,)](x, y, out, 300, B=256)
    yield out, x * y, 3e-2


@case
def run_swiglu():
    x, y, out = _x(300).astype(F16), _x(300, seed=1).astype(F16), np.zeros(300, F16)
    swiglu[(2,)](x, y, out, 300, B=256)
    f = x.astype(F32)
    yield out, f / (1 + np.exp(-f)) * y, 1e-2


@case
def run_batched_outer():
    x, y, out = _x(3, 16), _x(3, 16, seed=1), np.zeros((3, 16, 16), F32)
    batched_outer[(3,)](x, y, out, N=16)
    yield out, x[:, :, None] * y[:, None, :], 0


@case
def run_matvec():
    a, x, out = _x(70, 150), _x(150, seed=1), np.zeros(70, F32)
    matvec[(3,)](a, x, out, 70, 150, BM=32, BN=64)
    yield out, a @ x, 1e-3


@case
def run_adam():
    p, g, m, v = _x(300), _x(300, seed=1), _x(300, seed=2), np.abs(_x(300, seed=3))
    m1, v1 = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    want = p - 0.01 * m1 / (np.sqrt(v1) + 1e-8)
    adam[(2,)](p, g, m, v, 0.01, 300, B=256)
    yield p, want, 1e-4
    yield m, m1, 1e-5


@pytest.fixture(scope="module", params=["gfx942", "gfx1100"])
def chip(request) -> Iterator[str]:
    emulated.install(request.param, check=CHECKS)
    yield request.param
    emulated.uninstall()


@pytest.mark.parametrize("name", list(CASES))
def test_kernel(name: str, chip: str, counted: Callable[[str, str], None]) -> None:
    for got, want, tolerance in CASES[name]():
        if tolerance:
            np.testing.assert_allclose(got.astype(np.float64), want, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(got, want)
    counted("Triton", name)
