"""The state of a text on the disk: its tokens, and what the caches hold of them, so that another process goes on without reading the text again.

A file is one of safetensors, which other tools read too: "ids" int64 [tokens], "length" int64 [1] (tokens of the text that the caches were made for), "model" uint8 [32] (what
tells models apart), "messages" uint8 (a conversation as JSON), and "state.NAME" for each cache. A file is not trusted: sizes, types and tokens are compared with the model's.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from ..errors import ArgumentError, one_line
from ..runtime.arrays.dtypes import numpy_dtype
from ..runtime.arrays.ndarray import NDArray, array
from ..runtime.outputs import write_output
from ..runtime.plans.plan import State
from .checkpoint import Checkpoint

if TYPE_CHECKING:
    from .model import LanguageModel

_STATE = "state."
_NAMES = {
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "uint8": "U8",
    "int8": "I8",
    "float8_e4m3": "F8_E4M3",
}
_SAMPLE = 4096  # bytes of each tensor that tell two models of the same sizes apart: some MB of all, where whole files are gigabytes
_ELSE = "the text is read again without it: generate(prompt)"


def written(lm: LanguageModel, path: str | os.PathLike[str], messages: Sequence[Mapping[str, Any]]) -> None:
    """See `LanguageModel.save_state`."""
    arrays: dict[str, tuple[str, Any]] = {
        "ids": ("int64", np.array(lm.ids, np.int64)),
        "length": ("int64", np.array([lm.length], np.int64)),
        "model": ("uint8", lm.fingerprint),
        "messages": ("uint8", np.frombuffer(_text_of(messages), np.uint8)),
    }
    arrays.update((_STATE + n, (x.dtype, x.numpy())) for n, x in lm.executor.state.items())
    arrays["crc32"] = "int64", np.array([_sum_of(value for _, value in arrays.values())], np.int64)
    header, at = dict[str, Any](), 0
    for name, (dtype, value) in arrays.items():
        header[name] = {"dtype": _NAMES[dtype], "shape": list(value.shape), "data_offsets": [at, at + value.nbytes]}
        at += value.nbytes

    def content(f: BinaryIO) -> None:
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)  # the arrays begin at a multiple of 8 bytes
        f.write(struct.pack("<Q", len(text)) + text)
        for _, value in arrays.values():
            f.write(_bytes_of(value))

    write_output(path, content)


def taken_up(lm: LanguageModel, path: str | os.PathLike[str]) -> tuple[list[int], int, dict[str, NDArray], list[Any]]:
    """Tokens, the length that the caches were made for, caches on the model's device, and messages. See `LanguageModel.load_state`."""
    place = Path(path)
    entries = import_module("tec_hf.safetensors").read(place)
    missing = next((n for n in ("ids", "length", "model", "messages", "crc32") if n not in entries), None)
    if missing is not None:
        raise ArgumentError(f"{place} is no state of a text: it has no {missing}", hint=_ELSE)
    if bytes(entries["model"].data) != bytes(lm.fingerprint):
        raise ArgumentError(f"{place} was saved with another model", hint=_ELSE)
    ids = _counts(place, entries, "ids", lm.config.vocabulary)
    length = _counts(place, entries, "length", 1 << 31)
    if not ids or len(length) != 1 or length[0] < len(ids):
        raise ArgumentError(f"{place} is damaged: {len(ids)} tokens of a text of {length}", hint=_ELSE)
    if _counts(place, entries, "crc32", 1 << 32) != [_sum_of(e.data for n, e in entries.items() if n != "crc32")]:
        raise ArgumentError(f"{place} is damaged: its checksum is another", hint=_ELSE)
    lm.check_room(len(ids))
    values, states = lm.network.plan.values, {}
    for s in lm.network.plan.states:
        entry, wanted = entries.get(_STATE + s.input), values[s.input]
        rows = _rows_of(entry, s, len(ids))
        shape = tuple(rows if k == s.axis else d for k, d in enumerate(wanted.shape))
        if entry is None or entry.shape != shape or entry.format.name != _NAMES[wanted.dtype]:
            have = "nothing" if entry is None else f"{entry.format.name} {list(entry.shape)}"
            raise ArgumentError(
                f"{place} has {have} for {s.input}, and the model takes {_NAMES[wanted.dtype]} {list(shape)}",
                hint="dtype= as it was when the state was saved",
            )
        kind = numpy_dtype(wanted.dtype)
        states[s.input] = array(entry.data.view(kind).reshape(shape), lm.executor.device, wanted.dtype)
    return ids, length[0], states, _messages_of(place, bytes(entries["messages"].data))


def _rows_of(entry: Any, s: State, tokens: int) -> int:
    """The rows that a state has of so many tokens: with a window it may have no more than the next token sees."""
    if not s.window or entry is None or s.axis is None or len(entry.shape) <= s.axis:
        return tokens
    return max(min(tokens, s.window - 1), min(int(entry.shape[s.axis]), tokens))


def _bytes_of(value: Any) -> Any:
    return np.ascontiguousarray(value).view(np.uint8).reshape(-1).data if value.size else b""


def _sum_of(values: Iterable[Any]) -> int:
    """The checksum of arrays in their order in the file."""
    found = 0
    for value in values:
        found = zlib.crc32(_bytes_of(value), found)
    return found


def _counts(place: Path, entries: Mapping[str, Any], name: str, end: int) -> list[int]:
    """A row of numbers from 0 on, all below `end`."""
    entry = entries[name]
    if entry.format.name != "I64" or len(entry.shape) != 1:
        raise ArgumentError(f"{place} is damaged: {name} is {entry.format.name} {list(entry.shape)}", hint=_ELSE)
    found: list[int] = entry.data.copy().view("<i8").tolist()
    wrong = next((x for x in found if not 0 <= x < end), None)
    if wrong is not None:
        raise ArgumentError(f"{place} is damaged: {name} holds {wrong}", hint=_ELSE)
    return found


def _text_of(messages: Sequence[Mapping[str, Any]]) -> bytes:
    try:
        return json.dumps(list(messages)).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(
            f"the messages are no JSON: {one_line(str(error))}",
            hint="messages of texts, numbers, lists and dicts with texts as keys",
        ) from None


def _messages_of(place: Path, text: bytes) -> list[Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(isinstance(m, dict) for m in found):
        raise ArgumentError(f"{place} is damaged: its messages are no list of messages", hint=_ELSE)
    return found


def fingerprint_of(checkpoint: Checkpoint) -> Any:
    """What tells models apart, uint8 [32]: the configuration, the tensors' shapes and formats, and the beginning of each tensor that lies in one piece."""
    seen = hashlib.sha256(
        repr((checkpoint.architecture, sorted((k, repr(v)) for k, v in checkpoint.config.items()))).encode()
    )
    for name, t in sorted(checkpoint.tensors.items()):
        seen.update(repr((name, t.shape, t.format.name, t.bits, t.group)).encode())
        if not callable(t.raw):
            seen.update(bytes(t.raw[:_SAMPLE]))
    return np.frombuffer(seen.digest(), np.uint8)
