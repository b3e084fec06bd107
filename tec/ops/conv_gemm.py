"""Convolution as a matrix product: weights (out, C * KH * KW) times the windows of the image.

The windows are a stage of their own, tagged "im2col": a schedule computes tiles of it in shared memory and never stores it
whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import te
from ..te import Tensor
from .conv import conv_out
from .matmul import accumulator
from .registry import COMPLEX, Attrs, TensorType, fail, register, static_shape


def _type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    x, w = types
    kh, kw = attrs["kernel"]
    if x.ndim != 4 or w.ndim != 2 or w.shape[1] != x.shape[1] * kh * kw or x.dtype != w.dtype:
        raise fail(f"convolution of {x} by the matrix {w} with windows of {kh} x {kw}")
    rows, cols = (
        conv_out(*v)
        for v in zip(x.shape[2:], (kh, kw), attrs["strides"], attrs["dilations"], attrs["before"], attrs["after"])
    )
    return [TensorType(x.dtype, (x.shape[0], w.shape[0], rows, cols))]


def _flops(types: Sequence[TensorType], outs: Sequence[TensorType], attrs: Attrs) -> int:
    return 2 * outs[0].size * types[1].shape[1]


@register("conv_gemm", COMPLEX, _type, flops=_flops)
def _conv_gemm(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """2-D convolution; weights as a matrix, attributes as `conv` and `kernel`."""
    x, w = inputs
    out = outputs[0]
    n, _, oh, ow = out.shape
    _, _, h, width = static_shape(x)
    (sh, sw), (dh, dw), (kh, kw) = attrs["strides"], attrs["dilations"], attrs["kernel"]
    (top, left), (bottom, right) = attrs["before"], attrs["after"]
    depth = static_shape(w)[1]
    acc = accumulator(x.dtype)

    def window(b: Any, k: Any, p: Any) -> Any:
        i, j = (p // ow) * sh + (k % (kh * kw)) // kw * dh - top, (p % ow) * sw + k % kw * dw - left
        value = x(b, k // (kh * kw), i, j)
        conds = [i >= 0] * (top > 0) + [i < h] * (bottom > 0) + [j >= 0] * (left > 0) + [j < width] * (right > 0)
        return te.if_then_else(te.all(*conds), value, te.const(0, x.dtype)) if conds else value

    col = te.compute((n, depth, oh * ow), window, name="im2col", tag="im2col")
    k = te.reduce_axis((0, depth), "k")
    # Flat in the pixels, so that a tile of them stays a tile under any split of the fused output axes.
    y = te.compute(
        (n, out.shape[1], oh * ow),
        lambda b, c, p: te.sum(w(c, k).astype(acc) * col(b, k, p).astype(acc), axis=k),
        name="conv",
        tag="conv_gemm",
    )
    return [te.compute(out.shape, lambda b, c, i, j: y(b, c, i * ow + j).astype(out.dtype), name="conv_image")]
