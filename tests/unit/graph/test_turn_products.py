"""Products of few columns whose operands lie across the sum, as the transposed ones."""

import numpy as np
import pytest

import tec
from tec.graph import Graph, run_graph
from tec.graph.passes.turn_products import turn_products

LLVM = tec.Target("llvm")
rng = np.random.default_rng(9)


def across(m, n, k, batch=(), dtype="float32", **attrs):
    g = Graph()
    x = g.input("x", dtype, (*batch, k, m) if attrs.get("transpose_a") else (*batch, m, k))
    y = g.input("y", dtype, (*batch, n, k) if attrs.get("transpose_b") else (*batch, k, n))
    g.set_outputs(g.add("matmul", [x, y], attrs))
    return g


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("m", "n", "k", "batch", "dtype"), [
    (5, 3, 117, (2, 3), "float64"), (64, 2, 40, (), "float32"), (17, 7, 33, (4,), "float32"),
])  # fmt: skip
def test_their_values_are_the_same(m, n, k, batch, dtype, turned):
    g = across(m, n, k, batch, dtype, transpose_a=True, transpose_b=turned)
    after = turn_products(g, LLVM)
    after.check()
    assert [v.op for v in after.nodes] == ["matmul", "transpose"]
    assert after.nodes[0].outputs[0].shape == (*batch, n, m)
    feeds = {v.name: rng.standard_normal(v.shape).astype(v.dtype) for v in g.inputs}
    (want,) = run_graph(g, feeds)
    np.testing.assert_allclose(run_graph(after, feeds)[0], want, rtol=1e-4, atol=1e-4)
    net = tec.compile(g, "llvm", cache=False)
    np.testing.assert_allclose(net.run(feeds)[0], want, rtol=1e-4, atol=1e-4)
    # Vectors along the rows, not one sum after another.
    assert "cpu product" in [t["choice"]["template"] for t in net.report.choices.values()]


def test_others_stay():
    for g in (across(64, 3, 40), across(64, 8, 40, transpose_a=True), across(3, 3, 40, transpose_a=True), across(64, 3, 8, transpose_a=True), across(64, 1, 40, transpose_a=True)):  # fmt: skip
        assert turn_products(g, LLVM) is g
    g = across(64, 3, 40, transpose_a=True)
    assert turn_products(g, tec.Target("rocm -mcpu=gfx942")) is g
