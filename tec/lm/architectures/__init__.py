"""The architectures, one small file each: a function of `Layers` that returns the logits. `find` has them by the names of Hugging Face's `model_type`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from ...errors import ImportModelError
from ...graph import Value
from ..layers import Layers

Architecture = Callable[[Layers], Value]

# Hugging Face's model_type, and the module and function here.
NAMES = {
    "llama": "llama.llama", "mistral": "llama.mistral", "smollm3": "llama.smollm3", "qwen2": "llama.llama", "qwen3": "qwen3.qwen3",
    "gemma2": "gemma.gemma2", "gemma3": "gemma.gemma3", "gemma3_text": "gemma.gemma3", "phi3": "phi3.phi3", "olmo2": "olmo2.olmo2",
    "qwen3_moe": "moe.qwen3_moe", "mixtral": "moe.mixtral", "qwen2_moe": "moe.qwen2_moe",
}  # fmt: skip


def find(name: str) -> Architecture:
    """ImportModelError for one that is not here."""
    where = NAMES.get(name)
    if where is None:
        raise ImportModelError(f"architecture {name!r} is not known", hint=f"known: {', '.join(sorted(NAMES))}")
    module, _, function = where.partition(".")
    found: Architecture = getattr(import_module(f".{module}", __package__), function)
    return found
