"""The architectures, one small file each: a function of `Layers` that returns the logits. `find` has them by the names of Hugging Face's `model_type`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from ...errors import one_line
from ..config import unknown

if TYPE_CHECKING:
    from ...graph import Value
    from ..layers import Layers

    Architecture = Callable[[Layers], Value]

# Hugging Face's model_type, and the module and function here.
NAMES = {
    "llama": "llama.llama", "mistral": "llama.llama", "smollm3": "llama.smollm3", "qwen2": "llama.llama", "qwen3": "llama.qwen3",
    "gemma": "gemma.gemma", "gemma4": "gemma4.gemma4", "gemma4_text": "gemma4.gemma4", "gemma2": "gemma.gemma2", "gemma3": "gemma.gemma3", "gemma3_text": "gemma.gemma3", "phi3": "llama.llama", "olmo": "olmo.olmo", "olmo2": "olmo.olmo2", "olmo3": "olmo.olmo3", "olmoe": "olmo.olmoe",
    "granite": "granite.granite", "granitemoe": "granite.granite", "granitemoeshared": "granite.granite", "granitemoehybrid": "granite.granite_hybrid", "falcon_h1": "falcon_h1.falcon_h1", "cohere": "cohere.cohere", "cohere2": "cohere.cohere2",
    "glm": "glm.glm", "glm4": "glm.glm4", "glm4_moe": "moe.glm4_moe", "phi": "older.phi", "stablelm": "older.stablelm", "starcoder2": "older.starcoder2", "nemotron": "older.nemotron",
    "gpt_neox": "older.gpt_neox", "gpt2": "older.gpt2", "exaone4": "llama.exaone4", "arcee": "llama.arcee", "ernie4_5": "llama.neighbours", "helium": "llama.neighbours",
    "hunyuan_v1_dense": "llama.hunyuan", "seed_oss": "llama.llama", "ministral": "llama.llama", "ministral3": "llama.ministral3", "mamba2": "mamba2.mamba2", "qwen3_next": "delta.qwen3_5", "qwen3_5_text": "delta.qwen3_5", "qwen3_5_moe_text": "delta.qwen3_5", "gpt_oss": "gpt_oss.gpt_oss", "deepseek_v2": "deepseek.deepseek_v2", "deepseek_v3": "deepseek.deepseek_v3", "glm4_moe_lite": "deepseek.glm4_moe_lite", "lfm2": "lfm2.lfm2", "lfm2_moe": "lfm2.lfm2_moe",
    "qwen3_moe": "moe.qwen3_moe", "mixtral": "moe.mixtral", "qwen2_moe": "moe.qwen2_moe", "dots1": "moe.dots1", "exaone_moe": "moe.exaone_moe",
    "ernie4_5_moe": "moe.ernie4_5_moe", "hunyuan_v1_moe": "moe.hunyuan_moe", "apertus": "apertus.apertus", "nemotron_h": "nemotron_h.nemotron_h",
    "mamba": "mamba.mamba", "falcon_mamba": "mamba.falcon_mamba", "jamba": "jamba.jamba", "bitnet": "bitnet.bitnet", "llama4_text": "llama4.llama4",
    "gemma3n_text": "gemma3n.gemma3n", "phimoe": "phimoe.phimoe", "afmoe": "afmoe.afmoe", "deepseek": "moe.deepseek", "minimax_m2": "moe.minimax_m2",
    "minicpm3": "deepseek.minicpm3", "gpt_bigcode": "older.gpt2", "gptj": "older.gptj", "falcon": "older.falcon",
    "bloom": "alibi.bloom", "mpt": "alibi.mpt",
}  # fmt: skip


# Encoders, which make features of a whole text (`tec.lm.embedder`) and write none.
ENCODERS = {"bert": "bert.bert", "roberta": "bert.bert", "xlm-roberta": "bert.bert"}
# Sound to text (`tec.lm.transcriber`): an encoder and a decoder.
SPEECH = {"whisper": "whisper.whisper"}


def place(name: str) -> str:
    """The module and function of an architecture, neither of which is imported. ImportModelError for one that is not here."""
    where = {**NAMES, **ENCODERS, **SPEECH}.get(name)
    if where is None:
        raise unknown(f"architecture {one_line(name)!r} is not known", name, NAMES)
    return where


def find(name: str) -> Architecture:
    """ImportModelError for one that is not here."""
    module, _, function = place(name).partition(".")
    found: Architecture = getattr(import_module(f".{module}", __package__), function)
    return found
