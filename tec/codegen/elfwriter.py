"""A linker for the one case a tensor compiler has: one relocatable AMDGPU object in, one loadable code object out.

In: the bytes of an ELF64 relocatable object for AMDGPU as LLVM emits it. Out: the bytes of an ELF64 shared object that
a ROCm loader takes: PT_LOAD segments for read-only data, text and writable data, PT_NOTE with the metadata, PT_DYNAMIC,
.dynsym with .hash and .gnu.hash. It does what `ld.lld -shared` does to such an object, without symbol preemption:
addresses of the object's own symbols are stored by R_AMDGPU_RELATIVE64. What it does not know it refuses.
Sources: System V gABI (ELF, hash table), LLVM's "User Guide for AMDGPU Backend" (relocation records).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from ..errors import CodegenError

EM_AMDGPU = 224
_ET_REL, _ET_DYN = 1, 3
_PROGBITS, _SYMTAB, _STRTAB, _RELA, _HASH, _DYNAMIC, _NOTE, _NOBITS, _DYNSYM, _GNU_HASH = (
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    11,
    0x6FFFFFF6,
)
_WRITE, _ALLOC, _EXEC, _TLS = 1, 2, 4, 0x400
_SHN_ABS, _SHN_COMMON, _SHN_RESERVED = 0xFFF1, 0xFFF2, 0xFF00
_PAGE = 0x1000

# Relocation types.
_NONE, _ABS32_LO, _ABS32_HI, _ABS64, _REL32, _REL64, _ABS32 = range(7)
_GOTPCREL, _GOTPCREL_LO, _GOTPCREL_HI, _REL_LO, _REL_HI, _RELATIVE64, _REL16 = 7, 8, 9, 10, 11, 13, 14
_GOT_KINDS = frozenset((_GOTPCREL, _GOTPCREL_LO, _GOTPCREL_HI))
_ABSOLUTE_KINDS = frozenset((_ABS32_LO, _ABS32_HI, _ABS32))
_KINDS = frozenset((_NONE, _ABS64, _REL32, _REL64, _REL_LO, _REL_HI, _REL16)) | _GOT_KINDS | _ABSOLUTE_KINDS


@dataclass(slots=True)
class _Section:
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
class _Symbol:
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
    def is_exported(self) -> bool:
        """Global or weak, defined, and of default or protected visibility."""
        return not self.is_local and self.section != 0 and self.other & 3 in (0, 3)


@dataclass(slots=True)
class _Relocation:
    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


@dataclass(slots=True)
class _Object:
    flags: int
    ident: bytes
    sections: list[_Section]
    symbols: list[_Symbol]
    relocations: list[_Relocation] = field(default_factory=list)


def link_object(obj: bytes) -> bytes:
    """The code object of one relocatable object. Raises CodegenError for a damaged one, and for what it cannot link."""
    try:
        return _write(_read(obj))
    except (struct.error, IndexError, ValueError, UnicodeDecodeError) as error:
        raise CodegenError(f"damaged object file: {type(error).__name__}: {error}") from None


# ---- reading


def _read(obj: bytes) -> _Object:
    if obj[:6] != b"\x7fELF\x02\x01":
        raise CodegenError("this is not a 64-bit little-endian ELF object")
    kind, machine = struct.unpack_from("<HH", obj, 16)
    if machine != EM_AMDGPU:
        raise CodegenError(f"an ELF object for machine {machine}, not for AMDGPU ({EM_AMDGPU})")
    if kind != _ET_REL:
        raise CodegenError(f"an ELF file of type {kind}, not a relocatable object", hint="it may be linked already")
    (shoff,) = struct.unpack_from("<Q", obj, 40)
    (flags,) = struct.unpack_from("<I", obj, 48)
    count, names_index = struct.unpack_from("<HH", obj, 60)
    raw = [struct.unpack_from("<IIQQQQIIQQ", obj, shoff + 64 * i) for i in range(count)]
    contents = [b"" if r[1] == _NOBITS else _slice(obj, r[4], r[5]) for r in raw]
    names = contents[names_index]
    sections = [
        _Section(_string(names, r[0]), r[1], r[2], max(1, r[8]), data, r[5], r[6], r[7], r[9])
        for r, data in zip(raw, contents)
    ]
    symbols: list[_Symbol] = []
    for s in sections:
        if s.kind == _SYMTAB:
            strings = contents[s.link]
            for o in range(0, len(s.data), 24):
                name, info, other, section, value, size = struct.unpack_from("<IBBHQQ", s.data, o)
                symbols.append(_Symbol(_string(strings, name), info, other, section, value, size))
    result = _Object(flags, obj[:16], sections, symbols)
    for s in sections:
        if s.kind == _RELA and sections[s.info].flags & _ALLOC:
            for o in range(0, len(s.data), 24):
                offset, info, addend = struct.unpack_from("<QQq", s.data, o)
                result.relocations.append(_Relocation(s.info, offset, info & 0xFFFFFFFF, info >> 32, addend))
    _check(result)
    return result


def _slice(obj: bytes, offset: int, size: int) -> bytes:
    if offset + size > len(obj):
        raise ValueError(f"a section ends at byte {offset + size}, the file at {len(obj)}")
    return obj[offset : offset + size]


def _string(table: bytes, offset: int) -> str:
    return table[offset : table.index(b"\0", offset)].decode()


def _check(obj: _Object) -> None:
    """Refuse what `_write` has no rule for."""
    hint = "install ld.lld (LLVM 16 to 22) and let tec find it: TEC_LLD, ROCM_PATH or PATH"
    undefined = sorted({s.name for s in obj.symbols[1:] if s.section == 0 and not s.is_local})
    used = {r.symbol for r in obj.relocations}
    needed = [n for n in undefined if any(obj.symbols[k].name == n for k in used)]
    if needed:
        raise CodegenError(
            f"undefined symbols: {', '.join(needed)}", hint="a device function was declared but not defined"
        )
    for s in obj.symbols:
        if s.section == _SHN_COMMON:
            raise CodegenError(f"symbol {s.name} is common storage", hint=hint)
        if s.info & 15 == 6:
            raise CodegenError(f"symbol {s.name} is thread-local", hint=hint)
        if 0 < s.section < _SHN_RESERVED and s.section >= len(obj.sections):
            raise ValueError(f"symbol {s.name} lies in section {s.section} of {len(obj.sections)}")
    for r in obj.relocations:
        symbol = obj.symbols[r.symbol]
        if r.kind not in _KINDS:
            raise CodegenError(f"relocation type {r.kind} against {symbol.name!r}", hint=hint)
        if r.kind in _ABSOLUTE_KINDS and symbol.section != _SHN_ABS:
            raise CodegenError(f"a 32-bit absolute address of {symbol.name!r} in a shared object", hint=hint)
        if r.section >= len(obj.sections) or r.offset >= obj.sections[r.section].size:
            raise ValueError(f"a relocation at byte {r.offset} of section {r.section}")


# ---- writing


def _write(obj: _Object) -> bytes:
    kept = [s for s in obj.sections if s.flags & _ALLOC and s.kind in (_PROGBITS, _NOTE, _NOBITS, 14, 15) and s.size]
    notes = [s for s in kept if s.kind == _NOTE]
    text = [s for s in kept if s.flags & _EXEC]
    data = [s for s in kept if s.flags & _WRITE and not s.flags & _EXEC]
    rodata = [s for s in kept if s not in notes and s not in text and s not in data]
    data.sort(key=lambda s: s.kind == _NOBITS)

    exported = [s for s in obj.symbols if s.is_exported]
    buckets, exported = _gnu_order(exported)
    dynstr, dynstr_at = _strings([s.name for s in exported])
    got_slots: dict[int, int] = {}
    for r in obj.relocations:
        if r.kind in _GOT_KINDS:
            got_slots.setdefault(r.symbol, 8 * len(got_slots))
    stored = [r for r in obj.relocations if r.kind == _ABS64 and obj.symbols[r.symbol].section != _SHN_ABS]
    n_dynamic = len(stored) + sum(obj.symbols[k].section != _SHN_ABS for k in got_slots)

    dynsym = _made(".dynsym", _DYNSYM, _ALLOC, 8, 24 * (len(exported) + 1), 24)
    gnu_hash = _made(".gnu.hash", _GNU_HASH, _ALLOC, 8, len(_gnu_hash(exported, buckets)))
    sysv_hash = _made(".hash", _HASH, _ALLOC, 4, len(_sysv_hash(exported)), 4)
    strings = _made(".dynstr", _STRTAB, _ALLOC, 1, len(dynstr))
    rela = _made(".rela.dyn", _RELA, _ALLOC, 8, 24 * n_dynamic, 24)
    dynamic = _made(".dynamic", _DYNAMIC, _ALLOC | _WRITE, 8, 16 * (10 if n_dynamic else 7), 16)
    got = _made(".got", _PROGBITS, _ALLOC | _WRITE, 8, 8 * len(got_slots), 8)
    relas, gots = ([rela] if n_dynamic else []), ([got] if got_slots else [])
    groups = [[*notes, dynsym, gnu_hash, sysv_hash, strings, *relas, *rodata], text, [dynamic, *gots, *data]]

    n_headers = 6 + bool(text)
    segments = _place(groups, 64 + 56 * n_headers)
    order = [s for g in groups for s in g]
    for k, s in enumerate(order, 1):
        s.index = k
    dynsym.link, dynsym.info = strings.index, 1
    gnu_hash.link = sysv_hash.link = rela.link = dynsym.index
    dynamic.link = strings.index

    # Contents, now that every address is known.
    address = [_address(obj, s) for s in obj.symbols]
    dynsym.data = b"\0" * 24 + b"".join(
        struct.pack("<IBBHQQ", dynstr_at[s.name], s.info, s.other, _out_index(obj, s), _address(obj, s), s.size)
        for s in exported
    )
    gnu_hash.data, sysv_hash.data, strings.data = _gnu_hash(exported, buckets), _sysv_hash(exported), dynstr
    tags = [
        (6, dynsym.addr),
        (11, 24),
        (5, strings.addr),
        (10, len(dynstr)),
        (0x6FFFFEF5, gnu_hash.addr),
        (4, sysv_hash.addr),
    ]
    if n_dynamic:
        tags = [(7, rela.addr), (8, 24 * n_dynamic), (9, 24), *tags]
    dynamic.data = b"".join(struct.pack("<QQ", *t) for t in [*tags, (0, 0)])
    got.data = b"".join(struct.pack("<Q", address[k]) for k in got_slots)
    entries = [(obj.sections[r.section].addr + r.offset, address[r.symbol] + r.addend) for r in stored]
    entries += [(got.addr + o, address[k]) for k, o in got_slots.items() if obj.symbols[k].section != _SHN_ABS]
    rela.data = b"".join(struct.pack("<QQq", at, _RELATIVE64, value) for at, value in sorted(entries))
    _relocate(obj, address, {k: got.addr + o for k, o in got_slots.items()})
    return _assemble(obj, order, segments, dynamic, notes, n_headers)


def _made(name: str, kind: int, flags: int, align: int, size: int, entry_bytes: int = 0) -> _Section:
    return _Section(name, kind, flags, align, size=size, entry_bytes=entry_bytes)


def _up(value: int, align: int) -> int:
    return (value + align - 1) // align * align


def _place(groups: list[list[_Section]], start: int) -> list[tuple[int, int, int, int, int]]:
    """Gives each section its offset and address; returns (flags, offset, address, file bytes, memory bytes) a group.

    Every group starts on a page of its own, at the same place within the page as in the file.
    """
    segments = []
    offset, page = start, 0
    for k, group in enumerate(groups):
        if not group:
            continue
        first = 0 if k == 0 else _up(offset, max(s.align for s in group))
        offset = start if k == 0 else first
        memory = offset
        for s in group:
            s.addr = _up(memory + page, s.align)
            if s.kind == _NOBITS:
                s.offset = offset
                memory = s.addr - page + s.size
            else:
                offset = s.offset = s.addr - page
                offset += s.size
                memory = offset
        segments.append(((4, 5, 6)[k], first, first + page, offset - first, memory - first))
        # The next group's page lies above all of this one's memory.
        page += _up(memory - offset, _PAGE) + _PAGE
    return segments


def _address(obj: _Object, s: _Symbol) -> int:
    if s.section == 0 or s.section >= _SHN_RESERVED:
        return s.value
    return obj.sections[s.section].addr + s.value


def _out_index(obj: _Object, s: _Symbol) -> int:
    return s.section if s.section >= _SHN_RESERVED else obj.sections[s.section].index


def _relocate(obj: _Object, address: list[int], got: dict[int, int]) -> None:
    """Patch the sections' contents. S + A - P, and G + GOT + A - P, in the ABI's letters."""
    patched: dict[int, bytearray] = {}
    for r in obj.relocations:
        section = obj.sections[r.section]
        at = patched.setdefault(r.section, bytearray(section.data))
        target = got[r.symbol] if r.kind in _GOT_KINDS else address[r.symbol]
        value = target + r.addend
        delta = value - (section.addr + r.offset)
        if r.kind in (_REL_LO, _GOTPCREL_LO):
            struct.pack_into("<I", at, r.offset, delta & 0xFFFFFFFF)
        elif r.kind in (_REL_HI, _GOTPCREL_HI):
            struct.pack_into("<I", at, r.offset, delta >> 32 & 0xFFFFFFFF)
        elif r.kind in (_REL32, _GOTPCREL):
            struct.pack_into("<i", at, r.offset, delta)
        elif r.kind == _REL64:
            struct.pack_into("<q", at, r.offset, delta)
        elif r.kind == _REL16:
            # A branch distance in dwords after the instruction.
            struct.pack_into("<h", at, r.offset, (delta - 4) // 4)
        elif r.kind == _ABS64:
            struct.pack_into("<Q", at, r.offset, value & (1 << 64) - 1)
        elif r.kind in (_ABS32, _ABS32_LO):
            struct.pack_into("<I", at, r.offset, value & 0xFFFFFFFF)
        elif r.kind == _ABS32_HI:
            struct.pack_into("<I", at, r.offset, value >> 32 & 0xFFFFFFFF)
    for k, contents in patched.items():
        obj.sections[k].data = bytes(contents)


def _assemble(
    obj: _Object, order: list[_Section], segments: list[tuple[int, int, int, int, int]], dynamic: _Section,
    notes: list[_Section], n_headers: int,
) -> bytes:  # fmt: skip
    symtab, symbol_names = _symtab(obj, len(order) + 2)
    names, name_at = _strings([s.name for s in order] + [".symtab", ".strtab", ".shstrtab"])
    tail = [symtab, _made(".strtab", _STRTAB, 0, 1, len(symbol_names)), _made(".shstrtab", _STRTAB, 0, 1, len(names))]
    tail[1].data, tail[2].data = symbol_names, names
    out = bytearray(max(offset + size for _, offset, _, size, _ in segments))
    for s in order:
        if s.kind != _NOBITS:
            out[s.offset : s.offset + s.size] = s.data
    for s in tail:
        out += b"\0" * (_up(len(out), s.align) - len(out))
        s.offset = len(out)
        out += s.data
    out += b"\0" * (_up(len(out), 8) - len(out))
    shoff = len(out)
    out += b"\0" * 64
    for s in [*order, *tail]:
        out += struct.pack(
            "<IIQQQQIIQQ",
            name_at[s.name],
            s.kind,
            s.flags,
            s.addr,
            s.offset,
            s.size,
            s.link,
            s.info,
            s.align,
            s.entry_bytes,
        )
    headers = [(6, 4, 64, 64, 56 * n_headers, 56 * n_headers, 8)]
    # The read-only segment starts with the file's header.
    for k, (flags, offset, addr, size, memory) in enumerate(segments):
        headers.append((1, flags, offset, addr, size if k else offset + size, memory if k else offset + memory, _PAGE))
    headers.append((2, 6, dynamic.offset, dynamic.addr, dynamic.size, dynamic.size, 8))
    headers.append((0x6474E551, 6, 0, 0, 0, 0, 0))  # PT_GNU_STACK
    for s in notes[:1]:
        end = notes[-1].offset + notes[-1].size
        headers.append((4, 4, s.offset, s.addr, end - s.offset, end - s.offset, 4))
    n_sections = len(order) + len(tail) + 1
    out[:64] = obj.ident + struct.pack(
        "<HHIQQQIHHHHHH",
        _ET_DYN,
        EM_AMDGPU,
        1,
        0,
        64,
        shoff,
        obj.flags,
        64,
        56,
        len(headers),
        64,
        n_sections,
        n_sections - 1,
    )
    for k, (kind, flags, offset, addr, size, memory, align) in enumerate(headers):
        struct.pack_into("<IIQQQQQQ", out, 64 + 56 * k, kind, flags, offset, addr, addr, size, memory, align)
    return bytes(out)


def _symtab(obj: _Object, strtab_index: int) -> tuple[_Section, bytes]:
    """The full symbol table, for debuggers and disassemblers: locals first, as the format asks."""
    keep = [
        s
        for s in obj.symbols[1:]
        if s.name and (s.section >= _SHN_RESERVED or (s.section and obj.sections[s.section].index))
    ]
    keep.sort(key=lambda s: not s.is_local)
    names, at = _strings([s.name for s in keep])
    table = b"\0" * 24 + b"".join(
        struct.pack("<IBBHQQ", at[s.name], s.info, s.other, _out_index(obj, s), _address(obj, s), s.size) for s in keep
    )
    section = _made(".symtab", _SYMTAB, 0, 8, len(table), 24)
    section.data, section.link, section.info = table, strtab_index, 1 + sum(s.is_local for s in keep)
    return section, names


def _strings(names: list[str]) -> tuple[bytes, dict[str, int]]:
    """A string table and where each name stands in it."""
    table = bytearray(b"\0")
    at: dict[str, int] = {}
    for name in names:
        if name not in at:
            at[name] = len(table)
            table += name.encode() + b"\0"
    return bytes(table), at


# ---- symbol hash tables


def _sysv_name_hash(name: str) -> int:
    h = 0
    for c in name.encode():
        h = (h << 4) + c
        g = h & 0xF0000000
        h = (h ^ (g >> 24)) & ~g & 0xFFFFFFFF
    return h


def _sysv_hash(symbols: list[_Symbol]) -> bytes:
    n = max(1, len(symbols))
    bucket, chain = [0] * n, [0] * (len(symbols) + 1)
    for k, s in enumerate(symbols, 1):
        b = _sysv_name_hash(s.name) % n
        chain[k], bucket[b] = bucket[b], k
    return struct.pack(f"<II{n}I{len(chain)}I", n, len(chain), *bucket, *chain)


def _gnu_name_hash(name: str) -> int:
    h = 5381
    for c in name.encode():
        h = (h * 33 + c) & 0xFFFFFFFF
    return h


def _gnu_order(symbols: list[_Symbol]) -> tuple[int, list[_Symbol]]:
    """The number of buckets, and the symbols in the bucket order that .gnu.hash asks of .dynsym."""
    n = max(1, len(symbols) // 4)
    return n, sorted(symbols, key=lambda s: _gnu_name_hash(s.name) % n)


def _gnu_hash(symbols: list[_Symbol], n_buckets: int) -> bytes:
    shift, mask = 26, 0
    bucket, chain = [0] * n_buckets, []
    for k, s in enumerate(symbols, 1):
        h = _gnu_name_hash(s.name)
        b = h % n_buckets
        bucket[b] = bucket[b] or k
        last = k == len(symbols) or _gnu_name_hash(symbols[k].name) % n_buckets != b
        chain.append(h & ~1 | last)
        mask |= 1 << h % 64 | 1 << (h >> shift) % 64
    return struct.pack(f"<IIIIQ{n_buckets}I{len(chain)}I", n_buckets, 1, 1, shift, mask, *bucket, *chain)
