"""Weights of products in the CPU's order."""

import numpy as np
import pytest

import tec
from tec.graph import Graph, run_graph
from tec.graph.optimize import optimize
from tec.graph.passes.weights import order_weights
from tests.thinned import thinned
from tests.unit.graph.random_graphs import random_graph
from tests.unit.ops.test_recurrent import recurrence

HOST = tec.Target("llvm")
LANES = max(4, HOST.vector_bytes // 4)
rng = np.random.default_rng(8)


def num(*shape):
    return rng.standard_normal(shape).astype("f")


def product(m, k, n, transpose_b=False, batch=(), dtype="float32"):
    g = Graph()
    x = g.input("x", dtype, (*batch, m, k))
    w = num(n, k) if transpose_b else num(k, n)
    (y,) = g.add("matmul", [x, g.constant(w.astype(dtype))], {"transpose_b": transpose_b})
    g.set_outputs(g.add("add", [y, g.constant(num(n).astype(dtype))]))
    return g


@thinned(
    1,
    (
        "m,k,n,op",
        [
            (8, 300, 8 * LANES, "panels"),
            (9, 2000, 3 * LANES, "panels"),
            (5, 1999, 2 * LANES + 5, "panels"),
            (1, 600, 8 * LANES, "panels"),
            (32, 8, 16, "rows"),
            (7, 5000, LANES - 1, "rows"),
        ],
    ),
    ("transpose_b", [False, True]),
)
def test_packed(m, k, n, op, transpose_b):
    g = product(m, k, n, transpose_b)
    after = order_weights(g, HOST)
    after.check()
    node = after.nodes[0]
    assert ("layout_b" in node.attrs) == (op == "panels") and not node.attrs.get("transpose_b")
    if op == "panels":
        panels, depth, block = node.inputs[1].shape
        assert depth == k and block % LANES == 0 and panels * block >= n > (panels - 1) * block
    feeds = {"x": num(m, k)}
    (want,) = run_graph(g, feeds)
    np.testing.assert_allclose(run_graph(after, feeds)[0], want, rtol=1e-4, atol=1e-3)
    (got,) = tec.compile(g, target="llvm", cache=False).run(feeds)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)


def test_one_weight_is_packed_once():
    g = Graph()
    w = g.constant(num(256, 8 * LANES))
    g.set_outputs([g.add("matmul", [g.input(n, "float32", (8, 256)), w])[0] for n in "xy"])
    assert len(order_weights(g, HOST).constants()) == 1


def test_other_types_and_computed_weights_stay():
    g = product(8, 300, 64, dtype="float64")
    assert [n.op for n in order_weights(g, HOST).nodes] == ["matmul", "add"]
    g = Graph()
    g.set_outputs(g.add("matmul", [g.input("x", "float32", (8, 300)), g.input("y", "float32", (300, 64))]))
    assert [n.op for n in order_weights(g, HOST).nodes] == ["matmul"]


def test_several_matrices_are_packed_as_rows():
    g = product(8, 1200, 4 * LANES, batch=(3,))
    node = next(n for n in optimize(g, HOST).nodes if "layout_b" in n.attrs)
    assert node.outputs[0].shape == (24, 4 * LANES)
    x = num(3, 8, 1200)
    (got,) = tec.compile(g, target="llvm", cache=False).run({"x": x})
    np.testing.assert_allclose(got, run_graph(g, {"x": x})[0], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("seed", range(6))
def test_random_graphs_stay_well_formed(seed):
    order_weights(random_graph(seed), HOST).check()


def test_keys_of_attention_are_not_gathered_on_the_cpu():
    """q @ transpose(k): the CPU's product wants rows of its second operand."""
    g = Graph()
    q, k = g.input("q", "float32", (2, 16, 8)), g.input("k", "float32", (2, 16, 8))
    (t,) = g.add("transpose", [k], {"perm": (0, 2, 1)})
    g.set_outputs(g.add("matmul", [q, t]))
    assert [n.op for n in optimize(g, HOST).nodes] == ["transpose", "matmul"]
    assert [n.op for n in optimize(g, tec.Target("rocm -mcpu=gfx942")).nodes] == ["matmul"]


@pytest.mark.parametrize("size,stride,kernel,before,after", [
    (14, 1, 3, 1, 1), (14, 2, 3, 1, 1), (28, 2, 3, 0, 1), (7, 1, 3, 1, 1), (15, 1, 5, 2, 2), (5, 1, 3, 2, 0), (56, 2, 7, 3, 3),
])  # fmt: skip
def test_depthwise_convolutions_read_their_input_in_place(size, stride, kernel, before, after):
    """No padded copy is made: one loop over tiles (over threads where that is worth it), no memory but the output's."""
    channels = 32  # fewer stay NCHW
    g = Graph()
    x = g.input("x", "float32", (1, channels, size, size))
    attrs = {
        "strides": (stride,) * 2,
        "dilations": (1, 1),
        "before": (before,) * 2,
        "after": (after,) * 2,
        "groups": channels,
    }
    (y,) = g.add("conv", [x, g.constant(num(channels, 1, kernel, kernel))], attrs)
    g.set_outputs(g.add("relu", [y]))
    feeds = {"x": num(*x.shape)}
    net = tec.compile(g, target="llvm", cache=False)
    np.testing.assert_allclose(net.run(feeds)[0], run_graph(g, feeds)[0], rtol=1e-4, atol=1e-4)
    lines = net.get_source("ir").split("def f1_conv")[-1].split("def f2")[0].splitlines()
    assert sum("parallel(" in line for line in lines) <= 1
    assert all('scope="local"' in line for line in lines if "alloc(" in line)


@pytest.mark.parametrize("target", ["llvm", "rocm -mcpu=gfx942"])
@pytest.mark.parametrize("constant", [True, False])
def test_constant_weights_of_recurrent_layers_lie_in_panels(target, constant):
    g, feeds = recurrence("lstm", 3, 2, 40, back=(False, True), constant=constant)
    (node,) = order_weights(g, tec.Target(target)).nodes
    assert bool(node.attrs.get("panel")) == constant == node.inputs[1].is_known
    if constant and target == "llvm":
        assert node.inputs[1].shape != g.nodes[0].inputs[1].shape
