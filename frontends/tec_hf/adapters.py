"""Adapters as PEFT saves them: adapter_config.json and adapter_model.safetensors."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tec.errors import ImportModelError, one_line
from tec.lm.adapters import Adapter, Experts, LowRank, low_rank
from tec.lm.checkpoint import PackedTensor
from tec.lm.formats import Format
from tec.lm.remedies import FETCH_AGAIN

from .safetensors import read
from .settings import load
from .texts import beside_an_adapter
from .weights import expert_of, plain_name

_NAME = re.compile(
    r"base_model\.model\.(.*?)\.(lora_A|lora_B|lora_embedding_A|lora_embedding_B|lora_magnitude_vector)(?:\.default)?(?:\.weight)?", re.DOTALL
)  # fmt: skip
_WHOLE = re.compile(r"base_model\.model\.((?:(?!lora_).)*)\.(weight|bias)", re.DOTALL)
# Regular expressions that take no longer than the third power of a name's length: nothing in brackets is repeated.
_PLAIN_EXPRESSION = re.compile(r"\^?(?:[\w.|-]|\\[.dw]|\[[\w-]+\]|\((?:\?:)?(?:[\w.|-]|\\[.dw])*\)(?![*+{])|[*+])*\$?")
_REPEATED = re.compile(r"(?<!\\)[*+]")
_MOST_REPEATED = 3
_LONGEST = 256  # characters of a name that a pattern is for


def accepts(path: Path) -> bool:
    """Whether a path is such a folder."""
    return path.is_dir() and (path / "adapter_config.json").is_file()


def open_adapter(path: Path) -> Adapter:
    """The folder's adapter. Raises ImportModelError for kinds other than LoRA, and for parts that are no pairs."""
    settings = load(path / "adapter_config.json")
    kind = str(settings.get("peft_type", "LORA")).upper()
    if kind != "LORA":
        raise ImportModelError(f"{path} is an adapter of the kind {one_line(kind)}", hint="LoRA is read")
    pairs: dict[str, dict[str, PackedTensor]] = {}
    replaced: dict[str, PackedTensor] = {}
    for entry in read(path / "adapter_model.safetensors").values():
        match = _NAME.fullmatch(entry.name)
        whole = None if match else _WHOLE.fullmatch(entry.name)
        found = match or whole
        name = plain_name(found[1]) if found is not None else ""
        if name is None:
            raise ImportModelError(
                f"{path} changes {one_line(entry.name)[:200]}, which is no part of the text model",
                hint="merge it into the model with peft's merge_and_unload",
            )
        if match is not None:
            kept = PackedTensor(entry.name, entry.shape, entry.format, entry.data)
            pairs.setdefault(name, {})[match[2]] = kept
        elif whole is not None:
            stem = name.removesuffix(".default").removesuffix(".modules_to_save")
            stem = f"{stem.removesuffix('.base_layer')}.{whole[2]}"
            replaced[stem] = PackedTensor(stem, entry.shape, entry.format, entry.data)
        else:
            raise ImportModelError(
                f"{path} holds {one_line(entry.name)[:200]}, which is no part of a LoRA",
                hint="an adapter that peft saved: save_pretrained of a model with LoRA",
            )
    deltas: dict[str, LowRank | Experts] = {}
    experts: dict[str, dict[int, LowRank]] = {}
    for stem, of in pairs.items():
        made = _low_rank(path, settings, stem, of)
        at = expert_of(f"{stem}.weight")
        if at is None:
            deltas[f"{stem}.weight"] = made
        else:
            experts.setdefault(at[0], {})[at[1]] = made
    for n, parts in experts.items():
        deltas[n] = Experts(parts)
    return Adapter(deltas, str(path), settings, replaced, partial(_scale, settings), beside_an_adapter(path))


def _low_rank(path: Path, settings: Mapping[str, Any], stem: str, of: Mapping[str, PackedTensor]) -> LowRank:
    """What the parts of one weight are. A table of embeddings is [tokens, features], and its parts lie turned over."""
    turned = "lora_embedding_A" in of or "lora_embedding_B" in of
    names = ("lora_embedding_B", "lora_embedding_A") if turned else ("lora_A", "lora_B")
    if not set(names) <= of.keys() <= {*names, "lora_magnitude_vector"}:
        raise ImportModelError(f"{path}: {one_line(stem)} has one half of its pair alone", hint=FETCH_AGAIN)
    a, b = (_turned(of[n]) if turned else of[n] for n in names)
    made = low_rank(stem, a, b, _scale(settings, stem, a.shape[0] if a.shape else 0))
    magnitude = of.get("lora_magnitude_vector")
    if magnitude is None:
        return made
    if turned or math.prod(magnitude.shape) != b.shape[0]:
        raise ImportModelError(
            f"{path}: the lengths of {one_line(stem)} are {list(magnitude.shape)}",
            hint="DoRA of a matrix, with a length for each of its rows; others: merge it with peft",
        )
    return replace(made, magnitude=magnitude)


def _turned(t: PackedTensor) -> PackedTensor:
    if len(t.shape) != 2:
        return t
    values = np.ascontiguousarray(t.dequantize().T, np.float32)
    return PackedTensor(t.name, values.shape, Format.F32, values.reshape(-1).view(np.uint8))


def _scale(settings: Mapping[str, Any], stem: str, rank: int) -> float:
    """lora_alpha / rank, or / sqrt(rank) for rsLoRA; a pattern names other values of lora_alpha for some layers. The rank is the pair's own, whatever
    r and rank_pattern say."""
    alpha = _of(settings.get("alpha_pattern"), stem, settings.get("lora_alpha", 8))
    if rank < 1 or isinstance(alpha, bool) or not isinstance(alpha, (int, float)):
        raise ImportModelError(
            f"an adapter with lora_alpha {alpha!r} and rank {rank}",
            hint="adapter_config.json with a number as lora_alpha, and pairs of rank 1 or more",
        )
    return alpha / math.sqrt(rank) if settings.get("use_rslora") else alpha / rank


def _of(pattern: Any, stem: str, default: Any) -> Any:
    """A value of a pattern whose keys are ends of names, as regular expressions. Raises ImportModelError for those that could take long, since strangers wrote
    them."""
    for key, value in pattern.items() if isinstance(pattern, dict) and len(stem) <= _LONGEST else ():
        before = "" if key.startswith((".*", "^")) else r"(?:.*\.)?"
        if _PLAIN_EXPRESSION.fullmatch(key) is None or len(_REPEATED.findall(before + key)) > _MOST_REPEATED:
            raise ImportModelError(
                f"an adapter whose alpha_pattern has {one_line(key)[:200]}", hint="names with \\d, [0-9], (a|b) and at most two repetitions; or merge it with peft"
            )  # fmt: skip
        try:
            found = re.fullmatch(f"{before}(?:{key})", stem, re.DOTALL)
        except re.error as error:
            raise ImportModelError(
                f"an adapter whose alpha_pattern has {one_line(key)[:200]}: {error}", hint=FETCH_AGAIN
            ) from None
        if found is not None:
            return value
    return default
