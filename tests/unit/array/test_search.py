"""searchsorted of drawn tables beside NumPy's: lengths around powers of two, NaN and infinities, both sides, with a sorter and without."""

from __future__ import annotations

import numpy as np
import pytest

import tec
import tec.array as xp
from tests import seeds

DTYPES = ("float32", "float64", "float16", "int64", "int32", "uint8")


def _drawn(rng: np.random.Generator, n: int, dtype: str) -> np.ndarray:
    values = (rng.standard_normal(n) * 20).astype(dtype)
    if dtype.startswith("float") and n:
        odd = rng.random(n)
        values[odd < 0.1], values[odd > 0.95] = np.nan, np.inf
    return values


@pytest.mark.parametrize("emu", [False, True])
@pytest.mark.parametrize("seed", seeds.some(6))
def test_places_in_a_sorted_table(seed: int, emu: bool) -> None:
    rng = np.random.default_rng(seed)
    device = tec.rocm_emu("gfx942", check="all") if emu else None
    for _ in range(3 if emu else 12):
        dtype, n = str(rng.choice(DTYPES)), int(rng.choice([1, 2, 3, 7, 8, 9, 63, 64, 65, 200]))
        table, sought = _drawn(rng, n, dtype), _drawn(rng, int(rng.integers(1, 40)), dtype)
        order = np.argsort(table, kind="stable")
        t, q = xp.asarray(table, device=device), xp.asarray(sought, device=device)
        ordered, sorter = xp.asarray(table[order], device=device), xp.asarray(order, device=device)
        for side in ("left", "right"):
            want = np.searchsorted(table, sought, side=side, sorter=order)
            np.testing.assert_array_equal(xp.searchsorted(ordered, q, side=side).numpy(), want)
            np.testing.assert_array_equal(xp.searchsorted(t, q, side=side, sorter=sorter).numpy(), want)
