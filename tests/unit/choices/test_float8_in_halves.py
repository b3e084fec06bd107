"""8-bit floats that a chip's matrix unit does not take go through it as float16."""

from __future__ import annotations

import ml_dtypes
import numpy as np

import tec
from tec import te
from tec.choices import schedule
from tec.ops.registry import TensorType, get_op
from tests.thinned import thinned_rows


@thinned_rows(2, ("chip", "dtype"), [("gfx942", "float8_e4m3"), ("gfx90a", "float8_e5m2"), ("gfx1100", "float8_e4m3")])  # fmt: skip
def test_products(chip: str, dtype: str) -> None:
    target, types = f"rocm -mcpu={chip}", [TensorType(dtype, (128, 256)), TensorType(dtype, (96, 256))]
    xs = [te.placeholder(t.shape, dtype, name=f"x{k}") for k, t in enumerate(types)]
    op, attrs = get_op("matmul"), {"transpose_b": True, "out_dtype": "float32"}
    made = schedule(op.compute(attrs, list(xs), op.infer(types, attrs)), target)
    assert made.choice["template"] == "matrix product"
    rng = np.random.default_rng(0)
    stored = ml_dtypes.float8_e4m3fn if dtype == "float8_e4m3" else ml_dtypes.float8_e5m2
    x, y = (rng.standard_normal(t.shape).astype(stored) for t in types)
    dev = tec.rocm_emu(chip, check="all")
    out = tec.nd.empty((128, 96), "float32", dev)
    tec.build(made.schedule, [*xs, *made.outputs], target)(tec.nd.array(x, dev), tec.nd.array(y, dev), out)
    want = x.astype("f8") @ y.astype("f8").T
    np.testing.assert_allclose(out.numpy(), want, rtol=0, atol=1e-5 * np.abs(want).max())
