"""Rotary positions (Su and others, RoFormer): pairs of features turned by an angle that grows with the position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import te
from ..te import Tensor
from .registry import (  # fmt: skip
    FOLLOWS_16,
    INJECTIVE,
    Attrs,
    TensorType,
    broadcast_index,
    broadcast_shapes,
    fail,
    register,
    static_shape,
)


def _type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    x, cos, sin = types
    half = cos.shape[-1] if cos.ndim else 0
    fits = cos == sin and isinstance(half, int) and 0 < 2 * half <= x.shape[-1] and "float" in x.dtype
    if not fits or broadcast_shapes(x.shape[:-1], cos.shape[:-1]) != x.shape[:-1]:
        raise fail(f"rotary of {x} by {cos} and {sin}")
    return [x]


def _host(attrs: Attrs, arrays: Sequence[Any], outs: Sequence[TensorType]) -> list[Any]:
    x, cos, sin = (np.asarray(a) for a in arrays)
    half = cos.shape[-1]
    cos, sin = (a.astype(np.float64 if x.dtype == np.float64 else np.float32) for a in (cos, sin))
    parts = (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if attrs.get("interleaved") else (slice(0, half), slice(half, 2 * half))  # fmt: skip
    first, second = (x[..., p].astype(cos.dtype) for p in parts)
    y = x.copy()
    y[..., parts[0]], y[..., parts[1]] = first * cos - second * sin, second * cos + first * sin
    return [y]


@register("rotary", INJECTIVE, _type, traits=[FOLLOWS_16], host=_host)
def _rotary(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """x (..., size) with its first 2 * half features turned: pairs (a, b) become (a cos - b sin, b cos + a sin). cos and sin (..., half) broadcast to x.
    Pairs are d and d + half, or neighbours where `interleaved`. The arithmetic is float32 for 16-bit floats."""
    x, cos, sin = inputs
    half, size = static_shape(cos)[-1], static_shape(x)[-1]
    near = bool(attrs.get("interleaved", False))
    acc = "float64" if x.dtype == "float64" else "float32"

    def body(*i: Any) -> Any:
        *lead, d = i
        first = te.indexmod(d, 2) == 0 if near else d < half
        other = d + 1 - 2 * te.indexmod(d, 2) if near else te.indexmod(d + half, 2 * half)
        place = te.min(te.indexdiv(d, 2), half - 1) if near else te.indexmod(d, half)
        if 2 * half < size:
            other = te.min(other, size - 1)
        at = broadcast_index(static_shape(cos)[:-1], lead)
        a, b = x(*i).astype(acc), x(*lead, other).astype(acc)
        turn = sin(*at, place).astype(acc)
        y = (a * cos(*at, place).astype(acc) + b * te.select(first, -turn, turn)).astype(x.dtype)
        return y if 2 * half == size else te.select(d < 2 * half, y, x(*i))

    return [te.compute(outputs[0].shape, body, name="rotary")]
