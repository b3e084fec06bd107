"""8-bit floats: fp8 (e4m3) and bf8 (e5m2), in the FNUZ form of gfx942 and the OCP form of gfx950 and gfx12.

Source: OCP "8-bit Floating Point Specification" and the CDNA3 ISA manual's FNUZ formats (bias one larger, one NaN, no
negative zero, no infinities).
"""

from __future__ import annotations

from functools import partial

from .ops import Ops

# kind -> (exponent bits, mantissa bits)
FORMATS = {"fp8": (4, 3), "bf8": (5, 2)}


def decode(o: Ops, byte: str, kind: str, fnuz: bool = True) -> str:
    """An 8-bit float in the low byte of an i32, as f32 (always exact)."""
    exponent_bits, mantissa_bits = FORMATS[kind]
    bias = (1 << (exponent_bits - 1)) - (0 if fnuz else 1)
    c = partial(o.const, "i32")
    sign = o.shl(o.and_(byte, c(0x80)), c(24))
    magnitude = o.and_(byte, c(0x7F))
    # Put exponent and mantissa where f32 has them; the product with a power of two mends the bias, denormals included.
    raw = o.bitcast("i32", "f32", o.shl(magnitude, c(23 - mantissa_bits)))
    value = o.bin("fmul", "f32", raw, o.const("f32", 2.0 ** (127 - bias)))
    bits = o.or_(o.bitcast("f32", "i32", value), sign)
    nan = c(0x7FC00000)
    if fnuz:
        bits = o.select(o.icmp("eq", "i32", byte, c(0x80)), "i32", nan, bits)
    elif kind == "fp8":
        bits = o.select(o.icmp("eq", "i32", magnitude, c(0x7F)), "i32", nan, bits)
    else:
        inf = o.or_(c(0x7F800000), sign)
        bits = o.select(o.icmp("eq", "i32", magnitude, c(0x7C)), "i32", inf, bits)
        bits = o.select(o.icmp("ugt", "i32", magnitude, c(0x7C)), "i32", nan, bits)
    return o.bitcast("i32", "f32", bits)
