"""A code object's machine code to assembly text, for every chip that is emulated.

In: a `CodeObject`. Out: the text of its kernels in LLVM's syntax, which `asmparse` reads. Every field of an encoding is read or must be zero: what is not
known raises `UnsupportedInstruction` with the word and its place. Constants that code finds relative to the program counter
become symbols `__tec_at_<address>`.
Source: "AMD Instinct MI300 Instruction Set Architecture", chapter "Microcode Formats", and `decode.rdna`'s for gfx10.3 on; tools/encodings.py makes the
tables of opcodes by asking LLVM's assembler.
"""

from __future__ import annotations

import re

from ...runtime.objects.codeobject import CodeObject, KernelInfo
from ...runtime.objects.linetable import LineTable, read_line_table
from ..errors import UnsupportedInstruction
from .cdna5 import Cdna5Program
from .image import Images
from .memory import Memories
from .rdna import RdnaProgram
from .vector import Vectors
from .words import SYMBOL, Encoding, Program, bits, encodings, scalar

_HWREG = {1: "HW_REG_MODE", 2: "HW_REG_STATUS", 3: "HW_REG_TRAPSTS", 4: "HW_REG_HW_ID", 20: "HW_REG_XCC_ID"}
_MESSAGES = {1: "MSG_INTERRUPT", 4: "MSG_SAVEWAVE", 9: "MSG_GS_ALLOC_REQ"}


def disassemble(code: CodeObject) -> str:
    """The assembly of every kernel of a code object, with `.loc` where the code object has a line table."""
    lines = [f'.amdgcn_target "amdgcn-amd-amdhsa--{code.chip}"']
    table = read_line_table(code.debug)
    for info in code.kernels.values():
        program = decoder(code.chip, _machine_code(code, info), info.name, info.entry, info.wavefront_size)
        lines += [
            f"{info.name}:",
            *program.lines(table),
            f".Lfunc_end_{len(lines)}:",
        ]
    functions, names = _functions(code, table)
    text = "\n".join([*lines, *functions]) + "\n"
    return re.sub(rf"{SYMBOL}[0-9a-f]+@", lambda m: names.get(m[0], m[0]), text) if names else text


def _functions(code: CodeObject, table: LineTable) -> tuple[list[str], dict[str, str]]:
    """What kernels call, with the addresses of code that stand in data; and the names of what `decode.words` knows by address."""
    lines: list[str] = []
    kernels = {k.entry for k in code.kernels.values()}
    lanes = next((k.wavefront_size for k in code.kernels.values()), 0)
    entries: dict[int, tuple[str, int]] = {}
    for symbol in code.symbols.values():
        plain = re.fullmatch(r"[A-Za-z_.$][\w.$]*", symbol.name)
        inside = any(s.executable and s.vaddr <= symbol.value < s.vaddr + len(s.data) for s in code.segments)
        if plain and symbol.defined and symbol.size and inside and symbol.value not in kernels:
            entries[symbol.value] = symbol.name, symbol.size
    for entry, (name, size) in sorted(entries.items()):
        program = decoder(code.chip, _bytes_at(code, entry, size, name), name, entry, lanes)
        program.local = f".L{entry:x}_"
        lines += [f".type {name},@function", f"{name}:", *program.lines(table), f".Lfunc_end_{entry:x}:"]
    for r in code.relocations:
        known = code.symbols.get(r.symbol)
        value = (known.value if known is not None else 0) + r.addend
        if value in entries:
            lines.append(f".quad {entries[value][0]}")
    return lines, {f"{SYMBOL}{entry:x}@": f"{name}@" for entry, (name, _) in entries.items()}


def decoder(chip: str, data: bytes, kernel: str = "", entry: int = 0, lanes: int = 0) -> Program:
    """What reads `data`, the machine code of `kernel` at virtual address `entry`, for waves of `lanes` (0: the chip's usual)."""
    made = Gfx9Program if chip.startswith("gfx9") else Cdna5Program if chip == "gfx1250" else RdnaProgram
    return made(chip, data, kernel, entry, lanes)


def _machine_code(code: CodeObject, info: KernelInfo) -> bytes:
    """A kernel's bytes: as many as its symbol says, else to the end of the segment."""
    symbol = code.symbols.get(info.name)
    return _bytes_at(code, info.entry, symbol.size if symbol is not None and symbol.size else None, info.name)


def _bytes_at(code: CodeObject, entry: int, size: int | None, name: str) -> bytes:
    segment = next((s for s in code.segments if s.vaddr <= entry < s.vaddr + len(s.data)), None)
    if segment is None:
        raise UnsupportedInstruction("the kernel's entry lies in no segment", kernel=name)
    start = entry - segment.vaddr
    return segment.data[start : None if size is None else start + size]


class Gfx9Program(Vectors, Memories, Images, Program):
    """The instructions of one kernel of gfx9."""

    def instruction(self) -> str:
        w = self.word()
        if w >> 31 == 0:
            return self.vector(w)
        if w >> 30 == 2:
            return self.scalar_alu(w)
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
        if kind == 0b111010:
            return self.typed(w | self.word() << 32)
        if kind == 0b111100:
            return self.image(w | self.word() << 32)
        raise self.fail("an encoding that is not known")

    # Scalar.
    def scalar_alu(self, w: int) -> str:
        if bits(w, 23, 9) == 0b101111110 and bits(w, 16, 7) == 0x11:  # its second operand is a mask, no operand's code
            which = [n for k, n in enumerate(("SRC0", "SRC1", "SRC2", "DST")) if bits(w, 8 + k, 1)]
            return f"s_set_gpr_idx_on {self.source(w & 255, 1)}, gpr_idx({','.join(which)})"
        return super().scalar_alu(w)

    def scalar_one(self, e: Encoding, w: int) -> str:
        fields = [bits(w, 16, 7), w & 255]
        if len(e.operands) == 1:
            fields = [fields[1]] if e.name in ("s_setpc_b64", "s_rfe_b64", "s_set_gpr_idx_idx") else [fields[0]]
        return self.scalar_text(e, fields)

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
            register = scalar(bits(w, 16, 7), 1)
            return f"{e.name} {text}, {register}" if e.name.startswith("s_setreg") else f"{e.name} {register}, {text}"
        if e.name.startswith("s_call"):
            return f"{e.name} {scalar(bits(w, 16, 7), 2)}, {self.goal(imm)}"
        if e.name.startswith("s_cbranch"):
            raise self.fail(e.name)
        return f"{e.name} {scalar(bits(w, 16, 7), e.operands[0][1])}, {imm:#x}"

    def program(self, name: str, imm: int) -> str:
        if name.startswith(("s_branch", "s_cbranch")):
            return f"{name} {self.goal(imm)}"
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


__all__ = ["SYMBOL", "decoder", "disassemble", "encodings"]
