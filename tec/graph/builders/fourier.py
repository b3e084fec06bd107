"""Fourier transforms as products with matrices, constant where the length is: n * n multiply-adds an element, for the lengths that networks have (frames, channels, short sequences)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ops.dims import Dim, Size
from ...ops.matmul import accumulator
from ..graph import Value
from .builder import Builder
from .matmul import matmul

# A complex value: its real and imaginary part; None for an imaginary part of zeros.
Parts = tuple[Value, Value | None]


def angles(n: int, rows: int) -> Any:
    """2 pi j k / n, (rows, n), of whole turns less: exact for large products j k."""
    return 2 * np.pi * (np.outer(np.arange(rows), np.arange(n)) % n) / n


def transform(
    b: Builder, x: Parts, axis: int, *, rows: Size | None = None, inverse: bool = False, scale: float = 1.0
) -> tuple[Value, Value]:
    """sum_k x_k exp(-+2 pi i j k / n) * scale along an axis of n elements, for the first `rows` places j (all of them by default)."""
    real, imag = x
    n: Size = real.shape[axis]
    rows = n if rows is None else rows
    cos: Any
    sin: Any
    if isinstance(n, Dim):
        cos, sin = _computed(b, n, rows, scale, -1.0 if inverse else 1.0, real.dtype)
    else:
        angle = angles(n, int(rows))
        cos, sin = np.cos(angle) * scale, np.sin(angle) * (scale if inverse else -scale)
    re, im = along(b, real, cos, axis), along(b, real, sin, axis)
    if imag is None:
        return re, im
    return b.op("subtract", re, along(b, imag, sin, axis)), b.op("add", im, along(b, imag, cos, axis))


def _computed(b: Builder, n: Dim, rows: Size, scale: float, sign: float, dtype: str) -> tuple[Value, Value]:
    """The matrices of cosines and sines, (rows, n), of a length that is known at run time. Of 16 bits they are rounded once: such types do not have all lengths."""
    wide = accumulator(dtype)
    turns = b.op("multiply", b.reshape(b.count(rows), (rows, 1)), b.reshape(b.count(n), (1, n)))
    length = b.op("iota", size=1, start=n, step=1, dtype="int64")
    part = b.op("divide", b.cast(b.op("floor_mod", turns, length), wide), b.cast(length, wide))
    angle = b.op("multiply", part, b.const(np.array(-2 * np.pi * sign), wide))
    times = b.const(np.array(scale), wide)
    cos, sin = (b.cast(b.op("multiply", b.op(f, angle), times), dtype) for f in ("cos", "sin"))
    return cos, sin


def real_inverse(b: Builder, x: Parts, axis: int, n: int, scale: float = 1.0) -> Value:
    """The n real numbers whose transform's first n // 2 + 1 places are given along an axis: the others are their mirror image."""
    real, imag = x
    half = n // 2 + 1
    angle = angles(n, half).T  # (n, half)
    twice = np.full(half, 2.0 * scale)
    twice[0] = scale
    if n % 2 == 0:
        twice[-1] = scale
    y = along(b, b.slice(real, axis, 0, half), np.cos(angle) * twice, axis)
    if imag is None:
        return y
    return b.op("subtract", y, along(b, b.slice(imag, axis, 0, half), np.sin(angle) * twice, axis))


def along(b: Builder, x: Value, matrix: Any, axis: int) -> Value:
    """x with its vectors along an axis multiplied by a matrix (rows, n) from the left: constant, or a value."""
    last = x.ndim - 1
    perm = [k for k in range(x.ndim) if k != axis] + [axis]
    moved = x if axis == last else b.transpose(x, perm)
    across = (
        b.transpose(matrix, [1, 0]) if isinstance(matrix, Value) else b.const(np.ascontiguousarray(matrix.T), x.dtype)
    )
    y = matmul(b, moved, across)
    return y if axis == last else b.transpose(y, [int(k) for k in np.argsort(perm)])
