"""Vector opcodes that compilers rarely write: sums of differences of bytes, cube maps, products by DirectX 9's rules, old forms, 2 / pi for f64's sin and cos.

Source: AMD ISA manuals, descriptions of the opcodes (v_sad, v_msad, v_qsad, v_lerp, v_cube, v_trig_preop, v_cvt_norm, v_ashr_pk).
"""

from __future__ import annotations

from functools import cache, partial

from ..decode.inst import Inst, Operand
from ..translate.ops import Ops
from ..translate.wave import Wave
from .packed import join16
from .salu import f32_to_int
from .table import compare, custom, valu
from .vector_float import TRANS, div_fixup, flush_f32, ldexp64, mul_zero, norm16

# Compares that always hold, or never.
for _t in ("f16", "f32", "f64"):
    for _c, _v in (("f", 0), ("t", 1), ("tru", 1)):
        compare(f"v_cmp_{_c}_{_t}", _t, lambda o, a, b, v=_v: o.const("i1", v), f"v_cmpx_{_c}_{_t}")

# DirectX 9: nothing times anything is nothing.


def _fma_zero(o: Ops, a: str, b: str, c: str) -> str:
    zero = o.const("f32", 0.0)
    nothing = o.or_(o.fcmp("oeq", "f32", a, zero), o.fcmp("oeq", "f32", b, zero), "i1")
    return o.select(nothing, "f32", c, o.fma("f32", a, b, c))


valu("v_fma_legacy_f32 v_fma_dx9_zero_f32", "f32 = f32 f32 f32", _fma_zero)
valu("v_fmac_legacy_f32 v_fmac_dx9_zero_f32", "f32 = f32 f32 +f32", _fma_zero)
valu("v_mad_legacy_f32", "f32 = f32 f32 f32", lambda o, a, b, c: flush_f32(o, o.bin("fadd", "f32", flush_f32(o, mul_zero(o, flush_f32(o, a), flush_f32(o, b))), flush_f32(o, c))))  # fmt: skip

# gfx9's products of f16 with two roundings, denormals flushed; "legacy" forms of 16 bits clear the upper half.


def _mad16(o: Ops, a: str, b: str, c: str) -> str:
    def flush(x: str) -> str:
        raw = o.bitcast("f16", "i16", x)
        small = o.icmp("eq", "i16", o.and_(raw, o.const("i16", 0x7C00), "i16"), o.const("i16", 0))
        return o.bitcast("i16", "f16", o.select(small, "i16", o.and_(raw, o.const("i16", 1 << 15), "i16"), raw))

    return flush(o.bin("fadd", "f16", flush(o.bin("fmul", "f16", flush(a), flush(b))), flush(c)))


valu("v_mad_f16", "f16 = f16 f16 f16", _mad16, keep_high=True, generations=(9,))
valu("v_mad_legacy_f16 v_madak_f16", "f16 = f16 f16 f16", _mad16, generations=(9,))
valu("v_madmk_f16", "f16 = f16 f16 f16", _mad16, generations=(9,))
valu("v_mac_f16", "f16 = f16 f16 +f16", _mad16, generations=(9,))
valu("v_fma_legacy_f16", "f16 = f16 f16 f16", lambda o, a, b, c: o.fma("f16", a, b, c), generations=(9,))
valu("v_div_fixup_legacy_f16", "f16 = f16 f16 f16", lambda o, q, d, n: div_fixup(o, "f16", q, d, n), generations=(9,))
valu("v_exp_legacy_f32", "f32 = f32", TRANS["exp"], kind="trans", generations=(9,))
valu("v_log_legacy_f32", "f32 = f32", TRANS["log"], kind="trans", generations=(9,))
valu("v_mad_legacy_i16", "i16 = i16 i16 i16", lambda o, a, b, c: o.add(o.mul(a, b, "i16"), c, "i16"), generations=(9,))


# Bytes.
def _bytes(o: Ops, a: str) -> list[str]:
    return [o.and_(o.lshr(a, o.const("i32", 8 * i)), o.const("i32", 255)) for i in range(4)]


def _sad(o: Ops, a: str, b: str, masked: bool = False) -> str:
    """The sum of the differences of four bytes; `masked` leaves out those where b's is 0."""
    total = o.const("i32", 0)
    for x, y in zip(_bytes(o, a), _bytes(o, b)):
        difference = o.call("abs", "i32", o.sub(x, y))
        if masked:
            difference = o.select(o.icmp("eq", "i32", y, o.const("i32", 0)), "i32", o.const("i32", 0), difference)
        total = o.add(total, difference)
    return total


def _sad16(o: Ops, a: str, b: str, c: str) -> str:
    for shift in (0, 16):
        x, y = (o.and_(o.lshr(v, o.const("i32", shift)), o.const("i32", 0xFFFF)) for v in (a, b))
        c = o.add(c, o.call("abs", "i32", o.sub(x, y)))
    return c


def _lerp(o: Ops, a: str, b: str, c: str) -> str:
    total = o.const("i32", 0)
    for i, (x, y) in enumerate(zip(_bytes(o, a), _bytes(o, b))):
        up = o.and_(o.lshr(c, o.const("i32", 8 * i)), o.const("i32", 1))
        mean = o.lshr(o.add(o.add(x, y), up), o.const("i32", 1))
        total = o.or_(total, o.shl(mean, o.const("i32", 8 * i)))
    return total


_I3 = "i32 = i32 i32 i32"
valu("v_sad_hi_u8", _I3, lambda o, a, b, c: o.add(o.shl(_sad(o, a, b), o.const("i32", 16)), c))
valu("v_sad_u16", _I3, _sad16)
valu("v_msad_u8", _I3, lambda o, a, b, c: o.add(_sad(o, a, b, True), c))
valu("v_lerp_u8", _I3, _lerp)


def _quad(masked: bool, wide: bool):  # type: ignore[no-untyped-def]
    """Four sums of differences of four neighbouring bytes among eight: in 16 bits each, or in 32."""

    def handler(w: Wave, inst: Inst) -> None:
        o = w.v
        dst, _, _, c = inst.operands
        a, b = w.source(1, "i64"), w.source(2, "i32")
        windows = [o.trunc("i64", "i32", o.lshr(a, o.const("i64", 8 * i), "i64")) for i in range(4)]
        sums = [_sad(o, x, b, masked) for x in windows]
        if wide:
            if c.kind != "v" or c.count != 4:
                raise w.fail(f"{c.text} as 4 registers")
            results = [o.add(x, w.reg("v", c.index + i)) for i, x in enumerate(sums)]
        else:
            start = w.source(3, "i64")
            halves = [o.trunc("i64", "i16", o.lshr(start, o.const("i64", 16 * i), "i64")) for i in range(4)]
            added = [o.add(o.trunc("i32", "i16", x), h, "i16") for x, h in zip(sums, halves)]
            results = [join16(o, "i16", added[0], added[1]), join16(o, "i16", added[2], added[3])]
        for i, value in enumerate(results):
            w.write_reg(dst.kind, dst.index + i, value)

    return handler


custom("v_qsad_pk_u16_u8", "valu")(_quad(False, False))
custom("v_mqsad_pk_u16_u8", "valu")(_quad(True, False))
custom("v_mqsad_u32_u8", "valu")(_quad(True, True))


def _clamped(o: Ops, a: str, lo: int, hi: int) -> str:
    return o.call("smax", "i32", o.call("smin", "i32", a, o.const("i32", hi)), o.const("i32", lo))


def _two_bytes(o: Ops, a: str, b: str, lo: int, hi: int) -> str:
    x, y = (o.and_(_clamped(o, v, lo, hi), o.const("i32", 255)) for v in (a, b))
    return o.trunc("i32", "i16", o.or_(x, o.shl(y, o.const("i32", 8))))


def _sat_pk(o: Ops, a: str) -> str:
    low = o.ashr(o.shl(a, o.const("i32", 16)), o.const("i32", 16))
    return _two_bytes(o, low, o.ashr(a, o.const("i32", 16)), 0, 255)


valu("v_sat_pk_u8_i16", "i16 = i32", _sat_pk)
for _n, _lo, _hi in (("i8", -128, 127), ("u8", 0, 255)):
    valu(f"v_ashr_pk_{_n}_i32", "i16 = i32 i32 i32", lambda o, a, b, s, lo=_lo, hi=_hi: _two_bytes(o, o.ashr(a, o.masked(s, 5)), o.ashr(b, o.masked(s, 5)), lo, hi), keep_high=True, generations=(9,))  # fmt: skip


# Conversions.
def _sixteenths(o: Ops, a: str) -> str:
    """The low four bits, signed, by 16."""
    value = o.ashr(o.shl(a, o.const("i32", 28)), o.const("i32", 28))
    return o.bin("fmul", "f32", o.cast("sitofp", "i32", "f32", value), o.const("f32", 0.0625))


valu("v_cvt_off_f32_i4", "f32 = i32", _sixteenths)
for _n, _s in (("i16", True), ("u16", False)):
    valu(f"v_cvt_norm_{_n}_f16", "i16 = f16", lambda o, a, s=_s: norm16(o, o.fpext("f16", "f32", a), s))
    valu(f"v_cvt_pknorm_{_n}_f16 v_cvt_pk_norm_{_n}_f16", "i32 = f16 f16", lambda o, a, b, s=_s: join16(o, "i16", *(norm16(o, o.fpext("f16", "f32", x), s) for x in (a, b))))  # fmt: skip
    valu(f"v_cvt_pk_{_n}_f32", "i32 = f32 f32", lambda o, a, b, s=_s: join16(o, "i16", *(f32_to_int(o, x, s, "f32", "i16") for x in (a, b))), generations=(11, 12))  # fmt: skip


# Cube maps: the face that a direction hits, and where.
def _face(o: Ops, x: str, y: str, z: str, pick: str) -> str:
    ax, ay, az = (o.call("fabs", "f32", v) for v in (x, y, z))
    by_z = o.and_(o.fcmp("oge", "f32", az, ax), o.fcmp("oge", "f32", az, ay), "i1")
    by_y = o.fcmp("oge", "f32", ay, ax)
    zero = o.const("f32", 0.0)
    nx, ny, nz = (o.fcmp("olt", "f32", v, zero) for v in (x, y, z))
    c = partial(o.const, "f32")

    def sign(negative: str, if_so: str, if_not: str) -> str:
        return o.select(negative, "f32", if_so, if_not)

    def minus(v: str) -> str:
        return o.fneg("f32", v)

    if pick == "ma":
        parts = [o.bin("fmul", "f32", v, c(2.0)) for v in (z, y, x)]
    else:
        parts = {
            "id": [sign(nz, c(5.0), c(4.0)), sign(ny, c(3.0), c(2.0)), sign(nx, c(1.0), c(0.0))],
            "sc": [sign(nz, minus(x), x), x, sign(nx, z, minus(z))],
            "tc": [minus(y), sign(ny, minus(z), z), minus(y)],
        }[pick]
    return o.select(by_z, "f32", parts[0], o.select(by_y, "f32", parts[1], parts[2]))


for _n in ("id", "sc", "tc", "ma"):
    valu(f"v_cube{_n}_f32", "f32 = f32 f32 f32", lambda o, x, y, z, n=_n: _face(o, x, y, z, n))


# v_trig_preop_f64: 53 bits of 2 / pi from bit 53 s on, further on for large arguments.
_BITS = 1201


@cache
def two_over_pi(bits: int) -> int:
    """floor(2**bits * 2 / pi), by Machin's formula in integers with 64 bits to spare."""
    one = 1 << bits + 64

    def arctan_of_inverse(n: int) -> int:
        total = term = one // n
        k, sign = 3, -1
        while term:
            term //= n * n
            total += sign * (term // k)
            k, sign = k + 2, -sign
        return total

    pi = 4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))
    return (2 * one << bits) // pi


def _preop_table() -> str:
    digits = two_over_pi(_BITS)
    mask = (1 << 53) - 1
    values = [(digits << s >> _BITS - 53) & mask for s in range(_BITS + 1)]
    return f"@tec_two_over_pi = internal constant [{len(values)} x i64] [{', '.join(f'i64 {v}' for v in values)}]\n"


@custom("v_trig_preop_f64", "valu")
def _trig_preop(w: Wave, inst: Inst) -> None:
    o = w.v
    a, segment = w.source(1, "f64"), w.source(2, "i32")
    raw = o.bitcast("f64", "i64", a)
    exponent = o.trunc("i64", "i32", o.and_(o.lshr(raw, o.const("i64", 52), "i64"), o.const("i64", 0x7FF), "i64"))
    shift = o.mul(o.and_(segment, o.const("i32", 31)), o.const("i32", 53))
    shift = o.add(shift, o.call("smax", "i32", o.sub(exponent, o.const("i32", 1077)), o.const("i32", 0)))
    w.library("tec_two_over_pi", _preop_table)  # type: ignore[attr-defined]
    at = o.zext("i32", "i64", o.call("umin", "i32", shift, o.const("i32", _BITS)))
    pointers = o.out.emit(f"getelementptr i64, ptr @tec_two_over_pi, {o.type('i64')} {at}")
    name = f"@llvm.masked.gather.v{o.lanes}i64.v{o.lanes}p0"
    o.out.declares.add(f"declare {o.type('i64')} {name}({o.type('ptr')}, {o.type('i1')}, {o.type('i64')})")
    bits = o.out.emit(
        f"call {o.type('i64')} {name}({o.type('ptr')} align 8 {pointers}, {o.type('i1')} {o.const('i1', 1)}, {o.type('i64')} poison)"
    )
    scale = o.sub(o.const("i32", -53), shift)
    large = o.icmp("uge", "i32", exponent, o.const("i32", 1968))
    scale = o.add(scale, o.select(large, "i32", o.const("i32", 128), o.const("i32", 0)))
    w.write(0, ldexp64(o, o.cast("uitofp", "i64", "f64", bits), scale), "f64")


# Registers that change places, and by M0.
@custom("v_swap_b16", "valu", (11, 12))
def _swap16(w: Wave, inst: Inst) -> None:
    o = w.v
    first, second = inst.operands
    if not first.half or not second.half:
        raise w.fail("v_swap_b16 of whole registers")

    def taken(op: Operand) -> str:
        word = w.reg("v", op.index)
        return o.lshr(word, o.const("i32", 16)) if op.half == "h" else o.and_(word, o.const("i32", 0xFFFF))

    def put(op: Operand, value: str) -> None:
        word, high = w.reg("v", op.index), op.half == "h"
        kept = o.and_(word, o.const("i32", 0xFFFF if high else 0xFFFF0000))
        w.write_reg("v", op.index, o.or_(kept, o.shl(value, o.const("i32", 16)) if high else value))

    a, b = taken(first), taken(second)
    put(first, b)
    put(second, a)
