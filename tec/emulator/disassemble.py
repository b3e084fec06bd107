"""A code object's machine code to assembly text, for chips whose encodings are known (gfx90a, gfx942, gfx950).

In: a `CodeObject`. Out: the text of its kernels in LLVM's syntax, which `asmparse` reads. Every field of an encoding is read or must be zero: what is not
known raises `UnsupportedInstruction` with the word and its place. Constants that code finds relative to the program counter
become symbols `__tec_at_<address>`.
Source: "AMD Instinct MI300 Instruction Set Architecture", chapter "Microcode Formats"; the table of opcodes is made from what LLVM's assembler
encodes.
"""

from __future__ import annotations

import re

from ..runtime.codeobject import CodeObject, KernelInfo
from .decode_memory import Memories
from .decode_vector import Vectors
from .decode_words import bits, can_disassemble, encodings, scalar, signed
from .errors import UnsupportedInstruction

SYMBOL = "__tec_at_"  # before the hexadecimal address that such a symbol stands for
_HWREG = {1: "HW_REG_MODE", 2: "HW_REG_STATUS", 3: "HW_REG_TRAPSTS", 4: "HW_REG_HW_ID", 20: "HW_REG_XCC_ID"}
_MESSAGES = {1: "MSG_INTERRUPT", 4: "MSG_SAVEWAVE", 9: "MSG_GS_ALLOC_REQ"}


def disassemble(code: CodeObject) -> str:
    """The assembly of every kernel of a code object."""
    lines = [f'.amdgcn_target "amdgcn-amd-amdhsa--{code.chip}"']
    for info in code.kernels.values():
        lines += [
            f"{info.name}:",
            *Decoder(code.chip, _machine_code(code, info), info.name, info.entry).lines(),
            f".Lfunc_end_{len(lines)}:",
        ]
    return "\n".join(lines) + "\n"


def _machine_code(code: CodeObject, info: KernelInfo) -> bytes:
    """A kernel's bytes: as many as its symbol says, else to the end of the segment."""
    segment = next((s for s in code.segments if s.vaddr <= info.entry < s.vaddr + len(s.data)), None)
    if segment is None:
        raise UnsupportedInstruction("the kernel's entry lies in no segment", kernel=info.name)
    start = info.entry - segment.vaddr
    symbol = code.symbols.get(info.name)
    return segment.data[start : start + symbol.size if symbol is not None and symbol.size else None]


class Decoder(Vectors, Memories):
    """The instructions of one kernel."""

    def lines(self) -> list[str]:
        found: list[tuple[int, str]] = []
        while self.at + 4 <= len(self.data):
            self.start, self.literal = self.at, None
            found.append((self.start, self.instruction()))
        self._addresses(found)
        out = []
        for at, text in found:
            if at in self.targets:
                out.append(f".L_{at:x}:")
            if text:
                out.append(f"\t{text}")
        if len(self.data) in self.targets:
            out.append(f".L_{len(self.data):x}:")
        return out

    def _addresses(self, found: list[tuple[int, str]]) -> None:
        """Sums of the program counter and constants as symbols; a jump to one as a branch."""
        for k in range(len(found) - 2):
            if not found[k][1].startswith("s_getpc_b64"):
                continue
            texts = [t for _, t in found[k : k + 4]]
            m = re.match(
                r"s_getpc_b64 s\[(\d+):(\d+)\]\ns_add_u32 s\1, s\1, (\S+)\ns_addc_u32 s\2, s\2, (\S+)(?:\n(s_setpc_b64 s\[\1:\2\]))?$",
                "\n".join(texts[: 4 if texts[-1].startswith("s_setpc") else 3]),
            )
            if m is None:
                continue
            after = found[k + 1][0]
            delta = (int(m[4], 0) & 0xFFFFFFFF) << 32 | (int(m[3], 0) & 0xFFFFFFFF)
            goal = after + signed(delta, 64)
            if m[5]:
                self.targets.add(goal)
                found[k] = found[k][0], f"s_branch .L_{goal:x}"
                for n in (1, 2, 3):
                    found[k + n] = found[k + n][0], ""
                continue
            name = f"{SYMBOL}{self.entry + goal:x}"
            found[k + 1] = found[k + 1][0], f"s_add_u32 s{m[1]}, s{m[1]}, {name}@rel32@lo+4"
            found[k + 2] = found[k + 2][0], f"s_addc_u32 s{m[2]}, s{m[2]}, {name}@rel32@hi+12"

    def instruction(self) -> str:
        w = self.word()
        if w >> 31 == 0:
            return self.vector(w)
        if w >> 30 == 2:
            return self.scalar(w)
        kind = w >> 26
        if kind == 0b110000:
            return self.smem(w | self.word() << 32)
        if kind == 0b110100:
            w |= self.word() << 32
            return self.packed(w) if bits(w, 23, 9) == 0b110100111 else self.vop3(w)
        if kind == 0b110110:
            return self.lds(w | self.word() << 32)
        if kind == 0b110111:
            return self.flat(w | self.word() << 32)
        if kind == 0b111000:
            return self.buffer(w | self.word() << 32)
        raise self.fail("an encoding that is not known")

    # Scalar.
    def scalar(self, w: int) -> str:
        if bits(w, 23, 9) == 0b101111111:
            return self.program(self.find("SOPP", bits(w, 16, 7)).name, w & 0xFFFF)
        if bits(w, 23, 9) == 0b101111110:
            e = self.find("SOPC", bits(w, 16, 7))
            fields = [w & 255, bits(w, 8, 8)]
        elif bits(w, 23, 9) == 0b101111101:
            e = self.find("SOP1", bits(w, 8, 8))
            fields = [bits(w, 16, 7), w & 255]
            if len(e.operands) == 1:
                fields = [fields[1]] if e.name in ("s_setpc_b64", "s_rfe_b64", "s_set_gpr_idx_idx") else [fields[0]]
        elif bits(w, 28, 4) == 0b1011:
            return self.sopk(w)
        else:
            e = self.find("SOP2", bits(w, 23, 7))
            fields = [bits(w, 16, 7), w & 255, bits(w, 8, 8)]
        if len(fields) != len(e.operands):
            raise self.fail(f"{e.name} with {len(fields)} operands")
        return f"{e.name} " + ", ".join(self.source(f, n) for f, (_, n) in zip(fields, e.operands))

    def sopk(self, w: int) -> str:
        e = self.find("SOPK", bits(w, 23, 5))
        imm = w & 0xFFFF
        if "reg" in e.name:
            number = imm & 63
            if number not in _HWREG:
                raise self.fail(f"hardware register {number}")
            text = f"hwreg({_HWREG[number]}, {bits(imm, 6, 5)}, {bits(imm, 11, 5) + 1})"
            if e.name == "s_setreg_imm32_b32":
                return f"{e.name} {text}, {self.word():#x}"
            raise self.fail(e.name)
        if e.name.startswith(("s_cbranch", "s_call")):
            raise self.fail(e.name)
        return f"{e.name} {scalar(bits(w, 16, 7), e.operands[0][1])}, {imm:#x}"

    def program(self, name: str, imm: int) -> str:
        if name.startswith(("s_branch", "s_cbranch")):
            goal = self.at + 4 * signed(imm, 16)
            self.targets.add(goal)
            return f"{name} .L_{goal:x}"
        if name == "s_waitcnt":
            parts = []
            for label, value, most in (("vmcnt", imm & 15 | bits(imm, 14, 2) << 4, 63), ("expcnt", bits(imm, 4, 3), 7),
                                       ("lgkmcnt", bits(imm, 8, 4), 15)):  # fmt: skip
                if value != most:
                    parts.append(f"{label}({value})")
            return f"s_waitcnt {' '.join(parts)}" if parts else "s_nop 0"
        if name == "s_sendmsg":
            if imm not in _MESSAGES:
                raise self.fail(f"message {imm}")
            return f"s_sendmsg sendmsg({_MESSAGES[imm]})"
        return f"{name} {imm}" if imm or name in ("s_nop", "s_setprio", "s_sleep") else name


__all__ = ["SYMBOL", "Decoder", "can_disassemble", "disassemble", "encodings"]
