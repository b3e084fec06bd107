"""The formats of small floats: their bits, and how a number becomes them.

Sources: OCP 8-bit Floating Point Specification (OFP8), 5.3; IEEE 754, binary16; AMD Instinct MI300 ISA, the FNUZ formats (finite, unsigned
zero: what would be negative zero is the one NaN).
"""

from __future__ import annotations

import struct

from ...records import dataclass


@dataclass(frozen=True)
class Format:
    """mantissa: its bits; bias: of the exponent; overflow: what rounds to no number, in magnitude; infinity, nan: their bits, in FNUZ
    formats both the sign alone."""

    bits: int
    mantissa: int
    bias: int
    overflow: float
    infinity: int
    nan: int

    @property
    def has_infinity(self) -> bool:
        return self.infinity != self.nan

    @property
    def is_fnuz(self) -> bool:
        """Whether NaN has negative zero's place."""
        return self.nan == self.sign

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)

    @property
    def largest(self) -> float:
        """The largest number: its bits are those before infinity's, or NaN's where there is none."""
        exponent, units = divmod(self.infinity - 1, 1 << self.mantissa)
        return (1 + units / (1 << self.mantissa)) * 2.0 ** (exponent - self.bias)

    def encode(self, value: float) -> int:
        """The bits of a number, rounded to nearest even."""
        sign = self.sign if struct.pack(">d", value)[0] & 0x80 else 0
        x = abs(value)
        if x != x:
            return sign | self.nan
        if x >= self.overflow:
            return sign | self.infinity
        exponent = max(1 - self.bias, (struct.unpack(">Q", struct.pack(">d", x))[0] >> 52) - 1023)
        units = round(x / 2.0 ** (exponent - self.mantissa))  # of the last place; Python rounds halves to even
        found: int = ((exponent + self.bias - 1) << self.mantissa) + units
        return found | sign if found or not self.is_fnuz else 0


_AFTER_464 = 464.00003051757812  # float32's number behind half way from e4m3's largest, 448, to what is none; 464 itself rounds to the even 448
FORMATS = {
    "float16": Format(16, 10, 15, 65520.0, 0x7C00, 0x7E00),
    "float8_e5m2": Format(8, 2, 15, 61440.0, 0x7C, 0x7E),
    "float8_e4m3": Format(8, 3, 7, _AFTER_464, 0x7F, 0x7F),
    "float8_e5m2fnuz": Format(8, 2, 16, 61440.0, 0x80, 0x80),
    "float8_e4m3fnuz": Format(8, 3, 8, 248.0, 0x80, 0x80),
}
