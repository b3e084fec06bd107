"""GGUF files, versions 2 and 3: metadata and where tensors lie, by ggml's docs/gguf.md. No weight is read: tensors are views of the mapped file.

A file is not trusted. Counts are compared with the bytes that are left before anything is made of them; names are plain text; tensors lie within the file, on
its alignment, and apart from each other. Whatever is wrong raises ImportModelError that says which entry it is.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tec.errors import ImportModelError, one_line
from tec.lm.formats import Format, of_ggml, packed_bytes
from tec.records import dataclass

MAGIC = b"GGUF"
_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "<u1",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
_STRUCTS = {kind: struct.Struct("<" + letter) for kind, letter in zip(_SCALARS, "BbHhIifBQqd")}
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
MOST_DIMENSIONS = 4  # GGML_MAX_DIMS
MOST_NAME_BYTES = 255  # ggml takes 64; others write longer ones
MOST_KEY_BYTES = 65535  # docs/gguf.md
MOST_DEPTH = 4  # arrays within arrays; no known file nests at all
_CONTROL = "[\x00-\x1f\x7f-\x9f\u2028\u2029]"  # none of them is printable


@dataclass(frozen=True)
class Entry:
    """A tensor of a file. shape: in NumPy's order, which is the reverse of the file's. offset: of its first byte in the file."""

    name: str
    shape: tuple[int, ...]
    format: Format
    offset: int
    nbytes: int


@dataclass
class GgufFile:
    """A file's metadata (numbers, strings, lists of strings, arrays of NumPy for lists of numbers), its tensors, and its mapped bytes."""

    path: Path
    metadata: dict[str, Any]
    entries: list[Entry]
    bytes: Any  # uint8, mapped

    def data(self, entry: Entry) -> Any:
        """A tensor's bytes: a view of the mapping."""
        return self.bytes[entry.offset : entry.offset + entry.nbytes]


def is_gguf(path: Path) -> bool:
    """Whether a file begins as GGUF files do."""
    try:
        with path.open("rb") as f:
            return f.read(4) == MAGIC
    except OSError:
        return False


def mapped(path: Path) -> Any:
    """A file's bytes, uint8 [n], mapped. Raises ImportModelError."""
    try:
        found = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.zeros(0, np.uint8)
    except (OSError, ValueError) as error:
        raise ImportModelError(f"cannot read {path}: {error}", hint="a file that this user may read") from None
    return found.view(np.ndarray)


def read(path: Path) -> GgufFile:
    """A file's header. Raises ImportModelError for what is no GGUF file, is damaged, or breaks the format's rules."""
    return _Reader(path, mapped(path)).file()


class _Reader:
    def __init__(self, path: Path, data: Any):
        self.path, self.data = path, data
        self.view = memoryview(data)
        self.size = len(data)
        self.at = 0
        self.what = "its header"

    def error(self, text: str, hint: str | None = None) -> ImportModelError:
        return ImportModelError(f"{self.path}, at byte {self.at}, in {self.what}: {text}", hint=hint)

    def number(self, kind: struct.Struct) -> Any:
        if self.at + kind.size > self.size:
            raise self.error("the file ends here", hint="it is cut off; fetch it again")
        value = kind.unpack_from(self.view, self.at)[0]
        self.at += kind.size
        return value

    def string(self, most: int | None = None) -> str:
        """A text. `most`: bytes that a name may have; names are refused where they hold control characters."""
        length = self.number(_U64)
        if length > self.size - self.at or (most is not None and length > most):
            raise self.error(f"a text of {length} bytes", hint="the file is cut off or damaged")
        raw = bytes(self.view[self.at : self.at + length])
        self.at += length
        text = (
            raw.decode("utf-8", "replace" if most is None else "strict")
            if raw.isascii() or most is None
            else self.name_of(raw)
        )
        if most is not None and (not text or (not text.isprintable() and re.search(_CONTROL, text))):
            raise self.error(f"the name {text!r} is empty or holds control characters")
        return text

    def name_of(self, raw: bytes) -> str:
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise self.error(f"the name {raw[:80]!r} is no UTF-8") from None

    def count(self, least: int, what: str) -> int:
        """A count of things of `least` bytes each, as many as can lie in the rest of the file."""
        n: int = self.number(_U64)
        if n > (self.size - self.at) // least:
            raise self.error(
                f"{n} {what}, and {self.size - self.at} bytes are left", hint="the file is cut off or damaged"
            )
        return n

    def file(self) -> GgufFile:
        if bytes(self.view[:4]) != MAGIC:
            raise ImportModelError(f"{self.path} is no GGUF file", hint="such a file begins with the letters GGUF")
        self.at = 4
        version = self.number(_U32)
        if version not in (2, 3):
            big = version in (2 << 24, 3 << 24)
            raise self.error(
                "numbers are big-endian" if big else f"version {version} of GGUF",
                hint="little-endian files of versions 2 and 3 are read",
            )
        tensors = self.count(1, "tensors")
        # A pair takes 13 bytes at least: the length of its name, a letter, its kind; and a tensor 25.
        pairs = self.count(13, "pairs of metadata")
        if tensors > (self.size - self.at) // 25:
            raise self.error(
                f"{tensors} tensors, and {self.size - self.at} bytes are left", hint="the file is cut off or damaged"
            )
        metadata = self.pairs(pairs)
        self.what = "its tensors"
        entries = self.tensors(tensors, self.alignment(metadata))
        return GgufFile(self.path, metadata, entries, self.data)

    def pairs(self, count: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for k in range(count):
            self.what = f"pair {k} of its metadata"
            key = self.string(MOST_KEY_BYTES)
            self.what = f"the metadata {one_line(key)}"
            if key in found:
                raise self.error("it is there twice")
            found[key] = self.value(self.number(_U32), 0)
        return found

    def value(self, kind: int, depth: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self.array(depth)
        if kind not in _STRUCTS:
            raise self.error(f"a value of kind {kind}, which is unknown")
        value = self.number(_STRUCTS[kind])
        if kind == _BOOL:
            if value > 1:
                raise self.error(f"{value} as a bool")
            return bool(value)
        return value

    def array(self, depth: int) -> Any:
        kind = self.number(_U32)
        if kind == _STRING:
            return self.strings(self.count(8, "texts"))
        if kind == _ARRAY:
            if depth == MOST_DEPTH:
                raise self.error(f"arrays within arrays, more than {MOST_DEPTH} deep")
            return [self.array(depth + 1) for _ in range(self.count(12, "arrays"))]
        if kind not in _SCALARS:
            raise self.error(f"an array of kind {kind}, which is unknown")
        dtype = np.dtype(_SCALARS[kind])
        count = self.count(dtype.itemsize, "numbers")
        values = self.data[self.at : self.at + count * dtype.itemsize].view(dtype)
        self.at += count * dtype.itemsize
        if kind == _BOOL and (values > 1).any():
            raise self.error("an array of bools with other numbers")
        return values.astype(bool) if kind == _BOOL else values

    def strings(self, count: int) -> list[str]:
        """Many texts: a vocabulary has 262,144 of them, so the loop calls as little as it can."""
        at, size, view, length_of, found = self.at, self.size, self.view, _U64.unpack_from, []
        try:
            for _ in range(count):
                length = length_of(view, at)[0]
                at += 8
                end = at + length
                if end > size:
                    raise struct.error
                found.append(str(view[at:end], "utf-8", "replace"))
                at = end
        except struct.error:
            self.at = min(at, size)
            raise self.error("a text goes beyond the end of the file", hint="it is cut off; fetch it again") from None
        self.at = at
        return found

    def alignment(self, metadata: Mapping[str, Any]) -> int:
        value = metadata.get("general.alignment", 32)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= 1 << 30 or value & (value - 1):
            raise self.error(f"general.alignment is {value!r}", hint="a power of two")
        return value

    def tensors(self, count: int, alignment: int) -> list[Entry]:
        raw = [self.tensor(k, alignment) for k in range(count)]
        start = -(-self.at // alignment) * alignment
        names: set[str] = set()
        for e in raw:
            self.what = f"the tensor {one_line(e.name)}"
            if e.name in names:
                raise self.error("it is there twice")
            names.add(e.name)
            if start + e.offset + e.nbytes > self.size:
                hint = "the file is cut off (fetch it again), or it is one of several parts"
                raise self.error(
                    f"its bytes {start + e.offset} to {start + e.offset + e.nbytes} lie beyond the file's {self.size}",
                    hint,
                )
        placed = [Entry(e.name, e.shape, e.format, start + e.offset, e.nbytes) for e in raw]
        self.check_apart(placed)
        return placed

    def tensor(self, index: int, alignment: int) -> Entry:
        self.what = f"tensor {index}"
        name = self.string(MOST_NAME_BYTES)
        self.what = f"the tensor {one_line(name)}"
        dimensions = self.number(_U32)
        if dimensions > MOST_DIMENSIONS:
            raise self.error(f"{dimensions} dimensions", hint=f"{MOST_DIMENSIONS} at most")
        shape = tuple(self.number(_U64) for _ in range(dimensions))[::-1]
        if math.prod(max(n, 1) for n in shape) >= 1 << 62:
            raise self.error(f"a shape of {list(shape)}, which no memory holds")
        number = self.number(_U32)
        offset = self.number(_U64)
        if offset % alignment:
            raise self.error(f"its offset {offset} is no multiple of the alignment {alignment}")
        try:
            format = of_ggml(number)
            return Entry(name, shape, format, offset, packed_bytes(format, shape))
        except ImportModelError as error:
            raise self.error(error.message, error.hint) from None

    def check_apart(self, entries: list[Entry]) -> None:
        last: Entry | None = None
        for e in sorted((e for e in entries if e.nbytes), key=lambda e: e.offset):
            if last is not None and e.offset < last.offset + last.nbytes:
                self.what = f"the tensors {one_line(last.name)} and {one_line(e.name)}"
                raise self.error("they overlap")
            last = e
