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
    return _coded(b, keys, kind), _coded(b, values, kind)


def _coded(b: Builder, x: Value, kind: str) -> Rows:
    """x [..., size] as codes; the scale of a row is that of its largest element."""
    x = b.cast(x, "float32")
    top = b.op("reduce_max", b.op("abs", x), axes=(x.ndim - 1,), keepdims=True)
    scale = b.op("multiply", top, b.like(1 / _MOST[kind], top))
    codes = b.op("max_norm", x, axis=x.ndim - 1, factor=1 / _MOST[kind], least=_LEAST)
    return Rows(b.cast(b.op("round_even", codes) if kind == "int8" else codes, kind), scale)
