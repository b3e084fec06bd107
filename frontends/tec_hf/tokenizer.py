"""Tokenizers of Hugging Face folders: tokenizer.json by the package `tokenizers`, or the files that stand for one (`plain_files`), or SentencePiece's tokenizer.model."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tec.errors import ArgumentError, ImportModelError, one_line
from tec.lm.text.bytelevel import alphabet, package
from tec.lm.text.guard import MARK
from tec.lm.text.tokenizer import VocabularyTokenizer, tokenizer_of
from tec.lm.text.vocabulary import end_ids

from .pieces import vocabulary_of
from .plain_files import described

SPACE = "\u2581"


class JsonTokenizer:
    """A tokenizer.json (`tec.lm.checkpoint.Tokenizer`). Raises ImportModelError for what is none."""

    def __init__(self, text: str, path: Path):
        tk = package()
        try:
            self._trusted, self._plain = tk.Tokenizer.from_str(text), tk.Tokenizer.from_str(text)
            described = json.loads(text)
        except Exception as error:  # the package raises Exception itself
            raise ImportModelError(
                f"{path} is no tokenizer: {one_line(str(error))[:200]}",
                hint="the tokenizer.json that comes with the model, and a package tokenizers that is new enough for it",
            ) from None
        for made in (self._trusted, self._plain):
            made.no_truncation()
            made.no_padding()
            drop = tk.normalizers.Replace(MARK, "")
            made.normalizer = drop if made.normalizer is None else tk.normalizers.Sequence([drop, made.normalizer])
        self._plain.encode_special_tokens = True
        self._special = {k: t for k, t in self._trusted.get_added_tokens_decoder().items() if t.special}
        self._added = self._trusted.get_added_tokens_decoder()
        self._steps = list(_steps(described.get("decoder")))

    def encode(self, text: str, *, special: bool = True, add_special: bool = True) -> list[int]:
        """See `tec.lm.checkpoint.Tokenizer`."""
        whole = text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        made = self._trusted if special else self._plain
        found: list[int] = made.encode(whole, add_special_tokens=add_special).ids
        return found

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        """See `tec.lm.checkpoint.Tokenizer`."""
        for k in ids:
            self._name(k)
        text: str = self._trusted.decode(list(ids), skip_special_tokens=not special)
        return text

    def token_bytes(self, id: int) -> bytes:
        """See `tec.lm.checkpoint.Tokenizer`."""
        name = self._name(id)
        if id in self._special:
            return b""
        if id in self._added:
            return str(self._added[id].content).encode("utf-8", "surrogatepass")
        for step in self._steps:
            made = step(name)
            if isinstance(made, bytes):
                return made
            name = made
        return name.encode("utf-8", "surrogatepass")

    def id_of(self, token: str) -> int | None:
        """See `tec.lm.checkpoint.Tokenizer`."""
        found: int | None = self._trusted.token_to_id(token)
        return found

    @property
    def size(self) -> int:
        """Tokens in the vocabulary."""
        return int(self._trusted.get_vocab_size(with_added_tokens=True))

    @property
    def special_texts(self) -> list[str]:
        """The texts of special tokens."""
        return [str(t.content) for t in self._special.values()]

    def _name(self, id: int) -> str:
        name = self._trusted.id_to_token(id) if 0 <= id < 1 << 32 else None
        if name is None:
            raise ArgumentError(
                f"the token {id}, which is none of the {self.size} tokens", hint="ids go from 0 to size - 1"
            )
        return str(name)


def _steps(decoder: Any) -> Iterator[Callable[[str], str | bytes]]:
    """What a file's decoder makes of one token, wherever it stands: bytes are the last step's."""
    said = decoder if isinstance(decoder, dict) else {}
    kind = said.get("type")
    if kind == "Sequence":
        for part in said.get("decoders", ()):
            yield from _steps(part)
    elif kind == "ByteLevel":
        yield _letters
    elif kind == "ByteFallback":
        yield _fallback
    elif kind == "Metaspace":
        yield partial(_replaced, str(said.get("replacement", SPACE)), " ")
    elif kind == "Replace" and isinstance(said.get("pattern"), dict) and "String" in said["pattern"]:
        yield partial(_replaced, str(said["pattern"]["String"]), str(said.get("content", "")))
    elif kind == "BPEDecoder":
        yield partial(_replaced, str(said.get("suffix", "</w>")), " ")
    elif kind == "WordPiece":
        yield partial(_joined, str(said.get("prefix", "##")))
    elif kind is None:  # the package puts a space between tokens then
        yield partial(_joined, None)


def _letters(name: str) -> str | bytes:
    letters = alphabet()
    return bytes(letters[c] for c in name) if all(c in letters for c in name) else name


def _fallback(name: str) -> str | bytes:
    return bytes.fromhex(name[3:5]) if re.fullmatch("<0x[0-9A-Fa-f]{2}>", name) else name


def _replaced(text: str, by: str, name: str) -> str:
    return name.replace(text, by)


def _joined(prefix: str | None, name: str) -> str:
    """A token that goes on with a word has the prefix; before any other there is a space."""
    return name[len(prefix) :] if prefix and name.startswith(prefix) else " " + name


def tokenizer_of_folder(
    folder: Path, settings: Mapping[str, Any], kind: str = ""
) -> JsonTokenizer | VocabularyTokenizer | None:
    """The folder's tokenizer; None where it has none. settings: tokenizer_config.json; kind: the model's type."""
    path = folder / "tokenizer.json"
    if path.is_file():
        try:
            return JsonTokenizer(path.read_text("utf-8"), path)
        except (OSError, ValueError) as error:
            raise ImportModelError(
                f"cannot read {path}: {error}", hint="a file of JSON that this user may read"
            ) from None
    path = folder / "tokenizer.model"
    if path.is_file():
        return tokenizer_of(vocabulary_of(path, settings))
    text = described(folder, settings, kind)
    return JsonTokenizer(text, folder) if text is not None else None


def named_ends(tokenizer: JsonTokenizer | VocabularyTokenizer | None) -> list[int]:
    """Tokens that end an answer by their names."""
    return [] if tokenizer is None else end_ids(tokenizer.id_of)
