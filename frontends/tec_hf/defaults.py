"""What a key that config.json leaves out means: for each model_type the values of transformers' configuration classes, where they are not those of all.

Older exporters write few keys, and a model with a usual value has none for it: Qwen 2 without `use_sliding_window` has no window, GLM turns half of each head.
Source: transformers 5.24, models/*/configuration_*.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .namesakes import KEY as OF_FILE

_USUAL: dict[str, dict[str, Any]] = {
    "mistral": {
        "max_position_embeddings": 131072, "num_key_value_heads": 8, "sliding_window": 4096,
    },
    "qwen2": {
        "max_position_embeddings": 32768, "max_window_layers": 28, "num_key_value_heads": 32, "sliding_window": 4096, "use_sliding_window": False,
    },
    "qwen3": {
        "head_dim": 128, "max_position_embeddings": 32768, "max_window_layers": 28, "num_key_value_heads": 32, "sliding_window": 4096,
        "use_sliding_window": False,
    },
    "gemma": {
        "head_dim": 256, "hidden_act": "gelu_pytorch_tanh", "max_position_embeddings": 8192, "num_key_value_heads": 16,
    },
    "gemma2": {
        "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh",
        "max_position_embeddings": 8192, "num_key_value_heads": 4, "query_pre_attn_scalar": 256, "sliding_window": 4096,
    },
    "gemma3_text": {
        "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 131072, "num_key_value_heads": 4,
        "query_pre_attn_scalar": 256, "sliding_window": 4096, "rope_theta": 1e6,
    },
    "phi3": {
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
    },
    "olmo2": {
        "rms_norm_eps": 1e-5,
    },
    "smollm3": {
        "max_position_embeddings": 32768, "num_key_value_heads": 4, "use_sliding_window": False, "rope_theta": 2e6,
    },
    "qwen3_moe": {
        "max_position_embeddings": 32768, "moe_intermediate_size": 768, "norm_topk_prob": False, "num_experts": 128, "num_experts_per_tok": 8,
        "num_key_value_heads": 4, "sliding_window": 4096, "use_sliding_window": False,
    },
    "mixtral": {
        "max_position_embeddings": 131072, "num_experts_per_tok": 2, "num_key_value_heads": 8, "num_local_experts": 8, "rms_norm_eps": 1e-5,
        "rope_theta": 1e6,
    },
    "qwen2_moe": {
        "max_position_embeddings": 32768, "max_window_layers": 28, "moe_intermediate_size": 1408, "norm_topk_prob": False, "num_experts": 60,
        "num_experts_per_tok": 4, "num_key_value_heads": 16, "shared_expert_intermediate_size": 5632, "sliding_window": 4096,
        "use_sliding_window": False,
    },
    "gpt_oss": {
        "head_dim": 64, "max_position_embeddings": 131072, "num_experts_per_tok": 4, "num_key_value_heads": 8, "num_local_experts": 128,
        "rms_norm_eps": 1e-5, "sliding_window": 128, "rope_theta": 1.5e5,
    },
    "deepseek_v2": {
        "first_k_dense_replace": 0, "moe_intermediate_size": 1407, "n_routed_experts": 64, "n_shared_experts": 2, "norm_topk_prob": False,
        "q_lora_rank": 1536,
    },
    "deepseek_v3": {
        "first_k_dense_replace": 3, "max_position_embeddings": 4096, "moe_intermediate_size": 2048, "n_group": 8, "n_routed_experts": 256,
        "n_shared_experts": 1, "norm_topk_prob": True, "num_experts_per_tok": 8, "num_key_value_heads": 128, "q_lora_rank": 1536,
        "routed_scaling_factor": 2.5, "topk_group": 4,
    },
    "lfm2": {
        "max_position_embeddings": 128000, "norm_eps": 1e-5, "num_key_value_heads": 8, "rope_theta": 1e6,
    },
    "lfm2_moe": {
        "max_position_embeddings": 128000, "moe_intermediate_size": 1792, "norm_eps": 1e-5, "norm_topk_prob": True, "num_dense_layers": 2,
        "num_experts": 32, "num_experts_per_tok": 4, "num_key_value_heads": 8, "rope_theta": 1e6,
    },
    "mamba2": {
        "conv_kernel": 4, "head_dim": 64, "layer_norm_epsilon": 1e-5, "n_groups": 8, "num_heads": 128, "state_size": 128,
    },
    "qwen3_next": {
        "head_dim": 256, "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_value_head_dim": 128,
        "max_position_embeddings": 32768, "moe_intermediate_size": 512, "norm_topk_prob": True, "num_experts": 512, "num_experts_per_tok": 10,
        "num_key_value_heads": 2, "shared_expert_intermediate_size": 512, "partial_rotary_factor": 0.25,
    },
    "qwen3_5_text": {
        "head_dim": 256, "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_value_head_dim": 128,
        "max_position_embeddings": 32768, "num_key_value_heads": 4, "partial_rotary_factor": 0.25,
    },
    "qwen3_5_moe_text": {
        "head_dim": 256, "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_value_head_dim": 128,
        "max_position_embeddings": 32768, "moe_intermediate_size": 512, "num_experts": 256, "num_experts_per_tok": 8, "num_key_value_heads": 2,
        "shared_expert_intermediate_size": 512, "partial_rotary_factor": 0.25,
    },
    "gemma4_text": {
        "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size_per_layer_input": 256, "max_position_embeddings": 131072,
        "num_key_value_heads": 4, "sliding_window": 512,
    },
    "granite": {
        "attention_multiplier": 1.0,
    },
    "granitemoe": {
        "attention_multiplier": 1.0, "num_experts_per_tok": 2, "num_local_experts": 8,
    },
    "granitemoeshared": {
        "attention_multiplier": 1.0, "num_experts_per_tok": 2, "num_local_experts": 8,
    },
    "granitemoehybrid": {
        "attention_multiplier": 1.0, "num_experts_per_tok": 2, "num_local_experts": 8, "shared_intermediate_size": 1024, "mamba_n_heads": 128,
        "mamba_d_state": 256,
    },
    "falcon_h1": {
        "max_position_embeddings": 8192, "num_key_value_heads": 8, "rms_norm_eps": 1e-5, "mamba_d_ssm": 1024, "mamba_n_heads": 128, "mamba_d_state": 256,
    },
    "ministral3": {
        "head_dim": 128, "max_position_embeddings": 262144, "num_key_value_heads": 8, "rms_norm_eps": 1e-5,
    },
    "glm4_moe_lite": {
        "max_position_embeddings": 202752, "moe_intermediate_size": 1536, "n_group": 1, "n_routed_experts": 64, "n_shared_experts": 1,
        "norm_topk_prob": True, "num_experts_per_tok": 4, "num_key_value_heads": 20, "q_lora_rank": 768, "kv_lora_rank": 512, "qk_nope_head_dim": 192,
        "qk_rope_head_dim": 64, "v_head_dim": 256, "rms_norm_eps": 1e-5, "routed_scaling_factor": 1.8, "topk_group": 1,
    },
    "cohere": {
        "layer_norm_eps": 1e-5, "logit_scale": 0.0625, "max_position_embeddings": 8192, "rope_theta": 5e5,
    },
    "cohere2": {
        "layer_norm_eps": 1e-5, "logit_scale": 0.0625, "max_position_embeddings": 8192, "sliding_window": 4096,
    },
    "olmo3": {
        "rms_norm_eps": 1e-5, "sliding_window": 4096, "rope_theta": 5e5,
    },
    "olmoe": {
        "max_position_embeddings": 4096, "norm_topk_prob": False, "num_experts": 64, "num_experts_per_tok": 8, "rms_norm_eps": 1e-5,
    },
    "glm": {
        "head_dim": 128, "max_position_embeddings": 131072, "num_key_value_heads": 2, "rms_norm_eps": 1.5625e-7, "partial_rotary_factor": 0.5,
    },
    "glm4": {
        "head_dim": 128, "max_position_embeddings": 131072, "num_key_value_heads": 2, "rms_norm_eps": 1.5625e-7, "partial_rotary_factor": 0.5,
    },
    "glm4_moe": {
        "first_k_dense_replace": 1, "max_position_embeddings": 131072, "moe_intermediate_size": 1408, "n_group": 1, "n_routed_experts": 128,
        "n_shared_experts": 1, "norm_topk_prob": True, "num_experts_per_tok": 8, "num_key_value_heads": 8, "rms_norm_eps": 1e-5, "topk_group": 1,
        "partial_rotary_factor": 0.5,
    },
    "phi": {
        "hidden_act": "gelu_new", "layer_norm_eps": 1e-5, "partial_rotary_factor": 0.5,
    },
    "stablelm": {
        "layer_norm_eps": 1e-5, "max_position_embeddings": 4096, "num_key_value_heads": 32, "use_parallel_residual": False,
        "partial_rotary_factor": 0.25,
    },
    "starcoder2": {
        "hidden_act": "gelu_pytorch_tanh", "max_position_embeddings": 4096, "norm_epsilon": 1e-5, "num_key_value_heads": 2,
    },
    "nemotron": {
        "hidden_act": "relu2", "max_position_embeddings": 4096, "norm_eps": 1e-5, "partial_rotary_factor": 0.5,
    },
    "gpt_neox": {
        "hidden_act": "gelu", "layer_norm_eps": 1e-5, "use_parallel_residual": True, "rotary_pct": 0.25, "rotary_emb_base": 1e4,
    },
    "gpt2": {
        "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new", "n_positions": 1024,
    },
    "exaone4": {
        "num_key_value_heads": 32, "rms_norm_eps": 1e-5, "sliding_window": 4096, "sliding_window_pattern": 4,
    },
    "arcee": {
        "hidden_act": "relu2", "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
    },
    "ernie4_5": {
        "head_dim": 128, "max_position_embeddings": 131072, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 5e5,
    },
    "helium": {
        "head_dim": 128, "max_position_embeddings": 4096, "num_key_value_heads": 20, "rms_norm_eps": 1e-8, "rope_theta": 1e5,
    },
    "hunyuan_v1_dense": {
        "rms_norm_eps": 1e-5,
    },
    "dots1": {
        "first_k_dense_replace": 0, "n_group": 1, "norm_topk_prob": False, "num_key_value_heads": 32, "routed_scaling_factor": 1.0, "topk_group": 1,
        "sliding_window": 4096, "max_window_layers": 62,
    },
    "exaone_moe": {
        "num_key_value_heads": 32, "rms_norm_eps": 1e-5, "sliding_window": 4096, "sliding_window_pattern": 4, "moe_intermediate_size": 1024,
        "num_experts": 64, "num_experts_per_tok": 8, "num_shared_experts": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.5, "n_group": 1,
        "topk_group": 1,
    },
    "ernie4_5_moe": {
        "max_position_embeddings": 131072, "num_key_value_heads": 4, "rms_norm_eps": 1e-5, "rope_theta": 5e5, "tie_word_embeddings": True,
        "moe_intermediate_size": 1536, "moe_k": 6, "moe_num_experts": 64, "moe_num_shared_experts": 2,
    },
    "hunyuan_v1_moe": {
        "rms_norm_eps": 1e-5, "num_experts": 1, "moe_topk": 1,
    },
    "apertus": {
        "hidden_act": "xielu", "max_position_embeddings": 65536, "rms_norm_eps": 1e-5, "rope_theta": 12e6,
    },
    "nemotron_h": {
        "max_position_embeddings": 4096, "head_dim": 128, "num_key_value_heads": 8, "layer_norm_epsilon": 1e-5, "ssm_state_size": 128,
        "mamba_num_heads": 128, "mamba_head_dim": 64,
        "n_groups": 8, "conv_kernel": 4, "time_step_min": 0.001, "n_routed_experts": 8, "moe_intermediate_size": 7688,
        "moe_shared_expert_intermediate_size": 7688, "num_experts_per_tok": 2, "norm_topk_prob": True,
    },
    "mamba": {
        "conv_kernel": 4, "state_size": 16, "layer_norm_epsilon": 1e-5, "time_step_rank": "auto", "tie_word_embeddings": True,
    },
    "falcon_mamba": {
        "conv_kernel": 4, "state_size": 16, "layer_norm_epsilon": 1e-5, "time_step_rank": "auto", "tie_word_embeddings": True, "mixer_rms_eps": 1e-6,
    },
    "jamba": {
        "max_position_embeddings": 262144, "num_key_value_heads": 8, "num_experts": 16, "num_experts_per_tok": 2,
    },
    "bitnet": {
        "hidden_act": "relu2", "num_key_value_heads": 5, "rms_norm_eps": 1e-5, "rope_theta": 5e5,
    },
    "llama4_text": {
        "head_dim": 128, "max_position_embeddings": 131072, "num_key_value_heads": 8, "num_local_experts": 16, "num_experts_per_tok": 1, "rms_norm_eps": 1e-5,
        "rope_theta": 5e5, "attention_chunk_size": 8192, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
    },
    "gemma3n_text": {
        "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size_per_layer_input": 256, "max_position_embeddings": 32768, "num_key_value_heads": 2,
        "sliding_window": 512, "sliding_window_pattern": 5, "final_logit_softcapping": 30.0, "num_kv_shared_layers": 15, "rope_theta": 1e6,
    },
    "phimoe": {
        "max_position_embeddings": 131072, "num_key_value_heads": 8, "num_local_experts": 16, "num_experts_per_tok": 2, "rms_norm_eps": 1e-5,
        "rope_theta": 1e6,
    },
    "afmoe": {
        "head_dim": 128, "max_position_embeddings": 16384, "num_experts": 64, "num_experts_per_tok": 6, "num_shared_experts": 2, "rms_norm_eps": 1e-5,
        "sliding_window": 1024, "moe_intermediate_size": 1408, "route_scale": 1.0,
    },
    "minimax_m2": {
        "head_dim": 128, "max_position_embeddings": 196608, "num_key_value_heads": 8, "num_local_experts": 256, "num_experts_per_tok": 8, "rope_theta": 5e6,
    },
    "minicpm3": {
        "max_position_embeddings": 32768, "num_key_value_heads": 40, "rms_norm_eps": 1e-5, "tie_word_embeddings": True, "kv_lora_rank": 256, "q_lora_rank": 768,
        "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 256,
    },
    "deepseek": {
        "n_shared_experts": 2, "n_routed_experts": 64, "num_experts_per_tok": 6, "moe_intermediate_size": 1408, "norm_topk_prob": False,
    },
    "gpt_bigcode": {
        "layer_norm_epsilon": 1e-5, "activation_function": "gelu_pytorch_tanh", "multi_query": True, "tie_word_embeddings": True,
        "n_positions": 1024,
    },
    "gptj": {
        "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new", "rotary_dim": 64, "n_embd": 4096, "n_head": 16,
    },
    "falcon": {
        "layer_norm_epsilon": 1e-5, "activation": "gelu", "multi_query": True, "tie_word_embeddings": True,
    },
    "bloom": {
        "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True,
    },
    "mpt": {
        "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True, "d_model": 2048, "n_heads": 16, "n_layers": 24, "max_seq_len": 2048,
    },
    "seed_oss": {
        "head_dim": 128, "max_position_embeddings": 524288, "num_key_value_heads": 8,
    },
    "whisper": {
        "d_model": 384, "encoder_layers": 4, "decoder_layers": 4, "encoder_attention_heads": 6, "decoder_attention_heads": 6, "encoder_ffn_dim": 1536,
        "decoder_ffn_dim": 1536, "num_mel_bins": 80, "max_source_positions": 1500, "max_target_positions": 448, "activation_function": "gelu",
        "decoder_start_token_id": 50257, "vocab_size": 51865,
    },
}  # fmt: skip
_ALSO = {"ministral": "mistral", "gemma3": "gemma3_text", "gemma4": "gemma4_text"}
_QWEN2_VL: dict[str, Any] = {"max_window_layers": 80, "num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1e6}
# Of models that compute what another does (`namesakes`), where a key that they leave out means something else than there.
_OF_FILE: dict[str, dict[str, Any]] = {
    "qwen2_vl": _QWEN2_VL, "qwen2_vl_text": _QWEN2_VL, "qwen2_5_vl": _QWEN2_VL, "qwen2_5_vl_text": _QWEN2_VL,
    "qwen3_vl_text": {"max_position_embeddings": 128000, "rope_theta": 5e5},
    "qwen3_vl_moe_text": {
        "max_position_embeddings": 128000, "moe_intermediate_size": 1408, "num_experts": 60, "num_experts_per_tok": 4, "num_key_value_heads": 16,
        "rope_theta": 5e5,
    },
    "exaone": {"max_position_embeddings": 4096, "num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 5e5},
    "internlm3": {"head_dim": 128, "max_position_embeddings": 32768, "num_key_value_heads": 2, "rms_norm_eps": 1e-5},
}  # fmt: skip
# Of an encoder and a decoder: what sizes of the decoder are called elsewhere. `num_hidden_layers` is there the encoder's.
_DECODER = {
    "hidden_size": "d_model", "num_hidden_layers": "decoder_layers", "num_attention_heads": "decoder_attention_heads",
    "max_position_embeddings": "max_target_positions",
}  # fmt: skip
# Whose layers all have the window, or none: `layer_types` is not read.
_ALIKE = ("mistral", "ministral3", "mixtral", "qwen3_moe")
_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts")  # three names for one number
_EPSILONS = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps")
_GPT_OSS_ROPE: dict[str, Any] = {
    "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False, "original_max_position_embeddings": 4096,
}  # fmt: skip
_MINISTRAL3_ROPE: dict[str, Any] = {
    "rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 16384, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0,
    "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1,
}  # fmt: skip
_APERTUS_ROPE: dict[str, Any] = {
    "rope_type": "llama3", "rope_theta": 12e6, "factor": 8.0, "original_max_position_embeddings": 8192, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
}  # fmt: skip
_GEMMA4_ROPE: dict[str, dict[str, Any]] = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
}


def complete(config: dict[str, Any]) -> None:
    """Put what is left out into the settings of a config.json, and `layer_types` where another key says it."""
    kind = str(config["model_type"])
    kind = _ALSO.get(kind, kind)
    usual = _USUAL.get(kind, {}) | _OF_FILE.get(str(config.get(OF_FILE)), {})
    for key, value in usual.items():
        if not any(other in config for other in _COUNTS if key in _COUNTS):
            config.setdefault(key, value)
    if kind == "whisper":
        config.update({ours: config[theirs] for ours, theirs in _DECODER.items()})
    own = next((key for key in _EPSILONS if key in usual), "rms_norm_eps")
    for other in _EPSILONS:
        if other != own and own in config:
            config.pop(other, None)
    if kind == "gemma4_text" and not config.get("rope_parameters") and not config.get("rope_scaling"):
        config["rope_parameters"] = {name: dict(rope) for name, rope in _GEMMA4_ROPE.items()}
    if "hidden_activation" in usual and config["hidden_activation"] is not None:
        config.pop("hidden_act", None)  # an older name, which is not read where both stand
    if kind == "gpt_neox":
        # Its own names, beside which the usual ones are not read.
        config |= {"rope_theta": config["rotary_emb_base"], "partial_rotary_factor": config["rotary_pct"]}
    if kind in ("gpt2", "gpt_bigcode", "gptj"):
        config["hidden_act"] = config["activation_function"]
    if kind == "gpt_bigcode":
        config["num_key_value_heads"] = 1 if config["multi_query"] else _heads(config)
    if kind in ("gpt2", "gptj"):
        config["num_key_value_heads"] = _heads(config)
    own_rule = _OWN_RULES.get(kind)
    if own_rule is not None:
        own_rule(config)
    if kind == "apertus" and not config.get("rope_parameters") and not config.get("rope_scaling"):
        config["rope_scaling"] = dict(_APERTUS_ROPE)
    if kind == "hunyuan_v1_moe":
        for key in ("num_experts", "moe_topk"):
            config[key] = _one_of_all(config[key])
    if config["model_type"] in _ALIKE:
        config.pop("layer_types", None)
    if kind == "gpt_oss" and config.get("rope_parameters") is None and config.get("rope_scaling") is None:
        config["rope_scaling"] = dict(_GPT_OSS_ROPE)
    if kind == "ministral3" and config.get("rope_parameters") is None and config.get("rope_scaling") is None:
        config["rope_parameters"] = dict(_MINISTRAL3_ROPE)
    if kind == "gemma" and config["hidden_act"] == "gelu":
        config["hidden_act"] = "gelu_pytorch_tanh"  # the first files said the one and meant the other
    if kind == "smollm3" and config.get("layer_types") is not None:
        config["use_sliding_window"] = True  # it says which layers have a window where `layer_types` does not
    layers, rule = config.get("num_hidden_layers"), _LAYERS.get(kind)
    if config.get("layer_types") is None and rule is not None and type(layers) is int and 0 < layers < 1 << 16:
        config["layer_types"] = [rule(config, k) for k in range(layers)]


def _heads(config: dict[str, Any]) -> Any:
    """Of queries: where a file has both names of a size, transformers takes the usual one."""
    return config.get("num_attention_heads", config.get("n_head"))


def _falcon(config: dict[str, Any]) -> None:
    """One head of keys, one for each group of queries, or as many as of queries."""
    config["hidden_act"] = config["activation"]
    if type(config.get("n_embed")) is int:
        config.setdefault("hidden_size", config["n_embed"])
    config.pop("intermediate_size", None)  # its own name is read alone
    if type(config.get("ffn_hidden_size")) is int:
        config["intermediate_size"] = config["ffn_hidden_size"]
    heads = config.get("num_attention_heads")
    if config.get("new_decoder_architecture"):
        config["num_key_value_heads"] = config.get("num_kv_heads") or heads
    else:
        config["num_key_value_heads"] = 1 if config["multi_query"] else heads


def _bloom(config: dict[str, Any]) -> None:
    """As many heads of keys as of queries, and networks of one kind and width whatever the file says."""
    config["hidden_act"] = "gelu_pytorch_tanh"
    if type(config.get("n_embed")) is int:
        config["hidden_size"] = config["n_embed"]
    config.pop("intermediate_size", None)
    config["num_key_value_heads"] = _heads(config)


def _mpt(config: dict[str, Any]) -> None:
    """Sizes have names of their own, and what attention is has a table of its own. Networks are of one kind."""
    config["hidden_act"] = "gelu"
    for key, theirs in (
        ("hidden_size", "d_model"),
        ("num_attention_heads", "n_heads"),
        ("num_hidden_layers", "n_layers"),
        ("max_position_embeddings", "max_seq_len"),
    ):
        config.setdefault(key, config[theirs])
    own = config.get("attn_config")
    own = own if isinstance(own, dict) else {}
    for key in ("alibi", "alibi_bias_max", "clip_qkv", "prefix_lm", "qk_ln", "softmax_scale"):
        if own.get(key) is not None:
            config[key] = own[key]
    multiquery = own.get("attn_type") == "multiquery_attention"
    config["num_key_value_heads"] = 1 if multiquery else config["num_attention_heads"]
    config.pop("intermediate_size", None)  # a multiple of the hidden size
    if type(config.get("expansion_ratio")) is int and type(config["hidden_size"]) is int:
        config["intermediate_size"] = config["expansion_ratio"] * config["hidden_size"]


def _minimax(config: dict[str, Any]) -> None:
    turned, size = config.get("rotary_dim"), config.get("head_dim")
    if type(turned) is int and type(size) is int and size > 0:
        config.setdefault("partial_rotary_factor", turned / size)


def _gptj(config: dict[str, Any]) -> None:
    """The share of a head that is turned. The angles are its own: transformers reads no others (modeling_gptj.py, create_sinusoidal_positions)."""
    for key in ("rope_parameters", "rope_scaling", "rope_theta"):
        config.pop(key, None)
    heads, hidden, turned = _heads(config), config.get("hidden_size", config["n_embd"]), config.get("rotary_dim")
    if all(type(n) is int and n > 0 for n in (heads, hidden, turned)):
        config["partial_rotary_factor"] = turned / (hidden // heads)


def _minicpm3(config: dict[str, Any]) -> None:
    """Factors that are null are none."""
    layers, hidden, heads = (config.get(n) for n in ("num_hidden_layers", "hidden_size", "num_attention_heads"))
    if type(layers) is int and config["scale_depth"] is None:
        config["scale_depth"] = layers**0.5
    if type(hidden) is int and type(heads) is int and heads > 0 and config.get("v_head_dim") is None:
        config["v_head_dim"] = hidden // heads


# Of Nemotron-H: the letter of a kind of layer.
_LETTERS = {"M": "linear_attention", "E": "moe", "*": "full_attention", "-": "mlp"}


def _nemotron_h(config: dict[str, Any]) -> None:
    """Kinds of layers are letters, or a list that other models call `layer_types`; it says how many there are."""
    letters, kinds = config.get("hybrid_override_pattern"), config.get("layers_block_type")
    if kinds is None and isinstance(letters, str):
        kinds = [_LETTERS.get(c, c) for c in letters]
    if isinstance(kinds, list) and config.get("layer_types") is None:
        config["layer_types"] = kinds
    if isinstance(config.get("layer_types"), list):
        config["num_hidden_layers"] = len(config["layer_types"])
    config["time_step_limit"] = [config["time_step_min"], float("inf")]


# What else a kind of model's configuration means.
_OWN_RULES: dict[str, Callable[[dict[str, Any]], None]] = {
    "gptj": _gptj, "falcon": _falcon, "bloom": _bloom, "mpt": _mpt, "minimax_m2": _minimax, "minicpm3": _minicpm3, "nemotron_h": _nemotron_h,
}  # fmt: skip


def _one_of_all(value: Any) -> Any:
    """The number that a list has for each layer, where they are alike."""
    return value[0] if isinstance(value, list) and value and value.count(value[0]) == len(value) else value


# ---- the kind of layer k


def _windows_behind(config: dict[str, Any], k: int) -> str:
    on = config.get("use_sliding_window") and config.get("sliding_window") is not None
    return "sliding_attention" if on and k >= int(config["max_window_layers"]) else "full_attention"


def _windows_of_dots(config: dict[str, Any], k: int) -> str:
    on = config.get("sliding_window") is not None and k >= int(config["max_window_layers"])
    return "sliding_attention" if on else "full_attention"


def _windows_before(config: dict[str, Any], k: int) -> str:
    on = config.get("use_sliding_window") and k % 2 == 0 and k < int(config["max_window_layers"])
    return "sliding_attention" if on else "full_attention"


def _windows_without_positions(config: dict[str, Any], k: int) -> str:
    turned = config.get("no_rope_layers") or []
    turns = turned[k] if k < len(turned) else (k + 1) % int(config.get("no_rope_layer_interval") or 4)
    on = config.get("use_sliding_window") and config.get("sliding_window") is not None and not turns
    return "sliding_attention" if on else "full_attention"


def _linear(config: dict[str, Any], k: int) -> str:
    return "linear_attention" if (k + 1) % int(config.get("full_attention_interval") or 4) else "full_attention"


def _all_linear(config: dict[str, Any], k: int) -> str:
    return "linear_attention"


def _convolutions(config: dict[str, Any], k: int) -> str:
    whole = config.get("full_attn_idxs")
    return "full_attention" if whole is None or k in whole else "conv"


_LAYERS: dict[str, Callable[[dict[str, Any], int], str]] = {
    "qwen2": _windows_behind, "qwen3": _windows_behind, "dots1": _windows_of_dots, "qwen2_moe": _windows_before, "smollm3": _windows_without_positions,
    "qwen3_next": _linear, "qwen3_5_text": _linear, "qwen3_5_moe_text": _linear, "lfm2": _convolutions,
    "granitemoehybrid": _all_linear,
}  # fmt: skip
