"""What the decoders of machine code share: the table of encodings, operands, the words of a kernel.

`encodings_gfx9.txt` and `encodings_rdna.txt` name the opcodes: encoding, opcode, mnemonic, chips (by the letters of `_CHIPS`), operands (register file and
dwords; h: half a register, m: a lane mask, S: a scalar source that has no result beside it; for memory the field: D result, A address, 0 and 1 data; =n:
op_sel_hi where nothing is said). VOP1, VOP2 and VOPC stand under their VOP3 opcodes. tools/encodings.py makes both. `encodings_amd.txt` has in the same form opcodes
that AMD's machine-readable ISA files list and LLVM's assembler does not know.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache

from ..errors import UnsupportedInstruction
from .inst import INV_2PI, NO_OPERANDS, TTMP0, Inst, Operand, generation, opcode

# The chips of each table, by their letters there. gfx1201 has gfx1200's instructions, gfx1101 to gfx1103 have gfx1100's, gfx1150 gfx1151's. What gfx900, gfx906 and gfx908 have of
# gfx90a's opcodes means the same there; what is theirs alone (v_mad_f32, v_mac_f32) LLVM writes only where denormals are flushed, and it is refused here.
_CHIPS = {
    "gfx900": "a",
    "gfx906": "a",
    "gfx908": "a",
    "gfx90a": "a",
    "gfx942": "b",
    "gfx950": "c",
    "gfx1030": "d",
    "gfx1100": "e",
    "gfx1101": "e",
    "gfx1102": "e",
    "gfx1103": "e",
    "gfx1150": "f",
    "gfx1151": "f",
    "gfx1200": "g",
    "gfx1201": "g",
    "gfx1250": "h",
}
# In their places gfx900 has v_mad_mix, which rounds twice and flushes denormals: refused as v_mad_f32 is.
_GFX906_MIX = "v_fma_mix"
BEFORE_GFX940 = ("gfx900", "gfx906", "gfx908", "gfx90a")  # fmt: skip
_NAMED = {102: "flat_scratch", 104: "xnack_mask", 106: "vcc", 126: "exec"}
_FLOATS = (0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0)  # source operands from 240 on, then 1 / (2 pi)
_SPECIAL = {
    235: "src_shared_base", 236: "src_shared_limit", 237: "src_private_base", 238: "src_private_limit", 251: "src_vccz",
    252: "src_execz", 253: "src_scc",
}  # fmt: skip
_SCOPES = ("", "SCOPE_SE", "SCOPE_DEV", "SCOPE_SYS")
_LOAD_HINTS = ("", "NT", "HT", "LU", "NT_RT", "RT_NT", "NT_HT", "RESERVED")
_STORE_HINTS = ("", "NT", "HT", "RT_WB", "NT_RT", "RT_NT", "NT_HT", "NT_WB")
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
    for family in ("gfx9" if chip.startswith("gfx9") else "rdna", "amd"):
        with open(os.path.join(os.path.dirname(__file__), f"encodings_{family}.txt")) as file:
            for line in file:
                kind, op, name, chips, *operands = line.split()
                if _CHIPS[chip] in chips and not (chip == "gfx900" and name.startswith(_GFX906_MIX)):
                    halves = int(operands.pop()[1:]) if operands and operands[-1][0] == "=" else 0
                    out[kind, int(op, 16)] = Encoding(name, tuple((o[0], int(o[1:])) for o in operands), halves)
    return out


def bits(word: int, low: int, count: int) -> int:
    return word >> low & ((1 << count) - 1)


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


Mods = dict[str, str]


@cache
def register(kind: str, index: int, count: int, half: str = "") -> Operand:
    name = f"{kind}{index}" if count == 1 else f"{kind}[{index}:{index + count - 1}]"
    return Operand(kind, f"{name}.{half}" if half else name, index, count, half)


@cache
def scalar(index: int, count: int) -> Operand:
    """A scalar register by its number in operand encodings below 128, as gfx9 numbers them."""
    for first, name in _NAMED.items():
        if first <= index <= first + 1 and count + index <= first + 2:
            return Operand("s", name if count == 2 else f"{name}_{('lo', 'hi')[index - first]}", index, count)
    if index == 124:
        return Operand("s", "m0", 124)
    if index >= TTMP0:
        return replace(register("ttmp", index - TTMP0, count), kind="s", index=index)
    return register("s", index, count)


def special(name: str) -> Operand:
    return Operand("special", name)


def call(text: str) -> Operand:
    return Operand("call", text)


def integer(value: int, text: str = "") -> Operand:
    return Operand("int", text or str(value), value=value)


def hexadecimal(value: int) -> Operand:
    return Operand("int", f"{value:#x}", value=value)


OFF = special("off")


def flagged(op: Operand, flags: int) -> Operand:
    """An operand with sign extension (1), negation (2) and absolute value (4)."""
    if not flags:
        return op
    text = f"sext({op.text})" if flags & 1 else op.text
    text = f"|{text}|" if flags & 4 else text
    if flags & 2:  # a constant's sign would be read as its own
        text = f"neg({text})" if op.kind in ("int", "float") and flags == 2 else f"-{text}"
    return replace(op, text=text, sext=bool(flags & 1), neg=bool(flags & 2), abs=bool(flags & 4))


def flags_on(value: int, *names: str) -> Mods:
    """Modifiers without a value, one for each bit that is set, from the lowest."""
    return {name: "" for k, name in enumerate(names) if value >> k & 1}


def number(name: str, value: int) -> Mods:
    """A modifier with a number, where it is not 0."""
    return {name: str(value)} if value else {}


def vector_of(value: int, count: int) -> str:
    """Bits as a list, from the lowest."""
    return f"[{','.join(str(value >> i & 1) for i in range(count))}]"


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

    def make(self, name: str, operands: Iterable[Operand] = (), mods: Mods | None = None) -> Inst:
        op, encoding = opcode(name)
        if op in NO_OPERANDS:
            return Inst(op, encoding, [call(", ".join(o.text for o in operands))], {})
        made = Inst(op, encoding, list(operands), mods or {})
        if op != name and not encoding:
            made.written = made.printed(name)
        return made

    def source(self, code: int, count: int, accumulate: bool = False) -> Operand:
        """A 9-bit source operand."""
        if code >= 256:
            return register("a" if accumulate else "v", code - 256, count)
        if code < 128:
            return self.scalar(code, count)
        if code <= 192:
            return integer(code - 128)
        if code <= 208:
            return integer(192 - code)
        if 240 <= code < 248:
            return Operand("float", str(_FLOATS[code - 240]), value=_FLOATS[code - 240])
        if code == 248:
            return Operand("float", "0.15915494", value=INV_2PI)
        if code in _SPECIAL:
            return special(_SPECIAL[code])
        if code == _LITERAL:
            return hexadecimal(self.literal_word())
        raise self.fail(f"source operand {code}")

    def scalar(self, index: int, count: int) -> Operand:
        """A scalar register by its number, as this generation numbers them."""
        if self.gfx == 9 or index in (106, 107, 126, 127) or 108 <= index <= 123:
            return scalar(index, count)
        if index in (124, 125):  # gfx11 exchanged the two
            return scalar(124, 1) if (index == 124) == (self.gfx == 10) else special("null")
        return register("s", index, count)

    def literal_word(self) -> int:
        """The instruction's literal, of which there is one."""
        if self.literal is None:
            self.literal = self.word()
        return self.literal

    def goal(self, imm: int) -> Operand:
        """The label of a branch's goal, so many words after it."""
        return self.label(self.at + 4 * signed(imm, 16))

    def label(self, at: int) -> Operand:
        self.targets.add(at)
        return Operand("label", f"{self.local}{at:x}")

    def policy(self, hint: int, scope: int, kind: str) -> Mods:
        """gfx12's temporal hint and scope as modifiers."""
        name = ""
        if kind == "atomic":
            names = [("CASCADE_NT" if hint & 2 else "CASCADE_RT")] if hint & 4 else ["NT"] if hint & 2 else []
            name = "_".join(["RETURN"] * (hint & 1) + names)
        elif hint:
            name = (_LOAD_HINTS if kind == "load" else _STORE_HINTS)[hint]
            name = "BYPASS" if hint == 3 and scope == 3 else name
        mods = {"th": f"TH_{kind.upper()}_{name}"} if name else {}
        return mods | ({"scope": _SCOPES[scope]} if scope else {})
