"""A static library: an `ar` archive of ELF objects with a table of their symbols. Source: ar(5), the System V format that GNU's and LLVM's linkers read."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from ..codegen.objects import elf


def archive(members: Mapping[str, bytes]) -> bytes:
    """The bytes of an archive of objects by name."""
    long_names = b"".join(f"{n}/\n".encode() for n in members)
    at, place = 0, {}
    for n in members:
        place[n] = at
        at += len(n.encode()) + 2
    defined = {
        n: [s.name for s in elf.read_object(data).symbols if s.name and s.section and not s.is_local]
        for n, data in members.items()
    }
    count = sum(map(len, defined.values()))
    names = b"".join(s.encode() + b"\0" for some in defined.values() for s in some)
    table_bytes = 4 + 4 * count + len(names)
    begin = 8 + 60 + table_bytes + table_bytes % 2 + 60 + len(long_names) + len(long_names) % 2
    offsets: list[int] = []
    for n, data in members.items():
        offsets += [begin] * len(defined[n])
        begin += 60 + len(data) + len(data) % 2
    out = b"!<arch>\n" + _member("/", struct.pack(f">I{count}I", count, *offsets) + names) + _member("//", long_names)
    return out + b"".join(_member(f"/{place[n]}", data) for n, data in members.items())


def _member(name: str, data: bytes) -> bytes:
    """A header (dates and owners are 0, so that the same content gives the same file) and the contents."""
    head = f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode()
    return head + data + b"\n" * (len(data) % 2)
