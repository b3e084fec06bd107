"""Vector instructions of gfx10.3, gfx11 and gfx12 from machine code: VOP1, VOP2, VOPC with DPP and SDWA, VOP3, VOP3P, VOPD.

From gfx11 on a 16-bit operand names half a register (v1.l, v1.h): in the short forms bit 7 of the field, in VOP3 its bit of op_sel.
"""

from __future__ import annotations

from .vector import SDWA, sdwa_text
from .words import Encoding, Words, bits, flagged, register

_DPP8, _DPP8_FI, _DPP = 233, 234, 250
_IMPLIED_CARRY = ("v_add_co_ci_u32", "v_sub_co_ci_u32", "v_subrev_co_ci_u32")
_SHORT_ONLY = ("v_fmamk", "v_fmaak", "v_dot2c", "v_dot4c", "v_dot8c", "v_pk_fmac", "v_swap", "v_swaprel")
_DUAL = (
    "fmac_f32", "fmaak_f32", "fmamk_f32", "mul_f32", "add_f32", "sub_f32", "subrev_f32", "mul_dx9_zero_f32", "mov_b32", "cndmask_b32",
    "max_f32", "min_f32", "dot2acc_f32_f16", "dot2acc_f32_bf16", "", "", "add_nc_u32", "lshlrev_b32", "and_b32",
)  # fmt: skip


class RdnaVectors(Words):
    """Encodings of vector instructions."""

    def place(self, kind: str, index: int, count: int) -> str:
        """A vector register of a short form's 8 bits."""
        if kind == "h":
            return f"v{index & 127}.{'lh'[index >> 7]}"
        return register("v", index, count)

    def width(self, token: tuple[str, int]) -> int:
        return self.mask if token[0] == "m" else token[1]

    def short_source(self, code: int, token: tuple[str, int]) -> str:
        return self.place(token[0], code - 256, token[1]) if code >= 256 else self.source(code, token[1])

    def vector(self, w: int) -> str:
        if bits(w, 25, 7) == 0b0111110:
            return self._short(self.find("V", bits(w, 17, 8)), w & 511, bits(w, 9, 8), None)
        if bits(w, 25, 7) == 0b0111111:
            return self._short(self.find("V", 0x180 + bits(w, 9, 8)), w & 511, None, bits(w, 17, 8))
        return self._short(self.find("V", 0x100 + bits(w, 25, 6)), w & 511, bits(w, 9, 8), bits(w, 17, 8))

    def _short(self, e: Encoding, src0: int, src1: int | None, dst: int | None) -> str:
        """VOP1, VOP2 and VOPC, with DPP, SDWA or a literal after them."""
        if not e.operands:
            return e.name
        ops = list(e.operands)
        vcc = "vcc" if self.mask == 2 else "vcc_lo"
        sdwa = src0 == SDWA and self.gfx == 10
        suffix = "_sdwa" if sdwa else "_dpp" if src0 in (_DPP, _DPP8, _DPP8_FI) else ""
        more = self.word() if suffix else 0
        parts: list[str] = []
        if dst is None and ops[0][0] == "m":
            ops.pop(0)
            parts.append(self.scalar(bits(more, 8, 7), self.mask) if sdwa and more >> 15 & 1 else vcc)
        elif dst is not None:
            kind, count = ops.pop(0)
            parts.append(self.scalar(dst, count) if kind == "s" else self.place(kind, dst, count))
        if e.name in _IMPLIED_CARRY:
            parts.append(vcc)
            ops.pop(0)
        tail = ""
        if suffix:
            flags0, flags1 = bits(more, 20, 2) << 1, bits(more, 22, 2) << 1
            first = self.place(ops[0][0], more & 255, ops[0][1])
            second = None if src1 is None else self.place(ops[1][0], src1, ops[1][1])
            if sdwa:
                flags0, flags1 = bits(more, 19, 3), bits(more, 27, 3)
                first = self.scalar(more & 255, 1) if more >> 23 & 1 else first
                second = second if src1 is None or not more >> 31 & 1 else self.scalar(src1, 1)
            elif src0 != _DPP:
                flags0 = flags1 = 0
            parts.append(flagged(first, flags0))
            if second is not None:
                parts.append(flagged(second, flags1))
            tail = sdwa_text(more, src1 is not None, dst is None) if sdwa else self.routing(src0, more)
        else:
            constant = [k for k, o in enumerate(ops) if o[0] == "?"]
            parts.append(self.short_source(src0, ops[0]))
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
        return f"{e.name}{suffix} {', '.join(parts)}{tail}"

    def constant(self, e: Encoding) -> str:
        """The literal of a fused multiply-add."""
        return f"{self.literal_word():#x}"

    def routing(self, src0: int, w: int) -> str:
        """DPP's modifiers from its word."""
        if src0 != _DPP:
            lanes = ",".join(str(bits(w, 8 + 3 * i, 3)) for i in range(8))
            return f" dpp8:[{lanes}]" + (" fi:1" if src0 == _DPP8_FI else "")
        control = bits(w, 8, 9)
        if control < 0x100:
            text = f"quad_perm:[{','.join(str(control >> 2 * i & 3) for i in range(4))}]"
        elif control & 15 and control >> 4 in (0x10, 0x11, 0x12):
            text = f"{('row_shl', 'row_shr', 'row_ror')[(control >> 4) - 16]}:{control & 15}"
        elif control in (0x140, 0x141):
            text = ("row_mirror", "row_half_mirror")[control & 1]
        elif control >> 4 in (0x15, 0x16):
            text = f"{('row_share', 'row_xmask')[(control >> 4) - 0x15]}:{control & 15}"
        else:
            raise self.fail(f"DPP control {control:#x}")
        text = f" {text} row_mask:{bits(w, 28, 4):#x} bank_mask:{bits(w, 24, 4):#x}"
        return text + (" bound_ctrl:1" if bits(w, 19, 1) else "") + (" fi:1" if bits(w, 18, 1) else "")

    def _sources(self, w: int, ops: list[tuple[str, int]], select: int, flags: list[int]) -> tuple[list[str], str, str]:
        """The operands of a long form, its suffix and modifiers of DPP."""
        codes = [bits(w, 32 + 9 * i, 9) for i in range(len(ops))]
        suffix = tail = ""
        if codes and codes[0] in (_DPP, _DPP8, _DPP8_FI):
            more = self.word()
            suffix, tail = "_e64_dpp", self.routing(codes[0], more)
            codes[0] = 256 + (more & 255)
        parts = []
        for i, (code, token) in enumerate(zip(codes, ops)):
            text = self.source(code, self.width(token))
            if token[0] == "h" and code >= 256:
                text += "." + "lh"[select >> i & 1]
            parts.append(flagged(text, flags[i]))
        self.halves_named = sum(1 << i for i, (c, t) in enumerate(zip(codes, ops)) if t[0] == "h" and c >= 256)
        return parts, suffix, tail

    def vop3(self, w: int) -> str:
        op = bits(w, 16, 10)
        e = self.find("V", op)
        ops = list(e.operands)
        if not ops:
            return e.name
        absolute, select, negative = bits(w, 8, 3), bits(w, 11, 4), bits(w, 61, 3)
        parts: list[str] = []
        named = 0
        if not e.name.startswith("v_cmpx"):
            kind, count = ops.pop(0)
            if kind in "sm":
                parts.append(self.scalar(w & 127, self.mask if kind == "m" else count))
            else:
                parts.append(register("v", w & 255, count) + ("." + "lh"[select >> 3] if kind == "h" else ""))
                named = 8 if kind == "h" else 0
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
        named |= self.halves_named
        tail = self._selected(e.name, select, named, len(ops))
        tail += " clamp" if bits(w, 15, 1) else ""
        if bitop:
            tail = f" bitop3:{bits(w, 59, 2) << 6 | absolute << 3 | negative:#x}{tail}"
        else:
            tail += ("", " mul:2", " mul:4", " div:2")[bits(w, 59, 2)]
        short = op < 0x140 or 0x180 <= op < 0x200
        return f"{e.name}{suffix or ('_e64' if short else '')} {', '.join(parts + sources)}{tail}{routing}"

    def _selected(self, name: str, select: int, named: int, count: int) -> str:
        """What op_sel says beside the halves that registers' names say."""
        if not select & ~named:
            return ""
        if name.startswith("v_cvt_scale_pk"):
            return f" scale_sel:{select}"
        if name.startswith("v_cvt_sr_") or (
            name.startswith(("v_cvt_f32_", "v_cvt_f16_")) and name.endswith(("fp8", "bf8"))
        ):
            byte = select >> 2 if "_sr_" in name else (select & 1) << 1 | select >> 1 & 1
            return f" byte_sel:{byte}" if byte else ""
        if name.startswith("v_permlane"):
            return f" op_sel:[{select & 1},{select >> 1 & 1}]"
        chosen = [select >> i & 1 for i in range(count)] + [select >> 3]
        return f" op_sel:[{','.join(map(str, chosen))}]"

    packed_bits = 7  # of a VOP3P opcode
    dual_names: tuple[str, ...] = _DUAL

    def packed_sizes(self, e: Encoding, w: int) -> list[int] | None:
        """Registers of the first two sources, where a chip's modifiers decide."""
        return None

    def packed_tail(self, e: Encoding, w: int) -> str | None:
        """The modifiers of an instruction that has a chip's own."""
        return None

    def packed(self, w: int) -> str:
        op = bits(w, 16, self.packed_bits)
        e = self.table.get(("VOP3P64", op)) if self.mask == 2 else None
        e = e or self.find("VOP3P", op)
        ops = list(e.operands)
        parts = [register("v", w & 255, ops.pop(0)[1])]
        sizes = self.packed_sizes(e, w)
        if sizes is not None:
            ops[:2] = [("v", sizes[0]), ("v", sizes[1])]
        n = len(ops)
        high, low, select = bits(w, 8, 3), bits(w, 61, 3), bits(w, 11, 3)
        mix = e.name.startswith(("v_fma_mix", "v_mad_mix"))
        flags = [(high >> i & 1) << 2 | (low >> i & 1) << 1 if mix else 0 for i in range(3)]
        sources, suffix, routing = self._sources(w, ops, 0, flags)
        own = self.packed_tail(e, w)
        if own is not None:
            return f"{e.name} {', '.join(parts + sources)}{own}"
        halves = bits(w, 59, 2) | bits(w, 14, 1) << 2
        tail = ""
        if e.name.startswith("v_swmmac"):
            tail, select = f" index_key:{select & 3}" if select & 3 else "", 0
        every = (1 << n) - 1
        for name, value, default in (
            ("op_sel", select, 0),
            ("op_sel_hi", halves, e.halves),
            ("neg_lo", 0 if mix else low, 0),
            ("neg_hi", 0 if mix else high, 0),
        ):
            if value & every != default & every:
                tail += f" {name}:[{','.join(str(value >> i & 1) for i in range(n))}]"
        return f"{e.name}{suffix} {', '.join(parts + sources)}{tail}" + (" clamp" if bits(w, 15, 1) else "") + routing

    def dual(self, w: int) -> str:
        """Two instructions in one (VOPD)."""
        x = bits(w, 56, 8)
        y = bits(w, 49, 7) << 1 | (x & 1 ^ 1)
        first = self._half(bits(w, 22, 4), x, w & 511, bits(w, 9, 8))
        return f"{first} :: {self._half(bits(w, 17, 5), y, bits(w, 32, 9), bits(w, 41, 8))}"

    def _half(self, op: int, dst: int, src0: int, src1: int) -> str:
        name = self.dual_names[op] if op < len(self.dual_names) else ""
        if not name:
            raise self.fail(f"VOPD opcode {op:#x}")
        if self.gfx >= 12:
            name = {"max_f32": "max_num_f32", "min_f32": "min_num_f32"}.get(name, name)
        parts = [f"v{dst}", self.source(src0, 1)]
        if name != "mov_b32":
            parts.append(f"v{src1}")
        if "mk_" in name or "ak_" in name:
            parts.insert(2 if "mk_" in name else 3, f"{self.literal_word():#x}")
        return f"v_dual_{name} {', '.join(parts)}"
