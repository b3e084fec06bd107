"""Maxima of large windows along one axis after another: the same to the bit."""

import numpy as np
import pytest

import tec
from tec.graph import Graph, run_graph
from tec.graph.passes.separate_pools import separate_pools
from tec.ops.windows import conv_out

LLVM = tec.Target("llvm")


def pool(space, kernel, strides, pads, dilations=None, dtype="float32", indices=False):
    g = Graph()
    x = g.input("x", dtype, (2, 3, *space))
    dilations = dilations or (1,) * len(kernel)
    attrs = {"kernel": kernel, "strides": strides, "dilations": dilations, "before": pads, "after": pads}
    out = tuple(conv_out(n, k, s, d, p, p) for n, k, s, d, p in zip(space, kernel, strides, dilations, pads))
    g.set_outputs(g.add("max_pool", [x], {**attrs, "out_space": out, **({"indices": True} if indices else {})}))
    return g


@pytest.mark.parametrize("case", [
    ((9, 8, 11), (5, 5, 5), (2, 3, 1), (1, 0, 2)), ((14, 15), (7, 5), (1, 1), (3, 2)), ((12, 20, 9), (3, 3, 3), (1, 1, 1), (0, 1, 1)),
    ((16, 18), (5, 5), (1, 1), (2, 2), (2, 1)), ((9, 8, 11), (5, 1, 5), (1, 1, 1), (2, 0, 2)), ((14, 15), (7, 5), (1, 1), (3, 2), None, "int8"),
])  # fmt: skip
def test_values(case):
    g = pool(*case)
    after = separate_pools(g, LLVM)
    after.check()
    assert [n.op for n in after.nodes] == ["max_pool"] * sum(k > 1 for k in case[1])
    assert all(sum(k > 1 for k in n.attrs["kernel"]) == 1 for n in after.nodes)
    rng = np.random.default_rng(2)
    x = rng.integers(-90, 90, g.inputs[0].shape).astype(g.inputs[0].dtype)
    if x.dtype == np.float32:
        x[0, 0, 2, 3] = np.nan
    (want,) = run_graph(g, {"x": x})
    np.testing.assert_array_equal(run_graph(after, {"x": x})[0], want)
    np.testing.assert_array_equal(tec.compile(g, "llvm", cache=False).run({"x": x})[0], want)


def test_what_stays():
    """Small windows, far strides, indices, GPUs."""
    big = (9, 8, 11), (5, 5, 5), (2, 3, 1), (1, 0, 2)
    for g in (pool((20, 20), (3, 3), (1, 1), (1, 1)), pool((40, 40), (5, 5), (5, 5), (0, 0)), pool((40,), (9,), (1,), (4,)), pool(*big, indices=True)):  # fmt: skip
        assert separate_pools(g, LLVM) is g
    g = pool(*big)
    assert separate_pools(g, tec.Target("rocm -mcpu=gfx942")) is g
