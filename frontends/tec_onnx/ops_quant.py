"""ONNX operators of quantized networks."""

from __future__ import annotations

from typing import Any

import numpy as np

from tec import ImportModelError
from tec.graph import Value
from tec.graph.builders import axis_of
from tec.graph.builders.conv import add_bias
from tec.graph.builders.norm import channel_shape
from tec.graph.builders.packed import EXPONENTS, microscaled, packed_quantized
from tec.graph.builders.quantize import (
    centred,
    dynamic_quantize,
    integer_matmul,
    quantize,
    quantized_product,
    same_width,
    scaled,
    scaled_product,
    spread,
)
from tec.ir.microscaling import BLOCK, FORMATS

from . import reader
from .casts import cast_on_host
from .importer import Call, Outputs, onnx_op
from .ops_math import FLOATS8, convert, host_dtype
from .ops_nn import convolution

_MX_ELEMENTS = {f.name.replace("mxfp", "fp"): f.name for f in FORMATS.values()}
_TO_EVEN = 2  # of MXQuantizeDequantize's rounding modes


@onnx_op("QuantizeLinear")
def quantize_linear(c: Call) -> Value:
    x, scale = c[0], c[1]
    zero = c.get(2)
    given = c.attr("output_dtype", 0)
    dtype = zero.dtype if zero is not None else reader.dtype_name(given) if given else "uint8"
    axis = axis_of(c.attr("axis", 1), x.ndim) if scale.type.size > 1 or c.attr("block_size", 0) else 0
    block = c.attr("block_size", 0)
    precision = c.attr("precision", 0)
    factor = spread(c, scale, x, axis, block)
    if host_dtype(dtype):
        return _quantize_on_host(c, x, factor, zero, dtype, axis, block)
    shift = spread(c, zero, x, axis, block) if zero is not None else None
    if precision:
        x, factor = (c.cast(v, reader.dtype_name(precision)) for v in (x, factor))
    return quantize(c, x, factor, shift, dtype)


def _quantize_on_host(c: Call, x: Value, factor: Value, zero: Value | None, dtype: str, axis: int, block: int) -> Value:
    y = c.op("divide", c.cast(x, "float32"), c.cast(factor, "float32"))
    if dtype.startswith(("int", "uint")):
        low, high = {"int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1), "uint2": (0, 3)}[dtype]
        y = c.op("round_even", y)
        if zero is not None:
            shift = c.const(np.asarray(c.importer.value_of(zero)).astype(np.float32))
            y = c.op("add", y, spread(c, shift, x, axis, block))
        y = c.op("clip", y, low=float(low), high=float(high))
    return c.graph.constant(
        cast_on_host(c.importer.value_of(y, f"a tensor of {dtype}"), dtype, True), "quantized", dtype
    )


@onnx_op("DequantizeLinear")
def dequantize_linear(c: Call) -> Value:
    x, scale, zero = c[0], c[1], c.get(2)
    given = c.attr("output_dtype", 0)
    dtype = reader.dtype_name(given) if given else "float32" if scale.dtype == EXPONENTS else scale.dtype
    block = c.attr("block_size", 0)
    axis = axis_of(c.attr("axis", 1), x.ndim) if scale.type.size > 1 or block else 0
    if (stays := packed_quantized(c, x, scale, zero, axis, block, dtype)) is not None:
        return stays
    scale = convert(c, scale, "float32") if scale.dtype == EXPONENTS else scale
    wide = (
        "float32"
        if x.dtype in ("int8", "uint8", "int16", "uint16", "int32", *FLOATS8) or host_dtype(x.dtype)
        else x.dtype
    )
    y = convert(c, x, wide)
    if zero is not None:
        y = c.op("subtract", y, spread(c, convert(c, zero, wide), x, axis, block))
    factor = c.cast(spread(c, scale, x, axis, block), wide)
    return scaled(c, y, factor, x.dtype, dtype)


@onnx_op("MatMulInteger")
def matmul_integer(c: Call) -> Value:
    return integer_matmul(c, c[0], c[1], c.get(2), c.get(3))


@onnx_op("ConvInteger")
def conv_integer(c: Call) -> Value:
    x, w = c[0], c[1]
    zw = c.get(3)
    shape = (w.shape[0], *[1] * (w.ndim - 1))
    return convolution(c, *same_width(c, centred(c, x, c.get(2)), centred(c, w, zw, shape)))


def _requantize(c: Call, y: Value, scale: Value, out_scale: Value, zero: Value) -> Value:
    """An int32 result times `scale`, quantized."""
    real = c.op("multiply", c.cast(y, "float32"), c.cast(scale, "float32"))
    return quantize(c, real, c.cast(c.reshape(out_scale, ()), "float32"), c.reshape(zero, ()), zero.dtype)


@onnx_op("QLinearMatMul")
def qlinear_matmul(c: Call) -> Value:
    a, sa, za, b, sb, zb, sy, zy = (c[k] for k in range(8))
    y = integer_matmul(c, a, b, za, zb)
    left = c.reshape(sa, ()) if sa.type.size == 1 else c.reshape(sa, (sa.type.size, 1))
    right = c.reshape(sb, ()) if sb.type.size == 1 else c.reshape(sb, (1, sb.type.size))
    return _requantize(c, y, c.op("multiply", left, right), sy, zy)


@onnx_op("QLinearConv")
def qlinear_conv(c: Call) -> Value:
    x, sx, zx, w, sw, zw, sy, zy = (c[k] for k in range(8))
    shape = (w.shape[0], *[1] * (w.ndim - 1))
    y = convolution(c, *same_width(c, centred(c, x, zx), centred(c, w, zw, shape)))
    y = add_bias(c, y, c.get(8))
    scale = c.op("multiply", c.reshape(sx, ()), c.reshape(sw, () if sw.type.size == 1 else channel_shape(sw, y.ndim)))
    return _requantize(c, y, scale, sy, zy)


@onnx_op("DynamicQuantizeLinear")
def dynamic_quantize_linear(c: Call) -> Any:
    return Outputs(dynamic_quantize(c, c[0]))


class Only:
    """A call with other inputs, for converters that build on each other."""

    def __init__(self, c: Call, inputs: list[Any]):
        self._c = c
        self.inputs = inputs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._c, name)

    def __getitem__(self, k: int) -> Value:
        value = self.inputs[k]
        if not isinstance(value, Value):
            raise ImportModelError(
                f"input {k} is missing",
                hint="give the node that input: each tensor comes with its scale and its zero point",
            )
        return value

    def get(self, k: int) -> Any:
        return self.inputs[k] if k < len(self.inputs) else None

    def has(self, k: int) -> bool:
        return self.get(k) is not None


@onnx_op("DynamicQuantizeMatMul", "MatMulIntegerToFloat", domain="com.microsoft")
def dynamic_quantize_matmul(c: Call) -> Value:
    if c.op_type == "DynamicQuantizeMatMul":
        y, bias = quantized_product(c, c[0], c[1], c[2], c.get(3)), c.get(4)
    else:
        y, bias = scaled_product(c, c[0], c[2], c.get(4), c[1], c[3], c.get(5)), c.get(6)
    return c.op("add", y, bias) if bias is not None else y


# AMD Quark's, which its quantizer writes for activations and weights; the second name is the older one.
@onnx_op("MXQuantizeDequantize", domain="com.amd.quark")
@onnx_op("MXFixNeuron", domain="com.vai.quantize")
def mx_quantize_dequantize(c: Call) -> Value:
    kind, block, rounding = c.attr("element_dtype", "int8"), c.attr("block_size", 32), c.attr("rounding_mode", 0)
    if kind not in _MX_ELEMENTS:
        raise ImportModelError(f"element_dtype {kind!r}", hint="there are: " + ", ".join(_MX_ELEMENTS))
    if block != BLOCK:
        raise ImportModelError(f"block_size {block}", hint=f"microscaling formats have blocks of {BLOCK}")
    if rounding != _TO_EVEN:
        raise ImportModelError(f"rounding_mode {rounding}", hint=f"{_TO_EVEN}, halves to even, is what there is")
    return microscaled(c, c[0], _MX_ELEMENTS[kind], axis_of(c.attr("axis", 1), c[0].ndim))
