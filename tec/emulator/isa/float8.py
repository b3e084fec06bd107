"""Floats of 8 bits and fewer: fp8 (e4m3) and bf8 (e5m2), in the FNUZ form of gfx942 and the OCP form of gfx950 and gfx12; gfx950's fp6 (e2m3), bf6
(e3m2) and fp4 (e2m1), which are all finite.

Source: OCP "8-bit Floating Point Specification" and "Microscaling Formats (MX) Specification", and the CDNA3 ISA manual's FNUZ formats (bias one larger, one NaN, no
negative zero, no infinities).
"""

from __future__ import annotations

from functools import partial

from ..translate.ops import Ops

# kind -> (exponent bits, mantissa bits)
FORMATS = {"fp8": (4, 3), "bf8": (5, 2), "fp6": (2, 3), "bf6": (3, 2), "fp4": (2, 1)}
_HALVES = {"f16": (5, 10), "bf16": (8, 7)}
# kind -> the largest number, what overflows, NaN: of formats of 6 and 4 bits, which have but numbers, the largest.
_ENDS = {
    "fp8": (0x7E, 0x7F, 0x7F), "bf8": (0x7B, 0x7C, 0x7E), "fp6": (0x1F, 0x1F, 0x1F), "bf6": (0x1F, 0x1F, 0x1F), "fp4": (7, 7, 7),
    "f16": (0x7BFF, 0x7C00, 0x7E00), "bf16": (0x7F7F, 0x7F80, 0x7FC0),
}  # fmt: skip


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


def encode(
    o: Ops, value: str, kind: str, *, fnuz: bool = False, saturate: bool = False, rdna4: bool = False,
    random: str | None = None, scale: str | None = None,
) -> str:  # fmt: skip
    """An f32 as a small float (or f16, bf16) in the low bits of an i32: rounded to nearest even, or, with `random` (an i32), its high bits added below the last place
    and cut off. `scale`: an f32 by whose exponent the value is divided first.

    What overflows is infinite or NaN in formats of 8 bits, or the largest number with `saturate` (an infinity too; on RDNA 4, and in f16, it stays, and NaN is always
    negative); formats of 6
    and 4 bits have the largest number, for NaN too. Source: CDNA4 ISA manual 7.3; NaN in few bits: Composable Kernel's `sat_convert_to_type`;
    random bits: no bit that alignment to the least exponent cuts off counts, as captures of an RDNA 4 show, for which rocjitsu's
    rules were changed.
    """
    exponent_bits, m = FORMATS[kind] if kind in FORMATS else _HALVES[kind]
    all_bits = 1 + exponent_bits + m
    fnuz = fnuz and all_bits == 8
    least = 1 - ((1 << (exponent_bits - 1)) - (0 if fnuz else 1))  # exponent of the least normal number
    c = partial(o.const, "i32")
    raw = o.bitcast("f32", "i32", value)
    magnitude = o.and_(raw, c(0x7FFFFFFF))
    if scale is None:
        exponent = o.sub(o.lshr(magnitude, c(23)), c(127))
        significand = o.or_(o.and_(raw, c(0x7FFFFF)), c(1 << 23))
        if kind == "bf16":  # whose least exponent is f32's
            denormal = o.icmp("eq", "i32", exponent, c(-127))
            significand = o.select(denormal, "i32", o.shl(magnitude, c(1)), significand)
    else:  # by way of f64, whose exponents hold f32's denormals
        wide = o.bitcast("f64", "i64", o.fpext("f32", "f64", value))
        exponent = o.sub(
            o.trunc("i64", "i32", o.and_(o.lshr(wide, o.const("i64", 52), "i64"), o.const("i64", 0x7FF), "i64")),
            c(1023),
        )
        significand = o.or_(
            o.and_(o.trunc("i64", "i32", o.lshr(wide, o.const("i64", 29), "i64")), c(0x7FFFFF)), c(1 << 23)
        )
        power = scale_exponent(o, scale)
        exponent = o.sub(exponent, o.sub(power, c(127)))
        magnitude = o.select(o.icmp("eq", "i32", power, c(255)), "i32", c(0x7FC00000), magnitude)
    drop = 23 - m
    below = o.call("smax", "i32", o.sub(c(least), exponent), c(0))
    if random is None:
        shift = o.call("umin", "i32", o.add(below, c(drop)), c(31))
        half = o.sub(o.shl(c(1), o.sub(shift, c(1))), c(1))
        odd = o.and_(o.lshr(significand, shift), c(1))
        kept = o.lshr(o.add(significand, o.add(half, odd)), shift)
    else:
        aligned = o.lshr(significand, o.call("umin", "i32", below, c(31)))
        kept = o.lshr(o.add(aligned, o.lshr(random, c(32 - drop))), c(drop))
    code = o.add(kept, o.shl(o.sub(o.call("smax", "i32", exponent, c(least)), c(least)), c(m)))
    largest, infinity, nan = (0x7F, 0x80, 0x80) if fnuz else _ENDS[kind]
    code = o.select(o.icmp("ugt", "i32", code, c(largest)), "i32", c(largest if saturate else infinity), code)
    if saturate and (rdna4 or kind in _HALVES):
        code = o.select(o.icmp("eq", "i32", magnitude, c(0x7F800000)), "i32", c(infinity), code)
    code = o.select(o.icmp("ugt", "i32", magnitude, c(0x7F800000)), "i32", c(nan), code)
    sign = o.lshr(o.and_(raw, c(-(2**31))), c(32 - all_bits))
    if fnuz:  # neither zero nor NaN has one
        sign = o.select(o.icmp("eq", "i32", o.and_(code, c(0x7F)), c(0)), "i32", c(0), sign)
    if rdna4:
        sign = o.select(o.icmp("ugt", "i32", magnitude, c(0x7F800000)), "i32", c(0x80), sign)
    return o.or_(code, sign)


def scale_exponent(o: Ops, scale: str) -> str:
    """The exponent of an f32, as E8M0 has it."""
    return o.and_(o.lshr(o.bitcast("f32", "i32", scale), o.const("i32", 23)), o.const("i32", 255))


def e8m0(o: Ops, exponent: str) -> str:
    """Two to the power of the low byte less 127, NaN of 255. 2**-127 is a denormal."""
    low = o.and_(exponent, o.const("i32", 255))
    value = o.select(
        o.icmp("eq", "i32", low, o.const("i32", 0)), "i32", o.const("i32", 0x00400000), o.shl(low, o.const("i32", 23))
    )
    value = o.select(o.icmp("eq", "i32", low, o.const("i32", 255)), "i32", o.const("i32", 0x7FC00000), value)
    return o.bitcast("i32", "f32", value)
