"""Convolutions of every kind go the same way: along one dimension, in groups, of 16-bit floats, integers and open sizes."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

import tec
from tec.choices import layout_options
from tec.graph.graph import Graph, run_graph
from tec.graph.optimize import optimize
from tec.graph.passes.fuse import fuse
from tec.graph.passes.layout import choose_layouts
from tec.target import Target
from tests.thinned import thinned

CPUS = ("llvm", "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64")
rng = np.random.default_rng(11)


def conv(g: Graph, x: Any, w: Any, **more: Any) -> Any:
    nd = x.ndim - 2
    attrs = {"strides": (1,) * nd, "dilations": (1,) * nd, "before": (0,) * nd, "after": (0,) * nd, "groups": 1, **more}
    return g.add("conv", [x, g.constant(w, "w")], attrs)[0]


def numbers(dtype: str, *shape: int) -> np.ndarray:
    kind = {"float16": np.float16, "int32": np.int32, "float64": np.float64, "uint8": np.uint8, "int8": np.int8}.get(
        dtype, np.float32
    )
    low = 0 if dtype == "uint8" else -4
    return rng.integers(low, 5, shape).astype(kind)


def check(g: Graph, x: np.ndarray, target: str = "llvm", device: Any = None) -> None:
    want = run_graph(g, {"x": x})
    got = tec.compile(g, target=target, cache=False).run({"x": x}, **({"device": device} if device else {}))
    for a, b in zip(got, want):
        assert a.dtype == b.dtype
        # Small whole numbers: every order gives the same.
        np.testing.assert_array_equal(a.astype("float64"), b.astype("float64"))


# x, w, attributes; 1-D, and images of one column
LINES = [
    ((2, 5, 190), (7, 5, 3), {}),
    ((1, 16, 200), (16, 16, 3), {"before": (2,), "after": (1,), "strides": (2,), "dilations": (2,)}),
    ((1, 6, 12), (6, 1, 3), {"groups": 6, "before": (1,), "after": (1,)}),
    ((1, 32, 12), (32, 16, 3), {"groups": 2}),
    ((1, 4, 511, 1), (8, 4, 5, 1), {"before": (2, 0), "after": (2, 0), "strides": (3, 1)}),
    ((1, 4, 170, 1), (8, 4, 5, 1), {"before": (2, 1), "after": (2, 0)}),  # its width is padded: an image after all
]


@pytest.fixture
def blocks_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain images have no register tiles and are no products, which are cheaper for some of these."""
    monkeypatch.setattr(layout_options, "FEWEST_COLUMNS", 1 << 30)
    monkeypatch.setattr(layout_options, "_as_product", lambda *_: math.inf)


@pytest.mark.usefixtures("blocks_alone")
@pytest.mark.parametrize("shape,weights,attrs", LINES, ids=str)
def test_along_one_dimension(shape: Any, weights: Any, attrs: dict[str, Any]) -> None:
    """A chain with elementwise work and a residual sum between: on images of one row throughout."""
    g = Graph()
    x = g.input("x", "float32", shape)
    y = conv(g, x, numbers("float32", *weights), **attrs)
    (b,) = g.add("add", [y, g.constant(numbers("float32", weights[0], *[1] * (len(shape) - 2)), "b")], {})
    (r,) = g.add("relu", [b], {})
    (s,) = g.add("add", [r, y], {})
    g.set_outputs([s, y])
    check(g, numbers("float32", *shape))
    if (len(shape) == 3 or attrs.get("before") != (2, 1)) and attrs.get("groups") != 6:  # so few stay plain
        nodes = optimize(g, Target("llvm")).nodes
        assert all(n.outputs[0].layout.blocks for n in nodes if n.op == "conv")
        assert sum(n.op == "transform_layout" and bool(n.attrs["layouts"][0].blocks) for n in nodes) <= 2  # the outputs


@thinned(
    1,
    ("target", CPUS),
    (
        "cin,cout,groups",
        [(32, 32, 2), (16, 16, 4), (64, 32, 4), (24, 48, 3), (12, 18, 6), (40, 20, 20), (32, 64, 2), (12, 12, 12)],
    ),
)
def test_groups(target: str, cin: int, cout: int, groups: int) -> None:
    g = Graph()
    x = g.input("x", "float32", (2, cin, 5, 6))
    y = conv(g, x, numbers("float32", cout, cin // groups, 3, 3), groups=groups, before=(1, 1), after=(1, 1))
    g.set_outputs(g.add("relu", [y], {}))
    check(g, numbers("float32", 2, cin, 5, 6), target)


@thinned(
    1,
    ("target", CPUS[:2]),
    (
        "dtype,weights",
        [("float16", "float16"), ("float64", "float64"), ("int32", "int32"), ("uint8", "int8"), ("int8", "int8")],
    ),
    ("groups", [1, 2, 20]),
)
def test_types(target: str, dtype: str, weights: str, groups: int) -> None:
    g = Graph()
    x = g.input("x", dtype, (1, 20, 6, 5))
    y = conv(g, x, numbers(weights, 20, 20 // groups, 3, 2), groups=groups, before=(1, 0), after=(0, 1))
    g.set_outputs(g.add("add", [y, y], {}))
    check(g, numbers(dtype, 1, 20, 6, 5), target)


def test_a_padding_that_is_not_zero_stays() -> None:
    g = Graph()
    x = g.input("x", "int8", (1, 16, 6, 6))
    g.set_outputs([conv(g, x, numbers("int8", 16, 16, 3, 3), before=(1, 1), after=(1, 1), fill=3)])
    check(g, numbers("int8", 1, 16, 6, 6))


@thinned(1, ("shape", [("n", 16, "h", "w"), ("n", 16, 7, "w"), (2, 16, "h", 9)]), ("groups", [1, 16]))
def test_open_sizes(shape: tuple[Any, ...], groups: int) -> None:
    from tec.ops.dims import Dim

    g = Graph()
    x = g.input("x", "float32", tuple(Dim(n) if isinstance(n, str) else n for n in shape))
    y = conv(g, x, numbers("float32", 16, 16 // groups, 3, 3), groups=groups, before=(1, 1), after=(1, 1))
    g.set_outputs(g.add("relu", [y], {}))
    net = tec.compile(g, target="llvm", cache=False)
    weights = np.asarray(next(v for v in g.nodes[0].inputs if v.is_const).data)
    few = ((1, 16, 2, 3),) if shape[2] == "h" and shape[3] == "w" else ()  # fewer pixels than a block has channels
    for sizes in (*few, (2, 16, 7, 9), (2, 16, 7, 20)) if shape[3] == "w" else ((2, 16, 7, 9), (2, 16, 3, 9)):
        bound = Graph()
        bx = bound.input("x", "float32", sizes)
        by = conv(bound, bx, weights, groups=groups, before=(1, 1), after=(1, 1))
        bound.set_outputs(bound.add("relu", [by], {}))
        x = numbers("float32", *sizes)
        np.testing.assert_array_equal(net.run({"x": x})[0], run_graph(bound, {"x": x})[0])


def _text(channels: int, groups: int, *sizes: Any) -> str:
    """The IR of a network of one convolution; without sizes everything but its channels is open."""
    from tec.ops.dims import Dim

    g = Graph()
    n, h, w = sizes or (Dim("n"), Dim("h"), Dim("w"))
    x = g.input("x", "float32", (n, channels, h, w))
    weights = numbers("float32", channels, channels // groups, 3, 3)
    g.set_outputs(g.add("relu", [conv(g, x, weights, groups=groups, before=(1, 1), after=(1, 1))], {}))
    return tec.compile(g, target="llvm -mcpu=x86-64-v4", cache=False).get_source("ir")


def test_the_tiles_of_open_rows_are_not_guarded() -> None:
    """A division a row finds the channels whose weights stay near; none a tile, and no guard. The copy of the padded image divides once a row too,
    and asks of no column whether it is of the padding."""
    text = _text(32, 1)
    body = text[text.index("_conv") :].split("@attrs")[0]
    full = body[body.index("conv = alloc") : body.index("range(n2 // 8,")]  # the columns of whole tiles
    assert "likely" not in full
    assert all("i3_outer" not in line.split("//")[0].rsplit("(", 1)[-1] for line in full.splitlines() if "//" in line)
    pad = body[body.index("pad = alloc") : body.index("conv = alloc")]
    assert "likely" not in pad and "for i3 in range(1, extent=n2)" in pad
    assert all(word not in pad for word in ("select", "if_then_else"))


def test_open_images_are_laid_out_as_bound_ones() -> None:
    """Eight channels fill half a vector's block. Rows of a depthwise convolution that are open need not be whole vectors, which costs more than two copies."""
    assert "[1, 1, h, w, 8]" not in _text(8, 8)
    assert "transform_layout" in _text(32, 32)


def test_a_small_depthwise_convolution_of_whole_vectors_is_not_worth_two_copies() -> None:
    lone = _text(32, 32, 1, 112, 112)
    assert "transform_layout" not in lone
    sums = lone[lone.index("depthwise") :]
    assert 'alloc((64,), "float32", scope="local")' in sums  # sums of four vectors, not of a row in memory


@pytest.mark.parametrize("mcpu,dtype", [("gfx942", "float16"), ("gfx1100", "float32")])
def test_signals_on_a_gpu(mcpu: str, dtype: str) -> None:
    g = Graph()
    x = g.input("x", dtype, (1, 16, 40))
    y = conv(g, x, numbers(dtype, 16, 16, 3), before=(1,), after=(1,))
    g.set_outputs(g.add("relu", [y], {}))
    check(g, numbers(dtype, 1, 16, 40), f"rocm -mcpu={mcpu}", tec.rocm_emu(mcpu))


VOLUMES = [
    ((1, 16, 5, 6, 7), (32, 16, 3, 3, 3), {"before": (1, 1, 1), "after": (1, 1, 1)}),
    ((2, 3, 5, 6, 7), (18, 3, 3, 2, 3), {"strides": (2, 1, 2), "before": (1, 0, 2), "after": (0, 1, 1)}),
    ((1, 16, 4, 6, 7), (16, 1, 3, 3, 3), {"groups": 16, "dilations": (1, 2, 1), "before": (1, 2, 1), "after": (1, 2, 1)}),
    ((1, 32, 3, 5, 6), (32, 8, 1, 3, 3), {"groups": 4}),
]  # fmt: skip


def volumes(shape: Any, weights: Any, attrs: dict[str, Any], dtype: str = "float32") -> Graph:
    """A convolution, a bias, relu, a residual sum, and both poolings."""
    g = Graph()
    x = g.input("x", dtype, shape)
    y = conv(g, x, numbers(dtype, *weights), **attrs)
    (b,) = g.add("add", [y, g.constant(numbers(dtype, weights[0], 1, 1, 1), "b")], {})
    (r,) = g.add("relu", [b], {})
    (s,) = g.add("add", [r, y], {})
    window = {"kernel": (1, 2, 2), "strides": (1,) * 3, "dilations": (1,) * 3, "before": (0, 1, 0), "after": (0, 0, 1)}
    space = tuple(n + p - k + 1 for n, p, k in zip(y.shape[2:], (0, 1, 1), window["kernel"]))
    (m,) = g.add("max_pool", [s], {**window, "out_space": space})
    (a,) = g.add("avg_pool", [s], {**window, "out_space": space, "include_pad": True})
    g.set_outputs([s, m, a])
    return g


@thinned(1, ("target", CPUS), ("shape,weights,attrs", VOLUMES))
def test_volumes(shape: Any, weights: Any, attrs: dict[str, Any], target: str) -> None:
    g = volumes(shape, weights, attrs)
    check(g, numbers("float32", *shape), target)
    made = [n.outputs[0].layout for n in optimize(g, Target(target)).nodes if n.op in ("conv", "max_pool", "avg_pool")]
    assert len(made) == 3 and all(x is not None and x.name.startswith("NCDHW") and x.blocks for x in made)


@pytest.mark.parametrize("mcpu,dtype,layout", [("gfx942", "float16", "(NDHW)C"), ("gfx1100", "float32", "NC(DHW)")])
def test_volumes_on_a_gpu(mcpu: str, dtype: str, layout: str) -> None:
    shape = (1, 8, 3, 5, 6)
    g = volumes(shape, (16, 8, 3, 3, 3), {"before": (1, 1, 1), "after": (1, 1, 1)}, dtype)
    nodes = optimize(g, Target(f"rocm -mcpu={mcpu}")).nodes
    assert [str(n.outputs[0].layout) for n in nodes if n.op == "conv"] == [layout]
    check(g, numbers(dtype, *shape), f"rocm -mcpu={mcpu}", tec.rocm_emu(mcpu))


def test_averages_stay_in_the_layout_of_convolutions() -> None:
    """Padding counts or not, and channels fill up a block; no relayout stands between the convolution and the pooling."""
    for target in ("llvm", "rocm -mcpu=gfx942"):
        g = Graph()
        x = g.input("x", "float32", (2, 4, 7, 6))
        y = conv(g, x, numbers("float32", 5, 4, 3, 3), before=(1, 1), after=(1, 1))
        window = {"kernel": (2, 2), "strides": (1, 1), "dilations": (1, 1), "before": (1, 0), "after": (0, 1)}
        for include in (True, False):
            (p,) = g.add("avg_pool", [y], {**window, "out_space": (7, 6), "include_pad": include})
            (y,) = g.add("lp_pool", [p], {**window, "out_space": (7, 6), "p": 1})
        g.set_outputs([y])
        made = optimize(g, Target(target))
        assert [n.op for n in made.nodes if n.op not in ("transform_layout",)] == ["conv", *("avg_pool", "lp_pool") * 2]
        feeds = {"x": numbers("float32", 2, 4, 7, 6)}
        np.testing.assert_allclose(run_graph(made, feeds)[0], run_graph(g, feeds)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("blocks_alone")
@pytest.mark.parametrize("size, window", [(28, 3), (14, 1), (7, 3), (3, 1)])
def test_sums_stay_in_registers_on_avx2(size: int, window: int) -> None:
    """Two blocks of channels share a broadcast, vectors only, nothing on the stack."""
    g = Graph()
    x = g.input("x", "float32", (1, 32, size, size))
    pad = (window // 2,) * 2
    g.set_outputs([conv(g, x, numbers("float32", 64, 32, window, window), before=pad, after=pad)])
    net = tec.compile(g, target="llvm -mcpu=x86-64-v3", cache=False, tuned=False)
    (name,) = [k for k in net.report.choices if "conv" in k]
    choice, asm = net.report.choices[name]["choice"], net.module.get_source("asm", name)
    assert choice["blocks"] == 2 and choice["columns"] <= 5
    assert asm.count("vfmadd") >= 2 * choice["columns"] and not re.search(r"vfmadd\w+ss|vmulss|vaddss", asm)
    assert not re.search(r"ymm\d+.*\(%rsp|\(%rsp.*ymm|ymm\d+.*\[rsp|\[rsp.*ymm", asm)


@pytest.mark.usefixtures("blocks_alone")
@pytest.mark.parametrize("channels, order", [(16, "channels"), (32, "rows")])
def test_one_block_of_channels_brings_nothing_again(channels: int, order: str) -> None:
    """Both orders are one walk there, and the default that records stand for keeps its name; two blocks of a large image go along its rows."""
    g = Graph()
    x = g.input("x", "float32", (1, channels, 112, 112))
    g.set_outputs([conv(g, x, numbers("float32", channels, channels, 3, 3), before=(1, 1), after=(1, 1))])
    net = tec.compile(g, target="llvm -mcpu=znver4", cache=False, tuned=False)
    (choice,) = [k["choice"] for name, k in net.report.choices.items() if "conv" in name]
    assert choice["outer"] == order


def test_images_of_lone_pixels_are_one_row_on_cpus() -> None:
    g = Graph()
    x = g.input("x", "float32", (2, 6, 9, 9))
    y = g.add("relu", [conv(g, x, numbers("float32", 5, 6, 1, 1))])[0]
    y = g.add("add", [y, g.constant(numbers("float32", 1, 5, 1, 1), "b")])[0]
    g.set_outputs([conv(g, y, numbers("float32", 4, 5, 1, 1))])
    rows = [n.inputs[0].shape for n in optimize(g, Target("llvm")).nodes if n.op == "conv"]
    assert rows == [(2, 6, 1, 81), (2, 5, 1, 81)]
    check(g, numbers("float32", 2, 6, 9, 9))


def test_a_gate_behind_a_convolution_is_not_left_to_the_copy_behind_it() -> None:
    """A depthwise convolution in blocks of channels, and the copy out of them: the gate is made where the sums are."""
    g = Graph()
    x = g.input("x", "float32", (1, 64, 40, 40))
    y = conv(g, x, numbers("float32", 64, 1, 3, 3), groups=64, before=(1, 1), after=(1, 1))
    g.set_outputs([g.add("multiply", [y, g.add("sigmoid", [y])[0]])[0]])
    groups = [[n.op for n in group.nodes] for group in fuse(optimize(g, Target("llvm")))]
    assert ["conv", "sigmoid", "multiply"] in groups


def test_a_volume_whose_copy_is_most_of_the_work_stays_as_it_lies():
    """A stride of 2 leaves most of a copy into blocks unread; of 64 channels the block is worth its copy."""
    target = Target("llvm -mcpu=znver3")
    for channels, out, kernel, stride, is_plain in ((23, 18, 1, 2, True), (64, 64, 3, 1, False)):
        g = Graph()
        x = g.input("x", "float32", (4, channels, 16, 16, 16))
        w = g.constant(np.ones((out, channels, kernel, kernel, kernel), "float32"))
        pad = (kernel // 2,) * 3
        attrs = {"strides": (stride,) * 3, "dilations": (1,) * 3, "before": pad, "after": pad, "groups": 1}
        g.set_outputs(g.add("conv", [x, w], attrs))
        (conv,) = [n for n in choose_layouts(g, target).nodes if n.op == "conv"]
        assert ("layouts" not in conv.attrs) == is_plain
