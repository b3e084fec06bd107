"""Blocks of short rows run as strips on a CPU, a row of the whole strip at a time: every element is made once, at edges too."""

import numpy as np
import pytest

import tec

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
