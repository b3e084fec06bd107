"""Products of few columns whose operands lie across the sum, as the transposed ones."""

import numpy as np
import pytest

import tec
from tec.graph import Graph, run_graph
from tec.graph.passes.dead_code import dead_code
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


@pytest.mark.parametrize("is_view", [False, True])
@pytest.mark.parametrize(("m", "n", "k", "batch"), [(1, 21, 85, ()), (3, 40, 70, (2,)), (8, 9, 64, ())])
def test_few_rows_along_the_sum_of_both_operands(m, n, k, batch, is_view):
    """The larger operand is read as it lies: no kernel turns it."""
    g = Graph()
    x, y = g.input("x", "float32", (*batch, m, k)), g.input("y", "float32", (*batch, n, k))
    if is_view:
        rank = len(batch) + 2
        (y,) = g.add("transpose", [y], {"perm": (*range(rank - 2), rank - 1, rank - 2)})
    g.set_outputs(g.add("matmul", [x, y], {} if is_view else {"transpose_b": True}))
    after = dead_code(turn_products(g, LLVM))
    after.check()
    assert [v.op for v in after.nodes] == ["matmul", "reshape" if m == 1 else "transpose"]
    assert after.nodes[0].attrs["transpose_b"] and after.nodes[0].outputs[0].shape == (*batch, n, m)
    feeds = {v.name: rng.standard_normal(v.shape).astype(v.dtype) for v in g.inputs}
    (want,) = run_graph(g, feeds)
    np.testing.assert_allclose(run_graph(after, feeds)[0], want, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(tec.compile(g, "llvm", cache=False).run(feeds)[0], want, rtol=1e-4, atol=1e-4)


def test_others_stay():
    for g in (across(9, 40, 80, transpose_b=True), across(2, 40, 30, transpose_b=True), across(64, 3, 40), across(64, 8, 40, transpose_a=True), across(3, 3, 40, transpose_a=True), across(64, 3, 8, transpose_a=True), across(64, 1, 40, transpose_a=True)):  # fmt: skip
        assert turn_products(g, LLVM) is g
    g = across(64, 3, 40, transpose_a=True)
    assert turn_products(g, tec.Target("rocm -mcpu=gfx942")) is g
