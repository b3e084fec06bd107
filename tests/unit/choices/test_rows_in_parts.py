"""Few very long rows on GPUs: reductions by parts, a kernel each, and the result by all units."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import tec
from tec.graph import Graph
from tests import seeds

AMD = "rocm -mcpu=gfx942"


def rows(op: str, shape: tuple[int, int], dtype: str) -> Graph:
    g = Graph()
    x = g.input("x", dtype, shape)
    y = g.add("layer_norm", [x], {"axis": 1, "epsilon": 1e-5}) if op == "layer_norm" else g.add(op, [x], {"axes": (1,)})
    g.set_outputs([y[0]], ["y"])
    return g


def wanted(op: str, x: Any) -> Any:
    if op == "layer_norm":
        return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def choice(net: Any) -> Any:
    (made,) = net.report.choices.values()
    return made["choice"]


@pytest.mark.parametrize("seed", seeds.some(3))
def test_drawn_rows(seed: int) -> None:
    rng = random.Random(seed)
    op, dtype = rng.choice(("layer_norm", "softmax")), rng.choice(("float32", "float16"))
    shape = rng.choice((1, 2, 3)), rng.choice((90001, 90090, 131072))
    net = tec.compile(rows(op, shape, dtype), target=AMD)
    assert choice(net)["template"] == "gpu rows" and choice(net)["parts"] > 1
    x = np.random.default_rng(seed).standard_normal(shape).astype(dtype) * 2 + 1
    (y,) = net.run([x], device=tec.rocm_emu("gfx942"))
    want = wanted(op, x.astype("f8"))
    assert abs(y - want).max() <= (2e-3 if dtype == "float16" else 1e-6) * abs(want).max()


def test_many_or_short_rows_stay_whole() -> None:
    """A work-group a row, where these are enough for the units, or where another launch takes longer than a row."""
    for shape in ((2000, 32768), (2, 1024)):
        assert choice(tec.compile(rows("softmax", shape, "float16"), target=AMD))["parts"] == 1


def test_one_row_on_other_gpus() -> None:
    for target in ("cuda -arch=sm_90a", "rocm -mcpu=gfx1100"):
        net = tec.compile(rows("layer_norm", (1, 1 << 22), "float32"), target=target)
        assert choice(net)["parts"] >= 16
