"""Arguments of a launch that are constants: text, functions, types."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest

import tec


@tec.kernel
def applied(x, y, f, mode="plain", dtype=np.float32):
    i = tec.grid_idx(1)
    if i < len(x):
        v = f(x[i])
        y[i] = dtype(max(v, 0) if mode == "relu" else v)


X = np.linspace(-1, 1, 7, dtype=np.float32)


@pytest.mark.parametrize("dev", [tec.cpu(), tec.rocm_emu("gfx942")], ids=str)
def test_text_functions_and_types(dev: Any) -> None:
    def run(*args: Any) -> Any:
        y = tec.nd.empty(X.shape, "float32", dev)
        applied[1, 8](tec.nd.array(X, dev), y, *args)
        return y.numpy()

    np.testing.assert_array_equal(run(lambda v: v * 2, "relu"), np.maximum(X * 2, 0))
    np.testing.assert_array_equal(run(lambda v: v * 2), X * 2)
    np.testing.assert_allclose(run(math.sin), np.sin(X), rtol=1e-6)
    np.testing.assert_array_equal(run(functools.partial(max, 0.5)), np.maximum(X, 0.5))
    np.testing.assert_array_equal(run(lambda v: v * 4, "plain", np.int32), np.trunc(X * 4))


def test_a_function_that_is_made_again_makes_no_new_code() -> None:
    y = np.empty_like(X)

    def times(c: Any) -> Any:
        return lambda v: v * c

    before = len(applied._compiled)
    for c, seen in ((2, 1), (3, 2), (2, 2), (2.0, 3)):
        applied[1, 8](X, y, times(c))
        np.testing.assert_array_equal(y, X * c)
        assert len(applied._compiled) == before + seen, c


def test_code_of_a_kernel_that_reads_text() -> None:
    assert "ret" in applied.asm("float32[:]", "float32[:]", abs, "relu", target="cuda -arch=sm_80")
