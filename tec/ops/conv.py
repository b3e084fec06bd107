"""Convolutions of any number of spatial dimensions, with groups, dilation and asymmetric padding; and their transposes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .. import te
from ..te import Tensor
from .dims import require
from .matmul import accumulator
from .registry import COMPLEX, SUMS, Attrs, TensorType, fail, register, static_shape


def conv_out(n: int, k: int, stride: int, dilation: int, before: int, after: int) -> int:
    """Extent of the output of a window of k over n."""
    return (n + before + after - dilation * (k - 1) - 1) // stride + 1


def _conv_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    x, w = types
    nd = x.ndim - 2
    g = attrs["groups"]
    lists = [attrs[k] for k in ("strides", "dilations", "before", "after")]
    small = {"int8", "uint8"}
    if (
        nd < 1
        or w.ndim != x.ndim
        or any(len(v) != nd for v in lists)
        or min(attrs["strides"]) < 1
        or min(attrs["dilations"]) < 1
    ):
        raise fail(f"convolution of {x} by {w} with {attrs}")
    if x.shape[1] != w.shape[1] * g or w.shape[0] % g or (x.dtype != w.dtype and not {x.dtype, w.dtype} <= small):
        raise fail(f"convolution of {x} by {w} in {g} groups: the channels do not fit")
    space = tuple(conv_out(n, k, s, d, b, a) for n, k, s, d, b, a in zip(x.shape[2:], w.shape[2:], *lists))
    if not all(require(1, "<=", n, f"windows of {w} over {x}") for n in space):
        raise fail(f"convolution of {x} by {w}: the window is larger than the padded input")
    return [TensorType("int32" if x.dtype in small else x.dtype, (x.shape[0], w.shape[0], *space))]


def _conv_flops(types: Sequence[TensorType], outs: Sequence[TensorType], attrs: Attrs) -> int:
    return 2 * outs[0].size * math.prod(types[1].shape[1:])


def padded(x: Tensor, before: Sequence[int], after: Sequence[int], fill: Any = 0) -> Tensor:
    """`x` with its last dimensions padded by a constant; itself where there is nothing to pad."""
    if all(n == 0 for n in (*before, *after)):
        return x
    nd = len(before)
    shape = static_shape(x)
    space = shape[-nd:]
    value = fill if not isinstance(fill, (int, float)) else te.const(fill, x.dtype)

    def body(*i: Any) -> Any:
        lead, at = i[:-nd], [k - b for k, b in zip(i[-nd:], before)]
        conds = []
        for k, n, b, a in zip(at, space, before, after):
            # A symbolic size of padding is none at least.
            conds += [k >= 0] * (b != 0) + [k < n] * (a != 0)
        return te.if_then_else(te.all(*conds), x(*lead, *at), value)

    out = (*shape[:-nd], *[n + b + a for n, b, a in zip(space, before, after)])
    y: Tensor = te.compute(out, body, name="pad", tag="pad")
    return y


@register("conv", COMPLEX, _conv_type, flops=_conv_flops, traits=[SUMS])
def _conv(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """Cross-correlation of (batch, channels, space...) with (out, channels / groups, window...).

    `strides`, `dilations`, `before`, `after` (padding), one a spatial dimension; `groups`; `fill`: what padding holds (0).
    """
    x, w = inputs
    out = outputs[0]
    strides, dilations, g = attrs["strides"], attrs["dilations"], attrs["groups"]
    kernel = static_shape(w)[2:]
    acc = accumulator(x.dtype)
    p = padded(x, attrs["before"], attrs["after"], attrs.get("fill", 0))
    cin, cout = static_shape(w)[1], static_shape(w)[0] // g
    rc = te.reduce_axis((0, cin), "rc")
    rs = [te.reduce_axis((0, n), f"r{k}") for k, n in enumerate(kernel)]

    def body(n: Any, c: Any, *space: Any) -> Any:
        at = [i * s + r * d for i, s, r, d in zip(space, strides, rs, dilations)]
        channel = rc if g == 1 else (c // cout) * cin + rc if cin > 1 else (c // cout if cout > 1 else c)
        return te.sum(p(n, channel, *at).astype(acc) * w(c, rc, *rs).astype(acc), axis=[rc, *rs])

    depthwise = g > 1 and cin == 1
    c = te.compute(out.shape, body, name="conv", tag="depthwise" if depthwise else "conv")
    return [c if acc == out.dtype else te.compute(out.shape, lambda *i: c(*i).astype(out.dtype), name="conv_cast")]


def _transpose_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    x, w = types
    g = attrs["groups"]
    if w.ndim != x.ndim or x.ndim < 3 or x.shape[1] != w.shape[0] or x.shape[1] % g or x.dtype != w.dtype:
        raise fail(f"transposed convolution of {x} by {w} in {g} groups")
    space = tuple(attrs["out_space"])
    return [TensorType(x.dtype, (x.shape[0], w.shape[1] * g, *space))]


def _transpose_flops(types: Sequence[TensorType], outs: Sequence[TensorType], attrs: Attrs) -> int:
    return 2 * types[0].size * math.prod(types[1].shape[1:])


@register("conv_transpose", COMPLEX, _transpose_type, flops=_transpose_flops, traits=[SUMS])
def _conv_transpose(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """The gradient of a convolution with respect to its input, weights (in, out / groups, window...).

    `strides`, `dilations`, `before` (cropped from the front), `out_space`, `groups`. Output y takes input i by window
    place r where i * stride + r * dilation = y + before.
    """
    x, w = inputs
    out = outputs[0]
    strides, dilations, g, before = attrs["strides"], attrs["dilations"], attrs["groups"], attrs["before"]
    space, kernel = static_shape(x)[2:], static_shape(w)[2:]
    acc = accumulator(x.dtype)
    cin, cout = static_shape(x)[1] // g, static_shape(w)[1]
    rc = te.reduce_axis((0, cin), "rc")
    rs = [te.reduce_axis((0, n), f"r{k}") for k, n in enumerate(kernel)]

    def body(n: Any, c: Any, *y: Any) -> Any:
        conds, at = [], []
        for i, b, r, d, s, extent in zip(y, before, rs, dilations, strides, space):
            t = i + b - r * d
            at.append(te.floordiv(t, s))
            conds += [t >= 0, te.floordiv(t, s) < extent]
            if s > 1:
                conds.append(te.floormod(t, s) == 0)
        channel = rc if g == 1 else (c // cout) * cin + rc
        value = x(n, channel, *at).astype(acc) * w(channel, c if g == 1 else c % cout, *rs).astype(acc)
        return te.sum(te.if_then_else(te.all(*conds), value, te.const(0, acc)), axis=[rc, *rs])

    c = te.compute(out.shape, body, name="conv_transpose")
    return [c if acc == out.dtype else te.compute(out.shape, lambda *i: c(*i).astype(out.dtype), name="conv_cast")]
