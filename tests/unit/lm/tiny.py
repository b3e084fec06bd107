"""Small random language models in memory: a configuration, and tensors by Hugging Face's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tec.lm import Checkpoint, Format, PackedTensor
from tests.seeds import first

HIDDEN, HEADS, KV_HEADS, FEED, VOCABULARY = 64, 4, 2, 96, 128
CONFIG: dict[str, Any] = {
    "hidden_size": HIDDEN, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "intermediate_size": FEED, "vocab_size": VOCABULARY,
    "num_hidden_layers": 2, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 64, "hidden_act": "silu",
}  # fmt: skip


class Bytes:
    """Tokens are the first half of ASCII."""

    size = VOCABULARY

    def encode(self, text: str, *, special: bool = True, add_special: bool = True) -> list[int]:
        return [b % VOCABULARY for b in text.encode()]

    def decode(self, ids: Any, *, special: bool = False) -> str:
        return bytes(ids).decode(errors="replace")

    def token_bytes(self, id: int) -> bytes:
        return bytes([id])

    def id_of(self, token: str) -> int | None:
        return None


def tensor(name: str, value: Any, format: Format = Format.F32) -> PackedTensor:
    """A tensor whose values are packed as they are (F32), or rounded to a format of ggml by the package gguf."""
    value = np.ascontiguousarray(value, np.float32)
    if format is Format.F32:
        return PackedTensor(name, value.shape, format, value.reshape(-1).view(np.uint8))
    import gguf

    raw = gguf.quants.quantize(value, getattr(gguf.GGMLQuantizationType, format.name))
    return PackedTensor(name, value.shape, format, np.ascontiguousarray(raw).view(np.uint8).reshape(-1))


def llama(
    more: Mapping[str, Any] | None = None, formats: Mapping[str, Format] | None = None, what: int = 0
) -> Checkpoint:
    """A Llama whose head is its embedding table. formats: of matrices, by the last part of their names."""
    rng, tensors = np.random.default_rng(first(what)), {}
    size = HIDDEN // HEADS

    def add(name: str, *shape: int) -> None:
        scale = 0.1 if len(shape) == 1 else shape[-1] ** -0.5
        value = rng.standard_normal(shape) * scale + (len(shape) == 1)
        tensors[name] = tensor(
            name, value, (formats or {}).get(name.split(".")[-2], Format.F32) if len(shape) > 1 else Format.F32
        )

    add("model.embed_tokens.weight", VOCABULARY, HIDDEN)
    add("model.norm.weight", HIDDEN)
    config = {**CONFIG, **(more or {})}
    for k in range(min(config["num_hidden_layers"], CONFIG["num_hidden_layers"])):
        at = f"model.layers.{k}"
        add(f"{at}.input_layernorm.weight", HIDDEN)
        add(f"{at}.post_attention_layernorm.weight", HIDDEN)
        for n, rows in (("q", HIDDEN), ("k", KV_HEADS * size), ("v", KV_HEADS * size)):
            add(f"{at}.self_attn.{n}_proj.weight", rows, HIDDEN)
        add(f"{at}.self_attn.o_proj.weight", HIDDEN, HIDDEN)
        add(f"{at}.mlp.gate_proj.weight", FEED, HIDDEN)
        add(f"{at}.mlp.up_proj.weight", FEED, HIDDEN)
        add(f"{at}.mlp.down_proj.weight", HIDDEN, FEED)
    return Checkpoint("llama", config, tensors, Bytes)


def mixture(format: Format, experts: int = 4, size: int = 32) -> Checkpoint:
    """The same with a mixture of experts in each layer, which are of a format."""
    c = llama({"num_local_experts": experts, "num_experts_per_tok": 2, "moe_intermediate_size": size}, what=1)
    rng, tensors = np.random.default_rng(first(2)), {n: t for n, t in c.tensors.items() if ".mlp." not in n}
    for k in range(CONFIG["num_hidden_layers"]):
        at = f"model.layers.{k}.mlp."
        tensors[f"{at}gate.weight"] = tensor(f"{at}gate.weight", rng.standard_normal((experts, HIDDEN)))
        for part, shape in (("gate", (size, HIDDEN)), ("up", (size, HIDDEN)), ("down", (HIDDEN, size))):
            name = f"{at}experts.{part}_proj.weight"
            tensors[name] = tensor(name, rng.standard_normal((experts, *shape)) * shape[1] ** -0.5, format)
    return Checkpoint("mixtral", c.config, tensors, Bytes)
