"""Hugging Face folders for tests, of two layers and small sizes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 40, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True,
    "max_position_embeddings": 128, "eos_token_id": 2,
}  # fmt: skip


def weights(seed: int = 0, layers: int = 2) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = {"model.embed_tokens.weight": (40, 64), "model.norm.weight": (64,)}
    for k in range(layers):
        shapes |= {
            f"model.layers.{k}.{n}.weight": s for n, s in {
                "input_layernorm": (64,), "post_attention_layernorm": (64,), "self_attn.q_proj": (64, 64), "self_attn.k_proj": (32, 64),
                "self_attn.v_proj": (32, 64), "self_attn.o_proj": (64, 64), "mlp.gate_proj": (96, 64), "mlp.up_proj": (96, 64), "mlp.down_proj": (64, 96),
            }.items()
        }  # fmt: skip
    return {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}


def folder(path: Path, config: Mapping[str, Any], tensors: Mapping[str, Any], **files: Any) -> Path:
    """A folder; files: settings by name without ".json"."""
    path.mkdir(exist_ok=True)
    for name, value in {"config": config, **files}.items():
        (path / f"{name}.json").write_text(json.dumps(value))
    safetensors.numpy.save_file(dict(tensors), path / "model.safetensors", metadata={"format": "pt"})
    return path
