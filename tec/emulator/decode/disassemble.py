"""A code object's machine code to instructions, for every chip that is emulated; and to text in LLVM's syntax, for people.

In: a `CodeObject`. Out: a `Disassembly`, whose instructions have the numbers of the lines that they stand in in its text. Constants that code finds
relative to the program counter become symbols `__tec_at_<address>`. tools/encodings.py makes the tables of opcodes by asking LLVM's assembler.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ...runtime.objects.codeobject import CodeObject, KernelInfo
from ...runtime.objects.linetable import LineTable, read_line_table
from ..errors import UnsupportedInstruction
from .cdna5 import Cdna5Program
from .inst import Inst, KernelText
from .programs import Gfx9Program, Program, RdnaProgram
from .words import SYMBOL, encodings

_END = ".Lfunc_end_"


@dataclass(slots=True)
class Disassembly:
    """The kernels of a code object and what they call."""

    lines: list[str | Inst]  # labels, directives, and instructions
    starts: dict[str, int] = field(default_factory=dict)  # of kernels and functions: the index of their label
    statements: dict[int, str] = field(default_factory=dict)  # the number of an instruction's line -> source file:line
    functions: set[str] = field(default_factory=set)  # that kernels may call
    in_data: set[str] = field(default_factory=set)  # those whose addresses stand in data

    @property
    def text(self) -> str:
        """All as assembly text, with `.loc` where the code object has a line table."""
        return "".join(f"\t{l.text}\n" if isinstance(l, Inst) else f"{l}\n" for l in self.lines)

    @property
    def has_symbols(self) -> bool:
        """Whether code names data by its address."""
        return any(isinstance(l, Inst) and any(o.text.startswith(SYMBOL) for o in l.operands) for l in self.lines)

    def append(self, program: Program, name: str, table: LineTable, end: str) -> None:
        """A kernel or function, up to its end's label."""
        lines = self.lines
        self.starts[name] = len(lines)
        lines.append(f"{name}:")
        files: dict[str, int] = {}
        last = ""
        for at, inst in program.instructions():
            if at in program.targets:
                lines.append(f"{program.local}{at:x}:")
            place = table.where(program.entry + at)
            if place != last:
                file, _, number = (last := place).rpartition(":")
                if file and file not in files:
                    files[file] = len(files) + 1
                    lines.append(f'\t.file\t{files[file]} "{file}"')
                lines.append(f"\t.loc\t{files[file]} {number} 0" if file else "\t.loc\t1 0 0")
            if inst is not None:
                lines.append(inst)
                inst.line = len(lines)
                if place:
                    self.statements[inst.line] = place
        if len(program.data) in program.targets:
            lines.append(f"{program.local}{len(program.data):x}:")
        lines.append(end)


class Reader:
    """A kernel's instructions as they are gathered, function by function."""

    def __init__(self, code: Disassembly, kernel: str):
        self.code, self.text = code, KernelText(kernel, [], {})

    def read(self, name: str) -> bool:
        """Append the instructions of a function; whether the code has it."""
        start = self.code.starts.get(name)
        if start is None:
            return False
        text = self.text
        for line in self.code.lines[start + 1 :]:
            if isinstance(line, Inst):
                text.insts.append(line)
                if line.line in self.code.statements:
                    text.statements[line.line] = self.code.statements[line.line]
            elif line.startswith(_END):
                break
            elif line[0] != "\t":
                text.labels[line[:-1]] = len(text.insts)
        return True


def decode(code: CodeObject) -> Disassembly:
    """The instructions of every kernel of a code object."""
    table = read_line_table(code.debug)
    found = Disassembly([f'.amdgcn_target "amdgcn-amd-amdhsa--{code.chip}"'])
    functions = _functions(code)
    names = {entry: name for entry, (name, _) in functions.items()}
    for info in code.kernels.values():
        program = decoder(code.chip, _machine_code(code, info), info.name, info.entry, info.wavefront_size)
        program.names = names
        found.append(program, info.name, table, "")
        found.lines[-1] = f"{_END}{found.starts[info.name]}:"
    lanes = next((k.wavefront_size for k in code.kernels.values()), 0)
    for entry, (name, size) in sorted(functions.items()):
        program = decoder(code.chip, _bytes_at(code, entry, size, name), name, entry, lanes)
        program.names, program.local = names, f".L{entry:x}_"
        found.lines.append(f".type {name},@function")
        found.functions.add(name)
        found.append(program, name, table, f"{_END}{entry:x}:")
    for r in code.relocations:
        known = code.symbols.get(r.symbol)
        value = (known.value if known is not None else 0) + r.addend
        if value in names:
            found.lines.append(f".quad {names[value]}")
            found.in_data.add(names[value])
    return found


def disassemble(code: CodeObject) -> str:
    """The assembly of every kernel of a code object."""
    return decode(code).text


def _functions(code: CodeObject) -> dict[int, tuple[str, int]]:
    """What kernels may call, by its address: name, bytes."""
    kernels = {k.entry for k in code.kernels.values()}
    entries: dict[int, tuple[str, int]] = {}
    for symbol in code.symbols.values():
        plain = re.fullmatch(r"[A-Za-z_.$][\w.$]*", symbol.name)
        inside = any(s.executable and s.vaddr <= symbol.value < s.vaddr + len(s.data) for s in code.segments)
        if plain and symbol.defined and symbol.size and inside and symbol.value not in kernels:
            entries[symbol.value] = symbol.name, symbol.size
    return entries


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


__all__ = ["SYMBOL", "Disassembly", "Reader", "decode", "decoder", "disassemble", "encodings"]
