"""Atomic operations on 8 and 16 bits on a real NVIDIA GPU, from many blocks at once: the loop around a word, and the instructions for sums of halves."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tec
from tests import seeds

pytestmark = pytest.mark.gpu
BLOCKS, THREADS = 40, 256
SUMS, TOPS, LOWS = 7, 5, 3  # elements that are met: neighbours in a word among them


@tec.kernel
def together(x: Any, sums: Any, tops: Any, lows: Any) -> None:
    i = tec.grid_idx(1)
    tec.atomic_add(sums, i % SUMS, x[i])
    tec.atomic_max(tops, i % TOPS, x[i])
    tec.atomic_min(lows, i % LOWS, x[i])


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "float16", "bfloat16"])
def test_updates_of_many_blocks(dtype: str) -> None:
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    rng = np.random.default_rng(seeds.number())
    # Ones of both signs: partial sums stay whole numbers that every one of these types has.
    x = rng.integers(0 if kind.kind == "u" else -1, 2, BLOCKS * THREADS)
    x[rng.permutation(x.size)[:4]] = 3  # few extremes, which one lost update would miss
    dev = tec.cuda(0)
    sums, tops, lows = (tec.nd.array(np.full(8, v).astype(kind), dev) for v in (0, 0, 9))
    together[BLOCKS, THREADS](tec.nd.array(x.astype(kind), dev), sums, tops, lows)
    want = np.array([x[k::SUMS].sum() for k in range(SUMS)])
    want = want.astype(kind).astype(int) if kind.kind in "ui" else want
    assert sums.numpy().astype(int).tolist() == [*want, 0]
    assert tops.numpy().astype(int).tolist() == [max(0, x[k::TOPS].max()) for k in range(TOPS)] + [0] * 3
    assert lows.numpy().astype(int).tolist() == [x[k::LOWS].min() for k in range(LOWS)] + [9] * 5
