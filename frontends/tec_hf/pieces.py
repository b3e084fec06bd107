"""SentencePiece's tokenizer.model: the few fields of its protocol buffer that a vocabulary needs (sentencepiece_model.proto).

ModelProto      1: pieces (1: text, 2: score, 3: kind)   2: trainer_spec (3: model_type; 1 unigram, 2 pairs)   3: normalizer_spec (2: charsmap, 3: add a space)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tec.errors import ImportModelError
from tec.lm.remedies import FETCH_AGAIN
from tec.lm.text.vocabulary import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER, Vocabulary

from .settings import text_of

_MODELS = {1: "t5", 2: "llama"}


def vocabulary_of(path: Path, settings: Mapping[str, Any]) -> Vocabulary:
    """The vocabulary of a tokenizer.model. settings: tokenizer_config.json, which says what is added to a text. Raises ImportModelError."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ImportModelError(f"cannot read {path}: {error}", hint="a file that this user may read") from None
    tokens: list[str] = []
    scores: list[float] = []
    kinds: list[int] = []
    model, charsmap, add_space = 1, b"", True
    try:
        for number, value in fields(raw):
            if number == 1:
                piece = dict(fields(value))
                tokens.append(bytes(piece.get(1, b"")).decode("utf-8"))
                scores.append(struct.unpack("<f", piece[2])[0] if 2 in piece else 0.0)
                kinds.append(piece.get(3, NORMAL))
            elif number == 2:
                model = dict(fields(value)).get(3, 1)
            elif number == 3:
                spec = dict(fields(value))
                charsmap, add_space = bytes(spec.get(2, b"")), bool(spec.get(3, 1))
    except (ValueError, struct.error, TypeError, IndexError) as error:
        raise ImportModelError(f"{path} is no model of SentencePiece: {error}", hint=FETCH_AGAIN) from None
    if not tokens or model not in _MODELS or not set(kinds) <= {NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE}:
        raise ImportModelError(f"{path} is no model of SentencePiece with pairs or unigrams", hint=FETCH_AGAIN)

    def id_of(name: str, default: str) -> int | None:
        text = text_of(settings.get(name, default))
        return tokens.index(text) if text is not None and text in tokens else None

    flags = {k: settings.get(k) for k in ("add_bos_token", "add_eos_token")}
    return Vocabulary(
        _MODELS[model], tokens, np.array(kinds, np.int32), np.array(scores, np.float32), begin=id_of("bos_token", "<s>"),
        end=id_of("eos_token", "</s>"), unknown=kinds.index(UNKNOWN) if UNKNOWN in kinds else None,
        add_begin=flags["add_bos_token"] if isinstance(flags["add_bos_token"], bool) else None,
        add_end=flags["add_eos_token"] if isinstance(flags["add_eos_token"], bool) else None, add_space=add_space, charsmap=charsmap,
    )  # fmt: skip


def fields(raw: bytes | memoryview) -> Iterator[tuple[int, Any]]:
    """The fields of a message: numbers for varints, bytes for the rest. Raises ValueError where it is cut off."""
    view = memoryview(raw)
    at = 0
    while at < len(view):
        tag, at = _varint(view, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(view, at)
            yield tag >> 3, value
            continue
        if kind == 2:
            size, at = _varint(view, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"a field of the kind {kind}")
        if size > len(view) - at:
            raise ValueError("it is cut off")
        yield tag >> 3, view[at : at + size]
        at += size


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for k in range(10):
        if at >= len(view):
            raise ValueError("it is cut off")
        byte = view[at]
        at += 1
        value |= (byte & 127) << 7 * k
        if byte < 128:
            return value, at
    raise ValueError("a number without an end")
