"""A checkpoint of GGUF files: tensors by Hugging Face's names, views of the mapped files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tec.errors import ImportModelError, one_line
from tec.lm.checkpoint import Checkpoint, PackedTensor
from tec.lm.config import unknown
from tec.lm.remedies import FETCH_AGAIN
from tec.lm.text.texts import Texts
from tec.lm.text.tokenizer import VocabularyTokenizer, tokenizer_of
from tec.lm.text.vocabulary import ENDS, end_ids, vocabulary_of

from . import families, names
from .config import MODEL_TYPES, Metadata, config_of
from .heads import read
from .reader import GgufFile

MOST_PARTS = 4096
_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)


def checkpoint_of(path: Path) -> Checkpoint:
    """The checkpoint of a file, or of the parts that it is one of. Raises ImportModelError."""
    parts = files_of(path)
    metadata = parts[0].metadata
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise ImportModelError(f"{path} does not say general.architecture", hint="it holds no model")
    if architecture not in MODEL_TYPES:
        said = f"{path} holds a model of the architecture {one_line(architecture)!r}, which is unknown"
        raise unknown(said, architecture, MODEL_TYPES)
    meta = Metadata(metadata, architecture, path)
    tensors = tensors_of(parts, meta)
    families.whole(meta, tensors)
    tokens = metadata.get("tokenizer.ggml.tokens")
    config = config_of(meta, tensors, len(tokens) if isinstance(tokens, (list, Texts)) else None)
    families.complete(meta, config, tensors)
    template, tools = (metadata.get(f"tokenizer.chat_template{n}") for n in ("", ".tool_use"))
    own = (f"{architecture}.", "tokenizer.", "split.")
    return Checkpoint(
        architecture=config["model_type"], config=config, tensors=tensors, make_tokenizer=lambda: _tokenizer(metadata),
        chat_template=template if isinstance(template, str) else None, tool_template=tools if isinstance(tools, str) else None, generation=generation_of(metadata), path=str(path),
        metadata={k: v for k, v in metadata.items() if not k.startswith(own)}, files=tuple(p.path for p in parts),
    )  # fmt: skip


def _tokenizer(metadata: dict[str, Any]) -> VocabularyTokenizer | None:
    vocabulary = vocabulary_of(metadata)
    return None if vocabulary is None else tokenizer_of(vocabulary)


def files_of(path: Path) -> list[GgufFile]:
    """The parts of a model, the first one first. Raises ImportModelError where one is missing, or they are not of one model."""
    first = read(path)
    count = first.metadata.get("split.count", 0)
    if not isinstance(count, int) or count < 2:
        return [first]
    match = _PART.fullmatch(path.name)
    if match is None or int(match[3]) != count or count > MOST_PARTS:
        raise ImportModelError(
            f"{path} is one of {count} parts, and its name does not say so",
            hint="parts are called NAME-00001-of-00003.gguf",
        )
    parts = []
    for k in range(count):
        part = path.with_name(f"{match[1]}-{k + 1:05d}-of-{count:05d}.gguf")
        if not part.is_file():
            raise ImportModelError(
                f"{part} is missing: the model has {count} parts", hint="put all parts into one folder"
            )
        found = first if part == path else read(part)
        if found.metadata.get("split.no") != k or found.metadata.get("split.count") != count:
            raise ImportModelError(
                f"{part} says that it is part {found.metadata.get('split.no')} of {found.metadata.get('split.count')}",
                hint="the parts of one model under their own names: NAME-00001-of-00003.gguf",
            )
        parts.append(found)
    said, there = parts[0].metadata.get("split.tensors.count"), sum(len(p.entries) for p in parts)
    if said is not None and said != there:
        raise ImportModelError(
            f"the parts of {path} hold {there} tensors, and should hold {said}",
            hint="download the parts again; all belong to one model",
        )
    return parts


def tensors_of(parts: list[GgufFile], meta: Metadata) -> dict[str, PackedTensor]:
    """Tensors by Hugging Face's names, in the order of the files."""
    table = names.tables()[meta.architecture]
    heads = {
        "q_proj": meta.get("attention.head_count"),
        "k_proj": meta.get("attention.head_count_kv", meta.get("attention.head_count")),
    }
    found: dict[str, PackedTensor] = {}
    for part in parts:
        for e in part.entries:
            name = names.name_of(e.name, table)
            if name in found:
                raise ImportModelError(f"{part.path} holds {one_line(name)} twice", hint=FETCH_AGAIN)
            rotary = 0
            stem = name.split(".")[-2] if "." in name else ""
            if meta.architecture in names.INTERLEAVED and stem in heads:
                rotary = _heads(heads[stem], name, e.shape, meta)
            found[name] = PackedTensor(name, e.shape, e.format, part.data(e), rotary)
    return found


def _heads(count: Any, name: str, shape: tuple[int, ...], meta: Metadata) -> int:
    if isinstance(count, list):  # one number a layer
        layer = int(name.split(".")[2])
        count = count[layer] if layer < len(count) else None
    if isinstance(count, bool) or not isinstance(count, int) or count < 1 or not shape or shape[0] % (2 * count):
        raise ImportModelError(
            f"{meta.path}: {name} has {shape[0] if shape else 0} rows, which are no {count!r} heads of pairs",
            hint=FETCH_AGAIN,
        )
    return count


def generation_of(metadata: dict[str, Any]) -> dict[str, Any]:
    """Tokens that begin and end, from tokenizer.ggml.*: `eos_token_ids` has the end of a turn and of a message too."""
    found: dict[str, Any] = {}
    ends = [metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
    tokens = metadata.get("tokenizer.ggml.tokens")
    named: list[int] = []
    if isinstance(tokens, (list, Texts)):
        there = set(ENDS).intersection(tokens) if isinstance(tokens, list) else [t for t in ENDS if t in tokens]
        named = end_ids({t: tokens.index(t) for t in there}.get)
    found["eos_token_ids"] = list(dict.fromkeys([*(e for e in ends if isinstance(e, int)), *named]))
    for ours, theirs in (
        ("bos_token_id", "bos"),
        ("pad_token_id", "padding"),
        ("unk_token_id", "unknown"),
        ("sep_token_id", "seperator"),
    ):
        value = metadata.get(f"tokenizer.ggml.{theirs}_token_id")
        if isinstance(value, int):
            found[ours] = value
    return found
