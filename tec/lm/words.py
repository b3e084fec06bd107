"""When each word of Whisper's was said: from how its decoder attends to the sound while it reads each token.

Some heads follow the sound (`alignment_heads` of the generation config). Their weights are normalized over the tokens, smoothed by a median over time, and averaged; the cheapest
path through tokens and places, which never goes back, says where each token begins.

Sources: OpenAI's Whisper (arXiv 2212.04356), timing.py; transformers' `_extract_token_timestamps` and `_combine_tokens_into_words`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from .checkpoint import Tokenizer

# Punctuation of the word that follows, and of the one before.
_BEFORE = "\"'“¡¿([{-"
_BEHIND = "\"'.。,，!！?？:：”)]}、"
_ALONE = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
_NO_SPACES = ("zh", "ja", "th", "lo", "my", "yue")  # languages whose words no space divides


@dataclass(frozen=True)
class Word:
    """A word, with the space ahead of it and its punctuation; when it begins and ends, in seconds; and its tokens."""

    start: float
    end: float
    text: str
    ids: tuple[int, ...]


def places_of(weights: Any, width: int) -> Any:
    """The place of the sound at which each token begins, int [tokens]. weights: of heads, float32 [heads, tokens, places]. width: of the median."""
    x = np.asarray(weights, np.float64)
    spread = x.std(axis=1, keepdims=True)
    x = (x - x.mean(axis=1, keepdims=True)) / np.where(spread == 0, 1, spread)
    cost = -_smoothed(x, width).mean(axis=0)
    path = _cheapest(cost)
    return np.array([next(place for token, place in path if token == t) for t in range(len(cost))], np.int64)


def _smoothed(x: Any, width: int) -> Any:
    """The median of so many neighbours along the last axis; edges are mirrored."""
    half = width // 2
    if x.shape[-1] <= half:
        return x
    wide = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(half, half)], mode="reflect")
    return np.median(np.lib.stride_tricks.sliding_window_view(wide, width, axis=-1), axis=-1)


def _cheapest(cost: Any) -> list[tuple[int, int]]:
    """The path of least cost from the first token and place to the last: each step goes on to the next token, the next place, or both (dynamic time warping)."""
    tokens, places = cost.shape
    total = np.full((tokens + 1, places + 1), np.inf)
    total[0, 0] = 0
    step = np.full((tokens + 1, places + 1), 2)
    step[1:, 0] = 1
    for j in range(1, places + 1):
        for i in range(1, tokens + 1):
            both, token, place = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
            step[i, j] = 0 if both < token and both < place else 1 if token < both and token < place else 2
            total[i, j] = cost[i - 1, j - 1] + (both, token, place)[step[i, j]]
    i, j, path = tokens, places, []
    while i > 0 or j > 0:
        path.append((i - 1, j - 1))
        how = step[i, j]
        i, j = i - (how != 2), j - (how != 1)
    return path[::-1]


def words_of(tokenizer: Tokenizer, ids: Sequence[int], times: Sequence[float], end: float, language: str) -> list[Word]:
    """The words of tokens that begin at `times` (seconds); the last one ends at `end`. language: "en", ..."""
    groups = _characters(tokenizer, ids)
    if language not in _NO_SPACES:
        groups = _by_spaces(groups)
    groups = _with_punctuation(groups)
    begins = [times[first] for _, first, _ in groups]
    made = []
    for (text, first, behind), (start, stop) in zip(groups, pairwise([*begins, end])):
        made.append(Word(start, max(start, stop), text, tuple(ids[first:behind])))
    return made


_Group = tuple[str, int, int]  # a text, its first token, and the one behind its last


def _characters(tokenizer: Tokenizer, ids: Sequence[int]) -> list[_Group]:
    """Tokens that make whole characters together."""
    made, first, raw = list[_Group](), 0, b""
    for k, token in enumerate(ids):
        raw += tokenizer.token_bytes(token)
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            if k + 1 < len(ids):
                continue
            text = raw.decode("utf-8", "replace")
        made.append((text, first, k + 1))
        first, raw = k + 1, b""
    return made


def _by_spaces(groups: Sequence[_Group]) -> list[_Group]:
    made = list[_Group]()
    for text, first, behind in groups:
        if made and not text.startswith(" ") and not set(text.strip()) <= _ALONE:
            before, begin, _ = made[-1]
            made[-1] = before + text, begin, behind
        else:
            made.append((text, first, behind))
    return made


def _with_punctuation(groups: Sequence[_Group]) -> list[_Group]:
    made = list[_Group]()
    for text, first, behind in reversed(groups):
        if made and text.startswith(" ") and text.strip() and text.strip() in _BEFORE:
            after, _, end = made[-1]
            made[-1] = text + after, first, end
        else:
            made.append((text, first, behind))
    made.reverse()
    joined = list[_Group]()
    for text, first, behind in made:
        if joined and text and text in _BEHIND and not joined[-1][0].endswith(" "):
            before, begin, _ = joined[-1]
            joined[-1] = before + text, begin, behind
        else:
            joined.append((text, first, behind))
    return joined
