"""What files of each architecture say in their own way, as Hugging Face's configuration: the values that the converter wrote are those it had read."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tec.lm.opening as opening
from tec.errors import ImportModelError
from tec.lm.embedding import dense_of

from .files import write

COMMON = {"context_length": 64, "embedding_length": 64, "block_count": 8, "feed_forward_length": 96, "attention.head_count": 4,
          "attention.head_count_kv": 2, "attention.layer_norm_rms_epsilon": 1e-6, "attention.key_length": 16, "attention.value_length": 16}  # fmt: skip
SSM = {"ssm.conv_kernel": 4, "ssm.state_size": 16, "ssm.group_count": 2, "ssm.time_step_rank": 4, "ssm.inner_size": 128}
SLIDES = ["sliding_attention"]
FULL = ["full_attention"]

FAMILIES = {
    "mixtral": ("llama", {"expert_count": 8, "expert_used_count": 2}, {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}),
    "gemma2": ("gemma2", {"attention.sliding_window": 32, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
               {"layer_types": (SLIDES + FULL) * 4, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "query_pre_attn_scalar": 16,
                "hidden_act": "gelu_pytorch_tanh", "rms_norm_offset": 0.0}),
    "gemma3": ("gemma3", {"attention.sliding_window": 32, "rope.freq_base": 1e6, "rope.scaling.type": "linear", "rope.scaling.factor": 8.0},
               {"layer_types": SLIDES * 5 + FULL + SLIDES * 2, "rope_theta": 1e6, "rope_local_base_freq": 1e4,
                "rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
    "gemma4": ("gemma4", {"attention.sliding_window": 32, "attention.key_length": 32, "attention.key_length_swa": 16, "attention.shared_kv_layers": 2,
                          "attention.sliding_window_pattern": [True, True, True, False] * 2, "attention.head_count_kv": [2, 2, 2, 1] * 2,
                          "feed_forward_length": [96] * 6 + [192] * 2, "rope.freq_base_swa": 1e4},
               {"layer_types": (SLIDES * 3 + FULL) * 2, "head_dim": 16, "global_head_dim": 32, "num_key_value_heads": 2, "num_global_key_value_heads": 1,
                "intermediate_size": 96, "use_double_wide_mlp": True, "num_kv_shared_layers": 2}),
    "gpt-oss": ("gpt-oss", {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 32, "attention.sliding_window": 16,
                            "rope.scaling.type": "yarn", "rope.scaling.factor": 32.0, "rope.scaling.original_context_length": 4096},
                {"num_local_experts": 4, "intermediate_size": 32, "layer_types": (SLIDES + FULL) * 4,
                 # the bounds of yarn's ramp as they come, no whole numbers: so the model was trained, and no field of the file says it
                 "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096, "truncate": False}}),
    "olmo2": ("olmo2", {}, {"model_type": "olmo2"}),
    # As llama.cpp's logits say: a file's factor comes to yarn's own, 1 + 0.1 ln 4, and yarn_attn_factor is not read.
    "stretched": ("llama", {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.attn_factor": 0.8, "rope.scaling.yarn_attn_factor": 0.5},
                  {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "attention_factor": 0.8 * (1 + 0.1 * math.log(4))}}),
    "phi3": ("phi3", {"rope.dimension_count": 12}, {"partial_rotary_factor": 0.75}),
    "qwen3moe": ("qwen3moe", {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 32},
                 {"model_type": "qwen3_moe", "num_experts": 4, "moe_intermediate_size": 32, "norm_topk_prob": True}),
    "qwen35": ("qwen35", {**SSM, "nextn_predict_layers": 1, "block_count": 9, "full_attention_interval": 4, "rope.dimension_count": 4},
               {"num_hidden_layers": 8, "layer_types": (["linear_attention"] * 3 + FULL) * 2, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
                "linear_key_head_dim": 16, "linear_value_head_dim": 32, "linear_conv_kernel_dim": 4, "linear_value_heads_tiled": True,
                "partial_rotary_factor": 0.25}),
    "mamba2": ("mamba2", SSM, {"num_heads": 4, "head_dim": 32, "expand": 2, "n_groups": 2, "conv_kernel": 4, "state_size": 16, "intermediate_size": 128}),
    "mamba": ("mamba", SSM, {"time_step_rank": 4, "intermediate_size": 128, "expand": 2}),
    "lfm2": ("lfm2", {"attention.head_count_kv": [0, 0, 2, 0, 2, 0, 0, 2], "shortconv.l_cache": 3},
             {"layer_types": ["conv", "conv", *FULL, "conv", *FULL, "conv", "conv", *FULL], "num_key_value_heads": 2, "conv_L_cache": 3, "norm_eps": 1e-6}),
    "deepseek2": ("deepseek2", {"attention.head_count_kv": 1, "attention.kv_lora_rank": 32, "attention.key_length_mla": 24, "attention.value_length_mla": 16,
                                "rope.dimension_count": 8, "expert_count": 4, "expert_shared_count": 1, "leading_dense_block_count": 1,
                                "rope.scaling.type": "yarn", "rope.scaling.factor": 40.0, "rope.scaling.yarn_log_multiplier": 0.0707},
                  {"qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16, "num_key_value_heads": 4, "n_routed_experts": 4,
                   "n_shared_experts": 1, "first_k_dense_replace": 1, "kv_lora_rank": 32,
                   "rope_scaling": {"rope_type": "yarn", "factor": 40.0, "log_multiplier": 0.0707, "mscale_all_dim": 0.707, "mscale": 0.707}}),
    "smollm3": ("smollm3", {}, {"no_rope_layers": [1, 1, 1, 0] * 2}),
    "bert": ("bert", {"attention.layer_norm_epsilon": 1e-12}, {"hidden_act": "gelu", "is_causal": False}),
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_families(tmp_path, family):
    architecture, said, wanted = FAMILIES[family]
    facts = {f"{architecture}.{k}": v for k, v in {**COMMON, **said}.items()}
    config = opening.open(write(tmp_path / "m.gguf", architecture, facts, {"x": np.zeros(32, np.float32)})).config

    def near(a, b):
        if isinstance(b, dict):
            return a.keys() == b.keys() and all(near(a[k], b[k]) for k in b)
        return abs(a - b) <= 1e-6 * abs(b) if isinstance(b, float) else a == b

    assert {k: config.get(k) for k in wanted if not near(config.get(k), wanted[k])} == {}


def test_factors_of_rotary(tmp_path):
    """Llama 3's rule is numbers in the file; Phi-3 has numbers for short and for long texts."""
    facts = {f"llama.{k}": v for k, v in COMMON.items()}
    factors = np.arange(1, 9, dtype=np.float32)
    config = opening.open(write(tmp_path / "l.gguf", "llama", facts, {"rope_freqs.weight": factors})).config
    assert config["rope_scaling"] == {"rope_type": "factors", "factors": factors.tolist()}
    facts = {
        f"phi3.{k}": v
        for k, v in {**COMMON, "rope.scaling.original_context_length": 32, "rope.scaling.attn_factor": 1.25}.items()
    }
    both = {"rope_factors_long.weight": factors, "rope_factors_short.weight": factors[::-1].copy()}
    scaling = opening.open(write(tmp_path / "p.gguf", "phi3", facts, both)).config["rope_scaling"]
    assert (
        scaling["rope_type"] == "longrope"
        and scaling["long_factor"] == factors.tolist()
        and scaling["short_factor"] == factors[::-1].tolist()
    )
    assert (scaling["original_max_position_embeddings"], scaling["attention_factor"]) == (32, 1.25)


def test_a_pattern_that_is_short(tmp_path):
    facts = {
        f"gemma3.{k}": v
        for k, v in {**COMMON, "attention.sliding_window": 8, "attention.sliding_window_pattern": [True, False]}.items()
    }
    with pytest.raises(ImportModelError, match="tells of 2 layers, and there are 8"):
        opening.open(write(tmp_path / "m.gguf", "gemma3", facts, {"x": np.zeros(32, np.float32)}))


def test_an_unknown_architecture_is_told_what_is_near(tmp_path):
    with pytest.raises(ImportModelError, match="'qwen3moee', which is unknown") as told:
        opening.open(write(tmp_path / "m.gguf", "qwen3moee", {}, {"x": np.zeros(32, np.float32)}))
    assert "near: qwen3moe" in str(told.value)


def test_layers_behind_the_pooling(tmp_path):
    """As EmbeddingGemma has them."""
    facts = {f"gemma-embedding.{k}": v for k, v in COMMON.items()}
    width = COMMON["embedding_length"]
    tensors = {"dense_2.weight": np.full((96, width), 2, np.float32), "dense_3.weight": np.full((32, 96), 3, np.float32)}  # fmt: skip
    checkpoint = opening.open(write(tmp_path / "m.gguf", "gemma-embedding", facts, tensors))
    (first, _, activation), (second, _, _) = dense_of(checkpoint)
    assert first.shape == (96, width) and (second == 3).all() and activation(5) == 5


def test_a_template_for_tools(tmp_path):
    facts = {f"llama.{k}": v for k, v in COMMON.items()} | {"tokenizer.chat_template": "a", "tokenizer.chat_template.tool_use": "b"}  # fmt: skip
    checkpoint = opening.open(write(tmp_path / "m.gguf", "llama", facts, {"x": np.zeros(32, np.float32)}))
    assert (checkpoint.chat_template, checkpoint.tool_template) == ("a", "b")
