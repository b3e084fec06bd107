"""Fourier transforms as products with constant matrices: n * n multiply-adds an element, for the lengths that networks have (frames, channels, short sequences)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..graph import Value
from .builder import Builder
from .matmul import matmul

# A complex value: its real and imaginary part; None for an imaginary part of zeros.
Parts = tuple[Value, Value | None]


def angles(n: int, rows: int) -> Any:
    """2 pi j k / n, (rows, n), of whole turns less: exact for large products j k."""
    return 2 * np.pi * (np.outer(np.arange(rows), np.arange(n)) % n) / n


def transform(
    b: Builder, x: Parts, axis: int, *, rows: int | None = None, inverse: bool = False, scale: float = 1.0
) -> tuple[Value, Value]:
    """sum_k x_k exp(-+2 pi i j k / n) * scale along an axis of n elements, for the first `rows` places j (all of them by default)."""
    real, imag = x
    n = int(real.shape[axis])
    angle = angles(n, n if rows is None else rows)
    cos, sin = np.cos(angle) * scale, np.sin(angle) * (scale if inverse else -scale)
    re, im = along(b, real, cos, axis), along(b, real, sin, axis)
    if imag is None:
        return re, im
    return b.op("subtract", re, along(b, imag, sin, axis)), b.op("add", im, along(b, imag, cos, axis))


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
    """x with its vectors along an axis multiplied by a constant matrix (rows, n) from the left."""
    last = x.ndim - 1
    perm = [k for k in range(x.ndim) if k != axis] + [axis]
    moved = x if axis == last else b.transpose(x, perm)
    y = matmul(b, moved, b.const(np.ascontiguousarray(matrix.T), x.dtype))
    return y if axis == last else b.transpose(y, [int(k) for k in np.argsort(perm)])
