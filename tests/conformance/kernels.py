"""Kernels written as Python functions, in the manner of the CUDA and HIP guides: one program each for what kernels can say."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tec

from .elementwise import uniform
from .harness import KernelProgram, Step, kernel_case

F32 = np.float32
TILE = 8
BINS = 16
BLOCK = 64


@tec.kernel
def vector_add(a, b, c, n):
    i = tec.block_idx.x * tec.block_dim.x + tec.thread_idx.x
    if i < n:
        c[i] = a[i] + b[i]


@kernel_case("kernel_vector_add", uniform((1000,), (1000,)), lambda a, b: a + b)
def _vector_add() -> KernelProgram:
    return KernelProgram(lambda a, b, c: [Step(vector_add, (16, 64), (a, b, c, 1000))])


@tec.kernel
def saxpy_strided(a, x, y):
    """A grid-stride loop: any number of threads does."""
    for i in range(tec.grid_idx(1), len(x), tec.grid_size(1)):
        y[i] = a * x[i] + y[i]


@kernel_case("kernel_grid_stride", uniform((777,)), lambda x: (2.5 * x + 1).astype(F32))
def _saxpy() -> KernelProgram:
    return KernelProgram(lambda x, y: [Step(fill, (13, 64), (y, 1.0)), Step(saxpy_strided, (3, 64), (2.5, x, y))])


@tec.kernel
def fill(x, value):
    i = tec.grid_idx(1)
    if i < x.size:
        x[i] = value


@tec.kernel
def block_sum(x, out):
    s = tec.shared(BLOCK, np.float32)
    t = tec.thread_idx.x
    i = tec.grid_idx(1)
    s[t] = x[i] if i < len(x) else 0.0
    tec.barrier()
    half = BLOCK // 2
    while half > 0:
        if t < half:
            s[t] += s[t + half]
        tec.barrier()
        half //= 2
    if t == 0:
        tec.atomic_add(out, 0, s[0])


@kernel_case("kernel_reduce_shared", uniform((1000,)), lambda x: x.sum(dtype="d", keepdims=True).astype(F32), rtol=1e-4)
def _reduce() -> KernelProgram:
    return KernelProgram(lambda x, out: [Step(block_sum, (16, BLOCK), (x, out))])


@tec.kernel
def wave_sum(x, out):
    """Lanes add up by shuffles, wavefronts through shared memory, the first of them in the end."""
    waves = tec.block_dim.x // tec.wave_size()
    s = tec.shared(waves, np.float32)
    i = tec.grid_idx(1)
    v = 0.0
    if i < len(x):
        v = x[i]
    v = tec.wave_reduce(v)
    if tec.lane() == 0:
        s[tec.thread_idx.x // tec.wave_size()] = v
    tec.barrier()
    if tec.thread_idx.x == 0:
        total = 0.0
        for k in range(waves):
            total += s[k]
        tec.atomic_add(out, 0, total)


@kernel_case("kernel_reduce_waves", uniform((1000,)), lambda x: x.sum(dtype="d", keepdims=True).astype(F32), rtol=1e-4)
def _wave_sum() -> KernelProgram:
    return KernelProgram(lambda x, out: [Step(wave_sum, (8, 128), (x, out))])


@tec.kernel
def matmul_tiled(a, b, c):
    sa = tec.shared((TILE, TILE), np.float32)
    sb = tec.shared((TILE, TILE), np.float32)
    tx, ty = tec.thread_idx.x, tec.thread_idx.y
    col, row = tec.grid_idx(2)
    m, n = c.shape
    depth = a.shape[1]
    total = 0.0
    for k0 in range(0, depth, TILE):
        sa[ty, tx] = a[row, k0 + tx] if row < m and k0 + tx < depth else 0.0
        sb[ty, tx] = b[k0 + ty, col] if k0 + ty < depth and col < n else 0.0
        tec.barrier()
        for k in range(TILE):
            total += sa[ty, k] * sb[k, tx]
        tec.barrier()
    if row < m and col < n:
        c[row, col] = total


@kernel_case(
    "kernel_matmul_shared", uniform((30, 21), (21, 19)), lambda a, b: (a.astype("d") @ b).astype(F32), rtol=1e-4
)
def _matmul() -> KernelProgram:
    return KernelProgram(lambda a, b, c: [Step(matmul_tiled, ((3, 4), (TILE, TILE)), (a, b, c))])


@tec.kernel
def life(old, new):
    """One generation of Conway's game on a torus."""
    i, j = tec.grid_idx(2)
    m, n = old.shape
    if i >= m or j >= n:
        return
    alive = 0
    for di in (-1, 0, 1):
        for dj in (-1, 0, 1):
            if di == 0 and dj == 0:
                continue
            alive += old[(i + di) % m, (j + dj) % n]
    new[i, j] = 1 if alive == 3 or (alive == 2 and old[i, j] == 1) else 0


def _life_reference(board: Any) -> Any:
    for _ in range(2):
        n = sum(np.roll(board, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j)
        board = ((n == 3) | ((n == 2) & (board == 1))).astype(np.int32)
    return board


@kernel_case("kernel_game_of_life", lambda r: [r.integers(0, 2, (20, 27)).astype(np.int32)], _life_reference)
def _game() -> KernelProgram:
    def steps(board: Any, out: Any) -> list[Step]:
        between = np.zeros((20, 27), np.int32)
        return [Step(life, ((3, 4), (8, 8)), (board, between)), Step(life, ((3, 4), (8, 8)), (between, out))]

    return KernelProgram(steps)


def xorshift(x):
    x ^= x << 13
    x ^= x >> 17
    x ^= x << 5
    return x


@tec.kernel
def monte_carlo(hits, samples):
    """How many of random points are in the quarter of a circle."""
    state = np.uint32(2463534242) + np.uint32(tec.grid_idx(1)) * np.uint32(2654435769)
    count = 0
    for _ in range(samples):
        state = xorshift(state)
        x = np.float32(state >> 8) * (1.0 / (1 << 24))
        state = xorshift(state)
        y = np.float32(state >> 8) * (1.0 / (1 << 24))
        if x * x + y * y <= 1.0:
            count += 1
    tec.atomic_add(hits, 0, count)


def _monte_carlo_reference(samples: int = 20) -> Any:
    state = (np.uint32(2463534242) + np.arange(256, dtype=np.uint32) * np.uint32(2654435769)).astype(np.uint32)
    total = 0
    points = []
    for _ in range(2 * samples):
        for left, by in ((True, 13), (False, 17), (True, 5)):
            state = state ^ ((state << np.uint32(by)) if left else (state >> np.uint32(by)))
        points.append((state >> np.uint32(8)).astype(F32) * F32(1 / (1 << 24)))
    for x, y in zip(points[::2], points[1::2]):
        total += int((x * x + y * y <= 1).sum())
    return np.array([total], np.int32)


@kernel_case("kernel_monte_carlo", lambda r: [], _monte_carlo_reference)
def _monte_carlo() -> KernelProgram:
    return KernelProgram(lambda hits: [Step(monte_carlo, (4, 64), (hits, 20))])


@tec.kernel
def scan_blocks(x, out, sums):
    """Inclusive sums of each block's elements (Hillis and Steele), and the block's total."""
    s = tec.shared((2, BLOCK), np.int32)
    t, i = tec.thread_idx.x, tec.grid_idx(1)
    s[0, t] = x[i] if i < len(x) else 0
    tec.barrier()
    now = 0
    step = 1
    while step < BLOCK:
        s[1 - now, t] = s[now, t] + (s[now, t - step] if t >= step else 0)
        now = 1 - now
        step *= 2
        tec.barrier()
    if i < len(x):
        out[i] = s[now, t]
    if t == BLOCK - 1:
        sums[tec.block_idx.x] = s[now, t]


@tec.kernel
def add_offsets(out, sums):
    i = tec.grid_idx(1)
    if i >= len(out) or tec.block_idx.x == 0:
        return
    before = 0
    for k in range(tec.block_idx.x):
        before += sums[k]
    out[i] += before


@kernel_case("kernel_scan", lambda r: [r.integers(-9, 9, 500).astype(np.int32)], lambda x: np.cumsum(x, dtype=np.int32))
def _scan() -> KernelProgram:
    def steps(x: Any, out: Any) -> list[Step]:
        sums = np.zeros(8, np.int32)
        return [Step(scan_blocks, (8, BLOCK), (x, out, sums)), Step(add_offsets, (8, BLOCK), (out, sums))]

    return KernelProgram(steps)


@tec.kernel
def histogram(x, counts):
    """Counts in shared memory first, then one addition a bin and block."""
    mine = tec.shared(BINS, np.int32)
    t = tec.thread_idx.x
    if t < BINS:
        mine[t] = 0
    tec.barrier()
    for i in range(tec.grid_idx(1), len(x), tec.grid_size(1)):
        k = int(x[i] * BINS)
        tec.atomic_add(mine, min(max(k, 0), BINS - 1), 1)
    tec.barrier()
    if t < BINS:
        tec.atomic_add(counts, t, mine[t])


@kernel_case(
    "kernel_histogram",
    lambda r: [r.random(2000).astype(F32)],
    lambda x: np.bincount((x * BINS).astype(int), minlength=BINS).astype(np.int32),
)
def _histogram() -> KernelProgram:
    return KernelProgram(lambda x, counts: [Step(histogram, (4, 64), (x, counts))])


@tec.kernel
def bitonic(x):
    """Sorts as many elements as the block has threads, twice."""
    n = tec.block_dim.x * 2
    s = tec.shared(n, np.float32)
    t = tec.thread_idx.x
    s[t] = x[t]
    s[t + tec.block_dim.x] = x[t + tec.block_dim.x]
    size = 2
    while size <= n:
        stride = size // 2
        while stride > 0:
            tec.barrier()
            low = 2 * t - (t & (stride - 1))
            up = (low & size) == 0
            a, b = s[low], s[low + stride]
            if (a > b) == up:
                s[low], s[low + stride] = b, a
            stride //= 2
        size *= 2
    tec.barrier()
    x[t] = s[t]
    x[t + tec.block_dim.x] = s[t + tec.block_dim.x]


@kernel_case("kernel_bitonic_sort", lambda r: [], lambda: np.sort(np.random.default_rng(3).random(256).astype(F32)))
def _bitonic() -> KernelProgram:
    def steps(out: Any) -> list[Step]:
        return [
            Step(copy_in, (1, 256), (np.random.default_rng(3).random(256).astype(F32), out)),
            Step(bitonic, (1, 128), (out,)),
        ]

    return KernelProgram(steps)


@tec.kernel
def copy_in(x, y):
    i = tec.grid_idx(1)
    y[i] = x[i]


@tec.kernel
def transpose(a, b):
    """A tile through shared memory, with a column of padding against bank conflicts."""
    tile = tec.shared((TILE, TILE + 1), np.float32)
    tx, ty = tec.thread_idx.x, tec.thread_idx.y
    i, j = tec.block_idx.y * TILE + ty, tec.block_idx.x * TILE + tx
    if i < a.shape[0] and j < a.shape[1]:
        tile[ty, tx] = a[i, j]
    tec.barrier()
    i, j = tec.block_idx.x * TILE + ty, tec.block_idx.y * TILE + tx
    if i < b.shape[0] and j < b.shape[1]:
        b[i, j] = tile[tx, ty]


@kernel_case("kernel_transpose", uniform((37, 21)), lambda a: a.T.copy())
def _transpose() -> KernelProgram:
    return KernelProgram(lambda a, b: [Step(transpose, ((3, 5), (TILE, TILE)), (a, b))])


@tec.kernel
def mandelbrot(out, width, height, most):
    """A loop that each thread leaves in its own time."""
    col, row = tec.grid_idx(2)
    if col < width and row < height:
        cr = 3.0 * np.float32(col) / width - 2.0
        ci = 2.0 * np.float32(row) / height - 1.0
        zr = zi = 0.0
        n = 0
        for k in range(most):
            if zr * zr + zi * zi > 4.0:
                break
            zr, zi = zr * zr - zi * zi + cr, 2.0 * zr * zi + ci
            n = k + 1
        out[row, col] = n


def _mandelbrot_reference() -> Any:
    col, row = np.meshgrid(np.arange(24, dtype=F32), np.arange(16, dtype=F32))
    cr, ci = F32(3) * col / F32(24) - F32(2), F32(2) * row / F32(16) - F32(1)
    zr = zi = np.zeros_like(cr)
    n = np.zeros(cr.shape, np.int32)
    for _ in range(30):
        inside = zr * zr + zi * zi <= 4
        zr, zi = np.where(inside, zr * zr - zi * zi + cr, zr), np.where(inside, F32(2) * zr * zi + ci, zi)
        n += inside
    return n


@kernel_case("kernel_mandelbrot", lambda r: [], _mandelbrot_reference, atol=1)
def _mandelbrot() -> KernelProgram:
    return KernelProgram(lambda out: [Step(mandelbrot, ((3, 4), (8, 4)), (out, 24, 16, 30))], contract=False)


@tec.kernel
def vectors_of_four(a, b):
    """Four elements at a time, with the rest one by one."""
    i = tec.grid_idx(1) * 4
    if i + 4 <= len(a):
        v = tec.vload(a, i, 4)
        total = v[0] + v[1] + v[2] + v[3]
        tec.vstore(b, i, v * 2.0 + tec.vector(total, 0.0, 0.0, 1.0))
    elif i < len(a):
        for k in range(i, len(a)):
            b[k] = a[k]


def _vector_reference(a: Any) -> Any:
    b = a.copy()
    v = a[:500].reshape(-1, 4)
    b[:500] = (v * 2 + np.stack([v.sum(1), v[:, 0] * 0, v[:, 0] * 0, v[:, 0] * 0 + 1], 1)).reshape(-1)
    return b


@kernel_case("kernel_vectors", uniform((503,)), _vector_reference, rtol=1e-4, atol=1e-5)
def _vectors() -> KernelProgram:
    return KernelProgram(lambda a, b: [Step(vectors_of_four, (2, 64), (a, b))])


@tec.kernel
def local_sort(x, y):
    """Each thread sorts eight elements in registers: a local array, loops within loops."""
    i = tec.grid_idx(1) * 8
    if i + 8 > len(x):
        return
    a = tec.local(8, np.float32)
    for k in range(8):
        a[k] = x[i + k]
    for k in range(1, 8):
        v = a[k]
        j = k - 1
        while j >= 0 and a[j] > v:
            a[j + 1] = a[j]
            j -= 1
        a[j + 1] = v
    for k in range(8):
        y[i + k] = a[k]


@kernel_case("kernel_local_sort", uniform((512,)), lambda x: np.sort(x.reshape(-1, 8), 1).reshape(-1))
def _local_sort() -> KernelProgram:
    return KernelProgram(lambda x, y: [Step(local_sort, (1, 64), (x, y))])


@tec.kernel
def lane_moves(x, y):
    """Every way by which lanes exchange values."""
    i = tec.grid_idx(1)
    v = x[i]
    y[0, i] = tec.shuffle(v, (tec.lane() * 7 + 3) % 32, 32)
    y[1, i] = tec.shuffle_up(v, 3, 32)
    y[2, i] = tec.shuffle_down(v, 5, 16)
    y[3, i] = tec.shuffle_xor(v, 9, 32)
    y[4, i] = tec.wave_reduce(v, "max", 32)
    y[5, i] = 1.0 if tec.wave_any(v > 0.999) else 0.0
    y[6, i] = 1.0 if tec.wave_all(v < 2.0) else 0.0


def _lane_reference(x: Any) -> Any:
    w = x.reshape(-1, 32)
    k = np.arange(32)
    up, down = np.where(k >= 3, k - 3, k), np.where(k % 16 + 5 < 16, k + 5, k)
    rows = [
        w[:, (k * 7 + 3) % 32],
        w[:, up],
        w[:, down],
        w[:, k ^ 9],
        np.broadcast_to(w.max(1, keepdims=True), w.shape),
    ]
    return np.stack([*[r.reshape(-1) for r in rows], np.zeros(128, F32), np.ones(128, F32)]).astype(F32)


@kernel_case("kernel_lane_moves", lambda r: [(r.random(128) * 0.9).astype(F32)], _lane_reference)
def _lane_moves() -> KernelProgram:
    return KernelProgram(lambda x, y: [Step(lane_moves, (1, 128), (x, y))])


@tec.kernel
def atomics(x, out):
    i = tec.grid_idx(1)
    if i < len(x):
        tec.atomic_max(out, 0, x[i])
        tec.atomic_min(out, 1, x[i])
        tec.atomic_xor(out, 2, x[i])
        tec.atomic_or(out, 3, x[i])
        tec.atomic_sub(out, 4, x[i])
        old = out[5]
        # Multiplication modulo a prime, by compare and swap.
        while True:
            new = old * (x[i] % 7 + 1) % 10007
            seen = tec.atomic_cas(out, 5, old, new)
            if seen == old:
                break
            old = seen
        tec.atomic_exchange(out, 6, 11)


def _atomics_reference(x: Any) -> Any:
    product = 1
    for v in x.tolist():
        product = product * (v % 7 + 1) % 10007
    return np.array([x.max(), 0, np.bitwise_xor.reduce(x), np.bitwise_or.reduce(x), -x.sum(), product, 11], np.int32)


@tec.kernel
def one_at(out, index):
    out[index] = 1


@kernel_case("kernel_atomics", lambda r: [r.integers(1, 1000, 100).astype(np.int32)], _atomics_reference)
def _atomics() -> KernelProgram:
    return KernelProgram(lambda x, out: [Step(one_at, (1, 1), (out, 5)), Step(atomics, (2, 64), (x, out))])


@tec.kernel
def divergent_barriers(x, y):
    """Each block runs its own number of turns, with a meeting in each."""
    s = tec.shared(64, np.float32)
    t = tec.thread_idx.x
    v = x[tec.grid_idx(1)]
    for _ in range(tec.block_idx.x + 1):
        s[t] = v
        tec.barrier()
        w = s[(t + 1) % 64]
        tec.barrier()
        v = w
    y[tec.grid_idx(1)] = v


@kernel_case(
    "kernel_barrier_in_loop",
    uniform((256,)),
    lambda x: np.concatenate([np.roll(b, -k - 1) for k, b in enumerate(x.reshape(4, 64))]),
)
def _divergent() -> KernelProgram:
    return KernelProgram(lambda x, y: [Step(divergent_barriers, (4, 64), (x, y))])


def poly(x, *, scale=2.0):
    if x < 0.5:
        return x * scale, 1
    return math.sqrt(x), 2


@tec.kernel
def helpers(x, y, which):
    i = tec.grid_idx(1)
    if i < len(x):
        y[i], k = poly(x[i], scale=4.0)
        which[i] = k


@kernel_case(
    "kernel_helpers",
    uniform((100,), lo=0.0),
    lambda x: (np.where(x < 0.5, x * 4, np.sqrt(x)).astype(F32), np.where(x < 0.5, 1, 2).astype(np.int32)),
)
def _helpers() -> KernelProgram:
    return KernelProgram(lambda x, y, which: [Step(helpers, (2, 64), (x, y, which))])


@tec.kernel
def mixed_types(h, d, q, out_h, out_d, out_q):
    i = tec.grid_idx(1)
    if i < len(h):
        out_h[i] = h[i] * 2 + 0.5
        out_d[i] = tec.exp(-d[i]) + h[i]
        out_q[i] = (q[i] * 3 - 7) // 4 % 100 if q[i] > 0 else ~q[i]


@kernel_case(
    "kernel_mixed_types",
    lambda r: [r.random(70).astype(np.float16), r.random(70), r.integers(-1000, 1000, 70)],
    lambda h, d, q: (
        (h * np.float16(2) + np.float16(0.5)),
        np.exp(-d) + h,
        np.where(q > 0, (q * 3 - 7) // 4 % 100, ~q),
    ),
    rtol=1e-6,
)
def _mixed() -> KernelProgram:
    return KernelProgram(lambda h, d, q, a, b, c: [Step(mixed_types, (2, 64), (h, d, q, a, b, c))])
