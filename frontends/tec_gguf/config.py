"""A GGUF file's metadata as the values that Hugging Face's config.json has.

`rope_scaling` has what the file says: {"rope_type": "linear", "factor": f}, "yarn", "longrope" with "long_factor" and "short_factor", or
{"rope_type": "factors", "factors": [head_dim / 2 numbers]}: numbers that each frequency is divided by, which files hold in place of the rule of Llama 3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tec.errors import ImportModelError

# Architectures by general.architecture: Hugging Face's model_type.
MODEL_TYPES = {
    "llama": "llama", "qwen2": "qwen2", "qwen2moe": "qwen2_moe", "qwen3": "qwen3", "qwen3moe": "qwen3_moe", "qwen3next": "qwen3_next",
    "qwen35": "qwen3_5_text", "qwen35moe": "qwen3_5_moe_text", "gemma": "gemma", "gemma2": "gemma2", "gemma3": "gemma3_text",
    "gemma4": "gemma4_text", "gemma-embedding": "gemma3_text", "phi3": "phi3", "smollm3": "smollm3", "olmo2": "olmo2", "gpt-oss": "gpt_oss",
    "deepseek2": "deepseek_v2", "lfm2": "lfm2", "lfm2moe": "lfm2_moe", "mamba": "mamba", "mamba2": "mamba2", "bert": "bert",
    "granite": "granite", "granitemoe": "granitemoe", "chatglm": "glm", "glm4": "glm4", "glm4moe": "glm4_moe", "command-r": "cohere", "cohere2": "cohere2",
    "exaone4": "exaone4", "ernie4_5": "ernie4_5", "stablelm": "stablelm", "starcoder2": "starcoder2", "olmo": "olmo", "olmoe": "olmoe", "arcee": "arcee",
    "seed_oss": "seed_oss", "nemotron": "nemotron", "hunyuan-dense": "hunyuan_v1_dense", "phi2": "phi", "gptneox": "gpt_neox", "gpt2": "gpt2",
    "dots1": "dots1", "exaone-moe": "exaone_moe", "ernie4_5-moe": "ernie4_5_moe", "hunyuan-moe": "hunyuan_v1_moe", "apertus": "apertus",
    "nemotron_h": "nemotron_h", "nemotron_h_moe": "nemotron_h", "internlm2": "llama", "minicpm": "granite",
    "granitehybrid": "granitemoehybrid", "falcon-h1": "falcon_h1", "mistral3": "ministral3",
    "llama4": "llama4_text", "gemma3n": "gemma3n_text", "jamba": "jamba", "bitnet": "bitnet", "phimoe": "phimoe", "falcon": "falcon", "starcoder": "gpt_bigcode",
    "minimax-m2": "minimax_m2", "minicpm3": "minicpm3", "afmoe": "afmoe", "bailingmoe": "deepseek", "bailingmoe2": "glm4_moe", "deepseek": "deepseek",
    "exaone": "llama", "xverse": "llama", "qwen2vl": "qwen2", "qwen3vl": "qwen3", "qwen3vlmoe": "qwen3_moe", "bloom": "bloom", "mpt": "mpt",
}  # fmt: skip

_PLAIN = {  # ours: the file's, behind the architecture's name
    "max_position_embeddings": "context_length",
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "v_head_dim": "attention.value_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "layer_norm_eps": "attention.layer_norm_epsilon",
    "rope_theta": "rope.freq_base",
    "rope_local_base_freq": "rope.freq_base_swa",
    "sliding_window": "attention.sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    "n_shared_experts": "expert_shared_count",
    "first_k_dense_replace": "leading_dense_block_count",
    "routed_scaling_factor": "expert_weights_scale",
    "norm_topk_prob": "expert_weights_norm",
    "n_group": "expert_group_count",
    "topk_group": "expert_group_used_count",
    "q_lora_rank": "attention.q_lora_rank",
    "kv_lora_rank": "attention.kv_lora_rank",
    "conv_L_cache": "shortconv.l_cache",
    "attention_multiplier": "attention.scale",
    "embedding_multiplier": "embedding_scale",
    "residual_multiplier": "residual_scale",
    "logit_scale": "logit_scale",
    "clip_qkv": "attention.clamp_kqv",
    "alibi_bias_max": "attention.max_alibi_bias",
    "use_parallel_residual": "use_parallel_residual",
    "num_nextn_predict_layers": "nextn_predict_layers",
    "rotary_dim": "rope.dimension_count",
    "hidden_size_per_layer_input": "embedding_length_per_layer_input",
    "num_kv_shared_layers": "attention.shared_kv_layers",
    "is_causal": "attention.causal",
    "pooling_type": "pooling_type",
}
MOST = 1 << 31  # of any size
_EMBEDDINGS = (
    "model.embed_tokens.weight",
    "backbone.embeddings.weight",
    "gpt_neox.embed_in.weight",
    "transformer.wte.weight",
    "transformer.word_embeddings.weight",
)


class Metadata:
    """A file's metadata, read by name behind its architecture's. Values of the wrong kind raise ImportModelError."""

    def __init__(self, values: Mapping[str, Any], architecture: str, path: Any):
        self.values, self.architecture, self.path = values, architecture, path

    def get(self, name: str, default: Any = None) -> Any:
        """A value; arrays of numbers as lists."""
        value = self.values.get(f"{self.architecture}.{name}", default)
        return value.tolist() if isinstance(value, np.ndarray) else value

    def size(self, name: str, default: int | None = None) -> int:
        """A whole number from 1 on."""
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < MOST:
            raise ImportModelError(
                f"{self.path}: {self.architecture}.{name} is {value!r}",
                hint="the file does not say how large its model is",
            )
        return value


def config_of(meta: Metadata, tensors: Mapping[str, Any], vocabulary: int | None) -> dict[str, Any]:
    """The configuration. tensors: by Hugging Face's names, for what only they tell (biases, tied embeddings, factors of rotary)."""
    config: dict[str, Any] = {"model_type": MODEL_TYPES[meta.architecture]}
    for ours, theirs in _PLAIN.items():
        value = meta.get(theirs)
        if value is not None:
            config[ours] = value
    for name in ("hidden_size", "num_hidden_layers"):
        meta.size(_PLAIN[name])
    extra, layers = config.get("num_nextn_predict_layers"), config["num_hidden_layers"]
    if isinstance(extra, int) and 0 < extra < layers:
        config["num_hidden_layers"] = layers - extra  # those that guess more tokens are counted among the layers
    heads = config.get("num_attention_heads")
    config.setdefault("num_key_value_heads", heads)
    if isinstance(heads, int) and heads and "head_dim" not in config:
        config["head_dim"] = meta.size("embedding_length") // heads
    config.setdefault("rope_theta", 10000.0)
    config["vocab_size"] = meta.get("vocab_size", vocabulary)
    embedding = next((tensors[n] for n in _EMBEDDINGS if n in tensors), None)
    if embedding is not None and len(embedding.shape) == 2:
        config["vocab_size"] = embedding.shape[0]
    config["tie_word_embeddings"] = "lm_head.weight" not in tensors
    config["attention_bias"] = "model.layers.0.self_attn.q_proj.bias" in tensors
    config["rms_norm_offset"] = 0.0  # norms hold 1 + weight where a model wants that
    config["hidden_act"] = "gelu_pytorch_tanh" if meta.architecture.startswith("gemma") else "silu"
    scaling = _rope_scaling(meta, tensors)
    if scaling is not None:
        config["rope_scaling"] = scaling
    return config


def _rope_scaling(meta: Metadata, tensors: Mapping[str, Any]) -> dict[str, Any] | None:
    kind, factor = meta.get("rope.scaling.type"), meta.get("rope.scaling.factor", meta.get("rope.scale_linear"))
    if "rope_freqs.weight" in tensors:
        return {"rope_type": "factors", "factors": tensors["rope_freqs.weight"].dequantize().tolist()}
    if "rope_factors_long.weight" in tensors and "rope_factors_short.weight" in tensors:
        return {
            "rope_type": "longrope",
            "long_factor": tensors["rope_factors_long.weight"].dequantize().tolist(),
            "short_factor": tensors["rope_factors_short.weight"].dequantize().tolist(),
            "original_max_position_embeddings": meta.get("rope.scaling.original_context_length"),
            "attention_factor": meta.get("rope.scaling.attn_factor"),
        }
    if kind == "yarn":
        names = {
            "factor": "factor", "original_max_position_embeddings": "original_context_length", "extrapolation_factor": "yarn_ext_factor",
            "beta_fast": "yarn_beta_fast", "beta_slow": "yarn_beta_slow",
            "log_multiplier": "yarn_log_multiplier",
        }  # fmt: skip
        found = {ours: meta.get(f"rope.scaling.{theirs}") for ours, theirs in names.items()}
        more = meta.get("rope.scaling.attn_factor")
        if isinstance(more, (int, float)) and isinstance(found["factor"], (int, float)) and found["factor"] > 0:
            # llama.cpp multiplies yarn's own factor with it. What a file says as yarn_attn_factor it overwrites by that factor.
            found["attention_factor"] = more * (1 + 0.1 * math.log(max(found["factor"], 1.0)))
        return {"rope_type": "yarn", **{k: v for k, v in found.items() if v is not None}}
    if factor is not None and kind in (None, "linear") and factor not in (0, 1):
        return {"rope_type": "linear", "factor": factor}
    return None
