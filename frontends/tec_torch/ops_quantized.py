"""Rounding to the steps of small integers in training; numbers as integers times a scale, as quantized programs of torch.export write them; products of bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tec import ImportModelError
from tec.graph import Value
from tec.graph.builders import axis_of
from tec.graph.builders.quantize import quantize, scaled, spread

from .importer import AtenCall, aten_op, custom_op
from .ops_nn import times


def rounded(c: AtenCall, x: Value, scale: Value, zero: Value, low: int, high: int) -> tuple[Value, Value]:
    """x as `scale` times a whole number from `low` to `high` less `zero`, and whether it lies within."""
    steps = c.op("round_even", c.op("multiply", c.cast(x, "float32"), c.op("divide", c.like(1, scale), scale)))
    whole = c.op("add", steps, zero)
    inside = c.op(
        "logical_and", *(c.op(f, whole, c.like(n, whole)) for f, n in (("greater_equal", low), ("less_equal", high)))
    )
    y = c.op("multiply", c.op("subtract", c.op("clip", whole, low=float(low), high=float(high)), zero), scale)
    return c.cast(y, c.dtype), inside


@aten_op("fake_quantize_per_tensor_affine_cachemask")
def fake_quantize(c: AtenCall, x: Value, scale: Any, zero: Any, low: int, high: int) -> tuple[Value, Value]:
    return rounded(c, x, c.value(scale, "float32"), c.value(zero, "float32"), low, high)


@aten_op("_fake_quantize_per_tensor_affine_cachemask_tensor_qparams")
def fake_quantize_if(c: AtenCall, x: Value, scale: Value, zero: Value, on: Value, low: int, high: int) -> Any:
    """Where `on` is not 0."""
    steps, places = (c.cast(c.reshape(v, ()), "float32") for v in (scale, zero))
    y, inside = rounded(c, x, steps, places, low, high)
    off = c.op("equal", c.reshape(on, ()), c.like(0, on))
    return c.op("where", off, x, y), c.op("logical_or", off, inside)


@aten_op("fake_quantize_per_channel_affine_cachemask")
def fake_quantize_channels(c: AtenCall, x: Value, scale: Value, zero: Value, axis: int, low: int, high: int) -> Any:
    shape = [x.shape[k] if k == axis % x.ndim else 1 for k in range(x.ndim)]
    return rounded(c, x, *(c.reshape(c.cast(v, "float32"), shape) for v in (scale, zero)), low, high)


# ---- torch.ops.quantized_decomposed: whole numbers from `low` to `high`, less a zero point, times a scale


def _spread(c: AtenCall, v: Any, x: Value, axis: int, block: int = 0) -> Value:
    """A scale or a zero point, one or one an index, in float32 and so that it broadcasts against x."""
    given = c.value(v, "float32")
    return spread(c, given, x, axis, block) if given.ndim or block else given


def _quantize(c: AtenCall, x: Value, scale: Value, zero: Value, low: Any, high: Any) -> Value:
    if not (isinstance(low, int) and isinstance(high, int)):
        raise ImportModelError(
            "bounds of a quantized number that values decide on", hint="quant_min and quant_max as numbers"
        )
    return quantize(c, c.cast(x, "float32"), scale, zero, c.dtype, (low, high))


def _dequantize(c: AtenCall, x: Value, scale: Value, zero: Value | None) -> Value:
    y = c.cast(x, "float32")
    if zero is not None and not (zero.is_known and not np.any(zero.data)):
        y = c.op("subtract", y, zero)
    return scaled(c, y, scale, x.dtype, c.dtype)


@custom_op("quantized_decomposed::quantize_per_tensor")
def quantize_per_tensor(c: AtenCall, x: Value, scale: Any, zero: Any, low: Any, high: Any, *more: Any) -> Value:
    return _quantize(c, x, _spread(c, scale, x, 0), _spread(c, zero, x, 0), low, high)


@custom_op("quantized_decomposed::dequantize_per_tensor")
def dequantize_per_tensor(c: AtenCall, x: Value, scale: Any, zero: Any, *more: Any, **rest: Any) -> Value:
    return _dequantize(c, x, _spread(c, scale, x, 0), _spread(c, zero, x, 0))


@custom_op("quantized_decomposed::quantize_per_channel")
def quantize_per_channel(
    c: AtenCall, x: Value, scale: Value, zero: Value, axis: int, low: Any, high: Any, *more: Any
) -> Value:
    axis = axis_of(axis, x.ndim)
    return _quantize(c, x, _spread(c, scale, x, axis), _spread(c, zero, x, axis), low, high)


@custom_op("quantized_decomposed::dequantize_per_channel")
def dequantize_per_channel(
    c: AtenCall, x: Value, scale: Value, zero: Value | None, axis: int, *more: Any, **rest: Any
) -> Value:
    axis = axis_of(axis, x.ndim)
    return _dequantize(c, x, _spread(c, scale, x, axis), None if zero is None else _spread(c, zero, x, axis))


@custom_op("quantized_decomposed::quantize_per_token")
def quantize_per_token(c: AtenCall, x: Value, scale: Value, zero: Value, low: Any, high: Any, *more: Any) -> Value:
    """A scale for each row; the zero point is added before the number is rounded."""
    real = c.op("add", c.op("divide", c.cast(x, "float32"), c.cast(scale, "float32")), c.cast(zero, "float32"))
    return c.cast(c.op("clip", c.op("round_even", real), low=float(low), high=float(high)), c.dtype)


@custom_op("quantized_decomposed::dequantize_per_token")
def dequantize_per_token(c: AtenCall, x: Value, scale: Value, zero: Value, *more: Any) -> Value:
    return _dequantize(c, x, c.cast(scale, "float32"), c.cast(zero, "float32"))


@custom_op("quantized_decomposed::dequantize_per_channel_group")
def dequantize_per_channel_group(
    c: AtenCall, x: Value, scale: Value, zero: Value | None, low: int, high: int, dtype: Any, group: int, *more: Any
) -> Value:
    """A scale for so many elements of each row."""
    rows, columns = x.shape
    group = min(group, columns)
    scale, zero = (None if v is None else c.reshape(v, (rows, columns // group)) for v in (scale, zero))
    return _dequantize(c, x, _spread(c, scale, x, 1, group), None if zero is None else _spread(c, zero, x, 1, group))


@custom_op("quantized_decomposed::choose_qparams")
def choose_qparams(c: AtenCall, x: Value, low: int, high: int, eps: float, *more: Any) -> tuple[Value, Value]:
    """The scale and the zero point with which the numbers from `low` to `high` reach the least and the largest of x, and zero."""
    least, largest = _extremes(c, x)
    span = c.op("divide", c.op("subtract", largest, least), c.const(high - low, "float32"))
    scale = c.op("maximum", span, c.const(eps, "float32"))
    zero = c.op("subtract", c.const(low, "float32"), c.op("round_even", c.op("divide", least, scale)))
    return _chosen(c, scale, c.op("clip", zero, low=float(low), high=float(high)))


@custom_op("quantized_decomposed::choose_qparams_symmetric")
def choose_qparams_symmetric(c: AtenCall, x: Value, low: int, high: int, eps: float, dtype: Any) -> tuple[Value, Value]:
    least, largest = _extremes(c, x)
    far = c.op("maximum", c.op("neg", least), largest)
    scale = c.op("maximum", c.op("divide", far, c.const((high - low) / 2, "float32")), c.const(eps, "float32"))
    return _chosen(c, scale, c.const(128 if dtype == torch.uint8 else 0, "float32"))


@custom_op("quantized_decomposed::choose_qparams_per_token")
def choose_qparams_per_token(c: AtenCall, x: Value, *more: Any) -> tuple[Value, Value]:
    far = c.op("reduce_max", c.op("abs", c.cast(x, "float32")), axes=(x.ndim - 1,), keepdims=True)
    scale = c.op("divide", c.op("maximum", far, c.const(1e-5, "float32")), c.const(127, "float32"))
    return _chosen(c, scale, c.like(0, scale))


def _extremes(c: AtenCall, x: Value) -> tuple[Value, Value]:
    """The least and the largest of x and zero."""
    x = c.cast(x, "float32")
    least, largest = (c.op(name, x, axes=tuple(range(x.ndim)), keepdims=False) for name in ("reduce_min", "reduce_max"))
    return c.op("minimum", least, c.like(0, x)), c.op("maximum", largest, c.like(0, x))


def _chosen(c: AtenCall, *made: Value) -> tuple[Value, Value]:
    """A scale and a zero point of the types and shapes that torch worked out."""
    scale, zero = (c.cast(c.broadcast(v, t[1]), t[0]) for v, t in zip(made, c.types) if t is not None)
    return scale, zero


@aten_op("_int_mm")
def bytes_product(c: AtenCall, a: Value, b: Value) -> Value:
    return times(c, c.cast(a, "int32"), c.cast(b, "int32"))


@aten_op("_scaled_mm")
def scaled_mm(
    c: AtenCall, a: Value, b: Value, scale_a: Value, scale_b: Value, bias: Value | None = None,
    scale_result: Value | None = None, *more: Any, **rest: Any,
) -> Value:  # fmt: skip
    """A product of 8-bit floats with a scale for each operand, or for each of its rows and columns."""
    if any(
        s.type.size != 1 and s.shape != shape for s, shape in ((scale_a, (a.shape[0], 1)), (scale_b, (1, b.shape[1])))
    ):
        raise ImportModelError(
            "_scaled_mm with a scale for each block", hint="a scale for each tensor, or for each row and column"
        )
    y = times(c, c.cast(a, "float32"), c.cast(b, "float32"))
    for scale in (scale_a, scale_b):
        y = c.op("multiply", y, c.reshape(scale, ()) if scale.type.size == 1 else scale)
    y = y if bias is None else c.op("add", y, c.cast(bias, "float32"))
    y = y if scale_result is None else c.op("multiply", y, c.reshape(scale_result, ()))
    return c.cast(y, c.dtype)
