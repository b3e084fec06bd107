"""Adapters as PEFT saves them: adapter_config.json and adapter_model.safetensors."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tec.errors import ImportModelError, one_line
from tec.lm.adapters import Adapter, low_rank
from tec.lm.checkpoint import PackedTensor
from tec.lm.remedies import FETCH_AGAIN

from .safetensors import read
from .settings import load

_NAME = re.compile(r"base_model\.model\.(.*)\.lora_(A|B)(?:\.default)?\.weight", re.DOTALL)


def accepts(path: Path) -> bool:
    """Whether a path is such a folder."""
    return path.is_dir() and (path / "adapter_config.json").is_file()


def open_adapter(path: Path) -> Adapter:
    """The folder's adapter. Raises ImportModelError for kinds other than LoRA, and for parts that are no pairs."""
    settings = load(path / "adapter_config.json")
    kind = str(settings.get("peft_type", "LORA")).upper()
    if kind != "LORA" or settings.get("use_dora"):
        raise ImportModelError(
            f"{path} is an adapter of the kind {'DoRA' if settings.get('use_dora') else one_line(kind)}",
            hint="LoRA is read",
        )
    if settings.get("bias", "none") != "none" or settings.get("modules_to_save"):
        raise ImportModelError(
            f"{path} changes biases or whole layers too", hint="merge it into the model with peft's merge_and_unload"
        )
    pairs: dict[str, dict[str, PackedTensor]] = {}
    for entry in read(path / "adapter_model.safetensors").values():
        match = _NAME.fullmatch(entry.name)
        if match is None:
            raise ImportModelError(
                f"{path} holds {one_line(entry.name)[:200]}, which is no part of a LoRA",
                hint="an adapter that peft saved: save_pretrained of a model with LoRA",
            )
        pairs.setdefault(match[1], {})[match[2]] = PackedTensor(entry.name, entry.shape, entry.format, entry.data)
    deltas = {}
    for stem, of in pairs.items():
        if of.keys() != {"A", "B"}:
            raise ImportModelError(f"{path}: {one_line(stem)} has one half of its pair alone", hint=FETCH_AGAIN)
        a, b = of["A"], of["B"]
        if settings.get("fan_in_fan_out"):
            raise ImportModelError(f"{path} is of a model whose weights are [in, out]", hint="merge it with peft")
        deltas[f"{stem}.weight"] = low_rank(stem, a, b, _scale(settings, stem, a.shape[0] if a.shape else 0))
    return Adapter(deltas, str(path), settings)


def _scale(settings: Mapping[str, Any], stem: str, rank: int) -> float:
    """lora_alpha / r, or / sqrt(r) for rsLoRA; patterns name other values for some layers."""
    alpha = _of(settings.get("alpha_pattern"), stem, settings.get("lora_alpha", 8))
    r = _of(settings.get("rank_pattern"), stem, settings.get("r", rank))
    if type(r) is not int or r < 1 or not isinstance(alpha, (int, float)):
        raise ImportModelError(
            f"an adapter with lora_alpha {alpha!r} and r {r!r}",
            hint="adapter_config.json with r of 1 or more and a number as lora_alpha",
        )
    return alpha / math.sqrt(r) if settings.get("use_rslora") else alpha / r


def _of(pattern: Any, stem: str, default: Any) -> Any:
    """A value of a pattern whose keys are ends of names; keys that are regular expressions are compared as texts, since strangers wrote them."""
    if isinstance(pattern, dict):
        for key, value in pattern.items():
            if stem == key or stem.endswith(f".{key}"):
                return value
    return default
