"""Reads and links one ELF relocatable object, as plain bytes: sections, symbols, relocations for x86-64 and AArch64.

In: the object, the address it will stand at, addresses of outside symbols. Out: the image's bytes with every relocation
applied, and the addresses of what it defines. Nothing is trusted: each offset, size and index is checked before use, and
whatever does not fit raises PackageError. Sources: the System V gABI, the x86-64 psABI, "ELF for the Arm 64-bit
Architecture".
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import field

from ...errors import PackageError
from ...records import dataclass

EM_X86_64, EM_AARCH64 = 62, 183
MACHINES = {EM_X86_64: "x86_64", EM_AARCH64: "aarch64"}
PAGE = 1 << 16  # covers the page sizes of all AArch64 systems
_MAX_BSS = 1 << 28  # bytes of zeros in all: those that no file has to hold. tec itself makes a few thousand
_SHT_SYMTAB, _SHT_RELA, _SHT_NOBITS, _SHT_REL = 2, 4, 8, 9
_FORBIDDEN_SECTIONS = {14: "constructors", 15: "destructors", 16: "constructors"}
_SHF_WRITE, _SHF_ALLOC, _SHF_EXEC, _SHF_TLS, _SHF_COMPRESSED = 1, 2, 4, 0x400, 0x800
_SHN_UNDEF, _SHN_ABS, _SHN_COMMON = 0, 0xFFF1, 0xFFF2
_STUB_BYTES = 16
_GOT_BYTES = 8
Resolve = Callable[[str], int | None]


def damaged(what: str) -> PackageError:
    return PackageError(f"damaged object file: {what}", locate=False)


@dataclass(slots=True)
class Section:
    name: str
    type: int
    flags: int
    offset: int
    size: int
    align: int
    link: int
    info: int
    entry: int
    address: int = 0  # offset in the image


@dataclass(slots=True)
class Symbol:
    name: str
    bind: int
    type: int
    section: int
    value: int
    size: int


@dataclass(slots=True)
class ElfObject:
    """A parsed object. `relocations` are (section, offset, type, symbol, addend)."""

    image: bytes
    machine: int
    sections: list[Section]
    symbols: list[Symbol]
    relocations: list[tuple[int, int, int, int, int]] = field(default_factory=list)


@dataclass(slots=True)
class Linked:
    """A linked image: bytes for [base, base + len), the page-aligned ends of text and of read-only data, exports by name."""

    data: bytearray
    text_end: int
    rodata_end: int
    exports: dict[str, int]


# ---- parsing


def parse_object(image: bytes) -> ElfObject:
    """Parse a 64-bit little-endian ET_REL object. Raises PackageError."""
    if len(image) < 64 or image[:4] != b"\x7fELF":
        raise damaged("it is no ELF file")
    if image[4] != 2 or image[5] != 1:
        raise damaged("it is not 64-bit little-endian")
    kind, machine = struct.unpack_from("<HH", image, 16)
    if kind != 1:
        raise damaged("it is not relocatable")
    if machine not in MACHINES:
        raise damaged(f"machine {machine} is neither x86-64 nor AArch64")
    table, entry, count, strings = struct.unpack_from("<Q10xHHH", image, 40)
    if count == 0 or entry != 64 or table > len(image) or count * 64 > len(image) - table or strings >= count:
        raise damaged("the section table does not fit")
    raw = [struct.unpack_from("<IIQQQQIIQQ", image, table + 64 * k) for k in range(count)]
    sections = [
        Section("", t, f, off, size, max(align, 1), link, info, ent)
        for _, t, f, _, off, size, link, info, align, ent in raw
    ]
    for s in sections:
        if s.type != _SHT_NOBITS and (s.offset > len(image) or s.size > len(image) - s.offset):
            raise damaged("a section lies outside of the file")
        if s.align & (s.align - 1) or s.align > PAGE:
            raise damaged(f"a section asks for an alignment of {s.align}")
    names = _bytes(image, sections[strings])
    for s, r in zip(sections, raw):
        s.name = _string(names, r[0])
        if s.flags & _SHF_ALLOC:
            if s.flags & (_SHF_TLS | _SHF_COMPRESSED) or s.type in _FORBIDDEN_SECTIONS:
                raise damaged(
                    f"section {s.name!r} is of a kind that is not loaded ({_FORBIDDEN_SECTIONS.get(s.type, 'thread-local or compressed')})"
                )
    zeros = sum(s.size for s in sections if s.flags & _SHF_ALLOC and s.type == _SHT_NOBITS)
    if zeros > _MAX_BSS:
        raise damaged(f"its sections ask for {zeros} bytes of zeros")
    obj = ElfObject(image, machine, sections, _symbols(image, sections))
    zeros += sum(s.size for s in obj.symbols if s.section == _SHN_COMMON)
    if zeros > _MAX_BSS:
        raise damaged(f"its sections and common symbols ask for {zeros} bytes of zeros")
    _relocations(obj)
    return obj


def _bytes(image: bytes, s: Section) -> bytes:
    return image[s.offset : s.offset + s.size] if s.type != _SHT_NOBITS else b""


def _string(table: bytes, at: int) -> str:
    end = table.find(b"\0", at)
    if at >= len(table) or end < 0:
        if at == 0:
            return ""
        raise damaged("a name lies outside of its string table")
    return table[at:end].decode("utf-8", "replace")


def _symbols(image: bytes, sections: list[Section]) -> list[Symbol]:
    tables = [s for s in sections if s.type == _SHT_SYMTAB]
    if len(tables) > 1:
        raise damaged("it has several symbol tables")
    out: list[Symbol] = []
    for t in tables:
        if t.size % 24 or t.link >= len(sections):
            raise damaged("the symbol table does not fit")
        strings = _bytes(image, sections[t.link])
        for name, info, _, section, value, size in struct.iter_unpack("<IBBHQQ", _bytes(image, t)):
            if section < 0xFF00 and section >= len(sections):
                raise damaged("a symbol names a section that is not there")
            if 0 < section < 0xFF00 and value > sections[section].size:
                raise damaged("a symbol lies outside of its section")
            out.append(Symbol(_string(strings, name), info >> 4, info & 15, section, value, size))
    return out


def _relocations(obj: ElfObject) -> None:
    for s in obj.sections:
        if s.type not in (_SHT_RELA, _SHT_REL) or s.info >= len(obj.sections):
            continue
        target = obj.sections[s.info]
        if not target.flags & _SHF_ALLOC:
            continue
        if s.type == _SHT_REL or s.size % 24 or target.type == _SHT_NOBITS:
            raise damaged(f"relocations of section {target.name!r} have an unexpected form")
        for offset, info, addend in struct.iter_unpack("<QQq", _bytes(obj.image, s)):
            symbol, kind = info >> 32, info & 0xFFFFFFFF
            if symbol >= len(obj.symbols) or offset > target.size - 4 or target.size < 4:
                raise damaged("a relocation points outside of its section or symbol table")
            obj.relocations.append((s.info, offset, kind, symbol, addend))


# ---- linking


def link_object(obj: ElfObject, base: int, resolve: Resolve) -> Linked:
    """Lay the object out from address `base` (a multiple of PAGE) and apply its relocations.

    Text comes first, then read-only data with the address table, then writable data, each from a new page. `resolve`
    gives the address of an outside symbol or None. Raises PackageError for symbols nobody has and values out of range.
    """
    linker = _Linker(obj, base)
    linker.find(resolve)
    linker.place()
    linker.fill()
    linker.relocate()
    exports = {
        s.name: linker.value_of(k)
        for k, s in enumerate(obj.symbols)
        if s.bind in (1, 2) and s.section != _SHN_UNDEF and s.name
    }
    return Linked(linker.data, linker.text_end, linker.rodata_end, exports)


class _Linker:
    """The steps of `link_object`, in order."""

    def __init__(self, obj: ElfObject, base: int):
        self.obj = obj
        self.base = base
        self.outside: dict[int, int] = {}  # addresses of symbols that others define
        self.stub_of: dict[int, int] = {}  # their jumps, by number
        self.got_of: dict[int, int] = {}  # places in the address table, by number
        self.common: dict[int, int] = {}  # where common symbols lie
        self.stubs = self.text_end = self.got = self.rodata_end = 0
        self.sections: list[Section] = []  # those that are loaded
        self.data = bytearray()

    def find(self, resolve: Resolve) -> None:
        """The addresses of outside symbols; which symbols need a jump or a place in the address table."""
        calls, got_kinds = CALLS[self.obj.machine], GOT_KINDS[self.obj.machine]
        for _, _, kind, k, _ in self.obj.relocations:
            symbol = self.obj.symbols[k]
            if symbol.section == _SHN_UNDEF and k and k not in self.outside:
                address = resolve(symbol.name)
                if address is None:
                    if symbol.bind != 2:
                        raise PackageError(
                            f"the object needs symbol {symbol.name!r}, which neither libc, libm nor tec's runtime has",
                            hint=f"load the library that has {symbol.name!r} into the process first (ctypes.CDLL(path, ctypes.RTLD_GLOBAL)), or build the object without it",
                            locate=False,
                        )
                    address = 0
                self.outside[k] = address
            if kind in got_kinds:
                self.got_of.setdefault(k, len(self.got_of))
            elif k in self.outside and kind in calls:
                self.stub_of.setdefault(k, len(self.stub_of))

    def place(self) -> None:
        """Offsets of sections, jumps, the address table and common symbols."""
        groups: tuple[list[Section], list[Section], list[Section]] = ([], [], [])
        for s in self.obj.sections:
            if s.flags & _SHF_ALLOC and s.size:
                if s.flags & _SHF_EXEC and s.flags & _SHF_WRITE:
                    raise damaged(f"section {s.name!r} is writable and executable")
                groups[0 if s.flags & _SHF_EXEC else 2 if s.flags & _SHF_WRITE else 1].append(s)
        self.sections = [s for g in groups for s in g]
        at = _place(groups[0], 0)
        self.stubs = at = _up(at, 16)
        self.text_end = at = _up(at + _STUB_BYTES * len(self.stub_of), PAGE)
        at = _place(groups[1], at)
        self.got = at = _up(at, 8)
        self.rodata_end = at = _up(at + _GOT_BYTES * len(self.got_of), PAGE)
        at = _place(groups[2], at)
        for k, symbol in enumerate(self.obj.symbols):
            if symbol.section == _SHN_COMMON:
                if not 0 < symbol.value <= PAGE:
                    raise damaged(f"common symbol {symbol.name!r} does not fit")
                at = _up(at, symbol.value)
                self.common[k] = at
                at += symbol.size
        self.data = bytearray(_up(at, PAGE))

    def value_of(self, k: int) -> int:
        """The address (or the value) of symbol number `k`."""
        symbol = self.obj.symbols[k]
        if k in self.outside or k == 0:
            return self.outside.get(k, 0)
        if symbol.section == _SHN_ABS:
            return symbol.value
        if symbol.section == _SHN_COMMON:
            return self.base + self.common[k]
        section = self.obj.sections[symbol.section] if symbol.section < 0xFF00 else None
        if section is None or not section.flags & _SHF_ALLOC:
            raise damaged(f"symbol {symbol.name!r} is in no loaded section")
        return self.base + section.address + symbol.value

    def fill(self) -> None:
        """The sections' contents, the jumps and the address table."""
        for s in self.sections:
            if s.type != _SHT_NOBITS:
                self.data[s.address : s.address + s.size] = _bytes(self.obj.image, s)
        for k, slot in self.stub_of.items():
            stub = _STUBS[self.obj.machine] + struct.pack("<Q", self.outside[k] & _U64)
            at = self.stubs + _STUB_BYTES * slot
            self.data[at : at + _STUB_BYTES] = stub.ljust(_STUB_BYTES, b"\0")
        for k, slot in self.got_of.items():
            struct.pack_into("<Q", self.data, self.got + _GOT_BYTES * slot, self.value_of(k) & _U64)

    def relocate(self) -> None:
        obj, base = self.obj, self.base
        calls, got_kinds = CALLS[obj.machine], GOT_KINDS[obj.machine]
        apply = APPLY[obj.machine]
        for section, offset, kind, k, addend in obj.relocations:
            where = obj.sections[section].address + offset
            if k in self.stub_of and kind in calls:
                target = base + self.stubs + _STUB_BYTES * self.stub_of[k]
            elif kind in got_kinds:
                target = base + self.got + _GOT_BYTES * self.got_of[k]
            else:
                target = self.value_of(k)
            try:
                apply(self.data, where, base + where, kind, target, addend)
            except (struct.error, IndexError):
                raise damaged(f"relocation {kind} against {obj.symbols[k].name!r} does not fit") from None


def _up(at: int, align: int) -> int:
    return (at + align - 1) & -align


def _place(sections: list[Section], at: int) -> int:
    for s in sections:
        at = _up(at, s.align)
        s.address = at
        at += s.size
    return at


# ---- relocations

_U64 = (1 << 64) - 1
CALLS = {EM_X86_64: frozenset({2, 4}), EM_AARCH64: frozenset({282, 283})}
GOT_KINDS = {EM_X86_64: frozenset({9, 41, 42}), EM_AARCH64: frozenset({311, 312})}
# jmp *[rip + 0] / ldr x16, #8; br x16: the address follows. The AArch64 pair fills 8 bytes, the x86 jump 6.
_STUBS = {EM_X86_64: b"\xff\x25\x00\x00\x00\x00", EM_AARCH64: struct.pack("<II", 0x58000050, 0xD61F0200)}


def apply_x86_64(data: bytearray, at: int, place: int, kind: int, target: int, addend: int) -> None:
    value = target + addend
    if kind == 1:
        struct.pack_into("<Q", data, at, value & _U64)
    elif kind in (2, 4, 9, 41, 42):
        struct.pack_into("<i", data, at, value - place)
    elif kind == 10:
        struct.pack_into("<I", data, at, value)
    elif kind == 11:
        struct.pack_into("<i", data, at, value)
    elif kind == 24:
        struct.pack_into("<q", data, at, value - place)
    else:
        raise damaged(f"x86-64 relocation {kind} is not known")


def apply_aarch64(data: bytearray, at: int, place: int, kind: int, target: int, addend: int) -> None:
    value = target + addend
    if kind == 257:
        struct.pack_into("<Q", data, at, value & _U64)
    elif kind == 258:
        struct.pack_into("<I", data, at, value)
    elif kind == 260:
        struct.pack_into("<q", data, at, value - place)
    elif kind == 261:
        struct.pack_into("<i", data, at, value - place)
    elif kind in _A64_FIELDS:
        (word,) = struct.unpack_from("<I", data, at)
        struct.pack_into("<I", data, at, _a64_word(word, kind, value, place))
    else:
        raise damaged(f"AArch64 relocation {kind} is not known")


APPLY = {EM_X86_64: apply_x86_64, EM_AARCH64: apply_aarch64}

# kind -> (how, shift): page-relative, low 12 bits scaled by the access, branch offsets.
_A64_FIELDS = {
    274: ("adr", 0), 275: ("page", 12), 276: ("page", 12), 311: ("page", 12),
    277: ("low", 0), 278: ("low", 0), 284: ("low", 1), 285: ("low", 2), 286: ("low", 3), 299: ("low", 4), 312: ("low", 3),
    273: ("branch19", 2), 280: ("branch19", 2), 279: ("branch14", 2), 282: ("branch26", 2), 283: ("branch26", 2),
}  # fmt: skip


def _a64_word(word: int, kind: int, value: int, place: int) -> int:
    how, shift = _A64_FIELDS[kind]
    if how == "low":
        low = value & 0xFFF
        if low & ((1 << shift) - 1):
            raise damaged("an AArch64 access is not aligned for its relocation")
        return (word & ~(0xFFF << 10)) | (low >> shift) << 10
    if how in ("page", "adr"):
        delta = (value >> 12) - (place >> 12) if how == "page" else value - place
        if not -(1 << 20) <= delta < 1 << 20:
            raise damaged("an AArch64 address is out of reach")
        return (word & ~(0x7FFFF << 5 | 3 << 29)) | (delta >> 2 & 0x7FFFF) << 5 | (delta & 3) << 29
    bits = int(how[6:])
    delta = value - place
    if delta & 3 or not -(1 << bits + 1) <= delta < 1 << bits + 1:
        raise damaged("an AArch64 branch is out of reach")
    field_at = 0 if bits == 26 else 5
    mask = (1 << bits) - 1
    return (word & ~(mask << field_at)) | (delta >> 2 & mask) << field_at
