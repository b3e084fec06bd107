"""gfx1250's conversions between f32, f16, bf16 and floats of 8, 6 and 4 bits, eight or sixteen at a time with scales; its exchanges of lanes and table look-ups.

`v_cvt_scale_pk` multiplies by an E8M0 byte of its scale, which `scale_sel` names; `v_cvt_scalef32_pk` divides by the power of two of an f32's exponent. Where one random
number serves several elements, each further one takes the next of v_prng_b32's. Source: ROCm's rocjitsu (lib/python/amdisa/codegen/execute/vector_special.py); LLVM's
BuiltinsAMDGPU.td for the operands. What bits of scale_sel beyond two do, they do not agree on.
"""

from __future__ import annotations

from ..decode.inst import Inst
from ..translate.wave import Wave
from .convert import (
    block,
    codes_in,
    fields,
    halves_in,
    narrow,
    narrowed,
    next_random,
    picked,
    random_byte,
    small_bits,
    wide,
    write_codes,
    write_wide,
)
from .float8 import e8m0 as power
from .float8 import encode
from .lane import dynamic_gather
from .packed import join16
from .table import custom, valu

for _kind in ("fp8", "bf8"):
    custom(f"v_cvt_sr_{_kind}_f16", "valu", (12,))(random_byte(_kind, "f16", False))


def _one_f16(kind: str):  # type: ignore[no-untyped-def]
    def fn(w: Wave, word: str) -> str:
        assert w.inst is not None
        chosen = w.op_sel_bits
        value = wide(w, picked(w, w.inst, word, 8), kind, None)
        w.op_sel_bits = chosen
        return w.v.fptrunc("f32", "f16", value)

    return fn


def _two_f16(kind: str):  # type: ignore[no-untyped-def]
    return lambda w, half: join16(w.v, "f16", *(w.v.fptrunc("f32", "f16", wide(w, c, kind, None)) for c in fields(w, w.v.zext("i16", "i32", half), 8, 2)))  # fmt: skip


def _two_small(kind: str):  # type: ignore[no-untyped-def]
    def fn(w: Wave, word: str) -> str:
        o = w.v
        halves = [
            o.fpext("f16", "f32", o.bitcast("i16", "f16", o.trunc("i32", "i16", h))) for h in fields(w, word, 16, 2)
        ]
        low, high = (narrow(w, x, kind) for x in halves)
        return o.trunc("i32", "i16", o.or_(low, o.shl(high, o.const("i32", 8))))

    return fn


for _kind in ("fp8", "bf8"):
    valu(f"v_cvt_f16_{_kind}", "f16 = i32", _one_f16(_kind), wave=True, generations=(12,))
    valu(f"v_cvt_pk_f16_{_kind}", "i32 = i16", _two_f16(_kind), wave=True, generations=(12,))
    valu(f"v_cvt_pk_{_kind}_f16", "i16 = i32", _two_small(_kind), wave=True, generations=(12,))


def _random_pair(t: str):  # type: ignore[no-untyped-def]
    def fn(w: Wave, a: str, b: str, seed: str) -> str:
        o = w.v
        saturate = t == "f16" and w.f16_overflow
        codes = [encode(o, x, t, saturate=saturate, random=s) for x, s in ((a, seed), (b, next_random(o, seed)))]
        return o.or_(codes[0], o.shl(codes[1], o.const("i32", 16)))

    return fn


for _t in ("f16", "bf16"):
    valu(f"v_cvt_sr_pk_{_t}_f32", "i32 = f32 f32 i32", _random_pair(_t), wave=True, generations=(12,))


def _widen(kind: str, t: str, count: int):  # type: ignore[no-untyped-def]
    def handler(w: Wave, inst: Inst) -> None:
        o, bits = w.v, small_bits(kind)
        sel = inst.take_int("scale_sel")
        if sel > 3:
            raise w.fail("scale_sel beyond the four bytes of a scale")
        dst, source, _ = inst.operands
        scale = power(o, o.lshr(w.source(2, "i32"), o.const("i32", 8 * sel)))
        codes = codes_in(w, block(w, source, bits * count // 32), bits, count)
        plain = [wide(w, c, kind, None) for c in codes]
        write_wide(w, dst, t, [o.bin("fmul", "f32", x, scale) for x in plain], plain)

    return handler


def _narrow(kind: str, t: str, count: int, random: bool):  # type: ignore[no-untyped-def]
    def handler(w: Wave, inst: Inst) -> None:
        dst, source, *_ = inst.operands
        words = block(w, source, count if t == "f32" else count // 2)
        values = [w.v.bitcast("i32", "f32", x) for x in words] if t == "f32" else halves_in(w, words, t)
        seed = w.source(2, "i32") if random else None
        scale = w.source(3 if random else 2, "f32")
        write_codes(w, dst, narrowed(w, values, kind, seed, scale), small_bits(kind))

    return handler


for _count, _kinds in ((8, ("fp8", "bf8", "fp4")), (16, ("fp6", "bf6"))):
    for _kind in _kinds:
        for _t in ("f32", "f16", "bf16"):
            custom(f"v_cvt_scale_pk{_count}_{_t}_{_kind}", "valu", (12,))(_widen(_kind, _t, _count))
            custom(f"v_cvt_scalef32_pk{_count}_{_kind}_{_t}", "valu", (12,))(_narrow(_kind, _t, _count, False))
            custom(f"v_cvt_scalef32_sr_pk{_count}_{_kind}_{_t}", "valu", (12,))(_narrow(_kind, _t, _count, True))


# Sixteen entries of a table, of 4, 6 or 8 bits, which lies in src1 and above it in src0, by sixteen numbers of 4 bits.


def _look_up(bits: int):  # type: ignore[no-untyped-def]
    def handler(w: Wave, inst: Inst) -> None:
        o = w.v
        dst, high, low, which = inst.operands
        table = codes_in(w, [x for op in (low, high) for x in block(w, op, op.count)], bits, 16)
        out = []
        for pick in codes_in(w, block(w, which, 2), 4, 16):
            value = table[0]
            for n in range(1, 16):
                value = o.select(o.icmp("eq", "i32", pick, o.const("i32", n)), "i32", table[n], value)
            out.append(value)
        write_codes(w, dst, out, bits)

    return handler


for _bits in (4, 6, 8):
    custom(f"v_perm_pk16_b{_bits}_u4", "valu", (12,))(_look_up(_bits))


# Exchanges within groups of as many lanes as the last operand says, a power of two (all of them else); what comes from outside the group is 0. Lanes that are off
# are read as well.


def _exchange(how: str):  # type: ignore[no-untyped-def]
    def handler(w: Wave, inst: Inst) -> None:
        o, s = w.v, w.s
        number, width = w.scalar(inst.operands[2]), w.scalar(inst.operands[3])
        odd = s.icmp("ne", "i32", s.call("ctpop", "i32", width), "1")
        large = s.icmp("ugt", "i32", width, str(w.lanes))
        width = s.select(s.or_(odd, large, "i1"), "i32", str(w.lanes), width)
        lane = o.vector_const("i32", list(range(w.lanes)))
        within = o.and_(lane, o.splat("i32", s.sub(width, "1")))
        base, n = o.sub(lane, within), o.splat("i32", number)
        if how == "bcast":
            at = o.splat("i32", s.and_(number, s.sub(width, "1")))
        else:
            at = {"down": o.add, "up": o.sub, "xor": o.xor}[how](within, n)
        inside = o.icmp("ult", "i32", at, o.splat("i32", width))
        if how == "down":  # a sum that wraps is outside
            inside = o.and_(inside, o.icmp("uge", "i32", at, within), "i1")
        source = o.select(inside, "i32", o.add(base, at), lane)
        got = dynamic_gather(w, w.reg("v", inst.operands[1].index), source)
        w.write(0, o.select(inside, "i32", got, o.const("i32", 0)), "i32")

    return handler


for _how in ("bcast", "down", "up", "xor"):
    custom(f"v_permlane_{_how}_b32", "lane", (12,))(_exchange(_how))


@custom("v_permlane_idx_gen_b32", "lane", (12,))
def _index(w: Wave, inst: Inst) -> None:
    w.write(0, w.v.xor(w.reg("v", inst.operands[1].index), w.v.splat("i32", w.scalar(inst.operands[2]))), "i32")
