"""Headers of files that were opened before: a vocabulary of 262,144 texts takes a tenth of a second to read from a file that may be hostile, and a fiftieth from
one that was read and written down.

Kept by where a file lies, its size and its times; and by the source of the reader, since another one may refuse what this took.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tec.digest import sha256
from tec.errors import ImportModelError
from tec.lm.container import identity, keep, kept
from tec.lm.formats import Format
from tec.lm.text.texts import PARTS, Texts, table_of

from . import reader
from .reader import Entry, GgufFile

LEAST_TEXTS = 4096  # of a list from which on a header is kept: a smaller one is read as quickly


def read(path: Path) -> GgufFile:
    """`reader.read`, or what it gave before. Raises ImportModelError."""
    key = _key(path)
    found = _kept(path, key) if key is not None else None
    if found is not None:
        return found
    made = reader.read(path)
    if key is not None and any(isinstance(v, list) and len(v) >= LEAST_TEXTS for v in made.metadata.values()):
        _keep(key, made)
    return made


def _key(path: Path) -> str | None:
    facts = identity([path, Path(reader.__file__)])
    return None if facts is None else sha256(json.dumps(["gguf", facts]).encode()).hexdigest()


def _keep(key: str, file: GgufFile) -> None:
    facts: dict[str, Any] = {}
    arrays: dict[str, Any] = {}
    for k, v in file.metadata.items():
        if isinstance(v, np.ndarray):
            facts[k] = ["numbers"]
            arrays[k] = v
        elif isinstance(v, list) and len(v) >= LEAST_TEXTS and all(isinstance(t, str) and "\0" not in t for t in v):
            facts[k] = ["texts"]
            arrays |= {f"{k}/{part}": a for part, a in table_of(v).items()}
        elif isinstance(v, list) and any(isinstance(x, (np.ndarray, list)) for x in v):
            return  # arrays within arrays: no known file has them
        else:
            facts[k] = ["plain", v]
    entries = [[e.name, list(e.shape), e.format.name, e.offset, e.nbytes] for e in file.entries]
    keep(key, {"metadata": facts, "entries": entries}, arrays)


def _kept(path: Path, key: str) -> GgufFile | None:
    found = kept(key)
    if found is None:
        return None
    try:
        metadata = {k: _value(k, v, found.arrays) for k, v in found.facts["metadata"].items()}
        entries = [Entry(n, tuple(s), Format[f], at, size) for n, s, f, at, size in found.facts["entries"]]
    except (KeyError, ValueError, TypeError, IndexError):
        return None
    data = reader.mapped(path)
    if any(e.offset + e.nbytes > len(data) for e in entries):
        raise ImportModelError(
            f"{path} was cut off while it was opened", hint="wait until the file is written, or download it again"
        )
    return GgufFile(path, metadata, entries, data)


def _value(name: str, how: list[Any], arrays: dict[str, Any]) -> Any:
    if how[0] == "plain":
        return how[1]
    if how[0] == "numbers":
        return arrays[name]
    return Texts({part: arrays[f"{name}/{part}"] for part in PARTS})
