"""Floats of 16 and 8 bits as integers: widened to float32 (exactly) for arithmetic, rounded to nearest even after it.

bfloat16 and float16 where the target has no such registers; the 8-bit formats (OCP FP8: e4m3 without infinities, e5m2; FNUZ: both without) everywhere.
Results beyond the largest number become NaN where there are no infinities.
"""

from __future__ import annotations

import struct

from ...ir.dtype import dtype_info, with_lanes
from .float_formats import FORMATS, Format
from .part import Part


def _bits(x: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", x))[0])


class SmallFloats(Part):
    """`widen` and `narrow`, for types that `is_soft` names."""

    def widen(self, value: str, dtype: str) -> tuple[str, str]:
        """A soft float as float32 (exact), anything else as it is; with its dtype."""
        if not self.is_soft(dtype):
            return value, dtype
        info = dtype_info(dtype)
        lanes = info.lanes
        wide, i32 = with_lanes("float32", lanes), with_lanes("int32", lanes)
        t, r = self.reg(i32), self.reg(wide)
        bits = self.op(f"zext {self.reg(dtype)} {value} to {t}")
        if info.kind == "bfloat":
            high = self.op(f"shl {t} {bits}, {self.int_const(16, i32)}")
            return self.op(f"bitcast {t} {high} to {r}"), wide
        f = FORMATS[info.element]
        up = 23 - f.mantissa
        # The exponent is rebased by a multiplication, which also makes denormals normal; infinities and NaN are set right.
        magnitude = self.op(
            f"shl {t} {self.op(f'and {t} {bits}, {self.int_const(f.sign - 1, i32)}')}, {self.int_const(up, i32)}"
        )
        rebase = self.float_const(2.0 ** (127 - f.bias), wide)
        scaled = self.op(f"fmul {r} {self.op(f'bitcast {t} {magnitude} to {r}')}, {rebase}")
        if f.is_fnuz:
            finite = self.op(f"icmp ne {t} {bits}, {self.int_const(f.nan, i32)}")
            special = self.int_const(0x7FC00000, i32)
        else:
            finite = self.op(f"icmp ult {t} {magnitude}, {self.int_const(f.infinity << up, i32)}")
            special = self.op(f"or {t} {magnitude}, {self.int_const(0x7F800000, i32)}")
        b = self.reg(with_lanes("bool", lanes))
        chosen = self.op(f"select {b} {finite}, {t} {self.op(f'bitcast {r} {scaled} to {t}')}, {t} {special}")
        sign = self.op(
            f"shl {t} {self.op(f'and {t} {bits}, {self.int_const(f.sign, i32)}')}, {self.int_const(32 - f.bits, i32)}"
        )
        return self.op(f"bitcast {t} {self.op(f'or {t} {chosen}, {sign}')} to {r}"), wide

    def narrow(self, value: str, dtype: str) -> str:
        """A float32 value rounded to a soft float: nearest even; NaN stays NaN."""
        info = dtype_info(dtype)
        lanes = info.lanes
        f32, i32 = with_lanes("float32", lanes), with_lanes("int32", lanes)
        t, b = self.reg(i32), self.reg(with_lanes("bool", lanes))
        bits = self.op(f"bitcast {self.reg(f32)} {value} to {t}")
        if info.kind != "bfloat":
            return self.op(f"trunc {t} {self._narrowed(bits, FORMATS[info.element], lanes)} to {self.reg(dtype)}")
        high = self.op(f"lshr {t} {bits}, {self.int_const(16, i32)}")
        odd = self.op(f"and {t} {high}, {self.int_const(1, i32)}")
        bias = self.op(f"add {t} {odd}, {self.int_const(0x7FFF, i32)}")
        rounded = self.op(f"lshr {t} {self.op(f'add {t} {bits}, {bias}')}, {self.int_const(16, i32)}")
        quiet = self.op(f"or {t} {high}, {self.int_const(0x40, i32)}")
        nan = self.op(f"fcmp uno {self.reg(f32)} {value}, {self.float_const(0.0, f32)}")
        chosen = self.op(f"select {b} {nan}, {t} {quiet}, {t} {rounded}")
        return self.op(f"trunc {t} {chosen} to {self.reg(dtype)}")

    def _narrowed(self, bits: str, f: Format, lanes: int) -> str:
        """The bits, in 32, of float32 bits: normal results by integer rounding, denormal ones by adding the number whose last
        place is the format's smallest denormal."""
        f32, i32 = with_lanes("float32", lanes), with_lanes("int32", lanes)
        t, r, b = self.reg(i32), self.reg(f32), self.reg(with_lanes("bool", lanes))
        down = 23 - f.mantissa

        def const(x: int) -> str:
            return self.int_const(x, i32)

        u = self.op(f"and {t} {bits}, {const(0x7FFFFFFF)}")
        odd = self.op(f"and {t} {self.op(f'lshr {t} {u}, {const(down)}')}, {const(1)}")
        rebase = (1 << (down - 1)) - 1 - (127 - f.bias << 23)
        rebased = self.op(f"add {t} {self.op(f'add {t} {u}, {const(rebase)}')}, {odd}")
        normal = self.op(f"lshr {t} {rebased}, {const(down)}")
        place = 2.0 ** (1 - f.bias - f.mantissa + 23)
        sum_ = self.op(f"fadd {r} {self.op(f'bitcast {t} {u} to {r}')}, {self.float_const(place, f32)}")
        tiny = self.op(f"sub {t} {self.op(f'bitcast {r} {sum_} to {t}')}, {const(_bits(place))}")
        is_tiny = self.op(f"icmp ult {t} {u}, {const(_bits(2.0 ** (1 - f.bias)))}")
        finite = self.op(f"select {b} {is_tiny}, {t} {tiny}, {t} {normal}")
        special = const(f.nan)
        if f.has_infinity:
            is_nan = self.op(f"icmp ugt {t} {u}, {const(0x7F800000)}")
            special = self.op(f"select {b} {is_nan}, {t} {special}, {t} {const(f.infinity)}")
        overflows = self.op(f"icmp uge {t} {u}, {const(_bits(f.overflow))}")
        magnitude = self.op(f"select {b} {overflows}, {t} {special}, {t} {finite}")
        sign = self.op(f"and {t} {self.op(f'lshr {t} {bits}, {const(32 - f.bits)}')}, {const(f.sign)}")
        if f.is_fnuz:  # zero has no sign, and NaN is one
            unsigned = self.op(f"icmp eq {t} {self.op(f'and {t} {magnitude}, {const(f.sign - 1)}')}, {const(0)}")
            sign = self.op(f"select {b} {unsigned}, {t} {const(0)}, {t} {sign}")
        return self.op(f"or {t} {magnitude}, {sign}")
