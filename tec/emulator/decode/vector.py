"""Vector instructions of gfx9 from machine code: VOP1, VOP2, VOPC with DPP and SDWA, VOP3, VOP3P, matrix instructions; and what later chips have alike."""

from __future__ import annotations

from .inst import Inst, Operand
from .words import (
    BEFORE_GFX940,
    Encoding,
    Mods,
    Words,
    bits,
    flagged,
    flags_on,
    hexadecimal,
    number,
    register,
    scalar,
    vector_of,
)

SDWA, DPP = 249, 250  # source operands that say: one more word
_SELECT = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD")
_UNUSED = ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE")
_SCALES: tuple[Mods, ...] = ({}, {"mul": "2"}, {"mul": "4"}, {"div": "2"})
_ROWS = {0x10: "row_shl", 0x11: "row_shr", 0x12: "row_ror", 0x15: "row_share", 0x16: "row_xmask"}
_WAVES = {0x130: "wave_shl", 0x134: "wave_rol", 0x138: "wave_shr", 0x13C: "wave_ror"}
_CARRY = frozenset(f"v_{n}_co_u32" for n in ("add", "sub", "subrev", "addc", "subb", "subbrev"))
_READS_CARRY = frozenset(("v_addc_co_u32", "v_subb_co_u32", "v_subbrev_co_u32", "v_cndmask_b32"))
_TWO_RESULTS = _CARRY | {"v_div_scale_f32", "v_div_scale_f64", "v_mad_u64_u32", "v_mad_i64_i32"}
_BEFORE_LAST, _AT_END = ("v_fmamk", "v_madmk"), ("v_fmaak", "v_madak")  # where a fused multiply-add has its constant
_LOAD_SCALES, _SCALED = 0x2C, (0x2D, 0x2E)  # VOP3P opcodes: v_mfma_ld_scale_b32, the products of mixed formats
_THREE_SELECTORS = ("v_cvt_sr_fp8_", "v_cvt_sr_bf8_", "v_cvt_scalef32_pk_fp4_")


class VectorWords(Words):
    """What the vector encodings of all generations share."""

    ones = 0  # the VOP3 opcode of the first of VOP1; those of VOPC stand from 0 on, those of VOP2 from 0x100

    def vector(self, w: int) -> Inst:
        """An instruction of one word, or with a literal, DPP or SDWA behind it: VOPC, VOP1, VOP2 by its upper bits."""
        if bits(w, 25, 7) == 0b0111110:
            return self.short(self.find("V", bits(w, 17, 8)), w & 511, bits(w, 9, 8), None)
        if bits(w, 25, 7) == 0b0111111:
            return self.short(self.find("V", self.ones + bits(w, 9, 8)), w & 511, None, bits(w, 17, 8))
        return self.short(self.find("V", 0x100 + bits(w, 25, 6)), w & 511, bits(w, 9, 8), bits(w, 17, 8))

    def short(self, e: Encoding, src0: int, src1: int | None, dst: int | None) -> Inst:
        """VOP1, VOP2 and VOPC, with DPP, SDWA or a literal after them."""
        raise NotImplementedError

    def scaled(self, w: int) -> Mods:
        """The multiplier of a long form's result."""
        return _SCALES[bits(w, 59, 2)]

    def selectors(self, w: int, two: bool, compare: bool) -> Mods:
        """SDWA's modifiers from its word."""
        mods: Mods = {}
        if not compare:
            mods = flags_on(bits(w, 13, 1), "clamp") | _SCALES[bits(w, 14, 2)]
            mods |= {"dst_sel": _SELECT[bits(w, 8, 3)], "dst_unused": _UNUSED[bits(w, 11, 2)]}
        mods["src0_sel"] = _SELECT[bits(w, 16, 3)]
        return mods | ({"src1_sel": _SELECT[bits(w, 24, 3)]} if two else {})

    def lanes(self, w: int) -> Mods:
        """DPP's modifiers from its word."""
        control = bits(w, 8, 9)
        row = _ROWS.get(control >> 4, "")
        if control < 0x100:
            mods = {"quad_perm": f"[{','.join(str(control >> 2 * i & 3) for i in range(4))}]"}
        elif control in (0x140, 0x141):
            mods = {("row_mirror", "row_half_mirror")[control & 1]: ""}
        elif row and (control & 15 or control >> 4 > 0x12):
            mods = {"row_newbcast" if self.gfx == 9 and row == "row_share" else row: str(control & 15)}
            if self.gfx == 9 and row == "row_xmask":
                raise self.fail(f"DPP control {control:#x}")
        elif self.gfx == 9 and control in _WAVES:
            mods = {_WAVES[control]: "1"}
        elif self.gfx == 9 and control in (0x142, 0x143):
            mods = {"row_bcast": ("15", "31")[control & 1]}
        else:
            raise self.fail(f"DPP control {control:#x}")
        mods |= {"row_mask": f"{bits(w, 28, 4):#x}", "bank_mask": f"{bits(w, 24, 4):#x}"}
        return mods | ({"bound_ctrl": "0" if self.gfx == 9 else "1"} if bits(w, 19, 1) else {})


class Vectors(VectorWords):
    """Encodings of vector instructions."""

    ones = 0x140

    def short(self, e: Encoding, src0: int, src1: int | None, dst: int | None) -> Inst:
        """VOP1, VOP2 and VOPC, with DPP, SDWA or a literal after them."""
        if not e.operands:
            return self.make(e.name)
        sdwa, dpp = src0 == SDWA, src0 == DPP
        more = self.word() if sdwa or dpp else 0
        ops = list(e.operands)
        parts: list[Operand] = []
        mods: Mods = {}
        if dst is None:
            parts.append(scalar(bits(more, 8, 7), 2) if sdwa and more >> 15 & 1 else scalar(106, 2))
        elif ops[0][0] == "s":
            parts.append(scalar(dst, ops[0][1]))
        else:
            parts.append(register(ops[0][0] if ops[0][0] != "?" else "v", dst, ops[0][1]))
        if e.name in _CARRY:
            parts.append(scalar(106, 2))
            del ops[1]
        if sdwa or dpp:
            flags = (more >> 19 & 7, more >> 27 & 7) if sdwa else (bits(more, 20, 2) << 1, bits(more, 22, 2) << 1)
            first = scalar(more & 255, 1) if sdwa and more >> 23 & 1 else register("v", more & 255, ops[1][1])
            parts.append(flagged(first, flags[0]))
            if src1 is not None:
                second = scalar(src1, 1) if sdwa and more >> 31 & 1 else register("v", src1, ops[2][1])
                parts.append(flagged(second, flags[1]))
            mods = self.selectors(more, src1 is not None, dst is None) if sdwa else self.lanes(more)
        else:
            before, behind = e.name.startswith(_BEFORE_LAST), e.name.startswith(_AT_END)
            accumulates = e.name.startswith("v_accvgpr") and len(ops) > 1 and ops[1][0] == "a"
            parts.append(self.source(src0, ops[1][1], accumulates))
            if before:
                parts.append(hexadecimal(self.word()))
            if src1 is not None:
                parts.append(register("v", src1, ops[-1][1] if before else ops[2][1]))
            if behind:
                parts.append(hexadecimal(self.word()))
        if e.name in _READS_CARRY:
            parts.append(scalar(106, 2))
        only_short = e.name.startswith((*_BEFORE_LAST, *_AT_END, "v_accvgpr"))
        return self.make(e.name + ("_sdwa" if sdwa else "_dpp" if dpp else "" if only_short else "_e32"), parts, mods)

    def vop3(self, w: int) -> Inst:
        e = self.find("V", bits(w, 16, 10))
        ops = list(e.operands)
        kind, count = ops.pop(0) if ops else ("v", 0)
        parts = [scalar(w & 255, count) if kind == "s" else register("v", w & 255, count)] if count else []
        absolute, select, negative = bits(w, 8, 3), bits(w, 11, 4), bits(w, 61, 3)
        if e.name in _TWO_RESULTS:
            parts.append(scalar(bits(w, 8, 7), 2))
            ops.pop(0)
            absolute = select = 0
        sources = [self.source(bits(w, 32 + 9 * i, 9), n) for i, (_, n) in enumerate(ops)]
        if e.name.startswith("v_bitop3"):  # whose table lies where others have their signs
            mods = {"bitop3": f"{bits(w, 59, 2) << 6 | absolute << 3 | negative:#x}"}
            return self.make(e.name, parts + sources, mods | ({"op_sel": vector_of(select, 4)} if select else {}))
        if (absolute | negative) >> len(ops):
            raise self.fail("flags of operands that it has not")
        parts += [flagged(s, (absolute >> i & 1) << 2 | (negative >> i & 1) << 1) for i, s in enumerate(sources)]
        mods = {}
        if e.name.startswith("v_permlane"):  # of rows that are swapped: where lanes are off
            mods = {name: "1" for name, bit in (("bound_ctrl", 2), ("fi", 1)) if select & bit}
        elif select:
            # Bit 2 of opcodes with two sources chooses a byte, with bit 3.
            count = 3 if select & 4 or e.name.startswith(_THREE_SELECTORS) else len(ops)
            mods["op_sel"] = vector_of(select & (1 << count) - 1 | select >> 3 << count, count + 1)
        mods |= flags_on(bits(w, 15, 1), "clamp") | self.scaled(w)
        return self.make(e.name + ("_e64" if bits(w, 16, 10) < 0x200 else ""), parts, mods)  # there is a short form

    def packed(self, w: int) -> Inst:
        if bits(w, 16, 7) == _LOAD_SCALES and self.chip == "gfx950":
            return self._scales(w)
        e = self.find("VOP3P", bits(w, 16, 7))
        codes = [bits(w, 32 + 9 * i, 9) for i in range(len(e.operands) - 1)]
        if "mfma" in e.name:
            return self._matrix(e, w, codes)
        if e.name.startswith("v_accvgpr"):
            read = e.name.startswith("v_accvgpr_read")
            return self.make(e.name, [register("v" if read else "a", w & 255, 1), self.source(codes[0], 1, read)])
        n = len(codes)
        high, low = bits(w, 8, 3), bits(w, 61, 3)
        mix = e.name.startswith(("v_fma_mix", "v_mad_mix"))
        parts = [register("v", w & 255, e.operands[0][1])]
        for i, (code, (_, count)) in enumerate(zip(codes, e.operands[1:])):
            flags = (high >> i & 1) << 2 | (low >> i & 1) << 1 if mix else 0
            parts.append(flagged(self.source(code, count), flags))
        halves = bits(w, 59, 2) | bits(w, 14, 1) << 2
        mods = packed_mods(n, bits(w, 11, 3), halves, 0 if mix else 7, 0 if mix else low, 0 if mix else high)
        return self.make(e.name, parts, mods | flags_on(bits(w, 15, 1), "clamp"))

    def _matrix(self, e: Encoding, w: int, codes: list[int]) -> Inst:
        acc, wide, last = bits(w, 59, 2), bits(w, 15, 1), bits(w, 61, 3)
        wide |= self.chip == "gfx908"  # whose sums always lie in the accumulation registers
        parts = [register("a" if wide else "v", w & 255, e.operands[0][1])]
        counts = [n for _, n in e.operands[1:]]
        if e.name.endswith("f8f6f4"):  # elements of 6 and 4 bits lie in 6 and 4 registers
            formats = bits(w, 8, 3), last
            if max(formats) > 4:
                raise self.fail(f"matrix formats {formats}")
            counts[:2] = [(8, 8, 6, 6, 4)[f] for f in formats]
        for i, (code, count) in enumerate(zip(codes, counts)):
            # Which elements a sparse A has is always told by a vector register.
            accumulation = acc >> i & 1 if i < 2 else wide and "smfmac" not in e.name
            parts.append(self.source(code, count, bool(accumulation)))
        mods = number("cbsz", bits(w, 8, 3)) | number("abid", bits(w, 11, 4))
        signs = "f64" in e.name and self.chip not in BEFORE_GFX940  # f64 has signs there since gfx942
        return self.make(
            e.name, parts, mods | ({"neg": vector_of(last, 3)} if signs and last else number("blgp", last))
        )

    def _scales(self, w: int) -> Inst:
        """The load of the scales and the product behind it, which are one instruction of LLVM's: v_mfma_scale. ABID 1 in the product says that they count."""
        # Bits 13 and 14 are selectors of a third operand, which it has not; AMD's assembly sets them.
        if w & ~(127 << 16 | 0x1A7 << 23 | 15 << 11 | 0x7FFFFFF << 32 | 3 << 59):
            raise self.fail("fields of scales")
        scales = [self.source(bits(w, 32 + 9 * i, 9), 1) for i in (0, 1)]
        low, high = bits(w, 11, 2), bits(w, 59, 2)
        if self.at == len(self.data):  # without the product that they are for
            return self.make("v_mfma_ld_scale_b32", scales, packed_mods(2, low, high, 3, 0, 0))
        after = self.word() | self.word() << 32
        if bits(after, 23, 9) != 0x1A7 or bits(after, 16, 7) not in _SCALED or bits(after, 11, 4) != 1:
            raise self.fail("scales without a product")
        product = self._matrix(
            self.find("VOP3P", bits(after, 16, 7)), after & ~(15 << 11), [bits(after, 32 + 9 * i, 9) for i in range(3)]
        )
        product.op = product.op.replace("v_mfma_", "v_mfma_scale_")
        product.operands += scales
        bytes_of = {name: vector_of(value, 3) for name, value in (("op_sel", low), ("op_sel_hi", high)) if value}
        product.mods = bytes_of | product.mods
        return product


def packed_mods(n: int, select: int, halves: int, usual: int, low: int, high: int) -> Mods:
    """Which half of each of `n` operands is taken, `usual` of op_sel_hi where nothing is said, and their signs."""
    mods = {}
    every = (1 << n) - 1
    for name, value, default in (
        ("op_sel", select, 0),
        ("op_sel_hi", halves, usual),
        ("neg_lo", low, 0),
        ("neg_hi", high, 0),
    ):
        if value & every != default & every:
            mods[name] = vector_of(value, n)
    return mods
