"""The parts of an ELF64 relocatable object as a linker sees them, and how they are read.

`read_object(bytes) -> Object`: sections, symbols, relocations. `merging` joins objects into one, `writer` links one for AMDGPU. What is
read here LLVM made a moment ago; what comes from files is read by `tec.runtime`.
Source: System V gABI, chapters "Object Files" to "Relocation".
"""

from __future__ import annotations

import struct
from dataclasses import field

from ...errors import CodegenError
from ...records import dataclass

EM_X86_64, EM_AARCH64, EM_AMDGPU, EM_RISCV = 62, 183, 224, 243
ET_REL = 1
PROGBITS, SYMTAB, STRTAB, RELA, NOTE, NOBITS, REL, GROUP = 1, 2, 3, 4, 7, 8, 9, 17
WRITE, ALLOC, EXEC, INFO_LINK = 1, 2, 4, 0x40
SHN_ABS, SHN_COMMON, SHN_RESERVED = 0xFFF1, 0xFFF2, 0xFF00
STT_SECTION, STT_FILE, STT_TLS = 3, 4, 6


@dataclass(slots=True)
class Section:
    """One section, of the input or of the output."""

    name: str
    kind: int
    flags: int
    align: int
    data: bytes = b""
    size: int = 0
    link: int = 0
    info: int = 0
    entry_bytes: int = 0
    addr: int = 0
    offset: int = 0
    index: int = 0  # in the output


@dataclass(slots=True)
class Symbol:
    name: str
    info: int
    other: int
    section: int
    value: int
    size: int

    @property
    def is_local(self) -> bool:
        return self.info >> 4 == 0

    @property
    def is_weak(self) -> bool:
        return self.info >> 4 == 2

    @property
    def kind(self) -> int:
        return self.info & 15

    @property
    def is_exported(self) -> bool:
        """Global or weak, defined, and of default or protected visibility."""
        return not self.is_local and self.section != 0 and self.other & 3 in (0, 3)


@dataclass(slots=True)
class Relocation:
    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


@dataclass(slots=True)
class Object:
    machine: int
    flags: int
    ident: bytes
    sections: list[Section]
    symbols: list[Symbol]
    relocations: list[Relocation] = field(default_factory=list)


def read_object(obj: bytes, machine: int | None = None) -> Object:
    """The parts of a relocatable object, for `machine` where one is given.

    Raises CodegenError for a file of another kind, and what `struct` and slices raise for one that is cut off.
    """
    if obj[:6] != b"\x7fELF\x02\x01":
        raise CodegenError(
            "this is not a 64-bit little-endian ELF object",
            hint="compile to an object (.o) or a code object, no text and no archive",
        )
    kind, found = struct.unpack_from("<HH", obj, 16)
    if machine is not None and found != machine:
        name = "AMDGPU" if machine == EM_AMDGPU else "this target"
        raise CodegenError(
            f"an ELF object for machine {found}, not for {name} ({machine})", hint="compile it for this target"
        )
    if kind != ET_REL:
        raise CodegenError(f"an ELF file of type {kind}, not a relocatable object", hint="it may be linked already")
    (shoff,) = struct.unpack_from("<Q", obj, 40)
    (flags,) = struct.unpack_from("<I", obj, 48)
    count, names_index = struct.unpack_from("<HH", obj, 60)
    raw = [struct.unpack_from("<IIQQQQIIQQ", obj, shoff + 64 * i) for i in range(count)]
    contents = [b"" if r[1] == NOBITS else _slice(obj, r[4], r[5]) for r in raw]
    names = contents[names_index]
    sections = [
        Section(_string(names, r[0]), r[1], r[2], max(1, r[8]), data, r[5], r[6], r[7], r[9])
        for r, data in zip(raw, contents)
    ]
    symbols: list[Symbol] = []
    for s in sections:
        if s.kind == SYMTAB:
            strings = contents[s.link]
            for name_at, info, other, section, value, size in struct.iter_unpack("<IBBHQQ", s.data):
                symbols.append(Symbol(_string(strings, name_at), info, other, section, value, size))
    result = Object(found, flags, obj[:16], sections, symbols)
    for s in sections:
        if s.kind == RELA:
            for offset, info, addend in struct.iter_unpack("<QQq", s.data):
                result.relocations.append(Relocation(s.info, offset, info & 0xFFFFFFFF, info >> 32, addend))
    return result


def _slice(obj: bytes, offset: int, size: int) -> bytes:
    if offset + size > len(obj):
        raise ValueError(f"a section ends at byte {offset + size}, the file at {len(obj)}")
    return obj[offset : offset + size]


def _string(table: bytes, offset: int) -> str:
    return table[offset : table.index(b"\0", offset)].decode()


def string_table(names: list[str]) -> tuple[bytes, dict[str, int]]:
    """A string table and where each name stands in it."""
    table = bytearray(b"\0")
    at: dict[str, int] = {}
    for name in names:
        if name not in at:
            at[name] = len(table)
            table += name.encode() + b"\0"
    return bytes(table), at


def up(value: int, align: int) -> int:
    """`value` rounded up to a multiple of `align`."""
    return (value + align - 1) // align * align


def section_header(s: Section, name_at: int) -> bytes:
    """A section's row in the section table."""
    return struct.pack(
        "<IIQQQQIIQQ", name_at, s.kind, s.flags, s.addr, s.offset, s.size, s.link, s.info, s.align, s.entry_bytes
    )
