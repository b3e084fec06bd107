"""Find the code objects in a file: linked, relocatable, in a clang offload bundle, or in a fat binary that holds bundles.

In: the bytes of a file. Out: the code objects in it as (target name, bytes). A bundle begins with `__CLANG_OFFLOAD_BUNDLE__`, a count,
and for each entry offset, size and name ("hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-"); a compressed one with `CCOB`. An executable has
them in its section `.hip_fatbin`, each at a page of its own.
Source: clang's "Clang Offload Bundler" page.
"""

from __future__ import annotations

import re
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

from tec.errors import DeviceError

from .codeobject import MACH

_BUNDLE, _COMPRESSED = b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB"
_EM_AMDGPU = 224
_RELOCATABLE, _MOST_ENTRIES = 1, 1024
_MOST_BYTES = 1 << 32  # that a compressed bundle may grow to


@dataclass(frozen=True, slots=True)
class Entry:
    """A code object and the target that it is for: the chip, and features that must be as it says ("xnack-")."""

    chip: str
    features: tuple[str, ...]
    image: bytes

    @property
    def target(self) -> str:
        return ":".join((self.chip, *self.features))

    @property
    def relocatable(self) -> bool:
        return _elf_type(self.image) == _RELOCATABLE


def _elf_type(image: bytes) -> int:
    return int.from_bytes(image[16:18], "little")


def _is_amdgpu(image: bytes) -> bool:
    return image[:4] == b"\x7fELF" and int.from_bytes(image[18:20], "little") == _EM_AMDGPU


def code_objects(data: bytes) -> list[Entry]:
    """Every code object in a file's bytes. Raises DeviceError where there is none, or what is there is damaged."""
    try:
        if _is_amdgpu(data):
            flags = struct.unpack_from("<I", data, 48)[0]
            return [Entry(MACH.get(flags & 0xFF, f"EF_AMDGPU_MACH {flags & 0xFF:#x}"), (), data)]
        found = [entry for start in _starts(data) for entry in _entries(data, start)]
    except (struct.error, UnicodeDecodeError, zlib.error) as error:
        raise DeviceError(
            f"a damaged bundle of code objects: {error}", hint="the file was cut off or changed: build or copy it again"
        ) from None
    if not found:
        raise DeviceError(
            "no AMDGPU code object in this file",
            hint="a linked .hsaco, a relocatable object, a clang offload bundle, or an executable with a .hip_fatbin section",
        )
    return found


def _starts(data: bytes) -> list[int]:
    """Where bundles begin: at the file's start, or in the fat binary section of an executable (8-byte boundaries)."""
    if data.startswith((_BUNDLE, _COMPRESSED)):
        return [0]
    if data[:4] != b"\x7fELF":
        return []
    return [m.start() for m in re.finditer(re.escape(_BUNDLE) + b"|" + _COMPRESSED, data) if m.start() % 8 == 0]


def _entries(data: bytes, start: int) -> list[Entry]:
    if data.startswith(_COMPRESSED, start):
        inner = _decompress(data, start)
        return _entries(inner, 0) if inner.startswith(_BUNDLE) else []
    (count,) = struct.unpack_from("<Q", data, start + len(_BUNDLE))
    if count > _MOST_ENTRIES:
        return []  # the magic as a text in some program
    at, out = start + len(_BUNDLE) + 8, []
    for _ in range(count):
        offset, size, length = struct.unpack_from("<QQQ", data, at)
        name = data[at + 24 : at + 24 + length].decode()
        at += 24 + length
        if start + offset + size > len(data):
            raise DeviceError(
                f"a damaged bundle: entry {name!r} ends {start + offset + size - len(data)} bytes past the file",
                hint="the file was cut off or changed: build or copy it again",
            )
        image = data[start + offset : start + offset + size]
        found = re.search(r"amdgcn-amd-amdhsa-[\w]*-(gfx[\w-]+?)((?::[a-z]+[+-])*)$", name)
        if found and _is_amdgpu(image):
            out.append(Entry(found[1], tuple(f for f in found[2].split(":") if f), image))
    return out


def _decompress(data: bytes, start: int) -> bytes:
    version, method = struct.unpack_from("<HH", data, start + 4)
    if version not in (1, 2, 3):
        return b""  # the four letters by chance
    if method != 0:
        raise DeviceError(
            "a bundle compressed by zstd",
            hint="clang-offload-bundler --unbundle writes its code objects, or build with --no-offload-compress",
        )
    header, sizes = {1: (20, "<I"), 2: (24, "<4xI"), 3: (32, "<8xQ")}[version]
    (size,) = struct.unpack_from(sizes, data, start + 8)
    if size > _MOST_BYTES:
        raise DeviceError(
            f"a compressed bundle that says it holds {size} bytes",
            hint=f"at most {_MOST_BYTES} bytes are unpacked: the file is damaged, or unpack it by clang-offload-bundler",
        )
    return zlib.decompressobj().decompress(data[start + header :], size)


def choose(entries: list[Entry], arch: str) -> Entry:
    """The code object for a device that calls itself `arch` ("gfx90a:sramecc+:xnack-", or the chip alone)."""
    chip, *have = arch.split(":")
    for e in entries:
        if e.chip == chip and all(f in have or not any(h[:-1] == f[:-1] for h in have) for f in e.features):
            return e
    raise DeviceError(
        f"no code object for {arch} in this file", hint=f"it has: {', '.join(sorted({e.target for e in entries}))}"
    )


def assembly_beside(path: Path) -> str | None:
    """The text of `kernel.s` or `kernel.amdgcn` beside `kernel.hsaco`: Triton's cache and `-save-temps` write both."""
    for suffix in (".s", ".amdgcn"):
        try:
            return path.with_suffix(suffix).read_text()
        except (OSError, UnicodeDecodeError):
            continue
    return None
