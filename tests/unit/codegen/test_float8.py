"""8-bit floats in compiled code: every value widened, roundings to them, arithmetic, against ml_dtypes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tec
from tec import te
from tec.codegen.emit.float_formats import FORMATS
from tests.thinned import thinned

KINDS = {
    "float8_e4m3": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2,
    "float8_e4m3fnuz": ml_dtypes.float8_e4m3fnuz, "float8_e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
}  # fmt: skip
TARGETS = ("llvm -mcpu=x86-64-v2", "rocm -mcpu=gfx942")


def numbers() -> np.ndarray:
    rng = np.random.default_rng(0)
    special = [
        464,
        464.0001,
        448,
        480,
        61440,
        61439,
        1e-10,
        0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        2.0**-9,
        2.0**-10,
        2.0**-17,
        -(2.0**-19),
        247.9999,
        248,
    ]
    parts = [np.arange(-300, 300, 0.25), *(rng.standard_normal(800) * s for s in (100, 0.01, 1e5)), special]
    return np.concatenate(parts).astype(np.float32)


def test_the_largest_number_of_a_format() -> None:
    for name, kind in KINDS.items():
        assert FORMATS[name].largest == float(ml_dtypes.finfo(kind).max)


def compute(target: str, x: np.ndarray, dtype: str, out: str, f: Any) -> np.ndarray:
    a = te.placeholder((len(x),), dtype, name="a")
    b = te.compute((len(x),), lambda i: f(a[i]), name="b")
    s = tec.create_schedule(b.op)
    dev = tec.cpu()
    if target.startswith("rocm"):
        outer, inner = s[b].split(b.op.axis[0], factor=64)
        s[b].bind(outer, te.thread_axis("blockIdx.x"))
        s[b].bind(inner, te.thread_axis("threadIdx.x"))
        dev = tec.rocm_emu("gfx942")
    else:
        s[b].vectorize(s[b].split(b.op.axis[0], factor=4)[1])
    y = tec.nd.empty((len(x),), out, dev)
    tec.build(s, [a, b], target)(tec.nd.array(x, dev), y)
    return np.asarray(y.numpy())


def same(got: np.ndarray, want: np.ndarray) -> None:
    both = np.isnan(got.astype(np.float32)) & np.isnan(want.astype(np.float32))
    np.testing.assert_array_equal(np.where(both, 0, got.view(np.uint8)), np.where(both, 0, want.view(np.uint8)))


@thinned(1, ("target", TARGETS), ("dtype", KINDS))
def test_against_ml_dtypes(dtype: str, target: str) -> None:
    kind = KINDS[dtype]
    every = np.arange(256, dtype=np.uint8).view(kind)
    np.testing.assert_array_equal(
        compute(target, every, dtype, "float32", lambda x: x.astype("float32")), every.astype(np.float32)
    )
    x = numbers()
    with np.errstate(all="ignore"):
        same(compute(target, x, "float32", dtype, lambda v: v.astype(dtype)), x.astype(kind))
        want = ((every.astype(np.float32) * 2).astype(kind).astype(np.float32) + 0.5).astype(kind)
    same(compute(target, every, dtype, dtype, lambda v: v * te.const(2, dtype) + te.const(0.5, dtype)), want)


@pytest.mark.parametrize("dtype", KINDS)
def test_constants(dtype: str) -> None:
    x = numbers()
    with np.errstate(all="ignore"):
        want = x.astype(KINDS[dtype])
    same(np.array([FORMATS[dtype].encode(float(v)) for v in x], np.uint8).view(KINDS[dtype]), want)
    half = np.array([FORMATS["float16"].encode(float(v)) for v in x], np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(half, x.astype(np.float16))
