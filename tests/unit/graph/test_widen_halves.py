"""Convolutions and products of 16-bit floats on a CPU without a dot product of theirs, in float32 between conversions."""

import numpy as np
import pytest

import tec
from tec.graph import Graph, run_graph
from tec.graph.passes.widen_halves import widen_halves
from tests.unit.graph.random_graphs import conv_attrs

HASWELL = tec.Target("llvm -mcpu=haswell")
rng = np.random.default_rng(4)


def product(m, n, k, dtype="float16", batch=(), **attrs):
    g = Graph()
    x, y = g.input("x", dtype, (*batch, m, k)), g.input("y", dtype, (*batch, k, n))
    g.set_outputs(g.add("matmul", [x, y], attrs))
    return g


def turned(m, n, k):
    """A product whose first operand lies across the sum."""
    g = Graph()
    x, y = g.input("x", "float16", (k, m)), g.input("y", "float16", (k, n))
    g.set_outputs(g.add("matmul", [x, y], {"transpose_a": True}))
    return g


def convolution(groups=1, dtype="float16"):
    g = Graph()
    x = g.input("x", dtype, (2, 8, 9, 11))
    w = g.constant(rng.standard_normal((16, 8 // groups, 3, 3)).astype("float16"))
    (y,) = g.add("conv", [x, w], conv_attrs(1, 1, 1, 1, groups))
    (g_out,) = g.add("relu", [y])
    g.set_outputs([g_out])
    return g


@pytest.mark.parametrize("graph", [
    lambda: product(24, 37, 20), lambda: product(9, 8, 3, batch=(3,)), lambda: product(3, 2, 40, batch=(3,)), lambda: product(1, 3, 40), lambda: turned(30, 3, 20), lambda: turned(7, 1, 20), lambda: convolution(), lambda: convolution(8), lambda: convolution(2),
])  # fmt: skip
def test_their_values_are_those_of_halves(graph):
    g = graph()
    after = widen_halves(g, HASWELL)
    after.check()
    assert {v.dtype for n in after.nodes if n.op in ("conv", "matmul") for v in (*n.inputs, *n.outputs)} == {"float32"}
    assert [v.dtype for v in after.outputs] == ["float16"]
    feeds = {v.name: rng.standard_normal(v.shape).astype(v.dtype) for v in g.inputs}
    (want,) = run_graph(g, feeds)
    np.testing.assert_array_equal(run_graph(after, feeds)[0], want)
    (got,) = tec.compile(g, "llvm", cache=False).run(feeds)
    np.testing.assert_allclose(got.astype("f4"), want.astype("f4"), rtol=2e-3, atol=2e-3)


def test_what_stays():
    """Columns of few that are read along the sum too."""
    few = product(64, 4, 64), product(1, 1, 64), turned(3, 64, 20), turned(1, 1, 20)
    for g in (product(4, 64, 64), product(64, 64, 64, "float32"), *few):
        assert widen_halves(g, HASWELL) is g
    halves = product(64, 64, 64, "bfloat16")
    assert widen_halves(halves, tec.Target("llvm -mcpu=znver4")) is halves, "its core multiplies them in pairs"
    assert widen_halves(halves, HASWELL) is not halves
    g = product(64, 64, 64)
    assert widen_halves(g, tec.Target("rocm -mcpu=gfx942")) is g
