"""What the decoders of machine code share: the table of encodings, registers and operands as text, the words of a kernel.

`encodings_gfx9.txt` and `encodings_rdna.txt` name the opcodes: encoding, opcode, mnemonic, chips (by the letters of `_CHIPS`), operands (register file and
dwords; h: half a register, m: a lane mask, S: a scalar source that has no result beside it; for memory the field: D result, A address, 0 and 1 data; =n:
op_sel_hi where nothing is said). VOP1, VOP2 and VOPC stand under their VOP3 opcodes. tools/encodings.py makes both.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cache

from ...runtime.objects.linetable import NO_LINES, LineTable
from ..errors import UnsupportedInstruction
from .asmparse import TTMP0, generation

# The chips of each table, by their letters there. gfx1201 has gfx1200's instructions.
_CHIPS = {
    "gfx90a": "a", "gfx942": "b", "gfx950": "c", "gfx1030": "d", "gfx1100": "e", "gfx1151": "f", "gfx1200": "g", "gfx1201": "g",
    "gfx1250": "h",
}  # fmt: skip
_NAMED = {102: "flat_scratch", 104: "xnack_mask", 106: "vcc", 126: "exec"}
_FLOATS = ("0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0", "0.15915494")
_SPECIAL = {
    235: "src_shared_base", 236: "src_shared_limit", 237: "src_private_base", 238: "src_private_limit", 251: "src_vccz",
    252: "src_execz", 253: "src_scc",
}  # fmt: skip
SYMBOL = "__tec_at_"  # before the hexadecimal address that such a symbol stands for
_LITERAL = 255  # a source operand: the word after the instruction


@dataclass(frozen=True, slots=True)
class Encoding:
    name: str
    operands: tuple[tuple[str, int], ...]
    halves: int = 0  # op_sel_hi where nothing is said


@cache
def encodings(chip: str) -> dict[tuple[str, int], Encoding]:
    """(encoding, opcode) -> mnemonic and operands on `chip`."""
    out = {}
    family = "gfx9" if chip.startswith("gfx9") else "rdna"
    with open(os.path.join(os.path.dirname(__file__), f"encodings_{family}.txt")) as file:
        for line in file:
            kind, op, name, chips, *operands = line.split()
            if _CHIPS[chip] in chips:
                halves = int(operands.pop()[1:]) if operands and operands[-1][0] == "=" else 0
                out[kind, int(op, 16)] = Encoding(name, tuple((o[0], int(o[1:])) for o in operands), halves)
    return out


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

    def __init__(self, chip: str, data: bytes, kernel: str = "", entry: int = 0, lanes: int = 0):
        self.chip, self.data, self.kernel, self.entry = chip, data, kernel, entry
        self.gfx = generation(chip)
        self.mask = (lanes or (64 if self.gfx == 9 else 32)) // 32  # SGPRs of a lane mask
        self.table = encodings(chip)
        self.named = {e.name: e for e in self.table.values()}
        self.at = self.start = 0  # offsets in data: of what is read next, of the instruction
        self.literal: int | None = None
        self.targets: set[int] = set()
        self.local = ".L_"  # what labels begin with

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
            return self.scalar(code, count)
        if code <= 192:
            return str(code - 128)
        if code <= 208:
            return str(192 - code)
        if 240 <= code <= 248:
            return _FLOATS[code - 240]
        if code in _SPECIAL:
            return _SPECIAL[code]
        if code == _LITERAL:
            return f"{self.literal_word():#x}"
        raise self.fail(f"source operand {code}")

    def scalar(self, index: int, count: int) -> str:
        """A scalar register by its number, as this generation numbers them."""
        if self.gfx == 9 or index in (106, 107, 126, 127) or 108 <= index <= 123:
            return scalar(index, count)
        if index in (124, 125):  # gfx11 exchanged the two
            return "m0" if (index == 124) == (self.gfx == 10) else "null"
        return register("s", index, count)

    def literal_word(self) -> int:
        """The instruction's literal, of which there is one."""
        if self.literal is None:
            self.literal = self.word()
        return self.literal

    def goal(self, imm: int) -> str:
        """The label of a branch's goal, so many words after it."""
        at = self.at + 4 * signed(imm, 16)
        self.targets.add(at)
        return f"{self.local}{at:x}"


class Program(Words):
    """The instructions of one kernel as text; a generation's decoder reads one at `at` (`instruction`)."""

    def instruction(self) -> str:
        raise NotImplementedError

    # Scalar instructions lie alike in all generations; what differs stands in the decoders.
    def scalar_alu(self, w: int) -> str:
        if bits(w, 23, 9) == 0b101111111:
            return self.program(self.find("SOPP", bits(w, 16, 7)).name, w & 0xFFFF)
        if bits(w, 23, 9) == 0b101111110:
            return self.scalar_text(self.find("SOPC", bits(w, 16, 7)), [w & 255, bits(w, 8, 8)])
        if bits(w, 23, 9) == 0b101111101:
            return self.scalar_one(self.find("SOP1", bits(w, 8, 8)), w)
        if bits(w, 28, 4) == 0b1011:
            return self.sopk(w)
        return self.scalar_two(self.find("SOP2", bits(w, 23, 7)), [bits(w, 16, 7), w & 255, bits(w, 8, 8)])

    def scalar_one(self, e: Encoding, w: int) -> str:
        raise NotImplementedError

    def scalar_two(self, e: Encoding, fields: list[int]) -> str:
        return self.scalar_text(e, fields)

    def scalar_text(self, e: Encoding, fields: list[int]) -> str:
        if len(fields) != len(e.operands):
            raise self.fail(f"{e.name} with {len(fields)} operands")
        return f"{e.name} " + ", ".join(self.source(f, n) for f, (_, n) in zip(fields, e.operands))

    def sopk(self, w: int) -> str:
        raise NotImplementedError

    def program(self, name: str, imm: int) -> str:
        raise NotImplementedError

    def lines(self, table: LineTable = NO_LINES) -> list[str]:
        """The text, with `.loc` where `table` has another source line."""
        found: list[tuple[int, str]] = []
        while self.at + 4 <= len(self.data):
            self.start, self.literal = self.at, None
            found.append((self.start, self.instruction()))
        self._addresses(found)
        out: list[str] = []
        files: dict[str, int] = {}
        last = ""
        for at, text in found:
            if at in self.targets:
                out.append(f"{self.local}{at:x}:")
            place = table.where(self.entry + at)
            if place != last:
                file, _, number = (last := place).rpartition(":")
                if file and file not in files:
                    files[file] = len(files) + 1
                    out.append(f'\t.file\t{files[file]} "{file}"')
                out.append(f"\t.loc\t{files[file]} {number} 0" if file else "\t.loc\t1 0 0")
            if text:
                out.append(f"\t{text}")
        if len(self.data) in self.targets:
            out.append(f"{self.local}{len(self.data):x}:")
        return out

    def _addresses(self, found: list[tuple[int, str]]) -> None:
        """Sums of the program counter and constants as symbols; a jump to one as a branch."""
        for k, (_, text) in enumerate(found):
            m = re.match(r"s_getpc_b64 s\[(\d+):(\d+)\]$", text)
            if m is None:
                continue
            sums: list[tuple[int, int]] = []  # the additions to the lower and the upper half, and their constants
            for n in range(k + 1, min(k + 9, len(found))):
                own = re.match(r"s_add(?:c|_co|_co_ci)?_u32 s(\d+), s\1, (0x[0-9a-f]+|-?\d+)$", found[n][1])
                if own is not None and own[1] == m[1 + len(sums)]:
                    sums.append((n, int(own[2], 0) & 0xFFFFFFFF))
                if len(sums) == 2:
                    break
            if len(sums) < 2:
                continue
            (low, a), (high, b) = sums
            goal = found[k + 1][0] + signed(b << 32 | a, 64)
            jump = next(
                (
                    n
                    for n in range(high + 1, min(high + 3, len(found)))
                    if found[n][1] == f"s_setpc_b64 s[{m[1]}:{m[2]}]"
                ),
                None,
            )
            if jump is not None and 0 <= goal <= len(self.data):
                self.targets.add(goal)
                for n in (k, low, high):
                    found[n] = found[n][0], ""
                found[jump] = found[jump][0], f"s_branch {self.local}{goal:x}"
                continue
            # The addends count the words since s_getpc as LLVM's text does, one an instruction and one a symbol.
            for n, part, after in ((low, "lo", 4 * (low - k)), (high, "hi", 4 * (high - k) + 4)):
                op, dst, _ = found[n][1].split(None, 2)
                found[n] = found[n][0], f"{op} {dst} {dst} {SYMBOL}{self.entry + goal:x}@rel32@{part}+{after}"
