"""SentencePiece's pairs ("llama" in GGUF files): of two neighbours whose joint text is a token, those with the highest score are joined, the left ones first.

The merges of such a vocabulary are its scores. Making a list of merges of them, as the package `tokenizers` wants it, takes seconds for 262,144 tokens; joining
by scores takes what a text's length asks for. Source: `llm_tokenizer_spm` in llama.cpp; SentencePiece's BPE model.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from heapq import heappop, heappush
from typing import Any

import numpy as np

from ...errors import ImportModelError
from .texts import bytes_of
from .vocabulary import BYTE, NORMAL, USER, Vocabulary

SPACE = "\u2581"
WORDS_KEPT = 1 << 14  # words whose tokens are remembered: those of a long prompt


class Pieces:
    """Ordinary text to tokens."""

    def __init__(self, vocabulary: Vocabulary):
        if vocabulary.scores is None:
            raise ImportModelError(
                "the file's tokenizer is SentencePiece's, and has no scores", hint="tokenizer.ggml.scores"
            )
        self.vocabulary = vocabulary
        scores: Any = np.array(vocabulary.scores, np.float32)  # a copy, which is aligned
        self.scores = memoryview(scores)
        self.add_space = vocabulary.add_space is not False
        self._words = re.compile(self._boundary(vocabulary.tokens))
        self._tokens_of = lru_cache(WORDS_KEPT)(self._join)

    @staticmethod
    def _boundary(tokens: Sequence[str]) -> str:
        """Words begin at a space behind another character, since no token holds one there; where some do (">▁</"), not behind such a character."""
        raw = bytes_of(tokens)
        a, b, c = SPACE.encode()
        spaces = np.flatnonzero((raw[:-2] == a) & (raw[1:-1] == b) & (raw[2:] == c))
        is_space = np.zeros(len(raw) + 1, bool)
        is_space[spaces + 2] = True  # its last byte
        before = spaces[(spaces > 0) & ~is_space[spaces - 1]] - 1
        within = before[(raw[before] != 0) & (raw[before] != ord("\n"))].tolist()
        inner = {bytes(raw[max(0, at - 3) : at + 1]).decode("utf-8", "ignore")[-1] for at in within}
        kept = "".join(re.escape(c) for c in sorted(inner))
        return f"(?<=[^{SPACE}{kept}])(?={SPACE})"

    def encode(self, text: str, begins: bool) -> list[int]:
        """begins: the text stands at the beginning, or behind a special token, so that a space is put before it where the model wants that."""
        if begins and self.add_space:
            text = " " + text
        found: list[int] = []
        for word in self._words.split(text.replace(" ", SPACE)):
            found += self._tokens_of(word)
        return found

    def _join(self, word: str) -> tuple[int, ...]:
        ids, scores = self.vocabulary.ids, self.scores
        if (whole := ids.get(word)) is not None and len(word) == 1:
            return (whole,)
        parts: list[str] = list(word)
        after = list(range(1, len(parts) + 1))
        before = list(range(-1, len(parts) - 1))
        queue: list[tuple[float, int, int, str]] = []

        def consider(left: int, right: int) -> None:
            if left >= 0 and right < len(parts) and (k := ids.get(text := parts[left] + parts[right])) is not None:
                heappush(queue, (-scores[k], left, right, text))

        for k in range(len(parts) - 1):
            consider(k, k + 1)
        while queue:
            _, left, right, text = heappop(queue)
            if not parts[left] or not parts[right] or parts[left] + parts[right] != text or after[left] != right:
                continue
            parts[left], parts[right] = text, ""
            after[left] = after[right]
            if after[right] < len(parts):
                before[after[right]] = left
            consider(before[left], left)
            consider(left, after[left])
        return tuple(k for part in parts if part for k in self._ids_of(part))

    def _ids_of(self, part: str) -> list[int]:
        """A part that no join made longer: a token, or the tokens of its bytes."""
        if (k := self.vocabulary.ids.get(part)) is not None:
            return [k]
        found = [self.vocabulary.byte_ids[b] for b in part.encode("utf-8", "surrogatepass")]
        if all(k is not None for k in found):
            return [k for k in found if k is not None]
        return [] if self.vocabulary.unknown is None else [self.vocabulary.unknown]

    def bytes_of(self, id: int) -> bytes:
        """What a token that is no special one adds to a text."""
        token, kind = self.vocabulary.tokens[id], self.vocabulary.kinds[id]
        if kind == BYTE and len(token) == 6:
            return bytes([int(token[3:5], 16)])
        if kind in (NORMAL, USER):
            return token.replace(SPACE, " ").encode("utf-8", "surrogatepass")
        return token.encode("utf-8", "surrogatepass")
