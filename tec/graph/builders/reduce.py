"""Reductions of several steps."""

from __future__ import annotations

from collections.abc import Sequence

from ..graph import Value
from .builder import Builder


def log_sum_exp(b: Builder, x: Value, axes: Sequence[int], keepdims: bool) -> Value:
    """log of the sum of exp(x) over `axes`, with the largest taken off first."""
    top = b.op("reduce_max", x, axes=tuple(axes), keepdims=True)
    # A row of -inf has no finite maximum to take off.
    safe = b.op("where", b.op("isfinite", top), top, b.like(0, top))
    total = b.op("reduce_sum", b.op("exp", b.op("subtract", x, safe)), axes=tuple(axes), keepdims=True)
    y = b.op("add", b.op("log", total), safe)
    return y if keepdims else b.reshape(y, [n for k, n in enumerate(x.shape) if k not in axes])
