"""Sums around axes that stay: in two steps where prices say that these take less, with the same results, and in one elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec
from tec.graph.graph import Graph
from tec.graph.passes import separate_sums as module
from tec.graph.passes.separate_sums import separate_sums
from tec.target import Target

CHIP = "rocm -mcpu=gfx90a"


def graph(op: str, dtype: str, shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool = False) -> Graph:
    g = Graph()
    (y,) = g.add(op, [g.input("x", dtype, shape)], {"axes": axes, "keepdims": keepdims}, "y")
    g.set_outputs([y], ["y"])
    return g


def ops(g: Graph, target: str = CHIP) -> list[str]:
    return [n.op for n in separate_sums(g, Target(target)).nodes]


@pytest.mark.parametrize("op, numpy", [("sum", np.sum), ("mean", np.mean), ("max", np.max), ("min", np.min)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_results_are_the_same(op: str, numpy: Any, keepdims: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_pays", lambda *_: True)  # of sums that are small enough to be run here
    g = graph(f"reduce_{op}", "float16", (64, 150, 1, 3), (0, -1), keepdims)
    assert ops(g).count(f"reduce_{op}") == 2
    x = np.random.default_rng(2).standard_normal((64, 150, 1, 3)).astype("float16")
    net = tec.compile(g, target=CHIP, cache=False)
    (got,) = net.run({"x": x}, device=tec.rocm_emu("gfx90a", check="race,init"))
    want = numpy(x.astype("f8"), axis=(0, 3), keepdims=keepdims)
    assert got.dtype == np.float16 and got.shape == want.shape
    np.testing.assert_allclose(got.astype("f8"), want, rtol=2e-3, atol=2e-2)


@pytest.mark.parametrize("op, each", [("sum_square", np.square), ("sum_abs", np.abs)])
def test_what_is_done_with_each_element_is_done_once(op: str, each: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_pays", lambda *_: True)
    g = graph(f"reduce_{op}", "float32", (40, 200, 3), (0, 2))
    assert ops(g) == [f"reduce_{op}", "reduce_sum", "reshape"]
    x = np.random.default_rng(3).standard_normal((40, 200, 3)).astype("float32")
    (got,) = tec.compile(g, target=CHIP, cache=False).run({"x": x}, device=tec.rocm_emu("gfx90a"))
    np.testing.assert_allclose(got, each(x.astype("f8")).sum(axis=(0, 2)), rtol=1e-5)


def test_prices_ask_for_two_steps() -> None:
    """One step takes 60.8 us by the time model, two 19.6."""
    assert ops(graph("reduce_sum", "float16", (821, 2777, 3), (0, 2))).count("reduce_sum") == 2


@pytest.mark.parametrize("why, op, shape, axes, target", [
    ("runs are most of a line", "reduce_sum", (821, 2777, 24), (0, 2), CHIP),
    ("rows alone", "reduce_sum", (821, 2777, 3), (2,), CHIP),
    ("columns alone", "reduce_sum", (821, 2777, 3), (0,), CHIP),
    ("the axes lie beside each other", "reduce_sum", (2777, 821, 3), (1, 2), CHIP),
    ("a second launch is longer", "reduce_sum", (64, 150, 3), (0, 2), CHIP),
    ("products would overflow", "reduce_prod", (821, 2777, 3), (0, 2), CHIP),
    ("a CPU", "reduce_sum", (821, 2777, 3), (0, 2), "llvm"),
    ("a clock judges", "reduce_sum", (821, 2777, 3), (0, 2), "cuda -arch=sm_90a"),
])  # fmt: skip
def test_one_step_serves(why: str, op: str, shape: tuple[int, ...], axes: tuple[int, ...], target: str) -> None:
    assert ops(graph(op, "float16", shape, axes), target) == [op], why
