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
        raise ImportModelError(f"{count} heads of {x.type}")
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


def cache_mask(b: Builder, position: Value, total: int, window: int = 0) -> Value:
    """Each step, at `position` (batch, steps), sees what is not after it, and with a window no more than that many positions."""
    n, s = position.shape
    keys = b.const(np.arange(total)[None, None], "int64")
    mine = b.reshape(position, (n, s, 1))
    keep = b.op("less_equal", keys, mine)
    if window > 0:
        keep = b.op("logical_and", keep, b.op("greater", keys, b.op("subtract", mine, b.const(np.int64(window)))))
    return additive_mask(b, b.reshape(keep, (n, 1, s, total)))


def sum_masks(b: Builder, masks: Sequence[Value]) -> Value | None:
    total = None
    for m in masks:
        total = m if total is None else b.op("add", total, m)
    return total


# ---- positions


def rotate(
    b: Builder, x: Value, position: Value, cos: Value, sin: Value, interleaved: bool = False, dims: int = 0
) -> Value:
    """x (batch, heads, steps, size) turned by the angles of `position` (batch or 1, steps): rows of `cos` and `sin` (positions, half).

    Pairs are neighbours where `interleaved`, else the two halves; `dims` features are turned (0: twice the width of `cos`), the rest stay.
    """
    half = cos.shape[1]
    dims = dims or 2 * half
    whole = x
    x = b.slice(x, 3, 0, dims)
    n, h, s, _ = x.shape
    rows = [b.reshape(b.op("gather", t, position, axis=0), (position.shape[0], 1, s, half)) for t in (cos, sin)]
    if interleaved:
        pairs = b.reshape(x, (n, h, s, half, 2))
        first, second = (b.reshape(b.slice(pairs, 4, j, 1), (n, h, s, half)) for j in (0, 1))
    else:
        first, second = b.slice(x, 3, 0, half), b.slice(x, 3, half, half)
    real = b.op("subtract", b.op("multiply", first, rows[0]), b.op("multiply", second, rows[1]))
    other = b.op("add", b.op("multiply", first, rows[1]), b.op("multiply", second, rows[0]))
    if interleaved:
        y = b.reshape(b.op("concat", b.unsqueeze(real, 4), b.unsqueeze(other, 4), axis=4), (n, h, s, dims))
    else:
        y = b.op("concat", real, other, axis=3)
    if dims == whole.shape[3]:
        return y
    return b.op("concat", y, b.slice(whole, 3, dims, whole.shape[3] - dims), axis=3)


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
