"""Convolutions whose channels become places of a larger image, in one operator: what they mean, on chips with and without matrix units, and where they pay."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16

import tec
from tec.choices.families.products import matrix_schedule
from tec.errors import ImportModelError
from tec.graph import Graph, run_graph
from tec.graph.builders import Builder
from tec.graph.optimize import optimize
from tec.graph.passes import stored_phases as passes
from tec.ops.registry import TensorType, get_op
from tests.thinned import thinned

from ... import seeds
from .test_transposed import Case, built, wanted

MI300X = tec.Target("rocm -mcpu=gfx942")


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever prices say."""
    monkeypatch.setattr(passes, "_pays", lambda *a: True)


@pytest.fixture(params=["batch", "rows", "rows in blocks"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Phases as a batch of products, or as rows of one."""
    is_blocked = "blocks" in request.param

    def best(c: Any, target: Any) -> Any:
        channels = c.conv.inputs[0].shape[1]
        block = math.gcd(channels, 4) if is_blocked else 0
        return passes._attrs(c) | {"together": request.param != "batch", "block": block}, 0.0

    monkeypatch.setattr(passes, "_best", best)


def drawn(rng: np.random.Generator, nd: int, channels: tuple[int, int] = (3, 5), most: int = 6) -> Case:
    """Small whole numbers, so that any order of sums is exact; the output is cut anywhere, or reaches beyond all windows."""
    space, kernel, strides = (rng.integers(*ends, nd) for ends in ((2, most), (2, 6), (2, 5)))
    full = (space - 1) * strides + kernel
    before = [int(rng.integers(0, min(n, 5))) for n in full]
    return {
        "x": rng.integers(-2, 3, (2, channels[0], *space)).astype("float32"), "w": rng.integers(-2, 3, (*channels, *kernel)).astype("float32"),
        "strides": strides.tolist(), "dilations": [1] * nd, "before": before, "groups": 1,
        "out": [int(rng.integers(1, n - b + 4)) for n, b in zip(full, before)],
    }  # fmt: skip


def is_stored(g: Graph) -> bool:
    return [n.op for n in g.nodes].count("conv_phases") == 1 and not any(n.op in ("conv", "transpose") for n in g.nodes)


@pytest.mark.parametrize("seed", range(seeds.first(), seeds.first() + 30))
def test_drawn_ones_are_the_sums_written_out(seed: int, always: None, way: None) -> None:
    rng = np.random.default_rng(seed)
    case = drawn(rng, int(rng.integers(1, 4)))
    g = passes.stored_phases(built(case, constant=True), MI300X)
    assert is_stored(g)
    np.testing.assert_array_equal(run_graph(g, {"x": case["x"]})[0], wanted(case))


@thinned(
    1,
    ("chip, dtype", [("gfx942", "float16"), ("gfx942", "float32"), ("gfx1201", "float16"), ("gfx1100", "float32"), ("gfx1030", "float16"), ("gfx90a", "bfloat16")]),
    ("by_pixels", [False, True]),
)  # fmt: skip
def test_compiled(chip: str, dtype: str, by_pixels: bool, always: None, way: None, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """Of an image as it is, and of one that lies as pixels by channels, filled up to whole pieces."""
    monkeypatch.setattr("tec.graph.passes.layout.are_better_by_pixels", lambda *a: by_pixels)
    case = drawn(np.random.default_rng(seeds.first()), 2, (20, 24), 12)
    g, dev = built(case, dtype, constant=True), tec.rocm_emu(chip, check="all")
    net = tec.compile(g, f"rocm -mcpu={chip}", cache=False)
    assert any("conv_phases" in made for made in net.report.functions.values())
    got = net.run({"x": case["x"].astype(bfloat16 if dtype == "bfloat16" else dtype)}, dev)[0]
    np.testing.assert_array_equal(np.asarray(got, "float32"), wanted(case))


@pytest.mark.parametrize("together", [False, True])
def test_a_residual_is_read_where_there_is_a_result(together: bool, always: None, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """Results that are cut off lie before the residual and behind it: the matrix product was refused, and one thread a result took its place."""
    monkeypatch.setattr(passes, "_best", lambda c, target: (passes._attrs(c) | {"together": together, "block": 0}, 0.0))
    rng, shape = np.random.default_rng(1), (1, 24, 11, 10)
    case: Case = {
        "x": rng.integers(-2, 3, (1, 20, 5, 5)).astype("f"), "w": rng.integers(-2, 3, (20, 24, 5, 4)).astype("f"), "groups": 1,
        "strides": [2, 2], "dilations": [1, 1], "before": [1, 1], "out": list(shape[2:]),
    }  # fmt: skip
    g, r = built(case, "float16", constant=True), rng.integers(-2, 3, shape).astype("float16")
    g.set_outputs([Builder(g, "t").op("add", g.outputs[0], g.input("r", "float16", shape))])
    net = tec.compile(g, "rocm -mcpu=gfx942", cache=False)
    assert not net.report.refused
    (got,) = net.run({"x": case["x"].astype("float16"), "r": r}, tec.rocm_emu("gfx942", check="all"))
    np.testing.assert_array_equal(np.asarray(got, "float32"), wanted(case) + r)


def shuffled(space: tuple[int, ...], kernel: int, factor: int, stride: int = 1, after: str = "") -> Graph:
    """A convolution and a pixel shuffle, which other nodes may read too."""
    g, rng, nd = Graph(), np.random.default_rng(1), len(space)
    b = Builder(g, "t")
    x, f = g.input("x", "float32", (2, 5, *space)), factor**nd
    w = g.constant(rng.integers(-2, 3, (3 * f, 5, *[kernel] * nd)).astype("float32"))
    pad = (kernel // 2,) * nd
    y = b.op("conv", x, w, strides=(stride,) * nd, dilations=(1,) * nd, before=pad, after=pad, groups=1)
    z = b.reshape(y, (2, 3, *[factor] * nd, *y.shape[2:]))
    z = b.transpose(z, (0, 1, *[k for d in range(nd) for k in (2 + nd + d, 2 + d)]))
    z = b.reshape(z, (2, 3, *[n * factor for n in y.shape[2:]]))
    g.set_outputs([b.op("relu", z), *([b.op("relu", y)] if after == "read" else [])])
    return g


@pytest.mark.parametrize("case", [((5, 7), 3, 2), ((9,), 5, 3), ((6, 4), 3, 2, 2), ((3, 4, 3), 1, 2)], ids=str)
def test_pixel_shuffles(case: Any, always: None, way: None) -> None:
    g = shuffled(*case)
    x = {"x": np.random.default_rng(2).integers(-2, 3, g.inputs[0].shape).astype("float32")}
    after = passes.stored_phases(g, MI300X)
    assert is_stored(after)
    np.testing.assert_array_equal(run_graph(after, x)[0], run_graph(g, x)[0])


def test_results_that_others_read_stay(always: None) -> None:
    g = shuffled((5, 7), 3, 2, after="read")
    assert passes.stored_phases(g, MI300X) is g


@pytest.mark.parametrize("target,channels,side,pays", [
    ("rocm -mcpu=gfx942", (128, 64), 64, True), ("rocm -mcpu=gfx1030", (128, 64), 64, True),
    ("rocm -mcpu=gfx942", (512, 2), 128, True),
    ("llvm", (128, 64), 64, False), ("cuda -arch=sm_90a", (128, 64), 64, False),  # nobody measured it there
])  # fmt: skip
def test_where_it_pays(target: str, channels: tuple[int, int], side: int, pays: bool) -> None:
    case = {
        "x": np.zeros((2, channels[0], side, side), "f"), "w": np.zeros((*channels, 4, 4), "f"), "groups": 1,
        "strides": [2, 2], "dilations": [1, 1], "before": [1, 1], "out": [2 * side] * 2,
    }  # fmt: skip
    after = passes.stored_phases(built(case, "float16", constant=True), tec.Target(target))
    assert is_stored(after) is pays


def test_phases_are_rows_of_one_product() -> None:
    """As a batch each work-group would write parts of lines, and of two channels fill no matrix unit."""
    case = {
        "x": np.zeros((1, 64, 64, 64), "f"), "w": np.zeros((64, 204, 5, 5), "f"), "groups": 1,
        "strides": [4, 4], "dilations": [1, 1], "before": [2, 2], "out": [253] * 2,
    }  # fmt: skip
    after = passes.stored_phases(built(case, "float16", constant=True), tec.Target("rocm -mcpu=gfx1100"))
    (node,) = (n for n in after.nodes if n.op == "conv_phases")
    assert node.attrs["together"] and node.attrs["block"] == 32


@pytest.mark.parametrize("batch,out", [(0, 18), (2, 0)])
def test_nothing_is_stored_by_copies(batch: int, out: int, always: None) -> None:
    """A product of no pixels has no tiles."""
    case = {
        "x": np.zeros((batch, 8, 9, 9), "f"), "w": np.ones((8, 3, 4, 4), "f"), "groups": 1,
        "strides": [2, 2], "dilations": [1, 1], "before": [1, 1], "out": [out] * 2,
    }  # fmt: skip
    net = tec.compile(built(case, constant=True), MI300X, cache=False)
    assert net.run({"x": case["x"]}, tec.rocm_emu("gfx942"))[0].shape == (batch, 3, out, out)


@pytest.mark.parametrize("stride", [1, 2])
def test_lanes_that_store_together_have_neighbours(stride: int, always: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a lane has side by side of a phase lies apart in the image: stored by itself, each of its elements would be a line of memory for each lane."""
    seen, matrix = [], matrix_schedule.intrin.matrix
    monkeypatch.setattr(matrix_schedule.intrin, "matrix", lambda *a, **k: seen.append(k["swap"]) or matrix(*a, **k))
    case = {
        "x": np.zeros((2, 32, 12, 12), "f"), "w": np.zeros((32, 64, 2, 2), "f"), "groups": 1,
        "strides": [stride] * 2, "dilations": [1, 1], "before": [0, 0], "out": [12 * stride] * 2,
    }  # fmt: skip
    tec.compile(built(case, "float16", constant=True), MI300X, cache=False)
    assert set(seen) == {stride == 1}


def test_with_dilation_phases_move_apart(always: None) -> None:
    """Their windows begin at other places each: those stay by copies."""
    case = drawn(np.random.default_rng(0), 2) | {
        "dilations": [3, 3],
        "strides": [2, 2],
        "before": [0, 0],
        "out": [9, 9],
    }
    g = optimize(built(case, constant=True), MI300X)
    assert not any(n.op == "conv_phases" for n in g.nodes)


def test_channels_that_do_not_fit() -> None:
    attrs = dict.fromkeys(("strides", "dilations", "before", "first"), (1, 1)) | {"kernel": (2, 2), "factors": (2, 2), "out_space": (8, 8)}  # fmt: skip
    with pytest.raises(ImportModelError, match="the channels do not fit"):
        get_op("conv_phases").infer([TensorType("float32", (1, 3, 4, 4)), TensorType("float32", (2, 2, 5, 11))], attrs)
