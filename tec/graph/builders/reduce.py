"""Reductions of several steps."""

from __future__ import annotations

from collections.abc import Sequence

from ..graph import Value
from .builder import Builder


def log_sum_exp(b: Builder, x: Value, axes: Sequence[int], keepdims: bool) -> Value:
    """log of the sum of exp(x) over `axes`, with the largest taken off first, in x's type."""
    top = b.op("reduce_max", x, axes=tuple(axes), keepdims=True)
    # A row of -inf has no finite maximum to take off.
    safe = b.op("where", b.op("isfinite", top), top, b.like(0, top))
    powers = b.op("exp", widened(b, b.op("subtract", x, safe)))
    total = b.op("reduce_sum", powers, axes=tuple(axes), keepdims=True)
    y = b.cast(b.op("add", b.op("log", total), widened(b, safe)), x.dtype)
    return y if keepdims else b.reshape(y, [n for k, n in enumerate(x.shape) if k not in axes])


def widened(b: Builder, x: Value) -> Value:
    """float16 as float32: for sums that it may not hold though it holds what is made of them."""
    return b.cast(x, "float32") if x.dtype == "float16" else x


def p_norm(b: Builder, x: Value, p: float, axes: Sequence[int] | None, keepdims: bool) -> Value:
    """The p-norm of x over `axes` (None: all), p finite and not 0, in x's type."""
    attrs = {"axes": axes, "keepdims": keepdims}
    if p == 1:
        return b.op("reduce_sum_abs", x, **attrs)
    wide = widened(b, x)
    if p == 2:
        y = b.op("sqrt", b.op("reduce_sum_square", wide, **attrs))
    else:
        total = b.op("reduce_sum", b.op("power", b.op("abs", wide), b.like(p, wide)), **attrs)
        y = b.op("power", total, b.like(1 / p, wide))
    return b.cast(y, x.dtype)
