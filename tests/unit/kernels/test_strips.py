"""Blocks of short rows run as one wide block on a CPU: every element is made once, at edges too, and none that no thread of the launch has."""

import numpy as np
import pytest

import tec
from tests import seeds

F = np.float32


@tec.kernel
def stencil(u, v):
    j, i = tec.grid_idx(2)
    if 0 < i < u.shape[0] - 1 and 0 < j < u.shape[1] - 1:
        v[i, j] += u[i - 1, j] + u[i, j - 1] - F(2) * u[i, j] + u[i + 1, j] + u[i, j + 1]


@tec.kernel
def shifted(u, v, left):
    j, i = tec.grid_idx(2)
    if i < v.shape[0] and left <= j < v.shape[1]:
        v[i, j] += u[i, j - left]


def numbers(*shape):
    return np.random.default_rng(3).integers(-9, 9, shape).astype(F)


@pytest.mark.parametrize("block", [(16, 4), (8, 8), (100, 2), (16, 1)], ids=str)
@pytest.mark.parametrize("shape", [(3, 3), (20, 260), (17, 515), (9, 1200)], ids=str)
def test_edges_of_strips(block, shape):
    u, v = numbers(*shape), numbers(*shape)
    want = v.copy()
    want[1:-1, 1:-1] += u[:-2, 1:-1] + u[1:-1, :-2] - 2 * u[1:-1, 1:-1] + u[2:, 1:-1] + u[1:-1, 2:]
    grid = tuple(-(-n // b) for n, b in zip(shape[::-1], block))
    stencil[grid, block](u, v)
    np.testing.assert_array_equal(v, want)


@pytest.mark.parametrize("left", [0, 1, 300, 700])
def test_an_edge_within_a_strip(left):
    u, v = numbers(7, 700), numbers(7, 700)
    want = v.copy()
    want[:, left:] += u[:, : 700 - left]
    shifted[(44, 1), (16, 8)](u, v, left)
    np.testing.assert_array_equal(v, want)


@tec.kernel
def by_tiles(u, v):
    """Threads that their place in the grid does not tell alone."""
    x, y = tec.thread_idx.x, tec.thread_idx.y
    v[tec.block_idx.y, tec.block_idx.x, y, x] += u[tec.block_idx.y * 4 + y, tec.block_idx.x * 16 + x]


@pytest.mark.parametrize("grid", [(1, 1), (3, 2), (64, 1), (65, 3), (130, 2)], ids=str)
@pytest.mark.parametrize("block", [(16, 4), (100, 2), (512, 1), (513, 1)], ids=str)
def test_grids_that_are_smaller_than_the_arrays(grid, block):
    u, v = numbers(9, 2100), numbers(9, 2100)
    want = v.copy()
    part = (slice(0, min(9, grid[1] * block[1])), slice(0, min(2100, grid[0] * block[0])))
    want[part] += u[part]
    shifted[grid, block](u, v, 0)
    np.testing.assert_array_equal(v, want)


def test_tiles():
    u, v = numbers(8, 640), numbers(2, 40, 4, 16)
    want = v + u.reshape(2, 4, 40, 16).transpose(0, 2, 1, 3)
    by_tiles[(40, 2), (16, 4)](u, v)
    np.testing.assert_array_equal(v, want)


@pytest.mark.parametrize("seed", seeds.some(6))
def test_drawn_windows(seed):
    """A window of the array, of drawn blocks and grids; in place, and where both arrays are one."""
    rng = np.random.default_rng(seed)
    block = (int(rng.choice([4, 16, 24, 64, 250])), int(rng.choice([1, 2, 4])))
    grid = (int(rng.integers(1, 90)), int(rng.integers(1, 5)))
    rows, columns = int(rng.integers(1, 18)), int(rng.integers(1, 2500))
    low, high = sorted(int(x) for x in rng.integers(0, columns + 1, 2))
    u = numbers(rows, columns)
    for v in (numbers(rows, columns), u):
        reached = (slice(0, min(rows, grid[1] * block[1])), slice(low, max(low, min(high, grid[0] * block[0]))))
        want = v.copy()
        want[reached] += 2 * u[reached]
        window[grid, block](u, v, low, high)
        np.testing.assert_array_equal(v, want)


@tec.kernel
def window(u, v, low, high):
    j, i = tec.grid_idx(2)
    if i < v.shape[0] and low <= j and j < high:
        v[i, j] += F(2) * u[i, j]
