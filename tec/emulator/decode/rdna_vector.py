"""Vector instructions of gfx10.3, gfx11 and gfx12 from machine code: VOP1, VOP2, VOPC with DPP and SDWA, VOP3, VOP3P, VOPD.

From gfx11 on a 16-bit operand names half a register (v1.l, v1.h): in the short forms bit 7 of the field, in VOP3 its bit of op_sel.
"""

from __future__ import annotations

from .inst import Inst, Operand
from .vector import DPP, SDWA, VectorWords, packed_mods
from .words import Encoding, Mods, bits, flagged, flags_on, hexadecimal, number, register, vector_of

_DPP8, _DPP8_FI = 233, 234
_IMPLIED_CARRY = ("v_add_co_ci_u32", "v_sub_co_ci_u32", "v_subrev_co_ci_u32")
_SHORT_ONLY = ("v_fmamk", "v_fmaak", "v_dot2c", "v_dot4c", "v_dot8c", "v_pk_fmac", "v_swap", "v_swaprel")
_DUAL = (
    "fmac_f32", "fmaak_f32", "fmamk_f32", "mul_f32", "add_f32", "sub_f32", "subrev_f32", "mul_dx9_zero_f32", "mov_b32", "cndmask_b32",
    "max_f32", "min_f32", "dot2acc_f32_f16", "dot2acc_f32_bf16", "", "", "add_nc_u32", "lshlrev_b32", "and_b32",
)  # fmt: skip


class RdnaVectors(VectorWords):
    """Encodings of vector instructions."""

    ones = 0x180
    packed_bits = 7  # of a VOP3P opcode
    dual_names: tuple[str, ...] = _DUAL

    def place(self, kind: str, index: int, count: int) -> Operand:
        """A vector register of a short form's 8 bits."""
        return register("v", index & 127, 1, "lh"[index >> 7]) if kind == "h" else register("v", index, count)

    def width(self, token: tuple[str, int]) -> int:
        return self.mask if token[0] == "m" else token[1]

    def short(self, e: Encoding, src0: int, src1: int | None, dst: int | None) -> Inst:
        """VOP1, VOP2 and VOPC, with DPP, SDWA or a literal after them."""
        if not e.operands:
            return self.make(e.name)
        ops = list(e.operands)
        vcc = self.scalar(106, self.mask)
        sdwa = src0 == SDWA and self.gfx == 10
        suffix = "_sdwa" if sdwa else "_dpp" if src0 in (DPP, _DPP8, _DPP8_FI) else ""
        more = self.word() if suffix else 0
        parts: list[Operand] = []
        mods: Mods = {}
        if dst is None and ops[0][0] == "m":
            ops.pop(0)
            parts.append(self.scalar(bits(more, 8, 7), self.mask) if sdwa and more >> 15 & 1 else vcc)
        elif dst is not None:
            kind, count = ops.pop(0)
            parts.append(self.scalar(dst, count) if kind == "s" else self.place(kind, dst, count))
        if e.name in _IMPLIED_CARRY:
            parts.append(vcc)
            ops.pop(0)
        if suffix:
            flags = (0, 0)
            if sdwa or src0 == DPP:
                flags = (more >> 19 & 7, more >> 27 & 7) if sdwa else (bits(more, 20, 2) << 1, bits(more, 22, 2) << 1)
            first = (
                self.scalar(more & 255, 1) if sdwa and more >> 23 & 1 else self.place(ops[0][0], more & 255, ops[0][1])
            )
            parts.append(flagged(first, flags[0]))
            if src1 is not None:
                second = self.scalar(src1, 1) if sdwa and more >> 31 & 1 else self.place(ops[1][0], src1, ops[1][1])
                parts.append(flagged(second, flags[1]))
            mods = self.selectors(more, src1 is not None, dst is None) if sdwa else self.routing(src0, more)
        else:
            constant = [k for k, o in enumerate(ops) if o[0] == "?"]
            parts.append(self.place(ops[0][0], src0 - 256, ops[0][1]) if src0 >= 256 else self.source(src0, ops[0][1]))
            if constant == [1]:
                parts.append(self.constant(e))
            if src1 is not None:
                kind, count = ops[2] if constant == [1] else ops[1]
                parts.append(self.place(kind, src1, count))
            if constant == [2]:
                parts.append(self.constant(e))
        if ops[-1][0] == "m":
            parts.append(vcc)
        suffix = suffix or ("" if e.name.startswith(_SHORT_ONLY) else "_e32")
        return self.make(e.name + suffix, parts, mods)

    def constant(self, e: Encoding) -> Operand:
        """The literal of a fused multiply-add."""
        return hexadecimal(self.literal_word())

    def routing(self, src0: int, w: int) -> Mods:
        """The modifiers of either form of DPP from its word."""
        if src0 == DPP:
            return self.lanes(w) | ({"fi": "1"} if bits(w, 18, 1) else {})
        lanes = ",".join(str(bits(w, 8 + 3 * i, 3)) for i in range(8))
        return {"dpp8": f"[{lanes}]"} | ({"fi": "1"} if src0 == _DPP8_FI else {})

    def _sources(
        self, w: int, ops: list[tuple[str, int]], select: int, flags: list[int]
    ) -> tuple[list[Operand], str, Mods]:
        """The operands of a long form, its suffix and modifiers of DPP."""
        codes = [bits(w, 32 + 9 * i, 9) for i in range(len(ops))]
        suffix, mods = "", {}
        if codes and codes[0] in (DPP, _DPP8, _DPP8_FI):
            more = self.word()
            suffix, mods = "_e64_dpp", self.routing(codes[0], more)
            codes[0] = 256 + (more & 255)
        parts = []
        self.halves_named = 0
        for i, (code, token) in enumerate(zip(codes, ops)):
            op = self.source(code, self.width(token))
            if token[0] == "h" and code >= 256:
                op = register("v", code - 256, 1, "lh"[select >> i & 1])
                self.halves_named |= 1 << i
            parts.append(flagged(op, flags[i]))
        return parts, suffix, mods

    def vop3(self, w: int) -> Inst:
        """The long form of vector instructions, with modifiers of each operand."""
        op = bits(w, 16, 10)
        e = self.find("V", op)
        ops = list(e.operands)
        if not ops:
            return self.make(e.name)
        absolute, select, negative = bits(w, 8, 3), bits(w, 11, 4), bits(w, 61, 3)
        parts: list[Operand] = []
        named = 0
        if not e.name.startswith("v_cmpx"):
            kind, count = ops.pop(0)
            if kind in "sm":
                parts.append(self.scalar(w & 127, self.mask if kind == "m" else count))
            else:
                named = 8 if kind == "h" else 0
                parts.append(register("v", w & 255, count, "lh"[select >> 3] if named else ""))
            if ops and ops[0][0] == "m":
                ops.pop(0)
                parts.append(self.scalar(bits(w, 8, 7), self.mask))
                absolute = select = 0
        if ops and ops[-1] == ("?", 1):
            raise self.fail("a long form")
        bitop = e.name.startswith("v_bitop3")  # whose table lies where others have their signs
        flags = [0 if bitop else (absolute >> i & 1) << 2 | (negative >> i & 1) << 1 for i in range(3)]
        if any(flags[len(ops) :]):
            raise self.fail("flags of operands that it has not")
        sources, suffix, routing = self._sources(w, ops, select, flags)
        mods = {"bitop3": f"{bits(w, 59, 2) << 6 | absolute << 3 | negative:#x}"} if bitop else {}
        mods |= self._selected(e.name, select, named | self.halves_named, len(ops)) | flags_on(bits(w, 15, 1), "clamp")
        mods |= {} if bitop else self.scaled(w)
        short = op < 0x140 or 0x180 <= op < 0x200
        return self.make(e.name + (suffix or ("_e64" if short else "")), parts + sources, mods | routing)

    def _selected(self, name: str, select: int, named: int, count: int) -> Mods:
        """What op_sel says beside the halves that registers' names say."""
        if not select & ~named:
            return {}
        if name.startswith("v_cvt_scale_pk"):
            return {"scale_sel": str(select)}
        if name.startswith("v_cvt_sr_") or (
            name.startswith(("v_cvt_f32_", "v_cvt_f16_")) and name.endswith(("fp8", "bf8"))
        ):
            return number("byte_sel", select >> 2 if "_sr_" in name else (select & 1) << 1 | select >> 1 & 1)
        if name.startswith("v_permlane"):
            return {"op_sel": vector_of(select, 2)}
        return {"op_sel": vector_of(select & (1 << count) - 1 | select >> 3 << count, count + 1)}

    def packed_sizes(self, e: Encoding, w: int) -> list[int] | None:
        """Registers of the first two sources, where a chip's modifiers decide."""
        return None

    def own_mods(self, e: Encoding, w: int) -> Mods | None:
        """The modifiers of an instruction that has a chip's own."""
        return None

    def packed(self, w: int) -> Inst:
        op = bits(w, 16, self.packed_bits)
        e = self.table.get(("VOP3P64", op)) if self.mask == 2 else None
        e = e or self.find("VOP3P", op)
        ops = list(e.operands)
        parts = [register("v", w & 255, ops.pop(0)[1])]
        sizes = self.packed_sizes(e, w)
        if sizes is not None:
            ops[:2] = [("v", sizes[0]), ("v", sizes[1])]
        high, low, select = bits(w, 8, 3), bits(w, 61, 3), bits(w, 11, 3)
        mix = e.name.startswith(("v_fma_mix", "v_mad_mix"))
        flags = [(high >> i & 1) << 2 | (low >> i & 1) << 1 if mix else 0 for i in range(3)]
        sources, suffix, routing = self._sources(w, ops, 0, flags)
        mods = self.own_mods(e, w)
        if mods is None:
            sparse = e.name.startswith("v_swmmac")
            mods = number("index_key", select & 3) if sparse else {}
            halves = bits(w, 59, 2) | bits(w, 14, 1) << 2
            mods |= packed_mods(
                len(ops), 0 if sparse else select, halves, e.halves, 0 if mix else low, 0 if mix else high
            )
            mods |= flags_on(bits(w, 15, 1), "clamp") | routing
        else:
            suffix = ""
        return self.make(e.name + suffix, parts + sources, mods)

    def dual(self, w: int) -> Inst:
        """Two instructions in one (VOPD)."""
        x = bits(w, 56, 8)
        y = bits(w, 49, 7) << 1 | (x & 1 ^ 1)
        first = self._half(bits(w, 22, 4), x, w & 511, bits(w, 9, 8))
        first.dual = self._half(bits(w, 17, 5), y, bits(w, 32, 9), bits(w, 41, 8))
        return first

    def _half(self, op: int, dst: int, src0: int, src1: int) -> Inst:
        name = self.dual_names[op] if op < len(self.dual_names) else ""
        if not name:
            raise self.fail(f"VOPD opcode {op:#x}")
        if self.gfx >= 12:
            name = {"max_f32": "max_num_f32", "min_f32": "min_num_f32"}.get(name, name)
        parts = [register("v", dst, 1), self.source(src0, 1)]
        if name != "mov_b32":
            parts.append(register("v", src1, 1))
        if "mk_" in name or "ak_" in name:
            parts.insert(2 if "mk_" in name else 3, hexadecimal(self.literal_word()))
        return self.make(f"v_dual_{name}", parts)
