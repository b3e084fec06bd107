"""Complex arrays against NumPy: functions, drawn expressions, memory and assignment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec
from tests import seeds

xp = tec.array
ONE = ["exp", "log", "sqrt", "tanh", "asinh", "acos", "square", "reciprocal", "abs", "conj", "sign", "negative"]
REST = ["expm1", "log1p", "log2", "log10", "sin", "cos", "tan", "sinh", "cosh", "asin", "atan", "acosh", "atanh", "real", "imag", "isnan"]  # fmt: skip
TWO = ["add", "subtract", "multiply", "divide", "pow"]


def numbers(rng: Any, dtype: str, *shape: int) -> Any:
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)


def close(got: Any, want: Any, what: str = "") -> None:
    assert got.shape == want.shape and str(got.dtype) == want.dtype.name, what
    limit = 3e-6 if want.dtype.name in ("complex64", "float32") else 1e-13
    np.testing.assert_allclose(got.numpy(), want, rtol=limit, atol=limit, err_msg=what)


def functions(names: list[str], seed: int, device: Any = None) -> None:
    rng = np.random.default_rng(seed)
    dtype = "complex64" if seed % 2 else "complex128"
    a, b = numbers(rng, dtype, 3, 5), numbers(rng, dtype, 5)
    x, y = xp.asarray(a, device=device), xp.asarray(b, device=device)
    for name in names:
        given, own = ([a, b], [x, y]) if name in TWO else ([a], [x])
        close(getattr(xp, name)(*own), getattr(np, name)(*given), name)


def test_functions() -> None:
    k = seeds.first()
    functions([ONE[k % len(ONE)], TWO[(k + 3) % 5]], k)


@pytest.mark.slow
def test_all_functions() -> None:
    for k in range(2):
        functions(ONE + REST + TWO, seeds.first() + k)


@pytest.mark.slow
def test_all_functions_on_the_software_gpu() -> None:
    functions(["exp", "log", "sqrt", *TWO], 1, tec.rocm_emu("gfx942"))


def test_products_shapes_and_assignment() -> None:
    rng = np.random.default_rng(seeds.first(3))
    a, b = numbers(rng, "complex64", 4, 3), numbers(rng, "complex64", 3)
    x, y = xp.asarray(a), xp.asarray(b)
    close(x @ y, a @ b)
    close(xp.vecdot(x, y), np.conj(a) @ b)
    close(xp.sum(x.T[::-1], axis=0), a.T[::-1].sum(0))
    x[1], a[1] = y, b
    x[0, 2], a[0, 2] = 2j, 2j
    close(x[xp.asarray([1, 0])], a[[1, 0]])
    row, kept = x[0], a[0].copy()
    x[0] = 0.0
    close(row, kept)


def test_memory_is_numpys() -> None:
    a = np.asarray([1 + 2j, 3 - 1j], "complex64")
    x = xp.asarray(a) * 2
    assert np.from_dlpack(x).tolist() == (a * 2).tolist() and np.asarray(x).dtype == a.dtype
    assert xp.from_dlpack(a).tolist() == a.tolist()
    assert complex(x[0]) == 2 + 4j


def test_promotion() -> None:
    assert (xp.asarray([1.0], dtype="float64") * xp.asarray([1j])).dtype == "complex128"
    assert (xp.asarray([1.0]) + 1j).dtype == "complex64"
    assert xp.result_type("int32", "complex64") == "complex64" and xp.can_cast("float64", "complex128")
    assert xp.isdtype("complex64", "complex floating") and xp.finfo("complex64").dtype == "float32"
