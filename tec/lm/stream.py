"""Text in pieces as tokens come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

_HALF = "\N{REPLACEMENT CHARACTER}"


class Decodes(Protocol):
    """What makes text of tokens."""

    def decode(self, ids: Sequence[int]) -> str: ...


class Stream:
    """The text that each token adds: what may still change with the next token (a part of a character) is held back. Only the tokens since the last whole
    word are decoded again, so that a long text costs no more a token than a short one."""

    def __init__(self, tokenizer: Decodes):
        self.tokenizer = tokenizer
        self.ids: list[int] = []
        self._begin = self._shown = 0  # tokens before `_begin` are done; text of those before `_shown` was given

    def add(self, token: int) -> str:
        """The text that a token adds."""
        self.ids.append(token)
        return self._more(final=False)

    def rest(self) -> str:
        """What was held back."""
        return self._more(final=True)

    def _more(self, final: bool) -> str:
        before = self.tokenizer.decode(self.ids[self._begin : self._shown])
        after = self.tokenizer.decode(self.ids[self._begin :])
        if len(after) <= len(before) or (after.endswith(_HALF) and not final):
            return ""
        self._begin, self._shown = self._shown, len(self.ids)
        return after[len(before) :]


class Stops:
    """Cuts a text before the first of some texts: what may be the beginning of one is held back."""

    def __init__(self, stops: Sequence[str]):
        self.stops = [s for s in stops if s]
        self.text = ""
        self.stopped = False
        self._given = 0

    def add(self, piece: str, final: bool = False) -> str:
        """What of the text may be shown now."""
        if self.stopped:
            return ""
        self.text += piece
        ends = [k for s in self.stops if (k := self.text.find(s, max(0, self._given - len(s)))) >= 0]
        end = len(self.text)
        if ends:
            self.text, self.stopped = self.text[: min(ends)], True
            end = len(self.text)
        elif not final:
            end -= max(
                (k for s in self.stops for k in range(min(len(s) - 1, end), 0, -1) if self.text.endswith(s[:k])),
                default=0,
            )
        end = max(end, self._given)
        shown, self._given = self.text[self._given : end], end
        return shown
