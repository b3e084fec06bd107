"""Convolutions of few output channels as products by one pixel and sums of their taps: what they mean in any layout, and where they pay."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec.errors import ImportModelError
from tec.graph import Graph, run_graph
from tec.graph.optimize import optimize
from tec.graph.passes.few_outputs import few_outputs
from tec.ops.registry import TensorType, get_op

MI300X = tec.Target("rocm -mcpu=gfx942")


def convolution(
    shape, channels, kernel, strides=None, dilations=None, before=None, after=None, groups=1, dtype="float32", times=1
) -> Graph:
    """A convolution with a ReLU behind it, or some whose results are added; small whole numbers, so that any order of sums is exact."""
    g, rng, ones = Graph(), np.random.default_rng(1), (1,) * len(kernel)
    attrs = {"strides": strides or ones, "dilations": dilations or ones, "groups": groups}
    attrs |= {"before": before or tuple(n // 2 for n in kernel)}
    attrs |= {"after": after or attrs["before"]}
    x, total = g.input("x", dtype, shape), None
    for _ in range(times):
        w = g.constant(rng.integers(-2, 3, (channels, shape[1] // groups, *kernel)).astype(dtype))
        (y,) = g.add("conv", [x, w], attrs)
        (total,) = (y,) if total is None else g.add("add", [total, y])
    g.set_outputs(g.add("relu", [total]))
    return g


def image(g: Graph) -> dict[str, np.ndarray]:
    (x,) = g.inputs
    return {"x": np.random.default_rng(2).integers(-2, 3, x.shape).astype(x.dtype)}


@pytest.mark.parametrize("case", [
    {"shape": (2, 96, 9, 11), "channels": 3, "kernel": (3, 3)},
    {"shape": (1, 96, 12, 7), "channels": 4, "kernel": (5, 3), "strides": (2, 1), "dilations": (1, 2), "before": (1, 0), "after": (2, 3)},
    {"shape": (2, 128, 8, 8), "channels": 8, "kernel": (3, 3), "groups": 4, "dtype": "float16"},
    {"shape": (3, 160, 40), "channels": 6, "kernel": (7,), "dtype": "float16"},
    {"shape": (1, 64, 10, 10), "channels": 2, "kernel": (3, 3), "times": 2},
])  # fmt: skip
def test_values(case, monkeypatch) -> None:
    """As the convolution's, whatever prices say; alone images stay as they are, beside another convolution they lie as pixels by channels."""
    monkeypatch.setattr("tec.graph.passes.few_outputs._pays", lambda *a: True)
    g = convolution(**case)
    after = optimize(g, MI300X)
    assert sum(n.op == "tap_sum" for n in after.nodes) == case.get("times", 1)
    assert all(np.prod(n.attrs["kernel"]) == 1 for n in after.nodes if n.op == "conv" and "kernel" in n.attrs)
    np.testing.assert_array_equal(run_graph(after, image(g))[0], run_graph(g, image(g))[0])


@pytest.mark.parametrize("target,pays,case", [
    ("rocm -mcpu=gfx950", True, {"shape": (32, 759, 24, 24), "channels": 16, "kernel": (3, 3), "dtype": "float16"}),
    ("rocm -mcpu=gfx950", True, {"shape": (1, 592, 144, 144), "channels": 32, "kernel": (3, 3), "groups": 4}),
    ("rocm -mcpu=gfx1030", True, {"shape": (1, 300, 96, 96), "channels": 60, "kernel": (3, 3), "groups": 4, "dtype": "float16"}),  # gathered
    ("rocm -mcpu=gfx942", False, {"shape": (1, 64, 56, 56), "channels": 64, "kernel": (3, 3)}),  # as many outputs as inputs
    ("rocm -mcpu=gfx942", False, {"shape": (1, 64, 56, 56), "channels": 4, "kernel": (1, 1)}),  # its products are those of a pixel already
    ("rocm -mcpu=gfx942", False, {"shape": (1, 64, 56, 56), "channels": 16, "kernel": (5, 5), "strides": (8, 8)}),  # most pixels are in no window
    ("cuda -arch=sm_90a", False, {"shape": (32, 759, 24, 24), "channels": 16, "kernel": (3, 3), "dtype": "float16"}),  # nobody measured it there
    ("llvm", False, {"shape": (32, 759, 24, 24), "channels": 16, "kernel": (3, 3)}),
])  # fmt: skip
def test_where_it_pays(target, pays, case) -> None:
    after = few_outputs(convolution(**case), tec.Target(target))
    assert any(n.op == "tap_sum" for n in after.nodes) is pays


def test_sums_of_many_taps_are_short_code(monkeypatch) -> None:
    """A thread has few of them, however wide the results' pieces are: written out for eight, 49 taps were 392 loads, each behind a branch."""
    monkeypatch.setattr("tec.graph.passes.few_outputs._pays", lambda *a: True)
    net = tec.compile(convolution((1, 96, 80, 80), 9, (7, 7), dtype="float16"), MI300X, cache=False)
    text = net.module.get_source("asm")
    (kernel,) = [part for part in text.split(".p2align") if "tap_sum" in part and "s_endpgm" in part]
    assert kernel.count("s_cbranch") < 49


def test_channels_that_are_not_taps_times_outputs() -> None:
    attrs = dict.fromkeys(("strides", "dilations", "before", "after"), (1, 1)) | {"kernel": (3, 3), "groups": 1, "out_dtype": "float32"}  # fmt: skip
    with pytest.raises(ImportModelError, match="sums of taps"):
        get_op("tap_sum").infer([TensorType("float32", (1, 20, 8, 8))], attrs)
