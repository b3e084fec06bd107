"""Convolutions on AMD's matrix units from boxes of the image in shared memory: right in every layout, by whatever part of the window a step has, and chosen where windows overlap most."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tec
from tec.choices import spaces
from tec.ops.conv import stored_in_blocks
from tec.ops.layouts import Layout
from tests.thinned import thinned_rows

from .test_gathered_windows import _windows, lone
from .test_spaces import program

# name: type, image, weights, attributes, choice
CASES: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any], dict[str, Any]]] = {
    "ragged": ("float16", (3, 20, 13, 13), (40, 20, 3, 3), {}, {"pixels": 32, "outs": 32, "channels": 32, "along": 2, "near": 2}),
    "images": ("float16", (3, 32, 6, 6), (32, 32, 3, 3), {}, {"pixels": 64, "outs": 32, "channels": 32, "along": 2, "near": 1}),
    "steps": ("bfloat16", (1, 40, 17, 17), (32, 40, 5, 5), {}, {"pixels": 32, "outs": 32, "channels": 32, "along": 2, "near": 0}),
    "rows": ("float16", (1, 32, 15, 15), (32, 32, 3, 3), {"strides": (2, 2)}, {"pixels": 32, "outs": 16, "channels": 32, "along": 1, "near": 1}),
    "apart": ("float16", (2, 24, 12, 12), (32, 24, 3, 3), {"dilations": (2, 2), "before": (2, 2), "after": (1, 3)}, {"pixels": 32, "outs": 32, "channels": 32, "along": 2, "near": 1}),
    "parts": ("float16", (1, 80, 9, 9), (48, 80, 3, 3), {}, {"pixels": 32, "outs": 16, "channels": 32, "along": 2, "near": 1, "split_k": 2}),
    "1-D": ("float16", (2, 40, 61), (70, 40, 3), {}, {"pixels": 32, "outs": 32, "channels": 32, "along": 1, "near": 1}),
    "3-D": ("float16", (1, 16, 6, 7, 9), (20, 16, 3, 3, 3), {}, {"pixels": 32, "outs": 16, "channels": 32, "along": 3, "near": 2}),
    "float32": ("float32", (1, 16, 12, 12), (32, 16, 3, 3), {}, {"pixels": 32, "outs": 32, "channels": 32, "along": 2, "near": 1}),
    "groups": ("float16", (1, 64, 10, 10), (64, 32, 3, 3), {"groups": 2}, {"pixels": 32, "outs": 32, "channels": 32, "along": 2, "near": 2}),
}  # fmt: skip
LAYOUTS = ("plain", "blocks", "pixels", "copied")


def _lies(layout: str, attrs: dict[str, Any], x: Any, w: Any) -> tuple[dict[str, Any], Any, Any]:
    """The attributes of a layout, and the operands in it: plain images, the same with weights in blocks of channels, pixels by channels, and these with plain results."""
    space = "DHW"[5 - x.ndim :]
    if layout == "plain":
        return attrs, x, w
    flat = f"NC({space})" if len(space) > 1 else "NCW"
    if layout == "blocks":
        lies = {"layouts": (Layout(f"NC{space}"), Layout(f"O(I{space})"), Layout(flat)), "block": 8}
        return {**attrs, **lies}, x, stored_in_blocks(w.reshape(*w.shape[:2], -1), 8)
    pixels = Layout(f"(N{space})C")
    lies = {"layouts": (pixels, Layout(f"O({space}I)"), pixels if layout == "pixels" else Layout(flat)), "space": (x.shape[0], *x.shape[2:])}  # fmt: skip
    x, w = (np.ascontiguousarray(np.moveaxis(v, 1, -1)) for v in (x, w))
    return {**attrs, **lies}, x.reshape(-1, x.shape[-1]), w.reshape(w.shape[0], -1)


@thinned_rows(
    4, "case,layout,chip",
    [
        ("ragged", "plain", "gfx942"), ("ragged", "pixels", "gfx1100"), ("images", "copied", "gfx950"), ("images", "pixels", "gfx942"),
        ("steps", "blocks", "gfx950"), ("steps", "pixels", "gfx90a"), ("rows", "copied", "gfx942"), ("rows", "blocks", "gfx1201"),
        ("apart", "plain", "gfx942"), ("apart", "copied", "gfx1100"), ("parts", "blocks", "gfx942"), ("parts", "pixels", "gfx1201"),
        ("1-D", "plain", "gfx1100"), ("1-D", "copied", "gfx942"), ("3-D", "pixels", "gfx942"), ("3-D", "pixels", "gfx90a"),
        ("float32", "pixels", "gfx942"), ("float32", "plain", "gfx90a"), ("groups", "pixels", "gfx942"), ("groups", "plain", "gfx1100"),
    ],
)  # fmt: skip
def test_boxes_are_right(case: str, layout: str, chip: str) -> None:
    dtype, image, weights, attrs, choice = CASES[case]
    nd, rng = len(image) - 2, np.random.default_rng(3)
    reach = tuple(n // 2 for n in weights[2:])
    attrs = {
        "kernel": weights[2:], "strides": (1,) * nd, "dilations": (1,) * nd, "before": reach, "after": reach, "groups": 1, "out_dtype": dtype, **attrs,
    }  # fmt: skip
    x, w = (tec.nd.array(rng.standard_normal(s).astype("float32"), tec.cpu()).numpy() for s in (image, weights))
    want = _windows(x, w, attrs)
    told, x, w = _lies(layout, attrs, x, w)
    xs, outs = program("conv", told, (dtype, x.shape), (dtype, w.shape))
    target = f"rocm -mcpu={chip}"
    space = next(s for s in spaces(outs, target) if s.template == "halo convolution")
    (box,) = (b for b in space.parameters["box"] if math.prod(map(int, b.split("x"))) == choice["pixels"])
    choice = {"box": box, **{k: v for k, v in choice.items() if k != "pixels"}}
    if not target.endswith(("942", "950", "90a")):  # of whose instructions 16 channels are one
        choice["channels"] = 16
    names = sorted(space.parameters["instruction"], key=lambda n: [int(k) for k in n.split("x")])
    made = space.apply({**space.default, "waves_m": 1, "waves_n": 1, "instruction": names[0], "prefetch_distance": 1, "split_k": 1, **choice})  # fmt: skip
    dev, kind = tec.rocm_emu(chip, check="all"), _numpy(dtype)
    out = tec.nd.empty(tuple(int(n) for n in outs[0].shape), dtype, dev)
    f = tec.build(made.schedule, [*xs, *made.outputs], target, name="f")
    f(tec.nd.array(x.astype(kind), dev), tec.nd.array(w.astype(kind), dev), out)
    got = out.numpy().astype("f8")
    got = (
        np.moveaxis(got.reshape(want.shape[0], *want.shape[2:], -1), -1, 1)
        if layout == "pixels"
        else got.reshape(want.shape)
    )
    least = {"float32": 1e-5, "float16": 4e-3}.get(dtype, 3e-2)
    assert np.abs(got - want).max() <= least * np.abs(want).max()


def _numpy(dtype: str) -> Any:
    if dtype != "bfloat16":
        return dtype
    return pytest.importorskip("ml_dtypes").bfloat16


def test_a_lone_place_has_no_neighbours() -> None:
    """Nothing would come once, and all but one of a box's places were cut off: no choice could be lowered."""
    attrs = {"kernel": (3, 3), "strides": (1, 1), "dilations": (1, 1), "before": (0, 0), "after": (0, 0), "groups": 1, "out_dtype": "float16"}  # fmt: skip
    names = []
    for side in (3, 4):
        _, outs = program("conv", attrs, ("float16", (1, 32, side, side)), ("float16", (32, 32, 3, 3)))
        names.append([s.template for s in spaces(outs, "rocm -mcpu=gfx942")])
    assert ["halo convolution" in found for found in names] == [False, True]


def test_windows_that_overlap_come_once() -> None:
    """112 channels of 2 x 110 x 110 to 288 by 7 x 7 on an MI355X: gathered for each place of the window, an element of the image is brought 49 times."""
    net = tec.compile(lone((2, 112, 110, 110), (288, 112, 7, 7)), "rocm -mcpu=gfx950", cache=False)
    assert "halo convolution" in [c["choice"]["template"] for c in net.report.choices.values()]


def test_a_residual_is_read_where_there_is_a_result() -> None:
    """Boxes reach beyond the image, and what follows the sums does not."""
    import onnx

    model = lone((1, 32, 11, 13), (32, 32, 3, 3))
    model.graph.input.append(onnx.helper.make_tensor_value_info("r", onnx.TensorProto.FLOAT16, (1, 32, 11, 13)))
    model.graph.node[0].output[0] = "c"
    model.graph.node.append(onnx.helper.make_node("Add", ["c", "r"], ["y"]))
    net = tec.compile(model, "rocm -mcpu=gfx942", cache=False)
    r = np.random.default_rng(1).standard_normal((1, 32, 11, 13)).astype("float16")
    (y,) = net.run({"x": r, "r": r}, device=tec.rocm_emu("gfx942", check="all"))
    np.testing.assert_array_equal(y, r)
