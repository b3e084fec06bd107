"""Vector integer and bit opcodes, 16 to 64 bits, and integer compares.

Source: AMD ISA manuals, chapter "Vector ALU operations". Opcodes that were renamed stand in one row: v_add_u32 of gfx9 is
v_add_nc_u32 from gfx10 on, v_addc_co_u32 is v_add_co_ci_u32.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..translate.ops import Ops
from ..translate.wave import Wave
from .salu import mul_hi
from .table import compare, valu

I = "i32 = i32 i32"
I3 = "i32 = i32 i32 i32"
H = "i16 = i16 i16"
H3 = "i16 = i16 i16 i16"


def _sat(name: str, t: str = "i32") -> Callable[[Ops, str, str], str]:
    return lambda o, a, b: o.call(name, t, a, b)


valu("v_mov_b32", "i32 = i32", lambda o, a: a)
valu("v_mov_b64", "i64 = i64", lambda o, a: a)
valu("v_mov_b16", "i16 = i16", lambda o, a: a)
valu("v_dual_mov_b32", "i32 = i32", lambda o, a: a)
valu("v_accvgpr_read_b32 v_accvgpr_write_b32 v_accvgpr_mov_b32 v_accvgpr_read v_accvgpr_write", "i32 = i32", lambda o, a: a)  # fmt: skip
valu("v_not_b32", "i32 = i32", lambda o, a: o.not_(a))
valu("v_not_b16", "i16 = i16", lambda o, a: o.not_(a, "i16"))
valu("v_bfrev_b32", "i32 = i32", lambda o, a: o.call("bitreverse", "i32", a))
for _name, _fn in {
    "and": lambda o, a, b, t="i32": o.and_(a, b, t),
    "or": lambda o, a, b, t="i32": o.or_(a, b, t),
    "xor": lambda o, a, b, t="i32": o.xor(a, b, t),
}.items():
    valu(f"v_{_name}_b32" + (" v_dual_and_b32" if _name == "and" else ""), I, _fn)
    valu(f"v_{_name}_b16", H, lambda o, a, b, fn=_fn: fn(o, a, b, "i16"))
valu("v_xnor_b32", I, lambda o, a, b: o.not_(o.xor(a, b)))

valu("v_add_u32 v_add_nc_u32 v_dual_add_nc_u32", I, lambda o, a, b: o.add(a, b), sat=_sat("uadd.sat"))
valu("v_sub_u32 v_sub_nc_u32", I, lambda o, a, b: o.sub(a, b), sat=_sat("usub.sat"))
valu(
    "v_subrev_u32 v_subrev_nc_u32", I, lambda o, a, b: o.sub(b, a), sat=lambda o, a, b: o.call("usub.sat", "i32", b, a)
)
valu("v_add_i32 v_add_nc_i32", I, lambda o, a, b: o.add(a, b), sat=_sat("sadd.sat"))
valu("v_sub_i32 v_sub_nc_i32", I, lambda o, a, b: o.sub(a, b), sat=_sat("ssub.sat"))


def _add_co(o: Ops, a: str, b: str) -> tuple[str, str]:
    total = o.add(a, b)
    return total, o.icmp("ult", "i32", total, a)


def _sub_co(o: Ops, a: str, b: str) -> tuple[str, str]:
    return o.sub(a, b), o.icmp("ult", "i32", a, b)


def _addc(o: Ops, a: str, b: str, c: str) -> tuple[str, str]:
    first = o.add(a, b)
    total = o.add(first, o.zext("i1", "i32", c))
    return total, o.or_(o.icmp("ult", "i32", first, a), o.icmp("ult", "i32", total, first), "i1")


def _subb(o: Ops, a: str, b: str, c: str) -> tuple[str, str]:
    first = o.sub(a, b)
    total = o.sub(first, o.zext("i1", "i32", c))
    return total, o.or_(o.icmp("ult", "i32", a, b), o.icmp("ugt", "i32", total, first), "i1")


CO = "i32 mask = i32 i32"
CI = "i32 mask = i32 i32 mask"
valu("v_add_co_u32", CO, _add_co)
valu("v_sub_co_u32", CO, _sub_co)
valu("v_subrev_co_u32", CO, lambda o, a, b: _sub_co(o, b, a))
valu("v_addc_co_u32 v_add_co_ci_u32", CI, _addc)
valu("v_subb_co_u32 v_sub_co_ci_u32", CI, _subb)
valu("v_subbrev_co_u32 v_subrev_co_ci_u32", CI, lambda o, a, b, c: _subb(o, b, a, c))

valu("v_mul_lo_u32 v_mul_lo_i32", I, lambda o, a, b: o.mul(a, b))
valu("v_mul_hi_u32", I, lambda o, a, b: mul_hi(o, a, b, False))
valu("v_mul_hi_i32", I, lambda o, a, b: mul_hi(o, a, b, True))


def _u24(o: Ops, a: str) -> str:
    return o.and_(a, o.const("i32", 0xFFFFFF))


def _s24(o: Ops, a: str) -> str:
    return o.ashr(o.shl(a, o.const("i32", 8)), o.const("i32", 8))


def _add_sat24(o: Ops, a: str, b: str, c: str) -> str:
    product = o.mul(o.zext("i32", "i64", _u24(o, a)), o.zext("i32", "i64", _u24(o, b)), "i64")
    total = o.add(product, o.zext("i32", "i64", c), "i64")
    return o.trunc("i64", "i32", o.call("umin", "i64", total, o.const("i64", 0xFFFFFFFF)))


valu("v_mul_u32_u24", I, lambda o, a, b: o.mul(_u24(o, a), _u24(o, b)))
valu("v_mul_i32_i24", I, lambda o, a, b: o.mul(_s24(o, a), _s24(o, b)))
valu("v_mul_hi_u32_u24", I, lambda o, a, b: mul_hi(o, _u24(o, a), _u24(o, b), False))
valu("v_mul_hi_i32_i24", I, lambda o, a, b: mul_hi(o, _s24(o, a), _s24(o, b), True))
valu("v_mad_u32_u24", I3, lambda o, a, b, c: o.add(o.mul(_u24(o, a), _u24(o, b)), c), sat=_add_sat24)
valu("v_mad_i32_i24", I3, lambda o, a, b, c: o.add(o.mul(_s24(o, a), _s24(o, b)), c))


def _mad64(o: Ops, a: str, b: str, c: str, signed: bool) -> tuple[str, str]:
    """a*b + c in 64 bits; the mask is the carry (unsigned) or the overflow (signed) out of bit 63."""
    ext = o.sext if signed else o.zext
    product = o.mul(ext("i32", "i64", a), ext("i32", "i64", b), "i64")
    total = o.add(product, c, "i64")
    if not signed:
        return total, o.icmp("ult", "i64", total, c)
    flips = o.and_(o.xor(total, product, "i64"), o.xor(total, c, "i64"), "i64")
    return total, o.icmp("slt", "i64", flips, o.const("i64", 0))


valu("v_mad_u64_u32 v_mad_co_u64_u32", "i64 mask = i32 i32 i64", lambda o, a, b, c: _mad64(o, a, b, c, False))
valu("v_mad_i64_i32 v_mad_co_i64_i32", "i64 mask = i32 i32 i64", lambda o, a, b, c: _mad64(o, a, b, c, True))
valu("v_mul_u64", "i64 = i64 i64", lambda o, a, b: o.mul(a, b, "i64"))
valu("v_add_nc_u64 v_add_u64", "i64 = i64 i64", lambda o, a, b: o.add(a, b, "i64"))
valu("v_sub_nc_u64 v_sub_u64", "i64 = i64 i64", lambda o, a, b: o.sub(a, b, "i64"))
valu("v_lshl_add_u64", "i64 = i64 i32 i64", lambda o, a, s, c: o.add(o.shl(a, o.zext("i32", "i64", o.masked(s, 3)), "i64"), c, "i64"))  # fmt: skip

# Shifts: the "rev" forms take the amount first.
for _n, _op in (("lshlrev_b32", "shl"), ("lshrrev_b32", "lshr"), ("ashrrev_i32", "ashr")):
    _names = f"v_{_n}" + (" v_dual_lshlrev_b32" if _op == "shl" else "")
    valu(_names, I, lambda o, s, a, op=_op: o.bin(op, "i32", a, o.masked(s, 5)))
for _n, _op in (("lshlrev_b64", "shl"), ("lshrrev_b64", "lshr"), ("ashrrev_i64", "ashr")):
    valu(f"v_{_n}", "i64 = i32 i64", lambda o, s, a, op=_op: o.bin(op, "i64", a, o.zext("i32", "i64", o.masked(s, 6))))
for _n, _op in (("lshlrev_b16", "shl"), ("lshrrev_b16", "lshr"), ("ashrrev_i16", "ashr")):
    valu(f"v_{_n}", H, lambda o, s, a, op=_op: o.bin(op, "i16", a, o.masked(s, 4, "i16")))

valu("v_lshl_add_u32", I3, lambda o, a, s, c: o.add(o.shl(a, o.masked(s, 5)), c))
valu("v_add_lshl_u32", I3, lambda o, a, b, s: o.shl(o.add(a, b), o.masked(s, 5)))
valu("v_lshl_or_b32", I3, lambda o, a, s, c: o.or_(o.shl(a, o.masked(s, 5)), c))
valu("v_and_or_b32", I3, lambda o, a, b, c: o.or_(o.and_(a, b), c))
valu("v_or3_b32", I3, lambda o, a, b, c: o.or_(o.or_(a, b), c))
valu("v_xor3_b32", I3, lambda o, a, b, c: o.xor(o.xor(a, b), c))
valu("v_xad_u32", I3, lambda o, a, b, c: o.add(o.xor(a, b), c))
valu("v_add3_u32", I3, lambda o, a, b, c: o.add(o.add(a, b), c))
valu("v_bfi_b32", I3, lambda o, m, a, b: o.or_(o.and_(m, a), o.and_(o.not_(m), b)))
valu("v_bfm_b32", I, lambda o, w, s: o.shl(o.sub(o.shl(o.const("i32", 1), o.masked(w, 5)), o.const("i32", 1)), o.masked(s, 5)))  # fmt: skip


def _bfe(o: Ops, a: str, offset: str, width: str, signed: bool) -> str:
    offset, width = o.masked(offset, 5), o.masked(width, 5)
    zero = o.icmp("eq", "i32", width, o.const("i32", 0))
    # The field may run past bit 31: it then ends there (sign-extended from the top bit that is there).
    low = o.bin("ashr" if signed else "lshr", "i32", a, offset)
    room = o.sub(o.const("i32", 32), offset)
    take = o.call("umin", "i32", width, room)
    drop = o.select(zero, "i32", o.const("i32", 0), o.sub(o.const("i32", 32), take))
    cut = o.bin("ashr" if signed else "lshr", "i32", o.shl(low, drop), drop)
    return o.select(zero, "i32", o.const("i32", 0), cut)


valu("v_bfe_u32", I3, lambda o, a, b, c: _bfe(o, a, b, c, False))
valu("v_bfe_i32", I3, lambda o, a, b, c: _bfe(o, a, b, c, True))
valu("v_alignbit_b32", "i32 = i32 i32 shift", lambda o, a, b, s: o.call("fshr", "i32", a, b, o.masked(s, 5)))
valu(
    "v_alignbyte_b32",
    "i32 = i32 i32 shift",
    lambda o, a, b, s: o.call("fshr", "i32", a, b, o.shl(o.masked(s, 2), o.const("i32", 3))),
)
valu("v_cndmask_b32", "f32 = f32 f32 mask", lambda o, a, b, c: o.select(c, "f32", b, a))
valu("v_cndmask_b16", "i16 = i16 i16 mask", lambda o, a, b, c: o.select(c, "i16", b, a))


def _first_bit(o: Ops, name: str, a: str) -> str:
    n = o.call(name, "i32", a)
    none = o.icmp("eq", "i32", a, o.const("i32", 0))
    return o.select(none, "i32", o.const("i32", -1), n)


valu("v_ffbh_u32 v_clz_i32_u32", "i32 = i32", lambda o, a: _first_bit(o, "ctlz", a))
valu("v_ffbl_b32 v_ctz_i32_b32", "i32 = i32", lambda o, a: _first_bit(o, "cttz", a))
valu("v_ffbh_i32 v_cls_i32", "i32 = i32", lambda o, a: _first_bit(o, "ctlz", o.xor(a, o.ashr(a, o.const("i32", 31)))))
valu("v_bcnt_u32_b32", I, lambda o, a, b: o.add(o.call("ctpop", "i32", a), b))

for _n, _i in (("min_i32", "smin"), ("max_i32", "smax"), ("min_u32", "umin"), ("max_u32", "umax")):
    valu(f"v_{_n}", I, lambda o, a, b, i=_i: o.call(i, "i32", a, b))
for _n, _i in (("min_i16", "smin"), ("max_i16", "smax"), ("min_u16", "umin"), ("max_u16", "umax")):
    valu(f"v_{_n}", H, lambda o, a, b, i=_i: o.call(i, "i16", a, b))
for _t, _s in (("i32", "s"), ("u32", "u"), ("i16", "s"), ("u16", "u")):
    _ty = "i" + _t[1:]
    _sig = f"{_ty} = {_ty} {_ty} {_ty}"
    for _n in ("min", "max"):
        valu(f"v_{_n}3_{_t}", _sig, lambda o, a, b, c, i=_s + _n, t=_ty: o.call(i, t, o.call(i, t, a, b), c), keep_high=True)  # fmt: skip
    valu(f"v_med3_{_t}", _sig, lambda o, a, b, c, s=_s, t=_ty: o.call(s + "max", t, o.call(s + "min", t, a, b), o.call(s + "min", t, o.call(s + "max", t, a, b), c)), keep_high=True)  # fmt: skip
    valu(f"v_maxmin_{_t}", _sig, lambda o, a, b, c, s=_s, t=_ty: o.call(s + "min", t, o.call(s + "max", t, a, b), c))
    valu(f"v_minmax_{_t}", _sig, lambda o, a, b, c, s=_s, t=_ty: o.call(s + "max", t, o.call(s + "min", t, a, b), c))

# 16-bit arithmetic.
valu("v_add_u16 v_add_nc_u16", H, lambda o, a, b: o.add(a, b, "i16"), sat=_sat("uadd.sat", "i16"))
valu("v_sub_u16 v_sub_nc_u16", H, lambda o, a, b: o.sub(a, b, "i16"), sat=_sat("usub.sat", "i16"))
valu("v_subrev_u16", H, lambda o, a, b: o.sub(b, a, "i16"))
valu("v_add_i16 v_add_nc_i16", H, lambda o, a, b: o.add(a, b, "i16"), sat=_sat("sadd.sat", "i16"), keep_high=True)
valu("v_sub_i16 v_sub_nc_i16", H, lambda o, a, b: o.sub(a, b, "i16"), sat=_sat("ssub.sat", "i16"), keep_high=True)
valu("v_mul_lo_u16", H, lambda o, a, b: o.mul(a, b, "i16"))
valu("v_mad_u16 v_mad_i16", H3, lambda o, a, b, c: o.add(o.mul(a, b, "i16"), c, "i16"), keep_high=True)
# The legacy form clears the upper half, which LLVM counts on for addresses.
valu("v_mad_legacy_u16", H3, lambda o, a, b, c: o.add(o.mul(a, b, "i16"), c, "i16"))
valu("v_mad_u32_u16", "i32 = i16 i16 i32", lambda o, a, b, c: o.add(o.mul(o.zext("i16", "i32", a), o.zext("i16", "i32", b)), c))  # fmt: skip
valu("v_mad_i32_i16", "i32 = i16 i16 i32", lambda o, a, b, c: o.add(o.mul(o.sext("i16", "i32", a), o.sext("i16", "i32", b)), c))  # fmt: skip
valu("v_cvt_i32_i16", "i32 = i16", lambda o, a: o.sext("i16", "i32", a))
valu("v_cvt_u32_u16", "i32 = i16", lambda o, a: o.zext("i16", "i32", a))


def _perm(o: Ops, a: str, b: str, s: str) -> str:
    """Each selector byte picks a byte of {a, b} (b is bytes 0-3), a sign fill (8-11), 0 (12) or 0xff (13 and above)."""
    c = partial(o.const, "i32")
    wide = o.pack(b, a)
    result = c(0)
    for i in range(4):
        sel = o.and_(o.lshr(s, c(8 * i)), c(255))
        shift = o.zext("i32", "i64", o.shl(o.masked(sel, 3), c(3)))
        byte = o.and_(o.trunc("i64", "i32", o.lshr(wide, shift, "i64")), c(255))
        # 8..11: the sign of b's low half, b's high half, a's low half, a's high half.
        which = o.zext("i32", "i64", o.add(o.shl(o.masked(sel, 2), c(4)), c(15)))
        sign = o.and_(o.trunc("i64", "i32", o.lshr(wide, which, "i64")), c(1))
        byte = o.select(o.icmp("ugt", "i32", sel, c(7)), "i32", o.and_(o.sub(c(0), sign), c(255)), byte)
        byte = o.select(o.icmp("eq", "i32", sel, c(12)), "i32", c(0), byte)
        byte = o.select(o.icmp("ugt", "i32", sel, c(12)), "i32", c(255), byte)
        result = o.or_(result, o.shl(byte, c(8 * i)))
    return result


valu("v_perm_b32", I3, _perm)


def _sad8(o: Ops, a: str, b: str, c: str) -> str:
    for i in range(4):
        x, y = (o.and_(o.lshr(v, o.const("i32", 8 * i)), o.const("i32", 255)) for v in (a, b))
        c = o.add(c, o.call("abs", "i32", o.sub(x, y)))
    return c


valu("v_sad_u8", I3, _sad8)
valu("v_sad_u32", I3, lambda o, a, b, c: o.add(c, o.sub(o.call("umax", "i32", a, b), o.call("umin", "i32", a, b))))

# Dot products of bytes and 16-bit integers.


def _dot(bits: int, signed_a: bool, signed_b: bool) -> Callable[[Ops, str, str, str], str]:
    def field(o: Ops, a: str, i: int, signed: bool) -> str:
        up = o.shl(a, o.const("i32", 32 - bits * (i + 1)))
        return o.bin("ashr" if signed else "lshr", "i32", up, o.const("i32", 32 - bits))

    def fn(o: Ops, a: str, b: str, c: str) -> str:
        for i in range(32 // bits):
            c = o.add(c, o.mul(field(o, a, i, signed_a), field(o, b, i, signed_b)))
        return c

    return fn


def _dot_sat(bits: int, signed: bool) -> Callable[[Ops, str, str, str], str]:
    """The exact sum, then one saturation."""

    def fn(o: Ops, a: str, b: str, c: str) -> str:
        ext = o.sext if signed else o.zext
        # The products' sum fits 32 bits but for the unsigned 16-bit pair; add in 64 to be safe.
        total = ext("i32", "i64", c)
        for i in range(32 // bits):
            terms = []
            for x in (a, b):
                up = o.shl(x, o.const("i32", 32 - bits * (i + 1)))
                terms.append(
                    ext("i32", "i64", o.bin("ashr" if signed else "lshr", "i32", up, o.const("i32", 32 - bits)))
                )
            total = o.add(total, o.mul(terms[0], terms[1], "i64"), "i64")
        if signed:
            total = o.call(
                "smax", "i64", o.call("smin", "i64", total, o.const("i64", 2**31 - 1)), o.const("i64", -(2**31))
            )
        else:
            total = o.call("umin", "i64", total, o.const("i64", 2**32 - 1))
        return o.trunc("i64", "i32", total)

    return fn


valu("v_dot4_i32_i8", I3, _dot(8, True, True), sat=_dot_sat(8, True))
valu("v_dot4_u32_u8", I3, _dot(8, False, False), sat=_dot_sat(8, False))
valu("v_dot8_i32_i4", I3, _dot(4, True, True), sat=_dot_sat(4, True))
valu("v_dot8_u32_u4", I3, _dot(4, False, False), sat=_dot_sat(4, False))
valu("v_dot2_i32_i16", I3, _dot(16, True, True), sat=_dot_sat(16, True))
valu("v_dot2_u32_u16", I3, _dot(16, False, False), sat=_dot_sat(16, False))
valu("v_dot4c_i32_i8", "i32 = i32 i32 +i32", _dot(8, True, True))
valu("v_dot8c_i32_i4", "i32 = i32 i32 +i32", _dot(4, True, True))
valu("v_dot2c_i32_i16", "i32 = i32 i32 +i32", _dot(16, True, True))


def _dot4_iu8(w: Wave, a: str, b: str, c: str) -> str:
    """neg_lo says which of a and b is signed."""
    assert w.inst is not None
    signs = w.inst.take_list("neg_lo") or [0, 0, 0]
    bits = 8 if "8" in w.inst.op.rsplit("_", 1)[1] else 4
    return _dot(bits, bool(signs[0]), bool(signs[1]))(w.v, a, b, c)


valu("v_dot4_i32_iu8 v_dot8_i32_iu4", I3, _dot4_iu8, wave=True)

# Compares.
_PRED = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
for _c, _p in _PRED.items():
    for _t in ("i16", "u16", "i32", "u32", "i64", "u64"):
        _full = _p if _p in ("eq", "ne") else ("s" if _t[0] == "i" else "u") + _p
        _ty2 = "i" + _t[1:]
        compare(f"v_cmp_{_c}_{_t}", _ty2, lambda o, a, b, p=_full, t=_ty2: o.icmp(p, t, a, b), f"v_cmpx_{_c}_{_t}")
for _t in ("i16", "u16", "i32", "u32", "i64", "u64"):
    _ty2 = "i" + _t[1:]
    for _c, _v in (("t", 1), ("f", 0)):
        compare(f"v_cmp_{_c}_{_t}", _ty2, lambda o, a, b, v=_v: o.const("i1", v), f"v_cmpx_{_c}_{_t}")


def bitop3(w: Wave, a: str, b: str, c: str, t: str) -> str:
    """Any function of three bits: bit 4 a + 2 b + c of the table."""
    assert w.inst is not None
    table, o = w.inst.take_int("bitop3"), w.v
    result = o.const(t, 0)
    for i in range(8):
        if table >> i & 1:
            terms = [x if i >> k & 1 else o.not_(x, t) for x, k in ((a, 2), (b, 1), (c, 0))]
            result = o.or_(result, o.and_(o.and_(terms[0], terms[1], t), terms[2], t), t)
    return result


valu("v_bitop3_b32", I3, lambda w, a, b, c: bitop3(w, a, b, c, "i32"), wave=True)
valu("v_bitop3_b16", H3, lambda w, a, b, c: bitop3(w, a, b, c, "i16"), wave=True)
