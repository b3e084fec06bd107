"""Constants of 4, 6 and 8 bits that stay packed (`tec.ops.packed`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ImportModelError
from ...ir.microscaling import BLOCK, format_of, quantize, unpack
from ...ops.packed import MIDDLE, packed
from ..graph import Value
from .builder import Builder

# Bits, and what makes codes of the type's numbers.
RANGES = {"uint4": (4, 0), "int4": (4, 8), "uint8": (8, 0), "int8": (8, 128)}
# Of which blocks may share a power of two.
FLOATS = {
    "float4_e2m1fn": "mxfp4_e2m1", "float8_e4m3": "mxfp8_e4m3", "float8_e5m2": "mxfp8_e5m2",
    "float6_e2m3fn": "mxfp6_e2m3", "float6_e3m2fn": "mxfp6_e3m2",
}  # fmt: skip
EXPONENTS = "float8_e8m0fnu"  # the type of such scales
LEAST = 1024  # elements below which a constant is not worth a kernel that unpacks it


def packed_constant(
    b: Builder, codes: Any, bits: int, scale: Any, zero: Any, axis: int, block: int, dtype: str, scale_dtype: str,
    rounds: bool = False,
) -> Value:  # fmt: skip
    """(codes - zero) * scale. codes: one a byte, unsigned. scale: of the rank of codes, with one place a `block` along `axis`. zero: None for the
    middle of the range, or an array like scale, of codes (uint8) or of floats. rounds: products may round what they multiply it with to bytes."""
    codes = np.asarray(codes, np.uint8)
    inputs = [b.graph.constant(packed(codes, bits), b.name or "codes"), b.graph.constant(scale, "scale", scale_dtype)]
    number = None
    if zero is not None and np.size(zero) and (zero == np.ravel(zero)[0]).all():
        number = float(np.ravel(zero)[0])
    elif zero is not None:
        inputs.append(b.graph.constant(zero, "zero", "uint8" if zero.dtype.kind == "u" else scale_dtype))
    number = None if number == MIDDLE[bits] else number
    attrs: dict[str, Any] = {"rounds": True} if rounds else {}
    return b.op(
        "dequantize", *inputs, bits=bits, shape=codes.shape, axis=axis, block=block, dtype=dtype, zero=number, **attrs
    )


def packed_quantized(
    b: Builder, x: Value, scale: Value, zero: Value | None, axis: int, block: int, dtype: str
) -> Value | None:
    """A constant matrix of 4 or 8 bits with constant scales, by tensor, by `axis` or in blocks along it; None for any other value."""
    if scale.dtype == EXPONENTS:
        return _microscaled(b, x, scale, zero, axis, block, dtype)
    known = x.is_known and scale.is_known and (zero is None or zero.is_known)
    if not known or x.dtype not in RANGES or x.ndim != 2 or x.type.size < LEAST or "float" not in scale.dtype:
        return None
    bits, shift = RANGES[x.dtype]
    codes = (np.asarray(x.data).astype(np.int16) + shift).astype(np.uint8)
    middle = np.full(scale.shape, shift, np.uint8)
    zeros = middle if zero is None else (np.asarray(zero.data).astype(np.int16) + shift).astype(np.uint8)
    if zeros.size != scale.type.size:
        raise ImportModelError(f"zero points {zero} for scales {scale.type}", hint="one zero point for each scale")
    scales = np.asarray(scale.data)
    if block:
        shape: tuple[int, ...] = scale.shape
    else:
        shape, block = tuple(scale.type.size if k == axis else 1 for k in range(2)), 1
        if scale.type.size == 1:
            block = max(1, x.shape[axis])
    scales, zeros = scales.reshape(shape), zeros.reshape(shape)
    return packed_constant(b, codes, bits, scales, zeros, axis, block, dtype, scale.dtype)


def _microscaled(
    b: Builder, x: Value, scale: Value, zero: Value | None, axis: int, block: int, dtype: str
) -> Value | None:
    """A constant matrix of small floats with powers of two for blocks along `axis`; None for any other value."""
    known = x.is_known and scale.is_known and zero is None and x.dtype in FLOATS and x.ndim == 2 and block
    if not known or x.type.size < LEAST:
        return None
    format = FLOATS[x.dtype]
    bits = format_of(format).bits
    codes = np.ascontiguousarray(x.data).view(np.uint8) & ((1 << bits) - 1)
    inputs = [b.graph.constant(packed(codes, bits), b.name or "codes")]
    inputs.append(b.graph.constant(np.ascontiguousarray(scale.data).view(np.uint8), "scale", "uint8"))
    return b.op("dequantize", *inputs, bits=bits, shape=x.shape, axis=axis, block=block, dtype=dtype, format=format)


def microscaled(b: Builder, x: Value, format: str, axis: int) -> Value:
    """x rounded to a microscaling format in blocks of 32 along `axis`, the last one of them maybe shorter; a constant matrix stays packed."""
    f, k = format_of(format), x.shape[axis]
    if not isinstance(k, int):
        raise ImportModelError(
            f"{f.name} along axis {axis} of {x.type}, whose size is open", hint="a size for this axis in shapes="
        )
    if x.is_known and x.ndim == 2 and x.type.size >= LEAST:
        rows = np.moveaxis(np.asarray(x.data, np.float32), axis, -1)
        elements, scales = quantize(np.pad(rows, ((0, 0), (0, -k % BLOCK))), format)
        codes = np.moveaxis(unpack(elements, f)[:, :k], -1, axis)
        inputs = [b.graph.constant(packed(codes, f.bits), b.name or "codes")]
        inputs.append(b.graph.constant(np.ascontiguousarray(np.moveaxis(scales, -1, axis)), "scale", "uint8"))
        return b.op(
            "dequantize", *inputs, bits=f.bits, shape=x.shape, axis=axis, block=BLOCK, dtype=x.dtype, format=f.name
        )
    turned = [a for a in range(x.ndim) if a != axis] + [axis]
    if axis != x.ndim - 1:
        x = b.op("transpose", x, perm=tuple(turned))
    if k % BLOCK:
        x = b.op("pad", x, before=(0,) * x.ndim, after=(*(0,) * (x.ndim - 1), -k % BLOCK))
    y = b.op("mx_round", x, format=f.name)
    if k % BLOCK:
        y = b.slice(y, x.ndim - 1, 0, k)
    return y if axis == x.ndim - 1 else b.op("transpose", y, perm=tuple(turned.index(a) for a in range(x.ndim)))
