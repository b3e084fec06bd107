"""Reductions on a CPU across rows that are no multiple of a vector: the last block of a row begins earlier, and no step goes through memory under a mask."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec.choices import schedule
from tec.ops.registry import TensorType, get_op

AVX2 = "llvm -mcpu=haswell"


def built(op, shape, axis, target, dtype="float32"):
    x, definition = tec.te.placeholder(shape, dtype, name="x"), get_op(op)
    attrs = {"axes": (axis,), "keepdims": False}
    made = schedule(definition.compute(attrs, [x], definition.infer([TensorType(dtype, shape)], attrs)), tec.Target(target))  # fmt: skip
    return tec.build(made.schedule, [x, *made.outputs], target, name="f")


@pytest.mark.parametrize(
    "shape, axis", [((2, 5, 43, 142), 2), ((2, 5, 43, 144), 2), ((4, 301, 77), 1), ((3, 64, 33, 57), 2)]
)
def test_no_masks(shape, axis):
    code = built("reduce_max", shape, axis, AVX2).get_source("asm")
    assert "vmaxps" in code and "maskmov" not in code


@pytest.mark.parametrize("op, f", [("reduce_max", np.max), ("reduce_sum", np.sum)])
@pytest.mark.parametrize("dtype", ["float32", "int8", "float64"])
def test_values(op, f, dtype):
    rng = np.random.default_rng(3)
    for _ in range(4):
        shape = tuple(int(v) for v in (rng.integers(1, 4), rng.integers(2, 40), rng.integers(1, 150)))
        axis = int(rng.integers(0, 2))
        x = (rng.normal(size=shape) * 3).astype(dtype)
        f_tec = built(op, shape, axis, "llvm", dtype)
        out = tec.nd.empty(f(x, axis).shape, dtype)
        f_tec(tec.nd.array(x), out)
        np.testing.assert_allclose(out.numpy(), f(x, axis, dtype=dtype) if op == "reduce_sum" else f(x, axis), rtol=1e-5, atol=1e-5)  # fmt: skip
