"""Loops that load ahead of their iterations without a product in them."""

from __future__ import annotations

import numpy as np
import pytest

import tec.tile
import tec.tile as tl

from .nvidia import interpreted

AMPERE = "cuda -arch=sm_80"


@tec.tile.jit
def softmax(out, x, scale, stride, rows, columns, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        at = tl.arange(0, BLOCK)
        mask = at < columns
        v = tl.load(x + row * stride + at, mask=mask, other=-float("inf")) * tl.load(scale + row)
        e = tl.exp(v - tl.max(v, axis=0))
        tl.store(out + row * stride + at, e / tl.sum(e, axis=0), mask=mask)


@pytest.mark.parametrize(("columns", "stages"), [(100, 3), (128, 4), (64, 2)])
def test_rows_ahead_of_their_turn(columns: int, stages: int) -> None:
    rows = 7
    x = np.random.default_rng(columns).standard_normal((rows, columns)).astype(np.float32)
    scale, out = np.arange(1, rows + 1).astype(np.float32), np.zeros_like(x)
    constants = {"BLOCK": 128, "STAGES": stages, "num_warps": 1}
    interpreted(softmax, AMPERE, (2,), out, x, scale, columns, rows, columns, **constants)
    e = np.exp(x * scale[:, None] - (x * scale[:, None]).max(1, keepdims=True))
    np.testing.assert_allclose(out, e / e.sum(1, keepdims=True), rtol=1e-5)


def test_copies_go_ahead_where_the_author_asks_for_it() -> None:
    types = ["*fp32:16"] * 3 + ["i32:16"] * 3
    ahead = softmax.asm(AMPERE, *types, BLOCK=1024, STAGES=4, num_warps=8)
    assert ahead.count("cp.async.cg.shared.global") == 4 and "cp.async.wait_group \t2" in ahead
    assert "cp.async" not in softmax.asm(AMPERE, *types, BLOCK=1024, STAGES=1, num_warps=8)
