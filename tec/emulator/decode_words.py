"""What the decoders of machine code share: the table of encodings, registers and operands as text, the words of a kernel.

`encodings_gfx9.txt` names the opcodes: encoding, opcode, mnemonic, chips (a: gfx90a, b: gfx942, c: gfx950), operands (register file and
dwords; for memory the field: D result, A address, 0 and 1 data). VOP1, VOP2 and VOPC stand under their VOP3 opcodes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache

from .asmparse import TTMP0
from .errors import UnsupportedInstruction

_CHIPS = {"gfx90a": "a", "gfx942": "b", "gfx950": "c"}
_NAMED = {102: "flat_scratch", 104: "xnack_mask", 106: "vcc", 126: "exec"}
_FLOATS = ("0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0", "0.15915494")
_SPECIAL = {
    235: "src_shared_base", 236: "src_shared_limit", 237: "src_private_base", 238: "src_private_limit", 251: "src_vccz",
    252: "src_execz", 253: "src_scc",
}  # fmt: skip
_LITERAL = 255  # a source operand: the word after the instruction


@dataclass(frozen=True, slots=True)
class Encoding:
    name: str
    operands: tuple[tuple[str, int], ...]


@cache
def encodings(chip: str) -> dict[tuple[str, int], Encoding]:
    """(encoding, opcode) -> mnemonic and operands on `chip`."""
    out = {}
    with open(os.path.join(os.path.dirname(__file__), "encodings_gfx9.txt")) as file:
        for line in file:
            kind, op, name, chips, *operands = line.split()
            if _CHIPS[chip] in chips:
                out[kind, int(op, 16)] = Encoding(name, tuple((o[0], int(o[1:])) for o in operands))
    return out


def can_disassemble(chip: str) -> bool:
    return chip in _CHIPS


def bits(word: int, low: int, count: int) -> int:
    return word >> low & ((1 << count) - 1)


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def register(kind: str, index: int, count: int) -> str:
    return f"{kind}{index}" if count == 1 else f"{kind}[{index}:{index + count - 1}]"


def scalar(index: int, count: int) -> str:
    """A scalar register by its number in operand encodings below 128."""
    for first, name in _NAMED.items():
        if first <= index <= first + 1 and index >= 102:
            if count == 2 and index == first:
                return name
            if count == 1:
                return f"{name}_{('lo', 'hi')[index - first]}"
    if index == 124:
        return "m0"
    if index >= TTMP0:
        return f"ttmp{index - TTMP0}" if count == 1 else f"ttmp[{index - TTMP0}:{index - TTMP0 + count - 1}]"
    return register("s", index, count)


def flagged(text: str, flags: int) -> str:
    """Sign extension (1), negation (2) and absolute value (4) around an operand."""
    if flags & 1:
        text = f"sext({text})"
    if flags & 4:
        text = f"|{text}|"
    return f"-{text}" if flags & 2 else text


class Words:
    """The instructions in `data`, the machine code of `kernel` that begins at virtual address `entry`."""

    def __init__(self, chip: str, data: bytes, kernel: str = "", entry: int = 0):
        self.chip, self.data, self.kernel, self.entry = chip, data, kernel, entry
        self.table = encodings(chip)
        self.at = self.start = 0  # offsets in data: of what is read next, of the instruction
        self.literal: int | None = None
        self.targets: set[int] = set()

    def fail(self, what: str) -> UnsupportedInstruction:
        word = self.data[self.start : self.start + 8].hex()
        return UnsupportedInstruction(
            f"not decoded on {self.chip}: {what} (bytes {word} at {self.entry + self.start:#x})", kernel=self.kernel,
            hint="give the assembly beside the code object (kernel.s)",
        )  # fmt: skip

    # Words.
    def word(self) -> int:
        if self.at + 4 > len(self.data):
            raise self.fail("the code ends within an instruction")
        self.at += 4
        return int.from_bytes(self.data[self.at - 4 : self.at], "little")

    def find(self, kind: str, op: int) -> Encoding:
        found = self.table.get((kind, op))
        if found is None:
            raise self.fail(f"{kind} opcode {op:#x}")
        return found

    def source(self, code: int, count: int, accumulate: bool = False) -> str:
        """A 9-bit source operand."""
        if code >= 256:
            return register("a" if accumulate else "v", code - 256, count)
        if code < 128:
            return scalar(code, count)
        if code <= 192:
            return str(code - 128)
        if code <= 208:
            return str(192 - code)
        if 240 <= code <= 248:
            return _FLOATS[code - 240]
        if code in _SPECIAL:
            return _SPECIAL[code]
        if code == _LITERAL:
            if self.literal is None:
                self.literal = self.word()
            return f"{self.literal:#x}"
        raise self.fail(f"source operand {code}")
