"""What a cache holds of keys and values: numbers as they are, or codes of 8 bits with a scale of each head and token.

A row is a head of a token. Its scale is that of its largest element, so that no row of large keys takes bits from others; the attention multiplies a score by its key's
scale and a weight by its value's, and reads codes as they lie (`ops.attention`).
"""

from __future__ import annotations

from typing import NamedTuple

from ..graph import Value
from ..graph.builders import Builder

_MOST = {"int8": 127.0, "float8_e4m3": 448.0}  # the largest code
_LEAST = 1e-30  # of scales: a row of zeros is divided by one


class Rows(NamedTuple):
    """Keys or values as they are cached, and their scales, of one element a row."""

    codes: Value
    scale: Value | None = None


def scales_of(keys: Rows, values: Rows) -> dict[str, Value]:
    """What an attention takes for these beside their codes."""
    both = {"k_scale": keys.scale, "v_scale": values.scale}
    return {name: scale for name, scale in both.items() if scale is not None}


def stored_as(b: Builder, keys: Value, values: Value, kind: str) -> tuple[Rows, Rows]:
    """Keys and values [1, tokens, heads, size] as a cache of this type holds them, and their scales [1, tokens, heads, 1], float32, where these are codes. A row with what is no
    number has such a scale."""
    if kind not in _MOST:
        return Rows(b.cast(keys, kind)), Rows(b.cast(values, kind))
    if keys.shape[3] == values.shape[3]:  # one kernel for both: a token's heads take as long as its launch
        scales = b.split(_scale(b, b.concat([keys, values], 2), kind), 2, [keys.shape[2], values.shape[2]])
    else:
        scales = [_scale(b, x, kind) for x in (keys, values)]
    stored = [Rows(_codes(b, x, scale, kind), scale) for x, scale in zip((keys, values), scales)]
    return stored[0], stored[1]


def _scale(b: Builder, x: Value, kind: str) -> Value:
    """Of each row of x [..., size]: that of its largest element."""
    top = b.op("reduce_max", b.op("abs", b.cast(x, "float32")), axes=(x.ndim - 1,), keepdims=True)
    return b.op("multiply", top, b.like(1 / _MOST[kind], top))


def _codes(b: Builder, x: Value, scale: Value, kind: str) -> Value:
    codes = b.op("divide", b.cast(x, "float32"), b.op("maximum", scale, b.like(_LEAST, scale)))
    return b.cast(b.op("round_even", codes) if kind == "int8" else codes, kind)
