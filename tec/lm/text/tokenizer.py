"""Tokenizers of language models: special tokens are cut out of a text first, and what lies between becomes tokens by the vocabulary's own method.

tokenizer = tokenizer_of(vocabulary)
tokenizer.encode("<|im_start|>user\nHi")                     # special tokens are tokens
tokenizer.encode(what_a_stranger_wrote, special=False)       # ... and here they are only text
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from typing import Protocol

from ...errors import ArgumentError, ImportModelError, one_line
from . import bytelevel
from .finder import Finder
from .guard import unmarked
from .pieces import Pieces
from .splitting import RULES
from .vocabulary import CONTROL, UNKNOWN, UNUSED, Vocabulary

_METHODS: dict[str, Callable[[Vocabulary], Method]] = {}


class Method(Protocol):
    """Ordinary text to tokens, and what one token is."""

    add_space: bool

    def encode(self, text: str, begins: bool) -> list[int]: ...

    def bytes_of(self, id: int) -> bytes: ...


class VocabularyTokenizer:
    """A tokenizer made of a vocabulary (`tec.lm.checkpoint.Tokenizer`). Not changed by its use, so threads may share it."""

    def __init__(self, vocabulary: Vocabulary):
        method = _METHODS.get(vocabulary.model)
        if method is None:
            known = ", ".join(sorted(_METHODS))
            raise ImportModelError(
                f"a tokenizer of the kind {one_line(vocabulary.model)!r}, which is unknown", hint=f"known: {known}"
            )
        self.vocabulary = vocabulary
        self._method = method(vocabulary)
        self._all = {**vocabulary.added, **vocabulary.special}
        self._trusted, self._plain = Finder(self._all), Finder(vocabulary.added)
        begin, end = vocabulary.begin, vocabulary.end
        if vocabulary.model == "bert":
            begin, end = vocabulary.classifier if begin is None else begin, vocabulary.separator if end is None else end
        self._head = [begin] if begin is not None and _or(vocabulary.add_begin, _begins(vocabulary)) else []
        self._tail = [end] if end is not None and _or(vocabulary.add_end, vocabulary.model in ("t5", "bert")) else []

    def encode(self, text: str, *, special: bool = True, add_special: bool = True) -> list[int]:
        """See `tec.lm.checkpoint.Tokenizer`."""
        found = list(self._head) if add_special else []
        text, begins = _whole(text), True
        for part, token in (self._trusted if special else self._plain).cut(text):
            if token is not None:
                found.append(token)
            else:
                found += self._method.encode(unmarked(part), begins)
            begins = token is not None
        return found + self._tail if add_special else found

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        """See `tec.lm.checkpoint.Tokenizer`. The space that `encode` puts before a text is taken away again."""
        parts = []
        for k in ids:
            self._check(k)
            hidden = self.vocabulary.kinds[k] in (CONTROL, UNKNOWN, UNUSED)
            parts.append(
                self.vocabulary.tokens[k].encode("utf-8", "surrogatepass")
                if hidden and special
                else self.token_bytes(k)
            )
        text = b"".join(parts).decode("utf-8", "replace")
        starts = next((k for k in ids if k not in self._head), None)
        drops = (
            self._method.add_space and starts is not None and self.vocabulary.kinds[starts] not in (CONTROL, UNKNOWN)
        )
        return text[1:] if drops and text.startswith(" ") else text

    def token_bytes(self, id: int) -> bytes:
        """See `tec.lm.checkpoint.Tokenizer`."""
        self._check(id)
        if self.vocabulary.kinds[id] in (CONTROL, UNKNOWN, UNUSED):
            return b""
        return self._method.bytes_of(id)

    def id_of(self, token: str) -> int | None:
        """See `tec.lm.checkpoint.Tokenizer`."""
        return self.vocabulary.ids.get(token)

    @property
    def size(self) -> int:
        """Tokens in the vocabulary."""
        return len(self.vocabulary.tokens)

    @property
    def special_texts(self) -> list[str]:
        """The texts of special tokens."""
        return list(self.vocabulary.special)

    def _check(self, id: int) -> None:
        if not 0 <= id < len(self.vocabulary.tokens):
            raise ArgumentError(
                f"the token {id} of a vocabulary of {len(self.vocabulary.tokens)}",
                hint=f"tokens from 0 to {len(self.vocabulary.tokens) - 1}",
            )


def tokenizer_of(vocabulary: Vocabulary) -> VocabularyTokenizer:
    """A vocabulary's tokenizer. Raises ImportModelError for kinds and rules that are not known, or parts that do not fit."""
    return VocabularyTokenizer(vocabulary)


class Stream:
    """A text as its tokens come: `add` gives what a token makes certain, so that characters of several tokens come whole."""

    def __init__(self, token_bytes: Callable[[int], bytes]):
        self._bytes_of = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, id: int) -> str:
        """The text that is certain with this token."""
        return self._decoder.decode(self._bytes_of(id))

    def rest(self) -> str:
        """What was held back, where a text ends within a character: U+FFFD."""
        return self._decoder.decode(b"", True)


def _whole(text: str) -> str:
    """A text without halves of surrogate pairs, which no UTF-8 has: they become U+FFFD."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _or(said: bool | None, default: bool) -> bool:
    return default if said is None else said


def _begins(vocabulary: Vocabulary) -> bool:
    if vocabulary.model == "gpt2":
        return vocabulary.pre in RULES and RULES[vocabulary.pre].begins
    return vocabulary.model in ("llama", "gemma4", "bert")


_METHODS |= {
    "llama": Pieces,
    "gpt2": bytelevel.pairs,
    "gemma4": bytelevel.pairs,
    "t5": bytelevel.unigrams,
    "bert": bytelevel.word_pieces,
}
