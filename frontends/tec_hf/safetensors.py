"""Files of safetensors, mapped: a length, a header in JSON, and the tensors' bytes. As for GGUF files, a header is not trusted.

The format: https://huggingface.co/docs/safetensors. Tensors lie without gaps or overlaps; here they only have to lie within the file and apart.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tec.errors import ImportModelError, one_line
from tec.lm.checkpoint import refuse_pointer
from tec.lm.formats import Format
from tec.lm.remedies import FETCH_AGAIN

MOST_HEADER = 100_000_000  # bytes, as the package safetensors has it
_FORMATS = {
    "F64": Format.F64, "F32": Format.F32, "F16": Format.F16, "BF16": Format.BF16, "I64": Format.I64, "I32": Format.I32, "I16": Format.I16,
    "I8": Format.I8, "U8": Format.U8, "BOOL": Format.BOOL, "F8_E4M3": Format.F8_E4M3, "F8_E5M2": Format.F8_E5M2, "F8_E8M0": Format.U8,
}  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """A tensor of a file: its shape, its format, and its bytes, a view of the mapped file."""

    name: str
    shape: tuple[int, ...]
    format: Format
    data: Any


def read(path: Path) -> dict[str, Entry]:
    """A file's tensors by name. Raises ImportModelError for what is damaged."""
    try:
        size = path.stat().st_size
        mapped = np.memmap(path, np.uint8, "r").view(np.ndarray) if size else np.zeros(0, np.uint8)
    except (OSError, ValueError) as error:
        raise ImportModelError(f"cannot read {path}: {error}", hint="a file that this user may read") from None
    header, start = _header(path, mapped)
    found: dict[str, Entry] = {}
    places = []
    for name, said in header.items():
        if name == "__metadata__":
            continue
        entry, begin, end = _entry(path, name, said, mapped[start:])
        found[name] = entry
        places.append((begin, end, name))
    last = (0, 0, "")
    for place in sorted(p for p in places if p[0] != p[1]):
        if place[0] < last[1]:
            raise ImportModelError(
                f"{path}: the tensors {one_line(last[2])} and {one_line(place[2])} overlap", hint=FETCH_AGAIN
            )
        last = place
    return found


def _header(path: Path, mapped: Any) -> tuple[dict[str, Any], int]:
    if len(mapped) < 8:
        raise ImportModelError(
            f"{path} is no file of safetensors: it has {len(mapped)} bytes", hint="it was cut off: download it again"
        )
    refuse_pointer(path, bytes(mapped[:64]))
    length = struct.unpack_from("<Q", mapped)[0]
    if length > min(MOST_HEADER, len(mapped) - 8):
        raise ImportModelError(
            f"{path}: a header of {length} bytes, and {len(mapped) - 8} are left", hint="the file is cut off or damaged"
        )
    try:
        header = json.loads(bytes(mapped[8 : 8 + length]), object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise ImportModelError(
            f"{path}: the header is damaged: {one_line(str(error))[:200]}", hint=FETCH_AGAIN
        ) from None
    if not isinstance(header, dict):
        raise ImportModelError(f"{path}: the header holds no tensors", hint=FETCH_AGAIN)
    return header, 8 + length


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name that is there twice")
    return found


def _entry(path: Path, name: str, said: Any, data: Any) -> tuple[Entry, int, int]:
    def wrong(text: str) -> ImportModelError:
        return ImportModelError(f"{path}: the tensor {one_line(name)[:200]}: {text}", hint="the file is damaged")

    if not isinstance(said, dict) or not {"dtype", "shape", "data_offsets"} <= said.keys():
        raise wrong("no dtype, shape and data_offsets")
    format = _FORMATS.get(str(said["dtype"]))
    if format is None:
        raise wrong(f"the type {one_line(str(said['dtype']))[:40]}, which is unknown")
    shape, offsets = said["shape"], said["data_offsets"]
    if not _sizes(shape) or not _sizes(offsets) or len(offsets) != 2:
        raise wrong(f"the shape {str(shape)[:80]} at {str(offsets)[:80]}")
    begin, end = offsets
    if not begin <= end <= len(data):
        raise wrong(f"bytes {begin} to {end} of {len(data)}")
    if end - begin != math.prod(shape) * format.nbytes:
        raise wrong(f"{end - begin} bytes for {said['dtype']} {shape}")
    return Entry(name, tuple(shape), format, data[begin:end]), begin, end


def _sizes(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= 64 and all(type(n) is int and 0 <= n < 1 << 62 for n in value)
