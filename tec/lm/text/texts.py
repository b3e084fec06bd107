"""Many texts in mapped arrays, found by a table of hashes: a vocabulary of 262,144 tokens of which a start needs twenty.

    blob    uint8, all texts in UTF-8, one behind the other with a 0 behind each
    ends    int64 [n], the place of each 0
    order   int32 [n], the texts' numbers by buckets of hashes
    starts  int32 [buckets + 1], where each bucket begins in `order`
    twice   uint8 [1], whether a text stands twice

`table_of(texts)` makes the arrays; `Texts(arrays)` is the list, and `Texts.ids` the numbers by text as a dictionary of them would have them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, overload

import numpy as np

PARTS = ("blob", "ends", "order", "starts", "twice")
_FIRST, _LAST, _LENGTH = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9  # odd numbers whose bits look drawn
_WORD = (1 << 64) - 1


def table_of(texts: Sequence[str]) -> dict[str, Any]:
    """The arrays of texts, none of which holds a 0."""
    blob = np.frombuffer(("\0".join(texts) + "\0" * bool(texts)).encode("utf-8", "surrogatepass"), np.uint8)
    ends = np.flatnonzero(blob == 0)
    begins = np.concatenate([[0], ends + 1])[: len(ends)]
    lengths = ends - begins
    head = _words(blob, begins, lengths)
    tail = _words(blob, np.maximum(ends - 8, begins), lengths)
    with np.errstate(over="ignore"):
        hashes = head * np.uint64(_FIRST) + tail * np.uint64(_LAST) + lengths.astype(np.uint64) * np.uint64(_LENGTH)
    bits = max(1, len(texts).bit_length())
    buckets = (hashes >> np.uint64(64 - bits)).astype(np.int64)
    order = np.argsort(buckets, kind="stable")
    starts = np.searchsorted(buckets[order], np.arange((1 << bits) + 1))
    made = {"blob": blob, "ends": ends, "order": order.astype(np.int32), "starts": starts.astype(np.int32)}
    return {**made, "twice": np.array([_stands_twice(texts, hashes)], np.uint8)}


def _stands_twice(texts: Sequence[str], hashes: Any) -> bool:
    order = np.argsort(hashes)
    same = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
    alike = [texts[k] for k in {*order[same].tolist(), *order[same + 1].tolist()}]
    return len(set(alike)) < len(alike)


def _words(blob: Any, at: Any, lengths: Any) -> Any:
    """The eight bytes from each place on as numbers, fewer of shorter texts."""
    padded = np.concatenate([blob, np.zeros(8, np.uint8)])
    steps = np.arange(8)
    found = np.where(steps < lengths[:, None], padded[at[:, None] + steps], 0).astype(np.uint8)
    return np.ascontiguousarray(found).view("<u8").reshape(-1)


class Texts(Sequence[str]):
    """See the module. arrays: by their names (`PARTS`)."""

    def __init__(self, arrays: Mapping[str, Any]):
        self.blob, ends, order, starts, twice = (arrays[n] for n in PARTS)
        self.ends, self.is_distinct = ends, not twice[0]
        self._blob = memoryview(self.blob)
        self._ends, self._order, self._starts = memoryview(ends), memoryview(order), memoryview(starts)
        self._shift = 64 - (len(starts) - 1).bit_length() + 1

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, k: int) -> str: ...
    @overload
    def __getitem__(self, k: slice) -> list[str]: ...
    def __getitem__(self, k: int | slice) -> str | list[str]:
        if isinstance(k, slice):
            return self.all[k]
        k = k + len(self) if k < 0 else k
        if not 0 <= k < len(self):
            raise IndexError(k)
        return bytes(self._blob[self._begin(k) : self._ends[k]]).decode("utf-8", "surrogatepass")

    def _begin(self, k: int) -> int:
        return self._ends[k - 1] + 1 if k else 0

    def __iter__(self) -> Iterator[str]:
        return iter(self.all)

    def __contains__(self, text: object) -> bool:
        return isinstance(text, str) and self.last(text) is not None

    def index(self, text: str, start: int = 0, stop: int | None = None) -> int:
        """The first text that is this one. Raises ValueError."""
        found = [k for k in self._alike(text) if start <= k and (stop is None or k < stop)]
        if not found:
            raise ValueError(f"{text!r} is not in the list")
        return min(found)

    def last(self, text: str) -> int | None:
        """The last text that is this one, None where none is."""
        return max(self._alike(text), default=None)

    def _alike(self, text: str) -> list[int]:
        raw = text.encode("utf-8", "surrogatepass")
        head, tail = int.from_bytes(raw[:8], "little"), int.from_bytes(raw[-8:], "little")
        bucket = (head * _FIRST + tail * _LAST + len(raw) * _LENGTH & _WORD) >> self._shift
        numbers = self._order[self._starts[bucket] : self._starts[bucket + 1]]
        return [k for k in numbers if self._blob[self._begin(k) : self._ends[k]] == raw]

    @cached_property
    def all(self) -> list[str]:
        """All texts, made at the first use."""
        text = self.blob.tobytes().decode("utf-8", "surrogatepass")
        return text[:-1].split("\0") if text else []

    @cached_property
    def ids(self) -> TextIds:
        """The numbers by text; of equal ones the last."""
        return TextIds(self)


class TextIds(Mapping[str, int]):
    """See `Texts.ids`."""

    def __init__(self, texts: Texts):
        self._texts = texts

    @cached_property
    def whole(self) -> dict[str, int]:
        """The same as a dictionary."""
        return {t: k for k, t in enumerate(self._texts)}

    def __getitem__(self, text: str) -> int:
        found = self._texts.last(text)
        if found is None:
            raise KeyError(text)
        return found

    def get(self, text: str, default: Any = None) -> Any:
        found = self._texts.last(text)
        return default if found is None else found

    def __contains__(self, text: object) -> bool:
        return text in self._texts

    def __iter__(self) -> Iterator[str]:
        return iter(self.whole)

    def __len__(self) -> int:
        return len(self.whole)


def ids_of(texts: Sequence[str]) -> Mapping[str, int]:
    """Numbers by text; of equal ones the last."""
    return texts.ids if isinstance(texts, Texts) else dict(zip(texts, range(len(texts))))


def bytes_of(texts: Sequence[str]) -> Any:
    """All texts' bytes, uint8, with a 0 behind or between them."""
    if isinstance(texts, Texts):
        return texts.blob
    return np.frombuffer("\0".join(texts).encode("utf-8", "surrogatepass"), np.uint8)


def are_distinct(texts: Sequence[str]) -> bool:
    """Whether no text stands twice."""
    if not isinstance(texts, Texts):
        return len(set(texts)) == len(texts)
    return texts.is_distinct
