"""Quantized values: q stands for (q - zero) * scale."""

from __future__ import annotations

import numpy as np

from ...ir.dtype import FLOAT_MAX, dtype_info
from ..graph import Quantized, Value
from .builder import Builder
from .matmul import matmul

RANGE = {
    "int8": (-128, 127),
    "uint8": (0, 255),
    "int16": (-32768, 32767),
    "uint16": (0, 65535),
    "int32": (-(2**31), 2**31 - 1),
}


def spread(b: Builder, value: Value, x: Value, axis: int, block: int = 0) -> Value:
    """A scale or zero point brought to broadcast against `x`: one value, one an index of `axis`, or one a block."""
    if value.type.size == 1 and not block:
        return b.reshape(value, ())
    if block:
        repeated = np.repeat(np.arange(value.shape[axis]), block)[: x.shape[axis]]
        return b.op("gather", value, b.const(repeated.astype(np.int64)), axis=axis)
    return b.reshape(value, (*[1] * axis, value.type.size, *[1] * (x.ndim - axis - 1)))


def to_float8(b: Builder, x: Value, dtype: str, saturate: bool = True) -> Value:
    """x rounded to an 8-bit float; what is too large becomes the largest number, or, unsaturated, infinity or NaN."""
    wide = b.cast(x, "float32")
    if saturate:
        wide = b.op("clip", wide, low=-FLOAT_MAX[dtype], high=FLOAT_MAX[dtype])
    return b.cast(wide, dtype)


def quantize(
    b: Builder, x: Value, scale: Value, zero: Value | None, dtype: str, bounds: tuple[int, int] | None = None
) -> Value:
    """round(x / scale) + zero, saturated to `bounds`, which are those of `dtype` if none are given; scale and zero broadcast."""
    wide = "float32" if x.dtype in ("float16", "bfloat16", "int32") else x.dtype
    y = b.op("divide", b.cast(x, wide), b.cast(scale, wide))
    is_float8 = dtype_info(dtype).is_float8
    if not is_float8:
        y = b.op("round_even", y)
    if zero is not None:
        y = b.op("add", y, b.cast(zero, wide))
    if is_float8:
        return to_float8(b, y, dtype)
    low, high = bounds or RANGE[dtype]
    return b.cast(b.op("clip", y, low=float(low), high=float(high)), dtype)


def scaled(b: Builder, y: Value, factor: Value, codes: str, dtype: str) -> Value:
    """y * factor as `dtype`, for y in numbers that codes of type `codes` stand for. A constant remembers what it was made from: products may take that."""
    real = b.cast(b.op("multiply", y, factor), dtype)
    is_float8 = codes.startswith("float8")  # codes of 2 and 4 bits are of types that no code is made for
    if real.is_const and y.is_const and factor.is_const and (is_float8 or codes in ("int8", "uint8")):
        real.quantized = Quantized(y.data, factor.data, codes if is_float8 else "")
    return real


def dequantize(b: Builder, x: Value, scale: Value, zero: Value | None) -> Value:
    """The float32 numbers that x stands for, with one scale and zero point for all of it."""
    y = b.cast(x, "float32")
    if zero is not None:
        y = b.op("subtract", y, b.cast(b.reshape(zero, ()), "float32"))
    return b.op("multiply", y, b.reshape(scale, ()))


def dynamic_quantize(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """x as uint8 over the range of its values and zero, its scale, its zero point."""
    axes = tuple(range(x.ndim))
    zero = b.like(0, x)
    high = b.op("maximum", b.op("reduce_max", x, axes=axes, keepdims=False), zero)
    low = b.op("minimum", b.op("reduce_min", x, axes=axes, keepdims=False), zero)
    scale = b.op("divide", b.op("subtract", high, low), b.like(255.0, x))
    safe = b.op("where", b.op("equal", scale, zero), b.like(1.0, x), scale)
    point = b.op("round_even", b.op("clip", b.op("divide", b.op("neg", low), safe), low=0.0, high=255.0))
    shift = b.cast(point, "uint8")
    return quantize(b, x, safe, shift, "uint8"), scale, shift


# ---- products


def centred(b: Builder, x: Value, zero: Value | None, shape: tuple[int, ...] | None = None) -> Value:
    """x - zero in int32; bytes without a zero point stay bytes. `shape`: how several zero points line up with x."""
    if zero is None or (zero.is_known and not np.any(zero.data)):
        return x
    shift = zero
    if zero.type.size == 1:
        shift = b.reshape(zero, ())
    elif shape is not None:
        shift = b.reshape(zero, shape)
    return b.op("subtract", b.cast(x, "int32"), b.cast(shift, "int32"))


def same_width(b: Builder, x: Value, y: Value) -> tuple[Value, Value]:
    """Both as bytes, or both as int32."""
    small = {"int8", "uint8"}
    return (x, y) if {x.dtype, y.dtype} <= small else (b.cast(x, "int32"), b.cast(y, "int32"))


def integer_matmul(b: Builder, x: Value, y: Value, zx: Value | None, zy: Value | None) -> Value:
    """An int32 product of quantized matrices; zero points by tensor, by row of x or by column of y."""
    rows = (*zx.shape, 1) if zx is not None and zx.ndim == 1 and zx.type.size > 1 else None
    return matmul(b, *same_width(b, centred(b, x, zx, rows), centred(b, y, zy)), out_dtype="int32")


def scaled_product(b: Builder, x: Value, sx: Value, zx: Value | None, y: Value, sy: Value, zy: Value | None) -> Value:
    """The float32 product of quantized matrices; `sy` for all of y or by column."""
    product = b.cast(integer_matmul(b, x, y, zx, zy), "float32")
    return b.op("multiply", product, b.op("multiply", b.reshape(sx, ()), sy if sy.type.size > 1 else b.reshape(sy, ())))


def quantized_product(b: Builder, x: Value, y: Value, scale: Value, zero: Value | None) -> Value:
    """x, quantized as it comes, times quantized weights, as float32."""
    q, sx, zx = dynamic_quantize(b, x)
    return scaled_product(b, q, sx, zx, y, scale, zero)
