"""What gfx1250's own vector opcodes mean, in NumPy and Python numbers (see `row_reference`, which these rows join)."""

from __future__ import annotations

import numpy as np

from .row_reference import bf16_bits, bits, each, ref, s
from .test_valu import F16, F32, F64, exact_fma, fmax, fmin

ref("v_dual_sub_nc_u32", "i32 = i32 i32", lambda a, b: a - b)
ref("v_dual_lshrrev_b32", "i32 = i32 i32", bits(32, lambda n, a: a >> (n & 31)))
ref("v_dual_ashrrev_i32", "i32 = i32 i32", bits(32, lambda n, a: s(a, 32) >> (n & 31)))
# The table's places with c = 0: 0 (no input), 2 (b alone), 4 (a alone), 6 (both).
ref("v_dual_bitop2_b32", "i32 = i32 i32", lambda a, b: (~a & b) | (a & ~b), mods=" bitop3:0x14")
ref("v_dual_max_i32", "i32 = i32 i32", bits(32, lambda a, b: max(s(a, 32), s(b, 32))))
ref("v_dual_min_i32", "i32 = i32 i32", bits(32, lambda a, b: min(s(a, 32), s(b, 32))))
ref("v_dual_add_f64", "f64 = f64 f64", lambda a, b: a + b)
ref("v_dual_mul_f64", "f64 = f64 f64", lambda a, b: a * b)
ref("v_dual_max_num_f64", "f64 = f64 f64", fmax)
ref("v_dual_min_num_f64", "f64 = f64 f64", fmin)
for _t, _kind in (("f32", F32), ("f64", F64)):
    ref(f"v_dual_fma_{_t}", f"{_t} = {_t} {_t} {_t}", exact_fma(_kind))

ref("v_mad_u32", "i32 = i32 i32 i32", bits(32, lambda a, b, c: a * b + c))
ref("v_mad_nc_u64_u32", "i64 = i32 i32 i64", bits(64, lambda a, b, c: a * b + c))
ref("v_mad_nc_i64_i32", "i64 = i32 i32 i64", bits(64, lambda a, b, c: s(a, 32) * s(b, 32) + c))
for _n, _f in (("min", min), ("max", max)):
    ref(f"v_{_n}_u64", "i64 = i64 i64", bits(64, _f))
    ref(f"v_{_n}_i64", "i64 = i64 i64", bits(64, lambda a, b, f=_f: f(s(a, 64), s(b, 64))))
    ref(f"v_add_{_n}_u32", "i32 = i32 i32 i32", bits(32, lambda a, b, c, f=_f: f((a + b) & 0xFFFFFFFF, c)))
    ref(f"v_add_{_n}_i32", "i32 = i32 i32 i32", bits(32, lambda a, b, c, f=_f: f(s(a + b, 32), s(c, 32))))


def _of_bf16(fn):  # type: ignore[no-untyped-def]
    """A function of f64 on bf16, rounded to f32 and then to bf16."""
    return lambda a: bf16_bits(np.asarray(fn(a.astype(F64))).astype(F32))


for _n, _f in (("exp", np.exp2), ("log", np.log2), ("rcp", lambda x: 1 / x), ("rsq", lambda x: 1 / np.sqrt(x)), ("sqrt", np.sqrt), ("tanh", np.tanh)):  # fmt: skip
    ref(f"v_{_n}_bf16", "bf16 = bf16", _of_bf16(_f))


def _turn(a, move):  # type: ignore[no-untyped-def]
    """The sine of turns; zero where it is, which np.sin of a rounded angle is not."""
    r = a + move - np.round(a + move)
    return np.where(2 * r == np.round(2 * r), 0 * np.abs(r), np.sin(2 * np.pi * r))


for _n, _move in (("sin", 0.0), ("cos", 0.25)):
    ref(f"v_{_n}_bf16", "bf16 = bf16", _of_bf16(lambda a, m=_move: _turn(a - np.round(a), m)))
ref("v_tanh_f32", "f32 = f32", lambda a: np.tanh(a.astype(F64)).astype(F32), ulps=1)
ref("v_tanh_f16", "f16 = f16", lambda a: np.tanh(a.astype(F64)).astype(F16), ulps=1)


def _four(least: int, most: int, signed: bool):  # type: ignore[no-untyped-def]
    def one(word: int) -> int:
        parts = [word >> 8 * i & 255 for i in range(4)]
        return sum((max(least, min(most, s(p, 8) if signed else p)) & 15) << 4 * i for i, p in enumerate(parts))

    return each(lambda word: one(int(word)), np.uint16)


ref("v_sat_pk4_i4_i8", "i16 = i32", _four(-8, 7, True))
ref("v_sat_pk4_u4_u8", "i16 = i32", _four(0, 15, False))
