"""gfx1250's own vector rows: pairs of 64-bit and three-operand instructions (VOPD3), 64-bit and fused integers, bf16 arithmetic, packed forms.

Source: LLVM 22's VOP1Instructions.td to VOPDInstructions.td (operands and types) and ROCm's rocjitsu (isa/arch/amdgpu, "cdna5", made from AMD's description
of the CDNA 5 instruction set), where a name does not say all. Arithmetic of bf16 is that of f32 on the same numbers, rounded once to nearest even.
"""

from __future__ import annotations

from collections.abc import Callable

from ..decode.inst import Inst
from ..translate.ops import Ops
from ..translate.wave import VCC, Wave
from .packed import packed16
from .table import custom, valu
from .vector_float import TRANS_KEEP
from .vector_int import I, bitop3

# Halves of VOPD instructions; what VOPD has on gfx11 and gfx12 too stands beside its plain sister.
valu("v_dual_sub_nc_u32", I, lambda o, a, b: o.sub(a, b))
valu("v_dual_lshrrev_b32", I, lambda o, s, a: o.lshr(a, o.masked(s, 5)))
valu("v_dual_ashrrev_i32", I, lambda o, s, a: o.ashr(a, o.masked(s, 5)))
valu("v_dual_bitop2_b32", I, lambda w, a, b: bitop3(w, a, b, w.v.const("i32", 0), "i32"), wave=True)
for _n, _i in (("max", "smax"), ("min", "smin")):
    valu(f"v_dual_{_n}_i32", I, lambda o, a, b, i=_i: o.call(i, "i32", a, b))
    valu(f"v_dual_{_n}_num_f64", "f64 = f64 f64", lambda o, a, b, m=_n == "max": o.minmax_f("f64", m, a, b))
for _n, _op in (("add", "fadd"), ("mul", "fmul")):
    valu(f"v_dual_{_n}_f64", "f64 = f64 f64", lambda o, a, b, op=_op: o.bin(op, "f64", a, b))
for _t in ("f32", "f64"):
    valu(f"v_dual_fma_{_t}", f"{_t} = {_t} {_t} {_t}", lambda o, a, b, c, t=_t: o.fma(t, a, b, c))


@custom("v_dual_cndmask_b32", "valu")
def _dual_cndmask(w: Wave, inst: Inst) -> None:
    """By VCC, or by the mask that VOPD3 names."""
    mask = w.mask(inst.operands[3].index if len(inst.operands) > 3 else VCC)
    w.write(0, w.v.select(mask, "f32", w.source(2, "f32"), w.source(1, "f32")), "f32")


# Integers.
valu("v_mad_u32", "i32 = i32 i32 i32", lambda o, a, b, c: o.add(o.mul(a, b), c))
for _n, _ext in (("v_mad_nc_u64_u32", "zext"), ("v_mad_nc_i64_i32", "sext")):
    valu(_n, "i64 = i32 i32 i64", lambda o, a, b, c, e=_ext: o.add(o.mul(getattr(o, e)("i32", "i64", a), getattr(o, e)("i32", "i64", b), "i64"), c, "i64"))  # fmt: skip
for _t, _s in (("i64", "s"), ("u64", "u")):
    for _n in ("min", "max"):
        valu(f"v_{_n}_{_t}", "i64 = i64 i64", lambda o, a, b, i=_s + _n: o.call(i, "i64", a, b))


def _add_then(kind: str, t: str, saturates: bool) -> Callable[[Ops, str, str, str], str]:
    """The larger or smaller of a + b (which wraps, or with clamp saturates) and c; kind: "smax" to "umin"."""

    def fn(o: Ops, a: str, b: str, c: str) -> str:
        total = o.call(f"{kind[0]}add.sat", t, a, b) if saturates else o.add(a, b, t)
        return o.call(kind, t, total, c)

    return fn


for _s, _letter in (("s", "i"), ("u", "u")):
    for _n in ("max", "min"):
        _plain, _sat = (_add_then(_s + _n, "i32", s) for s in (False, True))
        valu(f"v_add_{_n}_{_letter}32", "i32 = i32 i32 i32", _plain, sat=_sat)
        _plain, _sat = (_add_then(_s + _n, "i16", s) for s in (False, True))
        packed16(f"v_pk_add_{_n}_{_letter}16", "i16", 3, _plain, _sat)
        packed16(f"v_pk_{_n}3_{_letter}16", "i16", 3, lambda o, a, b, c, i=_s + _n: o.call(i, "i16", o.call(i, "i16", a, b), c))  # fmt: skip
for _n in ("max", "min"):
    packed16(f"v_pk_{_n}3_num_f16", "f16", 3, lambda o, a, b, c, m=_n == "max": o.minmax_f("f16", m, o.minmax_f("f16", m, a, b), c))  # fmt: skip

# bf16.


def _by_f32(fn: Callable[..., str]) -> Callable[..., str]:
    """A function of f32 on bf16, rounded once at its end."""
    return lambda o, *args: o.f32_to_bf16(fn(o, *(o.fpext("bf16", "f32", a) for a in args)))


packed16("v_pk_fma_bf16", "bf16", 3, _by_f32(lambda o, a, b, c: o.fma_odd_bf16(a, b, c)))
for _n in ("max", "min"):
    packed16(f"v_pk_{_n}_num_bf16", "bf16", 2, lambda o, a, b, m=_n == "max": o.minmax_f("bf16", m, a, b))
for _n, _fn in TRANS_KEEP.items():
    valu(f"v_{_n}_bf16", "bf16 = bf16", _by_f32(_fn), kind="trans")


def _tanh(o: Ops, a: str) -> str:
    return o.helper("tanh", "f32", ("f32", a))


valu("v_tanh_f32", "f32 = f32", _tanh, kind="trans")
valu("v_tanh_f16", "f16 = f16", lambda o, a: o.fptrunc("f32", "f16", _tanh(o, o.fpext("f16", "f32", a))), kind="trans")
valu("v_tanh_bf16", "bf16 = bf16", _by_f32(_tanh), kind="trans")


# Four bytes to four fields of 4 bits, saturated.


def _sat_pk4(signed: bool) -> Callable[[Ops, str], str]:
    def fn(o: Ops, a: str) -> str:
        result = o.const("i32", 0)
        for i in range(4):
            up = o.shl(a, o.const("i32", 24 - 8 * i))
            byte = o.bin("ashr" if signed else "lshr", "i32", up, o.const("i32", 24))
            if signed:
                byte = o.call("smax", "i32", o.call("smin", "i32", byte, o.const("i32", 7)), o.const("i32", -8))
            else:
                byte = o.call("umin", "i32", byte, o.const("i32", 15))
            result = o.or_(result, o.shl(o.and_(byte, o.const("i32", 15)), o.const("i32", 4 * i)))
        return o.trunc("i32", "i16", result)

    return fn


valu("v_sat_pk4_i4_i8", "i16 = i32", _sat_pk4(True))
valu("v_sat_pk4_u4_u8", "i16 = i32", _sat_pk4(False))
