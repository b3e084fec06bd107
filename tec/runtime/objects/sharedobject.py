"""Writes a shared object that the host's loader takes: one relocatable object in, an ELF file for `dlopen` out, without a linker.

`elfobject` lays the object out and applies what is relative to the program counter; here its exports get a symbol table, pointers in data a
RELATIVE relocation, and addresses of other libraries' functions a slot that the loader fills. The file has no lazy
binding and no constructors. Sources: System V gABI ("Dynamic Linking"), the psABIs of x86-64 and AArch64.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from ...errors import PackageError
from .elfobject import EM_X86_64, PAGE, Linked, link_object, parse_object

_PT_LOAD, _PT_DYNAMIC, _PT_GNU_STACK = 1, 2, 0x6474E551
_SHT_PROGBITS, _SHT_STRTAB, _SHT_RELA, _SHT_HASH, _SHT_DYNAMIC, _SHT_DYNSYM = 1, 3, 4, 5, 6, 11
_SHT_VERDEF, _SHT_VERSYM = 0x6FFFFFFD, 0x6FFFFFFF
_GLOBAL_FUNC, _GLOBAL_NONE = 0x12, 0x10
# By machine: a pointer in the object, a slot in the file that gets a symbol's address, a slot that gets the load address plus a number.
_POINTER = {True: (1, 1, 8), False: (257, 257, 1027)}
_GOT = frozenset({9, 41, 42, 311, 312})


def shared_object(obj: bytes, soname: str, imports: Mapping[str, str], versions: Sequence[str] = ()) -> bytes:
    """The file of a shared object with the object's global symbols.

    imports: exported slot of the object (8 bytes of data) -> name of the symbol whose address the loader puts there.
    versions: of symbols, which programs that were linked with another library of this name may ask for; all symbols are in every one of
    them (they are of the base version, which glibc takes for any that the file defines).
    Raises PackageError for objects that need anything else of other libraries.
    """
    parsed = parse_object(obj)
    linked = link_object(parsed, PAGE, lambda name: None)
    pointer, to_symbol, relative = _POINTER[parsed.machine == EM_X86_64]
    exports = {name: address for name, address in linked.exports.items() if name not in imports}
    names = [*imports.values(), *exports]
    strings, at = _strings([*names, soname, *versions])
    relocations = [(linked.exports[slot], (1 + k) << 32 | to_symbol, 0) for k, slot in enumerate(imports)]
    for section, offset, kind, _, _ in parsed.relocations:
        if kind in _GOT:
            raise PackageError("the object takes addresses through a table; give its functions hidden visibility")
        if kind == pointer:
            where = parsed.sections[section].address + offset
            value = struct.unpack_from("<q", linked.data, where)[0]
            relocations.append((PAGE + where, relative, value))
    code = 1  # the number of the section of code in the table at the end
    symbols = bytes(24)
    symbols += b"".join(struct.pack("<IBBHQQ", at[n], _GLOBAL_NONE, 0, 0, 0, 0) for n in imports.values())
    symbols += b"".join(struct.pack("<IBBHQQ", at[n], _GLOBAL_FUNC, 0, code, a, 0) for n, a in exports.items())
    rela = b"".join(struct.pack("<QQq", *r) for r in relocations)
    tables = [
        (".dynsym", _SHT_DYNSYM, symbols, 24), (".dynstr", _SHT_STRTAB, strings, 0), (".hash", _SHT_HASH, sysv_hash(names), 4),
        (".rela.dyn", _SHT_RELA, rela, 24),
    ]  # fmt: skip
    if versions:
        tables.append((".gnu.version", _SHT_VERSYM, struct.pack("<H", 0) + struct.pack("<H", 1) * len(names), 2))
        tables.append((".gnu.version_d", _SHT_VERDEF, _definitions([soname, *versions], at), 0))
    return _file(parsed.machine, linked, tables, at[soname], len(versions) + 1)


def _definitions(versions: Sequence[str], at: Mapping[str, int]) -> bytes:
    """The section that defines versions of symbols, the file's own name, the base, first. Source: "ELF Symbol Versioning"."""
    out = b""
    for k, name in enumerate(versions, 1):
        more = 28 if k < len(versions) else 0
        out += struct.pack("<HHHHIII", 1, int(k == 1), k, 1, sysv_name_hash(name), 20, more) + struct.pack(
            "<II", at[name], 0
        )
    return out


def _file(
    machine: int, linked: Linked, tables: list[tuple[str, int, bytes, int]], soname: int, definitions: int
) -> bytes:
    """Headers and tables (name, type, contents, bytes of an entry) in the first page, then the image, then the dynamic section."""
    head = bytearray(64 + 56 * 6)
    # Of sections: name, type, flags, address, bytes, bytes an entry.
    place: list[tuple[str, int, int, int, int, int]] = []
    for name, kind, contents, entry in tables:
        head += bytes(-len(head) % 8)
        place.append((name, kind, 2, len(head), len(contents), entry))
        head += contents
    if len(head) > PAGE:
        raise PackageError(
            f"{len(head)} bytes of symbols; {PAGE} are held", hint="export fewer functions from one library"
        )
    end = PAGE + len(linked.data)
    at, size = {p[0]: p[3] for p in place}, {p[0]: p[4] for p in place}
    tags = [
        (14, soname), (4, at[".hash"]), (5, at[".dynstr"]), (6, at[".dynsym"]), (10, size[".dynstr"]), (11, 24), (7, at[".rela.dyn"]),
        (8, size[".rela.dyn"]), (9, 24),
    ]  # fmt: skip
    if ".gnu.version" in at:
        tags += [(0x6FFFFFF0, at[".gnu.version"]), (0x6FFFFFFC, at[".gnu.version_d"]), (0x6FFFFFFD, definitions)]
    tags.append((0, 0))
    dynamic = b"".join(struct.pack("<QQ", *t) for t in tags)
    text, data = PAGE + linked.text_end, PAGE + linked.rodata_end
    segments = [
        (_PT_LOAD, 4, 0, len(head)), (_PT_LOAD, 5, PAGE, text - PAGE), (_PT_LOAD, 4, text, data - text),
        (_PT_LOAD, 6, data, end + len(dynamic) - data), (_PT_DYNAMIC, 6, end, len(dynamic)), (_PT_GNU_STACK, 6, 0, 0),
    ]  # fmt: skip
    for k, (kind, flags, offset, nbytes) in enumerate(segments):
        alignment = PAGE if kind == _PT_LOAD else 8
        struct.pack_into("<IIQQQQQQ", head, 64 + 56 * k, kind, flags, offset, offset, offset, nbytes, nbytes, alignment)
    place.insert(0, (".text", _SHT_PROGBITS, 6, PAGE, text - PAGE, 0))
    place.append((".dynamic", _SHT_DYNAMIC, 3, end, len(dynamic), 16))
    out = bytes(head).ljust(PAGE, b"\0") + bytes(linked.data) + dynamic
    table, names = _section_table(place, len(out))
    struct.pack_into("<16sHHIQQQIHHHHHH", head, 0, b"\x7fELF\x02\x01\x01", 3, machine, 1, 0, 64, len(out) + len(names), 0, 64, 56,
                     len(segments), 64, len(place) + 2, len(place) + 1)  # fmt: skip
    return bytes(head[:64]) + out[64:] + names + table


def _section_table(place: list[tuple[str, int, int, int, int, int]], end: int) -> tuple[bytes, bytes]:
    """The table of sections, which link editors read, and their names, which come before it."""
    strings, at = _strings([*(p[0] for p in place), ".shstrtab"])
    strings += bytes(-(end + len(strings)) % 8)
    number = {p[0]: k for k, p in enumerate(place, 1)}
    link = {
        ".dynsym": ".dynstr", ".hash": ".dynsym", ".rela.dyn": ".dynsym", ".dynamic": ".dynstr", ".gnu.version": ".dynsym",
        ".gnu.version_d": ".dynstr",
    }  # fmt: skip
    rows = [bytes(64)]
    for name, kind, flags, address, size, entry in place:
        other = number.get(link.get(name, ""), 0)
        # The first global symbol's number, and how many versions there are.
        info = 1 if name == ".dynsym" else size // 28 if name == ".gnu.version_d" else 0
        rows.append(struct.pack("<IIQQQQIIQQ", at[name], kind, flags, address, address, size, other, info, 8, entry))
    rows.append(struct.pack("<IIQQQQIIQQ", at[".shstrtab"], _SHT_STRTAB, 0, 0, end, len(strings), 0, 0, 1, 0))
    return b"".join(rows), strings


def _strings(names: list[str]) -> tuple[bytes, dict[str, int]]:
    table, at = bytearray(b"\0"), {}
    for name in names:
        at[name] = len(table)
        table += name.encode() + b"\0"
    return bytes(table), at


def sysv_name_hash(name: str) -> int:
    """The gABI's hash of a symbol's name."""
    h = 0
    for c in name.encode():
        h = (h << 4) + c
        g = h & 0xF0000000
        h = (h ^ (g >> 24)) & ~g & 0xFFFFFFFF
    return h


def sysv_hash(names: list[str]) -> bytes:
    """The section `.hash` of symbols that are numbered from 1 on in this order."""
    n = max(1, len(names))
    bucket, chain = [0] * n, [0] * (len(names) + 1)
    for k, name in enumerate(names, 1):
        b = sysv_name_hash(name) % n
        chain[k], bucket[b] = bucket[b], k
    return struct.pack(f"<II{n}I{len(chain)}I", n, len(chain), *bucket, *chain)
