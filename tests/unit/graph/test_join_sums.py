"""A residual block's last convolution and its shortcut's as one product: where the pass makes it, what it means, and the kernels' loads from two images."""

import numpy as np
import pytest

import tec
from tec.codegen.static_report import report
from tec.errors import ImportModelError
from tec.graph import Graph, run_graph
from tec.graph.optimize import optimize
from tec.ops.layouts import Layout
from tests.thinned import thinned_rows
from tests.unit.graph.random_graphs import conv_attrs

GFX942 = tec.Target("rocm -mcpu=gfx942")
PIXELS, WEIGHTS = Layout("(NHW)C"), Layout("O(HWI)")


def ops(g):
    return [n.op for n in g.nodes]


def whole(rng, shape, dtype):
    return rng.integers(-2, 3, shape).astype(dtype)


def block(dtype, batch, size, own, before, out, biases=(True, True), is_read=False):
    """relu((conv of `own` channels + bias) + (conv by 2 of `before` channels + bias)), small whole numbers."""
    g, rng = Graph(), np.random.default_rng(7)
    x = g.input("x", dtype, (batch, own, size, size))
    y = g.input("y", dtype, (batch, before, 2 * size, 2 * size))
    sides = []
    for v, stride, with_bias in ((x, 1, biases[0]), (y, 2, biases[1])):
        w = g.constant(whole(rng, (out, v.shape[1], 1, 1), dtype))
        (s,) = g.add("conv", [v, w], conv_attrs(stride=stride))
        if with_bias:
            (s,) = g.add("add", [s, g.constant(whole(rng, (out, 1, 1), dtype))])
        sides.append(s)
    (total,) = g.add("add", sides)
    g.set_outputs([*g.add("relu", [total]), *(sides[1:] if is_read else ())])
    return g


def feeds(g):
    rng = np.random.default_rng(8)
    return {v.name: whole(rng, v.shape, v.dtype) for v in g.inputs}


@pytest.mark.parametrize("biases", [(True, True), (False, True), (False, False)])
def test_two_convolutions_that_are_added_are_one_product(biases):
    g = block("float32", 2, 4, 64, 128, 32, biases)
    after = optimize(g, GFX942)
    assert ops(after).count("conv_sum") == 1 and "conv" not in ops(after) and ops(after).count("add") == any(biases)
    np.testing.assert_array_equal(run_graph(after, feeds(g))[0], run_graph(g, feeds(g))[0])


@pytest.mark.parametrize(
    ("target", "graph"),
    [
        ("llvm", block("float32", 1, 4, 64, 64, 32)),
        ("cuda -arch=sm_90a", block("float16", 1, 4, 64, 64, 32)),  # nobody measured it there
        ("rocm -mcpu=gfx1100", block("float32", 1, 4, 64, 64, 32)),  # no matrix unit for the type
        ("rocm -mcpu=gfx942", block("float16", 1, 4, 64, 24, 32)),  # a step would be of both images
        ("rocm -mcpu=gfx942", block("float16", 1, 4, 64, 64, 32, is_read=True)),  # one is wanted for itself
    ],
)
def test_where_two_products_stay(target, graph):
    assert "conv_sum" not in ops(optimize(graph, tec.Target(target)))


def test_a_block_on_the_software_gpu():
    g = block("float16", 1, 5, 64, 64, 32)
    net = tec.compile(g, GFX942, cache=False)
    assert sum("conv_sum" in functions for functions in net.report.functions.values()) == 1
    (got,) = net.run(feeds(g), device=tec.rocm_emu("gfx942", check="all"))
    np.testing.assert_array_equal(got, run_graph(g, feeds(g))[0])


def flat(dtype, depths, out=64, size=7):
    """A sum of an image's pixels and of every second pixel of a larger one's, as the pass makes it."""
    rng, g = np.random.default_rng(9), Graph()
    images = [g.input(n, dtype, (s * s, k)) for n, s, k in zip("xy", (size, 2 * size), depths)]
    w = g.constant(whole(rng, (out, sum(depths)), dtype))
    none = ((0, 0),) * 2
    attrs = {
        "strides": ((1, 1), (2, 2)), "dilations": ((1, 1),) * 2, "before": none, "after": none, "kernel": ((1, 1),) * 2,
        "space": ((1, size, size), (1, 2 * size, 2 * size)), "layouts": (PIXELS, WEIGHTS, PIXELS),
    }  # fmt: skip
    (s,) = g.add("conv_sum", [*images, w], attrs)
    g.set_outputs(g.add("relu", [s]))
    return g


@thinned_rows(4,
    ("mcpu", "dtype", "tile"),
    [
        ("gfx942", "float16", {}), ("gfx942", "float32", {}), ("gfx90a", "float16", {}), ("gfx950", "float16", {}), ("gfx1100", "float16", {}),
        ("gfx942", "float16", {"ahead": 1, "instruction": "16x16x32", "interleave": True}),
        ("gfx942", "float16", {"ahead": 2, "instruction": "16x16x32", "interleave": True}),
        ("gfx1100", "float16", {"ahead": 1, "instruction": "16x16x16", "interleave": False, "step": 32}),
    ],
)  # fmt: skip
def test_on_the_software_gpus(mcpu, dtype, tile):
    """Default tiles, and those whose loop stays one: the loads of all its steps, of the first image and of the second, are the same instructions."""
    g = flat(dtype, (256, 512) if tile else (64, 128))
    plain = {
        "template": "matrix product",
        "rows": 32,
        "columns": 32,
        "step": 64,
        "waves_m": 2,
        "waves_n": 2,
        "slices": 1,
    }
    plain |= {"band": 0, "splits": 1, "stages": 1, "swizzle": False, "uneven": False}
    net = tec.compile(g, f"rocm -mcpu={mcpu}", choices=(lambda *_: plain | tile) if tile else None, cache=False)
    (got,) = net.run(feeds(g), device=tec.rocm_emu(mcpu, check="all"))
    x, y = (v.astype("float64") for v in feeds(g).values())
    both = np.concatenate([x, y.reshape(14, 14, -1)[::2, ::2].reshape(49, -1)], 1)
    want = np.maximum(both @ np.asarray(g.constants()[0].data).astype("float64").T, 0)
    np.testing.assert_array_equal(got.astype("float64"), want.astype(got.dtype).astype("float64"))
    (r,) = report(net.get_source("asm"))
    assert r.spills == 0 and r.has_loop >= bool(tile)
    if tile and mcpu == "gfx942":  # LLVM turns RDNA's around
        assert len([line for line in r.body if "_cbranch_" in line]) == 1, "the loop's own"


@pytest.mark.parametrize("target", ["llvm", "rocm -mcpu=gfx1100", "rocm -mcpu=gfx942"])
def test_the_operator_anywhere(target):
    """Three images, of which one has windows of 3 x 3 within its edges, on devices where no pass makes such sums."""
    rng, g = np.random.default_rng(9), Graph()
    a, b, c = (g.input(n, "float32", s) for n, s in (("a", (18, 8)), ("b", (50, 3)), ("c", (18, 5))))
    w = g.constant(whole(rng, (6, 8 * 9 + 3 + 5), "float32"))
    attrs = {
        "strides": ((1, 1), (2, 2), (1, 1)), "dilations": ((1, 1),) * 3, "before": ((1, 1), (0, 0), (0, 0)),
        "after": ((1, 1), (0, 0), (0, 0)), "kernel": ((3, 3), (1, 1), (1, 1)), "space": ((2, 3, 3), (2, 5, 5), (2, 3, 3)),
        "layouts": (PIXELS, WEIGHTS, PIXELS),
    }  # fmt: skip
    g.set_outputs(g.add("conv_sum", [a, b, c, w], attrs))
    data = feeds(g)
    x, y, z = data["a"].reshape(2, 3, 3, 8), data["b"].reshape(2, 5, 5, 3)[:, ::2, ::2], data["c"]
    edged, weights = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), np.asarray(w.data)
    taps = np.concatenate([edged[:, i : i + 3, j : j + 3] for i in range(3) for j in range(3)], -1)
    want = np.concatenate([taps.reshape(18, 72), y.reshape(18, 3), z], 1) @ weights.T
    np.testing.assert_array_equal(run_graph(g, data)[0], want)
    device = tec.cpu() if target == "llvm" else tec.rocm_emu(tec.Target(target).mcpu, check="all")
    np.testing.assert_array_equal(tec.compile(g, target, cache=False).run(data, device=device)[0], want)


def test_sums_that_do_not_fit_are_refused():
    g = Graph()
    attrs = {"strides": ((1, 1),) * 2, "dilations": ((1, 1),) * 2, "before": ((0, 0),) * 2, "after": ((0, 0),) * 2}
    attrs |= {"kernel": ((1, 1),) * 2, "space": ((1, 4, 4), (1, 4, 2)), "layouts": (PIXELS, WEIGHTS, PIXELS)}
    x, y = g.input("x", "float32", (16, 8)), g.input("y", "float32", (8, 8))
    with pytest.raises(ImportModelError, match="do not fit"):
        g.add("conv_sum", [x, y, g.constant(np.ones((4, 16), "float32"))], attrs)
    with pytest.raises(ImportModelError, match="do not fit"):
        g.add("conv_sum", [x, x, g.constant(np.ones((4, 9), "float32"))], {**attrs, "space": ((1, 4, 4),) * 2})
