"""A shared object for `dlopen` and linkers, made of one relocatable object without a linker's help.

In: an `elf.Object` for x86-64, AArch64 or RISC-V, the symbols that are seen from outside, a table of read-only bytes that come last (weights). Out: the bytes of the
file. Segments, in order: the file's header and tables of symbols; data that is read-only once it is relocated, and data; read-only data; text; tables; what comes last. The
program headers stand at the file's end: a loader reads them before it maps anything, and refuses a file that was cut off. Names of other libraries are looked up when it is loaded;
own symbols cannot be preempted. No lazy binding, no thread-local storage. Sources: System V gABI ("Dynamic Linking"), the psABIs of x86-64,
AArch64 and RISC-V, "ELF Symbol Versioning".
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..codegen.objects import elf
from ..codegen.objects.elf import Object, Relocation, Section, string_table, up
from ..errors import CodegenError
from ..runtime.objects.elfobject import APPLY, CALLS, GOT_KINDS
from ..runtime.objects.sharedobject import sysv_hash, sysv_name_hash
from . import riscv

_PT_LOAD, _PT_DYNAMIC, _PT_GNU_STACK, _PT_GNU_RELRO = 1, 2, 0x6474E551, 0x6474E552
_HASH, _DYNAMIC, _DYNSYM, _VERSYM, _VERNEED, _FINI_ARRAY = 5, 6, 11, 0x6FFFFFFF, 0x6FFFFFFE, 15
_PAGES = {elf.EM_X86_64: 0x1000, elf.EM_AARCH64: 0x10000, elf.EM_RISCV: 0x1000}
# A pointer, a slot that gets a symbol's address, one that gets the load address plus a number.
_POINTER = {elf.EM_X86_64: (1, 6, 8), elf.EM_AARCH64: (257, 1025, 1027), elf.EM_RISCV: riscv.POINTER}
_CALLS, _GOT_KINDS = CALLS | {elf.EM_RISCV: riscv.CALLS}, GOT_KINDS | {elf.EM_RISCV: riscv.GOT_KINDS}
_APPLY = APPLY | {elf.EM_RISCV: riscv.apply}
_STUB_BYTES = 16
_R, _RW, _RX = 4, 6, 5
# Symbols of which glibc has an older form for programs that name no version (x86-64; other machines' glibc has but one).
_VERSIONS = {f"pthread_cond_{f}": "GLIBC_2.3.2" for f in ("init", "wait", "broadcast", "signal", "destroy")}


@dataclass(slots=True)
class _Segment:
    """Sections that are loaded with the same rights."""

    flags: int
    sections: list[Section]
    offset: int = 0
    address: int = 0
    file_bytes: int = 0
    memory_bytes: int = 0


@dataclass(slots=True)
class _Tables:
    """What the loader reads."""

    dynsym: Section
    dynstr: Section
    hash: Section
    rela: Section
    versym: Section
    verneed: Section
    dynamic: Section
    got: Section
    stubs: Section
    all: list[Section] = field(default_factory=list)


def link_shared(
    o: Object,
    exports: Sequence[str],
    soname: str,
    last: Mapping[str, Any] | None = None,
    size_symbol: str | None = None,
    late: Collection[str] = (),
) -> list[Any]:
    """The file, in pieces that follow one another. last: hidden symbols and the read-only bytes that they name. size_symbol: of a word that gets the file's size.
    late: sections of read-only data that stand behind the text.

    Raises CodegenError for what cannot be linked.
    """
    if o.machine not in _PAGES:
        raise CodegenError(
            "shared objects are linked for x86-64, AArch64 and RISC-V",
            hint="for other machines pass linker=, a compiler driver",
            locate=False,
        )
    return _Linker(o, list(exports), soname, dict(last or {}), size_symbol, late).link()


class _Linker:
    def __init__(
        self,
        o: Object,
        exports: list[str],
        soname: str,
        last: dict[str, Any],
        size_symbol: str | None,
        late: Collection[str],
    ):
        self.o, self.soname, self.last, self.size_symbol, self.late = o, soname, last, size_symbol, late
        self.page = _PAGES[o.machine]
        self.by_name = {s.name: k for k, s in enumerate(o.symbols) if s.name and not s.is_local}
        missing = [n for n in exports if n not in self.by_name or not o.symbols[self.by_name[n]].section]
        if missing:
            raise CodegenError(f"the object does not define {', '.join(missing)}", locate=False)
        self.exports = [self.by_name[n] for n in exports]
        loaded = [bool(s.flags & elf.ALLOC and s.size) for s in o.sections]
        self.relocations = [r for r in o.relocations if loaded[r.section]]
        outside = dict.fromkeys(r.symbol for r in self.relocations if r.symbol and not o.symbols[r.symbol].section)
        self.imports = [k for k in outside if o.symbols[k].name not in last]
        calls, got = _CALLS[o.machine], _GOT_KINDS[o.machine]
        self.stub_of: dict[int, int] = {}
        self.got_of: dict[int, int] = {}
        self.imported = imported = set(self.imports)
        for r in self.relocations:
            if r.kind in got:
                self.got_of.setdefault(r.symbol, len(self.got_of))
            elif r.symbol in imported and r.kind in calls:
                self.got_of.setdefault(r.symbol, len(self.got_of))
                self.stub_of.setdefault(r.symbol, len(self.stub_of))
        self.last_at: dict[str, int] = {}

    def link(self) -> list[Any]:
        o = self.o
        names = [o.symbols[k].name for k in (*self.imports, *self.exports)]
        libraries = self._libraries()
        versions = sorted({_VERSIONS[n] for n in names if self._version(n)})
        strings, at = string_table([*names, self.soname, *libraries, *versions])
        t = self._tables(names, strings, versions, len(libraries))
        segments = self._segments(t)
        end = self._place(segments)
        self._fill(t, names, at, libraries, versions)
        return self._file(t, segments, end)

    # ---- what other libraries give

    def _version(self, name: str) -> str | None:
        return _VERSIONS.get(name) if self.o.machine == elf.EM_X86_64 else None

    def _libraries(self) -> list[str]:
        """The libraries that its names are in. In old glibc threads and `dladdr` are libraries of their own, in new ones these are there and empty."""
        names = {self.o.symbols[k].name for k in self.imports}
        out = []
        if any(n.startswith("pthread_") for n in names):
            out.append("libpthread.so.0")
        if names & {"dlopen", "dlsym", "dladdr"}:
            out.append("libdl.so.2")
        if names & _SUPPORT:
            out.append("libgcc_s.so.1")
        if any(n in _MATH or n.removesuffix("f") in _MATH for n in names):
            out.append("libm.so.6")
        return [*out, "libc.so.6"]

    # ---- layout

    def _tables(self, names: list[str], strings: bytes, versions: list[str], n_libraries: int) -> _Tables:
        def made(name: str, kind: int, flags: int, align: int, size: int, entry: int = 0) -> Section:
            return Section(name, kind, flags, align, size=size, entry_bytes=entry)

        o = self.o
        pointer = _POINTER[o.machine][0]
        n_rela = len(self.got_of) + sum(r.kind == pointer for r in self.relocations)
        fini = [s for s in o.sections if s.kind == _FINI_ARRAY and s.size]
        n_tags = n_libraries + 12 + 2 * bool(fini) + 3 * bool(versions)
        alloc, write = elf.ALLOC, elf.ALLOC | elf.WRITE
        t = _Tables(
            made(".dynsym", _DYNSYM, alloc, 8, 24 * (len(names) + 1), 24),
            made(".dynstr", elf.STRTAB, alloc, 1, len(strings)),
            made(".hash", _HASH, alloc, 8, len(sysv_hash(names)), 4),
            made(".rela.dyn", elf.RELA, alloc, 8, 24 * n_rela, 24),
            made(".gnu.version", _VERSYM, alloc, 2, 2 * (len(names) + 1) if versions else 0, 2),
            made(".gnu.version_r", _VERNEED, alloc, 8, 16 + 16 * len(versions) if versions else 0),
            made(".dynamic", _DYNAMIC, write, 8, 16 * n_tags, 16),
            made(".got", elf.PROGBITS, write, 8, 8 * len(self.got_of), 8),
            made(".plt", elf.PROGBITS, alloc | elf.EXEC, 16, _STUB_BYTES * len(self.stub_of)),
        )
        t.dynstr.data = strings
        return t

    def _segments(self, t: _Tables) -> list[_Segment]:
        kept = [s for s in self.o.sections if s.flags & elf.ALLOC and s.size]
        if any(s.flags & elf.WRITE and s.flags & elf.EXEC for s in kept):
            raise CodegenError("a section is writable and executable", locate=False)
        text = [s for s in kept if s.flags & elf.EXEC]
        data = [s for s in kept if s.flags & elf.WRITE]
        fixed = [s for s in data if s.name.startswith(".data.rel.ro") or s.kind == _FINI_ARRAY]
        plain = sorted((s for s in data if s not in fixed), key=lambda s: s.kind == elf.NOBITS)
        constant = [s for s in kept if not s.flags & (elf.WRITE | elf.EXEC) and s.name not in self.late]
        late = [s for s in kept if s.name in self.late]
        head = [t.hash, t.dynsym, t.dynstr, t.versym, t.verneed, t.rela]
        groups = [
            (_R, head), (_RW, [t.dynamic, t.got, *fixed]), (_RW, plain), (_R, constant), (_RX, [t.stubs, *text]), (_R, late)
        ]  # fmt: skip
        t.all = [s for _, g in groups for s in g if s.size]
        return [_Segment(flags, some) for flags, g in groups if (some := [s for s in g if s.size])]

    def _place(self, segments: list[_Segment]) -> int:
        """Offsets and addresses; the file's end before what comes last. A segment begins on a page of its own, at the same place in the page as in the file."""
        offset = 64
        address = offset
        for k, g in enumerate(segments):
            if k:
                align = max(self.page, *(s.align for s in g.sections))
                offset, address = up(offset, self.page), up(address, align)
                address = up(address, align) + offset % align
            g.offset, g.address = (offset, address) if k else (0, 0)
            at = offset
            end = address
            for s in g.sections:
                s.addr = up(end, s.align)
                end = s.addr + s.size
                s.offset = offset + s.addr - address
                if s.kind != elf.NOBITS:
                    at = s.offset + s.size
            g.file_bytes, g.memory_bytes = at - g.offset, end - g.address
            offset, address = at, end
        self.end_address = address
        return offset

    def _address(self, k: int) -> int:
        s = self.o.symbols[k]
        if s.section == 0:
            return self.last_at.get(s.name, 0)
        if s.section == elf.SHN_ABS:
            return s.value
        if s.section >= elf.SHN_RESERVED:
            raise CodegenError(f"symbol {s.name} is common storage", locate=False)
        return self.o.sections[s.section].addr + s.value

    # ---- contents

    def _fill(
        self, t: _Tables, names: list[str], at: dict[str, int], libraries: list[str], versions: list[str]
    ) -> None:
        """Contents of the tables that the loader reads, once all addresses are known: symbols, versions, relocations, the dynamic section."""
        o = self.o
        place = up(self.end_address, self.page)
        self.last_begin = place
        for name, data in self.last.items():
            self.last_at[name] = place
            place += up(len(data), 64)
        for k, s in enumerate(t.all, 1):
            s.index = k
        rows = [
            struct.pack("<IBBHQQ", at[o.symbols[k].name], (2 if o.symbols[k].is_weak else 1) << 4, 0, 0, 0, 0)
            for k in self.imports
        ]
        for k in self.exports:
            symbol = o.symbols[k]
            rows.append(
                struct.pack(
                    "<IBBHQQ",
                    at[symbol.name],
                    0x10 | symbol.info & 15,
                    0,
                    o.sections[symbol.section].index,
                    self._address(k),
                    symbol.size,
                )
            )
        t.dynsym.data = bytes(24) + b"".join(rows)
        t.hash.data = sysv_hash(names)
        if versions:
            number = {v: k for k, v in enumerate(versions, 2)}
            t.versym.data = struct.pack(
                f"<{len(names) + 1}H", 0, *(number[v] if (v := self._version(n)) else 1 for n in names)
            )
            t.verneed.data = struct.pack("<HHIII", 1, len(versions), at["libc.so.6"], 16, 0) + b"".join(
                struct.pack("<IHHII", sysv_name_hash(v), 0, number[v], at[v], 16 if k < len(versions) - 1 else 0)
                for k, v in enumerate(versions)
            )
        self._relocate(t)
        tags = [(1, at[n]) for n in libraries]
        tags += [
            (14, at[self.soname]),
            (4, t.hash.addr),
            (5, t.dynstr.addr),
            (6, t.dynsym.addr),
            (10, t.dynstr.size),
            (11, 24),
        ]
        tags += [(7, t.rela.addr), (8, t.rela.size), (9, 24), (30, 8), (0x6FFFFFFB, 1)]
        fini = [s for s in o.sections if s.kind == _FINI_ARRAY and s.size]
        if fini:
            tags += [(26, fini[0].addr), (28, fini[0].size)]
        if versions:
            tags += [(0x6FFFFFF0, t.versym.addr), (0x6FFFFFFE, t.verneed.addr), (0x6FFFFFFF, 1)]
        t.dynamic.data = b"".join(struct.pack("<QQ", *x) for x in [*tags, (0, 0)])
        t.dynsym.link = t.verneed.link = t.dynamic.link = t.dynstr.index
        t.hash.link = t.rela.link = t.versym.link = t.dynsym.index
        t.dynsym.info, t.verneed.info = 1, 1

    def _relocate(self, t: _Tables) -> None:
        """Put addresses where code and data have them, and list those that the loader adds its own to."""
        o = self.o
        pointer, to_symbol, relative = _POINTER[o.machine]
        apply = _APPLY[o.machine]
        number = {k: at for at, k in enumerate(self.imports, 1)}
        dynamic: list[tuple[int, int, int]] = []
        t.got.data = bytes(t.got.size)
        for k, slot in self.got_of.items():
            where = t.got.addr + 8 * slot
            dynamic.append(
                (where, number[k] << 32 | to_symbol, 0) if k in number else (where, relative, self._address(k))
            )
        t.stubs.data = b"".join(self._stub(t, k, slot) for k, slot in self.stub_of.items())
        contents: dict[int, bytearray] = {}
        distances = self._distances(t)
        for r in self.relocations:
            section = o.sections[r.section]
            data = contents.setdefault(r.section, bytearray(section.data))
            where = section.addr + r.offset
            if r.kind == pointer:
                if r.symbol in number:
                    dynamic.append((where, number[r.symbol] << 32 | pointer, r.addend))
                else:
                    dynamic.append((where, relative, self._address(r.symbol) + r.addend))
                    if not section.flags & elf.WRITE:
                        raise CodegenError(f"section {section.name} has addresses and is read-only", locate=False)
                continue
            try:
                target = distances[self._named(r)] if self._is_low(r) else self._target(t, r)
                apply(data, r.offset, where, r.kind, target, r.addend)
            except (struct.error, IndexError, KeyError):
                raise CodegenError(
                    f"relocation {r.kind} against {o.symbols[r.symbol].name!r} does not fit", locate=False
                ) from None
        for k, made in contents.items():
            o.sections[k].data = bytes(made)
        t.rela.data = b"".join(struct.pack("<QQq", *x) for x in sorted(dynamic, key=lambda x: (x[1] != relative, x[0])))

    def _target(self, t: _Tables, r: Relocation) -> int:
        """The address that a relocation is about: of a stub, of a slot, or of its symbol."""
        machine = self.o.machine
        if r.symbol in self.stub_of and r.kind in _CALLS[machine]:
            return t.stubs.addr + _STUB_BYTES * self.stub_of[r.symbol]
        if r.kind in _GOT_KINDS[machine]:
            return t.got.addr + 8 * self.got_of[r.symbol]
        if r.symbol in self.imported:
            name = self.o.symbols[r.symbol].name
            raise CodegenError(f"the address of {name!r} is taken without a table", locate=False)
        return self._address(r.symbol)

    def _is_low(self, r: Relocation) -> bool:
        return self.o.machine == elf.EM_RISCV and r.kind in riscv.LOW

    def _named(self, r: Relocation) -> tuple[int, int]:
        """The place that a relocation's symbol and number name."""
        s = self.o.symbols[r.symbol]
        return s.section, s.value + r.addend

    def _distances(self, t: _Tables) -> dict[tuple[int, int], int]:
        """Of RISC-V's HIGH relocations, by their places: from there to what they are about."""
        if self.o.machine != elf.EM_RISCV:
            return {}
        return {
            (r.section, r.offset): self._target(t, r) + r.addend - self.o.sections[r.section].addr - r.offset
            for r in self.relocations
            if r.kind in riscv.HIGH
        }

    def _stub(self, t: _Tables, k: int, slot: int) -> bytes:
        """A jump to the address in the symbol's slot."""
        at, target = t.stubs.addr + _STUB_BYTES * slot, t.got.addr + 8 * self.got_of[k]
        if self.o.machine == elf.EM_RISCV:
            return riscv.stub(at, target)
        if self.o.machine == elf.EM_X86_64:
            code = b"\xff\x25" + struct.pack("<i", target - at - 6)  # jmp *slot(%rip)
        else:  # adrp x16, slot; ldr x17, [x16, slot]; br x17
            pages = ((target >> 12) - (at >> 12)) & 0x1FFFFF
            adrp = 0x90000010 | (pages & 3) << 29 | pages >> 2 << 5
            code = struct.pack("<III", adrp, 0xF9400211 | (target & 0xFFF) >> 3 << 10, 0xD61F0220)
        return code.ljust(_STUB_BYTES, b"\0")

    # ---- the file

    def _file(self, t: _Tables, segments: list[_Segment], end: int) -> list[Any]:
        """The file in pieces: what is loaded, names, section and program headers, and the weights last."""
        names, at = string_table([*(s.name for s in t.all), ".weights", ".shstrtab"])
        sections_at = up(end + len(names), 8)
        count = len(t.all) + 2 + bool(self.last)
        last_offset = up(sections_at + 64 * count, self.page)
        last_bytes = sum(up(len(d), 64) for d in self.last.values())
        headers_at = last_offset + last_bytes if self.last else sections_at + 64 * count
        total = headers_at + 56 * (len(segments) + 3 + bool(self.last))
        if self.size_symbol is not None:
            self._patch(self.size_symbol, total)
        out = bytearray(last_offset if self.last else headers_at)
        for s in t.all:
            if s.kind != elf.NOBITS:
                out[s.offset : s.offset + s.size] = s.data
        out[end : end + len(names)] = names
        table = [bytes(64), *(elf.section_header(s, at[s.name]) for s in t.all)]
        if self.last:
            weights = Section(
                ".weights", elf.PROGBITS, elf.ALLOC, 64, size=last_bytes, addr=self.last_begin, offset=last_offset
            )
            table.append(elf.section_header(weights, at[".weights"]))
        table.append(
            elf.section_header(Section(".shstrtab", elf.STRTAB, 0, 1, size=len(names), offset=end), at[".shstrtab"])
        )
        out[sections_at : sections_at + 64 * count] = b"".join(table)
        headers = [(_PT_LOAD, g.flags, g.offset, g.address, g.file_bytes, g.memory_bytes, self.page) for g in segments]
        if self.last:
            headers.append((_PT_LOAD, _R, last_offset, self.last_begin, last_bytes, last_bytes, self.page))
        d, fixed = t.dynamic, segments[1]
        headers.append((_PT_DYNAMIC, _RW, d.offset, d.addr, d.size, d.size, 8))
        headers.append(
            (_PT_GNU_RELRO, _R, fixed.offset, fixed.address, fixed.file_bytes, up(fixed.memory_bytes, self.page), 1)
        )
        headers.append((_PT_GNU_STACK, _RW, 0, 0, 0, 0, 16))
        packed = [
            struct.pack("<IIQQQQQQ", kind, flags, offset, address, address, size, memory, align)
            for kind, flags, offset, address, size, memory, align in headers
        ]
        out[:64] = self.o.ident + struct.pack(
            "<HHIQQQIHHHHHH", 3, self.o.machine, 1, 0, headers_at, sections_at, self.o.flags, 64, 56, len(headers), 64, count, count - 1
        )  # fmt: skip
        pieces: list[Any] = [out]
        for data in self.last.values():
            pieces += [memoryview(data), bytes(-len(data) % 64)]
        return [*pieces, b"".join(packed)]

    def _patch(self, name: str, value: int) -> None:
        s = self.o.symbols[self.by_name[name]]
        section = self.o.sections[s.section]
        data = bytearray(section.data)
        struct.pack_into("<Q", data, s.value, value)
        section.data = bytes(data)


# Functions of the C libraries that compiled code may call.
_MATH = frozenset(
    "exp exp2 exp10 expm1 log log2 log10 log1p pow sqrt cbrt sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh erf erfc fmod remainder floor ceil "
    "trunc round roundeven rint nearbyint fma ldexp frexp tgamma lgamma hypot fmin fmax copysign sincos".split()
)
_SUPPORT = frozenset(
    "__truncsfbf2 __truncdfbf2 __extendhfsf2 __truncsfhf2 __truncdfhf2 __gnu_h2f_ieee __gnu_f2h_ieee __multi3 __divti3 __modti3 __udivti3 __umodti3 "
    "__floattidf __floattisf __fixdfti __fixsfti __extendhfdf2".split()
)
