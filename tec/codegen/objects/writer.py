"""A linker for the one case a tensor compiler has: one relocatable AMDGPU object in, one loadable code object out.

In: the bytes of an ELF64 relocatable object for AMDGPU as LLVM emits it, or as `merging` joins them. Out: the bytes of an ELF64 shared
object that a ROCm loader takes: PT_LOAD segments for read-only data, text and writable data, PT_NOTE with the metadata, PT_DYNAMIC,
.dynsym with .hash and .gnu.hash. It does what `ld.lld -shared` does to such an object, without symbol preemption:
addresses of the object's own symbols are stored by R_AMDGPU_RELATIVE64. What it does not know it refuses.
Sources: System V gABI (ELF, hash table), LLVM's "User Guide for AMDGPU Backend" (relocation records).
"""

from __future__ import annotations

import struct

from ...errors import CodegenError
from ...runtime.objects.sharedobject import sysv_hash as hash_section
from .elf import (  # fmt: skip
    ALLOC,
    EM_AMDGPU,
    EXEC,
    NOBITS,
    NOTE,
    PROGBITS,
    RELA,
    SHN_ABS,
    SHN_COMMON,
    SHN_RESERVED,
    STRTAB,
    SYMTAB,
    WRITE,
    Object,
    Section,
    Symbol,
    read_object,
    section_header,
    string_table,
    up,
)

_ET_DYN = 3
_HASH, _DYNAMIC, _DYNSYM, _GNU_HASH = 5, 6, 11, 0x6FFFFFF6
_PAGE = 0x1000
_MOST_BYTES = 1 << 30  # of a code object, as the runtime loads them

# Relocation types.
_NONE, _ABS32_LO, _ABS32_HI, _ABS64, _REL32, _REL64, _ABS32 = range(7)
_GOTPCREL, _GOTPCREL_LO, _GOTPCREL_HI, _REL_LO, _REL_HI, _RELATIVE64, _REL16 = 7, 8, 9, 10, 11, 13, 14
_GOT_KINDS = frozenset((_GOTPCREL, _GOTPCREL_LO, _GOTPCREL_HI))
_ABSOLUTE_KINDS = frozenset((_ABS32_LO, _ABS32_HI, _ABS32))
_KINDS = frozenset((_NONE, _ABS64, _REL32, _REL64, _REL_LO, _REL_HI, _REL16)) | _GOT_KINDS | _ABSOLUTE_KINDS


def link_object(obj: bytes) -> bytes:
    """The code object of one relocatable object. Raises CodegenError for a damaged one, and for what it cannot link."""
    try:
        read = read_object(obj, EM_AMDGPU)
        read.relocations = [r for r in read.relocations if read.sections[r.section].flags & ALLOC]
        _check(read)
        return _write(read)
    except (struct.error, IndexError, ValueError, OverflowError, UnicodeDecodeError) as error:
        raise CodegenError(f"damaged object file: {type(error).__name__}: {error}", hint="compile it again") from None


def _check(obj: Object) -> None:
    """Refuse what `_write` has no rule for."""
    hint = "install ld.lld (LLVM 16 to 22) and let tec find it: TEC_LLD, ROCM_PATH or PATH"
    kept = [s for s in obj.sections if s.flags & ALLOC]
    if sum(s.size for s in kept) > _MOST_BYTES or any(s.align > _PAGE or s.align & (s.align - 1) for s in kept):
        raise ValueError("its sections ask for more memory, or another alignment, than code can mean")
    undefined = sorted({s.name for s in obj.symbols[1:] if s.section == 0 and not s.is_local})
    used = {r.symbol for r in obj.relocations}
    needed = [n for n in undefined if any(obj.symbols[k].name == n for k in used)]
    if needed:
        raise CodegenError(
            f"undefined symbols: {', '.join(needed)}", hint="a device function was declared but not defined"
        )
    for s in obj.symbols:
        if s.section == SHN_COMMON:
            raise CodegenError(f"symbol {s.name} is common storage", hint=hint)
        if s.info & 15 == 6:
            raise CodegenError(f"symbol {s.name} is thread-local", hint=hint)
        if 0 < s.section < SHN_RESERVED and s.section >= len(obj.sections):
            raise ValueError(f"symbol {s.name} lies in section {s.section} of {len(obj.sections)}")
    for r in obj.relocations:
        symbol = obj.symbols[r.symbol]
        if r.kind not in _KINDS:
            raise CodegenError(f"relocation type {r.kind} against {symbol.name!r}", hint=hint)
        if r.kind in _ABSOLUTE_KINDS and symbol.section != SHN_ABS:
            raise CodegenError(f"a 32-bit absolute address of {symbol.name!r} in a shared object", hint=hint)
        if r.section >= len(obj.sections) or r.offset >= obj.sections[r.section].size:
            raise ValueError(f"a relocation at byte {r.offset} of section {r.section}")


# ---- writing


def _write(obj: Object) -> bytes:
    """The bytes of a shared object: its sections in the order of their segments, then the tables that name them."""
    notes, rodata, text, data = _by_segment(obj)
    exported = [s for s in obj.symbols if s.is_exported]
    buckets, exported = _gnu_order(exported)
    dynstr, dynstr_at = string_table([s.name for s in exported])
    got_slots: dict[int, int] = {}
    for r in obj.relocations:
        if r.kind in _GOT_KINDS:
            got_slots.setdefault(r.symbol, 8 * len(got_slots))
    stored = [r for r in obj.relocations if r.kind == _ABS64 and obj.symbols[r.symbol].section != SHN_ABS]
    n_dynamic = len(stored) + sum(obj.symbols[k].section != SHN_ABS for k in got_slots)

    dynsym = _made(".dynsym", _DYNSYM, ALLOC, 8, 24 * (len(exported) + 1), 24)
    gnu_hash = _made(".gnu.hash", _GNU_HASH, ALLOC, 8, len(_gnu_hash(exported, buckets)))
    sysv_hash = _made(".hash", _HASH, ALLOC, 4, len(hash_section([s.name for s in exported])), 4)
    strings = _made(".dynstr", STRTAB, ALLOC, 1, len(dynstr))
    rela = _made(".rela.dyn", RELA, ALLOC, 8, 24 * n_dynamic, 24)
    dynamic = _made(".dynamic", _DYNAMIC, ALLOC | WRITE, 8, 16 * (10 if n_dynamic else 7), 16)
    got = _made(".got", PROGBITS, ALLOC | WRITE, 8, 8 * len(got_slots), 8)
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
    gnu_hash.data, strings.data = _gnu_hash(exported, buckets), dynstr
    sysv_hash.data = hash_section([s.name for s in exported])
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
    entries += [(got.addr + o, address[k]) for k, o in got_slots.items() if obj.symbols[k].section != SHN_ABS]
    rela.data = b"".join(struct.pack("<QQq", at, _RELATIVE64, value) for at, value in sorted(entries))
    _relocate(obj, address, {k: got.addr + o for k, o in got_slots.items()})
    return _assemble(obj, order, segments, dynamic, notes, n_headers)


def _by_segment(obj: Object) -> tuple[list[Section], list[Section], list[Section], list[Section]]:
    """The sections that are loaded: notes, read-only data, text, writable data."""
    kept = [s for s in obj.sections if s.flags & ALLOC and s.kind in (PROGBITS, NOTE, NOBITS, 14, 15) and s.size]
    notes = [s for s in kept if s.kind == NOTE]
    text = [s for s in kept if s.flags & EXEC]
    data = [s for s in kept if s.flags & WRITE and not s.flags & EXEC]
    rodata = [s for s in kept if s not in notes and s not in text and s not in data]
    return notes, rodata, text, sorted(data, key=lambda s: s.kind == NOBITS)


def _made(name: str, kind: int, flags: int, align: int, size: int, entry_bytes: int = 0) -> Section:
    return Section(name, kind, flags, align, size=size, entry_bytes=entry_bytes)


def _place(groups: list[list[Section]], start: int) -> list[tuple[int, int, int, int, int]]:
    """Gives each section its offset and address; returns (flags, offset, address, file bytes, memory bytes) a group.

    Every group starts on a page of its own, at the same place within the page as in the file.
    """
    segments = []
    offset, page = start, 0
    for k, group in enumerate(groups):
        if not group:
            continue
        first = 0 if k == 0 else up(offset, max(s.align for s in group))
        offset = start if k == 0 else first
        memory = offset
        for s in group:
            s.addr = up(memory + page, s.align)
            if s.kind == NOBITS:
                s.offset = offset
                memory = s.addr - page + s.size
            else:
                offset = s.offset = s.addr - page
                offset += s.size
                memory = offset
        segments.append(((4, 5, 6)[k], first, first + page, offset - first, memory - first))
        # The next group's page lies above all of this one's memory.
        page += up(memory - offset, _PAGE) + _PAGE
    return segments


def _address(obj: Object, s: Symbol) -> int:
    if s.section == 0 or s.section >= SHN_RESERVED:
        return s.value
    return obj.sections[s.section].addr + s.value


def _out_index(obj: Object, s: Symbol) -> int:
    return s.section if s.section >= SHN_RESERVED else obj.sections[s.section].index


def _relocate(obj: Object, address: list[int], got: dict[int, int]) -> None:
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
    obj: Object, order: list[Section], segments: list[tuple[int, int, int, int, int]], dynamic: Section,
    notes: list[Section], n_headers: int,
) -> bytes:  # fmt: skip
    """The file: headers, what is loaded, and behind it the symbol table and the tables of names, which are not loaded."""
    symtab, symbol_names = _symtab(obj, len(order) + 2)
    names, name_at = string_table([s.name for s in order] + [".symtab", ".strtab", ".shstrtab"])
    tail = [symtab, _made(".strtab", STRTAB, 0, 1, len(symbol_names)), _made(".shstrtab", STRTAB, 0, 1, len(names))]
    tail[1].data, tail[2].data = symbol_names, names
    out = bytearray(max(offset + size for _, offset, _, size, _ in segments))
    for s in order:
        if s.kind != NOBITS:
            out[s.offset : s.offset + s.size] = s.data
    for s in tail:
        out += b"\0" * (up(len(out), s.align) - len(out))
        s.offset = len(out)
        out += s.data
    out += b"\0" * (up(len(out), 8) - len(out))
    shoff = len(out)
    out += b"\0" * 64
    for s in [*order, *tail]:
        out += section_header(s, name_at[s.name])
    headers = _program_headers(segments, dynamic, notes, n_headers)
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


def _program_headers(
    segments: list[tuple[int, int, int, int, int]], dynamic: Section, notes: list[Section], n_headers: int
) -> list[tuple[int, int, int, int, int, int, int]]:
    """(type, flags, offset, address, bytes in the file, bytes in memory, alignment) of each."""
    headers = [(6, 4, 64, 64, 56 * n_headers, 56 * n_headers, 8)]
    # The read-only segment starts with the file's header.
    for k, (flags, offset, addr, size, memory) in enumerate(segments):
        headers.append((1, flags, offset, addr, size if k else offset + size, memory if k else offset + memory, _PAGE))
    headers.append((2, 6, dynamic.offset, dynamic.addr, dynamic.size, dynamic.size, 8))
    headers.append((0x6474E551, 6, 0, 0, 0, 0, 0))  # PT_GNU_STACK
    for s in notes[:1]:
        end = notes[-1].offset + notes[-1].size
        headers.append((4, 4, s.offset, s.addr, end - s.offset, end - s.offset, 4))
    return headers


def _symtab(obj: Object, strtab_index: int) -> tuple[Section, bytes]:
    """The full symbol table, for debuggers and disassemblers: locals first, as the format asks."""
    keep = [
        s
        for s in obj.symbols[1:]
        if s.name and (s.section >= SHN_RESERVED or (s.section and obj.sections[s.section].index))
    ]
    keep.sort(key=lambda s: not s.is_local)
    names, at = string_table([s.name for s in keep])
    table = b"\0" * 24 + b"".join(
        struct.pack("<IBBHQQ", at[s.name], s.info, s.other, _out_index(obj, s), _address(obj, s), s.size) for s in keep
    )
    section = _made(".symtab", SYMTAB, 0, 8, len(table), 24)
    section.data, section.link, section.info = table, strtab_index, 1 + sum(s.is_local for s in keep)
    return section, names


# ---- symbol hash tables


def _gnu_name_hash(name: str) -> int:
    h = 5381
    for c in name.encode():
        h = (h * 33 + c) & 0xFFFFFFFF
    return h


def _gnu_order(symbols: list[Symbol]) -> tuple[int, list[Symbol]]:
    """The number of buckets, and the symbols in the bucket order that .gnu.hash asks of .dynsym."""
    n = max(1, len(symbols) // 4)
    return n, sorted(symbols, key=lambda s: _gnu_name_hash(s.name) % n)


def _gnu_hash(symbols: list[Symbol], n_buckets: int) -> bytes:
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
