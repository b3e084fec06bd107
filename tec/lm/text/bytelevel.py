"""Pairs of bytes ("gpt2" in GGUF files), pairs of characters ("gemma4"), unigrams ("t5") and word pieces ("bert"), by the package `tokenizers`."""

from __future__ import annotations

from functools import cache, cached_property, lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from ...errors import ImportModelError, MissingPackageError, install
from .splitting import Rule, rule
from .texts import are_distinct, bytes_of, ids_of
from .vocabulary import BYTE, Vocabulary

SPACE = "\u2581"
# Characters of a text that is joined here: some 8 ms, a fifteenth of what the package takes to make its model.
SHORT = 4096
WORDS_KEPT = 1 << 14  # words whose tokens are remembered


def package() -> Any:
    """`tokenizers`. Raises MissingPackageError."""
    try:
        import tokenizers
    except ImportError:
        raise MissingPackageError("this model's tokenizer", "tokenizers", install("lm")) from None
    return tokenizers


@cache
def alphabet() -> dict[str, int]:
    """GPT-2's characters for bytes: those that can be seen stand for themselves, the others for 256, 257, ..."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in seen]
    return {**{chr(b): b for b in seen}, **{chr(256 + k): b for k, b in enumerate(hidden)}}


class Library:
    """Ordinary text to tokens by a `tokenizers.Tokenizer` without special tokens."""

    def __init__(self, vocabulary: Vocabulary, made: Any, raw: bool, prefix: bool = False):
        self.vocabulary, self.made, self.raw, self.add_space = vocabulary, made, raw, prefix

    def encode(self, text: str, begins: bool) -> list[int]:
        """See `Pieces.encode`."""
        if begins and self.add_space and self.raw:
            text = " " + text
        found: list[int] = self.made.encode(text, add_special_tokens=False).ids
        return found

    def bytes_of(self, id: int) -> bytes:
        """What a token that is no special one adds to a text."""
        token = self.vocabulary.tokens[id]
        if self.raw:
            if self.vocabulary.kinds[id] == BYTE and len(token) == 6:
                return bytes([int(token[3:5], 16)])
            return token.replace(SPACE, " ").encode("utf-8", "surrogatepass")
        return _bytes_of(token)


def _bytes_of(token: str) -> bytes:
    """The bytes that the characters of a token of bytes stand for; of another its text."""
    letters = alphabet()
    if all(c in letters for c in token):
        return bytes(letters[c] for c in token)
    return token.encode("utf-8", "surrogatepass")


class Pairs:
    """Ordinary text to tokens by pairs of bytes. Making the package's model takes a tenth of a second for 49,152 tokens, a prompt of a hundred words some
    milliseconds without it: short texts are joined here, word by word, and the model is made for the first long one."""

    add_space = False

    def __init__(self, vocabulary: Vocabulary, found: Rule):
        self.vocabulary, self._rule = vocabulary, found
        self._splitter = _splitter(package(), found)
        if np.count_nonzero(bytes_of(vocabulary.merges) == ord(" ")) != len(vocabulary.merges):
            _check_merges(vocabulary)
        self._ranks, self._last = ids_of(vocabulary.merges), len(vocabulary.merges)
        self._tokens_of = lru_cache(WORDS_KEPT)(self._join)

    @cached_property
    def library(self) -> Library:
        """The same by the package `tokenizers`."""
        return _library(self.vocabulary, self._rule)

    def encode(self, text: str, begins: bool) -> list[int]:
        """See `Pieces.encode`."""
        if len(text) > SHORT or "library" in self.__dict__:
            return self.library.encode(text, begins)
        found: list[int] = []
        for word, _ in self._splitter.pre_tokenize_str(text):
            tokens = self._tokens_of(word)
            if tokens is None:  # a byte without a token: the package has rules for that
                return self.library.encode(text, begins)
            found += tokens
        return found

    def _join(self, word: str) -> tuple[int, ...] | None:
        """The tokens of a word: of its neighbours those whose merge stands first are joined, the left ones first, until none is left."""
        ids, rank_of = self.vocabulary.ids, self._ranks.get
        if self._rule.whole_words and (whole := ids.get(word)) is not None:
            return (whole,)
        parts = list(word)
        if not all(c in ids for c in parts):
            return None
        last = self._last
        while len(parts) > 1:
            ranks = [rank_of(f"{x} {y}", last) for x, y in pairwise(parts)]
            least = min(ranks)
            if least == last:
                break
            at = ranks.index(least)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        if not all(p in ids for p in parts):
            _check_merges(self.vocabulary)  # which takes as long as all else here: only where one is met
        return tuple(ids[p] for p in parts)

    def bytes_of(self, id: int) -> bytes:
        """What a token that is no special one adds to a text."""
        return _bytes_of(self.vocabulary.tokens[id])


def pairs(vocabulary: Vocabulary) -> Library | Pairs:
    """ "gpt2" and "gemma4"."""
    found = rule(vocabulary.pre if vocabulary.model == "gpt2" else vocabulary.model)
    plain = not found.raw and vocabulary.add_space is not True
    return Pairs(vocabulary, found) if plain and are_distinct(vocabulary.merges) else _library(vocabulary, found)


def _check_merges(vocabulary: Vocabulary) -> None:
    """ImportModelError for a merge of what are no tokens."""
    ids = vocabulary.ids
    for m in vocabulary.merges:
        a, space, b = m.partition(" ")
        if not space or a not in ids or b not in ids or a + b not in ids:
            raise ImportModelError(
                f"the file's tokenizer has a merge {m!r} of what are no tokens", hint="the file is damaged"
            )


def _library(vocabulary: Vocabulary, found: Rule) -> Library:
    tk = package()
    _check_merges(vocabulary)
    model = tk.models.BPE(
        vocab=dict(vocabulary.ids), merges=[tuple(m.split(" ", 1)) for m in vocabulary.merges], ignore_merges=found.whole_words, byte_fallback=found.raw,
        unk_token=None if vocabulary.unknown is None or not found.raw else vocabulary.tokens[vocabulary.unknown],
    )  # fmt: skip
    made = tk.Tokenizer(model)
    made.pre_tokenizer = _splitter(tk, found)
    if found.raw:
        made.normalizer = tk.normalizers.Replace(" ", SPACE)
    return Library(vocabulary, made, found.raw, vocabulary.add_space is True)


def _splitter(tk: Any, found: Rule) -> Any:
    steps = [tk.pre_tokenizers.Split(tk.Regex(p), "isolated") for p in found.patterns]
    if not found.raw:
        steps.append(tk.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    return tk.pre_tokenizers.Sequence(steps)


def unigrams(vocabulary: Vocabulary) -> Library:
    """ "t5": the cut with the highest sum of scores."""
    if vocabulary.scores is None:
        raise ImportModelError(
            "the file's tokenizer is SentencePiece's, and has no scores", hint="tokenizer.ggml.scores"
        )
    tk = package()
    listed = list(zip(vocabulary.tokens, vocabulary.scores.tolist()))
    made = tk.Tokenizer(
        tk.models.Unigram(listed, unk_id=vocabulary.unknown, byte_fallback=vocabulary.byte_ids[0] is not None)
    )
    steps = [tk.normalizers.Precompiled(vocabulary.charsmap)] if vocabulary.charsmap else []
    made.normalizer = tk.normalizers.Sequence([*steps, tk.normalizers.Replace(tk.Regex(" {2,}"), " ")])
    scheme = "always" if vocabulary.add_space is not False else "never"
    made.pre_tokenizer = tk.pre_tokenizers.Metaspace(prepend_scheme=scheme)
    return Library(vocabulary, made, True)


def word_pieces(vocabulary: Vocabulary) -> Library:
    """ "bert": the longest tokens from the left of each word. Files write tokens that begin a word with U+2581, and the others without "##"."""
    tk = package()
    unknown = vocabulary.tokens[vocabulary.unknown] if vocabulary.unknown is not None else "[UNK]"
    ids = {}
    for token, k in vocabulary.ids.items():
        begins = token.startswith(SPACE)
        ids[token[1:] if begins else token if vocabulary.kinds[k] != 1 else "##" + token] = k
    if unknown not in ids:
        raise ImportModelError(
            "the file's tokenizer has no token for unknown words", hint="tokenizer.ggml.unknown_token_id"
        )
    made = tk.Tokenizer(tk.models.WordPiece(ids, unk_token=unknown, max_input_chars_per_word=100))
    # Files do not say whether letters are made small: a vocabulary with large ones keeps them.
    small = not any(t != t.lower() for t in ids if t.isascii() and not t.startswith("["))
    made.normalizer = tk.normalizers.BertNormalizer(lowercase=small)
    made.pre_tokenizer = tk.pre_tokenizers.BertPreTokenizer()
    return Library(vocabulary, made, True)
