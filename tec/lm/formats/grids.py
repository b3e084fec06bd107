"""The formats of ggml whose codes are rows of a codebook: IQ1, IQ2 and IQ3. As in `values`: blocks [n, nbytes] to values, in ggml's order of operations."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from .bits import half, words
from .codebooks import IQ1_S, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS, unpack

_EIGHT = np.arange(8, dtype=np.uint8)
_NIBBLE = np.array([0, 4], np.uint8)


@cache
def _book(packed: str, width: int, values: tuple[int, ...]) -> Any:
    """A codebook as float32 [entries, width]."""
    codes = unpack(packed, 2 if len(values) == 3 else 4)
    if len(values) == 3:
        return np.array([*values, 0], np.float32)[codes].reshape(-1, width)
    return np.array(values, np.float32)[codes & 7].reshape(-1, width)


_TWO = (0x08, 0x19, 0x2B)
_THREE_XXS = (0x04, 0x0C, 0x14, 0x1C, 0x24, 0x2C, 0x34, 0x3E)
_THREE_S = (0x01, 0x03, 0x05, 0x07, 0x09, 0x0B, 0x0D, 0x0F)
_ONE = (-1, 0, 1)


def _signs(bits: Any) -> Any:
    """Bytes [...] as signs [..., 8]: a bit that is set is a minus."""
    return np.where(bits[..., None] >> _EIGHT & 1, np.float32(-1), np.float32(1))


def _even_signs(codes: Any) -> Any:
    """Seven bits [...] as signs [..., 8]: the eighth makes the number of minuses even."""
    codes = codes.astype(np.uint8)
    parity = codes ^ codes >> 4
    parity = parity ^ parity >> 2
    return _signs(codes | ((parity ^ parity >> 1) & 1) << 7)


def _four_sevens(word: Any) -> Any:
    """Four indices of seven bits from the lower 28 of each word."""
    return word[..., None] >> np.array([0, 7, 14, 21], np.uint32) & 127


def iq2_xxs(b: Any) -> Any:
    q = words(b, 2, 66, "<u4").reshape(len(b), 8, 2)
    scale = half(b, 0) * (np.float32(0.5) + (q[..., 1] >> 28).astype(np.float32)) * np.float32(0.25)
    rows = _book(IQ2_XXS, 8, _TWO)[np.ascontiguousarray(q[..., 0]).view(np.uint8).reshape(len(b), 8, 4)]
    return scale[..., None, None] * rows * _even_signs(_four_sevens(q[..., 1]))


def _nibble_scales(b: Any, start: int, stop: int) -> Any:
    return (b[:, start:stop, None] >> _NIBBLE & 15).reshape(len(b), -1)


def iq2_xs(b: Any) -> Any:
    q = words(b, 2, 66, "<u2").reshape(len(b), 16, 2)
    scale = half(b, 0) * (np.float32(0.5) + _nibble_scales(b, 66, 74)) * np.float32(0.25)
    return scale[..., None, None] * _book(IQ2_XS, 8, _TWO)[q & 511] * _even_signs(q >> 9)


def iq2_s(b: Any) -> Any:
    high = (b[:, 66:74, None] >> np.array([0, 2, 4, 6], np.uint8) & 3).reshape(len(b), -1).astype(np.uint16)
    codes = (b[:, 2:34] | high << 8).reshape(len(b), 16, 2)
    scale = half(b, 0) * (np.float32(0.5) + _nibble_scales(b, 74, 82)) * np.float32(0.25)
    return scale[..., None, None] * _book(IQ2_S, 8, _TWO)[codes] * _signs(b[:, 34:66].reshape(len(b), 16, 2))


def iq3_xxs(b: Any) -> Any:
    word = words(b, 66, 98, "<u4")
    scale = half(b, 0) * (np.float32(0.5) + (word >> 28).astype(np.float32)) * np.float32(0.5)
    rows = _book(IQ3_XXS, 4, _THREE_XXS)[b[:, 2:66]].reshape(len(b), 8, 4, 8)
    return scale[..., None, None] * rows * _even_signs(_four_sevens(word))


def iq3_s(b: Any) -> Any:
    high = (b[:, 66:74, None] >> _EIGHT & 1).reshape(len(b), -1).astype(np.uint16)
    rows = _book(IQ3_S, 4, _THREE_S)[b[:, 2:66] | high << 8].reshape(len(b), 8, 4, 8)
    scale = half(b, 0) * (1 + 2 * _nibble_scales(b, 106, 110))
    return scale[..., None, None] * rows * _signs(b[:, 74:106].reshape(len(b), 8, 4))


_DELTA = np.float32(0.125)


def iq1_s(b: Any) -> Any:
    high = words(b, 34, 50, "<u2")
    scale = half(b, 0) * (2 * (high >> 12 & 7) + 1)
    delta = np.where(high & 0x8000, -_DELTA, _DELTA)[..., None, None]
    upper = high[..., None] >> np.array([0, 3, 6, 9], np.uint16) & 7
    rows = _book(IQ1_S, 8, _ONE)[b[:, 2:34].reshape(len(b), 8, 4) | upper << 8]
    return scale[..., None, None] * (rows + delta)


def iq1_m(b: Any) -> Any:
    """The float16 that scales a block lies in the upper four bits of its four words of scales."""
    word = words(b, 48, 56, "<u2")
    parts = (word & 0xF000) >> np.array([12, 8, 4, 0], np.uint16)
    whole = np.bitwise_or.reduce(parts, -1).astype(np.uint16).view(np.float16).astype(np.float32)
    fine = (word[..., None] >> np.array([0, 3, 6, 9], np.uint16) & 7).reshape(len(b), 16)
    scale = (whole[:, None] * (2 * fine + 1)).reshape(len(b), 16, 1, 1)
    high = (b[:, 32:48, None] >> _NIBBLE).reshape(len(b), 16, 2)
    delta = np.where(high & 8, -_DELTA, _DELTA)[..., None]
    rows = _book(IQ1_S, 8, _ONE)[b[:, :32].reshape(len(b), 16, 2) | (high & 7).astype(np.uint16) << 8]
    return scale * (rows + delta)
