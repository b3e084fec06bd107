"""What each vector opcode means, in NumPy and Python numbers: the reference that the opcode table is held against.

`REFERENCE[name]` is a `Ref`: types of the sources and of the result, and a function of arrays. Written from AMD's ISA manuals and
their pseudocode, not from the emulator: integers are Python's, floats NumPy's or exact fractions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .test_valu import F16, F32, F64, I32, INT, U32, U64, _perm, exact_fma, fmax, fmin, round_fraction, sgn, wrap

TYPES = {"f16": F16, "f32": F32, "f64": F64, "bf16": F32, "i16": np.uint16, "i32": U32, "i64": U64}


@dataclass(frozen=True)
class Ref:
    """`sources`: types, "acc:T" for the destination read as a source, "K" for a literal (f32 or f16 by the result), "mask" for a
    lane mask. `out`: types, "mask" among them. `ulps`: tolerance of a float result. `chips`: where it is tried ("" both)."""

    sources: tuple[str, ...]
    out: tuple[str, ...]
    fn: Callable[..., Any]
    ulps: int = 0
    keeps: bool = False  # a 16-bit result keeps the register's upper half on gfx9 too
    only: str = ""
    mods: str = ""


REFERENCE: dict[str, Ref] = {}


def ref(names: str, signature: str, fn: Callable[..., Any], **options: Any) -> None:
    left, _, right = signature.partition("=")
    for name in names.split():
        assert name not in REFERENCE, name
        REFERENCE[name] = Ref(tuple(right.split()), tuple(left.split()), fn, **options)


def each(fn: Callable[..., Any], kind: Any) -> Callable[..., np.ndarray]:
    """A function of numbers over arrays."""
    return lambda *a: np.array([fn(*x) for x in zip(*a)], kind)


def bits(n: int, fn: Callable[..., int]) -> Callable[..., np.ndarray]:
    """A function of unsigned Python integers; the result is cut to n bits."""
    kind = {16: np.uint16, 32: U32, 64: U64}[n]
    return lambda *a: np.array([fn(*(int(v) for v in x)) & ((1 << n) - 1) for x in zip(*a)], kind)


def s(x: int, n: int) -> int:
    x &= (1 << n) - 1
    return x - (1 << n) if x >> (n - 1) else x


# Floats.
def minimum(a, b):  # type: ignore[no-untyped-def]
    """IEEE 754-2019 minimum: a NaN wins."""
    return np.where(np.isnan(a) | np.isnan(b), np.nan, fmin(a, b))


def maximum(a, b):  # type: ignore[no-untyped-def]
    return np.where(np.isnan(a) | np.isnan(b), np.nan, fmax(a, b))


def med3(a, b, c):  # type: ignore[no-untyped-def]
    def one(x, y, z):  # type: ignore[no-untyped-def]
        if any(np.isnan(v) for v in (x, y, z)):
            return fmin(fmin(x, y), z)
        return sorted((x, y, z), key=lambda v: (v, not np.signbit(v)))[1]

    return np.array([one(*v) for v in zip(a, b, c)], a.dtype)


def fract(a):  # type: ignore[no-untyped-def]
    top = np.nextafter(a.dtype.type(1), a.dtype.type(0))
    return np.minimum(a - np.floor(a), top)


def frexp(part: int):  # type: ignore[no-untyped-def]
    def fn(a):  # type: ignore[no-untyped-def]
        parts = np.frexp(np.where(np.isfinite(a), a, 0))
        if part == 0:
            return np.where(np.isfinite(a), parts[0], a).astype(a.dtype)
        return parts[1].astype(np.int64)

    return fn


def ldexp(a, e):  # type: ignore[no-untyped-def]
    """Exact: one rounding."""
    from fractions import Fraction

    kind = a.dtype.type

    def one(x, n):  # type: ignore[no-untyped-def]
        if not np.isfinite(x) or x == 0:
            return x
        n = max(-5000, min(5000, int(n)))
        return round_fraction(Fraction(float(x)) * Fraction(2) ** n, kind)

    signed = e.view({2: np.int16, 4: np.int32}[e.dtype.itemsize])
    return np.array([one(x, n) for x, n in zip(a, signed)], kind)


def div_fixup(q, den, num):  # type: ignore[no-untyped-def]
    kind = q.dtype.type
    frac, bias = {F16: (10, 15), F32: (23, 127), F64: (52, 1023)}[kind]

    def exponent(x):  # type: ignore[no-untyped-def]
        return int(np.array(x).view({2: np.uint16, 4: U32, 8: U64}[q.dtype.itemsize])) >> frac & (2 * bias + 1)

    def one(x, d, n):  # type: ignore[no-untyped-def]
        negative = np.signbit(d) != np.signbit(n)
        sign = -1.0 if negative else 1.0
        if np.isnan(n) or np.isnan(d) or (d == 0 and n == 0) or (np.isinf(d) and np.isinf(n)):
            return kind(np.nan)
        if d == 0 or np.isinf(n):
            return kind(np.copysign(np.inf, sign))
        if np.isinf(d) or n == 0:
            return kind(np.copysign(0.0, sign))
        if kind != F16 and exponent(n) - exponent(d) < -(bias + frac + 1):
            return kind(np.copysign(0.0, sign))
        if kind != F16 and np.isnan(x) and exponent(n) >= exponent(d):
            return kind(np.copysign(np.inf, sign))
        return kind(np.copysign(np.abs(x), sign))

    return np.array([one(*v) for v in zip(q, den, num)], kind)


def flush(x):  # type: ignore[no-untyped-def]
    return np.where(np.abs(x) < np.finfo(x.dtype).tiny, np.copysign(x.dtype.type(0), x), x)


def mad(a, b, c):  # type: ignore[no-untyped-def]
    a, b, c = flush(a), flush(b), flush(c)
    return flush((flush((a * b).astype(F32)) + c).astype(F32))


def turns(fn):  # type: ignore[no-untyped-def]
    def f(a):  # type: ignore[no-untyped-def]
        w = a.astype(F64)
        return np.where(np.isfinite(w), fn(2 * np.pi * (w - np.rint(w))), np.nan).astype(a.dtype)

    return f


def to_int(lo: int, hi: int, floor: Any = math.trunc) -> Callable[..., np.ndarray]:
    def one(x):  # type: ignore[no-untyped-def]
        if np.isnan(x):
            return 0
        return max(lo, min(hi, floor(x) if np.isfinite(x) else (hi if x > 0 else lo)))

    return lambda a: np.array([one(float(x)) for x in a], np.int64)


def bf16_bits(x) -> np.ndarray:  # type: ignore[no-untyped-def]
    """f32 to the bits of bf16, to nearest even."""
    u = np.asarray(x, F32).view(U32).astype(np.uint64)
    out = ((u + 0x7FFF + (u >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FC0), out)


def rtz16(x) -> int:  # type: ignore[no-untyped-def]
    h = F16(x)
    if np.isfinite(x) and (np.isinf(h) or abs(float(h)) > abs(float(x))):
        h = np.nextafter(h, F16(0)) if np.isfinite(h) else np.copysign(F16(65504), F16(x))
    return int(h.view(np.uint16))


MAD_K = {"f16": 3.1415927, "f32": 3.1415927, "f64": 0.0}
for _t in ("f16", "f32", "f64"):
    _k = TYPES[_t]
    _fma = exact_fma(_k)
    _d = " v_dual_{0}_f32" if _t == "f32" else ""
    _1, _2, _3 = f"{_t} = {_t}", f"{_t} = {_t} {_t}", f"{_t} = {_t} {_t} {_t}"
    for _n, _f in (("add", lambda a, b: a + b), ("sub", lambda a, b: a - b), ("mul", lambda a, b: a * b), ("subrev", lambda a, b: b - a)):  # fmt: skip
        ref(f"v_{_n}_{_t}" + _d.format(_n), _2, _f)
    ref(f"v_fma_{_t}", _3, _fma, keeps=True)
    ref(f"v_fmac_{_t}" + _d.format("fmac"), f"{_t} = {_t} {_t} acc:{_t}", _fma)
    ref(f"v_fmaak_{_t}" + _d.format("fmaak"), f"{_t} = {_t} {_t} K", _fma)
    ref(f"v_fmamk_{_t}" + _d.format("fmamk"), f"{_t} = {_t} K {_t}", _fma)
    for _n, _f in (("min", fmin), ("max", fmax)):
        ref(f"v_{_n}_{_t} v_{_n}_num_{_t}" + (_d + _d.replace("{0}", "{0}_num")).format(_n), _2, _f)
        if _t != "f64":
            ref(f"v_{_n}3_{_t} v_{_n}3_num_{_t}", _3, lambda a, b, c, f=_f: f(f(a, b), c), keeps=True)
    for _n, _f in (("minimum", minimum), ("maximum", maximum)):
        ref(f"v_{_n}_{_t}", _2, _f)
        if _t != "f64":
            ref(f"v_{_n}3_{_t}", _3, lambda a, b, c, f=_f: f(f(a, b), c))
            _o, _g = ("maximum", maximum) if _n == "minimum" else ("minimum", minimum)
            ref(f"v_{_n}{_o}_{_t}", _3, lambda a, b, c, f=_f, g=_g: g(f(a, b), c))
    if _t != "f64":
        ref(f"v_maxmin_{_t} v_maxmin_num_{_t}", _3, lambda a, b, c: fmin(fmax(a, b), c))
        ref(f"v_minmax_{_t} v_minmax_num_{_t}", _3, lambda a, b, c: fmax(fmin(a, b), c))
        ref(f"v_med3_{_t} v_med3_num_{_t}", _3, med3, keeps=True)
    for _n, _f in (("trunc", np.trunc), ("ceil", np.ceil), ("floor", np.floor), ("rndne", np.rint), ("fract", fract)):
        ref(f"v_{_n}_{_t}", _1, _f)
    ref(f"v_frexp_mant_{_t}", _1, frexp(0))
    ref(f"v_frexp_exp_{'i16' if _t == 'f16' else 'i32'}_{_t}", f"{'i16' if _t == 'f16' else 'i32'} = {_t}", frexp(1))
    ref(f"v_ldexp_{_t}", f"{_t} = {_t} {'i16' if _t == 'f16' else 'i32'}", ldexp)
    ref(f"v_div_fixup_{_t}", _3, div_fixup, keeps=True)
_zero = lambda a, b: np.where((a == 0) | (b == 0), F32(0), a * b)  # noqa: E731
ref("v_mul_legacy_f32 v_mul_dx9_zero_f32 v_dual_mul_dx9_zero_f32", "f32 = f32 f32", _zero)
ref("v_mad_f32", "f32 = f32 f32 f32", mad)
ref("v_madak_f32", "f32 = f32 f32 K", mad)
ref("v_madmk_f32", "f32 = f32 K f32", mad)
ref("v_mac_f32", "f32 = f32 f32 acc:f32", mad)

# Transcendentals: computed wide, rounded once; f32 flushes denormals, f16 keeps them. One unit is the manuals' bound.
_TRANS = {
    "exp": np.exp2, "log": np.log2, "rcp": lambda x: 1 / x, "rsq": lambda x: 1 / np.sqrt(x), "sqrt": np.sqrt,
}  # fmt: skip
for _n, _f in _TRANS.items():
    _names = f"v_{_n}_f32" + (" v_rcp_iflag_f32" if _n == "rcp" else "")
    ref(_names, "f32 = f32", lambda a, f=_f: flush(f(flush(a).astype(F64)).astype(F32)), ulps=1)
    ref(f"v_{_n}_f16", "f16 = f16", lambda a, f=_f: f(a.astype(F64)).astype(F16), ulps=1)
    if _n in ("rcp", "rsq", "sqrt"):
        ref(f"v_{_n}_f64", "f64 = f64", _f, ulps=1)
for _n, _f in (("sin", np.sin), ("cos", np.cos)):
    ref(f"v_{_n}_f32", "f32 = f32", turns(_f), ulps=-1)
    ref(f"v_{_n}_f16", "f16 = f16", turns(_f), ulps=-1)

# Conversions.
_S32, _U32 = (-(2**31), 2**31 - 1), (0, 2**32 - 1)
ref("v_cvt_f32_i32", "f32 = i32", lambda a: a.view(I32).astype(F32))
ref("v_cvt_f32_u32", "f32 = i32", lambda a: a.astype(F32))
ref("v_cvt_f64_i32", "f64 = i32", lambda a: a.view(I32).astype(F64))
ref("v_cvt_f64_u32", "f64 = i32", lambda a: a.astype(F64))
for _t in ("f32", "f64"):
    ref(f"v_cvt_i32_{_t}", f"i32 = {_t}", to_int(*_S32))
    ref(f"v_cvt_u32_{_t}", f"i32 = {_t}", to_int(*_U32))
ref("v_cvt_f32_f64", "f32 = f64", lambda a: a.astype(F32))
ref("v_cvt_f64_f32", "f64 = f32", lambda a: a.astype(F64))
ref("v_cvt_f32_f16", "f32 = f16", lambda a: a.astype(F32))
ref("v_cvt_f16_f32", "f16 = f32", lambda a: a.astype(F16))
ref("v_cvt_f32_bf16", "f32 = bf16", lambda a: a)
ref("v_cvt_bf16_f32", "bf16 = f32", bf16_bits)
ref("v_cvt_f16_i16", "f16 = i16", lambda a: a.view(np.int16).astype(F16))
ref("v_cvt_f16_u16", "f16 = i16", lambda a: a.astype(F64).astype(F16))
ref("v_cvt_i16_f16", "i16 = f16", to_int(-(2**15), 2**15 - 1))
ref("v_cvt_u16_f16", "i16 = f16", to_int(0, 2**16 - 1))
ref("v_cvt_rpi_i32_f32 v_cvt_nearest_i32_f32", "i32 = f32", to_int(*_S32, floor=lambda x: math.floor(x + 0.5)))
ref("v_cvt_flr_i32_f32 v_cvt_floor_i32_f32", "i32 = f32", to_int(*_S32, floor=math.floor))
for _i in range(4):
    ref(f"v_cvt_f32_ubyte{_i}", "f32 = i32", lambda a, i=_i: (a >> U32(8 * i) & U32(255)).astype(F32))


def pack(lo: Any, hi: Any) -> np.ndarray:
    return np.asarray(lo).astype(np.int64).astype(U32) & U32(0xFFFF) | np.asarray(hi).astype(np.int64).astype(U32) << U32(16)  # fmt: skip


def nonan(fn):  # type: ignore[no-untyped-def]
    return lambda a, b: fn(*(np.where(np.isnan(x), 0, x).astype(x.dtype) for x in (a, b)))


_rtz = nonan(lambda a, b: pack([rtz16(x) for x in a], [rtz16(x) for x in b]))
ref("v_cvt_pkrtz_f16_f32 v_cvt_pk_rtz_f16_f32", "i32 = f32 f32", _rtz, mods="nonan")
ref("v_cvt_pk_f16_f32", "i32 = f32 f32", nonan(lambda a, b: pack(a.astype(F16).view(np.uint16), b.astype(F16).view(np.uint16))), mods="nonan")  # fmt: skip
ref("v_cvt_pk_bf16_f32", "i32 = f32 f32", nonan(lambda a, b: pack(bf16_bits(a), bf16_bits(b))), mods="nonan")
ref("v_pack_b32_f16", "i32 = f16 f16", lambda a, b: pack(a.view(np.uint16), b.view(np.uint16)))


def norm16(lo: float, scale: float):  # type: ignore[no-untyped-def]
    def one(x):  # type: ignore[no-untyped-def]
        # A NaN loses against the bound.
        x = 1.0 if np.isnan(x) else max(lo, min(1.0, float(x)))
        return int(np.rint(F32(F32(x) * F32(scale))))

    return lambda a, b: pack([one(x) for x in a], [one(x) for x in b])


ref("v_cvt_pknorm_i16_f32 v_cvt_pk_norm_i16_f32", "i32 = f32 f32", nonan(norm16(-1.0, 32767.0)), mods="nonan")
ref("v_cvt_pknorm_u16_f32 v_cvt_pk_norm_u16_f32", "i32 = f32 f32", nonan(norm16(0.0, 65535.0)), mods="nonan")

# Integers. `INT` of test_valu has the plain 32-bit ones.
for _n, (_c, _f) in INT.items():
    ref(_n, "i32 = " + "i32 " * _c, _f)
ref("v_dual_mov_b32 v_accvgpr_read_b32 v_accvgpr_write_b32 v_accvgpr_mov_b32 v_accvgpr_read v_accvgpr_write", "i32 = i32", lambda a: a)  # fmt: skip
ref("v_mov_b64", "i64 = i64", lambda a: a)
ref("v_mov_b16", "i16 = i16", lambda a: a)
ref("v_not_b16", "i16 = i16", lambda a: ~a)
ref("v_dual_and_b32", "i32 = i32 i32", lambda a, b: a & b)
for _n, _f in (("and", lambda a, b: a & b), ("or", lambda a, b: a | b), ("xor", lambda a, b: a ^ b)):
    ref(f"v_{_n}_b16", "i16 = i16 i16", _f)
ref("v_add_u32 v_add_nc_u32 v_dual_add_nc_u32 v_add_i32 v_add_nc_i32", "i32 = i32 i32", lambda a, b: a + b)
ref("v_sub_u32 v_sub_nc_u32 v_sub_i32 v_sub_nc_i32", "i32 = i32 i32", lambda a, b: a - b)
ref("v_subrev_u32 v_subrev_nc_u32", "i32 = i32 i32", lambda a, b: b - a)
ref("v_xor3_b32", "i32 = i32 i32 i32", lambda a, b, c: a ^ b ^ c)
_CO, _CI = "i32 mask = i32 i32", "i32 mask = i32 i32 mask"
ref("v_add_co_u32", _CO, lambda a, b: (a + b, wrap(sgn(a, 64) + sgn(b, 64)) != (sgn(a, 64) + sgn(b, 64))))
ref("v_sub_co_u32", _CO, lambda a, b: (a - b, a < b))
ref("v_subrev_co_u32", _CO, lambda a, b: (b - a, b < a))


def carry(sign: int, swap: bool = False):  # type: ignore[no-untyped-def]
    def fn(a, b, c):  # type: ignore[no-untyped-def]
        if swap:
            a, b = b, a
        total = [int(x) + sign * (int(y) + int(z)) for x, y, z in zip(a, b, c)]
        return wrap(total), np.array([not 0 <= t < 2**32 for t in total])

    return fn


ref("v_addc_co_u32 v_add_co_ci_u32", _CI, carry(1))
ref("v_subb_co_u32 v_sub_co_ci_u32", _CI, carry(-1))
ref("v_subbrev_co_u32 v_subrev_co_ci_u32", _CI, carry(-1, True))
ref("v_mul_lo_i32", "i32 = i32 i32", lambda a, b: a * b)
ref("v_mul_hi_u32_u24", "i32 = i32 i32", bits(32, lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF) >> 32))
ref("v_mul_hi_i32_i24", "i32 = i32 i32", bits(32, lambda a, b: s(a, 24) * s(b, 24) >> 32))


def mad64(signed: bool):  # type: ignore[no-untyped-def]
    def fn(a, b, c):  # type: ignore[no-untyped-def]
        n = 32 if signed else 0
        out, flags = [], []
        for x, y, z in zip(a, b, c):
            x, y, z = int(x), int(y), int(z)
            t = (s(x, n) * s(y, n) + s(z, 64)) if signed else x * y + z
            out.append(t)
            flags.append(not -(2**63) <= t < 2**63 if signed else t >= 2**64)
        return wrap(out, 64), np.array(flags)

    return fn


ref("v_mad_u64_u32 v_mad_co_u64_u32", "i64 mask = i32 i32 i64", mad64(False))
ref("v_mad_i64_i32 v_mad_co_i64_i32", "i64 mask = i32 i32 i64", mad64(True))
ref("v_mul_u64", "i64 = i64 i64", lambda a, b: a * b)
ref("v_add_nc_u64 v_add_u64", "i64 = i64 i64", lambda a, b: a + b)
ref("v_sub_nc_u64 v_sub_u64", "i64 = i64 i64", lambda a, b: a - b)
ref("v_lshl_add_u64", "i64 = i64 i32 i64", bits(64, lambda a, n, c: (a << (n & 7)) + c))
ref("v_dual_lshlrev_b32", "i32 = i32 i32", bits(32, lambda n, a: a << (n & 31)))
ref("v_lshlrev_b64", "i64 = i32 i64", bits(64, lambda n, a: a << (n & 63)))
ref("v_lshrrev_b64", "i64 = i32 i64", bits(64, lambda n, a: a >> (n & 63)))
ref("v_ashrrev_i64", "i64 = i32 i64", bits(64, lambda n, a: s(a, 64) >> (n & 63)))
ref("v_lshlrev_b16", "i16 = i16 i16", bits(16, lambda n, a: a << (n & 15)))
ref("v_lshrrev_b16", "i16 = i16 i16", bits(16, lambda n, a: a >> (n & 15)))
ref("v_ashrrev_i16", "i16 = i16 i16", bits(16, lambda n, a: s(a, 16) >> (n & 15)))
ref("v_alignbyte_b32", "i32 = i32 i32 i32", bits(32, lambda a, b, n: (a << 32 | b) >> 8 * (n & 3)))
_sel = lambda a, b, m: np.where(m, b, a)  # noqa: E731
ref("v_cndmask_b32", "i32 = i32 i32 mask", _sel)
ref("v_dual_cndmask_b32", "i32 = i32 i32 vcc", _sel)
ref("v_cndmask_b16", "i16 = i16 i16 mask", _sel)
ref("v_ffbh_u32 v_clz_i32_u32", "i32 = i32", bits(32, lambda a: 32 - a.bit_length() if a else -1))
ref("v_ffbl_b32 v_ctz_i32_b32", "i32 = i32", bits(32, lambda a: (a & -a).bit_length() - 1))
ref("v_ffbh_i32 v_cls_i32", "i32 = i32", bits(32, lambda a: -1 if s(a, 32) in (0, -1) else 32 - (a if a < 2**31 else ~a & 0xFFFFFFFF).bit_length()))  # fmt: skip
for _t in ("i32", "u32", "i16", "u16"):
    _w = int(_t[1:])
    _sg = (lambda x, w=_w: s(x, w)) if _t[0] == "i" else (lambda x: x)
    _r = f"i{_w}"
    for _n, _f in (("min", min), ("max", max)):
        if _w == 16:
            ref(f"v_{_n}_{_t}", f"{_r} = {_r} {_r}", bits(_w, lambda a, b, f=_f, g=_sg: f(g(a), g(b))))
        if f"v_{_n}3_{_t}" not in REFERENCE:
            ref(f"v_{_n}3_{_t}", f"{_r} = {_r} {_r} {_r}", bits(_w, lambda a, b, c, f=_f, g=_sg: f(g(a), g(b), g(c))), keeps=True)  # fmt: skip
    if f"v_med3_{_t}" not in REFERENCE:
        ref(f"v_med3_{_t}", f"{_r} = {_r} {_r} {_r}", bits(_w, lambda a, b, c, g=_sg: sorted((g(a), g(b), g(c)))[1]), keeps=True)  # fmt: skip
    ref(f"v_maxmin_{_t}", f"{_r} = {_r} {_r} {_r}", bits(_w, lambda a, b, c, g=_sg: min(max(g(a), g(b)), g(c))))
    ref(f"v_minmax_{_t}", f"{_r} = {_r} {_r} {_r}", bits(_w, lambda a, b, c, g=_sg: max(min(g(a), g(b)), g(c))))
_H = "i16 = i16 i16"
ref("v_add_u16 v_add_nc_u16", _H, lambda a, b: a + b)
ref("v_sub_u16 v_sub_nc_u16", _H, lambda a, b: a - b)
ref("v_subrev_u16", _H, lambda a, b: b - a)
ref("v_add_i16 v_add_nc_i16", _H, lambda a, b: a + b, keeps=True)
ref("v_sub_i16 v_sub_nc_i16", _H, lambda a, b: a - b, keeps=True)
ref("v_mul_lo_u16", _H, lambda a, b: a * b)
ref("v_mad_u16 v_mad_i16", "i16 = i16 i16 i16", lambda a, b, c: a * b + c, keeps=True)
ref("v_mad_legacy_u16", "i16 = i16 i16 i16", lambda a, b, c: a * b + c)
ref("v_mad_u32_u16", "i32 = i16 i16 i32", bits(32, lambda a, b, c: a * b + c))
ref("v_mad_i32_i16", "i32 = i16 i16 i32", bits(32, lambda a, b, c: s(a, 16) * s(b, 16) + c))
ref("v_cvt_i32_i16", "i32 = i16", bits(32, lambda a: s(a, 16)))
ref("v_cvt_u32_u16", "i32 = i16", bits(32, lambda a: a))
ref("v_sad_u32", "i32 = i32 i32 i32", bits(32, lambda a, b, c: abs(a - b) + c))


def dot(width: int, signed_a: bool, signed_b: bool):  # type: ignore[no-untyped-def]
    def field(x: int, i: int, signed: bool) -> int:
        v = x >> (width * i) & ((1 << width) - 1)
        return s(v, width) if signed else v

    return bits(32, lambda a, b, c: c + sum(field(a, i, signed_a) * field(b, i, signed_b) for i in range(32 // width)))


for _w, _n in ((8, "dot4{}_i32_i8"), (4, "dot8{}_i32_i4"), (16, "dot2{}_i32_i16")):
    ref("v_" + _n.format(""), "i32 = i32 i32 i32", dot(_w, True, True))
    ref("v_" + _n.format("c"), "i32 = i32 i32 acc:i32", dot(_w, True, True))
for _w, _n in ((8, "dot4_u32_u8"), (4, "dot8_u32_u4"), (16, "dot2_u32_u16")):
    ref("v_" + _n, "i32 = i32 i32 i32", dot(_w, False, False))
ref("v_dot4_i32_iu8", "i32 = i32 i32 i32", dot(8, True, False), mods=" neg_lo:[1,0,0]")
ref("v_dot8_i32_iu4", "i32 = i32 i32 i32", dot(4, False, True), mods=" neg_lo:[0,1,0]")


def bitop(table: int, n: int):  # type: ignore[no-untyped-def]
    def fn(a: int, b: int, c: int) -> int:
        return sum((table >> (4 * (a >> i & 1) + 2 * (b >> i & 1) + (c >> i & 1)) & 1) << i for i in range(n))

    return bits(n, fn)


ref("v_bitop3_b32", "i32 = i32 i32 i32", bitop(0x6B, 32), mods=" bitop3:0x6b")
ref("v_bitop3_b16", "i16 = i16 i16 i16", bitop(0xD2, 16), mods=" bitop3:0xd2")
assert _perm

# Compares, and those that write EXEC.
_ORD = {"lt": np.less, "eq": np.equal, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
for _x in ("", "x"):
    _o = "exec" if _x else "mask"
    for _t in ("f16", "f32", "f64"):
        for _n, _f in _ORD.items():
            ref(f"v_cmp{_x}_{_n}_{_t}", f"{_o} = {_t} {_t}", _f)
            if _n != "eq":
                ref(f"v_cmp{_x}_n{_n}_{_t}", f"{_o} = {_t} {_t}", lambda a, b, f=_f: ~f(a, b))
        _nan = lambda a, b: np.isnan(a) | np.isnan(b)  # noqa: E731
        ref(f"v_cmp{_x}_neq_{_t}", f"{_o} = {_t} {_t}", lambda a, b: ~(a == b))
        ref(f"v_cmp{_x}_lg_{_t}", f"{_o} = {_t} {_t}", lambda a, b, n=_nan: (a != b) & ~n(a, b))
        ref(f"v_cmp{_x}_nlg_{_t}", f"{_o} = {_t} {_t}", lambda a, b, n=_nan: ~((a != b) & ~n(a, b)))
        ref(f"v_cmp{_x}_u_{_t}", f"{_o} = {_t} {_t}", _nan)
        ref(f"v_cmp{_x}_o_{_t}", f"{_o} = {_t} {_t}", lambda a, b, n=_nan: ~n(a, b))

        def _class(a, which):  # type: ignore[no-untyped-def]
            quiet = {2: 1 << 9, 4: 1 << 22, 8: 1 << 51}[a.dtype.itemsize]
            raw = a.view({2: np.uint16, 4: U32, 8: U64}[a.dtype.itemsize])
            out = []
            for x, r, w in zip(a, raw, which):
                tiny = abs(x) < np.finfo(a.dtype).tiny
                k = (
                    (1 if int(r) & quiet else 0)
                    if np.isnan(x)
                    else 9
                    if np.isinf(x)
                    else 6
                    if x == 0
                    else 7
                    if tiny
                    else 8
                )
                if not np.isnan(x) and np.signbit(x):
                    k = 11 - k
                out.append(bool(int(w) >> k & 1))
            return np.array(out)

        ref(f"v_cmp{_x}_class_{_t}", f"{_o} = {_t} i32", _class)
    for _t in ("i16", "u16", "i32", "u32", "i64", "u64"):
        _w = int(_t[1:])
        _v = {("i", 16): np.int16, ("i", 32): I32, ("i", 64): np.int64}.get((_t[0], _w))
        for _n, _f in {**_ORD, "ne": np.not_equal}.items():
            ref(f"v_cmp{_x}_{_n}_{_t}", f"{_o} = i{_w} i{_w}", (lambda a, b, f=_f, v=_v: f(a.view(v), b.view(v))) if _v else _f)  # fmt: skip
        ref(f"v_cmp{_x}_t_{_t}", f"{_o} = i{_w} i{_w}", lambda a, b: np.ones(len(a), bool))
        ref(f"v_cmp{_x}_f_{_t}", f"{_o} = i{_w} i{_w}", lambda a, b: np.zeros(len(a), bool))


# A step of a shift register: to the left, and 197 added without carries where a one came out.
ref("v_prng_b32", "i32 = i32", bits(32, lambda a: a << 1 ^ (197 if a >> 31 else 0)))

# Old and rare ones.
for _t in ("f16", "f32", "f64"):
    for _c, _v in (("f", False), ("t", True), ("tru", True)):
        ref(f"v_cmp_{_c}_{_t}", f"mask = {_t} {_t}", lambda a, b, v=_v: np.full(len(a), v))
        ref(f"v_cmpx_{_c}_{_t}", f"exec = {_t} {_t}", lambda a, b, v=_v: np.full(len(a), v))
_fma32 = exact_fma(F32)
_fma_zero = lambda a, b, c: np.where((a == 0) | (b == 0), c, _fma32(a, b, c))  # noqa: E731
ref("v_fma_legacy_f32 v_fma_dx9_zero_f32", "f32 = f32 f32 f32", _fma_zero)
ref("v_fmac_legacy_f32 v_fmac_dx9_zero_f32", "f32 = f32 f32 acc:f32", _fma_zero)
ref(
    "v_mad_legacy_f32",
    "f32 = f32 f32 f32",
    lambda a, b, c: flush((flush(_zero(flush(a), flush(b)).astype(F32)) + flush(c)).astype(F32)),
)


def mad16(a, b, c):  # type: ignore[no-untyped-def]
    return flush((flush((flush(a) * flush(b)).astype(F16)) + flush(c)).astype(F16))


ref("v_mad_f16", "f16 = f16 f16 f16", mad16, keeps=True)
ref("v_mad_legacy_f16", "f16 = f16 f16 f16", mad16)
ref("v_madak_f16", "f16 = f16 f16 K", mad16)
ref("v_madmk_f16", "f16 = f16 K f16", mad16)
ref("v_mac_f16", "f16 = f16 f16 acc:f16", mad16)
ref("v_fma_legacy_f16", "f16 = f16 f16 f16", exact_fma(F16))
ref("v_div_fixup_legacy_f16", "f16 = f16 f16 f16", div_fixup)
ref("v_mad_legacy_i16", "i16 = i16 i16 i16", lambda a, b, c: a * b + c)
for _n in ("exp", "log"):
    ref(f"v_{_n}_legacy_f32", "f32 = f32", REFERENCE[f"v_{_n}_f32"].fn, ulps=1)


def byte(x: int, i: int) -> int:
    return x >> 8 * i & 255


def sad(a: int, b: int, masked: bool = False) -> int:
    return sum(abs(byte(a, i) - byte(b, i)) for i in range(4) if byte(b, i) or not masked)


ref("v_sad_hi_u8", "i32 = i32 i32 i32", bits(32, lambda a, b, c: (sad(a, b) << 16) + c))
ref(
    "v_sad_u16",
    "i32 = i32 i32 i32",
    bits(32, lambda a, b, c: abs((a & 0xFFFF) - (b & 0xFFFF)) + abs((a >> 16) - (b >> 16)) + c),
)
ref("v_msad_u8", "i32 = i32 i32 i32", bits(32, lambda a, b, c: sad(a, b, True) + c))
ref(
    "v_lerp_u8",
    "i32 = i32 i32 i32",
    bits(32, lambda a, b, c: sum((byte(a, i) + byte(b, i) + (c >> 8 * i & 1) >> 1) << 8 * i for i in range(4))),
)
for _n, _m in (("v_qsad_pk_u16_u8", False), ("v_mqsad_pk_u16_u8", True)):
    ref(
        _n,
        "i64 = i64 i32 i64",
        bits(
            64,
            lambda a, b, c, m=_m: sum(((sad(a >> 8 * i, b, m) + (c >> 16 * i)) & 0xFFFF) << 16 * i for i in range(4)),
        ),
    )


def clip(x: int, lo: int, hi: int) -> int:
    return max(lo, min(hi, x))


ref("v_sat_pk_u8_i16", "i16 = i32", bits(16, lambda a: clip(s(a, 16), 0, 255) | clip(s(a >> 16, 16), 0, 255) << 8))
for _n, _lo, _hi in (("i8", -128, 127), ("u8", 0, 255)):
    ref(f"v_ashr_pk_{_n}_i32", "i16 = i32 i32 i32", bits(16, lambda a, b, n, lo=_lo, hi=_hi: (clip(s(a, 32) >> (n & 31), lo, hi) & 255) | (clip(s(b, 32) >> (n & 31), lo, hi) & 255) << 8), keeps=True)  # fmt: skip
ref("v_cvt_off_f32_i4", "f32 = i32", lambda a: np.array([s(int(x), 4) / 16 for x in a], F32))


def norm_half(lo: float, scale: float):  # type: ignore[no-untyped-def]
    return lambda x: 1.0 * scale if np.isnan(x) else int(np.rint(F32(max(lo, min(1.0, float(x)))) * F32(scale)))


for _n, _lo, _scale in (("i16", -1.0, 32767.0), ("u16", 0.0, 65535.0)):
    _one = norm_half(_lo, _scale)
    ref(
        f"v_cvt_norm_{_n}_f16",
        "i16 = f16",
        lambda a, f=_one: np.array([f(x) for x in np.where(np.isnan(a), 0, a)], np.int64),
        mods="nonan",
    )
    _both = lambda a, b, f=_one: pack([f(x) for x in a], [f(x) for x in b])  # noqa: E731
    ref(f"v_cvt_pknorm_{_n}_f16 v_cvt_pk_norm_{_n}_f16", "i32 = f16 f16", nonan(_both), mods="nonan")
    _i = to_int(-(2**15), 2**15 - 1) if _n == "i16" else to_int(0, 2**16 - 1)
    ref(f"v_cvt_pk_{_n}_f32", "i32 = f32 f32", lambda a, b, f=_i: pack(f(a), f(b)))


def cube(part: str):  # type: ignore[no-untyped-def]
    def one(x, y, z):  # type: ignore[no-untyped-def]
        ax, ay, az = abs(x), abs(y), abs(z)
        if az >= ax and az >= ay:
            return {"id": 5 if z < 0 else 4, "sc": -x if z < 0 else x, "tc": -y, "ma": z * F32(2)}[part]
        if ay >= ax:
            return {"id": 3 if y < 0 else 2, "sc": x, "tc": -z if y < 0 else z, "ma": y * F32(2)}[part]
        return {"id": 1 if x < 0 else 0, "sc": z if x < 0 else -z, "tc": -y, "ma": x * F32(2)}[part]

    return each(one, F32)


for _n in ("id", "sc", "tc", "ma"):
    ref(f"v_cube{_n}_f32", "f32 = f32 f32 f32", cube(_n))

# 2 / pi to 1,216 bits, from its own series; 53 of them from bit 53 s on.
_TURNS = 1216


def _two_over_pi() -> int:
    from decimal import Decimal, getcontext

    getcontext().prec = 420
    # Gauss and Legendre: pi by means of means.
    a, b, t, p = Decimal(1), 1 / Decimal(2).sqrt(), Decimal("0.25"), Decimal(1)
    for _ in range(10):
        a, b, t, p = (a + b) / 2, (a * b).sqrt(), t - p * ((a - b) / 2) ** 2, 2 * p
    return int(2 * t * 4 / (2 * a) ** 2 * 2**_TURNS)


_DIGITS = _two_over_pi() >> _TURNS - 1201  # the manual's constant has 1,201 bits, and zeros follow them


def trig_preop(a, n):  # type: ignore[no-untyped-def]
    def one(x, segment):  # type: ignore[no-untyped-def]
        exponent = int(np.asarray(x).view(U64)) >> 52 & 0x7FF
        shift = (int(segment) & 31) * 53 + max(0, exponent - 1077)
        number = (_DIGITS << shift >> 1201 - 53) & (1 << 53) - 1
        return math.ldexp(number, -53 - shift + 128 * (exponent >= 1968))

    return np.array([one(*v) for v in zip(a, n)], F64)


ref("v_trig_preop_f64", "f64 = f64 i32", trig_preop)
