"""Long reductions on the CPU: partial results in vector lanes, so that rounding errors do not grow with the length."""

import re

import numpy as np
import pytest

import tec
from tec.graph import Graph, run_graph
from tests.thinned import thinned


def run(op, shape, attrs, dtype="float32", seed=0):
    """(what the compiled operator gives, its input, the reference's)."""
    g = Graph("g")
    x = g.input("x", dtype, shape)
    g.set_outputs([g.add(op, [x], attrs)[0]], ["y"])
    a = (np.random.default_rng(seed).random(shape) + 0.5).astype(dtype)
    return tec.compile(g, target="llvm").run({"x": a})[0], a, run_graph(g, {"x": a})[0]


@pytest.mark.parametrize(("shape", "axes"), [((1 << 20,), (0,)), ((3, 160, 160), (1, 2)), ((2, 4, 40003), (2,))])
def test_a_long_mean_is_exact_to_some_ulps(shape, axes):
    got, a, _ = run("reduce_mean", shape, {"axes": axes, "keepdims": True})
    want = a.astype(np.float64).mean(axes, keepdims=True)
    assert np.abs(got / want - 1).max() < 1e-6  # one chain of additions is 5e-6 to 1e-5 off


@pytest.mark.parametrize("length", [48, 1000, 5001])
@pytest.mark.parametrize("value", [3, -1000])
def test_rows_of_one_number_are_their_mean(length, value):
    """A rounded 1 / length left 0.02 of rows of -1000, which the small deviation makes of the mean's last digit."""
    g = Graph("g")
    g.set_outputs(g.add("layer_norm", [g.input("x", "float32", (3, length))], {"axis": 1, "epsilon": 1e-5})[:1])
    got = tec.compile(g, target="llvm").run({"x": np.full((3, length), value, "float32")})[0]
    assert not got.any()


@thinned(
    2,
    ("dtype", ["float32", "float64", "float16", "int32", "int8"]),
    ("op", ["reduce_sum", "reduce_max", "reduce_min"]),
    (
        "shape, axes",
        [
            ((7, 1003), (1,)), ((1003,), (0,)), ((3, 5, 130), (0, 2)), ((2, 97, 8, 8), (2, 3)), ((3, 82, 5), (1,)), ((40, 33, 7), (0, 2)),
            ((9, 4, 131, 3), (1, 3)), ((2, 70, 15), (1,)),
        ],
    ),
)  # fmt: skip
def test_partial_results_in_lanes_are_the_reduction(op, dtype, shape, axes):
    got, _, want = run(op, shape, {"axes": axes, "keepdims": False}, dtype)
    assert got.dtype == want.dtype and got.shape == want.shape
    tolerance = {"float32": 1e-6, "float64": 1e-14, "float16": 1e-3}.get(dtype, 0)
    np.testing.assert_allclose(got.astype("f8"), want.astype("f8"), rtol=tolerance)


@pytest.mark.parametrize(
    ("shape", "axes"), [((3, 96, 5), (1,)), ((5, 64, 12), (1,)), ((40, 32, 7), (0, 2)), ((9, 4, 64, 3), (1, 3))]
)
def test_short_runs_are_read_as_whole_vectors(shape, axes):
    """Steps of a few elements, or sums of a few, side by side: one by one they took some ten times as long."""
    g = Graph("g")
    g.set_outputs([g.add("reduce_max", [g.input("x", "float32", shape)], {"axes": axes, "keepdims": False})[0]], ["y"])
    code = tec.compile(g, target="llvm -mcpu=znver4", cache=False).get_source("ir")
    reads = re.findall(r"x0\[(.*?)\]", code)
    assert reads and all(re.search(r", 1, 16\)$", r) for r in reads), reads


@thinned(
    1,
    (
        "op, attrs",
        [("softmax", {"axes": (2,)}), ("log_softmax", {"axes": (2,)}), ("layer_norm", {"axis": 2, "epsilon": 1e-5})],
    ),
    ("n", [64, 70, 768, 1000]),
)
def test_rows(op, attrs, n):
    got, _, want = run(op, (2, 30, n), attrs)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((40000, 64), (0,)), ((1, 4, 160, 160, 16), (2, 3)), ((3, 5000, 33), (1,)), ((16, 1039, 24), (0, 1))],
)
def test_a_long_mean_beside_the_vectors_is_exact_too(shape, axes):
    got, a, _ = run("reduce_mean", shape, {"axes": axes, "keepdims": False})
    assert np.abs(got / a.astype(np.float64).mean(axes) - 1).max() < 1e-6
