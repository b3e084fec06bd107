"""Vectors of float16 on an x86 CPU without arithmetic for them are widened in registers, and conversions to integers stay vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec
from tec import te

N = 64


def build(make: Any, dtype: str, target: str = "llvm") -> Any:
    a = te.placeholder((N,), dtype, name="A")
    b = te.compute((N,), lambda i: make(a[i]), name="B")
    return tec.build(tec.create_schedule(b.op), [a, b], target, name="f")


@pytest.mark.parametrize(
    "make",
    [lambda x: te.max(x, te.const(0, "float16")), lambda x: te.maximum(x, te.const(1, "float16")), lambda x: x * x + x],
)
def test_half_arithmetic_is_that_of_vectors(make: Any) -> None:
    asm = build(make, "float16", "llvm -mcpu=znver4").get_source("asm")
    assert "vcvtph2ps" in asm and not any(word in asm for word in ("vmaxss", "vminss", "vucomiss", "vpunpcklwd"))


@pytest.mark.parametrize("to", ["int8", "uint8", "int16", "uint16", "int32"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_saturating_conversions(dtype: str, to: str) -> None:
    """As vectors in the code, and with NaN, infinities and what is beyond either end as one by one."""
    assert "vcvttss2si" not in build(lambda x: x.astype(to), dtype, "llvm -mcpu=znver4").get_source("asm")
    info = np.iinfo(to)
    odd = [np.nan, np.inf, -np.inf, 0.0, -0.0, -0.9, 0.9, -1.0, 1e-30, -1e-30, float(info.max), float(info.min)]
    near = [float(info.max) + k for k in (-1.5, -0.5, 0.5, 1.0, 128.0)] + [
        float(info.min) + k for k in (-1.0, -0.5, 0.5, 1.5)
    ]
    with np.errstate(over="ignore"):
        x = np.resize(np.array([*odd, *near, 2.0**31, 2147483520.0, -(2.0**31), 3e9, -3e9]), N).astype(dtype)
    got = tec.nd.empty((N,), to)
    build(lambda v: v.astype(to), dtype)(tec.nd.array(x), got)
    wide = np.nan_to_num(x.astype("f8"), nan=0.0, posinf=1e300, neginf=-1e300)
    want = np.trunc(np.clip(wide, float(info.min), float(info.max))).astype(to)
    np.testing.assert_array_equal(got.numpy(), want)
