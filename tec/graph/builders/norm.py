"""Normalizations."""

from __future__ import annotations

import math

import numpy as np

from ..graph import Value
from .builder import Builder, axis_of
from .reduce import p_norm


def channel_shape(value: Value, ndim: int) -> tuple[int, ...]:
    """The shape that lines up one value a channel with (batch, channels, ...) of `ndim` dimensions."""
    return (value.type.size, *[1] * (ndim - 2))


def scale_channels(b: Builder, y: Value, scale: Value | None, bias: Value | None) -> Value:
    """y (batch, channels, ...) times `scale` plus `bias`, one of each a channel. Constants of ones and zeros are left out: exporters write group norms with such."""
    for op, v, neutral in (("multiply", scale, 1), ("add", bias, 0)):
        if v is not None and not (v.is_known and np.all(np.asarray(v.data) == neutral)):
            y = b.op(op, y, b.cast(b.reshape(v, channel_shape(v, y.ndim)), y.dtype))
    return y


def batch_norm(b: Builder, x: Value, scale: Value, bias: Value, mean: Value, variance: Value, epsilon: float) -> Value:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias for each channel, as one product and one sum; in the type of `variance` until then."""
    wide = variance.dtype
    inverse = b.op("reciprocal", b.op("sqrt", b.op("add", variance, b.like(epsilon, variance))))
    factor = b.op("multiply", b.cast(scale, wide), inverse)
    offset = b.op("subtract", b.cast(bias, wide), b.op("multiply", mean, factor))
    shape = channel_shape(scale, x.ndim)
    factor, offset = (b.cast(b.reshape(v, shape), x.dtype) for v in (factor, offset))
    return b.op("add", b.op("multiply", x, factor), offset)


def batch_statistics(b: Builder, x: Value) -> tuple[Value, Value]:
    """Mean and variance of each channel, (1, channels, 1, ...)."""
    axes = (0, *range(2, x.ndim))
    mean = b.op("reduce_mean", x, axes=axes, keepdims=True)
    d = b.op("subtract", x, mean)
    return mean, b.op("reduce_mean", b.op("square", d), axes=axes, keepdims=True)


def group_norm(b: Builder, x: Value, groups: int, epsilon: float) -> tuple[Value, Value, Value]:
    """x (batch, channels, ...) less its mean, over its spread, for each of `groups` groups of channels; the means and the inverse spreads (batch, groups)."""
    rows = b.reshape(x, (x.shape[0], groups, math.prod(x.shape[1:]) // groups))
    y, *statistics = b.ops("layer_norm", rows, axis=2, epsilon=epsilon)
    mean, inverse = (b.reshape(v, rows.shape[:2]) for v in statistics)
    return b.reshape(y, x.shape), mean, inverse


def layer_norm(
    b: Builder, x: Value, scale: Value | None, bias: Value | None, axis: int, epsilon: float
) -> tuple[Value, Value, Value]:
    """Over the dimensions from `axis` on: the result, the means, the inverse spreads."""
    y, mean, inverse = b.ops("layer_norm", x, axis=axis_of(axis, x.ndim), epsilon=float(epsilon))
    if scale is not None:
        y = b.op("multiply", y, b.cast(scale, y.dtype))
    if bias is not None:
        y = b.op("add", y, b.cast(bias, y.dtype))
    return y, mean, inverse


def rms_norm(b: Builder, x: Value, scale: Value, axis: int, epsilon: float) -> tuple[Value, Value]:
    """(x over the root of its mean square, times scale; the inverse root), over the dimensions from `axis` on."""
    wide = b.cast(x, "float32") if x.dtype in ("float16", "bfloat16") else x
    axes = tuple(range(axis_of(axis, x.ndim), x.ndim))
    mean = b.op("reduce_mean", b.op("square", wide), axes=axes, keepdims=True)
    inverse = b.op("reciprocal", b.op("sqrt", b.op("add", mean, b.like(epsilon, mean))))
    y = b.cast(b.op("multiply", wide, inverse), scale.dtype)
    return b.cast(b.op("multiply", y, scale), x.dtype), inverse


def lp_normalize(b: Builder, x: Value, p: int, axis: int) -> Value:
    """x over its p-norm (1 or 2) along an axis; zeros where that is 0."""
    length = p_norm(b, x, p, (axis,), True)
    zero = b.op("equal", length, b.like(0, x))
    return b.op("where", zero, b.like(0, x), b.op("divide", x, length))
