"""Convolutions as matrix products of weights with the windows of the image (im2col), which are never stored whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import te
from ..te import Tensor
from .contraction import Contraction, Operand, piece_elems
from .conv import conv_out
from .matmul import accumulator
from .registry import COMPLEX, Attrs, TensorType, fail, register, static_shape


def _space(shape: Sequence[int], attrs: Attrs) -> tuple[int, int]:
    """Rows and columns of the output image."""
    kh, kw = attrs["kernel"]
    lists = [attrs[k] for k in ("strides", "dilations", "before", "after")]
    rows, cols = (conv_out(*v) for v in zip(shape[2:], (kh, kw), *lists))
    return rows, cols


def _type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    x, w = types
    kh, kw = attrs["kernel"]
    if x.ndim != 4 or w.ndim != 2 or w.shape[1] != x.shape[1] * kh * kw or x.dtype != w.dtype:
        raise fail(f"convolution of {x} by the matrix {w} with windows of {kh} x {kw}")
    rows, cols = _space(x.shape, attrs)
    return [TensorType(x.dtype, (x.shape[0], w.shape[0], rows * cols))]


def _flops(types: Sequence[TensorType], outs: Sequence[TensorType], attrs: Attrs) -> int:
    return 2 * outs[0].size * types[1].shape[1]


@register("conv_gemm", COMPLEX, _type, flops=_flops)
def _conv_gemm(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """2-D convolution; weights as a matrix, attributes as `conv` and `kernel`; the output is flat in its pixels."""
    x, w = inputs
    out = outputs[0]
    n, channels, pixels = out.shape
    _, _, h, width = static_shape(x)
    _, ow = _space(static_shape(x), attrs)
    (sh, sw), (dh, dw), (kh, kw) = attrs["strides"], attrs["dilations"], attrs["kernel"]
    (top, left), (bottom, right) = attrs["before"], attrs["after"]
    depth = static_shape(w)[1]

    def window(b: Any, k: Any, p: Any) -> Any:
        i, j = (p // ow) * sh + (k % (kh * kw)) // kw * dh - top, (p % ow) * sw + k % kw * dw - left
        value = x(*b, k // (kh * kw), i, j)
        conds = [i >= 0] * (top > 0) + [i < h] * (bottom > 0) + [j >= 0] * (left > 0) + [j < width] * (right > 0)
        return te.if_then_else(te.all(*conds), value, te.const(0, x.dtype)) if conds else value

    weights = Operand(lambda b, c, k: w(c, k), w.dtype, wide=piece_elems(w.dtype))
    windows = Operand(lambda b, p, k: window(b, k, p), x.dtype, k_last=False, guarded=any((top, left, bottom, right)))
    return Contraction((n,), channels, pixels, depth, weights, windows, accumulator(x.dtype), out.dtype).tensors()
