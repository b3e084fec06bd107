"""Sums over the places of a window of products that were made pixel by pixel: the second half of a convolution of few output channels.

    y[n, o, p] = sum over taps t of products[n, t * out + o, p * stride + t * dilation - before]

The products are a convolution by one pixel, whose channels are the taps times the outputs: it reads each pixel once, where windows are gathered as often as they have places. A
graph has this operator where a pass put it (`graph.passes.few_outputs`).
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Sequence
from typing import Any

from .. import te
from ..te import Tensor
from .conv import output_sizes
from .layouts import plain
from .registry import REDUCTION, WINDOWED, Attrs, TensorType, fail, register, static_shape
from .windows import Windows, image_sizes, layouts_of, spatial


def _sizes(shape: Sequence[Any], attrs: Attrs) -> dict[str, Any]:
    """Sizes of the axes of the output."""
    lx, _ = layouts_of(attrs, 2)
    x = image_sizes(lx, shape, attrs)
    groups, taps = attrs["groups"], math.prod(attrs["kernel"])
    rank = len(attrs["strides"]) + 2
    weights = (x["C"] // taps, 1, *attrs["kernel"])
    own = {k: v for k, v in attrs.items() if k != "layouts"}
    image = plain(rank).shape({**x, "C": groups})
    return output_sizes((image, weights), {**own, "groups": groups})[1]


def _type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    (x,) = types
    lx, ly = layouts_of(attrs, 2)
    taps = math.prod(attrs["kernel"])
    if x.ndim != len(lx.dims) or lx.blocks or image_sizes(lx, x.shape, attrs)["C"] % (taps * attrs["groups"]):
        raise fail(f"sums of taps of {x} with {attrs}")
    return [TensorType(attrs["out_dtype"], ly.shape(_sizes(x.shape, attrs)))]


def _flops(types: Sequence[TensorType], outs: Sequence[TensorType], attrs: Attrs) -> int:
    return int(outs[0].size) * math.prod(attrs["kernel"])


@register("tap_sum", REDUCTION, _type, flops=_flops, traits=[WINDOWED], takes=1)
def _tap_sum(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """The sum of each output's products over a window. `kernel`, `strides`, `dilations`, `before`, `after`, `groups` of the convolution; `out_dtype`; `layouts` of products and output, and
    `space` (see `windows`). A group's products lie beside each other, its taps around its outputs; beyond the image they are 0."""
    (x,), (out,) = inputs, outputs
    lx, ly = layouts_of(attrs, 2)
    sizes = _sizes(static_shape(x), attrs)
    windows = Windows(x, attrs, lx, True)
    taps, own = math.prod(attrs["kernel"]), sizes["C"] // attrs["groups"]

    def term(i: Sequence[Any], place: Sequence[Any]) -> Any:
        at = {axis: v for axis, v in ly.place(i, sizes).items() if len(axis) == 1}
        group, c = (0, at["C"]) if attrs["groups"] == 1 else (te.indexdiv(at["C"], own), te.indexmod(at["C"], own))
        tap = functools.reduce(lambda k, r: k * r[1] + r[0], zip(place, attrs["kernel"]), 0)
        return windows.read({**at, "C": (group * taps + tap) * own + c}, dict(zip(spatial(attrs), place)))

    if lx == plain(len(attrs["strides"]) + 2):
        # Neighbours along a row have windows of their own: as a sum a thread has few of them, and loads without branches.
        axes = [te.reduce_axis((0, n), f"r{k}") for k, n in enumerate(attrs["kernel"])]
        y = te.compute(out.shape, lambda *i: te.sum(term(i, axes), axis=axes), name="tap_sum")
        return [y if y.dtype == out.dtype else te.compute(out.shape, lambda *i: y(*i).astype(out.dtype), name="cast")]

    def body(*i: Any) -> Any:
        places = itertools.product(*(range(n) for n in attrs["kernel"]))
        return functools.reduce(operator.add, (term(i, place) for place in places)).astype(out.dtype)

    return [te.compute(out.shape, body, name="tap_sum")]
