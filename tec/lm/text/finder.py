"""Finds tokens' texts in a text: at one place the longest. Made in a millisecond for Gemma's 6,242 added tokens, where one regular expression of all of them
takes half a second."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping


class Finder:
    """ids: tokens by their texts, none of them empty."""

    def __init__(self, ids: Mapping[str, int]):
        self._ids = ids
        lengths: dict[str, set[int]] = {}
        for text in ids:
            lengths.setdefault(text[0], set()).add(len(text))
        self._lengths = {c: sorted(found, reverse=True) for c, found in lengths.items()}
        self._begins = re.compile(f"[{''.join(map(re.escape, lengths))}]") if lengths else None

    def cut(self, text: str) -> Iterator[tuple[str, int | None]]:
        """The pieces of a text in order: a token's text and its id, and what lies between them and None."""
        done, at = 0, self._next(text, 0)
        while at >= 0:
            end = self._end(text, at)
            if end:
                if at > done:
                    yield text[done:at], None
                yield text[at:end], self._ids[text[at:end]]
                done = end
            at = self._next(text, end or at + 1)
        if done < len(text):
            yield text[done:], None

    def _next(self, text: str, at: int) -> int:
        found = self._begins.search(text, at) if self._begins is not None else None
        return -1 if found is None else found.start()

    def _end(self, text: str, at: int) -> int:
        """Where the longest token that begins here ends; 0 where none does."""
        for n in self._lengths[text[at]]:
            if text[at : at + n] in self._ids and at + n <= len(text):
                return at + n
        return 0
