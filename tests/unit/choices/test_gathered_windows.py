"""Windows of images on AMD's matrix units whose elements come one by one: neighbouring threads load for neighbouring pixels, and shared memory holds pieces along the sum."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import pytest

import tec
from tec.choices import spaces
from tests.thinned import thinned_rows

from .test_spaces import WINDOW as ONCE
from .test_spaces import program

WINDOW = {**ONCE, "groups": 1}
CASES = {
    # type, (images, channels, *sizes), (outputs, channels of a group, *window), attributes
    "1-D": ("float16", (2, 40, 61), (70, 40, 3), {"before": (1,), "after": (1,), "strides": (1,), "dilations": (1,)}),
    "apart": ("float16", (1, 24, 50), (64, 24, 3), {"before": (2,), "after": (2,), "strides": (1,), "dilations": (2,)}),
    "2-D": ("float16", (1, 6, 21, 21), (75, 6, 5, 5), {"before": (2, 2), "after": (2, 2)}),
    "strides": ("float32", (1, 16, 19, 19), (64, 16, 3, 3), {"strides": (2, 2)}),
    "bytes": ("int8", (1, 20, 23, 23), (64, 20, 3, 3), {"out_dtype": "int32"}),
    "groups": ("float16", (1, 32, 15, 15), (128, 16, 3, 3), {"groups": 2}),
}


def _built(case: str, chip: str) -> Any:
    """The kernel by tiles of 64 pixels, as many as a wavefront of CDNA has lanes."""
    dtype, image, weights, attrs = CASES[case]
    xs, outs = program("conv", WINDOW | {"out_dtype": dtype} | attrs, (dtype, image), (dtype, weights))
    space = next(s for s in spaces(outs, f"rocm -mcpu={chip}") if s.template == "matrix product")
    tile = {"rows": 64, "columns": 64, "waves_m": 2, "waves_n": 2, "slice_k": 1, "split_k": 1, "group_m": 0}
    made = space.apply({**space.default, **tile})
    return tec.build(made.schedule, [*xs, *made.outputs], f"rocm -mcpu={chip}", name="f")


def _windows(x: Any, w: Any, attrs: dict[str, Any]) -> Any:
    """The convolution in float64."""
    a = WINDOW | attrs
    x = np.pad(x.astype("f8"), [(0, 0), (0, 0), *zip(a["before"], a["after"])])
    outs, groups, taps = w.shape[0], a["groups"], w.shape[2:]
    reach = [(n - (t - 1) * d - 1) // s + 1 for n, t, d, s in zip(x.shape[2:], taps, a["dilations"], a["strides"])]
    y = np.zeros((x.shape[0], outs, *reach))
    for place in np.ndindex(*taps):
        part = x[(slice(None), slice(None), *(slice(p * d, p * d + (r - 1) * s + 1, s) for p, d, r, s in zip(place, a["dilations"], reach, a["strides"])))]  # fmt: skip
        own = w[(slice(None), slice(None), *place)].astype("f8")
        for g in range(groups):
            i, o = x.shape[1] // groups, outs // groups
            y[:, g * o : (g + 1) * o] += np.einsum(
                "nc...,oc->no...", part[:, g * i : (g + 1) * i], own[g * o : (g + 1) * o]
            )
    return y


@thinned_rows(4, "case,chip", [("1-D", "gfx942"), ("apart", "gfx1100"), ("2-D", "gfx90a"), ("strides", "gfx950"), ("groups", "gfx1201"), ("bytes", "gfx942"), ("bytes", "gfx1100")])  # fmt: skip
def test_windows_are_right(case: str, chip: str) -> None:
    f = _built(case, chip)
    dev, rng = tec.rocm_emu(chip, check="race,init"), np.random.default_rng(3)
    dtype, image, weights, attrs = CASES[case]
    x, w = ((3 * rng.standard_normal(s)).astype(dtype) for s in (image, weights))
    want = _windows(x, w, attrs)
    out = tec.nd.empty(want.shape, attrs.get("out_dtype", dtype), dev)
    f(tec.nd.array(x, dev), tec.nd.array(w, dev), out)
    assert np.abs(out.numpy() - want).max() <= 4e-3 * np.abs(want).max()


def lone(image: tuple[int, ...], weights: tuple[int, ...]) -> Any:
    """A model of one convolution in float16, whose image stays as large as it is."""
    to = (image[0], weights[0], *image[2:])
    x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT16, s) for n, s in (("x", image), ("y", to)))
    w = onnx.numpy_helper.from_array(np.zeros(weights, "float16"), "w")
    pads = [n // 2 for n in weights[2:]] * 2
    node = onnx.helper.make_node("Conv", ["x", "w"], ["y"], pads=pads)
    return onnx.helper.make_model(onnx.helper.make_graph([node], "g", [x], [y], [w]), ir_version=9)


def test_places_of_two_dimensions_are_dear() -> None:
    """A copy with channels last and its product are thought to take less than windows of 5 x 5 of plain images: 27 us for 40 on an MI210 by the time model."""
    model = lone((2, 164, 24, 24), (169, 164, 5, 5))
    net = tec.compile(model, "rocm -mcpu=gfx90a", cache=False)
    assert [c["choice"]["template"] for c in net.report.choices.values()] == ["gpu transpose", "matrix product"]


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_shared_memory_is_read_in_pieces(chip: str) -> None:
    asm = _built("1-D", chip).get_source("asm")
    assert re.search(r"(ds_read|ds_load)_b(64|128)", asm)
    assert not re.search(r"(ds_read|ds_load)_u16", asm)


def test_places_of_three_dimensions_are_dearer() -> None:
    """A copy with channels last and its product are thought to take less than windows of 3 x 3 x 3 of plain images: 237 us for 450 on an MI210 by the time model."""
    model = lone((1, 118, 38, 38, 38), (96, 118, 3, 3, 3))
    net = tec.compile(model, "rocm -mcpu=gfx90a", cache=False)
    assert [c["choice"]["template"] for c in net.report.choices.values()] == ["gpu transpose", "matrix product"]
