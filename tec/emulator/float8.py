"""Floats of 8 bits and fewer: fp8 (e4m3) and bf8 (e5m2), in the FNUZ form of gfx942 and the OCP form of gfx950 and gfx12; gfx950's fp6 (e2m3), bf6
(e3m2) and fp4 (e2m1), which are all finite.

Source: OCP "8-bit Floating Point Specification" and "Microscaling Formats (MX) Specification", and the CDNA3 ISA manual's FNUZ formats (bias one larger, one NaN, no
negative zero, no infinities).
"""

from __future__ import annotations

from functools import partial

from .ops import Ops

# kind -> (exponent bits, mantissa bits)
FORMATS = {"fp8": (4, 3), "bf8": (5, 2), "fp6": (2, 3), "bf6": (3, 2), "fp4": (2, 1)}


def decode(o: Ops, byte: str, kind: str, fnuz: bool = True) -> str:
    """A small float in the low bits of an i32, as f32 (always exact)."""
    exponent_bits, mantissa_bits = FORMATS[kind]
    all_bits = 1 + exponent_bits + mantissa_bits
    fnuz = fnuz and all_bits == 8
    bias = (1 << (exponent_bits - 1)) - (0 if fnuz else 1)
    c = partial(o.const, "i32")
    sign = o.shl(o.and_(byte, c(1 << (all_bits - 1))), c(32 - all_bits))
    magnitude = o.and_(byte, c((1 << (all_bits - 1)) - 1))
    # Put exponent and mantissa where f32 has them; the product with a power of two mends the bias, denormals included.
    raw = o.bitcast("i32", "f32", o.shl(magnitude, c(23 - mantissa_bits)))
    value = o.bin("fmul", "f32", raw, o.const("f32", 2.0 ** (127 - bias)))
    bits = o.or_(o.bitcast("f32", "i32", value), sign)
    nan = c(0x7FC00000)
    if fnuz:
        bits = o.select(o.icmp("eq", "i32", byte, c(0x80)), "i32", nan, bits)
    elif all_bits < 8:
        pass
    elif kind == "fp8":
        bits = o.select(o.icmp("eq", "i32", magnitude, c(0x7F)), "i32", nan, bits)
    else:
        inf = o.or_(c(0x7F800000), sign)
        bits = o.select(o.icmp("eq", "i32", magnitude, c(0x7C)), "i32", inf, bits)
        bits = o.select(o.icmp("ugt", "i32", magnitude, c(0x7C)), "i32", nan, bits)
    return o.bitcast("i32", "f32", bits)
