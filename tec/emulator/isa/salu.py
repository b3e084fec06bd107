"""Scalar opcodes: integer, bit, compare, and the scalar floats of gfx11.5 and gfx12.

Source: AMD ISA manuals (CDNA3, RDNA3, RDNA4), chapter "Scalar ALU operations". A name in two spellings is one opcode that
was renamed (s_andn2_b32 became s_and_not1_b32 on gfx11; s_add_u32 became s_add_co_u32 on gfx12).
"""

from __future__ import annotations

from collections.abc import Callable

from ..decode.inst import Inst
from ..translate.ops import Ops
from ..translate.wave import EXEC, Wave
from .table import custom, salu

I32 = "i32 = i32 i32"
I64 = "i64 = i64 i64"


def _register_logic() -> None:
    logic: dict[str, Callable[[Ops, str, str, str], str]] = {
        "and": lambda o, a, b, t: o.and_(a, b, t),
        "or": lambda o, a, b, t: o.or_(a, b, t),
        "xor": lambda o, a, b, t: o.xor(a, b, t),
        "nand": lambda o, a, b, t: o.not_(o.and_(a, b, t), t),
        "nor": lambda o, a, b, t: o.not_(o.or_(a, b, t), t),
        "xnor": lambda o, a, b, t: o.not_(o.xor(a, b, t), t),
        "andn2 and_not1": lambda o, a, b, t: o.and_(a, o.not_(b, t), t),
        "orn2 or_not1": lambda o, a, b, t: o.or_(a, o.not_(b, t), t),
    }
    for names, fn in logic.items():
        for name in names.split():
            salu(f"s_{name}_b32", I32, lambda o, a, b, fn=fn: fn(o, a, b, "i32"), scc="nz")
            salu(f"s_{name}_b64", I64, lambda o, a, b, fn=fn: fn(o, a, b, "i64"), scc="nz")
            _saveexec(f"s_{name}_saveexec", fn)
    # andn1/orn1: the mask is inverted instead of EXEC.
    for names, fn in {
        "andn1 and_not0": lambda o, a, b, t: o.and_(o.not_(a, t), b, t),
        "orn1 or_not0": lambda o, a, b, t: o.or_(o.not_(a, t), b, t),
    }.items():
        for name in names.split():
            _saveexec(f"s_{name}_saveexec", fn)
    for names, fn in {
        "andn1 and_not0": lambda o, a, b, t: o.and_(o.not_(a, t), b, t),
        "andn2 and_not1": lambda o, a, b, t: o.and_(a, o.not_(b, t), t),
    }.items():
        for name in names.split():
            _saveexec(f"s_{name}_wrexec", fn, write_new=True)


def _saveexec(stem: str, fn: Callable[[Ops, str, str, str], str], write_new: bool = False) -> None:
    """dst = EXEC; EXEC = fn(src, EXEC); SCC = EXEC != 0 (the wrexec forms return the new EXEC)."""

    def run(w: Wave, inst: Inst, t: str) -> None:
        if int(t[1:]) != w.lanes:
            raise w.fail("an EXEC operation of the other wavefront size")
        old = w.exec_bits()
        value = fn(w.s, w.scalar(inst.operands[1], t), old, t)
        w.write_scalar(inst.operands[0], value if write_new else old, t)
        w.set_mask_bits(EXEC, value)
        w.set_scc(w.s.icmp("ne", t, value, "0"))

    custom(stem + "_b64", "salu")(lambda w, inst: run(w, inst, "i64"))
    custom(stem + "_b32", "salu")(lambda w, inst: run(w, inst, "i32"))


def _carry(o: Ops, name: str, a: str, b: str) -> tuple[str, str]:
    """add or sub with its unsigned carry or borrow."""
    o.out.declares.add(f"declare {{i32, i1}} @llvm.{name}.with.overflow.i32(i32, i32)")
    pair = o.out.emit(f"call {{i32, i1}} @llvm.{name}.with.overflow.i32(i32 {a}, i32 {b})")
    return o.out.emit(f"extractvalue {{i32, i1}} {pair}, 0"), o.out.emit(f"extractvalue {{i32, i1}} {pair}, 1")


def _carry_in(o: Ops, name: str, a: str, b: str, c: str) -> tuple[str, str]:
    first, c1 = _carry(o, name, a, b)
    second, c2 = _carry(o, name, first, o.zext("i1", "i32", c))
    return second, o.or_(c1, c2, "i1")


def _pick(o: Ops, pred: str, a: str, b: str) -> tuple[str, str]:
    """min or max, and SCC: whether the first was taken."""
    c = o.icmp(pred, "i32", a, b)
    return o.select(c, "i32", a, b), c


def _count(o: Ops, name: str, a: str, t: str) -> str:
    """Index of the first one bit (from the low or the high end); -1 where there is none."""
    n = o.call(name, t, a)
    n = o.trunc(t, "i32", n)
    return o.select(o.icmp("eq", t, a, "0"), "i32", "-1", n)


def _cls(o: Ops, a: str, t: str) -> str:
    """Count of leading bits equal to the sign, as an index of the first that differs; -1 where none does."""
    return _count(o, "ctlz", o.xor(a, o.ashr(a, o.const(t, int(t[1:]) - 1), t), t), t)


def _bfe(o: Ops, a: str, b: str, t: str, signed: bool) -> str:
    """Bit field: offset in the low bits of b, width in bits 22:16."""
    bits = int(t[1:])
    offset = o.and_(b, o.const("i32", bits - 1))
    width = o.and_(o.lshr(b, o.const("i32", 16)), o.const("i32", 127))
    width = o.select(o.icmp("ugt", "i32", width, o.const("i32", bits)), "i32", o.const("i32", bits), width)
    # The field ends at the register's top at most.
    room = o.sub(o.const("i32", bits), offset)
    take = o.select(o.icmp("ugt", "i32", width, room), "i32", room, width)
    up = o.zext("i32", t, o.sub(room, take))
    down = o.zext("i32", t, o.sub(o.const("i32", bits), take))
    none = o.icmp("eq", "i32", width, o.const("i32", 0))
    safe = o.select(none, t, o.const(t, 0), down)
    moved = o.shl(a, up, t)
    # A field cut short by the top is zero-extended in the unsigned form and sign-extended from its top bit else.
    result = o.bin("ashr" if signed else "lshr", t, moved, safe)
    return o.select(none, t, o.const(t, 0), result)


def _abs_scc(o: Ops, a: str) -> str:
    return o.select(o.icmp("slt", "i32", a, "0"), "i32", o.sub("0", a), a)


_register_logic()

salu("s_mov_b32", "i32 = i32", lambda o, a: a)
salu("s_mov_b64", "i64 = i64", lambda o, a: a)
salu("s_movk_i32", "i32 = k16", lambda o, a: a)
salu("s_cmov_b32", "i32 = i32 scc +i32", lambda o, a, c, d: o.select(c, "i32", a, d))
salu("s_cmov_b64", "i64 = i64 scc +i64", lambda o, a, c, d: o.select(c, "i64", a, d))
salu("s_cmovk_i32", "i32 = k16 scc +i32", lambda o, a, c, d: o.select(c, "i32", a, d))
salu("s_not_b32", "i32 = i32", lambda o, a: o.not_(a), scc="nz")
salu("s_not_b64", "i64 = i64", lambda o, a: o.not_(a, "i64"), scc="nz")
salu("s_brev_b32", "i32 = i32", lambda o, a: o.call("bitreverse", "i32", a))
salu("s_brev_b64", "i64 = i64", lambda o, a: o.call("bitreverse", "i64", a))
salu("s_bcnt1_i32_b32", "i32 = i32", lambda o, a: o.call("ctpop", "i32", a), scc="nz")
salu("s_bcnt1_i32_b64", "i32 = i64", lambda o, a: o.trunc("i64", "i32", o.call("ctpop", "i64", a)), scc="nz")
salu("s_bcnt0_i32_b32", "i32 = i32", lambda o, a: o.call("ctpop", "i32", o.not_(a)), scc="nz")
salu("s_bcnt0_i32_b64", "i32 = i64", lambda o, a: o.trunc("i64", "i32", o.call("ctpop", "i64", o.not_(a, "i64"))), scc="nz")  # fmt: skip
salu("s_ff1_i32_b32 s_ctz_i32_b32", "i32 = i32", lambda o, a: _count(o, "cttz", a, "i32"))
salu("s_ff1_i32_b64 s_ctz_i32_b64", "i32 = i64", lambda o, a: _count(o, "cttz", a, "i64"))
salu("s_ff0_i32_b32", "i32 = i32", lambda o, a: _count(o, "cttz", o.not_(a), "i32"))
salu("s_ff0_i32_b64", "i32 = i64", lambda o, a: _count(o, "cttz", o.not_(a, "i64"), "i64"))
salu("s_flbit_i32_b32 s_clz_i32_u32", "i32 = i32", lambda o, a: _count(o, "ctlz", a, "i32"))
salu("s_flbit_i32_b64 s_clz_i32_u64", "i32 = i64", lambda o, a: _count(o, "ctlz", a, "i64"))
salu("s_flbit_i32 s_cls_i32", "i32 = i32", lambda o, a: _cls(o, a, "i32"))
salu("s_flbit_i32_i64 s_cls_i32_i64", "i32 = i64", lambda o, a: _cls(o, a, "i64"))
salu("s_sext_i32_i8", "i32 = i32", lambda o, a: o.ashr(o.shl(a, "24"), "24"))
salu("s_sext_i32_i16", "i32 = i32", lambda o, a: o.ashr(o.shl(a, "16"), "16"))
salu("s_bitset0_b32", "i32 = i32 +i32", lambda o, a, d: o.and_(d, o.not_(o.shl("1", o.masked(a, 5)))))
salu("s_bitset1_b32", "i32 = i32 +i32", lambda o, a, d: o.or_(d, o.shl("1", o.masked(a, 5))))
salu("s_bitset0_b64", "i64 = i32 +i64", lambda o, a, d: o.and_(d, o.not_(o.shl("1", o.zext("i32", "i64", o.masked(a, 6)), "i64"), "i64"), "i64"))  # fmt: skip
salu("s_bitset1_b64", "i64 = i32 +i64", lambda o, a, d: o.or_(d, o.shl("1", o.zext("i32", "i64", o.masked(a, 6)), "i64"), "i64"))  # fmt: skip
salu("s_abs_i32", "i32 = i32", _abs_scc, scc="nz")


def _signed(o: Ops, name: str, a: str, b: str) -> tuple[str, str]:
    return _carry(o, name, a, b)


salu("s_add_u32 s_add_co_u32", I32, lambda o, a, b: _carry(o, "uadd", a, b), scc="out")
salu("s_sub_u32 s_sub_co_u32", I32, lambda o, a, b: _carry(o, "usub", a, b), scc="out")
salu("s_add_i32 s_add_co_i32", I32, lambda o, a, b: _signed(o, "sadd", a, b), scc="out")
salu("s_sub_i32 s_sub_co_i32", I32, lambda o, a, b: _signed(o, "ssub", a, b), scc="out")
salu("s_addc_u32 s_add_co_ci_u32", "i32 = i32 i32 scc", lambda o, a, b, c: _carry_in(o, "uadd", a, b, c), scc="out")
salu("s_subb_u32 s_sub_co_ci_u32", "i32 = i32 i32 scc", lambda o, a, b, c: _carry_in(o, "usub", a, b, c), scc="out")
salu("s_addk_i32 s_addk_co_i32", "i32 = k16 +i32", lambda o, k, d: _signed(o, "sadd", d, k), scc="out")
salu("s_mulk_i32", "i32 = k16 +i32", lambda o, k, d: o.mul(d, k))
salu("s_add_nc_u64 s_add_u64", I64, lambda o, a, b: o.add(a, b, "i64"))
salu("s_sub_nc_u64 s_sub_u64", I64, lambda o, a, b: o.sub(a, b, "i64"))
salu("s_mul_i32", I32, lambda o, a, b: o.mul(a, b))
salu("s_mul_u64", I64, lambda o, a, b: o.mul(a, b, "i64"))


def mul_hi(o: Ops, a: str, b: str, signed: bool) -> str:
    ext = o.sext if signed else o.zext
    product = o.mul(ext("i32", "i64", a), ext("i32", "i64", b), "i64")
    return o.trunc("i64", "i32", o.lshr(product, o.const("i64", 32), "i64"))


salu("s_mul_hi_u32", I32, lambda o, a, b: mul_hi(o, a, b, False))
salu("s_mul_hi_i32", I32, lambda o, a, b: mul_hi(o, a, b, True))
salu("s_min_i32", I32, lambda o, a, b: _pick(o, "slt", a, b), scc="out")
salu("s_max_i32", I32, lambda o, a, b: _pick(o, "sgt", a, b), scc="out")
salu("s_min_u32", I32, lambda o, a, b: _pick(o, "ult", a, b), scc="out")
salu("s_max_u32", I32, lambda o, a, b: _pick(o, "ugt", a, b), scc="out")
salu("s_cselect_b32", "i32 = i32 i32 scc", lambda o, a, b, c: o.select(c, "i32", a, b))
salu("s_cselect_b64", "i64 = i64 i64 scc", lambda o, a, b, c: o.select(c, "i64", a, b))
salu("s_lshl_b32", I32, lambda o, a, b: o.shl(a, o.masked(b, 5)), scc="nz")
salu("s_lshr_b32", I32, lambda o, a, b: o.lshr(a, o.masked(b, 5)), scc="nz")
salu("s_ashr_i32", I32, lambda o, a, b: o.ashr(a, o.masked(b, 5)), scc="nz")
for _name, _op in (("s_lshl_b64", "shl"), ("s_lshr_b64", "lshr"), ("s_ashr_i64", "ashr")):
    salu(_name, "i64 = i64 i32", lambda o, a, b, op=_op: o.bin(op, "i64", a, o.zext("i32", "i64", o.masked(b, 6))), scc="nz")  # fmt: skip
salu("s_bfm_b32", I32, lambda o, a, b: o.shl(o.sub(o.shl("1", o.masked(a, 5)), "1"), o.masked(b, 5)))
salu("s_bfm_b64", "i64 = i32 i32", lambda o, a, b: o.shl(o.sub(o.shl("1", o.zext("i32", "i64", o.masked(a, 6)), "i64"), "1", "i64"), o.zext("i32", "i64", o.masked(b, 6)), "i64"))  # fmt: skip
salu("s_bfe_u32", I32, lambda o, a, b: _bfe(o, a, b, "i32", False), scc="nz")
salu("s_bfe_i32", I32, lambda o, a, b: _bfe(o, a, b, "i32", True), scc="nz")
salu("s_bfe_u64", "i64 = i64 i32", lambda o, a, b: _bfe(o, a, b, "i64", False), scc="nz")
salu("s_bfe_i64", "i64 = i64 i32", lambda o, a, b: _bfe(o, a, b, "i64", True), scc="nz")
salu("s_absdiff_i32", I32, lambda o, a, b: _abs_scc(o, o.sub(a, b)), scc="nz")


def _shift_add(o: Ops, a: str, b: str, n: int) -> tuple[str, str]:
    """(a << n) + b; SCC is the carry out of 32 bits."""
    wide = o.add(o.shl(o.zext("i32", "i64", a), str(n), "i64"), o.zext("i32", "i64", b), "i64")
    return o.trunc("i64", "i32", wide), o.icmp("ugt", "i64", wide, str(0xFFFFFFFF))


for _n in (1, 2, 3, 4):
    salu(f"s_lshl{_n}_add_u32", I32, lambda o, a, b, n=_n: _shift_add(o, a, b, n), scc="out")


def _pack16(o: Ops, a: str, b: str, a_high: bool, b_high: bool) -> str:
    low = o.lshr(a, "16") if a_high else o.and_(a, "65535")
    high = o.and_(b, "-65536") if b_high else o.shl(b, "16")
    return o.or_(low, high)


for _s, _ah, _bh in (("ll", False, False), ("lh", False, True), ("hl", True, False), ("hh", True, True)):
    salu(f"s_pack_{_s}_b32_b16", I32, lambda o, a, b, ah=_ah, bh=_bh: _pack16(o, a, b, ah, bh))

_PRED = {"eq": "eq", "lg": "ne", "gt": "gt", "ge": "ge", "lt": "lt", "le": "le"}
for _c, _p in _PRED.items():
    for _t in "iu":
        _full = _p if _p in ("eq", "ne") else ("s" if _t == "i" else "u") + _p
        salu(f"s_cmp_{_c}_{_t}32", "= i32 i32", lambda o, a, b, p=_full: o.icmp(p, "i32", a, b))
for _c in ("eq", "lg"):
    salu(f"s_cmp_{_c}_u64", "= i64 i64", lambda o, a, b, p=_PRED[_c]: o.icmp(p, "i64", a, b))


def _cmpk(name: str, pred: str, signed: bool) -> None:
    def handler(w: Wave, inst: Inst) -> None:
        value = int(inst.operands[1].value) & 0xFFFF
        if signed and value & 0x8000:
            value -= 0x10000
        w.set_scc(w.s.icmp(pred, "i32", w.scalar(inst.operands[0]), str(value)))

    custom(name, "salu")(handler)


for _c, _p in _PRED.items():
    for _t in "iu":
        _cmpk(f"s_cmpk_{_c}_{_t}32", _p if _p in ("eq", "ne") else ("s" if _t == "i" else "u") + _p, _t == "i")


def _bit(o: Ops, a: str, b: str, t: str) -> str:
    amount = o.zext("i32", t, o.masked(b, 5 if t == "i32" else 6))
    return o.trunc(t, "i1", o.lshr(a, amount, t))


salu("s_bitcmp1_b32", "= i32 i32", lambda o, a, b: _bit(o, a, b, "i32"))
salu("s_bitcmp1_b64", "= i64 i32", lambda o, a, b: _bit(o, a, b, "i64"))
salu("s_bitcmp0_b32", "= i32 i32", lambda o, a, b: o.not_(_bit(o, a, b, "i32"), "i1"))
salu("s_bitcmp0_b64", "= i64 i32", lambda o, a, b: o.not_(_bit(o, a, b, "i64"), "i1"))

# Scalar floats (gfx11.5, gfx12); f16 ones lie in the lower half of a register, and leave zeros in the upper.
_FPRED = {"lt": "olt", "eq": "oeq", "le": "ole", "gt": "ogt", "lg": "one", "ge": "oge", "o": "ord", "u": "uno",
          "nge": "ult", "nlg": "ueq", "ngt": "ule", "nle": "ugt", "neq": "une", "nlt": "uge"}  # fmt: skip
for _t2 in ("f32", "f16"):
    _two, _one = f"{_t2} = {_t2} {_t2}", f"{_t2} = {_t2}"
    for _n2, _op2 in (("add", "fadd"), ("sub", "fsub"), ("mul", "fmul")):
        salu(f"s_{_n2}_{_t2}", _two, lambda o, a, b, op=_op2, t=_t2: o.bin(op, t, a, b))
    salu(f"s_fmac_{_t2}", f"{_t2} = {_t2} {_t2} +{_t2}", lambda o, a, b, d, t=_t2: o.fma(t, a, b, d))
    for _n2 in ("min", "max"):
        salu(f"s_{_n2}_{_t2} s_{_n2}_num_{_t2}", _two, lambda o, a, b, m=_n2 == "max", t=_t2: o.minmax_f(t, m, a, b))
    for _n4 in ("minimum", "maximum"):
        salu(f"s_{_n4}_{_t2}", _two, lambda o, a, b, i=_n4, t=_t2: o.call(i, t, a, b))
    for _n3, _i3 in (("ceil", "ceil"), ("floor", "floor"), ("trunc", "trunc"), ("rndne", "roundeven")):
        salu(f"s_{_n3}_{_t2}", _one, lambda o, a, i=_i3, t=_t2: o.call(i, t, a))
    for _c3, _p3 in _FPRED.items():
        salu(f"s_cmp_{_c3}_{_t2}", f"= {_t2} {_t2}", lambda o, a, b, p=_p3, t=_t2: o.fcmp(p, t, a, b))
salu("s_fmaak_f32", "f32 = f32 f32 f32", lambda o, a, b, k: o.fma("f32", a, b, k))
salu("s_fmamk_f32", "f32 = f32 f32 f32", lambda o, a, k, b: o.fma("f32", a, k, b))
salu("s_cvt_f32_i32", "f32 = i32", lambda o, a: o.cast("sitofp", "i32", "f32", a))
salu("s_cvt_f32_u32", "f32 = i32", lambda o, a: o.cast("uitofp", "i32", "f32", a))
salu("s_cvt_i32_f32", "i32 = f32", lambda o, a: f32_to_int(o, a, True))
salu("s_cvt_u32_f32", "i32 = f32", lambda o, a: f32_to_int(o, a, False))
salu("s_cvt_f16_f32", "f16 = f32", lambda o, a: o.fptrunc("f32", "f16", a))
salu("s_cvt_f32_f16", "f32 = f16", lambda o, a: o.fpext("f16", "f32", a))
salu("s_cvt_hi_f32_f16", "f32 = i32", lambda o, a: o.fpext("f16", "f32", o.bitcast("i16", "f16", o.trunc("i32", "i16", o.lshr(a, "16")))))  # fmt: skip


def _pk_rtz(o: Ops, a: str, b: str) -> str:
    low, high = (o.zext("i16", "i32", o.bitcast("f16", "i16", rtz16(o, x))) for x in (a, b))
    return _pack16(o, low, high, False, False)


salu("s_cvt_pk_rtz_f16_f32", "i32 = f32 f32", _pk_rtz)


def rtz16(o: Ops, a: str) -> str:
    """f32 to f16, rounded toward zero: overflow gives the largest finite."""
    near = o.fptrunc("f32", "f16", a)
    back = o.fpext("f16", "f32", near)

    def mag(x: str) -> str:
        return o.and_(o.bitcast("f32", "i32", x), o.const("i32", 0x7FFFFFFF))

    # Round to nearest went past the value where its magnitude is larger: step back one unit.
    past = o.icmp("ugt", "i32", mag(back), mag(a))
    nan = o.fcmp("uno", "f32", a, a)
    past = o.and_(past, o.not_(nan, "i1"), "i1")
    bits = o.bitcast("f16", "i16", near)
    return o.bitcast("i16", "f16", o.sub(bits, o.zext("i1", "i16", past), "i16"))


def _quads(o: Ops, a: str, t: str) -> str:
    """A bit for each four, set where one of them is."""
    total = "0"
    for i in range(int(t[1:]) // 4):
        some = o.icmp("ne", t, o.and_(a, o.const(t, 15 << 4 * i), t), "0")
        total = o.or_(total, o.shl(o.zext("i1", t, some), str(i), t), t)
    return total


def _doubled(o: Ops, a: str) -> str:
    """Each bit twice."""
    x = o.zext("i32", "i64", a)
    for shift in (16, 8, 4, 2, 1):
        mask = sum(((1 << shift) - 1) << at for at in range(0, 64, 2 * shift))
        x = o.and_(o.or_(x, o.shl(x, str(shift), "i64"), "i64"), o.const("i64", mask), "i64")
    return o.or_(x, o.shl(x, "1", "i64"), "i64")


for _w in ("32", "64"):
    salu(f"s_quadmask_b{_w}", f"i{_w} = i{_w}", lambda o, a, t="i" + _w: _quads(o, a, t), scc="nz")
salu("s_bitreplicate_b64_b32", "i64 = i32", _doubled)


def f32_to_int(o: Ops, a: str, signed: bool, t: str = "f32", dst: str = "i32") -> str:
    """Truncate, saturate at the ends, NaN to 0."""
    name = f"llvm.fpto{'s' if signed else 'u'}i.sat"
    n = f"v{o.lanes}" if o.lanes else ""
    full = f"@{name}.{n}{dst}.{n}{t}"
    o.out.declares.add(f"declare {o.type(dst)} {full}({o.type(t)})")
    return o.out.emit(f"call {o.type(dst)} {full}({o.type(t)} {a})")
