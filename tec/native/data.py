"""Constant data as a relocatable object: numbers and texts in read-only memory, records of words and pointers in memory that is read-only once it is relocated.

`Data.numbers`, `.text`, `.raw` give a `Ref` to read-only data; `.record` takes ints, Refs and Names (symbols that other objects define) and gives a Ref too.
`.define` names a place. `object_of` makes the ELF object.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..codegen.objects import elf
from ..codegen.objects.merging import write_object

ABS64 = {elf.EM_X86_64: 1, elf.EM_AARCH64: 257, elf.EM_RISCV: 2}
TABLES, RECORDS = ".rodata.tec_tables", ".data.rel.ro.tec"
ALIGN = 64
_GLOBAL, _WEAK = 1, 2
_OBJECT = 1
_HIDDEN = 2


@dataclass(frozen=True, slots=True)
class Ref:
    """A place in one of the sections."""

    section: str
    offset: int


@dataclass(frozen=True, slots=True)
class Name:
    """The address of a symbol of another object."""

    symbol: str


Word = int | Ref | Name | None


class Data:
    """See the module."""

    def __init__(self) -> None:
        self.tables = bytearray()
        self._records: list[Word] = []
        self._texts: dict[str, Ref] = {}
        self._defined: list[tuple[str, Ref, int, bool, bool]] = []  # name, place, bytes, weak, hidden

    # ---- what is in it

    def raw(self, data: bytes, align: int = 8) -> Ref:
        self.tables += b"\0" * (-len(self.tables) % align)
        at = len(self.tables)
        self.tables += data
        return Ref(TABLES, at)

    def numbers(self, values: Iterable[int]) -> Ref:
        """An array of 64-bit integers."""
        return self.raw(np.fromiter((int(v) for v in values), np.int64).astype("<i8").tobytes())

    def text(self, text: str) -> Ref:
        """A text that ends in a zero; what C cannot hold of it is left out."""
        found = self._texts.get(text)
        if found is None:
            found = self._texts[text] = self.raw(text.replace("\0", "").encode() + b"\0", 1)
        return found

    def texts(self, texts: Sequence[str]) -> Ref:
        """An array of pointers to texts."""
        return self.record([self.text(t) for t in texts])

    def record(self, words: Sequence[Word]) -> Ref:
        """Words one behind the other: numbers and pointers."""
        at = 8 * len(self._records)
        self._records += words
        return Ref(RECORDS, at)

    def set(self, record: Ref, word: int, value: Word) -> None:
        """Another value for a word of a record."""
        self._records[record.offset // 8 + word] = value

    @staticmethod
    def word(record: Ref, word: int) -> Ref:
        """The place of a word of a record."""
        return Ref(record.section, record.offset + 8 * word)

    def define(self, name: str, place: Ref, nbytes: int = 8, weak: bool = False, hidden: bool = False) -> None:
        """A global symbol at a place."""
        self._defined.append((name, place, nbytes, weak, hidden))

    # ---- the object

    def object_of(self, like: elf.Object) -> bytes:
        """The relocatable object, for the machine and with the flags of another one."""
        o = elf.Object(
            like.machine, like.flags, like.ident, [elf.Section("", 0, 0, 0)], [elf.Symbol("", 0, 0, 0, 0, 0)]
        )
        number: dict[str, int] = {}
        parts = [(TABLES, elf.ALLOC, ALIGN, bytes(self.tables)), (RECORDS, elf.ALLOC | elf.WRITE, 8, b"")]
        for name, flags, align, data in parts:
            number[name] = len(o.sections)
            o.sections.append(elf.Section(name, elf.PROGBITS, flags, align, data, len(data)))
            o.symbols.append(elf.Symbol("", elf.STT_SECTION, 0, number[name], 0, 0))
        outside: dict[str, int] = {}
        names = list(dict.fromkeys(w.symbol for w in self._records if isinstance(w, Name)))
        for name, place, nbytes, weak, hidden in self._defined:
            info = (_WEAK if weak else _GLOBAL) << 4 | _OBJECT
            o.symbols.append(
                elf.Symbol(name, info, _HIDDEN if hidden else 0, number[place.section], place.offset, nbytes)
            )
        for name in names:
            outside[name] = len(o.symbols)
            o.symbols.append(elf.Symbol(name, _GLOBAL << 4, 0, 0, 0, 0))
        words = [w if isinstance(w, int) else 0 for w in self._records]
        section = o.sections[number[RECORDS]]
        section.data = struct.pack(f"<{len(words)}q", *words)
        section.size = len(section.data)
        for k, w in enumerate(self._records):
            if isinstance(w, Name):
                o.relocations.append(elf.Relocation(number[RECORDS], 8 * k, ABS64[like.machine], outside[w.symbol], 0))
            elif isinstance(w, Ref):
                at = number[w.section]  # a section's symbol has its number
                o.relocations.append(elf.Relocation(number[RECORDS], 8 * k, ABS64[like.machine], at, w.offset))
        return write_object(o)


_PLACE, _FACTOR_1 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_BLOCK = 1 << 15  # words at a time: they stay in a core's second-level cache


def checksum(data: Any) -> int:
    """`tec_hash` of c/weights.c, as a signed number."""
    raw = np.frombuffer(data, np.uint8)
    whole = len(raw) // 8 * 8
    words = raw[:whole].view("<u8").astype(np.uint64, copy=False)
    total = np.uint64(len(raw))
    with np.errstate(over="ignore"):
        for begin in range(0, len(words), _BLOCK):
            part = words[begin : begin + _BLOCK]
            places = (np.arange(begin, begin + len(part), dtype=np.uint64)) * _PLACE
            total += _mixed(part ^ places).sum(dtype=np.uint64)
        if whole < len(raw):
            last = np.frombuffer(raw[whole:].tobytes().ljust(8, b"\0"), "<u8").astype(np.uint64)
            total += _mixed(last ^ np.array([len(words)], np.uint64) * _PLACE)[0]
    return int(total.astype(np.int64))


def _mixed(x: Any) -> Any:
    x ^= x >> np.uint64(32)
    x *= _FACTOR_1
    x ^= x >> np.uint64(29)
    return x
