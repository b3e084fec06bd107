"""The vocabulary of a model as its file has it: tokens with their kinds and scores, merges, and which tokens begin and end a text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ...errors import ImportModelError, one_line
from ...records import dataclass
from ..remedies import CONVERT_AGAIN
from .texts import Texts, ids_of

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)  # kinds of tokens: `tokenizer.ggml.token_type`


@dataclass
class Vocabulary:
    """model: how texts become tokens: "gpt2" (pairs of bytes), "llama" (SentencePiece, pairs by score), "gemma4" (pairs of characters), "t5" (SentencePiece,
    unigram), "bert" (word pieces). kinds: a number a token. begin, end, ...: ids, None where there is none."""

    model: str
    tokens: Sequence[str]
    kinds: Any
    scores: Any = None
    merges: Sequence[str] = ()
    pre: str = "default"
    begin: int | None = None
    end: int | None = None
    unknown: int | None = None
    separator: int | None = None
    classifier: int | None = None
    add_begin: bool | None = None
    add_end: bool | None = None
    add_space: bool | None = None
    charsmap: bytes = b""

    @cached_property
    def ids(self) -> Mapping[str, int]:
        """Tokens by their texts."""
        return ids_of(self.tokens)

    @cached_property
    def special(self) -> dict[str, int]:
        """Tokens that are never a part of ordinary text ("<|im_end|>"), by their texts."""
        return self._of(CONTROL, UNKNOWN)

    @cached_property
    def added(self) -> dict[str, int]:
        """Tokens that are found in a text before it is cut, and are text themselves ("<h1>")."""
        return self._of(USER)

    @cached_property
    def byte_ids(self) -> list[int | None]:
        """The tokens of single bytes, `<0x00>` to `<0xFF>`."""
        return [self.ids.get(f"<0x{b:02X}>") for b in range(256)]

    def _of(self, *kinds: int) -> dict[str, int]:
        found = np.flatnonzero(np.isin(self.kinds, kinds)).tolist()
        return {t: k for k in found if (t := self.tokens[k])}


def vocabulary_of(metadata: Mapping[str, Any]) -> Vocabulary | None:
    """The vocabulary in a GGUF file's metadata; None where it has none. Raises ImportModelError where its parts do not fit each other."""
    tokens, model = metadata.get("tokenizer.ggml.tokens"), metadata.get("tokenizer.ggml.model")
    if tokens is None and model in (None, "none", "no_vocab"):
        return None
    if (
        not isinstance(tokens, (list, Texts))
        or not tokens
        or not isinstance(tokens[0], str)
        or not isinstance(model, str)
    ):
        raise ImportModelError(
            "the file's tokenizer has no list of tokens", hint="tokenizer.ggml.tokens and tokenizer.ggml.model"
        )
    kinds = _numbers(metadata, "token_type", len(tokens))
    scores = _numbers(metadata, "scores", len(tokens))
    if scores is not None and not np.isfinite(scores.astype(np.float32)).all():
        raise ImportModelError("the file's tokenizer has scores that are no numbers", hint=CONVERT_AGAIN)
    merges = metadata.get("tokenizer.ggml.merges", [])
    if not isinstance(merges, (list, Texts)):
        raise ImportModelError("the file's tokenizer has merges that are no texts", hint=CONVERT_AGAIN)
    charsmap = metadata.get("tokenizer.ggml.precompiled_charsmap")
    return Vocabulary(
        model=model, tokens=tokens, kinds=np.ones(len(tokens), np.int32) if kinds is None else kinds, scores=scores, merges=merges,
        pre=str(metadata.get("tokenizer.ggml.pre", "default")), begin=_id(metadata, "bos", len(tokens)), end=_id(metadata, "eos", len(tokens)),
        unknown=_id(metadata, "unknown", len(tokens)), separator=_id(metadata, "seperator", len(tokens)), classifier=_id(metadata, "cls", len(tokens)),
        add_begin=_flag(metadata, "add_bos_token"), add_end=_flag(metadata, "add_eos_token"), add_space=_flag(metadata, "add_space_prefix"),
        charsmap=bytes(np.asarray(charsmap).astype(np.uint8)) if charsmap is not None else b"",
    )  # fmt: skip


def _numbers(metadata: Mapping[str, Any], name: str, count: int) -> Any:
    values = metadata.get(f"tokenizer.ggml.{name}")
    if values is None:
        return None
    if not isinstance(values, np.ndarray) or len(values) != count:
        held = len(values) if hasattr(values, "__len__") else "no"
        raise ImportModelError(
            f"the file's tokenizer has {count} tokens and {held} values of {name}", hint="the file is damaged"
        )
    return values


def _id(metadata: Mapping[str, Any], name: str, count: int) -> int | None:
    value = metadata.get(f"tokenizer.ggml.{name}_token_id")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < count:
        if value in (-1, 0xFFFFFFFF):  # what writers put where there is none
            return None
        raise ImportModelError(
            f"the file's tokenizer has {one_line(repr(value))} as {name}_token_id, and {count} tokens",
            hint=CONVERT_AGAIN,
        )
    return value


def _flag(metadata: Mapping[str, Any], name: str) -> bool | None:
    value = metadata.get(f"tokenizer.ggml.{name}")
    return value if isinstance(value, bool) else None


# Texts of tokens that end an answer, whatever a file's own settings say: files often name the end of a document alone, and forget the end of a turn.
ENDS = (
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>",
    "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>", "<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~[",
)  # fmt: skip


def end_ids(id_of: Callable[[str], int | None]) -> list[int]:
    """The tokens that end an answer by their names. Where "<|return|>" and "<|call|>" are (gpt-oss), "<|end|>" only ends a message."""
    found = {t: k for t in ENDS if (k := id_of(t)) is not None}
    if {"<|return|>", "<|call|>"} <= found.keys():
        found.pop("<|end|>", None)
    return list(found.values())
