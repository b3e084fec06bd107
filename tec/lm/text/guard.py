"""What people write in a conversation is text: "<|im_end|>" in a message must not end the message.

A chat template joins its own special tokens and the messages' texts to one text, in which nobody can tell them apart. So a mark goes into the texts of special
tokens that stand in messages, before the template is rendered, and tokenizers drop it after they have cut special tokens out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

MARK = "\U0010ffff"  # no character: Unicode keeps it for programs' own use, and texts that are exchanged do not have it


class Guard:
    """special: the texts of a tokenizer's special tokens."""

    def __init__(self, special: Iterable[str]):
        listed = sorted({t for t in special if t}, key=len, reverse=True)
        self._finder = re.compile("|".join(map(re.escape, listed))) if listed else None

    def text(self, text: str) -> str:
        """A text without meaning for the tokenizer: a mark stands behind the first character of each special token's text, and others' marks are gone."""
        plain = text.replace(MARK, "") if MARK in text else text
        if self._finder is None:
            return plain
        return self._finder.sub(lambda m: m[0][0] + MARK + m[0][1:], plain)

    def all(self, value: Any) -> Any:
        """A value of JSON (messages, tools) with all its texts guarded; roles too, since they come from the same hand."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.all(k): self.all(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.all(v) for v in value]
        return value


def unmarked(text: str) -> str:
    """A text without marks."""
    return text.replace(MARK, "") if MARK in text else text
