"""The line table of a linked code object: which source line an instruction is of.

In: the sections `.debug_line`, `.debug_line_str` and `.debug_str` of an ELF file. Out: (address, "file:line") in order of addresses; a place holds up to the next
one, and "" says that what follows is of no line. Debug information is never a reason to fail: what cannot be read gives no lines.
Source: DWARF 4 and 5, section 6.2 "Line Number Information".
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

_STRING, _LINE_STRP, _STRP, _UDATA = 0x08, 0x1F, 0x0E, 0x0F
_FIXED = {0x0B: 1, 0x05: 2, 0x06: 4, 0x07: 8, 0x1E: 16}  # DW_FORM_data1, 2, 4, 8, 16
_PATH, _DIRECTORY = 1, 2  # DW_LNCT_*


@dataclass(frozen=True, slots=True)
class LineTable:
    """Places in order; `where(address)` is the source line of an instruction, or ""."""

    addresses: list[int]
    places: list[str]

    def where(self, address: int) -> str:
        k = bisect_right(self.addresses, address) - 1
        return self.places[k] if k >= 0 else ""


def read_line_table(sections: Mapping[str, bytes]) -> LineTable:
    """The table of a file's debug sections, by name; an empty one where they are missing or damaged."""
    rows: dict[int, str] = {}
    data = sections.get(".debug_line", b"")
    at = 0
    try:
        while at + 4 <= len(data):
            unit = _Unit(sections, data, at)
            unit.run(rows)
            at = unit.end
    except (struct.error, IndexError, ValueError, UnicodeDecodeError):
        pass
    ordered = sorted(rows)
    return LineTable(ordered, [rows[a] for a in ordered])


class _Unit:
    """One line number program: its header, and the machine that runs it."""

    def __init__(self, sections: Mapping[str, bytes], data: bytes, at: int):
        self.sections, self.data, self.at = sections, data, at
        length = self.number(4)
        self.wide = 8 if length == 0xFFFFFFFF else 4  # bytes of an offset
        if self.wide == 8:
            length = self.number(8)
        self.end = self.at + length
        if self.end > len(data):
            raise ValueError("a line table that is cut off")
        self.version = self.number(2)
        if not 2 <= self.version <= 5:
            raise ValueError(f"line table version {self.version}")
        if self.version == 5:
            self.at += 2  # sizes of addresses and segments
        header = self.number(self.wide)
        self.program = self.at + header
        self.step = self.number(1)
        if self.version >= 4:
            self.at += 1  # operations of an instruction
        self.at += 1  # is_stmt: every row counts here
        self.line_base = struct.unpack_from("<b", data, self.at)[0]
        self.at += 1
        self.line_range, self.opcode_base = self.number(1), self.number(1)
        self.lengths = [self.number(1) for _ in range(self.opcode_base - 1)]
        if not self.line_range:
            raise ValueError("a line table without a range")
        self.files = self._files5() if self.version == 5 else self._files()

    # ---- reading

    def number(self, size: int) -> int:
        if self.at + size > len(self.data):
            raise IndexError("past the line table")
        self.at += size
        return int.from_bytes(self.data[self.at - size : self.at], "little")

    def uleb(self, signed: bool = False) -> int:
        value = shift = 0
        while True:
            byte = self.number(1)
            value |= (byte & 127) << shift
            shift += 7
            if not byte & 128:
                return value - (1 << shift) if signed and byte & 64 else value

    def string(self) -> str:
        end = self.data.index(b"\0", self.at)
        text = self.data[self.at : end].decode(errors="replace")
        self.at = end + 1
        return text

    def _form(self, form: int) -> str | int:
        if form == _STRING:
            return self.string()
        if form in (_LINE_STRP, _STRP):
            table = self.sections.get(".debug_line_str" if form == _LINE_STRP else ".debug_str", b"")
            offset = self.number(self.wide)
            return table[offset : table.index(b"\0", offset)].decode(errors="replace")
        if form == _UDATA:
            return self.uleb()
        if form in _FIXED:
            return self.number(_FIXED[form])
        raise ValueError(f"form {form:#x} in a line table")

    def _entries(self) -> list[dict[int, str | int]]:
        formats = [(self.uleb(), self.uleb()) for _ in range(self.number(1))]
        return [{kind: self._form(form) for kind, form in formats} for _ in range(self.uleb())] if formats else []

    def _files5(self) -> list[str]:
        folders = [str(e.get(_PATH, "")) for e in self._entries()]
        folders = [os.path.join(folders[0], f) for f in folders]
        return [os.path.join(folders[int(e.get(_DIRECTORY, 0))], str(e.get(_PATH, ""))) for e in self._entries()]

    def _files(self) -> list[str]:
        folders = [""]  # the folder of the compilation, which another section has
        while folder := self.string():
            folders.append(folder)
        files = [""]
        while name := self.string():
            files.append(os.path.join(folders[self.uleb()], name))
            self.uleb()
            self.uleb()
        return files

    # ---- the machine

    def run(self, rows: dict[int, str]) -> None:
        self.at = self.program
        while self.at < self.end:
            self._sequence(rows)

    def _sequence(self, rows: dict[int, str]) -> None:
        """Run one sequence of the line program (DWARF 5, section 6.2): address to "file:line"."""
        address, file, line = 0, 1, 1
        while self.at < self.end:
            op = self.number(1)
            if op >= self.opcode_base:
                advance, more = divmod(op - self.opcode_base, self.line_range)
                address += advance * self.step
                line += self.line_base + more
                rows[address] = f"{self.files[file]}:{line}" if line > 0 else ""
            elif op == 0:
                size = self.uleb()
                after = self.at + size
                kind = self.number(1) if size else 0
                if kind == 1:  # the end of a sequence
                    rows.setdefault(address, "")
                    self.at = after
                    return
                if kind == 2:
                    address = self.number(size - 1)
                self.at = after
            elif op == 1:
                rows[address] = f"{self.files[file]}:{line}" if line > 0 else ""
            elif op == 2:
                address += self.uleb() * self.step
            elif op == 3:
                line += self.uleb(signed=True)
            elif op == 4:
                file = self.uleb()
            elif op == 8:
                address += (255 - self.opcode_base) // self.line_range * self.step
            elif op == 9:
                address += self.number(2)
            else:
                for _ in range(self.lengths[op - 1]):
                    self.uleb()
