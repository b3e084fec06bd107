"""Machine code of tensorized products on the software GPU: an independent reading of the matrix units' layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec
from tec.errors import TecError
from tec.target import Target

from .test_matrix_units import product, scheduled


def run_emulated(chip: str, **kwargs: Any) -> None:
    target = Target(f"rocm -mcpu={chip}")
    args, c, out = product(**kwargs)
    module = tec.build(scheduled(target, args, c, out), args, target, name="mm")
    try:
        dev = tec.rocm_emu(chip)
    except TecError as error:
        pytest.skip(str(error))
    rng = np.random.default_rng(0)
    values = [rng.integers(-4, 5, [int(d.value) for d in t.shape]) for t in args]
    want = values[0] @ values[1].swapaxes(-1, -2) + (values[2] if kwargs.get("epilogue") else 0)
    values[-1][...] = 0
    arrays = [tec.nd.array(v.astype(t.dtype), dev) for v, t in zip(values, args)]
    module(*arrays)
    dev.sync()
    np.testing.assert_array_equal(arrays[-1].numpy().astype("float64"), want)


@pytest.mark.parametrize("chip", ["gfx90a", "gfx942", "gfx1100", "gfx1201"])
def test_float16(chip: str) -> None:
    run_emulated(chip, m=64, n=64, k=128)


@pytest.mark.parametrize(
    ("chip", "dtype"), [("gfx942", "int8"), ("gfx942", "float32"), ("gfx1100", "int8"), ("gfx942", "float64")]
)
def test_other_types(chip: str, dtype: str) -> None:
    run_emulated(chip, m=64, n=64, k=128, dtype=dtype)


def test_edges_and_epilogue() -> None:
    run_emulated("gfx942", m=70, n=100, k=64, epilogue="float16")
