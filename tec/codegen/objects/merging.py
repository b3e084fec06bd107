"""Relocatable objects to one: each function or kernel is compiled by itself, and a module is one piece of code.

In: ELF64 relocatable objects for one machine. Out: one such object, as `ld -r` would make it: sections of a name, type and flags are put
behind each other (each piece at its own alignment: 256 bytes for AMDGPU's text), local symbols are kept, global ones joined by name,
relocations moved along. AMDGPU's metadata notes become one, whose "amdhsa.kernels" are those of all in their order.
Sources: System V gABI, chapters "Sections" and "Symbol Table"; LLVM's "User Guide for AMDGPU Backend", section "Code Object V3 and
Above Metadata"; the MessagePack specification.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ...errors import CodegenError, kind_of
from ...runtime.objects.codeobject import read_metadata
from . import elf
from .elf import Object, Relocation, Section, Symbol, up

_METADATA = 32  # NT_AMDGPU_METADATA
_KERNELS = "amdhsa.kernels"
_ADDRSIG = 0x6FFF4C03  # symbols whose addresses matter, by their numbers: for linkers that fold equal functions
_NOT_LOADED = (".eh_frame", ".comment", ".note.GNU-stack", ".llvm_addrsig")
_LEFT_OUT = (0, elf.SYMTAB, elf.STRTAB, elf.RELA, _ADDRSIG)  # made anew, or not needed


def merge_objects(objects: Sequence[bytes]) -> bytes:
    """One relocatable object of several; one alone is returned as it is.

    Raises CodegenError where two define a symbol, where machine, flags or metadata differ, and for damaged objects.
    """
    if len(objects) == 1:
        return objects[0]
    try:
        read = [elf.read_object(o) for o in objects]
        if len({(o.machine, o.flags, o.ident) for o in read}) > 1:
            raise CodegenError("objects for different machines cannot be one", hint="compile all for one target")
        note = _joined_metadata(objects) if read[0].machine == elf.EM_AMDGPU else None
        return write_object(_merged(read, note))
    except (struct.error, IndexError, ValueError, UnicodeDecodeError) as error:
        raise CodegenError(f"damaged object file: {type(error).__name__}: {error}", hint="compile it again") from None


def _merged(read: Sequence[Object], note: bytes | None = None) -> Object:
    merger = _Merger(read[0])
    for o in read:
        merger.add(o)
    return merger.finish(note)


def join_objects(objects: Sequence[bytes], renamed: Mapping[str, str] | None = None) -> Object:
    """The parts of one relocatable CPU object of several, without sections that a library does not load. renamed: global symbols that get other names.

    Raises CodegenError as `merge_objects` does.
    """
    try:
        read = [elf.read_object(o) for o in objects]
        if len({(o.machine, o.flags) for o in read}) > 1:
            raise CodegenError("objects for different machines cannot be one", hint="compile all for one target")
        for o in read:
            for s in o.symbols:
                s.name = (renamed or {}).get(s.name, s.name)
            unwind = {k for k, s in enumerate(o.sections) if s.name in _NOT_LOADED or not s.flags & elf.ALLOC}
            o.relocations = [r for r in o.relocations if r.section not in unwind]
            for k in unwind:
                if o.sections[k].kind not in _LEFT_OUT:
                    o.sections[k].kind = _ADDRSIG
        return _merged(read)
    except (struct.error, IndexError, ValueError, UnicodeDecodeError) as error:
        raise CodegenError(f"damaged object file: {type(error).__name__}: {error}", hint="compile it again") from None


def localized(o: Object, keep: Collection[str]) -> Object:
    """The object with its global symbols local, but for those of `keep` and those that others define."""
    moved: list[Symbol] = []
    for s in o.symbols:
        if not s.is_local and s.section and s.name not in keep:
            s = Symbol(s.name, s.info & 15, 0, s.section, s.value, s.size)
        moved.append(s)
    order = sorted(range(len(moved)), key=lambda k: not moved[k].is_local)
    place = {k: at for at, k in enumerate(order)}
    relocations = [Relocation(r.section, r.offset, r.kind, place[r.symbol], r.addend) for r in o.relocations]
    return Object(o.machine, o.flags, o.ident, o.sections, [moved[k] for k in order], relocations)


class _Merger:
    def __init__(self, first: Object):
        self.machine = first.machine
        self.result = Object(first.machine, first.flags, first.ident, [Section("", 0, 0, 0)], [])
        self.index: dict[tuple[Any, ...], int] = {}  # of a section, by what must be the same
        self.pieces: list[bytearray] = [bytearray()]
        self.locals: list[Symbol] = []
        self.section_symbols: dict[int, int] = {}
        self.globals: list[Symbol] = []
        self.named: dict[str, int] = {}  # global symbols
        self.local_data: set[str] = set()
        self.relocations: list[tuple[Relocation, int | None, int | None]] = []  # with the local or the global symbol

    def add(self, o: Object) -> None:
        where: dict[int, tuple[int, int]] = {}  # a section of the object -> section and offset of the result
        for k, s in enumerate(o.sections):
            if s.kind in (elf.REL, elf.GROUP):
                raise CodegenError(
                    f"section {s.name!r} is of type {s.kind}, which is not merged",
                    hint="link such an object by ld.lld beforehand",
                )
            if s.kind not in _LEFT_OUT and not (s.kind == elf.NOTE and self.machine == elf.EM_AMDGPU):
                where[k] = self._append(s)
        places: dict[int, tuple[int | None, int | None, int]] = {}  # symbol -> local, global, what to add to addends
        for k, symbol in enumerate(o.symbols):
            places[k] = self._symbol(k, symbol, where)
        for r in o.relocations:
            if r.section in where:
                section, offset = where[r.section]
                own, shared, plus = places[r.symbol]
                moved = Relocation(section, r.offset + offset, r.kind, 0, r.addend + plus)
                self.relocations.append((moved, own, shared))

    def _append(self, s: Section) -> tuple[int, int]:
        key = (s.name, s.kind, s.flags, s.entry_bytes)
        found = self.index.get(key)
        if found is None:
            found = self.index[key] = len(self.result.sections)
            self.result.sections.append(Section(s.name, s.kind, s.flags & ~elf.INFO_LINK, 1, entry_bytes=s.entry_bytes))
            self.pieces.append(bytearray())
            self.section_symbols[found] = len(self.locals)
            self.locals.append(Symbol("", elf.STT_SECTION, 0, found, 0, 0))
        to = self.result.sections[found]
        offset = up(to.size, s.align)
        to.align, to.size = max(to.align, s.align), offset + s.size
        if s.kind != elf.NOBITS:
            self.pieces[found] += b"\0" * (offset - len(self.pieces[found])) + s.data
        return found, offset

    def _symbol(self, k: int, s: Symbol, where: dict[int, tuple[int, int]]) -> tuple[int | None, int | None, int]:
        """A symbol's place in the result: among the locals, or the globals; and what its section's start adds to addends."""
        if k == 0 or s.kind == elf.STT_FILE:
            return None, None, 0
        section, value = s.section, s.value
        if 0 < section < elf.SHN_RESERVED:
            if section not in where:
                return None, None, 0
            section, offset = where[section]
            if s.kind == elf.STT_SECTION:
                return self.section_symbols[section], None, offset
            value += offset
        moved = Symbol(s.name, s.info, s.other, section, value, s.size)
        if s.is_local:
            if self.machine == elf.EM_AMDGPU and s.section < elf.SHN_RESERVED and s.name:
                # The software GPU finds constants by their names.
                if s.name in self.local_data:
                    raise CodegenError(
                        f"two kernels have data called {s.name!r}", hint="rename one, or make it internal (static)"
                    )
                self.local_data.add(s.name)
            self.locals.append(moved)
            return len(self.locals) - 1, None, 0
        at = self.named.get(s.name)
        if at is None:
            at = self.named[s.name] = len(self.globals)
            self.globals.append(moved)
        elif self.globals[at].section == 0 or (self.globals[at].is_weak and s.section and not s.is_weak):
            self.globals[at] = moved
        elif s.section and not s.is_weak:
            raise CodegenError(f"two objects define {s.name!r}", hint="rename one, or make it internal (static)")
        return None, at, 0

    def finish(self, note: bytes | None) -> Object:
        out = self.result
        if note is not None:
            out.sections.append(Section(".note", elf.NOTE, elf.ALLOC, 4, size=len(note)))
            self.pieces.append(bytearray(note))
        for s, data in zip(out.sections, self.pieces):
            s.data = bytes(data)
        out.symbols = [Symbol("", 0, 0, 0, 0, 0), *self.locals, *self.globals]
        for r, own, shared in self.relocations:
            r.symbol = 1 + own if own is not None else 0 if shared is None else 1 + len(self.locals) + shared
            out.relocations.append(r)
        return out


# ---- AMDGPU's metadata


def _joined_metadata(objects: Sequence[bytes]) -> bytes:
    all_ = [read_metadata(o) for o in objects]
    joined = dict(all_[0])
    for m in all_[1:]:
        differs = [k for k in joined.keys() | m.keys() if k != _KERNELS and joined.get(k) != m.get(k)]
        if differs:
            raise CodegenError(
                f"the objects' metadata differs in {sorted(differs)[0]!r}",
                hint="compile all with the same options and version of the code object",
            )
    joined[_KERNELS] = [kernel for m in all_ for kernel in m.get(_KERNELS, ())]
    packed = pack(joined)
    return struct.pack("<III", 7, len(packed), _METADATA) + b"AMDGPU\0\0" + packed + b"\0" * (-len(packed) % 4)


def pack(value: Any) -> bytes:
    """A value of the metadata (None, bool, int, str, list, dict) in MessagePack's form."""
    if value is None or isinstance(value, bool):
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    if isinstance(value, int):
        if 0 <= value < 0x80 or -0x20 <= value < 0:
            return struct.pack("B", value & 0xFF)
        tag, form = next((t, f) for t, f, low, high in _INTEGERS if low <= value < high)
        return tag + struct.pack(form, value)
    if isinstance(value, str):
        raw = value.encode()
        return _head(len(raw), 0xA0, 32, (0xD9, 0xDA, 0xDB)) + raw
    if isinstance(value, list):
        return _head(len(value), 0x90, 16, (None, 0xDC, 0xDD)) + b"".join(map(pack, value))
    if isinstance(value, dict):
        return _head(len(value), 0x80, 16, (None, 0xDE, 0xDF)) + b"".join(pack(k) + pack(v) for k, v in value.items())
    raise ValueError(f"metadata holds {kind_of(value)}")


_INTEGERS = (
    (b"\xcc", ">B", 0, 1 << 8), (b"\xcd", ">H", 0, 1 << 16), (b"\xce", ">I", 0, 1 << 32), (b"\xcf", ">Q", 0, 1 << 64),
    (b"\xd3", ">q", -(1 << 63), 0),
)  # fmt: skip


def _head(n: int, short: int, below: int, tags: tuple[int | None, int, int]) -> bytes:
    """A length: within the tag where it is short, else behind one of the tags for 8, 16 and 32 bits."""
    if n < below:
        return struct.pack("B", short | n)
    for tag, form, limit in zip(tags, (">BB", ">BH", ">BI"), (1 << 8, 1 << 16, 1 << 32)):
        if tag is not None and n < limit:
            return struct.pack(form, tag, n)
    raise ValueError(f"{n} elements of metadata")


# ---- writing


def write_object(o: Object) -> bytes:
    """The file of a relocatable object: header, contents, section table. Symbols must stand with the locals first."""
    sections = list(o.sections)
    by_section: dict[int, list[Relocation]] = {}
    for r in o.relocations:
        by_section.setdefault(r.section, []).append(r)
    symtab = len(sections) + len(by_section)
    for k in sorted(by_section):
        data = b"".join(struct.pack("<QQq", r.offset, r.symbol << 32 | r.kind, r.addend) for r in by_section[k])
        sections.append(
            Section(".rela" + o.sections[k].name, elf.RELA, elf.INFO_LINK, 8, data, len(data), symtab, k, 24)
        )
    names, at = elf.string_table([s.name for s in o.symbols])
    table = b"".join(
        struct.pack("<IBBHQQ", at.get(s.name, 0), s.info, s.other, s.section, s.value, s.size) for s in o.symbols
    )
    first_global = next((k for k, s in enumerate(o.symbols) if k and not s.is_local), len(o.symbols))
    sections.append(Section(".symtab", elf.SYMTAB, 0, 8, table, len(table), symtab + 1, first_global, 24))
    sections.append(Section(".strtab", elf.STRTAB, 0, 1, names, len(names)))
    words, word_at = elf.string_table([*(s.name for s in sections), ".shstrtab"])
    sections.append(Section(".shstrtab", elf.STRTAB, 0, 1, words, len(words)))
    out = bytearray(64)
    for s in sections[1:]:
        if s.kind != elf.NOBITS:
            out += b"\0" * (up(len(out), s.align) - len(out))
        s.offset = len(out)
        out += s.data
    out += b"\0" * (-len(out) % 8)
    table_at = len(out)
    for s in sections:
        out += elf.section_header(s, word_at.get(s.name, 0))
    out[:64] = o.ident + struct.pack(
        "<HHIQQQIHHHHHH", elf.ET_REL, o.machine, 1, 0, 0, table_at, o.flags, 64, 0, 0, 64, len(sections), len(sections) - 1
    )  # fmt: skip
    return bytes(out)
