"""Operands of one wavefront's instructions: reads and writes with every modifier.

A vector write keeps the old value of lanes that EXEC leaves out, unless the translator knows that all lanes are on (`full`).
"""

from __future__ import annotations

from ..analyses.modes import DENORMALS_F16, DENORMALS_F32, OVERFLOW
from ..decode.inst import Inst, Operand, float_bits
from .dpp import dpp_source, sdwa_insert, sdwa_select
from .ops import BITS, Ops
from .registers import EXEC, FLAT_SCRATCH, FLOATS, M0, VCC, Options, Registers

__all__ = ["EXEC", "FLAT_SCRATCH", "FLOATS", "M0", "VCC", "Options", "Wave"]


class Wave(Registers):
    """A wave's registers and the operands of its instructions. `v` writes vector IR, `s` scalar IR; both to the same function."""

    # MODE before this instruction: see `modes`.
    float_mode: int
    mode_unknown = 0
    # The operands that M0 is added to (the index mode of gfx9), within straight code.
    gpr_index: frozenset[str] = frozenset()

    def mode(self, first: int, width: int = 1) -> int:
        """Bits of MODE, which this instruction depends on."""
        if self.mode_unknown >> first & (1 << width) - 1:
            raise self.fail(
                "a float mode that is not the same on all paths here, or comes out of a register (s_setreg of a constant is modelled)"
            )
        return self.float_mode >> first & (1 << width) - 1

    @property
    def f16_overflow(self) -> bool:
        """FP16_OVFL: an f16 result that overflows is the largest finite number."""
        return bool(self.mode(OVERFLOW))

    def _keeps(self, t: str, result: bool) -> bool:
        """Whether denormal operands, or results, of a float type stay what they are."""
        return t == "bf16" or bool(self.mode((DENORMALS_F32 if t == "f32" else DENORMALS_F16) + result))

    def check_index_mode(self) -> None:
        """At a branch or a label."""
        if self.gpr_index:
            raise self.fail("the index mode of registers across a branch")

    def flushed(self, t: str, value: str) -> str:
        """A float with denormals as zeros of their sign."""
        o, i = self.v, f"i{BITS[t]}"
        exponent = {"f16": 0x7C00, "f32": 0x7F800000, "f64": 0x7FF << 52}[t]
        bits = o.bitcast(t, i, value)
        small = o.icmp("eq", i, o.and_(bits, o.const(i, exponent), i), o.const(i, 0))
        return o.bitcast(i, t, o.select(small, i, o.and_(bits, o.const(i, 1 << (BITS[t] - 1)), i), bits))

    def _arithmetic(self) -> bool:
        """Whether the instruction computes with its float operands, and does not just move or classify them."""
        return self.inst is not None and "cndmask" not in self.inst.op and "class" not in self.inst.op

    # Scalar operands.
    def literal(self, op: Operand, t: str) -> int:
        """The bits that a constant operand stands for, where type `t` is wanted."""
        bits = BITS[t]
        if op.kind == "float":
            fmt = {"f64": "d", "i64": "d", "f16": "e", "i16": "e"}.get(t, "f")
            if t == "bf16":
                return float_bits(op.value, "f") >> 16
            return float_bits(op.value, fmt)
        value = int(op.value)
        if t == "f64" and not -16 <= value <= 64:
            if "lit64(" in op.text or (value >> 32 and value >> 32 != -1):
                return value & ((1 << 64) - 1)  # a 64-bit literal (gfx1250)
            return (value & 0xFFFFFFFF) << 32  # a 32-bit literal is the upper half of a double
        return value & ((1 << bits) - 1)

    def scalar(self, op: Operand, t: str = "i32") -> str:
        """A scalar operand's value as an integer type (i16, i32 or i64) or a float type."""
        self.no_modifiers(op, t)
        ops = self.s
        integer = "i" + str(BITS[t])
        if op.kind in ("int", "float"):
            bits = ops.const(integer, self.literal(op, t))
            return bits if integer == t else self._const_float(t, self.literal(op, t))
        if op.kind == "s":
            if BITS[t] == 64:
                return ops.bitcast("i64", t, self.sgpr64(op.index))
            if BITS[t] == 32:
                return self._typed("s", op.index, t)
            return ops.bitcast("i16", t, ops.trunc("i32", "i16", self.reg("s", op.index)))
        if op.kind == "special":
            value = self.special(op.bare)
            if value is not None:
                if BITS[t] != 64 and value[0] == "%":
                    value = ops.trunc("i64", integer, value)
                if t == integer:
                    return value
                return ops.bitcast(integer, t, value) if value[0] == "%" else self._const_float(t, int(value))
        if op.kind == "symbol":
            return self.symbol64(op) if t == "i64" else self.symbol(op)
        raise self.fail(f"operand {op.text!r} as a scalar {t}")

    def _const_float(self, t: str, bits: int) -> str:
        """A float constant by its bits (NaNs included), through a bit cast that LLVM folds."""
        return self.s.bitcast("i" + str(BITS[t]), t, self.s.const("i" + str(BITS[t]), bits))

    def special(self, name: str) -> str | None:
        """A special scalar source, as an i64."""
        if name == "null":
            return "0"
        if name in ("scc", "src_scc"):
            return self.s.zext("i1", "i64", self.scc())
        if name in ("src_vccz", "src_execz"):
            bits = self.mask_bits(VCC if name == "src_vccz" else EXEC)
            return self.s.zext("i1", "i64", self.s.icmp("eq", self.mask_type, bits, "0"))
        if name in ("src_shared_base", "src_private_base"):
            return str((1 if name == "src_shared_base" else 2) << 32)
        return None

    def symbol(self, op: Operand) -> str:
        raise self.fail(f"symbol operand {op.text}")

    def symbol64(self, op: Operand) -> str:
        raise self.fail(f"symbol operand {op.text}")

    def no_modifiers(self, op: Operand, t: str) -> None:
        if op.neg or op.abs or op.sext:
            raise self.fail(f"operand modifier of {op.text!r} on type {t}")

    def scc(self) -> str:
        return self.out.emit("load i1, ptr %scc")

    def set_scc(self, value: str) -> None:
        self.out.put(f"store i1 {value}, ptr %scc")

    def write_scalar(self, op: Operand, value: str, t: str = "i32") -> None:
        if op.kind == "special" and op.text == "null":
            return
        if op.kind != "s":
            raise self.fail(f"scalar result to {op.text!r}")
        if BITS[t] == 64:
            self.set_sgpr64(op.index, self.s.bitcast(t, "i64", value))
        elif t in ("i32", "f32"):
            self.set_reg("s", op.index, value, t)
        else:
            bits = self.s.bitcast(t, "i16", value)
            self.set_reg("s", op.index, self.s.zext("i16", "i32", bits))

    # Vector operands.
    def source(self, position: int, t: str) -> str:
        """Operand `position` of the instruction as a vector of `t`, all its modifiers applied.

        Position 1 is src0, the operand that DPP and SDWA read through.
        """
        inst = self.inst
        assert inst is not None
        if position >= len(inst.operands):
            raise self.fail(f"operand {position} is missing")
        op = inst.operands[position]
        if BITS[t] == 64:
            value = self._source64(op, t)
        elif BITS[t] == 16:
            value = self._source16(inst, op, position, t)
        elif inst.encoding in ("dpp", "dpp8", "e64_dpp", "sdwa") and position in (1, 2):
            value = self.v.bitcast("i32", t, self.routed(inst, op, position))
        elif op.kind in ("v", "a"):
            if op.half:
                raise self.fail(f"half register {op.text} as {t}")
            value = self._typed(op.kind, op.index, t)
        else:
            bare = Operand(op.kind, op.text, op.index, op.count, op.half, op.value, reloc=op.reloc, addend=op.addend)
            value = self.v.splat(t, self.scalar(bare, t))
        if op.neg or op.abs:
            value = self._float_modifiers(op, t, value)
        if op.sext and inst.encoding != "sdwa":
            raise self.fail("sext() outside SDWA")
        return self.operand(t, value)

    def operand(self, t: str, value: str) -> str:
        """An operand of a float type as MODE has it read."""
        if t in FLOATS and self._arithmetic() and not self._keeps(t, False):
            value = self.flushed(t, value)
        if t in ("f16", "f32") and self._makes_f16() and self.f16_overflow:
            self.floats_read.append((t, value))
        return value

    def result(self, t: str, value: str, inst: Inst | None = None) -> str:
        """A result of a float type as MODE has it written, but for rounding (`set_modes`); with the output modifiers of `inst`."""
        if t == "f16" and self._arithmetic() and self.f16_overflow:
            value = self.largest(value)
        if inst is not None:
            value = self.output_modifiers(inst, t, value)
        if t in FLOATS and self._arithmetic() and not self._keeps(t, True):
            value = self.flushed(t, value)
        return value

    def _makes_f16(self) -> bool:
        return self.inst is not None and "f16" in self.inst.op

    floats_read: list[tuple[str, str]]  # by this instruction, where FP16_OVFL is set

    def to_half(self, t: str, value: str, source: str | None = None) -> str:
        """An f32 rounded to f16, or to bf16; under FP16_OVFL f16 is infinite only where `source` is, of which the value was made (by a scale)."""
        half = self.v.fptrunc("f32", t, value)
        if t != "f16" or not self.f16_overflow:
            return half
        return self.largest(half, [("f32", value if source is None else source)])

    def largest(self, value: str, read: list[tuple[str, str]] | None = None, o: Ops | None = None) -> str:
        """An f16 result under FP16_OVFL: infinite only where an operand (of `read`, else of the instruction's) is, or where the function's own value is."""
        o = self.v if o is None else o
        assert self.inst is not None
        if any(name in self.inst.op for name in ("rcp", "rsq", "log")):
            return value

        def infinite(t: str, x: str) -> str:
            return o.fcmp("oeq", t, o.call("fabs", t, x), o.const(t, float("inf")))

        over = infinite("f16", value)
        for t, x in self.floats_read if read is None else read:
            over = o.and_(over, o.not_(infinite(t, x), "i1"), "i1")
        sign = o.and_(o.bitcast("f16", "i16", value), o.const("i16", 1 << 15), "i16")
        largest = o.bitcast("i16", "f16", o.or_(sign, o.const("i16", 0x7BFF), "i16"))
        return o.select(over, "f16", largest, value)

    def routed(self, inst: Inst, op: Operand, position: int) -> str:
        """src0 or src1 as raw bits after DPP or SDWA."""
        if op.kind in ("v", "a"):
            raw = self.reg(op.kind, op.index)
        else:
            raw = self.v.splat("i32", self.scalar(Operand(op.kind, op.text, op.index, op.count, value=op.value), "i32"))
        if inst.encoding == "sdwa":
            return sdwa_select(self, inst, op, position, raw)
        if position != 1:
            return raw
        if self.moved is None or self.moved[0] is not inst:
            self.moved = inst, dpp_source(self, inst, raw)
        return self.moved[1]

    moved: tuple[Inst, str] | None = None  # an instruction, and its first operand through DPP

    def _float_modifiers(self, op: Operand, t: str, value: str) -> str:
        if t not in FLOATS:
            raise self.fail(f"neg or abs on an operand of type {t}")
        ops, bits = self.v, BITS[t]
        integer = f"i{bits}"
        if op.abs:
            value = ops.bitcast(
                integer,
                t,
                ops.and_(ops.bitcast(t, integer, value), ops.const(integer, (1 << (bits - 1)) - 1), integer),
            )
        if op.neg:
            value = ops.fneg(t, value)
        return value

    def _source64(self, op: Operand, t: str) -> str:
        if op.kind in ("v", "a"):
            if op.count != 2:
                raise self.fail(f"{op.text} as a 64-bit operand")
            value = self.vgpr64(op.kind, op.index)
            return self.v.bitcast("i64", t, value)
        bare = Operand(op.kind, op.text, op.index, op.count, op.half, op.value)
        return self.v.splat(t, self.scalar(bare, t))

    def vgpr64(self, kind: str, index: int) -> str:
        key = (kind + "64", index)
        known = self.state.typed.get(key)
        lo, hi = self.reg(kind, index), self.reg(kind, index + 1)
        if known and known["lo"] == lo and known["hi"] == hi:
            return known["i64"]
        value = self.v.pack(lo, hi)
        self.state.typed[key] = {"lo": lo, "hi": hi, "i64": value}
        return value

    def _source16(self, inst: Inst, op: Operand, position: int, t: str) -> str:
        if inst.encoding in ("dpp", "dpp8", "e64_dpp", "sdwa") and position in (1, 2):
            raw = self.routed(inst, op, position)
            if op.half == "h" or (inst.encoding != "sdwa" and self.op_sel(position)):
                raw = self.v.lshr(raw, self.v.const("i32", 16))
        elif op.kind in ("v", "a"):
            raw = self.reg(op.kind, op.index)
            if op.half == "h" or self.op_sel(position):
                raw = self.v.lshr(raw, self.v.const("i32", 16))
        elif op.kind == "s":
            raw = self.v.splat("i32", self.reg("s", op.index))
            if self.op_sel(position):
                raw = self.v.lshr(raw, self.v.const("i32", 16))
        elif op.kind in ("int", "float"):
            bits = self.literal(op, t)
            return self.v.bitcast("i16", t, self.v.const("i16", bits))
        elif op.kind == "special":
            raw = self.v.splat("i32", self.scalar(Operand("special", op.bare), "i32"))
        else:
            raise self.fail(f"operand {op.text!r} as {t}")
        return self.v.bitcast("i16", t, self.v.trunc("i32", "i16", raw))

    def op_sel(self, position: int) -> bool:
        """Whether operand `position` (0 is the destination, the last bit of op_sel) uses its high half."""
        inst = self.inst
        assert inst is not None
        sel = self.op_sel_bits
        if not sel:
            return False
        i = len(sel) - 1 if position == 0 else position - 1
        if position and i >= len(sel) - 1:
            return False
        return bool(sel[i])

    op_sel_bits: list[int] = []

    # Vector results.
    def write(self, position: int, value: str, t: str, keep_high: bool = False) -> None:
        """A result to the VGPR operand at `position`: output modifiers, 16-bit rules, SDWA, EXEC and DPP masks."""
        inst = self.inst
        assert inst is not None
        op = inst.operands[position]
        if t in FLOATS:
            value = self.result(t, value, inst)
        if op.kind not in ("v", "a"):
            raise self.fail(f"vector result to {op.text!r}")
        if BITS[t] == 64:
            value = self.v.bitcast(t, "i64", value)
            lo, hi = self.v.unpack(value)
            if inst.encoding == "sdwa":
                if inst.mods.get("dst_sel", "DWORD") != "DWORD":
                    raise self.fail("a part of a register for a result of two")
                lo = sdwa_insert(self, inst, op, lo)
            self.write_reg(op.kind, op.index, lo)
            self.write_reg(op.kind, op.index + 1, hi)
            if self.full and self.dpp_mask is None and self.deferred is None:
                self.state.typed[(op.kind + "64", op.index)] = {"lo": lo, "hi": hi, "i64": value}
            return
        if BITS[t] == 16:
            wide = self.v.zext("i16", "i32", self.v.bitcast(t, "i16", value))
            if inst.encoding == "sdwa":
                wide = sdwa_insert(self, inst, op, wide)
            elif op.half or (position == 0 and self.op_sel_bits) or self.gfx >= 10 or keep_high:
                old = self.reg(op.kind, op.index)
                if op.half == "h" or (position == 0 and self.op_sel(0)):
                    wide = self.v.or_(
                        self.v.shl(wide, self.v.const("i32", 16)), self.v.and_(old, self.v.const("i32", 0xFFFF))
                    )
                else:
                    wide = self.v.or_(wide, self.v.and_(old, self.v.const("i32", 0xFFFF0000)))
            self.write_reg(op.kind, op.index, wide)
            return
        if op.half:
            raise self.fail(f"a result of type {t} to half register {op.text}")
        if inst.encoding == "sdwa":
            value, t = sdwa_insert(self, inst, op, self.v.bitcast(t, "i32", value)), "i32"
        self.write_reg(op.kind, op.index, value, t)

    def output_modifiers(self, inst: Inst, t: str, value: str) -> str:
        ops = self.v
        mul, div = inst.take("mul"), inst.take("div")
        if mul or div:
            factor = {("2", None): 2.0, ("4", None): 4.0, (None, "2"): 0.5}.get((mul, div))
            if factor is None:
                raise self.fail(f"output modifier mul:{mul} div:{div}")
            value = ops.bin("fmul", t, value, ops.const(t, factor))
        if inst.take("clamp") is not None:
            value = self.clamp01(t, value)
        return value

    def clamp01(self, t: str, value: str) -> str:
        """To [0, 1]; NaN gives 0 (DX10_CLAMP, which amdhsa sets)."""
        ops = self.v
        zero, one = ops.const(t, 0.0), ops.const(t, 1.0)
        value = ops.select(ops.fcmp("ogt", t, value, zero), t, value, zero)
        return ops.select(ops.fcmp("olt", t, value, one), t, value, one)
