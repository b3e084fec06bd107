"""Machine code of gfx10.3, gfx11 and gfx12: the words' kinds, scalar instructions, scalar loads, hints and waits.

In and out as in `disassemble`. Source: "RDNA 2", "RDNA3", "RDNA3.5" and "RDNA4 Instruction Set Architecture" manuals, chapter "Microcode Formats"; the
table of opcodes (encodings_rdna.txt) is made by tools/encodings.py.
"""

from __future__ import annotations

from .image import Images
from .rdna_memory import RdnaMemories
from .rdna_vector import RdnaVectors
from .words import Encoding, Program, bits, signed

_HWREG = {1: "HW_REG_MODE", 2: "HW_REG_STATUS", 3: "HW_REG_TRAPSTS", 20: "HW_REG_FLAT_SCR_LO", 21: "HW_REG_FLAT_SCR_HI", 23: "HW_REG_HW_ID1",
          24: "HW_REG_HW_ID2", 29: "HW_REG_SHADER_CYCLES"}  # fmt: skip
_HWREG_12 = {1: "HW_REG_WAVE_MODE", 2: "HW_REG_WAVE_STATUS", 4: "HW_REG_WAVE_STATE_PRIV", 23: "HW_REG_WAVE_HW_ID1", 24: "HW_REG_WAVE_HW_ID2",
             26: "HW_REG_WAVE_SCHED_MODE", 28: "HW_REG_IB_STS2", 29: "HW_REG_SHADER_CYCLES_LO", 30: "HW_REG_SHADER_CYCLES_HI"}  # fmt: skip
_MESSAGES = {1: "MSG_INTERRUPT", 3: "MSG_DEALLOC_VGPRS", 4: "MSG_SAVEWAVE", 9: "MSG_GS_ALLOC_REQ"}
_RETURNING = {
    128: "MSG_RTN_GET_DOORBELL", 129: "MSG_RTN_GET_DDID", 130: "MSG_RTN_GET_TMA", 131: "MSG_RTN_GET_REALTIME", 132: "MSG_RTN_SAVE_WAVE",
    133: "MSG_RTN_GET_TBA", 134: "MSG_RTN_GET_TBA_TO_PC", 135: "MSG_RTN_GET_SE_AID_ID",
    136: "MSG_RTN_GET_CLUSTER_BARRIER_STATE",
}  # fmt: skip
_VMEM_HINTS = frozenset(("s_nop", "s_setprio", "s_sleep"))


class RdnaProgram(RdnaVectors, RdnaMemories, Images, Program):
    """The instructions of one kernel."""

    def instruction(self) -> str:
        w = self.word()
        if w >> 31 == 0:
            return self.vector(w)
        if w >> 30 == 2:
            return self.scalar_alu(w)
        kind = bits(w, 26, 6)
        if kind == 0b110010 and self.gfx >= 11:
            return self.dual(w | self.word() << 32)
        w |= self.word() << 32
        if kind == 0b110101:
            return self.vop3(w)
        if bits(w, 24, 8) == 0b11001100:
            return self.packed(w)
        if kind == 0b111101:
            return self.scalar_load(w)
        if kind == 0b110110:
            return self.lds(w)
        if self.gfx >= 12 and kind == 0b111011:
            return self.flat12(w | self.word() << 64)
        if self.gfx >= 12 and kind == 0b110001:
            return self.buffer12(w | self.word() << 64)
        if self.gfx < 12 and kind == 0b110111:
            return self.flat(w)
        if self.gfx < 12 and kind == 0b111000:
            return self.buffer(w)
        if self.gfx < 12 and kind == 0b111010:
            return self.typed(w)
        if self.gfx < 12 and kind == 0b111100:
            return self.image(w)
        if self.gfx >= 12 and kind in (0b110100, 0b111001):
            return self.image12(w | self.word() << 64)
        raise self.fail("an encoding that is not known")

    def load_tail(self, w: int) -> str:
        """Modifiers of scalar loads that gfx1250 adds."""
        return ""

    def scalar_one(self, e: Encoding, w: int) -> str:
        fields = [bits(w, 16, 7), w & 255]
        if e.name.startswith("s_sendmsg_rtn"):
            if w & 255 not in _RETURNING:
                raise self.fail(f"message {w & 255}")
            return f"{e.name} {self.scalar(fields[0], e.operands[0][1])}, sendmsg({_RETURNING[w & 255]})"
        if not e.operands:
            return e.name
        if len(e.operands) == 1:
            fields = [fields[1] if e.operands[0][0] == "S" else fields[0]]
        return self.scalar_text(e, fields)

    def scalar_two(self, e: Encoding, fields: list[int]) -> str:
        if e.name.endswith(("fmaak_f32", "fmamk_f32")):
            d, a, b = (self.source(f, 1) for f in fields)
            k = f"{self.literal_word():#x}"
            return f"{e.name} {d}, {a}, " + (f"{b}, {k}" if "aak" in e.name else f"{k}, {b}")
        return self.scalar_text(e, fields)

    def sopk(self, w: int) -> str:
        e = self.find("SOPK", bits(w, 23, 5))
        imm, first = w & 0xFFFF, self.scalar(bits(w, 16, 7), 1)
        if "reg" in e.name:
            names = _HWREG if self.gfx < 12 else _HWREG_12
            if imm & 63 not in names:
                raise self.fail(f"hardware register {imm & 63}")
            text = f"hwreg({names[imm & 63]}, {bits(imm, 6, 5)}, {bits(imm, 11, 5) + 1})"
            if e.name == "s_setreg_imm32_b32":
                return f"{e.name} {text}, {self.word():#x}"
            return f"{e.name} {text}, {first}" if e.name.startswith("s_setreg") else f"{e.name} {first}, {text}"
        if e.name.startswith("s_call"):
            return f"{e.name} {self.scalar(bits(w, 16, 7), 2)}, {self.goal(imm)}"
        if e.name == "s_version":
            return f"{e.name} {imm:#x}"
        if e.name.startswith("s_subvector"):
            raise self.fail(e.name)
        return f"{e.name} {self.scalar(bits(w, 16, 7), e.operands[0][1])}, {imm:#x}"

    def program(self, name: str, imm: int) -> str:
        if name.startswith(("s_branch", "s_cbranch")):
            return f"{name} {self.goal(imm)}"
        if name == "s_waitcnt":
            return self._waitcnt(imm)
        if name == "s_sendmsg":
            if imm not in _MESSAGES:
                raise self.fail(f"message {imm}")
            return f"s_sendmsg sendmsg({_MESSAGES[imm]})"
        if name == "s_barrier_wait":
            return f"{name} {signed(imm, 16)}"
        e = self.named[name]
        return f"{name} {imm:#x}" if imm or e.operands or name in _VMEM_HINTS else name

    def _waitcnt(self, imm: int) -> str:
        if self.gfx == 10:
            fields = (
                ("vmcnt", imm & 15 | bits(imm, 14, 2) << 4, 63),
                ("expcnt", bits(imm, 4, 3), 7),
                ("lgkmcnt", bits(imm, 8, 6), 63),
            )
        else:
            fields = ("vmcnt", bits(imm, 10, 6), 63), ("expcnt", imm & 7, 7), ("lgkmcnt", bits(imm, 4, 6), 63)
        parts = [f"{label}({value})" for label, value, most in fields if value != most]
        return f"s_waitcnt {' '.join(parts)}" if parts else f"s_waitcnt {imm:#x}"

    def scalar_load(self, w: int) -> str:
        new = self.gfx >= 12
        e = self.find("SMEM", bits(w, 13, 6) if new else bits(w, 18, 8))
        if not e.operands:
            return e.name
        width = 24 if new else 21
        offset, base = signed(bits(w, 32, width), width), bits(w, 57, 7)
        if "prefetch" in e.name:
            parts = [hex(offset), self.scalar(base, 1), str(bits(w, 6, 5))]
            first = [] if e.name.endswith("_rel") else [self.scalar(2 * (w & 63), e.operands[0][1])]
            return f"{e.name} {', '.join(first + parts)}"
        if len(e.operands) == 1:
            return f"{e.name} {self.scalar(bits(w, 6, 7), e.operands[0][1])}"
        parts = [self.scalar(bits(w, 6, 7), e.operands[0][1]), self.scalar(2 * (w & 63), e.operands[1][1])]
        null = 125 if self.gfx == 10 else 124
        parts.append(hex(offset) if base == null else self.scalar(base, 1))
        tail = f" offset:{offset:#x}" if base != null and offset else ""
        if new:
            tail += self.load_tail(w) + self.policy(bits(w, 23, 2), bits(w, 21, 2), "load")
        else:
            glc, dlc = (16, 14) if self.gfx == 10 else (14, 13)
            tail += (" glc" if bits(w, glc, 1) else "") + (" dlc" if bits(w, dlc, 1) else "")
        return f"{e.name} {', '.join(parts)}{tail}"
