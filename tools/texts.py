"""Text for networks that read and write: T5's pieces of words, a romanizer's letters, a text recogniser's characters.

Each class reads its tables from the package that has the weights (tools/archives.py) and needs nothing else.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .archives import archive, member

SPACE = "\u2581"  # how pieces of words write the space before them


class UnigramTokenizer:
    """A SentencePiece unigram model: the split of a text into pieces with the largest sum of log-probabilities."""

    def __init__(self, table: dict[str, Any]):
        pieces = table["model"]["vocab"]
        self.pieces: list[str] = [p for p, _ in pieces]
        self.scores = {p: (s, k) for k, (p, s) in enumerate(pieces)}
        self.special = {t["id"] for t in table["added_tokens"]}
        self.unknown = int(table["model"]["unk_id"])
        self.longest = max(map(len, self.pieces))
        self.end = self.pieces.index("</s>")

    def encode(self, text: str) -> list[int]:
        """The ids of a text, with the end token."""
        words = unicodedata.normalize("NFKC", text).split()
        return [k for w in words for k in self._word(SPACE + w)] + [self.end]

    def _word(self, word: str) -> list[int]:
        best: list[tuple[float, int, int]] = [(0.0, -1, -1)]  # (score, start of the last piece, its id), by end
        for end in range(1, len(word) + 1):
            options = []
            for start in range(max(0, end - self.longest), end):
                found = self.scores.get(word[start:end])
                if found is not None:
                    options.append((best[start][0] + found[0], start, found[1]))
            # An unknown character costs more than any piece.
            options.append((best[end - 1][0] - 100.0, end - 1, self.unknown))
            best.append(max(options))
        ids, at = [], len(word)
        while at:
            _, start, k = best[at]
            ids.append(k)
            at = start
        return ids[::-1]

    def decode(self, ids: Iterable[int]) -> str:
        kept = (self.pieces[k] for k in ids if k not in self.special and k < len(self.pieces))
        return "".join(kept).replace(SPACE, " ").strip()


def title_tokenizer(package: str) -> UnigramTokenizer:
    return UnigramTokenizer(
        json.loads(member(archive(package), "traceforge_title_model/data/span/tokenizer.json").decode())
    )


class Romanizer:
    """The letters of the romanizer, and a search for the likeliest name, one letter at a time."""

    PAD, BEGIN, END = 0, 1, 2

    def __init__(self, package: str):
        self.tokens: list[str] = json.loads(
            member(archive(package), "arabic_name_romanizer/resources/vocab.json").decode()
        )["tokens"]

    def source(self, name: str) -> Any:
        """The ids of a name in Arabic letters: no country, no role, letters, end."""
        ids = [self.tokens.index(t) for t in ("<UNK_COUNTRY>", "<ROLE_UNKNOWN>", *name)]
        return np.array([[*ids, self.END]], np.int64)

    def decode(self, step: Callable[[Any, list[Any]], tuple[Any, list[Any]]], state: list[Any], most: int = 32) -> str:
        """`step(prefix, state) -> (log-probabilities, state)`; the prefix is one letter, for the state remembers."""
        out: list[int] = []
        last = self.BEGIN
        for _ in range(most):
            scores, state = step(np.array([[last]], np.int64), state)
            last = int(np.argmax(scores[0]))
            if last == self.END:
                break
            out.append(last)
        return "".join(self.tokens[k] for k in out)


def ocr_characters(model: Any) -> list[str]:
    """The characters that a PP-OCR recogniser tells apart, from its metadata: blank first, space last."""
    import onnx

    proto = onnx.load(str(model)) if isinstance(model, (str, Path)) else model
    table = next(p.value for p in proto.metadata_props if p.key == "character")
    return ["", *table.splitlines(), " "]


def ctc_text(probabilities: Any, characters: Sequence[str]) -> tuple[str, float]:
    """The best path of a connectionist classifier, (steps, classes): repeats merged, blanks dropped; and its mean probability."""
    best = probabilities.argmax(-1)
    first = np.concatenate([[True], best[1:] != best[:-1]])
    kept = first & (best != 0)
    text = "".join(characters[k] for k in best[kept])
    return text, float(probabilities.max(-1)[kept].mean()) if kept.any() else 0.0
