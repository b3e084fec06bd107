"""Operators in the matrix units' layout: an image as a matrix (batch * rows * columns, channels), channels contiguous.

`space` is (batch, rows, columns) of the input image. A convolution is a product of the windows (pixels, taps * channels) with
weights (out channels, taps * channels): both lie along the sum, and the result is a matrix of the same kind. So no operand
is turned round in shared memory, 16-byte accesses never leave a tap, and the threads of the other operators, a vector of
channels each, touch whole cache lines. `to_pixels` and `from_pixels` go between this and NCHW.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .. import te
from ..te import Tensor
from .contraction import Contraction, Operand, piece_elems
from .conv import conv_out
from .matmul import accumulator
from .registry import COMPLEX, INJECTIVE, REDUCTION, Attrs, TensorType, fail, register, static_shape

Space = tuple[int, int, int]


def _to_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    n, c, h, w = types[0].shape
    return [TensorType(types[0].dtype, (n * h * w, attrs.get("channels", c)))]


@register("to_pixels", INJECTIVE, _to_type)
def _to_pixels(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """NCHW to (pixels, channels); `channels`: filled up with zeros to so many."""
    x = inputs[0]
    _, c, h, w = static_shape(x)

    def body(p: Any, k: Any) -> Any:
        value = x(p // (h * w), k, p // w % h, p % w)
        return value if outputs[0].shape[1] == c else te.if_then_else(k < c, value, te.const(0, x.dtype))

    return [te.compute(outputs[0].shape, body, name="to_pixels")]


def _from_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    n, h, w = attrs["space"]
    if types[0].ndim != 2 or types[0].shape[0] != n * h * w:
        raise fail(f"{types[0]} as an image of {h} x {w} pixels, {n} of them")
    return [TensorType(types[0].dtype, (n, types[0].shape[1], h, w))]


@register("from_pixels", INJECTIVE, _from_type)
def _from_pixels(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """(pixels, channels) to NCHW; `space`."""
    x = inputs[0]
    _, h, w = attrs["space"]
    return [te.compute(outputs[0].shape, lambda n, c, i, j: x((n * h + i) * w + j, c), name="from_pixels")]


def out_space(attrs: Attrs) -> Space:
    """(batch, rows, columns) of what a window operator makes."""
    n, *size = attrs["space"]
    lists = [attrs[k] for k in ("kernel", "strides", "dilations", "before", "after")]
    rows, cols = attrs.get("out_space") or (conv_out(*v) for v in zip(size, *lists))
    return n, rows, cols


def _window_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    x = types[0]
    made = out_space(attrs)
    if x.ndim != 2 or x.shape[0] != math.prod(attrs["space"]) or any(n < 1 for n in made):
        raise fail(f"a window of {attrs['kernel']} over {x} as an image of {attrs['space']}")
    return [TensorType(x.dtype, (math.prod(made), x.shape[1]))]


def _conv_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    x, w = types
    (out,) = _window_type(types, attrs)
    if w.ndim != 2 or w.shape[1] != math.prod(attrs["kernel"]) * x.shape[1] or x.dtype != w.dtype:
        raise fail(f"convolution of {x} by the matrix {w} with windows of {attrs['kernel']}")
    return [TensorType("int32" if x.dtype == "int8" else x.dtype, (out.shape[0], w.shape[0]))]


def _place(attrs: Attrs, p: Any, tap_y: Any, tap_x: Any) -> tuple[Any, list[Any]]:
    """The row of the input matrix that output pixel p sees through a tap, and the conditions for it to be in the image."""
    _, h, w = attrs["space"]
    _, oh, ow = out_space(attrs)
    (sh, sw), (dh, dw) = attrs["strides"], attrs["dilations"]
    (top, left), (bottom, right) = attrs["before"], attrs["after"]
    if (oh, ow, sh, sw, top, left, *attrs["kernel"]) == (h, w, 1, 1, 0, 0, 1, 1):
        return p, []
    i, j = p // ow % oh * sh + tap_y * dh - top, p % ow * sw + tap_x * dw - left
    conds = [i >= 0] * (top > 0) + [i < h] * (bottom > 0) + [j >= 0] * (left > 0) + [j < w] * (right > 0)
    return (p // (oh * ow) * h + i) * w + j, conds


def _conv_flops(types: Sequence[TensorType], outs: Sequence[TensorType], attrs: Attrs) -> int:
    return 2 * outs[0].size * types[1].shape[1]


@register("conv_pixels", COMPLEX, _conv_type, flops=_conv_flops)
def _conv(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """Convolution of one group: x (pixels, channels), weights (out channels, taps * channels); `space`, `kernel`, `strides`,
    `dilations`, `before`, `after`, `fill` (what padding holds, 0). int8 gives int32."""
    x, w = inputs
    out = outputs[0]
    channels, depth = static_shape(x)[1], static_shape(w)[1]
    kw = attrs["kernel"][1]

    def window(_: Any, p: Any, k: Any) -> Any:
        tap = k // channels
        row, conds = _place(attrs, p, tap // kw, tap % kw)
        value = x(row, k % channels if depth > channels else k)
        return te.if_then_else(te.all(*conds), value, te.const(attrs.get("fill", 0), x.dtype)) if conds else value

    piece = piece_elems(x.dtype)
    guarded = any((*attrs["before"], *attrs["after"]))
    windows = Operand(window, x.dtype, wide=math.gcd(piece, channels), guarded=guarded)
    weights = Operand(lambda _, c, k: w(c, k), w.dtype, wide=piece)
    return Contraction(
        (), out.shape[0], out.shape[1], depth, windows, weights, accumulator(x.dtype), out.dtype
    ).tensors()


def _depthwise_flops(types: Sequence[TensorType], outs: Sequence[TensorType], attrs: Attrs) -> int:
    return 2 * outs[0].size * types[1].shape[0]


def _depthwise_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    x, w = types
    if w.shape != (math.prod(attrs["kernel"]), x.shape[1]) or x.dtype != w.dtype:
        raise fail(f"depthwise convolution of {x} by {w} with windows of {attrs['kernel']}")
    return _window_type(types, attrs)


@register("depthwise_pixels", COMPLEX, _depthwise_type, flops=_depthwise_flops)
def _depthwise(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """Convolution channel by channel; weights (taps, channels), attributes as conv_pixels."""
    x, w = inputs
    acc = accumulator(x.dtype)
    kh, kw = attrs["kernel"]
    ry, rx = te.reduce_axis((0, kh), "ry"), te.reduce_axis((0, kw), "rx")

    def term(p: Any, c: Any) -> Any:
        row, conds = _place(attrs, p, ry, rx)
        value = x(row, c)
        return te.if_then_else(te.all(*conds), value, te.const(0, x.dtype)) if conds else value

    y = te.compute(
        outputs[0].shape,
        lambda p, c: te.sum(term(p, c).astype(acc) * w(ry * kw + rx, c).astype(acc), axis=[ry, rx]),
        name="depthwise",
        tag="pixels",
    )
    if acc == x.dtype:
        return [y]
    return [te.compute(outputs[0].shape, lambda *i: y(*i).astype(x.dtype), name="depthwise_cast")]


def _pool_flops(types: Sequence[TensorType], outs: Sequence[TensorType], attrs: Attrs) -> int:
    return outs[0].size * math.prod(attrs["kernel"])


@register("max_pool_pixels", REDUCTION, _window_type, flops=_pool_flops)
def _max_pool(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """The largest element of each window; attributes as conv_pixels, and `out_space`."""
    x = inputs[0]
    ry, rx = (te.reduce_axis((0, k), f"r{a}") for k, a in zip(attrs["kernel"], "yx"))

    def term(p: Any, c: Any) -> Any:
        row, conds = _place(attrs, p, ry, rx)
        value = x(row, c)
        return te.if_then_else(te.all(*conds), value, te.maximum.identity(x.dtype)) if conds else value

    y = te.compute(outputs[0].shape, lambda p, c: te.maximum(term(p, c), axis=[ry, rx]), name="max_pool", tag="pixels")
    return [y]
