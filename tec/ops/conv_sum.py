"""Sums of convolutions of several images, as one product: what a residual block adds up, without a result of either in memory.

    y = conv(x0, w0) + conv(x1, w1) + ...  =  [windows of x0, windows of x1, ...] [w0, w1, ...]

The windows are never stored; the weights of all lie side by side along the sum. A graph has this operator where a pass put it (`graph.passes.join_sums`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..te import Tensor
from .contraction import Contraction, Operand, one_after_another, piece_elems
from .conv import output_sizes, window_operand
from .layouts import Layout
from .matmul import accumulator
from .registry import COMPLEX, SUMS, Attrs, TensorType, fail, register, static_shape
from .windows import Windows

EACH = ("strides", "dilations", "before", "after", "kernel", "space")  # attributes with a value for each image


def _parts(attrs: Attrs) -> list[Attrs]:
    """The attributes of each convolution."""
    own = zip(*(attrs[k] for k in EACH))
    return [{**dict(zip(EACH, values)), "layouts": attrs["layouts"], "groups": 1} for values in own]


def _depths(attrs: Attrs, channels: Sequence[int]) -> list[int]:
    """Terms of each convolution's sum."""
    return [math.prod(own["kernel"]) * c for own, c in zip(_parts(attrs), channels)]


def _type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    *images, w = types
    lx, lw, ly = attrs["layouts"]
    if not images or any(len(attrs[k]) != len(images) for k in EACH) or not _are_flat(lx, lw, ly):
        raise fail(f"sum of convolutions of {', '.join(map(str, images))} by {w} with {attrs}")
    channels = [x.shape[lx.axis("C")] for x in images]
    outs = {
        ly.shape(output_sizes((x.shape, (w.shape[0], depth)), own)[1])
        for x, depth, own in zip(images, _depths(attrs, channels), _parts(attrs))
    }
    if len(outs) != 1 or sum(_depths(attrs, channels)) != w.shape[1] or {x.dtype for x in images} != {w.dtype}:
        raise fail(f"sum of convolutions of {', '.join(map(str, images))} by {w}: {outs} and the channels do not fit")
    return [TensorType(w.dtype, outs.pop())]


def _are_flat(lx: Layout, lw: Layout, ly: Layout) -> bool:
    """Whether images and output are matrices of pixels by channels, and weights are matrices."""
    return lx == ly and len(lx.dims) == 2 and lx.dims[1] == "C" and len(lw.dims) == 2 and lw.dims[0] == "O"


def _flops(types: Sequence[TensorType], outs: Sequence[TensorType], attrs: Attrs) -> int:
    total: int = 2 * outs[0].size * types[-1].shape[1]
    return total


@register("conv_sum", COMPLEX, _type, flops=_flops, traits=[SUMS])
def _conv_sum(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """The sum of the convolutions of images (matrices of pixels by channels) with weights that lie one after another, (out, terms of all the sums).

    `strides`, `dilations`, `before`, `after`, `kernel`, `space`: of each image (see `conv`); `layouts`: of images, weights and output.
    """
    *images, w = inputs
    out = outputs[0]
    lx = attrs["layouts"][0]
    depths = _depths(attrs, [static_shape(x)[lx.axis("C")] for x in images])
    operands: list[tuple[Operand, int]] = []
    for x, own, depth in zip(images, _parts(attrs), depths):
        sw, sy = output_sizes((static_shape(x), (static_shape(w)[0], depth)), own)
        operands.append((window_operand(own, Windows(x, own, lx, True), sw, sy), depth))
    weights = Operand(lambda batch, c, k: w(c, k), w.dtype, wide=piece_elems(w.dtype))
    m, n = out.shape
    pixels = one_after_another(operands)
    return Contraction((), m, n, sum(depths), pixels, weights, accumulator(w.dtype), out.dtype).tensors()


__all__: list[Any] = ["EACH"]
