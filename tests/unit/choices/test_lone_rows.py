"""Batched products of one or two rows on a CPU: few columns at once, and sums that do not wait for each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec
from tec.graph import Graph


def product(batch: int, m: int, n: int, k: int, target: str = "llvm") -> Any:
    g = Graph("g")
    a, b = g.input("a", "float32", (batch, m, k)), g.input("b", "float32", (batch, k, n))
    g.set_outputs(g.add("matmul", [a, b], {}), ["y"])
    return tec.compile(g, target=target, cache=False)


@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize("n", [4, 8, 20, 24, 36, 40, 44, 50])
def test_few_columns(m: int, n: int) -> None:
    rng = np.random.default_rng(n)
    a, b = rng.standard_normal((3, m, 36), np.float32), rng.standard_normal((3, 36, n), np.float32)
    np.testing.assert_allclose(product(3, m, n, 36).run({"a": a, "b": b})[0], a @ b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("cpu", "n"), [("haswell", 16), ("znver4", 8)])
def test_a_lone_sum_goes_by_several(cpu: str, n: int) -> None:
    """A multiply-add a step waits for the one before: four sums take half the time."""
    asm = product(64, 1, n, 256, f"llvm -mcpu={cpu}").get_source("asm")
    assert "vfmadd" in asm and asm.count("vaddps") >= 3  # what adds them up


@pytest.mark.parametrize("n", [20, 24, 36])
def test_sums_of_a_lone_row_stay_vectors(n: int) -> None:
    """Of three vectors, or five, LLVM kept the sums element by element where they were stored as one value."""
    asm = product(64, 1, n, 256, "llvm -mcpu=znver4").get_source("asm")
    assert "vfmadd" in asm and "vinsertps" not in asm


def test_a_batch_of_small_products_goes_over_threads() -> None:
    assert "parallel(" in product(64, 8, 32, 64, "llvm -mcpu=znver4").get_source("ir")
    assert "parallel(" not in product(2, 8, 32, 16, "llvm -mcpu=znver4").get_source("ir")
