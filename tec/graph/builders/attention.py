"""Attention: heads, masks, rotary angles, caches of keys and values.

Queries, keys and values are (batch, heads, steps, size); keys and values may have fewer heads, each for a group of the queries'.
Masks add to the scores and broadcast against (batch, heads, steps, total).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import ImportModelError
from ..graph import Value
from .builder import Builder
from .quantize import quantize

HIDDEN = -1e30  # what a mask adds where nothing may be seen: exp of it is 0, and it stays finite in float32


def attend(
    b: Builder, q: Value, k: Value, v: Value, mask: Value | None = None, scale: float = 1.0, softcap: float = 0.0
) -> Value:
    """softmax(q k^T scale + mask) v; with `softcap` the scores are softcap tanh(scores / softcap) before the mask."""
    group = q.shape[1] // k.shape[1]
    if group > 1:
        k, v = (repeat_heads(b, x, group) for x in (k, v))
    scores = b.op("matmul", q, k, transpose_b=True)
    scores = b.op("multiply", scores, b.like(scale, scores))
    if softcap:
        scores = b.op(
            "multiply", b.op("tanh", b.op("divide", scores, b.like(softcap, scores))), b.like(softcap, scores)
        )
    if mask is not None:
        scores = b.op("add", scores, b.cast(mask, scores.dtype))
    return b.op("matmul", b.op("softmax", scores, axes=(3,)), v)


# ---- heads


def repeat_heads(b: Builder, x: Value, times: int) -> Value:
    """Every head `times` times, one after another."""
    n, h, t, size = x.shape
    return b.reshape(b.broadcast(b.reshape(x, (n, h, 1, t, size)), (n, h, times, t, size)), (n, h * times, t, size))


def split_heads(b: Builder, x: Value, count: int) -> Value:
    """(batch, steps, heads * size) as (batch, heads, steps, size). ImportModelError where `count` does not divide."""
    n, s, h = x.shape
    if h % count:
        raise ImportModelError(f"{count} heads of {x.type}", hint="a number of heads that divides the features")
    return b.transpose(b.reshape(x, (n, s, count, h // count)), (0, 2, 1, 3))


def join_heads(b: Builder, x: Value) -> Value:
    """(batch, heads, steps, size) as (batch, steps, heads * size)."""
    n, h, s, size = x.shape
    return b.reshape(b.transpose(x, (0, 2, 1, 3)), (n, s, h * size))


# ---- masks


def additive_mask(b: Builder, keep: Value, value: float = HIDDEN) -> Value:
    """0 where `keep`, else `value`."""
    return b.op("where", keep, b.const(np.float32(0)), b.const(np.float32(value)))


def causal_mask(b: Builder, steps: int, total: int, value: float = HIDDEN) -> Value:
    """The last `steps` of `total` positions see what is not after them."""
    keep = np.arange(total)[None] <= np.arange(total - steps, total)[:, None]
    return b.const(np.where(keep, 0, value).astype(np.float32)[None, None])


def sum_masks(b: Builder, masks: Sequence[Value]) -> Value | None:
    total = None
    for m in masks:
        total = m if total is None else b.op("add", total, m)
    return total


# ---- positions


def rotary(
    b: Builder, x: Value, position: Value, cos: Value, sin: Value, interleaved: bool = False, dims: int = 0
) -> Value:
    """x (batch, steps, heads, size) turned by the angles of `position` (batch or 1, steps): rows of `cos` and `sin` (positions, half). `dims` features
    are turned (0: twice the width of `cos`), the rest stay."""
    half = dims // 2 or cos.shape[1]
    if cos.shape != sin.shape or cos.ndim != 2 or cos.shape[1] < half:
        raise ImportModelError(
            f"angles {cos.type} and {sin.type} for {2 * half} features",
            hint="cosines and sines [positions, features / 2]",
        )
    shape = (*position.shape, 1, half)
    rows = [b.reshape(b.op("gather", b.slice(t, 1, 0, half), position, axis=0), shape) for t in (cos, sin)]
    return b.op("rotary", x, *rows, interleaved=interleaved)


# ---- caches


def write_cache(b: Builder, cache: Value | None, new: Value, position: Value, total: int) -> Value:
    """`cache` (batch, heads, past, size), grown to `total` steps, with `new` written at `position` (batch, steps) of each batch entry."""
    n, h, s, size = new.shape
    past = cache.shape[2] if cache is not None else 0
    if not past and total == s:
        return new
    if cache is None or not past:
        have = b.const(np.zeros((n, h, total, size)), new.dtype)
    elif past < total:
        have = b.op("pad", cache, before=(0,) * 4, after=(0, 0, total - past, 0))
    else:
        have = cache
    index = b.broadcast(b.reshape(position, (n, 1, s, 1)), (n, h, s, size))
    return b.op("scatter_elements", have, index, new, axis=2, reduction="none")


def quantize_cache(b: Builder, x: Value, scale: Value, dtype: str, bits: int) -> Value:
    """Rows for a quantized cache: x (batch, heads, steps, size) over `scale`, rounded and saturated, as int8 or an 8-bit float; with 4 bits as bytes
    (batch, heads, steps, (size + 1) // 2) of two numbers each, plus 8, the first in the low half. Source: ONNX Runtime's GroupQueryAttention."""
    if bits != 4:
        return quantize(b, x, scale, None, dtype)
    q = b.op("round_even", b.op("divide", b.cast(x, "float32"), scale))
    q = b.cast(b.op("add", b.op("clip", q, low=-8.0, high=7.0), b.like(8.0, q)), "uint8")
    if q.shape[3] % 2:
        q = b.op("pad", q, before=(0,) * 4, after=(0, 0, 0, 1))
    low, high = (b.slice(q, 3, j, q.shape[3] // 2, 2) for j in (0, 1))
    return b.op("bitwise_or", low, b.op("shift_left", high, b.like(4, high)))


def dequantize_cache(b: Builder, x: Value, scale: Value, size: int, bits: int, dtype: str) -> Value:
    """The numbers (batch, heads, steps, size) that rows of a quantized cache stand for."""
    y = x
    if bits == 4:
        low, high = b.op("bitwise_and", x, b.like(15, x)), b.op("shift_right", x, b.like(4, x))
        both = b.cast(b.stack([low, high], 4), "float32")
        y = b.op("subtract", b.reshape(both, (*x.shape[:3], 2 * x.shape[3])), b.const(np.float32(8)))
        y = b.slice(y, 3, 0, size)
    return b.cast(b.op("multiply", b.cast(y, "float32"), scale), dtype)
