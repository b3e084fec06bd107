"""Configurations of language models, drawn: sizes, positions, windows, biases and experts of every architecture, as people's config.json files have them.

A file is as transformers 5 writes it, with every key, or as older exporters wrote it: few keys, positions in `rope_theta` and `rope_scaling`, and a key that has
its usual value left out. What a missing key means is for each `model_type` to say.
"""

from __future__ import annotations

import random
from typing import Any

from .families import FAMILIES, SIZES

# What the sizes of attention are for others, or what heads are made of otherwise.
_OWN_HEADS = ("mamba2", "deepseek_v2", "deepseek_v3", "glm4_moe_lite", "gpt2", "gpt_neox")
_OWN_ROPE = ("mamba2", "gpt2", "gemma3_text", "gemma4_text", "phi3")
_PARTIAL = ("phi", "phi3", "stablelm", "nemotron", "glm", "glm4", "gpt_neox", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "glm4_moe")  # fmt: skip
_WINDOWS = ("mistral", "mixtral", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "smollm3", "starcoder2", "phi3", "gemma2", "gemma3_text", "cohere2", "exaone4", "olmo3", "gpt_oss", "ministral")  # fmt: skip
_SWITCHED = ("qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "smollm3")  # whose windows are off unless told
# Keys that a file may leave out whatever they would have said.
_OPTIONAL = (
    "num_key_value_heads", "rms_norm_eps", "layer_norm_eps", "norm_epsilon", "hidden_act", "hidden_activation", "tie_word_embeddings", "attention_bias", "mlp_bias",
    "rope_theta", "rope_scaling", "rope_parameters", "sliding_window", "layer_types", "max_window_layers", "partial_rotary_factor", "head_dim", "norm_topk_prob",
    "num_experts_per_tok", "logit_scale", "no_rope_layers", "use_sliding_window", "attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar",
    "decoder_sparse_step", "mlp_only_layers", "first_k_dense_replace", "n_shared_experts", "routed_scaling_factor", "n_group", "topk_group", "topk_method",
    "q_lora_rank", "swiglu_limit", "use_qk_norm", "use_parallel_residual", "rotary_pct", "use_conv_bias", "use_bias", "qkv_bias", "conv_bias",
    "embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling", "max_position_embeddings", "initializer_range", "use_expert_bias",
    "rope_interleave", "clip_qkv", "use_qkv_bias", "conv_L_cache", "linear_conv_kernel_dim", "scale_attn_weights", "n_inner",
)  # fmt: skip


def drawn(kind: str, rng: random.Random) -> dict[str, Any]:
    """A config.json for a model_type of `FAMILIES`."""
    made: dict[str, Any] = {"model_type": kind, **SIZES, **rng.choice(FAMILIES[kind])}
    _sizes(made, kind, rng)
    _heads(made, kind, rng)
    _positions(made, kind, rng)
    _windows(made, kind, rng)
    _switches(made, kind, rng)
    for key in _OPTIONAL:
        if key in made and rng.random() < 0.2:
            del made[key]
    if kind == "qwen2_moe" and not made.get("use_sliding_window"):
        made.pop("layer_types", None)  # transformers has windows of no token then
    return made


def _sizes(made: dict[str, Any], kind: str, rng: random.Random) -> None:
    made["vocab_size"] = rng.choice([128, 131])
    made["intermediate_size"] = rng.choice([40, 64, 96, 100])
    if made["num_hidden_layers"] == SIZES["num_hidden_layers"] and rng.random() < 0.5:
        made["num_hidden_layers"] = n = rng.choice([2, 3, 4])
        for key in ("layer_types", "no_rope_layers"):
            if made.get(key):
                made[key] = (made[key] * 2)[:n]
    for key, values in (
        ("num_experts_per_tok", (1, 2, 3)),
        ("moe_intermediate_size", (24, 32)),
        ("shared_expert_intermediate_size", (32, 48)),
    ):
        if key in made and kind not in ("gpt_oss",):
            made[key] = rng.choice(values)


def _heads(made: dict[str, Any], kind: str, rng: random.Random) -> None:
    if kind in _OWN_HEADS:
        return
    heads = rng.choice([1, 2, 3, 4, 6, 8])
    made["num_attention_heads"] = heads
    made["num_key_value_heads"] = (
        heads if kind == "olmoe" else rng.choice([k for k in range(1, heads + 1) if heads % k == 0])
    )
    if "num_global_key_value_heads" in made:
        return
    if "head_dim" in made or (
        rng.random() < 0.4
        and kind in ("llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "mixtral", "glm4_moe", "seed_oss")
    ):
        made["head_dim"] = rng.choice([8, 16, 24, 32])
        if rng.random() < 0.4:  # heads of people's models, whose numbers divide little
            heads = rng.choice([1, 2, 3, 5, 7, 9, 14])
            made |= {"num_attention_heads": heads, "head_dim": rng.choice([10, 48, 80, 96, 112, 128, 192, 256])}
            made["num_key_value_heads"] = (
                heads if kind == "olmoe" else rng.choice([k for k in range(1, heads + 1) if heads % k == 0])
            )
            made["hidden_size"] = rng.choice([32, 56, 64, 100, 144])
    elif heads in (3, 6):
        made["hidden_size"] = 48


def _positions(made: dict[str, Any], kind: str, rng: random.Random) -> None:
    if kind in _PARTIAL and "rope_parameters" not in made and rng.random() < 0.6:
        made["partial_rotary_factor"] = rng.choice([0.25, 0.5, 0.75, 1.0])
    if kind == "olmo3" and "rope_parameters" in made:  # which transformers reads by kinds of layers alone
        made["rope_scaling"] = made.pop("rope_parameters")
    if kind in _OWN_ROPE or "rope_parameters" in made or "attention_factor" in made.get("rope_scaling", {}):
        return
    theta = rng.choice([500.0, 10000.0, 1000000.0])
    scaling = rng.choice(
        [
            None,
            None,
            {"rope_type": "linear", "factor": rng.choice([2.0, 8.0])},
            {"rope_type": "dynamic", "factor": rng.choice([2.0, 4.0])},
            {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32},
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, **rng.choice([{}, {"mscale": 0.7, "mscale_all_dim": 0.7}, {"truncate": False}])},
        ]
    )  # fmt: skip
    if scaling and rng.random() < 0.5:
        scaling["type" if rng.random() < 0.5 else "rope_type"] = scaling.pop("rope_type")
    made.pop("rope_scaling", None)
    if rng.random() < 0.5 and kind != "olmo3":
        made["rope_parameters"] = {"rope_theta": theta, **(scaling or {"rope_type": "default"})}
        made["rope_parameters"].setdefault("rope_type", made["rope_parameters"].pop("type", "default"))
    elif kind == "olmo3" and scaling and rng.random() < 0.5:  # of the layers that it stretches alone
        made["rope_scaling"] = {**scaling, "rope_theta": theta}
    else:
        made |= {"rope_theta": theta, "rope_scaling": scaling}
    if rng.random() < 0.3:
        made["max_position_embeddings"] = rng.choice([16, 64])


def _windows(made: dict[str, Any], kind: str, rng: random.Random) -> None:
    if kind not in _WINDOWS:
        return
    if rng.random() < 0.8:
        made["sliding_window"] = rng.choice([1, 2, 4, 7, 30])
    if kind in _SWITCHED:
        made["use_sliding_window"] = rng.random() < 0.7
        made["max_window_layers"] = rng.choice([0, 1, 2])
    if kind in ("gemma3_text", "cohere2", "exaone4") and rng.random() < 0.5:
        made["sliding_window_pattern"] = rng.choice([2, 3])
    n = made["num_hidden_layers"]
    if kind not in ("mistral", "mixtral", "starcoder2", "phi3") and rng.random() < 0.4:
        made["layer_types"] = [rng.choice(["sliding_attention", "full_attention"]) for _ in range(n)]


def _switches(made: dict[str, Any], kind: str, rng: random.Random) -> None:
    for key, values in {
        "tie_word_embeddings": (True, False), "attention_bias": (True, False), "mlp_bias": (True, False), "rms_norm_eps": (1e-6, 1e-5, 1e-2), "norm_topk_prob": (True, False),
        "hidden_act": ("silu", "gelu", "relu", "gelu_new"), "use_qkv_bias": (True, False), "use_parallel_residual": (True, False), "logit_scale": (0.5, 2.0),
        "final_logit_softcapping": (None, 3.0), "attn_logit_softcapping": (None, 4.0), "query_pre_attn_scalar": (8, 40), "mlp_only_layers": ([], [1]), "use_qk_norm": (True, False),
        "decoder_sparse_step": (1, 2), "routed_scaling_factor": (1.0, 2.5), "scale_attn_by_inverse_layer_idx": (True, False), "time_step_limit": ([0.0, 1.0], [0.01, 0.5]),
    }.items():  # fmt: skip
        if rng.random() < 0.3:
            made[key] = rng.choice(values)
    if kind in ("deepseek_v2", "qwen3_5_moe_text"):
        made.pop("norm_topk_prob", None)  # transformers does not read it there
    if kind in ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"):
        # What the convolution does with another one depends on the packages beside transformers.
        made["hidden_act"] = "silu"
