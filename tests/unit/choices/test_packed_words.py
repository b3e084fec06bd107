"""Products of narrow elements in words of 32 bits, on chips whose vector units have dot products: against NumPy on the software GPU, in drawn sizes, orders and choices."""

from __future__ import annotations

import random
from typing import Any

import ml_dtypes
import numpy as np

import tec
from tec.choices import spaces
from tec.ops.registry import TensorType, get_op
from tests import seeds
from tests.thinned import thinned_rows

STORED = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "int8": np.int8, "uint8": np.uint8}
WORD = {"float16": "v_dot2", "int8": "v_dot4", "uint8": "v_dot4", "bfloat16": "v_fma"}  # v_fmac and v_fma


def _values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    if dtype in ("int8", "uint8"):
        low, high = (-128, 128) if dtype == "int8" else (0, 256)
        return rng.integers(low, high, shape).astype(STORED[dtype])
    return rng.standard_normal(shape, dtype=np.float32).astype(STORED[dtype])


@thinned_rows(2, "dtype", list(STORED))
def test_against_numpy(dtype: str) -> None:
    rng = random.Random(seeds.stream(f"packed words {dtype}"))
    chip, (m, n), k = rng.choice(("gfx1030", "gfx906")), (rng.randint(32, 70), rng.randint(32, 70)), rng.randint(20, 90)
    left, right = rng.random() < 0.5, rng.random() < 0.5
    types = [TensorType(dtype, s) for s in ((k, m) if left else (m, k), (n, k) if right else (k, n))]
    xs = [tec.te.placeholder(t.shape, dtype, name=f"x{i}") for i, t in enumerate(types)]
    op, attrs = get_op("matmul"), {"transpose_a": left, "transpose_b": right}
    outs = op.compute(attrs, list(xs), op.infer(types, attrs))
    target = tec.Target(f"rocm -mcpu={chip}")
    space = spaces(outs, target)[0]
    assert space.template == "blocked product"
    small = [c for c in space.all if (c["block"], c["step"]) == ("4x4", 8) and c["rows"] * c["columns"] <= 2048]
    chosen = space.apply(rng.choice(small))
    f = tec.build(chosen.schedule, [*xs, *chosen.outputs], target, name="product")
    assert WORD[dtype] in f.imported_modules[0].get_source("asm")
    dev, data = tec.rocm_emu(chip, check="all"), np.random.default_rng(rng.randrange(2**31))
    a, b = (_values(data, t.shape, dtype) for t in types)
    out = tec.nd.empty((m, n), outs[0].dtype, dev)
    f(tec.nd.array(a, dev), tec.nd.array(b, dev), out)
    x, y = a.astype("f8"), b.astype("f8")
    want = (x.T if left else x) @ (y.T if right else y)
    got = np.asarray(out.numpy()).astype("f8")
    tolerance = {"float16": 2e-3, "bfloat16": 1e-2}.get(dtype, 0.0)
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * np.abs(want).max())
