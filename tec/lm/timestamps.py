"""Times between the texts of Whisper: tokens behind all others, one for each 0.02 s of what is heard at once.

Sources: OpenAI's Whisper (arXiv 2212.04356); transformers' WhisperTimeStampLogitsProcessor and `_retrieve_segment`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

STEP = 0.02  # seconds between two tokens: two frames, which are one place of the encoder


@dataclass(frozen=True)
class Segment:
    """A part of what was heard: `text`, and when it begins and ends, in seconds. ids: its tokens, those of times among them."""

    start: float
    end: float
    text: str
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Times:
    """Which tokens are times, and which may come next. begin: the token of 0 s. ends: tokens that end a text. most_first: the latest time that a text may begin at, in tokens;
    None for any."""

    begin: int
    ends: Collection[int]
    most_first: int | None = None

    def rule(self, logits: Any, ids: Sequence[int]) -> None:
        """Make those tokens impossible that may not stand behind `ids` of one text: times come in pairs, one ends a segment and one begins the next, and never fall."""
        begin = self.begin
        logits[begin - 1] = -np.inf  # "no times"
        is_time = [t >= begin for t in ids[-2:]]
        if not ids:
            logits[:begin] = -np.inf
            if self.most_first is not None:
                logits[begin + self.most_first + 1 :] = -np.inf
        elif is_time[-1]:
            if all(is_time):  # a pair, or the first
                logits[begin:] = -np.inf
            else:
                logits[: min(self.ends, default=begin)] = -np.inf
        last = max((t for t in ids if t >= begin), default=None)
        if last is not None:
            ends_one = is_time[-1] and not all(is_time)
            logits[begin : last + (not ends_one)] = -np.inf
        self._or_all(logits)

    def _or_all(self, logits: Any) -> None:
        """A time comes if all times together are likelier than any other token."""
        x = logits.astype(np.float64)
        top = x.max()
        if np.isfinite(top):
            times = np.exp(x[self.begin :] - top).sum()
            if times > 0 and np.log(times) > x[: self.begin].max() - top:
                logits[: self.begin] = -np.inf

    def segments(
        self, ids: Sequence[int], start: float, length: float
    ) -> tuple[list[tuple[float, float, list[int]]], float]:
        """The parts of a text that begins at `start` of the sound, of which `length` seconds were heard: when each begins and ends, and its tokens. And how far it was
        understood: what comes behind a text that was cut off is heard again."""
        is_time = [t >= self.begin for t in ids]
        cuts = [k for k in range(1, len(ids)) if is_time[k - 1] and is_time[k]]
        whole = is_time[-2:] == [False, True]  # ends with a time, behind which nothing was heard
        if not cuts:
            last = next((t for t in reversed(ids) if t > self.begin), None)
            end = length if last is None else (last - self.begin) * STEP
            return [(start, start + end, list(ids))], length
        bounds = [0, *cuts, *([len(ids)] if whole else [])]
        made = []
        for low, high in pairwise(bounds):
            part = list(ids[low:high])
            made.append((start + self._seconds(part[0]), start + self._seconds(part[-1]), part))
        return made, length if whole else self._seconds(ids[bounds[-1] - 1])

    def _seconds(self, token: int) -> float:
        return (token - self.begin) * STEP
