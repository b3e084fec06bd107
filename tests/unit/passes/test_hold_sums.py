"""Sums in registers are finished ahead of the conditional stores of a ragged tile, on NVIDIA GPUs."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

import tec
from tec import te
from tec.choices import schedule
from tec.ir.interp import run
from tec.ops.contraction import Contraction, Operand

HOPPER = tec.Target("cuda -arch=sm_90a")
TILE = {"template": "blocked product", "rows": 64, "columns": 64, "step": 16, "block": "4x8", "split_k": 1, "stages": 1}


def product(m: int, n: int, k: int) -> tuple[list[Any], list[Any]]:
    a, b = te.placeholder((m, k), "float32", "a"), te.placeholder((k, n), "float32", "b")
    left = Operand(lambda _, i, r: a(i, r), "float32", True, math.gcd(4, k))
    right = Operand(lambda _, j, r: b(r, j), "float32", False, math.gcd(4, n))
    return [a, b], Contraction((), m, n, k, left, right, "float32", "float32").tensors()


def ptx(m: int, n: int, k: int) -> str:
    ins, outs = product(m, n, k)
    made = schedule(outs, HOPPER, TILE)
    text: str = tec.build(made.schedule, [*ins, *made.outputs], HOPPER, name="p").imported_modules[0].get_source("ptx")
    return text


@pytest.mark.parametrize("k", [13, 144])  # in one step without a loop, in several
def test_no_sum_is_left_for_the_branches(k: int) -> None:
    """Behind the first store to global memory, which stands in a branch, nothing is multiplied."""
    text = ptx(70, 94, k)
    branches = text[: text.index("st.global")].rindex("bra")
    assert "fma.rn.f32" in text[:branches] and "fma.rn.f32" not in text[branches:]
    assert len(re.findall(r"st\.global", text)) > 1


def test_whole_tiles_are_left_alone() -> None:
    """Where nothing is stored under a condition LLVM may end sums as it likes."""
    ins, outs = product(128, 128, 64)
    made = schedule(outs, HOPPER, TILE)
    lowered = tec.lower(made.schedule, [*ins, *made.outputs], target=HOPPER)
    assert "computed" not in str(lowered)


def test_the_product_is_numpys() -> None:
    ins, outs = product(70, 70, 20)
    made = schedule(outs, HOPPER, TILE)
    (f,) = tec.lower(made.schedule, [*ins, *made.outputs], target=HOPPER).functions.values()
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((70, 20), "f4"), rng.standard_normal((20, 70), "f4")
    c = np.full((70, 70), np.nan, "f4")
    run(f, [a, b, c], races=True)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)
