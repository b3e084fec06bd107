"""What kernels print: C's `printf` over arguments that come as bytes.

`format_text` has the conversions of C and OpenCL; `records` reads the buffer that OpenCL's printf, and HIP's with `-mprintf-kind=buffered`, write to: a
count of bytes, the room, then a record a call, whose format stands in the code object's metadata (`amdhsa.printf`).
Source: LLVM's "User Guide for AMDGPU Backend", "Code Object Metadata", and its pass AMDGPUPrintfRuntimeBinding; OpenCL C 3.0, 6.15.14, "printf".
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_SPEC = re.compile(rb"%([-+ #0]*)(\*|\d+)?(\.(?:\*|\d+)?)?(?:v(\d+))?(hh|hl|h|ll|l|j|z|t|L|q)?([diouxXcsfFeEgGaAp%n])")
_BITS = {b"hh": 8, b"h": 16, b"": 32, b"hl": 32}

# The next argument: "i" and "f" want 8 bytes, "s" a string.
Next = Callable[[str], bytes]


def format_text(fmt: bytes, following: Next) -> str:
    """`fmt` with its arguments, as C prints them."""
    out: list[str] = []
    done = 0
    for m in _SPEC.finditer(fmt):
        out += [fmt[done : m.start()].decode(errors="replace"), _conversion(m, following)]
        done = m.end()
    return "".join([*out, fmt[done:].decode(errors="replace")])


def _conversion(m: re.Match[bytes], following: Next) -> str:
    flags, kind, length = m[1].decode(), m[6].decode(), m[5] or b""
    if kind == "%":
        return "%"
    width = _integer(following("i"), 32) if m[2] == b"*" else int(m[2] or 0)
    if width < 0:
        flags, width = flags + "-", -width
    precision: int | None = None
    if m[3]:
        precision = _integer(following("i"), 32) if m[3] == b".*" else int(m[3][1:] or 0)
    spec = flags + (str(width) if width else "")
    if precision is not None and precision >= 0 and kind not in "cpaA":
        spec += f".{precision}"
    return ",".join(_value(spec, length, kind, following) for _ in range(int(m[4] or 1)))


def _integer(data: bytes, bits: int, signed: bool = True) -> int:
    return int.from_bytes(data[: bits // 8], "little", signed=signed)


def _value(spec: str, length: bytes, kind: str, following: Next) -> str:
    bits = _BITS.get(length, 64)
    if kind in "di":
        return f"%{spec}d" % _integer(following("i"), bits)
    if kind in "ouxX":
        value = _integer(following("i"), bits, signed=False)
        if kind == "o" and "#" in spec and value and "." not in spec:
            spec += f".{len(f'{value:o}') + 1}"  # C's 017, where Python writes 0o17
        if kind == "o" or not value:  # and C's 0, where Python writes 0x0
            spec = spec.replace("#", "")
        return f"%{spec}{'d' if kind == 'u' else kind}" % value
    if kind == "c":
        return f"%{spec}c" % chr(following("i")[0])
    if kind == "s":
        return f"%{spec}s" % following("s").decode(errors="replace")
    if kind == "p":
        return f"%{spec}s" % hex(_integer(following("i"), 64, signed=False))
    if kind == "n":  # it would write to the device's memory; ROCm leaves it out as well
        following("i")
        return ""
    (real,) = struct.unpack("<d", following("f")[:8])
    if kind in "aA":
        text = float(real).hex()
        return f"%{spec}s" % (text.upper() if kind == "A" else text)
    return str(f"%{spec}{kind}" % real)


class Words:
    """Arguments of 8 bytes one behind the other; a string takes as many words as it needs."""

    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def __call__(self, kind: str) -> bytes:
        size = 8 if kind != "s" else (self.data.find(b"\0", self.at) - self.at) // 8 * 8 + 8
        out = self.data[self.at : self.at + size].ljust(8, b"\0")
        self.at += size
        return out.partition(b"\0")[0] if kind == "s" else out


@dataclass(frozen=True)
class Formats:
    """A code object's formats: by number with the arguments' sizes (OpenCL), and by hash (HIP)."""

    numbered: dict[int, tuple[list[int], bytes]]
    hashed: dict[int, bytes]


def formats(metadata: list[str]) -> Formats:
    """The entries of `amdhsa.printf`."""
    numbered: dict[int, tuple[list[int], bytes]] = {}
    hashed: dict[int, bytes] = {}
    for entry in metadata:
        number, count, rest = entry.split(":", 2)
        if number == "0":
            value, _, text = rest.partition(",")
            hashed[int(value, 16)] = text.encode()
            continue
        *sizes, text = rest.split(":", int(count))
        plain = text.encode().decode("unicode_escape").encode("latin-1")
        numbered[int(number)] = [int(s) for s in sizes], plain
    return Formats(numbered, hashed)


def records(data: bytes, known: Formats) -> Iterator[tuple[bool, str]]:
    """(whether it goes to stderr, the text) of each record in a buffer's bytes."""
    at = 0
    while at + 4 <= len(data):
        (head,) = struct.unpack_from("<I", data, at)
        if known.numbered:
            if head not in known.numbered:
                return
            sizes, fmt = known.numbered[head]
            args = Sized(data, at + 4, sizes)
            yield False, format_text(fmt, args)
            at += 4 + sum(-(-s // 4) * 4 for s in sizes)
            continue
        size = head >> 2
        if size < 8 or at + size > len(data):
            return
        body = data[at + 4 : at + size]
        if head & 2:
            fmt, words = known.hashed.get(struct.unpack_from("<Q", body)[0], b""), Words(body[8:])
        else:
            words = Words(body)
            fmt = words("s")
        yield bool(head & 1), format_text(fmt, words)
        at += size


class Sized:
    """Arguments of the sizes that metadata says, each at a multiple of 4 bytes. Vectors are read element by element."""

    def __init__(self, data: bytes, at: int, sizes: list[int]):
        self.data, self.at, self.sizes, self.inner = data, at, list(sizes), 0

    def __call__(self, kind: str) -> bytes:
        if not self.sizes:
            return bytes(8)
        size = self.sizes[0]
        if kind == "s":
            text = self.data[self.at : self.at + size].partition(b"\0")[0]
            self._next(size)
            return text
        element = size if size in (1, 2, 4, 8) else 4
        raw = self.data[self.at + self.inner : self.at + self.inner + element]
        self.inner += element
        if self.inner >= size:
            self._next(size)
        if kind == "f" and element == 4:
            return struct.pack("<d", struct.unpack("<f", raw)[0])
        return raw.ljust(8, b"\0")

    def _next(self, size: int) -> None:
        self.at += -(-size // 4) * 4
        self.inner = 0
        del self.sizes[0]
