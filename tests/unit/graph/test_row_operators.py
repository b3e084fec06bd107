"""A reduction and what reads its rows are one operator, with the parts' values, also of rows without a finite largest number."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec.graph import Graph
from tec.graph.builders.builder import Builder
from tec.graph.builders.reduce import log_sum_exp
from tec.graph.compiler import compile_graph
from tec.graph.optimize import optimize
from tec.target import Target
from tests import seeds

TARGET = Target("rocm -mcpu=gfx942")


def rms(b, x, root, axes=(-1,), keepdims=True):
    total = b.op("add", b.op("reduce_mean", b.op("square", x), axes=axes, keepdims=keepdims), b.like(1e-3, x))
    if root == "quotient":
        return b.op("divide", x, b.op("sqrt", total))
    inverse = b.op("rsqrt", total) if root == "rsqrt" else b.op("reciprocal", b.op("sqrt", total))
    return b.op("multiply", inverse, x)


MADE = {
    "rms_norm": lambda b, x: rms(b, x, "rsqrt"),
    "rms_norm by a reciprocal": lambda b, x: rms(b, x, "reciprocal"),
    "rms_norm by a quotient": lambda b, x: rms(b, x, "quotient"),
    "log_sum_exp": lambda b, x: log_sum_exp(b, x, (1,), True),
    "log_sum_exp without its dimension": lambda b, x: log_sum_exp(b, x, (1,), False),
}


def graph(make, shape, dtype="float32"):
    g = Graph()
    g.set_outputs([make(Builder(g), g.input("x", dtype, shape))])
    return g


@pytest.mark.parametrize("name", MADE)
def test_one_operator_with_the_parts_values(name):
    rng = np.random.default_rng(seeds.number())
    rows, columns = int(rng.integers(2, 6)) + 3, int(rng.integers(2, 700))
    dtype = rng.choice(["float16", "float32"])
    g = graph(MADE[name], (rows, columns), str(dtype))
    found = optimize(g, TARGET)
    assert [n.op for n in found.nodes if n.op != "reshape"] == [name.split()[0]]
    x = rng.standard_normal((rows, columns)).astype(dtype)
    if name.startswith("log"):
        x[0], x[1, 0], x[2, -1] = -np.inf, np.inf, np.nan
    w = x.astype("f8")
    with np.errstate(all="ignore"):
        want = (
            w / np.sqrt((w * w).mean(-1, keepdims=True) + 1e-3)
            if name.startswith("rms")
            else np.logaddexp.reduce(w, -1)
        )
    for target, device in ((TARGET, tec.rocm_emu("gfx942")), (Target("llvm"), tec.cpu())):
        got = compile_graph(g, target).run({"x": x}, device=device)[0]
        np.testing.assert_allclose(
            np.asarray(got, "f8").reshape(want.shape), want, rtol=4e-3 if dtype == "float16" else 2e-5, atol=1e-3
        )


@pytest.mark.parametrize("axes, keepdims", [((0,), True), ((0, 1), True), ((-1,), False)])
def test_what_is_no_norm_of_rows_stays(axes, keepdims):
    square = (5, 5)  # so that a mean whose dimension is gone still goes with x
    found = optimize(graph(lambda b, x: rms(b, x, "rsqrt", axes, keepdims), square), TARGET)
    assert "rms_norm" not in [n.op for n in found.nodes]


@pytest.mark.parametrize("axis, shape", [(0, (70_000, 2)), (1, (2, 70_000)), (1, (1, 70_000, 3))])
def test_a_log_of_a_sum_that_float16_does_not_hold(axis, shape):
    """The sum of exponentials passes 65504, its log does not."""
    x = np.ones(shape, "float16")
    (got,) = compile_graph(graph(lambda b, x: log_sum_exp(b, x, (axis,), False), shape, "float16"), Target("llvm")).run(
        {"x": x}
    )
    np.testing.assert_allclose(got, np.full(got.shape, 1 + np.log(70_000)), rtol=1e-3)


@pytest.mark.parametrize("axis, is_alone", [(1, True), (0, True), (1, False)])
def test_a_picked_logarithm_of_softmax_writes_no_rows(axis, is_alone):
    """A loss over a vocabulary: one kernel reads the rows, and nothing writes as many."""
    rng, shape = np.random.default_rng(seeds.number()), (6, 301)
    g = Graph()
    b, x = Builder(g), g.input("x", "float32", shape)
    index = g.input("index", "int64", (6, 1) if axis else (1, 301))
    log = b.op("log_softmax", x, axes=(axis,))
    g.set_outputs([b.op("gather_elements", log, index, axis=axis), *([] if is_alone else [log])])
    found = [n.op for n in optimize(g, TARGET).nodes]
    assert ("log_softmax" not in found) == (axis == 1 and is_alone)
    value = rng.standard_normal(shape).astype("float32") * 3
    picked = rng.integers(0, shape[axis], index.shape)
    want = np.take_along_axis(value - np.logaddexp.reduce(value, axis, keepdims=True), picked, axis)
    for target, device in ((TARGET, tec.rocm_emu("gfx942")), (Target("llvm"), tec.cpu())):
        got = compile_graph(g, target).run({"x": value, "index": picked}, device=device)[0]
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("rows, places, is_taken", [(6, 1, True), (6, 3, True), (2, 1, False)])
def test_a_picked_logarithm_has_the_digits_of_large_numbers_differences(rows, places, is_taken):
    """The logarithm of a whole sum is as large as the numbers, and rounded like them; an index may have fewer rows."""
    rng, g = np.random.default_rng(seeds.number()), Graph()
    b, x, index = Builder(g), g.input("x", "float32", (6, 301)), g.input("index", "int64", (rows, places))
    g.set_outputs([b.op("gather_elements", b.op("log_softmax", x, axes=(1,)), index, axis=1)])
    assert ("log_softmax" not in [n.op for n in optimize(g, TARGET).nodes]) == is_taken
    value, picked = (rng.standard_normal((6, 301)) + 1e5).astype("float32"), rng.integers(-301, 301, (rows, places))
    value[-1, 7] = np.inf
    wide = value - value.max(1, keepdims=True).astype("float64")
    want = np.take_along_axis((wide - np.log(np.exp(wide).sum(1, keepdims=True)))[:rows], picked, 1)
    (got,) = compile_graph(g, Target("llvm")).run({"x": value, "index": picked})
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
