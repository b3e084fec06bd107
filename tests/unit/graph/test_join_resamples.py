"""Interpolation along several axes as one operator on GPUs (`join_resamples`)."""

from __future__ import annotations

import numpy as np

import tec
from tec.graph.builders import Builder
from tec.graph.builders.resample import places, taps
from tec.graph.graph import Graph
from tec.graph.passes.join_resamples import join_resamples
from tests.thinned import thinned

GPU = tec.Target("rocm -mcpu=gfx942")


def _ops(graph, target=GPU):
    return [n.op for n in join_resamples(graph, target).nodes]


def _resized(shape, sizes, mode="linear", dtype="float32"):
    """A graph that resizes along the last axes, and the matrices of each axis."""
    g = Graph("resized")
    b = Builder(g)
    y = g.input("x", dtype, shape)
    matrices = {}
    for axis, out in sizes.items():
        n = shape[axis]
        place = places("half_pixel", out, n, out / n, out)
        index, weight = taps(mode, place, n, out / n, -0.75, False, False, "floor")
        y = b.op("resample", y, b.const(index, "int32"), b.const(weight, "float32"), axis=axis, nearest=False)
        m = np.zeros((out, n), "f8")
        for i, w in zip(index, weight):
            np.add.at(m, (np.arange(out), i), w)
        matrices[axis] = m
    g.set_outputs([y], ["y"])
    return g, matrices


@thinned(1, ("chip", ["gfx942", "gfx90a", "gfx1100"]), ("dtype", ["float32", "float16"]))
def test_two_axes_in_one_kernel_have_the_values(chip, dtype):
    graph, matrices = _resized((2, 3, 9, 13), {3: 26, 2: 31}, dtype=dtype)
    target = tec.Target(f"rocm -mcpu={chip}")
    net, dev = tec.compile(graph, target=target, cache=False), tec.rocm_emu(chip, check="all")
    x = np.random.default_rng(4).standard_normal((2, 3, 9, 13)).astype(dtype)
    (got,) = net.executor(dev).run([tec.nd.array(x, dev)])
    want = matrices[2] @ (x.astype("f8") @ matrices[3].T)
    assert np.abs(got.numpy() - want).max() <= {"float32": 1e-5, "float16": 2e-3}[dtype] * np.abs(want).max()
    assert len(net.report.choices) <= 1


def test_what_is_joined():
    assert _ops(_resized((1, 4, 8, 8), {3: 16, 2: 16})[0]) == ["resample_axes"]
    assert _ops(_resized((1, 4, 6, 6, 6), {4: 9, 3: 9, 2: 9})[0]) == ["resample_axes"]
    assert _ops(_resized((1, 4, 8, 8), {3: 16, 2: 16})[0], tec.Target("llvm")) == ["resample"] * 2
    assert _ops(_resized((1, 4, 8, 8), {3: 16, 2: 16}, "cubic")[0]) == ["resample"] * 2


def test_what_others_read_stays():
    graph, _ = _resized((1, 4, 8, 8), {3: 16, 2: 16})
    graph.set_outputs([n.outputs[0] for n in graph.nodes], ["between", "y"])
    assert _ops(graph) == ["resample"] * 2
