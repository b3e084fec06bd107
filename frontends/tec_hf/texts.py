"""What a Hugging Face folder says of texts: its tokenizer, its chat templates, and tokens with a name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tec.lm.checkpoint import Tokenizer
from tec.records import dataclass

from .settings import load, templates_of, text_of
from .tokenizer import named_ends, tokenizer_of_folder


@dataclass
class Texts:
    """named: the texts of bos_token and eos_token where settings have them, which a template gets whatever ids config.json has; ids: of the tokens that begin and fill up
    texts."""

    tokenizer: Any
    template: str | None
    tool_template: str | None
    named: Mapping[str, str]
    ids: Mapping[str, int]


def texts_of(path: Path, kind: str) -> Texts:
    """What a folder says. kind: the model's type. Raises ImportModelError."""
    settings = {**load(path / "special_tokens_map.json"), **load(path / "tokenizer_config.json")}
    tokenizer = tokenizer_of_folder(path, settings, kind)
    named, ids = {}, {}
    for name in ("bos_token", "eos_token", "pad_token"):
        text = text_of(settings.get(name))
        if name in settings and name != "pad_token":
            named[name] = text or ""
        if name != "eos_token" and text is not None and tokenizer is not None:
            found = tokenizer.id_of(text)
            ids |= {f"{name}_id": found} if found is not None else {}
    return Texts(tokenizer, *templates_of(path, settings), named, ids)


def beside_an_adapter(path: Path) -> dict[str, Any]:
    """What changes of a checkpoint by the tokenizer and the templates that were saved with an adapter; its "generation" comes before the model's."""
    texts = texts_of(path, "")
    tokenizer: Tokenizer | None = texts.tokenizer
    made: dict[str, Any] = {}
    if tokenizer is not None:
        end = tokenizer.id_of(texts.named.get("eos_token", ""))
        ends = dict.fromkeys([*([end] if end is not None else []), *named_ends(texts.tokenizer)])
        made = {
            "make_tokenizer": lambda: tokenizer,
            "generation": {**texts.ids, **texts.named, "eos_token_ids": list(ends)},
        }
    if texts.template is not None:
        made |= {"chat_template": texts.template, "tool_template": texts.tool_template}
    return made
