"""Softmax of rows on a CPU: the powers in the result, and their sum meanwhile."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec.graph import Graph, run_graph
from tec.ops.dims import Dim
from tests.seeds import first


def _softmax(x: np.ndarray, target: str, scaled: bool = False) -> tuple[list[str], np.ndarray]:
    g = Graph("g")
    v = g.input("x", "float32", x.shape)
    (read,) = g.add("multiply", [v, v]) if scaled else [v]
    g.set_outputs(g.add("softmax", [read], {"axes": [x.ndim - 1]}), ["y"])
    net = tec.compile(g, target=target, cache=False)
    return [c["choice"]["template"] for c in net.report.choices.values()], np.asarray(net.run({"x": x})[0])


@pytest.mark.parametrize(
    ("n", "target"), [(64, "llvm"), (17, "llvm -mcpu=haswell"), (135, "llvm"), (71, "llvm -mcpu=x86-64")]
)
def test_rows_of_whole_vectors_and_with_a_rest(n, target):
    """NaN and rows without a number make NaN, an infinity in a row makes NaN of itself, and what lies far below the largest is 0."""
    x = np.random.default_rng(first(n)).standard_normal((2, 3, n)).astype("float32") * 4
    x[0, 1, n - 1], x[0, 2], x[1, 0, 0], x[1, 1, 0] = np.nan, -np.inf, 200, -np.inf
    templates, y = _softmax(x, target)
    assert templates == ["cpu softmax"]
    with np.errstate(invalid="ignore"):
        wanted = np.exp(x.astype("f8") - x.max(-1, keepdims=True))
        wanted /= wanted.sum(-1, keepdims=True)
    assert np.isnan(y[0, 1:]).all() and not np.isnan(y[1]).any()
    np.testing.assert_allclose(y[1], wanted[1], rtol=2e-6, atol=1e-30)
    np.testing.assert_allclose(y[0, 0], wanted[0, 0], rtol=2e-6)


def test_what_is_computed_before_a_softmax_has_the_other_template():
    x = np.random.default_rng(first(5)).standard_normal((3, 40)).astype("float32")
    templates, y = _softmax(x, "llvm", scaled=True)
    wanted = np.exp(x.astype("f8") ** 2 - (x**2).max(-1, keepdims=True))
    np.testing.assert_allclose(y, wanted / wanted.sum(-1, keepdims=True), rtol=1e-5)
    assert templates == ["cpu rows"]


@pytest.mark.parametrize("shape", [("n", 70), ("n", "m", 64), ("n", 3, "m", 17)], ids=str)
def test_an_open_number_of_rows(shape):
    def graph(sizes):
        g = Graph("g")
        g.set_outputs(g.add("softmax", [g.input("x", "float32", sizes)], {"axes": (len(sizes) - 1,)}))
        return g

    net = tec.compile(graph(tuple(Dim(n) if isinstance(n, str) else n for n in shape)), target="llvm", cache=False)
    assert [c["choice"]["template"] for c in net.report.choices.values()] == ["cpu softmax"]
    for n, m in [(1, 1), (1, 9), (33, 1), (5, 4)]:
        x = np.random.default_rng(first(n + m)).standard_normal([{"n": n, "m": m}.get(s, s) for s in shape])
        x = x.astype("float32")
        np.testing.assert_allclose(net.run({"x": x})[0], run_graph(graph(x.shape), {"x": x})[0], rtol=1e-5)
