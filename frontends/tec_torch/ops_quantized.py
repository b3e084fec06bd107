"""Rounding to the steps of small integers in training, and products of bytes."""

from __future__ import annotations

from typing import Any

from tec.graph import Value

from .importer import AtenCall, aten_op
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


@aten_op("_int_mm")
def bytes_product(c: AtenCall, a: Value, b: Value) -> Value:
    return times(c, c.cast(a, "int32"), c.cast(b, "int32"))
