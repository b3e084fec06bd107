"""Packed opcodes (two 16-bit or two f32 operations at once), mixed precision, and float dot products.

Source: AMD ISA manuals, "Packed math" (VOP3P): op_sel picks the half that feeds the low result, op_sel_hi the half that feeds the
high one, neg_lo and neg_hi negate per half. An inline constant stands in the low half. To an integer opcode it is a word: 0.5 is float32's
0x3F000000, from which op_sel takes 0x3F00 (LLVM's pull request 76522, by AMD: "matches HW behavior and SP3").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..decode.inst import Inst, Operand
from ..translate.ops import Ops
from ..translate.wave import FLOATS, Wave
from .float8 import decode
from .table import custom


class Selectors:
    """op_sel, op_sel_hi, neg_lo, neg_hi of one instruction, consumed; missing lists have their defaults."""

    def __init__(self, inst: Inst, sources: int, hi_default: int = 1):
        def of(name: str, default: int) -> list[int]:
            value = inst.take_list(name) or []
            return value + [default] * (sources - len(value))

        self.lo = of("op_sel", 0)
        self.hi = of("op_sel_hi", hi_default)
        self.neg_lo = of("neg_lo", 0)
        self.neg_hi = of("neg_hi", 0)


def _half(w: Wave, op: Operand, t: str, high: int) -> str:
    """One 16-bit half of an operand."""
    if op.neg or op.abs:
        raise w.fail(f"modifier of {op.text!r} on a packed operand")
    o = w.v
    inst = w.inst
    if inst is not None and inst.encoding in ("dpp", "dpp8", "e64_dpp") and op is inst.operands[1]:
        raw = w.routed(inst, op, 1)
    elif op.kind in ("v", "a"):
        raw = w.reg(op.kind, op.index)
    elif op.kind == "s":
        raw = o.splat("i32", w.reg("s", op.index))
    elif op.kind == "float" or (op.kind == "int" and -16 <= op.value <= 64):
        bits = w.literal(op, t)
        if t == "i16":
            bits = w.literal(op, "i32") >> (16 if high else 0) & 0xFFFF
        elif high:  # of an integer its sign, of a float nothing
            bits = 0 if op.kind == "float" else (int(op.value) >> 16) & 0xFFFF
        return o.bitcast("i16", t, o.const("i16", bits))
    elif op.kind == "int":
        return o.bitcast("i16", t, o.const("i16", (int(op.value) >> (16 if high else 0)) & 0xFFFF))
    elif op.kind == "special":
        raw = o.splat("i32", w.scalar(op, "i32"))
    else:
        raise w.fail(f"packed operand {op.text!r}")
    if high:
        raw = o.lshr(raw, o.const("i32", 16))
    return o.bitcast("i16", t, o.trunc("i32", "i16", raw))


def join16(o: Ops, t: str, lo: str, hi: str) -> str:
    low, high = (o.zext("i16", "i32", o.bitcast(t, "i16", x)) for x in (lo, hi))
    return o.or_(low, o.shl(high, o.const("i32", 16)))


def packed16(names: str, t: str, sources: int, fn: Callable[..., str], sat: Callable[..., str] | None = None) -> None:
    def handler(w: Wave, inst: Inst) -> None:
        sel = Selectors(inst, sources)
        clamp = inst.take("clamp") is not None
        ops = inst.operands[1:]
        if len(ops) != sources:
            raise w.fail(f"{len(ops)} sources, want {sources}")
        results = []
        for picks, negs in ((sel.lo, sel.neg_lo), (sel.hi, sel.neg_hi)):
            args = [_half(w, op, t, picks[i]) for i, op in enumerate(ops)]
            if any(negs):
                if t not in FLOATS:
                    raise w.fail("neg_lo or neg_hi on integers")
                args = [w.v.fneg(t, a) if negs[i] else a for i, a in enumerate(args)]
            if t in FLOATS:
                w.floats_read = []  # each half's overflow is its own
                value = w.result(t, fn(w.v, *(w.operand(t, a) for a in args)))
                results.append(w.clamp01(t, value) if clamp else value)
            elif clamp:
                if sat is None:
                    raise w.fail("clamp")
                results.append(sat(w.v, *args))
            else:
                results.append(fn(w.v, *args))
        w.write(0, join16(w.v, t, *results), "i32")

    custom(names, "packed")(handler)


for _n, _op in (("add", "fadd"), ("mul", "fmul")):
    for _t in ("f16", "bf16"):
        if _t == "f16":
            packed16(f"v_pk_{_n}_f16", _t, 2, lambda o, a, b, op=_op: o.bin(op, "f16", a, b))
        else:
            packed16(f"v_pk_{_n}_bf16", _t, 2, lambda o, a, b, op=_op: o.f32_to_bf16(o.bin(op, "f32", o.fpext("bf16", "f32", a), o.fpext("bf16", "f32", b))))  # fmt: skip
packed16("v_pk_fma_f16", "f16", 3, lambda o, a, b, c: o.fma("f16", a, b, c))
for _n in ("min", "max"):
    packed16(f"v_pk_{_n}_f16 v_pk_{_n}_num_f16", "f16", 2, lambda o, a, b, m=_n == "max": o.minmax_f("f16", m, a, b))
    packed16(f"v_pk_{_n}imum_f16", "f16", 2, lambda o, a, b, m=_n + "imum": o.call(m, "f16", a, b))
    packed16(
        f"v_pk_{_n}imum3_f16", "f16", 3, lambda o, a, b, c, m=_n + "imum": o.call(m, "f16", o.call(m, "f16", a, b), c)
    )
    for _t, _s in (("i16", "s"), ("u16", "u")):
        packed16(f"v_pk_{_n}_{_t}", "i16", 2, lambda o, a, b, i=_s + _n: o.call(i, "i16", a, b))
for _n in ("add", "sub"):
    for _t, _s in (("i16", "s"), ("u16", "u")):
        packed16(f"v_pk_{_n}_{_t}", "i16", 2, lambda o, a, b, n=_n: o.bin(n, "i16", a, b), lambda o, a, b, n=f"{_s}{_n}.sat": o.call(n, "i16", a, b))  # fmt: skip
packed16("v_pk_mul_lo_u16", "i16", 2, lambda o, a, b: o.mul(a, b, "i16"))
packed16("v_pk_mad_i16 v_pk_mad_u16", "i16", 3, lambda o, a, b, c: o.add(o.mul(a, b, "i16"), c, "i16"))
for _n, _op in (("lshlrev_b16", "shl"), ("lshrrev_b16", "lshr"), ("ashrrev_i16", "ashr")):
    packed16(f"v_pk_{_n}", "i16", 2, lambda o, s, a, op=_op: o.bin(op, "i16", a, o.masked(s, 4, "i16")))


@custom("v_pk_fmac_f16", "packed")
def _pk_fmac(w: Wave, inst: Inst) -> None:
    a, b, d = inst.operands[1], inst.operands[2], inst.operands[0]
    parts = []
    for h in (0, 1):
        w.floats_read = []
        parts.append(w.result("f16", w.v.fma("f16", *(w.operand("f16", _half(w, op, "f16", h)) for op in (a, b, d)))))
    w.write(0, join16(w.v, "f16", *parts), "i32")


# Two f32 at once (gfx90a and later).


def _word(w: Wave, op: Operand, high: int) -> str:
    o = w.v
    if op.neg or op.abs:
        raise w.fail(f"modifier of {op.text!r} on a packed operand")
    if op.kind in ("v", "a"):
        if op.count != 2:
            raise w.fail(f"{op.text} as a pair of f32")
        return w._typed(op.kind, op.index + high, "f32")
    if op.kind == "s":
        if op.count == 1 and high:
            raise w.fail(f"the high word of {op.text}")
        return o.splat("f32", w._typed("s", op.index + high, "f32"))
    if op.kind in ("int", "float"):
        if high and op.value:
            raise w.fail(f"the high word of constant {op.text}")
        return o.bitcast("i32", "f32", o.const("i32", w.literal(op, "f32")))
    raise w.fail(f"packed operand {op.text!r}")


def _packed32(names: str, sources: int, fn: Callable[..., str]) -> None:
    def handler(w: Wave, inst: Inst) -> None:
        sel = Selectors(inst, sources)
        clamp = inst.take("clamp") is not None
        dst, *ops = inst.operands
        results = []
        for picks, negs in ((sel.lo, sel.neg_lo), (sel.hi, sel.neg_hi)):
            args = [_word(w, op, picks[i]) for i, op in enumerate(ops)]
            args = [w.v.fneg("f32", a) if negs[i] else a for i, a in enumerate(args)]
            value = w.result("f32", fn(w.v, *(w.operand("f32", a) for a in args)))
            results.append(w.clamp01("f32", value) if clamp else value)
        for k, value in enumerate(results):
            w.write_reg(dst.kind, dst.index + k, value, "f32")

    custom(names, "packed")(handler)


_packed32("v_pk_add_f32", 2, lambda o, a, b: o.bin("fadd", "f32", a, b))
_packed32("v_pk_mul_f32", 2, lambda o, a, b: o.bin("fmul", "f32", a, b))
_packed32("v_pk_fma_f32", 3, lambda o, a, b, c: o.fma("f32", a, b, c))


@custom("v_pk_mov_b32", "packed")
def _pk_mov(w: Wave, inst: Inst) -> None:
    """The low result from src0, the high one from src1: each picks its word with op_sel."""
    sel = Selectors(inst, 2)
    dst, a, b = inst.operands
    lo, hi = _word(w, a, sel.lo[0]), _word(w, b, sel.lo[1])
    w.write_reg(dst.kind, dst.index, lo, "f32")
    w.write_reg(dst.kind, dst.index + 1, hi, "f32")


# Mixed precision: each source is f32, or the half of a register that op_sel names where op_sel_hi says f16. MODE's denormals are those of each operand's type, and
# of the result's; FP16_OVFL holds for results in f16.


def _mix_source(w: Wave, op: Operand, half: int, is16: int, neg: int, absolute: int, t: str) -> str:
    o = w.v
    if is16:
        bare = Operand(op.kind, op.text, op.index, op.count, op.half, op.value)
        value = o.fpext(t, "f32", w.operand(t, _half(w, bare, t, half)))
    elif op.kind in ("v", "a"):
        value = w.operand("f32", w._typed(op.kind, op.index, "f32"))
    else:
        value = w.operand(
            "f32", o.splat("f32", w.scalar(Operand(op.kind, op.text, op.index, op.count, value=op.value), "f32"))
        )
    if op.abs or absolute:
        value = o.call("fabs", "f32", value)
    return o.fneg("f32", value) if op.neg ^ bool(neg) else value


def _mix(names: str, result: str, t: str = "f16") -> None:
    """Fused multiply-adds in float32 whose operands are float32 or halves of registers."""

    def handler(w: Wave, inst: Inst) -> None:
        sel = Selectors(inst, 3, hi_default=0)
        clamp = inst.take("clamp") is not None
        # In these opcodes neg_lo is the sign and neg_hi the absolute value.
        args = [
            _mix_source(w, op, sel.lo[i], sel.hi[i], sel.neg_lo[i], sel.neg_hi[i], t)
            for i, op in enumerate(inst.operands[1:])
        ]
        value = w.v.fma("f32", *args)
        if clamp:
            value = w.clamp01("f32", value)
        if result == "f32":
            w.write(0, value, "f32")
            return
        o = w.v
        dst = inst.operands[0]
        bits = o.zext("i16", "i32", o.bitcast(t, "i16", w.result(t, o.fptrunc("f32", t, value))))
        old = w.reg(dst.kind, dst.index)
        if result == "lo":
            joined = o.or_(bits, o.and_(old, o.const("i32", 0xFFFF0000)))
        else:
            joined = o.or_(o.shl(bits, o.const("i32", 16)), o.and_(old, o.const("i32", 0xFFFF)))
        w.write_reg(dst.kind, dst.index, joined)

    custom(names, "packed")(handler)


_mix("v_fma_mix_f32", "f32")
_mix("v_fma_mixlo_f16", "lo")
_mix("v_fma_mixhi_f16", "hi")
for _place in ("lo", "hi"):  # gfx1250
    _mix(f"v_fma_mix{_place}_bf16", _place, "bf16")
_mix("v_fma_mix_f32_bf16", "f32", "bf16")


# Dot products of two halves, accumulated in f32. Those of f16 take denormals of f32 for zero in any mode, in and out (LLVM's SIISelLowering, at the fold to FDOT2);
# f16's are kept or not as MODE says.


def _dot2(names: str, t: str, accumulate: bool) -> None:
    """Instructions that add products of two pairs to a sum. accumulate: to the destination."""

    def handler(w: Wave, inst: Inst) -> None:
        o = w.v
        sel = Selectors(inst, 3)
        clamp = inst.take("clamp") is not None
        a, b = inst.operands[1], inst.operands[2]
        if accumulate:
            total = w._typed(inst.operands[0].kind, inst.operands[0].index, "f32")
        else:
            c = inst.operands[3]
            if c.kind in ("v", "a"):
                total = w._typed(c.kind, c.index, "f32")
            else:
                total = o.splat("f32", w.scalar(Operand(c.kind, c.text, c.index, c.count, value=c.value), "f32"))
            if c.abs:
                total = o.call("fabs", "f32", total)
            if c.neg or sel.neg_lo[2]:
                total = o.fneg("f32", total)
        total = w.flushed("f32", total) if t == "f16" else w.operand("f32", total)
        for picks, negs in ((sel.lo, sel.neg_lo), (sel.hi, sel.neg_hi)):
            x = o.fpext(t, "f32", w.operand(t, _half(w, a, t, picks[0])))
            y = o.fpext(t, "f32", w.operand(t, _half(w, b, t, picks[1])))
            x = o.fneg("f32", x) if negs[0] else x
            y = o.fneg("f32", y) if negs[1] else y
            total = o.fma("f32", x, y, total)
        total = w.flushed("f32", total) if t == "f16" else total
        w.write(0, w.clamp01("f32", total) if clamp else total, "f32")

    custom(names, "packed")(handler)


_dot2("v_dot2_f32_f16", "f16", False)
_dot2("v_dot2c_f32_f16 v_dot2acc_f32_f16 v_dual_dot2acc_f32_f16", "f16", True)
_dot2("v_dot2_f32_bf16", "bf16", False)
_dot2("v_dot2c_f32_bf16 v_dot2acc_f32_bf16 v_dual_dot2acc_f32_bf16", "bf16", True)


# gfx11's dot products with 16-bit results: op_sel's third bit is the accumulator's half, the fourth the result's; summed like those in f32, rounded once.


def _dot2_half(t: str):  # type: ignore[no-untyped-def]
    def handler(w: Wave, inst: Inst) -> None:
        o = w.v
        sel = inst.take_list("op_sel") or [0, 0, 0, 0]
        dst, a, b, c = inst.operands
        signs = [(op.neg, op.abs) for op in (a, b, c)]
        if any(any(x) for x in signs[:2]):
            raise w.fail("signs of a packed operand")
        bare = replace(c, neg=False, abs=False)
        total = o.fpext(t, "f32", w.operand(t, _half(w, bare, t, int(c.half == "h") if c.half else sel[2])))
        total = o.call("fabs", "f32", total) if c.abs else total
        total = o.fneg("f32", total) if c.neg else total
        for half in (0, 1):
            x, y = (o.fpext(t, "f32", w.operand(t, _half(w, op, t, half))) for op in (a, b))
            total = o.fma("f32", x, y, total)
        bits = o.zext("i16", "i32", o.bitcast(t, "i16", w.result(t, o.fptrunc("f32", t, total))))
        high = dst.half == "h" if dst.half else bool(sel[-1])
        old = o.and_(w.reg(dst.kind, dst.index), o.const("i32", 0xFFFF if high else 0xFFFF0000))
        w.write_reg(dst.kind, dst.index, o.or_(old, o.shl(bits, o.const("i32", 16)) if high else bits))

    return handler


custom("v_dot2_f16_f16", "packed", (11, 12))(_dot2_half("f16"))
custom("v_dot2_bf16_bf16", "packed", (11, 12))(_dot2_half("bf16"))


def _dot4_small(kinds: tuple[str, str]):  # type: ignore[no-untyped-def]
    """gfx12: four products of 8-bit floats, added to an f32 one after another."""

    def handler(w: Wave, inst: Inst) -> None:
        o = w.v
        sel = Selectors(inst, 3)
        if any(sel.neg_lo[:2]) or any(sel.neg_hi[:2]):
            raise w.fail("signs of 8-bit floats")
        words = [w.source(i, "i32") for i in (1, 2)]
        total = w.source(3, "f32")
        total = o.call("fabs", "f32", total) if sel.neg_hi[2] else total
        total = o.fneg("f32", total) if sel.neg_lo[2] else total
        for i in range(4):
            codes = [o.and_(o.lshr(x, o.const("i32", 8 * i)), o.const("i32", 255)) for x in words]
            x, y = (decode(o, c, k, fnuz=False) for c, k in zip(codes, kinds))
            total = o.fma("f32", x, y, total)
        w.write(0, total, "f32")

    return handler


for _a in ("fp8", "bf8"):
    for _b in ("fp8", "bf8"):
        custom(f"v_dot4_f32_{_a}_{_b}", "packed", (12,))(_dot4_small((_a, _b)))
