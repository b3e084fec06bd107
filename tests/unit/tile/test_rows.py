"""Tiles on a CPU: loads where they are used, several chains of partial results, vectors beyond a row; sums of 2 bytes."""

from __future__ import annotations

import numpy as np
import pytest

import tec
import tec.tile
import tec.tile as tl


@tec.tile.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * columns + at, mask=at < columns, other=-float("inf"))
    e = tl.exp(row - tl.max(row, axis=0))
    tl.store(out + tl.program_id(0) * columns + at, e / tl.sum(e, axis=0), mask=at < columns)


@tec.tile.jit
def two_sums(x, y, sums, rows, columns, R: tl.constexpr, C: tl.constexpr):
    r, c = tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    inside = (r < rows) & (c < columns)
    a = tl.load(x + r * columns + c, mask=inside, other=1.0)
    e = tl.exp(a) + tl.where(inside, a * a, 2.0)
    tl.store(y + c * rows + r, tl.trans(tl.trans(e)), mask=inside)  # down the columns of y
    tl.store(sums + tl.arange(0, R), tl.sum(e, 1))


@tec.tile.jit
def written_between(x, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(x + at, a + 1.0, mask=at < n)
    tl.store(x + BLOCK + at, a, mask=at < n)  # what was there before the store


@pytest.mark.parametrize("columns", [1, 15, 16, 97, 128, 300])
def test_rows_shorter_than_tiles(columns: int) -> None:
    x = np.random.default_rng(columns).standard_normal((3, columns)).astype(np.float32)
    out = np.zeros_like(x)
    softmax[(3,)](x, out, columns, BLOCK=512)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, e / e.sum(1, keepdims=True), rtol=1e-5)


def test_what_a_mask_leaves_out_is_summed_too() -> None:
    rows, columns = 3, 37
    x = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32)
    y, sums = np.zeros((columns, rows), np.float32), np.zeros(4, np.float32)
    two_sums[(1,)](x, y, sums, rows, columns, R=4, C=128)
    e = np.full((4, 128), np.float32(np.exp(1.0) + 2.0))
    e[:rows, :columns] = np.exp(x) + x * x
    np.testing.assert_allclose(y, e[:rows, :columns].T, rtol=1e-5)
    np.testing.assert_allclose(sums, e.sum(1), rtol=1e-5)


def test_what_is_written_in_between_is_read_first() -> None:
    x = np.arange(64, dtype=np.float32)
    written_between[(1,)](x, 30, BLOCK=32)
    np.testing.assert_array_equal(x[:30], np.arange(30) + 1)
    np.testing.assert_array_equal(x[32:62], np.arange(30))


def test_what_a_row_costs() -> None:
    """The row is not copied, four sums go side by side, and no exponential is computed for a vector beyond the row."""
    text = softmax.ir("*fp32", "*fp32", "i32", BLOCK=1024, what="loops")
    assert "loaded = alloc" not in text and 'part = alloc((64,), "float32"' in text
    assert "beyond: float32 = exp(" in text
    whole = softmax.ir("*fp32:16", "*fp32:16", "i32:16", BLOCK=1024, what="loops")
    assert "r0 * 16 + v0 <" not in whole  # one condition for a vector


@tec.tile.jit
def counted(x, total):
    tl.atomic_add(total, tl.load(x))


def test_a_sum_of_two_bytes_alone_in_its_memory() -> None:
    """The chip exchanges the word around it."""
    dev = tec.rocm_emu("gfx942", check="all")
    one, total = (tec.nd.array(np.full(1, v, np.float16), dev) for v in (1, 0))
    counted[(4,)](one, total, num_warps=1)
    assert total.numpy() == [4]


@tec.tile.jit
def window(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row, column, lane = at // 256 % 16, at // 16 % 16, at % 16
    total = tl.zeros((BLOCK,), tl.float32)
    for i in tl.static_range(3):
        for j in tl.static_range(3):
            r, c = 2 * row + i - 1, 2 * column + j - 1
            inside = (r >= 0) & (r < 32) & (c >= 0) & (c < 32)
            total += tl.load(x + r * 512 + c * 16 + lane, mask=inside, other=0.0)
    tl.store(out + at, total)


def test_windows_over_the_edges_of_a_picture() -> None:
    x = np.random.default_rng(0).random((32, 32, 16), np.float32)
    out = np.zeros((16, 16, 16), np.float32)
    window[(16,)](x, out, BLOCK=256)
    padded = np.pad(x, ((1, 1), (1, 1), (0, 0)))
    want = sum(padded[i : i + 32 : 2, j : j + 32 : 2] for i in range(3) for j in range(3))
    np.testing.assert_allclose(out, want, rtol=1e-5)


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_softmax_of_rows_with_a_stride_on_a_gpu(chip: str) -> None:
    """The place of an element is a sum in int64, whose thread's quotient by the tile is 0 within it."""
    dev = tec.rocm_emu(chip)
    x = np.random.default_rng(5).standard_normal((3, 100)).astype("f")
    out = tec.nd.empty(x.shape, "float32", dev)
    softmax[(3,)](tec.nd.array(x, dev), out, 100, 128)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(out.numpy(), e / e.sum(1, keepdims=True), 1e-5)
