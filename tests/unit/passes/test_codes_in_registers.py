"""Fills of shared memory that compute what they store from words of codes: a step's words wait in registers, and are unpacked when they are stored."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tec
from tec.choices import spaces
from tec.ops.packed import Weights
from tec.ops.registry import TensorType, get_op


@pytest.mark.parametrize(
    ("chip", "bits", "block", "zeros", "n"),
    [("gfx942", 8, 192, False, 128), ("gfx942", 4, 32, True, 100), ("gfx1100", 8, 32, False, 100)],
)
def test_words_are_held(chip: str, bits: int, block: int, zeros: bool, n: int) -> None:
    m, k, rng, target = 70, 192, np.random.default_rng(bits), tec.Target(f"rocm -mcpu={chip}")
    attrs = {"bits": bits, "block": block, "panel": 0, "depth": k, "columns": n, "zero": float(1 << (bits - 1)), "format": ""}  # fmt: skip
    codes, scale = rng.integers(0, 1 << bits, (n, k)).astype("u1"), (rng.random((n, k // block)) + 0.5).astype("f2")
    x = rng.standard_normal((m, k)).astype("f2")
    zero = rng.integers(0, 1 << bits, scale.shape).astype("u1") if zeros else np.full(scale.shape, 1 << (bits - 1), "u1")  # fmt: skip
    arrays = [x, Weights.of(attrs).store(codes), scale, *([zero] if zeros else [])]
    types = [TensorType(str(a.dtype), a.shape) for a in arrays]
    ins = [tec.te.placeholder(t.shape, t.dtype, name=f"x{i}") for i, t in enumerate(types)]
    op = get_op("packed_matmul")
    outs = op.compute(attrs, list(ins), op.infer(types, attrs))
    space = next(s for s in spaces(outs, target) if s.template == "matrix product")
    made = space.build(space.default)
    (lowered,) = tec.lower(made.schedule, [*ins, *made.outputs], target=target)
    # What moves with the step, under way as it lies in memory: words of codes, and scales of short blocks.
    assert re.search(r"x1_next = alloc\(.*u?int32", str(lowered)) and "right_next" not in str(lowered)
    assert ("x2_next" in str(lowered)) == (block < k)
    stored = [line for line in str(lowered).splitlines() if re.match(r"\s*right\[", line)]
    assert any("x1_next" in line for line in stored) and not any("x1[" in line for line in stored[1:])
    f, dev = tec.build(made.schedule, [*ins, *made.outputs], target, name="f"), tec.rocm_emu(chip, check="all")
    got = tec.nd.empty((m, n), "float16", dev)
    f(*[tec.nd.array(a, dev) for a in arrays], got)
    weights = (codes - np.repeat(zero, block, 1).astype("f8")) * np.repeat(scale, block, 1).astype("f8")
    want = x.astype("f8") @ weights.T
    np.testing.assert_allclose(got.numpy(), want, rtol=0, atol=2e-3 * np.abs(want).max())
