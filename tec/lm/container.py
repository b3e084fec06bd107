"""A file of plain facts and arrays that is mapped, not read: what `tec.lm` keeps of a model between starts.

    magic, 16 bytes; the length of the header, 8 bytes; header (JSON: "facts", and by name the arrays' types, shapes and places); arrays from the next page on,
    each at a multiple of 64 bytes

Files lie in the user's own cache folder and hold data alone. One is written under another name and renamed when all of it is on the disk, so that nobody finds
half of one. `kept` opens one; `Writer` makes one whose arrays are filled in place; `keep` writes arrays that are there.
"""

from __future__ import annotations

import contextlib
import json
import math
import mmap
import os
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..disk_cache import trim
from ..folders import cache_part, is_own, limit_bytes

PART = "models"
MODELS_CACHE_BYTES = 8 << 30  # weights of one 8B model in 4 bits and some small ones
_MAGIC = b"tec-model-0001\n\0"
_LENGTH = struct.Struct("<Q")
_PAGE = 4096
_ALIGN = 64  # bytes: where a CPU's kernels read arrays in place (`runtime.devices.storage`)
_SHARE_OF_DISK = 4  # a file takes no more than this part of the space that is free
_NEW = ".new-"

Specs = Mapping[str, tuple[str, Sequence[int]]]  # dtype and shape by name
Held = Callable[[str], Any]  # what NumPy holds a dtype in


class Kept:
    """An opened file: `facts`, and `arrays` by name, read-only views of the mapping."""

    def __init__(self, facts: Any, arrays: dict[str, Any]):
        self.facts, self.arrays = facts, arrays


def kept(key: str, held: Held = np.dtype, part: str = PART) -> Kept | None:
    """What is kept under a key (letters of a hash). None where nothing is, or what is there does not fit. held, part: as they were for the writer."""
    folder = cache_part(part) if limit_bytes() else None
    if folder is None:
        return None
    path = folder / f"{key}.tec"
    try:
        with open(path, "rb") as f:
            facts = os.fstat(f.fileno())
            if not is_own(facts):
                return None
            mapped = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        os.utime(path)
        return _opened(mapped, held)
    except (OSError, ValueError, KeyError, TypeError, struct.error):
        return None


def _opened(mapped: mmap.mmap, held: Held) -> Kept | None:
    if mapped[: len(_MAGIC)] != _MAGIC:
        return None
    (length,) = _LENGTH.unpack_from(mapped, len(_MAGIC))
    begin = len(_MAGIC) + _LENGTH.size
    header = json.loads(mapped[begin : begin + length])
    raw = np.frombuffer(mapped, np.uint8)
    if header["nbytes"] != len(raw):
        return None
    return Kept(header["facts"], _views(raw, header["arrays"], held))


def _views(raw: Any, table: Mapping[str, Any], held: Held) -> dict[str, Any]:
    made = {}
    for name, (dtype, shape, at) in table.items():
        kind = held(dtype)
        made[name] = raw[at : at + _nbytes(kind, shape)].view(kind).reshape(shape)
    return made


def _nbytes(kind: Any, shape: Sequence[int]) -> int:
    return int(kind.itemsize) * math.prod(shape)


class Writer:
    """A file in the making: `arrays` may be written; `finish` puts it in place. Raises OSError where there is no room, or no folder."""

    def __init__(
        self,
        key: str,
        facts: Any,
        specs: Specs,
        held: Held = np.dtype,
        part: str = PART,
        limit: int = MODELS_CACHE_BYTES,
    ):
        folder = cache_part(part, make=True) if limit_bytes() else None
        if folder is None:
            raise OSError("the cache is off")
        header, table, total = _header(facts, specs, held)
        import shutil  # to write alone
        import tempfile

        if total > min(limit, shutil.disk_usage(folder).free // _SHARE_OF_DISK):
            raise OSError("too large for the cache")
        self._path, self._folder, self._limit = folder / f"{key}.tec", folder, limit
        handle, self._temporary = tempfile.mkstemp(dir=folder, prefix=_NEW)
        try:
            if not hasattr(os, "posix_fallocate"):
                raise OSError("this system reserves no room on a disk")
            # A disk that is full says so here: a write through the mapping would end the process.
            os.posix_fallocate(handle, 0, total)
            self._mapped = mmap.mmap(handle, total)
        except BaseException:
            self.drop()
            raise
        finally:
            os.close(handle)
        self._mapped[: len(header)] = header
        self.arrays = _views(np.frombuffer(self._mapped, np.uint8), table, held)

    def finish(self, later: bool = False) -> None:
        """On the disk, and then in place; `later`: in a thread, which a process that ends waits for."""
        if later:
            threading.Thread(target=self._finish, name="tec-keep").start()
        else:
            self._finish()

    def _finish(self) -> None:
        try:
            self._mapped.flush()
            os.replace(self._temporary, self._path)
        except OSError:
            self.drop()
            return
        trim(self._folder, self._limit)

    def drop(self) -> None:
        """Nothing is kept."""
        with contextlib.suppress(OSError):
            os.unlink(self._temporary)


def _header(facts: Any, specs: Specs, held: Held) -> tuple[bytes, dict[str, Any], int]:
    """(what the file begins with, the table of arrays, bytes of the file)."""
    table: dict[str, Any] = {n: [dtype, list(shape), 0] for n, (dtype, shape) in specs.items()}
    text = json.dumps({"facts": facts, "arrays": table, "nbytes": 0}, default=_plain)
    # Places are numbers of more digits than the 0 that stands for them here.
    room = len(_MAGIC) + _LENGTH.size + len(text.encode()) + 24 * (len(table) + 1)
    at = -(-room // _PAGE) * _PAGE
    for entry in table.values():
        entry[2] = at
        at += -(-_nbytes(held(entry[0]), entry[1]) // _ALIGN) * _ALIGN
    raw = json.dumps({"facts": facts, "arrays": table, "nbytes": at}, default=_plain).encode()
    return _MAGIC + _LENGTH.pack(len(raw)) + raw, table, at


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is no plain data")


def keep(
    key: str, facts: Any, arrays: Mapping[str, Any], held: Held = np.dtype, names: Callable[[Any], str] = str,
    part: str = PART, limit: int = MODELS_CACHE_BYTES,
) -> None:  # fmt: skip
    """Keep facts and arrays; where that fails, nothing is kept. names: what a dtype is called, which `held` takes back. part: of the cache, which takes
    `limit` bytes."""
    try:
        made = Writer(key, facts, {n: (names(a.dtype), a.shape) for n, a in arrays.items()}, held, part, limit)
    except OSError:
        return
    for name, a in arrays.items():
        made.arrays[name][...] = a
    made.finish()


def identity(files: Sequence[Path]) -> list[Any] | None:
    """What tells that files are the same as before, without reading them: where they lie, sizes and times. None where one is not there, or none is named."""
    found: list[Any] = []
    try:
        for path in files:
            facts = path.stat()
            found.append([os.path.realpath(path), facts.st_size, facts.st_mtime_ns, facts.st_ino, facts.st_dev])
    except OSError:
        return None
    return found or None
