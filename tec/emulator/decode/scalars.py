"""Scalar instructions from machine code, for every chip: arithmetic, program control, hints and waits, scalar loads.

The encodings lie alike in all generations but for waits, scalar loads and the numbers of hardware registers and messages.
"""

from __future__ import annotations

from .inst import Inst, Operand
from .words import Encoding, Mods, Words, bits, call, flags_on, hexadecimal, integer, scalar, signed

# Hardware registers by number: of gfx9, of gfx10 and gfx11, of gfx12.
_HWREG = (
    {1: "MODE", 2: "STATUS", 3: "TRAPSTS", 4: "HW_ID", 20: "XCC_ID"},
    {1: "MODE", 2: "STATUS", 3: "TRAPSTS", 20: "FLAT_SCR_LO", 21: "FLAT_SCR_HI", 23: "HW_ID1", 24: "HW_ID2", 29: "SHADER_CYCLES"},
    {1: "WAVE_MODE", 2: "WAVE_STATUS", 4: "WAVE_STATE_PRIV", 23: "WAVE_HW_ID1", 24: "WAVE_HW_ID2", 26: "WAVE_SCHED_MODE", 28: "IB_STS2",
     29: "SHADER_CYCLES_LO", 30: "SHADER_CYCLES_HI"},
)  # fmt: skip
_MESSAGES = {1: "INTERRUPT", 3: "DEALLOC_VGPRS", 4: "SAVEWAVE", 9: "GS_ALLOC_REQ"}  # 3 from gfx10 on
_RETURNING = {
    128: "GET_DOORBELL", 129: "GET_DDID", 130: "GET_TMA", 131: "GET_REALTIME", 132: "SAVE_WAVE", 133: "GET_TBA", 134: "GET_TBA_TO_PC",
    135: "GET_SE_AID_ID", 136: "GET_CLUSTER_BARRIER_STATE",
}  # fmt: skip
# The counters of s_waitcnt: pieces of (first bit, bits), from the lowest.
_WAITS: dict[int, dict[str, tuple[tuple[int, int], ...]]] = {
    9: {"vmcnt": ((0, 4), (14, 2)), "expcnt": ((4, 3),), "lgkmcnt": ((8, 4),)},
    10: {"vmcnt": ((0, 4), (14, 2)), "expcnt": ((4, 3),), "lgkmcnt": ((8, 6),)},
    11: {"vmcnt": ((10, 6),), "expcnt": ((0, 3),), "lgkmcnt": ((4, 6),)},
}
_ONE_SOURCE = ("s_setpc_b64", "s_rfe_b64", "s_set_gpr_idx_idx")
_WITH_ZERO = ("s_nop", "s_setprio", "s_sleep")  # hints that name their operand where it is 0 too


def _message(names: dict[int, str], prefix: str, value: int) -> Operand:
    """A message, as the number that it is where it has no name."""
    return call(f"sendmsg({prefix}_{names[value]})") if value in names else hexadecimal(value)


class Scalars(Words):
    """Encodings of scalar instructions."""

    def scalar_alu(self, w: int) -> Inst:
        if bits(w, 23, 9) == 0b101111111:
            return self._program(self.find("SOPP", bits(w, 16, 7)), w & 0xFFFF)
        if bits(w, 23, 9) == 0b101111110:
            return self._compare(w)
        if bits(w, 23, 9) == 0b101111101:
            return self._one(self.find("SOP1", bits(w, 8, 8)), w)
        if bits(w, 28, 4) == 0b1011:
            return self._constant(w)
        e = self.find("SOP2", bits(w, 23, 7))
        fields = [bits(w, 16, 7), w & 255, bits(w, 8, 8)]
        if e.name.endswith(("fmaak_f32", "fmamk_f32")):
            parts = [self.source(f, 1) for f in fields]
            parts.insert(3 if "aak" in e.name else 2, hexadecimal(self.literal_word()))
            return self.make(e.name, parts)
        return self._fields(e, fields)

    def _fields(self, e: Encoding, fields: list[int]) -> Inst:
        if len(fields) != len(e.operands):
            raise self.fail(f"{e.name} with {len(fields)} operands")
        return self.make(e.name, [self.source(f, n) for f, (_, n) in zip(fields, e.operands)])

    def _compare(self, w: int) -> Inst:
        if self.gfx == 9 and bits(w, 16, 7) == 0x11:  # its second operand is a mask, no operand's code
            which = [n for k, n in enumerate(("SRC0", "SRC1", "SRC2", "DST")) if bits(w, 8 + k, 1)]
            return self.make("s_set_gpr_idx_on", [self.source(w & 255, 1), call(f"gpr_idx({','.join(which)})")])
        return self._fields(self.find("SOPC", bits(w, 16, 7)), [w & 255, bits(w, 8, 8)])

    def _one(self, e: Encoding, w: int) -> Inst:
        fields = [bits(w, 16, 7), w & 255]
        if e.name.startswith("s_sendmsg_rtn"):
            return self.make(
                e.name, [self.scalar(fields[0], e.operands[0][1]), _message(_RETURNING, "MSG_RTN", w & 255)]
            )
        if not e.operands:
            return self.make(e.name)
        if len(e.operands) == 1:
            fields = [fields[1] if e.operands[0][0] == "S" or e.name in _ONE_SOURCE else fields[0]]
        return self._fields(e, fields)

    def _constant(self, w: int) -> Inst:
        """SOPK: an opcode with 16 bits of constant."""
        e = self.find("SOPK", bits(w, 23, 5))
        imm = w & 0xFFFF
        if "reg" in e.name:
            names = _HWREG[(self.gfx > 9) + (self.gfx > 11)]
            name, low, count = names.get(imm & 63, ""), bits(imm, 6, 5), bits(imm, 11, 5) + 1
            # One without a name is the number that it is.
            place = call(f"hwreg(HW_REG_{name}, {low}, {count})") if name else hexadecimal(imm)
            if e.name == "s_setreg_imm32_b32":
                return self.make(e.name, [place, hexadecimal(self.word())])
            first = self.scalar(bits(w, 16, 7), 1)
            return self.make(e.name, [place, first] if e.name.startswith("s_setreg") else [first, place])
        if e.name.startswith("s_call"):
            return self.make(e.name, [self.scalar(bits(w, 16, 7), 2), self.goal(imm)])
        if e.name == "s_version":
            return self.make(e.name, [hexadecimal(imm)])
        if e.name.startswith(("s_cbranch", "s_subvector")):
            raise self.fail(e.name)
        return self.make(e.name, [self.scalar(bits(w, 16, 7), e.operands[0][1]), hexadecimal(imm)])

    def _program(self, e: Encoding, imm: int) -> Inst:
        """SOPP."""
        name = e.name
        if name.startswith(("s_branch", "s_cbranch")):
            return self.make(name, [self.goal(imm)])
        if name == "s_waitcnt" and self.gfx in _WAITS:  # gfx12 has the opcode still, and waits of its own
            return self._waitcnt(imm)
        if name == "s_sendmsg":
            return self.make(
                name, [hexadecimal(imm) if imm == 3 and self.gfx == 9 else _message(_MESSAGES, "MSG", imm)]
            )
        if name == "s_barrier_wait":
            return self.make(name, [integer(signed(imm, 16))])
        if self.gfx == 9:
            return self.make(name, [integer(imm)] if imm or name in _WITH_ZERO else [])
        return self.make(name, [hexadecimal(imm)] if imm or e.operands or name in _WITH_ZERO else [])

    def _waitcnt(self, imm: int) -> Inst:
        waits = []
        for counter, pieces in _WAITS[self.gfx].items():
            value = width = 0
            for low, count in pieces:
                value, width = value | bits(imm, low, count) << width, width + count
            if value != (1 << width) - 1:
                waits.append(f"{counter}({value})")
        if not waits and self.gfx == 9:
            return self.make("s_nop", [integer(0)])
        return self.make("s_waitcnt", [call(" ".join(waits)) if waits else hexadecimal(imm)])

    def smem(self, w: int) -> Inst:
        """Scalar loads, stores and atomics of gfx9."""
        e = self.find("SMEM", bits(w, 18, 8))
        if e.name.startswith(("s_mem", "s_dcache")):
            return self.make(e.name, [scalar(bits(w, 6, 7), 2)] if e.name.startswith("s_mem") else [])
        if bits(w, 15, 1) or len(e.operands) < 2:
            raise self.fail(e.name)
        offset = hexadecimal(signed(bits(w, 32, 21), 21))
        parts = [scalar(bits(w, 6, 7), e.operands[0][1]), scalar(2 * (w & 63), e.operands[1][1])]
        mods: Mods = {}
        if bits(w, 14, 1):  # an SGPR offset, beside the constant where there is one
            parts.append(scalar(bits(w, 57, 7), 1))
            mods = {"offset": offset.text} if bits(w, 17, 1) else {}
        else:
            parts.append(offset if bits(w, 17, 1) else scalar(bits(w, 32, 7), 1))
        return self.make(e.name, parts, mods | flags_on(bits(w, 16, 1), "glc"))

    def scalar_load(self, w: int) -> Inst:
        """Scalar loads and prefetches from gfx10 on."""
        new = self.gfx >= 12
        e = self.find("SMEM", bits(w, 13, 6) if new else bits(w, 18, 8))
        if not e.operands:
            return self.make(e.name)
        width = 24 if new else 21
        offset, base = hexadecimal(signed(bits(w, 32, width), width)), bits(w, 57, 7)
        if "prefetch" in e.name:
            first = [] if e.name.endswith("_rel") else [self.scalar(2 * (w & 63), e.operands[0][1])]
            return self.make(e.name, [*first, offset, self.scalar(base, 1), integer(bits(w, 6, 5))])
        result = self.scalar(bits(w, 6, 7), e.operands[0][1])
        if len(e.operands) == 1:
            return self.make(e.name, [result])
        constant = base == (125 if self.gfx == 10 else 124)
        mods = {"offset": offset.text} if not constant and offset.value else {}
        mods |= self.load_mods(w)
        return self.make(
            e.name,
            [result, self.scalar(2 * (w & 63), e.operands[1][1]), offset if constant else self.scalar(base, 1)],
            mods,
        )

    def load_mods(self, w: int) -> Mods:
        """Cache hints of a scalar load."""
        if self.gfx >= 12:
            return self.policy(bits(w, 23, 2), bits(w, 21, 2), "load")
        glc, dlc = (16, 14) if self.gfx == 10 else (14, 13)
        return flags_on(bits(w, glc, 1) | bits(w, dlc, 1) << 1, "glc", "dlc")
