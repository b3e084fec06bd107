"""topi.image beside the formulas of its docstrings."""

from __future__ import annotations

import numpy as np
import pytest

from tec import te, topi
from tec.errors import ExprError

RNG = np.random.default_rng(8)


def places(maps, rows, columns):
    y, x = np.linspace(-1, 1, rows), np.linspace(-1, 1, columns)
    ones = np.ones((rows, columns))
    return np.einsum("nkc,cij->nkij", maps, np.stack([ones * x[None], ones * y[:, None], ones]))


def test_affine_grid():
    M = te.placeholder((3, 2, 3), name="M")
    maps = RNG.standard_normal((3, 2, 3)).astype("float32")
    (got,) = te.evaluate([topi.image.affine_grid(M, (4, 6))], {M: maps})
    np.testing.assert_allclose(got, places(maps, 4, 6), rtol=1e-5, atol=1e-6)


def sampled(x, grid):
    """Bilinear, zeros outside, the middles of the outermost pixels at -1 and 1."""
    n, c, rows, columns = x.shape
    out = np.zeros((n, c, *grid.shape[2:]))
    at = (grid[:, 0] + 1) / 2 * (columns - 1), (grid[:, 1] + 1) / 2 * (rows - 1)
    for b, i, j in np.ndindex(n, *grid.shape[2:]):
        px, py = at[0][b, i, j], at[1][b, i, j]
        for dy in (0, 1):
            for dx in (0, 1):
                u, v = int(np.floor(px)) + dx, int(np.floor(py)) + dy
                if 0 <= u < columns and 0 <= v < rows:
                    out[b, :, i, j] += x[b, :, v, u] * (1 - abs(px - u)) * (1 - abs(py - v))
    return out


def test_grid_sample_turns_and_shifts_a_picture():
    X, G = te.placeholder((2, 3, 5, 7), name="X"), te.placeholder((2, 2, 4, 6), name="G")
    x = RNG.standard_normal((2, 3, 5, 7)).astype("float32")
    maps = np.float32([[[0.8, -0.3, 0.1], [0.2, 0.9, -0.2]], [[1.3, 0.0, 0.4], [0.0, -1.0, 0.0]]])
    grid = places(maps, 4, 6).astype("float32")
    (got,) = te.evaluate([topi.image.grid_sample(X, G)], {X: x, G: grid})
    np.testing.assert_allclose(got, sampled(x, grid), rtol=1e-4, atol=1e-4)


def test_what_grid_sample_refuses():
    X, G = te.placeholder((1, 3, 5, 7), name="X"), te.placeholder((1, 2, 4, 6), name="G")
    with pytest.raises(ExprError, match="layout NHWC"):
        topi.image.grid_sample(X, G, layout="NHWC")
    with pytest.raises(ExprError, match="method='area'"):
        topi.image.grid_sample(X, G, method="area")
