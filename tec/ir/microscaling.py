"""Microscaling (MX) formats: blocks of 32 small floats that share one power of two.

`quantize` and `dequantize` go from NumPy's floats to elements and scales and back; `FORMATS` says what the elements are. An element's bits, its largest number and
what is rounded to it, and how a block's scale is found: OCP "Microscaling Formats (MX) Specification" 1.0, 5 and 6.3. Elements lie side by side along the last axis, the
first one in the lowest bits (of 6 bits four in three bytes, as gfx950's matrix unit reads them); a scale is a byte, two to the power of it less 127, 255 is NaN (E8M0).

>>> codes, scales = quantize(x, "mxfp4")       # x [rows, k], k a multiple of 32: uint8 [rows, k / 2], uint8 [rows, k / 32]
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from ..errors import TecError
from ..records import dataclass

BLOCK = 32  # elements that share a scale
BIAS = 127  # of a scale
NO_SCALE = 255  # NaN: of all of its block


@dataclass(frozen=True)
class Format:
    """Elements of 1 sign, `exponent` and `mantissa` bits. `largest`: the code of the largest number; codes above it are infinities and NaN."""

    name: str
    exponent: int
    mantissa: int
    largest: int

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.mantissa

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def top(self) -> int:
        """The largest number's exponent, emax in the specification."""
        return (self.largest >> self.mantissa) - self.bias

    @property
    def float8(self) -> str | None:
        """The dtype of these bits, where there is one."""
        return f"float8_e{self.exponent}m{self.mantissa}" if self.bits == 8 else None

    @cached_property
    def numbers(self) -> Any:
        """float32 by code."""
        code = np.arange(1 << (self.bits - 1))
        field, rest = code >> self.mantissa, code & ((1 << self.mantissa) - 1)
        whole = np.where(field > 0, (1 << self.mantissa) + rest, rest)
        made = np.ldexp(whole.astype(np.float64), np.maximum(field, 1) - self.bias - self.mantissa)
        is_infinite = (code == self.largest + 1) & (self.mantissa == 2) & (self.bits == 8)  # e5m2 alone has one
        made = np.where(code > self.largest, np.where(is_infinite, np.inf, np.nan), made)
        return np.concatenate([made, -made]).astype(np.float32)

    def stored(self, count: int) -> int:
        """Bytes of so many elements side by side."""
        return count * self.bits // 8


FORMATS = {
    f.name: f
    for f in (
        Format("mxfp8_e4m3", 4, 3, 0x7E), Format("mxfp8_e5m2", 5, 2, 0x7B), Format("mxfp6_e2m3", 2, 3, 0x1F), Format("mxfp6_e3m2", 3, 2, 0x1F),
        Format("mxfp4_e2m1", 2, 1, 7),
    )
}  # fmt: skip
_SHORT = {"mxfp8": "mxfp8_e4m3", "mxfp6": "mxfp6_e2m3", "mxfp4": "mxfp4_e2m1"}


def format_of(name: str) -> Format:
    """A format by its name; `mxfp8`, `mxfp6` and `mxfp4` are e4m3, e2m3 and e2m1. Raises TecError."""
    found = FORMATS.get(_SHORT.get(name, name))
    if found is None:
        raise TecError(f"no microscaling format {name!r}", hint="there are: " + ", ".join(FORMATS))
    return found


# ---- elements


def encode(x: Any, f: Format) -> Any:
    """Codes (uint8, one a byte) of numbers, to nearest, halves to even; what is larger than the largest becomes it; NaN too."""
    x = np.asarray(x, np.float64)
    size = np.minimum(np.nan_to_num(np.abs(x), nan=np.inf), f.numbers[f.largest])
    exponent = np.where(size > 0, np.maximum(np.frexp(size)[1] - 1, 1 - f.bias), 1 - f.bias)
    units = np.rint(np.ldexp(size, f.mantissa - exponent)).astype(np.int64)
    code = np.minimum(((exponent + f.bias - 1) << f.mantissa) + units, f.largest)
    return (code | np.signbit(x).astype(np.int64) << (f.bits - 1)).astype(np.uint8)


def pack(codes: Any, f: Format) -> Any:
    """Codes, one a byte, side by side along the last axis: a multiple of 4 of them."""
    c = np.asarray(codes, np.uint8)
    if f.bits == 8:
        return c
    if f.bits == 4:
        return c[..., ::2] | c[..., 1::2] << 4
    a, b, d, e = (c[..., n::4].astype(np.uint16) for n in range(4))
    three = np.stack([a | b << 6, b >> 2 | d << 4, d >> 4 | e << 2], -1) & 255
    return three.astype(np.uint8).reshape(*c.shape[:-1], -1)


def unpack(stored: Any, f: Format) -> Any:
    """The other way."""
    s = np.asarray(stored, np.uint8)
    if f.bits == 8:
        return s
    if f.bits == 4:
        return np.stack([s & 15, s >> 4], -1).reshape(*s.shape[:-1], -1)
    a, b, c = (s[..., n::3] for n in range(3))
    four = np.stack([a & 63, a >> 6 | (b & 15) << 2, b >> 4 | (c & 3) << 4, c >> 2], -1)
    return four.reshape(*s.shape[:-1], -1)


# ---- blocks


def quantize(x: Any, name: str) -> tuple[Any, Any]:
    """(elements, scales), uint8 both: x [..., k], k a multiple of 32, as [..., k * bits / 8] and [..., k / 32].

    A block's scale is the power of two that takes its largest magnitude to the elements' largest exponent; what then is too large still becomes the largest
    element. A block with an infinity or NaN has NaN for its scale. Raises TecError where k is no multiple of 32, or for a name that is no format's.
    """
    f, x = format_of(name), np.asarray(x, np.float32)
    if x.ndim == 0 or x.shape[-1] % BLOCK:
        raise TecError(f"blocks of {BLOCK} along the last axis of {x.shape}", hint="fill it up with zeros")
    blocks = x.reshape(*x.shape[:-1], -1, BLOCK).astype(np.float64)
    most = np.abs(blocks).max(-1) if x.size else np.zeros(blocks.shape[:-1])
    is_number = np.isfinite(most)
    exponent = np.frexp(np.where(is_number, most, 0.0))[1] - 1 - f.top
    power = np.where(most > 0, np.clip(exponent, -BIAS, BIAS), -BIAS)
    codes = encode(np.ldexp(np.where(is_number[..., None], blocks, 0.0), -power[..., None]), f)
    scales = np.where(is_number, power + BIAS, NO_SCALE).astype(np.uint8)
    return pack(codes.reshape(x.shape), f), scales


def dequantize(elements: Any, scales: Any, name: str) -> Any:
    """The float32 numbers of elements [..., k * bits / 8] and scales [..., k / 32]."""
    f = format_of(name)
    numbers = f.numbers[unpack(elements, f)]
    with np.errstate(over="ignore", invalid="ignore"):
        return numbers * np.repeat(powers(scales), BLOCK, -1)


def powers(scales: Any) -> Any:
    """float32 of E8M0 bytes."""
    s = np.asarray(scales, np.uint8).astype(np.int32)
    return np.where(s == NO_SCALE, np.float32(np.nan), np.ldexp(np.float32(1), s - BIAS)).astype(np.float32)
