"""Tensors made from sizes that may be symbolic: the sizes themselves, and numbers in a row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .. import te
from ..ir.dtype import dtype_info
from ..te import Tensor
from .dims import Dim
from .registry import CHECKED, INJECTIVE, Attrs, TensorType, fail, register


def _sizes_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    if math.prod(attrs["shape"]) != len(attrs["values"]):
        raise fail(f"{len(attrs['values'])} sizes in the shape {tuple(attrs['shape'])}")
    return [TensorType(attrs["dtype"], tuple(attrs["shape"]))]


@register("sizes", INJECTIVE, _sizes_type, takes=0)
def _sizes(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """A tensor of `shape` and `dtype` with the sizes `values`, row-major: ints and `Dim`s."""
    shape, dtype = tuple(attrs["shape"]), attrs["dtype"]
    values = [te.cast(dtype, v.asexpr("int64")) if isinstance(v, Dim) else te.const(v, dtype) for v in attrs["values"]]

    def body(*i: Any) -> Any:
        flat: Any = 0
        for k, n in zip(i, shape):
            flat = flat * n + k
        value = values[-1] if values else te.const(0, dtype)
        for k in reversed(range(len(values) - 1)):
            value = te.select(flat == k, values[k], value)
        return value

    return [te.compute(shape, body, name="sizes")]


def _iota_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    dtype_info(attrs["dtype"])
    return [TensorType(attrs["dtype"], (attrs["size"],))]


@register("iota", INJECTIVE, _iota_type, takes=0)
def _iota(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """`size` numbers of `dtype`: `start` + k * `step`; each a number or a size."""
    dtype = attrs["dtype"]

    def number(x: Any) -> Any:
        return te.cast(dtype, x.asexpr("int64")) if isinstance(x, Dim) else te.const(x, dtype)

    start, step = number(attrs["start"]), number(attrs["step"])
    return [te.compute((attrs["size"],), lambda k: start + te.cast(dtype, k) * step, name="iota")]


def _require_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    if types[1] != TensorType("bool", ()) or not isinstance(attrs["text"], str):
        raise fail(f"require of {types[1]}: one bool, and a text")
    return [types[0]]


def _require_host(attrs: Attrs, arrays: Sequence[Any], outs: Sequence[TensorType]) -> list[Any]:
    if not arrays[1]:
        raise fail(attrs["text"])
    return [arrays[0]]


@register("require", INJECTIVE, _require_type, traits=[CHECKED], host=_require_host, takes=2)
def _require(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """The first input; a network fails with `text` where the second, one bool, does not hold."""
    return [te.compute(outputs[0].shape, lambda *i: inputs[0](*i), name="require")]
