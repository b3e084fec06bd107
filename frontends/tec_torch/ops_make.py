"""ATen operators that make tensors: constants, ranges, triangles."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from tec import ImportModelError
from tec.graph import Value
from tec.ops.dims import is_symbolic

from .importer import AtenCall, aten_op
from .remedies import FIX_THE_SIZE, LEFT_TO_TORCH

_MOST_STORED = 1 << 16  # elements of a constant that is one number: more are broadcast where they are read


def filled(c: AtenCall, value: Any) -> Value:
    """The result's shape, full of one number."""
    x = c.reshape(c.value(value, c.dtype), ())
    if x.is_const and not is_symbolic(c.shape) and math.prod(c.shape) <= _MOST_STORED:
        return c.const(np.broadcast_to(x.data, c.shape), c.dtype)
    return c.broadcast(x, c.shape)


@aten_op("full")
def full(c: AtenCall, size: Any, value: Any) -> Value:
    return filled(c, value)


@aten_op("full_like", "fill")
def full_like(c: AtenCall, x: Value, value: Any) -> Value:
    return filled(c, value)


@aten_op("new_full")
def new_full(c: AtenCall, x: Value, size: Any, value: Any) -> Value:
    return filled(c, value)


@aten_op("scalar_tensor")
def scalar_tensor(c: AtenCall, value: Any) -> Value:
    return filled(c, value)


@aten_op(
    "zeros",
    "zeros_like",
    "new_zeros",
    "empty",
    "empty_like",
    "new_empty",
    "empty_permuted",
    "new_empty_strided",
    "empty_strided",
)
def zeros(c: AtenCall, *more: Any) -> Value:
    return filled(c, 0)


@aten_op("ones", "ones_like", "new_ones")
def ones(c: AtenCall, *more: Any) -> Value:
    return filled(c, 1)


@aten_op("arange")
def arange(c: AtenCall, *bounds: Any) -> Value:
    start, _, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    if is_symbolic([c.shape, start, step]):
        return c.op("iota", size=c.shape[0], start=start, step=step, dtype=c.dtype)
    # Worked out as torch does: start + k * step in the widest type, then cut.
    wide = np.float64 if c.dtype.startswith(("float", "bfloat")) else np.int64
    return c.const(wide(start) + np.arange(c.shape[0], dtype=wide) * wide(step), c.dtype)


@aten_op("iota", space=torch.ops.prims)
def iota(c: AtenCall, length: Any, start: Any, step: Any, **more: Any) -> Value:
    return c.iota(c.shape[0], start, step, c.dtype)


@aten_op("linspace")
def linspace(c: AtenCall, start: Any, end: Any, steps: Any) -> Value:
    if any(isinstance(x, Value) for x in (start, end)) or is_symbolic([start, end, c.shape]):
        raise ImportModelError(
            "linspace between values that are not known",
            hint=f"start + (end - start) * torch.linspace(0, 1, steps); {LEFT_TO_TORCH}",
        )
    return c.const(np.linspace(start, end, c.shape[0]), c.dtype)


@aten_op("eye")
def eye(c: AtenCall, *size: Any) -> Value:
    return c.eye(c.shape, c.dtype)


@aten_op("tril", "triu")
def triangle(c: AtenCall, x: Value, k: int = 0, **more: Any) -> Value:
    k, upper = int(more.get("diagonal", k)), c.name_of_op == "triu"
    if x.is_const and not is_symbolic(x.shape):
        return c.const((np.triu if upper else np.tril)(x.data, k), c.dtype)
    if x.dtype == "bool":
        return c.cast(c.op("trilu", c.cast(x, "uint8"), k=k, upper=upper), "bool")
    return c.op("trilu", x, k=k, upper=upper)


@aten_op("tril_indices", "triu_indices")
def triangle_indices(c: AtenCall, rows: int, cols: int, offset: int = 0) -> Value:
    if is_symbolic([rows, cols]):
        raise ImportModelError("indices of a triangle of open size", hint=FIX_THE_SIZE)
    f = np.tril_indices if c.name_of_op == "tril_indices" else np.triu_indices
    return c.const(np.stack(f(rows, offset, cols)), c.dtype)
