"""Vector instructions from machine code: VOP1, VOP2, VOPC with DPP and SDWA, VOP3, VOP3P, matrix instructions."""

from __future__ import annotations

from .words import Encoding, Words, bits, flagged, register, scalar

SDWA, _DPP = 249, 250  # source operands that say: one more word
_SELECT = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD")
_CARRY = frozenset(f"v_{n}_co_u32" for n in ("add", "sub", "subrev", "addc", "subb", "subbrev"))
_READS_CARRY = frozenset(("v_addc_co_u32", "v_subb_co_u32", "v_subbrev_co_u32", "v_cndmask_b32"))
_TWO_RESULTS = _CARRY | {"v_div_scale_f32", "v_div_scale_f64", "v_mad_u64_u32", "v_mad_i64_i32"}


def sdwa_text(w: int, two: bool, compare: bool) -> str:
    """SDWA's modifiers from its word."""
    out = ""
    if not compare:
        if bits(w, 13, 1):
            out += " clamp"
        out += ("", " mul:2", " mul:4", " div:2")[bits(w, 14, 2)]
        out += f" dst_sel:{_SELECT[bits(w, 8, 3)]} dst_unused:{('UNUSED_PAD', 'UNUSED_SEXT', 'UNUSED_PRESERVE')[bits(w, 11, 2)]}"
    out += f" src0_sel:{_SELECT[bits(w, 16, 3)]}"
    return out + (f" src1_sel:{_SELECT[bits(w, 24, 3)]}" if two else "")


class Vectors(Words):
    """Encodings of vector instructions."""

    def vector(self, w: int) -> str:
        if bits(w, 25, 7) == 0b0111110:
            e = self.find("V", bits(w, 17, 8))
            return self._short(e, w & 511, bits(w, 9, 8), None)
        if bits(w, 25, 7) == 0b0111111:
            e = self.find("V", 0x140 + bits(w, 9, 8))
            return self._short(e, w & 511, None, bits(w, 17, 8))
        e = self.find("V", 0x100 + bits(w, 25, 6))
        return self._short(e, w & 511, bits(w, 9, 8), bits(w, 17, 8))

    def _short(self, e: Encoding, src0: int, src1: int | None, dst: int | None) -> str:
        """VOP1, VOP2 and VOPC, with DPP, SDWA or a literal after them."""
        if not e.operands:
            return e.name
        ops = list(e.operands)
        parts: list[str] = []
        suffix, tail, more = "", "", 0
        if src0 in (SDWA, _DPP):
            more = self.word()
            suffix = "_sdwa" if src0 == SDWA else "_dpp"
        if dst is None:
            parts.append("vcc" if not (suffix == "_sdwa" and more >> 15 & 1) else scalar(bits(more, 8, 7), 2))
        elif ops[0][0] == "s":
            parts.append(scalar(dst, ops[0][1]))
        else:
            parts.append(register(ops[0][0] if ops[0][0] != "?" else "v", dst, ops[0][1]))
        if e.name in _CARRY:
            parts.append("vcc")
            del ops[1]
        if suffix:
            scalar0 = suffix == "_sdwa" and more >> 23 & 1
            first = scalar(more & 255, 1) if scalar0 else register("v", more & 255, ops[1][1])
            second = (
                None
                if src1 is None
                else scalar(src1, 1)
                if suffix == "_sdwa" and more >> 31 & 1
                else register("v", src1, ops[2][1])
            )
            flags0, flags1 = (
                (bits(more, 19, 3), bits(more, 27, 3))
                if suffix == "_sdwa"
                else (bits(more, 20, 2) << 1, bits(more, 22, 2) << 1)
            )
            parts.append(flagged(first, flags0))
            if second is not None:
                parts.append(flagged(second, flags1))
            tail = sdwa_text(more, src1 is not None, dst is None) if suffix == "_sdwa" else self._dpp(more)
        else:
            parts.append(
                self.source(src0, ops[1][1], e.name.startswith("v_accvgpr") and len(ops) > 1 and ops[1][0] == "a")
            )
            if e.name.startswith(("v_fmamk", "v_madmk")):
                parts.append(f"{self.word():#x}")
            if src1 is not None:
                parts.append(
                    register("v", src1, ops[-1][1] if e.name.startswith(("v_fmamk", "v_madmk")) else ops[2][1])
                )
            if e.name.startswith(("v_fmaak", "v_madak")):
                parts.append(f"{self.word():#x}")
        if e.name in _READS_CARRY:
            parts.append("vcc")
        only_short = e.name.startswith(("v_fmamk", "v_fmaak", "v_madmk", "v_madak", "v_accvgpr"))
        return f"{e.name}{suffix or ('' if only_short else '_e32')} {', '.join(parts)}{tail}"

    def _dpp(self, w: int) -> str:
        control = bits(w, 8, 9)
        if control < 0x100:
            text = f"quad_perm:[{','.join(str(control >> 2 * i & 3) for i in range(4))}]"
        elif 0x101 <= control <= 0x12F and control & 15:
            text = f"{('row_shl', 'row_shr', 'row_ror')[(control >> 4) - 16]}:{control & 15}"
        elif control in (0x130, 0x134, 0x138, 0x13C):
            text = {0x130: "wave_shl:1", 0x134: "wave_rol:1", 0x138: "wave_shr:1", 0x13C: "wave_ror:1"}[control]
        elif control in (0x140, 0x141, 0x142, 0x143):
            text = {0x140: "row_mirror", 0x141: "row_half_mirror", 0x142: "row_bcast:15", 0x143: "row_bcast:31"}[
                control
            ]
        elif 0x150 <= control <= 0x15F:
            text = f"row_newbcast:{control & 15}"
        else:
            raise self.fail(f"DPP control {control:#x}")
        return f" {text} row_mask:{bits(w, 28, 4):#x} bank_mask:{bits(w, 24, 4):#x}" + (
            " bound_ctrl:0" if bits(w, 19, 1) else ""
        )

    def vop3(self, w: int) -> str:
        e = self.find("V", bits(w, 16, 10))
        ops = list(e.operands)
        kind, count = ops.pop(0) if ops else ("v", 0)
        parts = [scalar(w & 255, count) if kind == "s" else register("v", w & 255, count)] if count else []
        absolute, select = bits(w, 8, 3), bits(w, 11, 4)
        if e.name in _TWO_RESULTS:
            parts.append(scalar(bits(w, 8, 7), 2))
            ops.pop(0)
            absolute = select = 0
        negative = bits(w, 61, 3)
        if e.name.startswith("v_bitop3"):
            table = bits(w, 59, 2) << 6 | absolute << 3 | negative
            sources = ", ".join(self.source(bits(w, 32 + 9 * i, 9), n) for i, (_, n) in enumerate(ops))
            halves = f" op_sel:[{','.join(str(select >> i & 1) for i in range(4))}]" if select else ""
            return f"{e.name} {parts[0]}, {sources} bitop3:{table:#x}{halves}"
        for i, (_, n) in enumerate(ops):
            parts.append(
                flagged(self.source(bits(w, 32 + 9 * i, 9), n), (absolute >> i & 1) << 2 | (negative >> i & 1) << 1)
            )
        if (absolute | negative) >> len(ops):
            raise self.fail("flags of operands that it has not")
        tail = ""
        if select:
            # Bit 2 of opcodes with two sources chooses a byte, with bit 3.
            count = (
                3
                if select & 4 or e.name.startswith(("v_cvt_sr_fp8_", "v_cvt_sr_bf8_", "v_cvt_scalef32_pk_fp4_"))
                else len(ops)
            )
            chosen = [select >> i & 1 for i in range(count)] + [select >> 3]
            tail += f" op_sel:[{','.join(map(str, chosen))}]"
        if bits(w, 15, 1):
            tail += " clamp"
        long = "_e64" if bits(w, 16, 10) < 0x200 else ""  # there is a short form
        return f"{e.name}{long} {', '.join(parts)}{tail}" + ("", " mul:2", " mul:4", " div:2")[bits(w, 59, 2)]

    def packed(self, w: int) -> str:
        e = self.find("VOP3P", bits(w, 16, 7))
        ops = e.operands
        if "mfma" in e.name:
            acc, wide = bits(w, 59, 2), bits(w, 15, 1)
            parts = [register("a" if wide else "v", w & 255, ops[0][1])]
            for i, (_, n) in enumerate(ops[1:]):
                parts.append(self.source(bits(w, 32 + 9 * i, 9), n, bool(acc >> i & 1 if i < 2 else wide)))
            last = bits(w, 61, 3)
            tail = "".join(f" {n}:{v}" for n, v in (("cbsz", bits(w, 8, 3)), ("abid", bits(w, 11, 4))) if v)
            if last:  # f64 has signs there since gfx942
                signs = "f64" in e.name and self.chip != "gfx90a"
                tail += f" neg:[{last & 1},{last >> 1 & 1},{last >> 2}]" if signs else f" blgp:{last}"
            return f"{e.name} {', '.join(parts)}{tail}"
        if e.name.startswith("v_accvgpr"):
            return self._accumulator(e, w)
        n = len(ops) - 1
        parts = [register("v", w & 255, ops[0][1])]
        high, low = bits(w, 8, 3), bits(w, 61, 3)
        mix = e.name.startswith(("v_fma_mix", "v_mad_mix"))
        for i, (_, count) in enumerate(ops[1:]):
            flags = (high >> i & 1) << 2 | (low >> i & 1) << 1 if mix else 0
            parts.append(flagged(self.source(bits(w, 32 + 9 * i, 9), count), flags))
        halves = bits(w, 59, 2) | bits(w, 14, 1) << 2
        tail = ""
        every = (1 << n) - 1
        for name, value, default in (
            ("op_sel", bits(w, 11, 3), 0),
            ("op_sel_hi", halves, 0 if mix else every),
            ("neg_lo", 0 if mix else low, 0),
            ("neg_hi", 0 if mix else high, 0),
        ):
            if value & every != default:
                tail += f" {name}:[{','.join(str(value >> i & 1) for i in range(n))}]"
        return f"{e.name} {', '.join(parts)}{tail}" + (" clamp" if bits(w, 15, 1) else "")

    def _accumulator(self, e: Encoding, w: int) -> str:
        read = e.name.startswith("v_accvgpr_read")
        return f"{e.name} {register('v' if read else 'a', w & 255, 1)}, {self.source(bits(w, 32, 9), 1, read)}"
