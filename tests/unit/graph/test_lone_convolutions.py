"""A network's only convolution on a GPU stays in NCHW where the copies to pixels and back would take longer than they save."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

import tec
from tec import te
from tec.choices.group import Group
from tec.choices.layouts import Convolution
from tec.graph import Graph, run_graph
from tec.graph.graph import Node
from tec.graph.passes.layout import choose_layouts
from tec.graph.passes.layout_choice import wanted
from tec.graph.passes.lone_convolutions import Lone, lone_convolution
from tec.ops.layouts import Layout, plain, space
from tec.ops.registry import TensorType, get_op
from tests import seeds
from tests.thinned import thinned_rows

MI300X = tec.Target("rocm -mcpu=gfx942")


def convolution(shape: tuple[int, ...], channels: int, kernel: int, groups: int = 1, dtype: str = "float32", times: int = 1) -> Graph:  # fmt: skip
    """A convolution with a ReLU behind it, `times` of them one after another."""
    g, nd = Graph(), len(shape) - 2
    y = g.input("x", dtype, shape)
    rng = np.random.default_rng(0)
    for _ in range(times):
        w = g.constant(rng.standard_normal((channels, y.shape[1] // groups, *(kernel,) * nd)).astype(dtype), "w")
        pads, ones = (kernel // 2,) * nd, (1,) * nd
        attrs = {"strides": ones, "dilations": ones, "before": pads, "after": pads, "groups": groups}
        y = g.add("relu", g.add("conv", [y, w], attrs))[0]
    g.set_outputs([y], ["y"])
    return g


def test_small_and_memory_bound_ones_stay() -> None:
    small, depthwise = convolution((1, 9, 40, 50), 56, 3), convolution((8, 136, 56, 56), 136, 3, groups=136)
    found = lone_convolution(small, MI300X)
    assert found is not None and (found.convolution is None or found.convolution.x == plain(4))
    # A depthwise one has no layout that it wants: its windows are read from plain images.
    assert wanted(next(n for n in depthwise.nodes if n.op == "conv"), MI300X, ()) is None


def test_windows_of_halves_go_by_pixels() -> None:
    """Elements of two bytes one by one take longer than two copies."""
    found = lone_convolution(convolution((8, 120, 40, 40), 72, 3, dtype="float16"), MI300X)
    assert found is not None and found.convolution is not None and found.convolution.x != plain(4)


def test_long_windows_of_few_channels_go_by_pixels() -> None:
    """One by one 49 places of 11 channels took 207 us on an MI250X by the time model, from pixels 105."""
    found = lone_convolution(convolution((8, 11, 120, 120), 96, 7, dtype="float16"), tec.Target("rocm -mcpu=gfx90a"))
    assert found is not None and found.convolution is not None and found.convolution.x != plain(4)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_one_channel_is_filled_up_in_weights_too(dtype: str) -> None:
    assert lone_convolution(convolution((3, 1, 41, 9), 30, 3, dtype=dtype), MI300X) is not None


@thinned_rows(2, ("mcpu", "dtype"), [("gfx942", "float16"), ("gfx1100", "float16"), ("gfx90a", "float32")])
def test_results_of_pixels_are_stored_plain(mcpu: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many output channels of an image that is copied to pixels: no copy of the results stands behind, and each is where it belongs, in images that no tile divides."""
    target, large = tec.Target(f"rocm -mcpu={mcpu}"), convolution((32, 6, 112, 112), 56, 7, dtype="float16")
    if mcpu == "gfx942":
        found = lone_convolution(large, target)
        assert found is not None and found.convolution is not None
        assert found.convolution.x.is_flat and found.convolution.y.name == "NC(HW)"
    g = convolution((2, 9, 7, 11), 21, 3, dtype=dtype)

    def found_so(graph: Graph, target: tec.Target) -> Lone:
        node = next(n for n in graph.nodes if n.op == "conv")
        usual = wanted(node, target, ())
        assert usual is not None
        return Lone(node, replace(usual, y=Layout("NC(HW)")))

    monkeypatch.setattr("tec.graph.passes.layout.lone_convolution", found_so)
    net = tec.compile(g, target, cache=False)
    assert [names[0] for names in net.report.functions.values()] == ["transform_layout", "conv"]
    x = {"x": np.random.default_rng(1).standard_normal((2, 9, 7, 11)).astype(dtype)}
    got = net.run(x, device=tec.rocm_emu(mcpu, check="all"))[0]
    np.testing.assert_allclose(got, run_graph(g, x)[0], rtol=0.02, atol=0.02)


def in_blocks(node: Node, block: int) -> Convolution:
    """A plain image by weights that have some channels of each place of the window together."""
    rank = node.inputs[0].ndim
    axes = space(rank)
    return Convolution(plain(rank), Layout(f"O(I{axes})"), Layout(f"NC({axes})"), block=block)


def test_channels_of_a_place_follow_each_other_where_addresses_take_long() -> None:
    """88 channels by places of 3 x 3: eight terms of a sum are neighbouring channels, whose place is found once."""
    g = convolution((2, 88, 60, 60), 100, 3, dtype="float16")
    found = lone_convolution(g, tec.Target("rocm -mcpu=gfx1100"))
    assert found is not None and found.convolution == in_blocks(found.node, 8)


@thinned_rows(2, ("mcpu", "dtype", "shape", "block"), [
    ("gfx942", "float16", (2, 16, 7, 11), 8), ("gfx1100", "float16", (1, 21, 3, 5, 6), 8), ("gfx1201", "float32", (2, 11, 7, 9), 4), ("gfx1030", "float16", (1, 32, 9, 8), 16),
    ("gfx90a", "float32", (1, 8, 4, 5, 3), 8),
])  # fmt: skip
def test_blocks_of_channels_are_right(mcpu: str, dtype: str, shape: tuple[int, ...], block: int, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """Also where channels are no whole blocks: the image lies as it is, and what fills up is asked for nowhere."""
    g = convolution(shape, 21, 3, dtype=dtype)

    def found_so(graph: Graph, target: tec.Target) -> Lone:
        node = next(n for n in graph.nodes if n.op == "conv")
        return Lone(node, in_blocks(node, block))

    monkeypatch.setattr("tec.graph.passes.layout.lone_convolution", found_so)
    net = tec.compile(g, tec.Target(f"rocm -mcpu={mcpu}"), cache=False)
    assert [names[0] for names in net.report.functions.values()] == ["conv"]
    x = {"x": np.random.default_rng(1).standard_normal(shape).astype(dtype)}
    got = net.run(x, device=tec.rocm_emu(mcpu, check="all"))[0]
    np.testing.assert_allclose(got, run_graph(g, x)[0], rtol=0.02, atol=0.03)


def test_what_fills_a_block_comes_under_conditions() -> None:
    """Of windows without padding too: of 21 channels in blocks of 8 the last three are none of the image's."""
    letters = Layout("O(IHW)")
    x = te.placeholder((1, 21, 9, 9), "float16")
    for depth, is_filled in ((24, True), (21, False)):
        w = te.placeholder((32, depth * 9), "float16")
        none = {k: (v, v) for k, v in (("strides", 1), ("dilations", 1), ("before", 0), ("after", 0))}
        attrs = {
            **none,
            "groups": 1,
            "kernel": (3, 3),
            "layouts": (plain(4), letters, Layout("NC(HW)")),
            "block": 8 if is_filled else 0,
        }
        (y,) = get_op("conv").compute(attrs, [x, w], [TensorType("float16", (1, 32, 49))])
        found = Group.of([y]).form("product")
        assert found is not None and found[0].attrs["contraction"].b.guarded is is_filled


@pytest.mark.parametrize("target", ["rocm -mcpu=gfx90a", "rocm -mcpu=gfx942"])
def test_channels_of_groups_are_filled_up(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """37 channels a group would be read one by one: each group has more in the copy to pixels, where they are no run of the image's channels; and the values are right."""
    g = convolution((1, 148, 14, 13), 64, 3, groups=4, dtype="float16")
    own = wanted(next(n for n in g.nodes if n.op == "conv"), tec.Target(target), ())
    assert own is not None and own.merged == 1 and own.fill > 1
    x = {"x": np.random.default_rng(1).standard_normal((1, 148, 14, 13)).astype("float16")}
    monkeypatch.setattr("tec.graph.passes.layout.lone_convolution", lambda *a: None)  # as beside others
    made = choose_layouts(g, tec.Target(target))
    (copy,) = [n for n in made.nodes if n.op == "transform_layout" and n.attrs.get("groups")]
    assert dict(copy.attrs["sizes"])["C"] == 4 * 40 and copy.attrs["from_channels"] == 148
    net = tec.compile(g, target, cache=False)
    assert [c["choice"]["template"] for c in net.report.choices.values()][:2] == ["gpu transpose", "matrix product"]
    chip = tec.rocm_emu(target.rpartition("=")[2], check="all")
    np.testing.assert_allclose(net.run(x, device=chip)[0], run_graph(g, x)[0], rtol=0.02, atol=0.05)


@pytest.mark.parametrize("target", ["cuda -arch=sm_90a", "llvm"])
def test_it_is_for_machines_whose_prices_tell(target: str) -> None:
    assert lone_convolution(convolution((1, 9, 40, 50), 56, 3), tec.Target(target)) is None


@pytest.mark.parametrize("shape,channels", [((8, 240, 29, 29), 11), ((1, 16, 1, 59), 110), ((3, 64, 22, 22), 72)])
def test_a_pixel_s_channels_are_one_product_on_every_gpu(shape: tuple[int, ...], channels: int) -> None:
    net = tec.compile(convolution(shape, channels, 1, dtype="float16"), target="cuda -arch=sm_90a", cache=False)
    assert list(net.report.functions.values()) == [["conv", "relu"]]


def test_networks_keep_their_layouts() -> None:
    assert lone_convolution(convolution((1, 16, 20, 20), 16, 3, times=2), MI300X) is None


@pytest.mark.parametrize("is_few", [False, True])
@pytest.mark.parametrize("seed", seeds.some(1))
def test_drawn_ones_are_right(seed: int, is_few: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the software GPU, beside the reference; of few output channels in two steps (`few_outputs`), whatever prices say."""
    rng = Random(seed)
    c = rng.randint(24, 40) if is_few else rng.randint(1, 20)
    shape = (rng.randint(1, 3), c, rng.choice((1, 3, 9)), rng.randint(3, 12))
    groups = 1 if is_few else rng.choice((1, 1, c))
    channels = rng.randint(1, 3) if is_few else rng.randint(4, 24)
    monkeypatch.setattr("tec.graph.passes.few_outputs._pays", lambda *a: is_few)
    g = convolution(shape, c if groups > 1 else channels, 3 if is_few else rng.choice((1, 3)), groups)
    feeds = {"x": np.random.default_rng(1).standard_normal(shape, dtype=np.float32)}
    (want,) = run_graph(g, feeds)
    net = tec.compile(g, target=MI300X, cache=False)
    assert any("tap_sum" in made for made in net.report.functions.values()) is is_few
    (got,) = net.run(feeds, device=tec.rocm_emu("gfx942", check="all"))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * float(np.abs(want).max()))
