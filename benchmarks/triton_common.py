"""Kernels that libraries write in Triton, for `benchmarks.tile_common`: a scan, an implicit convolution, paged decode attention and their neighbours. `import triton` means either side."""

import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK_SIZE: tl.constexpr):
    at = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


@triton.jit
def _after(decay, state, next_decay, next_state):
    return decay * next_decay, state * next_decay + next_state


@triton.jit
def recurrence(a, b, out, BLOCK: tl.constexpr):
    """h[t] = a[t] h[t - 1] + b[t] along a row, which one program holds."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    _, h = tl.associative_scan((tl.load(a + at), tl.load(b + at)), 0, _after)
    tl.store(out + at, h)


@triton.jit
def running_sum(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    at = rows[:, None] * COLUMNS + columns[None, :]
    tl.store(out + at, tl.cumsum(tl.load(x + at), 1))


@triton.jit
def sorted_rows(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.sort(tl.load(x + at)))


@triton.jit
def rms_norm(x, weight, out, columns, eps, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < columns
    row = tl.load(x + tl.program_id(0) * columns + at, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(row * row, 0) / columns + eps)
    w = tl.load(weight + at, mask=inside)
    tl.store(out + tl.program_id(0) * columns + at, (row * scale).to(w.dtype) * w, mask=inside)


@triton.jit
def rotary(x, cosines, sines, out, heads, D: tl.constexpr, HEADS: tl.constexpr):
    """Halves of a head turned by a position's angles; a program takes all heads of a token."""
    token = tl.program_id(0)
    h, d = tl.arange(0, HEADS)[:, None], tl.arange(0, D // 2)[None, :]
    at = token * heads * D + h * D + d
    inside = h < heads
    first, second = tl.load(x + at, mask=inside), tl.load(x + at + D // 2, mask=inside)
    c, s = tl.load(cosines + token * (D // 2) + d), tl.load(sines + token * (D // 2) + d)
    tl.store(out + at, first * c - second * s, mask=inside)
    tl.store(out + at + D // 2, second * c + first * s, mask=inside)


@triton.jit
def cross_entropy(logits, targets, losses, columns, BLOCK: tl.constexpr):
    """The loss of a row, in one pass over blocks of the vocabulary."""
    row = logits + tl.program_id(0).to(tl.int64) * columns
    most, total = -float("inf"), 0.0
    for first in range(0, columns, BLOCK):
        at = first + tl.arange(0, BLOCK)
        x = tl.load(row + at, mask=at < columns, other=-float("inf")).to(tl.float32)
        now = tl.maximum(most, tl.max(x, 0))
        total = total * tl.exp(most - now) + tl.sum(tl.exp(x - now), 0)
        most = now
    wanted = tl.load(row + tl.load(targets + tl.program_id(0))).to(tl.float32)
    tl.store(losses + tl.program_id(0), most + tl.log(total) - wanted)


@triton.jit
def convolution(x, w, out, H, W, C, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """3 x 3 with a border of one, channels last, as a product over (filter row, filter column, channels)."""
    at = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    n, rest = at // (H * W), at % (H * W)
    i, j = rest // W, rest % W
    steps = C // BK
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(9 * steps):
        tap, c = step // steps, step % steps * BK + tl.arange(0, BK)
        row, column = i + tap // 3 - 1, j + tap % 3 - 1
        inside = (row >= 0) & (row < H) & (column >= 0) & (column < W)
        p = x + ((n * H + row) * W + column)[:, None] * C + c[None, :]
        q = w + columns[None, :] * (9 * C) + (tap * C + c)[:, None]
        total = tl.dot(tl.load(p, mask=inside[:, None], other=0.0), tl.load(q), total)
    tl.store(out + at[:, None] * K + columns[None, :], total.to(tl.float16))


@triton.jit
def paged_decode(
    q,
    keys,
    values,
    table,
    lengths,
    out,
    scale,
    pages,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    BN: tl.constexpr,
):
    """One query a sequence against keys and values in pages (PAGE, HEADS, D); a program takes the GROUP queries of one head of keys, in a tile of 16."""
    sequence, head = tl.program_id(0), tl.program_id(1)
    g, d = tl.arange(0, 16), tl.arange(0, D)
    at = (sequence * HEADS + head) * GROUP * D + g[:, None] * D + d[None, :]
    query = tl.load(q + at, mask=(g < GROUP)[:, None], other=0.0)
    length = tl.load(lengths + sequence)
    most = tl.full((16,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((16,), dtype=tl.float32)
    acc = tl.zeros((16, D), dtype=tl.float32)
    for first in range(0, length, BN):
        n = first + tl.arange(0, BN)
        inside = n < length
        page = tl.load(table + sequence * pages + n // PAGE, mask=inside, other=0).to(tl.int64)
        where = (page * PAGE + n % PAGE) * (HEADS * D) + head * D
        k = tl.load(keys + where[None, :] + d[:, None], mask=inside[None, :], other=0.0)
        score = tl.where(inside[None, :], tl.dot(query, k) * scale, -float("inf"))
        now = tl.maximum(most, tl.max(score, 1))
        weights = tl.exp2(score - now[:, None])
        faded = tl.exp2(most - now)
        v = tl.load(values + where[:, None] + d[None, :], mask=inside[:, None], other=0.0)
        acc = tl.dot(weights.to(tl.float16), v, acc * faded[:, None])
        total = total * faded + tl.sum(weights, 1)
        most = now
    tl.store(out + at, (acc / total[:, None]).to(tl.float16), mask=(g < GROUP)[:, None])
