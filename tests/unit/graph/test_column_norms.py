"""Layer norms along channels of images as they lie: one operator on GPUs whose prices tell, several elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tec
from tec.graph.builders.builder import Builder
from tec.graph.graph import Graph
from tec.graph.optimize import optimize
from tec.graph.passes.column_norms import column_norms
from tec.target import Target

CHIP = "rocm -mcpu=gfx1100"
SHAPE = (2, 40, 6, 7)


def written(shape: tuple[int, ...], axes: tuple[int, ...], dtype: str = "float32", quotient: bool = True) -> Graph:
    """As exporters write one, up to its weights."""
    g = Graph()
    b = Builder(g)
    x = g.input("x", dtype, shape)
    gap = b.op("subtract", x, b.op("reduce_mean", x, axes=axes, keepdims=True))
    spread = b.op("add", b.op("reduce_mean", b.op("square", gap), axes=axes, keepdims=True), b.like(1e-3, x))
    root = b.op("sqrt", spread)
    y = b.op("divide", gap, root) if quotient else b.op("multiply", gap, b.op("reciprocal", root))
    y = b.op("multiply", y, b.like(2.0, x))
    g.set_outputs([y], ["y"])
    return g


def ops(g: Graph, target: str = CHIP) -> list[str]:
    return [n.op for n in column_norms(g, Target(target)).nodes]


@pytest.mark.parametrize("axes", [(1,), (1, 2), (0,), (2,)])
@pytest.mark.parametrize("quotient", [True, False])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_values(axes: tuple[int, ...], quotient: bool, dtype: str) -> None:
    g = written(SHAPE, axes, dtype, quotient)
    net = tec.compile(g, target=CHIP, cache=False)
    assert any("layer_norm" in names for names in net.report.functions.values())
    x = np.random.default_rng(4).standard_normal(SHAPE).astype(dtype)
    (got,) = net.run({"x": x}, device=tec.rocm_emu("gfx1100", check="race,init"))
    wide = x.astype("f8")
    gap = wide - wide.mean(axes, keepdims=True)
    want = 2 * gap / np.sqrt((gap * gap).mean(axes, keepdims=True) + 1e-3)
    np.testing.assert_allclose(
        got.astype("f8"), want, rtol=1e-2 if dtype == "float16" else 1e-4, atol=1e-2 if dtype == "float16" else 1e-4
    )


@pytest.mark.parametrize("why, make, target", [
    ("the last axes are rows, which a rule before has", lambda: written(SHAPE, (2, 3)), CHIP),
    ("axes with others between", lambda: written(SHAPE, (0, 2)), CHIP),
    ("a CPU", lambda: written(SHAPE, (1,)), "llvm"),
    ("a clock judges", lambda: written(SHAPE, (1,)), "cuda -arch=sm_90a"),
])  # fmt: skip
def test_others_stay(why: str, make: Callable[[], Graph], target: str) -> None:
    assert "layer_norm" not in ops(make(), target), why


def test_statistics_that_others_read_stay() -> None:
    """The mean is an output too: the operator stands beside it."""
    g = written(SHAPE, (1,))
    mean = next(n for n in g.nodes if n.op == "reduce_mean").outputs[0]
    g.set_outputs([g.outputs[0], mean], ["y", "mean"])
    net = tec.compile(g, target=CHIP, cache=False)
    x = np.random.default_rng(5).standard_normal(SHAPE).astype("float32")
    got = net.run({"x": x}, device=tec.rocm_emu("gfx1100"))
    np.testing.assert_allclose(got[1], x.mean(1, keepdims=True), rtol=1e-4, atol=1e-5)


def test_few_long_columns_have_units_enough_in_several_kernels() -> None:
    """Three columns of a million elements would be one work-group's."""
    g = written((1, 1 << 20, 3), (1,))
    assert "layer_norm" not in ops(g)
    assert [n.op for n in optimize(g, Target(CHIP)).nodes].count("reduce_mean") == 2
