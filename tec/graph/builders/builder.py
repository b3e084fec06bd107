"""Adds nodes to a graph in a line each; operations that change nothing add none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import ImportModelError
from ...ops.dims import Dim, Size, as_size, is_symbolic
from ...te.numpy_dtype import np_dtype
from ..graph import Graph, Value


class Builder:
    """Short ways to add to `graph`. New values are named after `name`; `origin` says where in the model they come from."""

    def __init__(self, graph: Graph, name: str = "", origin: str = ""):
        self.graph = graph
        self.name = name
        self.origin = origin

    def op(self, name: str, *values: Value, **attrs: Any) -> Value:
        """The (first) output of a new node."""
        return self.ops(name, *values, **attrs)[0]

    def ops(self, name: str, *values: Value, **attrs: Any) -> list[Value]:
        """All outputs of a new node."""
        return self.graph.add(name, values, attrs, name=self.name, origin=self.origin)

    def const(self, array: Any, dtype: str | None = None) -> Value:
        """A constant, with NumPy's dtype or as `dtype`."""
        if dtype is not None and not isinstance(array, Value):
            array = np.asarray(array).astype(np_dtype(dtype))
        return self.graph.constant(array, "const", dtype)

    def like(self, number: float, value: Value) -> Value:
        """A 0-dimensional constant of the dtype of `value`."""
        return self.const(number, value.dtype)

    def count(self, n: Size, step: int = 1, dtype: str = "int64") -> Value:
        """The `n` numbers 0, step, 2 * step, ...; n: a number or a symbolic size."""
        if isinstance(n, Dim):
            return self.op("iota", size=n, start=0, step=step, dtype=dtype)
        return self.const(np.arange(n) * step, dtype)

    def eye(self, shape: Sequence[Size], dtype: str, k: int = 0) -> Value:
        """Ones on the diagonal `k` places right of the main one, and zeros, of (rows, columns): numbers or symbolic sizes."""
        rows, columns = shape
        if not is_symbolic([rows, columns]):
            return self.const(np.eye(rows, columns, k), dtype)
        row = self.op("iota", size=rows, start=k, step=1, dtype="int64")
        return self.cast(self.op("equal", self.reshape(row, (rows, 1)), self.count(columns)), dtype)

    def cast(self, value: Value, dtype: str) -> Value:
        return value if value.dtype == dtype else self.op("cast", value, dtype=dtype)

    def reshape(self, value: Value, shape: Sequence[Size]) -> Value:
        shape = tuple(map(as_size, shape))
        return value if value.shape == shape else self.op("reshape", value, shape=shape)

    def transpose(self, value: Value, perm: Sequence[int]) -> Value:
        return value if list(perm) == list(range(len(perm))) else self.op("transpose", value, perm=tuple(perm))

    def broadcast(self, value: Value, shape: Sequence[int]) -> Value:
        return value if value.shape == tuple(shape) else self.op("broadcast_to", value, shape=tuple(shape))

    def slice(self, value: Value, axis: int, start: int, size: int, step: int = 1) -> Value:
        """`size` elements along one axis."""
        axis %= value.ndim
        if size == value.shape[axis] and step == 1:
            return value
        starts, steps, sizes = [0] * value.ndim, [1] * value.ndim, list(value.shape)
        starts[axis], steps[axis], sizes[axis] = start, step, size
        return self.op("slice", value, starts=tuple(starts), steps=tuple(steps), sizes=tuple(sizes))

    def split(self, value: Value, axis: int, sizes: Sequence[int]) -> list[Value]:
        """Neighbouring slices of the given sizes."""
        out, start = [], 0
        for size in sizes:
            out.append(self.slice(value, axis, start, size))
            start += size
        return out

    def concat(self, values: Sequence[Value], axis: int) -> Value:
        return values[0] if len(values) == 1 else self.op("concat", *values, axis=axis_of(axis, values[0].ndim))

    def stack(self, values: Sequence[Value], axis: int = 0) -> Value:
        """Values of one shape along a new dimension."""
        return self.concat([self.unsqueeze(v, axis) for v in values], axis)

    def take(self, value: Value, axis: int, index: int) -> Value:
        """The part at one index of an axis, which vanishes."""
        return self.squeeze(self.slice(value, axis, index, 1), axis)

    def squeeze(self, value: Value, axis: int) -> Value:
        axis %= value.ndim
        return self.reshape(value, value.shape[:axis] + value.shape[axis + 1 :])

    def within(self, values: Value, top: Size, what: str) -> Value:
        """Integers of one dimension, with the condition that none is below 0 or above `top`."""
        wide = self.cast(values, "int64")
        low = self.op("greater_equal", wide, self.const(np.int64(0)))
        high = self.op("less_equal", wide, self.graph.sizes(top, "top"))
        fits = self.op("reduce_all", self.op("logical_and", low, high), axes=(0,), keepdims=False)
        return self.op("require", values, fits, text=f"{what} is outside of 0 to {top} ({self.origin or self.name})")

    def unsqueeze(self, value: Value, axis: int) -> Value:
        axis %= value.ndim + 1
        return self.reshape(value, (*value.shape[:axis], 1, *value.shape[axis:]))


def axis_of(axis: int, ndim: int) -> int:
    """`axis` counted from the front. ImportModelError where there is none."""
    if not -ndim <= axis < max(ndim, 1):
        raise ImportModelError(
            f"axis {axis} of a tensor of {ndim} dimensions", hint=f"axes go from {-ndim} to {ndim - 1}"
        )
    return axis % ndim if ndim else 0


def identifier(text: str) -> str:
    """A name that is safe in every output: letters, digits, underscores."""
    out = "".join(ch if ch.isalnum() and ch.isascii() else "_" for ch in text)
    return ("v" + out if out[:1].isdigit() else out) or "v"
