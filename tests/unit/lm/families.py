"""Small configurations of every architecture, usual ones and unusual ones, and the weights that tests give them.

`tools/lm_references.py` runs them with transformers and keeps logits in `data/families.json.gz`; the gate, which has no PyTorch, holds `tec.lm` against those.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).parent / "data" / "families.json.gz"
SIZES: dict[str, Any] = {
    "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 128,
    "max_position_embeddings": 128, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
TOKENS = [int(t) for t in np.random.default_rng(7).integers(3, 128, 20)]
KEPT = 2  # of the last tokens, whose logits are kept
_STATES = {
    "mamba_n_heads": 8,
    "mamba_n_groups": 2,
    "mamba_d_state": 16,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_chunk_size": 8,
}
# By model_type: what differs from the sizes above.
FAMILIES: dict[str, list[dict[str, Any]]] = {
    "llama": [
        {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 500.0}, "max_position_embeddings": 16},
        {},
        {"head_dim": 24, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
        {
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 4.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
                "rope_theta": 10000.0,
            }
        },
        {
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 32,
                "rope_theta": 10000.0,
                "beta_fast": 20,
                "beta_slow": 2,
            }
        },
        {
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 32,
                "rope_theta": 10000.0,
                "attention_factor": 1.3,
            }
        },
        {
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 32,
                "rope_theta": 10000.0,
                "mscale": 0.7,
                "mscale_all_dim": 1.0,
                "truncate": False,
            }
        },
        {"rope_scaling": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}},
        {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 500.0}},
        {"num_key_value_heads": 1, "hidden_act": "gelu"},
        {"num_key_value_heads": 4, "hidden_act": "relu"},
    ],
    "mistral": [
        {"sliding_window": 5, "head_dim": 32},
        {"sliding_window": None},
    ],
    "qwen2": [
        {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
        {
            "tie_word_embeddings": True,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "sliding_window": 4,
            "use_sliding_window": True,
        },
        {},
    ],
    "qwen3": [
        {"head_dim": 32, "attention_bias": True},
        {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
    ],
    "gemma": [
        {"head_dim": 24},
        {"head_dim": 24},
        {"head_dim": 16, "tie_word_embeddings": True, "num_key_value_heads": 1},
    ],
    "gemma2": [
        {
            "head_dim": 16,
            "sliding_window": 5,
            "query_pre_attn_scalar": 24,
            "attn_logit_softcapping": None,
            "final_logit_softcapping": 10.0,
        },
        {"head_dim": 16, "sliding_window": 5, "attention_bias": True, "attn_logit_softcapping": 5.0},
    ],
    "gemma3_text": [
        {"head_dim": 32, "sliding_window": 5, "num_hidden_layers": 7},
        {
            "head_dim": 16,
            "sliding_window": 5,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
        },
        {"head_dim": 16, "final_logit_softcapping": 4.0, "attn_logit_softcapping": 3.0},
    ],
    "phi3": [
        {
            "rope_parameters": {
                "rope_type": "longrope",
                "short_factor": [1.1, 1.1, 1.1, 1.1, 1.2, 1.1, 1.1, 1.1],
                "long_factor": [2.0, 2.0, 2.0, 3.0, 2.0, 2.0, 2.0, 2.0],
                "rope_theta": 10000.0,
                "original_max_position_embeddings": 16,
            },
            "original_max_position_embeddings": 16,
            "max_position_embeddings": 128,
        },
        {"partial_rotary_factor": 0.5},
        {
            "rope_parameters": {
                "rope_type": "longrope",
                "short_factor": [1.1, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1],
                "long_factor": [2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0],
                "rope_theta": 10000.0,
                "original_max_position_embeddings": 64,
            },
            "original_max_position_embeddings": 64,
            "max_position_embeddings": 128,
        },
        {"sliding_window": 5, "tie_word_embeddings": True},
    ],
    "ministral3": [
        {
            "head_dim": 24,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 16.0,
                "original_max_position_embeddings": 8,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "llama_4_scaling_beta": 0.3,
            },
        },
    ],
    "granitemoehybrid": [
        {
            **_STATES,
            "layer_types": ["linear_attention", "full_attention", "linear_attention"],
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "shared_intermediate_size": 40,
            "intermediate_size": 32,
            "attention_multiplier": 0.1,
            "embedding_multiplier": 12.0,
            "logits_scaling": 8.0,
            "residual_multiplier": 0.22,
        },
        {
            **_STATES,
            "layer_types": ["full_attention", "linear_attention", "linear_attention"],
            "num_local_experts": 0,
            "num_experts_per_tok": 0,
            "shared_intermediate_size": 72,
            "position_embedding_type": "rope",
            "mamba_n_groups": 1,
            "tie_word_embeddings": True,
        },
    ],
    "falcon_h1": [
        {
            **_STATES,
            "head_dim": 24,
            "mamba_d_ssm": 96,
            "mamba_n_heads": 6,
            "lm_head_multiplier": 0.4,
            "embedding_multiplier": 3.0,
            "mlp_multipliers": [0.7, 0.3],
            "key_multiplier": 0.5,
            "attention_out_multiplier": 0.9,
            "attention_in_multiplier": 1.2,
            "ssm_multipliers": [0.5, 0.25, 0.3, 0.4, 0.6],
            "ssm_in_multiplier": 1.5,
            "ssm_out_multiplier": 0.2,
        },
        {
            **_STATES,
            "head_dim": 16,
            "mamba_d_ssm": 96,
            "mamba_n_heads": 6,
            "mamba_rms_norm": True,
            "mamba_norm_before_gate": False,
        },
        {
            **_STATES,
            "head_dim": 16,
            "mamba_d_ssm": 96,
            "mamba_n_heads": 6,
            "mamba_rms_norm": True,
            "tie_word_embeddings": True,
        },
    ],
    "glm4_moe_lite": [
        {
            "n_routed_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 32,
            "n_shared_experts": 2,
            "kv_lora_rank": 24,
            "q_lora_rank": 20,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 16,
            "v_head_dim": 12,
            "num_key_value_heads": 4,
            "mlp_layer_types": ["dense", "dense", "sparse"],
        },
    ],
    "olmo2": [
        {"attention_bias": True},
    ],
    "smollm3": [
        {},
        {"no_rope_layers": [1, 0, 1], "use_sliding_window": True, "sliding_window": 4},
    ],
    "qwen3_moe": [
        {
            "num_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 32,
            "decoder_sparse_step": 2,
            "norm_topk_prob": True,
        },
    ],
    "mixtral": [
        {"num_local_experts": 4, "sliding_window": 4},
    ],
    "qwen2_moe": [
        {
            "num_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 48,
            "norm_topk_prob": True,
            "qkv_bias": False,
        },
    ],
    "gpt_oss": [
        {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16, "sliding_window": 5},
        {
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "head_dim": 32,
            "sliding_window": 5,
            "swiglu_limit": 0.1,
            "rope_parameters": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 32,
                "rope_theta": 10000.0,
                "truncate": False,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
            },
        },
    ],
    "deepseek_v2": [
        {
            "n_routed_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 32,
            "n_shared_experts": 2,
            "kv_lora_rank": 24,
            "q_lora_rank": None,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 16,
            "v_head_dim": 12,
            "first_k_dense_replace": 1,
            "num_key_value_heads": 4,
            "n_group": 1,
            "topk_group": 1,
            "head_dim": 8,
        },
        {
            "n_routed_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 32,
            "n_shared_experts": 2,
            "kv_lora_rank": 24,
            "q_lora_rank": 20,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 16,
            "v_head_dim": 12,
            "first_k_dense_replace": 1,
            "num_key_value_heads": 4,
            "n_group": 4,
            "topk_group": 2,
            "head_dim": 8,
            "topk_method": "group_limited_greedy",
            "routed_scaling_factor": 2.0,
        },
        {
            "n_routed_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 32,
            "n_shared_experts": 2,
            "kv_lora_rank": 24,
            "q_lora_rank": None,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 16,
            "v_head_dim": 12,
            "first_k_dense_replace": 1,
            "num_key_value_heads": 4,
            "n_group": 1,
            "topk_group": 1,
            "head_dim": 8,
            "rope_parameters": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 32,
                "rope_theta": 10000.0,
                "mscale": 0.7,
                "mscale_all_dim": 0.7,
            },
        },
    ],
    "deepseek_v3": [
        {
            "n_routed_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 32,
            "n_shared_experts": 2,
            "kv_lora_rank": 24,
            "q_lora_rank": 20,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 16,
            "v_head_dim": 12,
            "first_k_dense_replace": 1,
            "num_key_value_heads": 4,
            "n_group": 4,
            "topk_group": 2,
            "head_dim": 8,
            "routed_scaling_factor": 2.5,
        },
        {
            "n_routed_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 32,
            "n_shared_experts": 2,
            "kv_lora_rank": 24,
            "q_lora_rank": None,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 16,
            "v_head_dim": 12,
            "first_k_dense_replace": 1,
            "num_key_value_heads": 4,
            "n_group": 1,
            "topk_group": 1,
            "head_dim": 8,
            "rope_parameters": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 32,
                "rope_theta": 10000.0,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
            },
            "rope_interleave": False,
        },
    ],
    "lfm2": [
        {"full_attn_idxs": [1], "conv_L_cache": 3, "block_auto_adjust_ff_dim": True, "block_multiple_of": 16},
        {
            "layer_types": ["conv", "full_attention", "conv"],
            "conv_L_cache": 4,
            "conv_bias": True,
            "block_auto_adjust_ff_dim": False,
        },
    ],
    "lfm2_moe": [
        {
            "layer_types": ["conv", "full_attention", "conv"],
            "num_dense_layers": 1,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
        },
    ],
    "mamba2": [
        {
            "num_heads": 8,
            "head_dim": 16,
            "state_size": 12,
            "n_groups": 2,
            "expand": 2,
            "conv_kernel": 4,
            "chunk_size": 8,
        },
        {
            "num_heads": 4,
            "head_dim": 32,
            "state_size": 16,
            "n_groups": 1,
            "expand": 2,
            "use_conv_bias": False,
            "use_bias": True,
            "tie_word_embeddings": True,
            "chunk_size": 16,
        },
    ],
    "qwen3_next": [
        {
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 48,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 8,
            "head_dim": 32,
            "num_hidden_layers": 4,
            "layer_types": None,
        },
        {
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 48,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 2,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 16,
            "head_dim": 16,
            "num_hidden_layers": 4,
            "mlp_only_layers": [0],
            "norm_topk_prob": False,
        },
    ],
    "qwen3_5_text": [
        {
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 8,
            "head_dim": 32,
            "num_hidden_layers": 4,
        },
    ],
    "qwen3_5_moe_text": [
        {
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 48,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 8,
            "head_dim": 32,
            "num_hidden_layers": 4,
        },
    ],
    "gemma4_text": [
        {
            "head_dim": 16,
            "global_head_dim": 32,
            "sliding_window": 5,
            "num_hidden_layers": 6,
            "hidden_size_per_layer_input": 8,
            "vocab_size_per_layer_input": 128,
        },
        {
            "head_dim": 16,
            "global_head_dim": 32,
            "sliding_window": 5,
            "num_hidden_layers": 6,
            "hidden_size_per_layer_input": 8,
            "vocab_size_per_layer_input": 128,
            "layer_types": [
                "sliding_attention",
                "full_attention",
                "sliding_attention",
                "full_attention",
                "sliding_attention",
                "full_attention",
            ],
            "num_kv_shared_layers": 2,
            "use_double_wide_mlp": True,
            "final_logit_softcapping": 5.0,
        },
        {
            "head_dim": 16,
            "global_head_dim": 32,
            "sliding_window": 5,
            "num_hidden_layers": 6,
            "hidden_size_per_layer_input": 0,
            "attention_k_eq_v": True,
            "num_global_key_value_heads": 1,
            "enable_moe_block": True,
            "num_experts": 8,
            "top_k_experts": 2,
            "moe_intermediate_size": 32,
        },
    ],
    "granite": [
        {"embedding_multiplier": 12.0, "residual_multiplier": 0.22, "attention_multiplier": 0.1, "logits_scaling": 8.0},
        {
            "embedding_multiplier": 12.0,
            "residual_multiplier": 0.22,
            "attention_multiplier": 0.25,
            "logits_scaling": 4.0,
        },
    ],
    "granitemoe": [
        {
            "embedding_multiplier": 12.0,
            "residual_multiplier": 0.22,
            "attention_multiplier": 0.1,
            "logits_scaling": 8.0,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
        },
    ],
    "granitemoeshared": [
        {"num_local_experts": 8, "num_experts_per_tok": 2, "shared_intermediate_size": 40},
        {
            "num_local_experts": 8,
            "num_experts_per_tok": 3,
            "shared_intermediate_size": 192,
            "attention_multiplier": 0.25,
        },
    ],
    "cohere": [
        {"logit_scale": 0.3, "use_qk_norm": True},
        {"logit_scale": 0.3, "use_qk_norm": False, "attention_bias": True},
    ],
    "cohere2": [
        {"head_dim": 16, "sliding_window": 5, "num_hidden_layers": 5},
    ],
    "olmo": [
        {"clip_qkv": 0.2},
        {"tie_word_embeddings": True},
    ],
    "olmo3": [
        {
            "sliding_window": 5,
            "num_hidden_layers": 5,
            "rope_parameters": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 32,
                "rope_theta": 10000.0,
                "attention_factor": 1.2,
            },
        },
    ],
    "olmoe": [
        {"num_experts": 8, "num_experts_per_tok": 2, "norm_topk_prob": True, "num_key_value_heads": 4},
        {"num_experts": 8, "num_experts_per_tok": 2, "clip_qkv": 0.3},
    ],
    "glm": [
        {"head_dim": 16},
    ],
    "glm4": [
        {"head_dim": 32},
    ],
    "glm4_moe": [
        {
            "head_dim": 32,
            "n_routed_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "n_shared_experts": 1,
            "first_k_dense_replace": 1,
            "use_qk_norm": True,
        },
        {"head_dim": 22, "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32},
    ],
    "phi": [
        {"partial_rotary_factor": 0.5, "qk_layernorm": True},
        {"partial_rotary_factor": 0.4},
        {"tie_word_embeddings": True},
    ],
    "stablelm": [
        {"use_qkv_bias": True},
        {"use_parallel_residual": True, "num_key_value_heads": 4},
    ],
    "starcoder2": [
        {"sliding_window": 5},
        {"use_bias": False},
    ],
    "nemotron": [
        {"partial_rotary_factor": 0.5},
        {"head_dim": 20, "partial_rotary_factor": 0.25},
    ],
    "gpt_neox": [
        {},
        {"use_parallel_residual": False, "rotary_pct": 1.0, "tie_word_embeddings": True},
    ],
    "gpt2": [
        {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 64},
    ],
    "exaone4": [
        {"sliding_window": 5, "num_hidden_layers": 5},
    ],
    "arcee": [
        {},
    ],
    "ernie4_5": [
        {"head_dim": 16},
        {"head_dim": 16, "use_bias": True},
    ],
    "helium": [
        {"head_dim": 16},
    ],
    "hunyuan_v1_dense": [
        {"head_dim": 16},
        {
            "rope_parameters": {"rope_type": "dynamic", "alpha": 1000.0, "rope_theta": 10000.0, "factor": 1.0},
            "head_dim": 24,
        },
    ],
    "seed_oss": [
        {"head_dim": 16, "attention_out_bias": True},
    ],
    "dots1": [
        {
            "n_routed_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 32,
            "n_shared_experts": 2,
            "first_k_dense_replace": 1,
            "routed_scaling_factor": 2.5,
            "norm_topk_prob": True,
        },
        {
            "n_routed_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 32,
            "n_shared_experts": 1,
            "n_group": 4,
            "topk_group": 2,
            "sliding_window": 5,
            "max_window_layers": 2,
            "attention_bias": True,
            "head_dim": 24,
        },
    ],
    "exaone_moe": [
        {
            "num_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 32,
            "num_shared_experts": 2,
            "first_k_dense_replace": 1,
            "sliding_window": 5,
            "num_hidden_layers": 5,
        },
    ],
    "ernie4_5_moe": [
        {"moe_num_experts": 8, "moe_k": 3, "moe_intermediate_size": 32, "moe_num_shared_experts": 2},
        {
            "moe_num_experts": 8,
            "moe_k": 2,
            "moe_intermediate_size": 24,
            "moe_num_shared_experts": 0,
            "moe_layer_start_index": 0,
            "moe_layer_interval": 2,
            "use_bias": True,
            "tie_word_embeddings": False,
        },
    ],
    "hunyuan_v1_moe": [
        {"num_experts": 8, "moe_topk": 3, "head_dim": 16},
        {
            "num_experts": 8,
            "moe_topk": [2, 2, 2],
            "head_dim": 24,
            "rope_parameters": {"rope_type": "dynamic", "alpha": 1000.0, "rope_theta": 10000.0, "factor": 1.0},
            "tie_word_embeddings": True,
        },
    ],
    "apertus": [
        {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
        {"hidden_act": "relu2", "attention_bias": True, "head_dim": 24},
    ],
    "nemotron_h": [
        {
            "layers_block_type": ["linear_attention", "mlp", "full_attention", "linear_attention"],
            "head_dim": 24,
            "mamba_num_heads": 8,
            "mamba_head_dim": 16,
            "n_groups": 2,
            "ssm_state_size": 12,
            "chunk_size": 8,
        },
        {
            "layers_block_type": ["linear_attention", "moe", "full_attention"],
            "head_dim": 16,
            "mamba_num_heads": 4,
            "mamba_head_dim": 16,
            "n_groups": 2,
            "ssm_state_size": 16,
            "chunk_size": 8,
            "n_routed_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 40,
            "moe_shared_expert_intermediate_size": 56,
            "routed_scaling_factor": 2.0,
        },
        {
            "layers_block_type": ["linear_attention", "mlp", "full_attention"],
            "mamba_num_heads": 8,
            "mamba_head_dim": 16,
            "n_groups": 1,
            "ssm_state_size": 8,
            "chunk_size": 8,
            "mamba_hidden_act": "relu2",
            "mlp_hidden_act": "silu",
        },
    ],
    "mamba": [
        {"state_size": 8},
        {"state_size": 6, "time_step_rank": 5, "use_bias": True, "use_conv_bias": False, "tie_word_embeddings": False},
    ],
    "falcon_mamba": [
        {"state_size": 8},
    ],
    "jamba": [
        {
            "num_hidden_layers": 4,
            "attn_layer_period": 3,
            "attn_layer_offset": 1,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
            "num_experts": 4,
            "mamba_d_state": 6,
        },
        {"attn_layer_period": 2, "attn_layer_offset": 0, "num_experts": 1, "mamba_dt_rank": 5, "mamba_expand": 1},
    ],
    "bitnet": [
        {},
        {"hidden_act": "silu"},
    ],
    "llama4_text": [
        {
            "num_hidden_layers": 4,
            "head_dim": 24,
            "attention_chunk_size": 6,
            "floor_scale": 4,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "interleave_moe_layer_step": 2,
            "intermediate_size_mlp": 72,
        },
        {
            "head_dim": 16,
            "num_local_experts": 4,
            "use_qk_norm": False,
            "attn_temperature_tuning": False,
            "attention_bias": True,
            "no_rope_layers": [1, 0, 1],
        },
        {"head_dim": 16, "num_hidden_layers": 4, "num_local_experts": 4, "intermediate_size_mlp": 72},
    ],
    "gemma3n_text": [
        {
            "head_dim": 16,
            "num_hidden_layers": 5,
            "layer_types": [
                "sliding_attention",
                "full_attention",
                "sliding_attention",
                "full_attention",
                "sliding_attention",
            ],
            "num_kv_shared_layers": 2,
            "sliding_window": 5,
            "hidden_size_per_layer_input": 12,
            "vocab_size_per_layer_input": 128,
            "laurel_rank": 6,
            "activation_sparsity_pattern": [0.9, 0.6, 0.0, 0.0, 0.0],
        },
        {
            "head_dim": 16,
            "layer_types": ["sliding_attention", "full_attention", "full_attention"],
            "num_kv_shared_layers": 0,
            "sliding_window": 4,
            "hidden_size_per_layer_input": 8,
            "vocab_size_per_layer_input": 128,
            "altup_num_inputs": 3,
            "altup_active_idx": 1,
            "altup_correct_scale": False,
        },
    ],
    "phimoe": [
        {"num_local_experts": 6, "attention_bias": True, "lm_head_bias": True, "router_jitter_noise": 0.2},
        {
            "num_local_experts": 4,
            "rope_parameters": {
                "rope_type": "longrope",
                "short_factor": [1.1] * 8,
                "long_factor": [2.0] * 8,
                "short_mscale": 1.2,
                "long_mscale": 1.2,
                "rope_theta": 10000.0,
                "original_max_position_embeddings": 64,
            },
            "max_position_embeddings": 128,
        },
        {"num_local_experts": 4},
    ],
    "afmoe": [
        {
            "head_dim": 24,
            "num_hidden_layers": 4,
            "num_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 32,
            "num_shared_experts": 2,
            "route_scale": 1.5,
            "sliding_window": 5,
            "mup_enabled": True,
        },
        {
            "head_dim": 16,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "global_attn_every_n_layers": 2,
            "sliding_window": 4,
        },
    ],
    "minimax_m2": [
        {
            "head_dim": 24,
            "num_local_experts": 8,
            "num_experts_per_tok": 3,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
        },
    ],
    "minicpm3": [
        {
            "num_key_value_heads": 4,
            "kv_lora_rank": 24,
            "q_lora_rank": 20,
            "qk_nope_head_dim": 12,
            "qk_rope_head_dim": 8,
            "v_head_dim": 10,
            "dim_model_base": 16,
        },
        {
            "num_key_value_heads": 4,
            "kv_lora_rank": 24,
            "q_lora_rank": 20,
            "qk_nope_head_dim": 12,
            "qk_rope_head_dim": 8,
        },
    ],
    "gpt_bigcode": [
        {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 64},
        {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64, "multi_query": False, "n_inner": 72},
    ],
    "gptj": [
        {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 64, "rotary_dim": 8},
    ],
    "falcon": [
        {},
        {"new_decoder_architecture": True, "num_kv_heads": 2},
        {"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1, "bias": True},
        {"multi_query": False, "parallel_attn": False, "ffn_hidden_size": 72},
        {"alibi": True, "multi_query": False, "parallel_attn": False, "bias": True},
    ],
    "bloom": [
        {"n_layer": 3, "n_head": 4},
        {"n_layer": 2, "n_head": 6, "hidden_size": 48, "apply_residual_connection_post_layernorm": True},
    ],
    "mpt": [
        {"d_model": 64, "n_heads": 4, "n_layers": 3, "max_seq_len": 128},
        {
            "d_model": 48,
            "n_heads": 6,
            "n_layers": 2,
            "max_seq_len": 64,
            "attn_config": {"clip_qkv": 0.9},
        },
        {"d_model": 32, "n_heads": 2, "n_layers": 1, "max_seq_len": 64, "attn_config": {"softmax_scale": 0.3}},
    ],
}
# Of encoders and of decoders whose features are taken: the features of the last tokens are kept.
EMBEDDERS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("bert", {}), "xlm-roberta": ("xlm-roberta", {"pad_token_id": 1}), "qwen3": ("qwen3", {"head_dim": 16}),
    "gemma3": ("gemma3_text", {"head_dim": 16, "sliding_window": 5, "use_bidirectional_attention": True}),
}  # fmt: skip
RERANKERS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("bert", {}), "roberta": ("roberta", {"pad_token_id": 1, "type_vocab_size": 1}), "xlm-roberta": ("xlm-roberta", {"pad_token_id": 1, "type_vocab_size": 1}),
    "qwen3": ("qwen3", {"head_dim": 16}),
}  # fmt: skip
SECOND = 9  # of TOKENS, where the second segment begins
CASES = {f"{kind} {k}": (kind, more) for kind, all_ in FAMILIES.items() for k, more in enumerate(all_)}


def filled(name: str, shape: tuple[int, ...]) -> Any:
    """The values of a tensor, by its name."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    value = rng.standard_normal(shape)
    return np.asarray(value * shape[-1] ** -0.5 if len(shape) > 1 else 1 + value / 8, np.float32)


def references() -> Mapping[str, Any]:
    """By case: the configuration that transformers wrote, tensors' shapes, and the logits of the last tokens."""
    with gzip.open(DATA, "rt") as f:
        found: dict[str, Any] = json.load(f)
    return found
