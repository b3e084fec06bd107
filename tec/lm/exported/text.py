"""Text to tokens and back: `tokenizer.json` files by the package `tokenizers`, or bytes as they are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from ...errors import ArgumentError, install

# How vocabularies write the end of a text.
ENDS = ("</s>", "<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|end|>", "<eos>", "<end_of_turn>", "[SEP]")
PADS = ("<pad>", "[PAD]", "<|pad|>")


class Tokenizer(Protocol):
    """What a model's text is made of."""

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def id_of(self, names: Sequence[str]) -> int | None:
        """The token that has one of these names."""


class Bytes:
    """Tokens are bytes of UTF-8."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(k for k in ids if 0 <= k < 256).decode(errors="replace")

    def id_of(self, names: Sequence[str]) -> int | None:
        return None


class Pieces:
    """A tokenizer of Hugging Face's file format."""

    def __init__(self, path: Path):
        try:
            from tokenizers import Tokenizer as Reader
        except ImportError:
            raise ArgumentError(f"{path} needs the package tokenizers", hint=install("generate")) from None
        try:
            self._own: Any = Reader.from_file(str(path))
        except Exception as error:  # the package raises plain Exceptions
            raise ArgumentError(
                f"{path} is no tokenizer.json: {error}",
                hint='the tokenizer.json that comes with the model, or the name "bytes"',
            ) from None

    def encode(self, text: str) -> list[int]:
        return list(self._own.encode(text).ids)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._own.decode(list(ids), skip_special_tokens=True))

    def id_of(self, names: Sequence[str]) -> int | None:
        return next((k for n in names if (k := self._own.token_to_id(n)) is not None), None)


def tokenizer_of(given: str | Path | None, folders: Sequence[Path]) -> Tokenizer:
    """`given`: a tokenizer.json, or a folder with one, or "bytes"; without it the one that lies beside the model. Raises ArgumentError."""
    if given == "bytes":
        return Bytes()
    places = [Path(given)] if given is not None else list(folders)
    for place in places:
        file = place / "tokenizer.json" if place.is_dir() else place
        if file.is_file():
            return Pieces(file)
    where = ", ".join(map(str, places))
    raise ArgumentError(
        f"no tokenizer.json in {where}", hint='tokenizer=: such a file, or "bytes" for a model of bytes'
    )
