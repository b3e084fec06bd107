"""Architectures from GGUF files, written with llama.cpp's names and orders, against the logits that transformers has for the same weights."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from tec_gguf import names

import tec.lm
from tests.thinned import thinned_rows
from tests.unit.lm.families import KEPT, TOKENS, filled, references
from tests.unit.lm.test_families import Steps

from .files import write

Fix = Callable[[str, Any], Mapping[str, Any]]
_EXPERTS = {"expert_count": 8, "expert_used_count": 3, "expert_feed_forward_length": 32}


def _as_it_is(name: str, value: Any) -> Mapping[str, Any]:
    """Experts' gates and ups apart."""
    if name.endswith("experts.gate_up_proj"):
        stem = name.removesuffix("gate_up_proj")
        return {f"{stem}{part}_proj.weight": v for part, v in zip(("gate", "up"), np.split(value, 2, 1))}
    return {f"{name}.weight" if name.endswith("experts.down_proj") else name: value}


def _permuted(name: str, value: Any) -> Mapping[str, Any]:
    """Rows of q and k for a rotary that turns neighbours (4 and 2 heads)."""
    heads = {"q_proj": 4, "k_proj": 2}.get(name.split(".")[-2])
    if heads is None:
        return {name: value}
    return {name: value.reshape(heads, 2, -1, *value.shape[1:]).swapaxes(1, 2).reshape(value.shape)}


def _gpt_oss(name: str, value: Any) -> Mapping[str, Any]:
    stem, _, kind = name.rpartition(".")
    if kind == "gate_up_proj":
        return {
            f"{stem}.gate_proj.weight": value.swapaxes(1, 2)[:, ::2],
            f"{stem}.up_proj.weight": value.swapaxes(1, 2)[:, 1::2],
        }
    if kind == "gate_up_proj_bias":
        return {f"{stem}.gate_proj.bias": value[:, ::2], f"{stem}.up_proj.bias": value[:, 1::2]}
    if kind == "down_proj":
        return {f"{name}.weight": value.swapaxes(1, 2)}
    return {f"{stem}.down_proj.bias" if kind == "down_proj_bias" else name: value}


def _state_space(name: str, value: Any) -> Mapping[str, Any]:
    """Decays as -exp(A_log); steps' biases under another name; convolutions without an axis of one."""
    if name.endswith(("A_log", "mixer.D")):
        value = -np.exp(value) if name.endswith("A_log") else value
        return {name.removesuffix("_log"): value[:, None] if ".mixer." in name else value}
    if name.endswith("dt_bias"):
        return {name.removesuffix("dt_bias") + "dt_proj.bias": value}
    return {name: value[:, 0] if name.endswith(("conv1d.weight", "conv.conv.weight")) else value}


def _tiled(name: str, value: Any) -> Mapping[str, Any]:
    """Qwen3.5: heads of values in turns of the two groups; norms hold 1 + weight."""
    order, width, keys = [0, 2, 1, 3], 8, 64
    stem = name.split("linear_attn.")[-1]
    rows = np.arange(4 * width).reshape(4, width)[order].reshape(-1)
    if stem in ("in_proj_qkv.weight", "conv1d.weight"):
        value = value[np.concatenate([np.arange(keys), keys + rows])]
    elif stem == "in_proj_z.weight":
        value = value[rows]
    elif stem == "out_proj.weight":
        value = value[:, rows]
    elif stem in ("in_proj_a.weight", "in_proj_b.weight", "A_log", "dt_bias"):
        value = value[order]
    elif name.endswith("norm.weight") and "linear_attn" not in name:
        value = value + 1
    return _state_space(name, value)


def _raised(name: str, value: Any) -> Mapping[str, Any]:
    return {name: value + 1 if name.endswith("norm.weight") else value}


def _balanced(name: str, value: Any) -> Mapping[str, Any]:
    if name.endswith("e_score_correction_bias"):
        return {name.removesuffix("_bias") + ".bias": value}
    return _as_it_is(name, value)


def _apart(name: str, value: Any) -> Mapping[str, Any]:
    """Keys of 16 and values of 12 features of each of 4 heads from a latent vector of 24: those of keys lie turned over."""
    if not name.endswith("kv_b_proj.weight"):
        return _as_it_is(name, value)
    stem, heads = name.removesuffix("kv_b_proj.weight"), value.reshape(4, 28, 24)
    return {f"{stem}k_b_proj.weight": heads[:, :16].swapaxes(1, 2), f"{stem}v_b_proj.weight": heads[:, 16:]}


def _gates_joined(name: str, value: Any) -> Mapping[str, Any]:
    return {name: value}


def _granite_moe(name: str, value: Any) -> Mapping[str, Any]:
    name = name.replace("block_sparse_moe.", "mlp.").replace("shared_mlp.output_linear", "shared_mlp.down_proj")
    if name.endswith("shared_mlp.input_linear.weight"):
        stem = name.removesuffix("input_linear.weight")
        return {f"{stem}{part}_proj.weight": v for part, v in zip(("gate", "up"), np.split(value, 2, 0))}
    return _as_it_is(name, value) if ".experts." in name else _permuted(name, value)


def _raised_norms(name: str, value: Any) -> Mapping[str, Any]:
    return {name: value + 1 if name.endswith(("norm.weight", "layernorm.weight")) else value}


def _queries_first(name: str, value: Any) -> Mapping[str, Any]:
    """Queries, keys and values of all heads (4 of 16) behind each other."""
    if "query_key_value" not in name:
        return {name: value}
    parts = value.reshape(4, 3, 16, *value.shape[1:]).swapaxes(0, 1).reshape(value.shape)
    return {name.replace("query_key_value", "qkv_proj"): parts}


def _turned_over(name: str, value: Any) -> Mapping[str, Any]:
    return {name: value.T if ".h." in name and value.ndim == 2 else value}


def _lfm2_moe(name: str, value: Any) -> Mapping[str, Any]:
    if name.endswith("expert_bias"):
        return {name.removesuffix("_bias") + ".bias": value}
    return _state_space(name, value) if ".experts." not in name else _as_it_is(name, value)


def _grouped(name: str, value: Any) -> Mapping[str, Any]:
    """Norms of state space models by groups (2); the rest as `_state_space`."""
    if name.endswith("mamba.D"):
        return {name: value[:, None]}
    if name.endswith("mamba.A_log"):
        return {name.removesuffix("_log"): -np.exp(value)[:, None]}
    return {name: value.reshape(2, -1)} if name.endswith("mamba.norm.weight") else _state_space(name, value)


def _granite_hybrid(name: str, value: Any) -> Mapping[str, Any]:
    return _grouped(name, value) if ".mamba." in name else _granite_moe(name, value)


def _granite_dense(name: str, value: Any) -> Mapping[str, Any]:
    """What all tokens share is the network of layers without experts."""
    return {n.replace("shared_mlp", "mlp"): v for n, v in _granite_hybrid(name, value).items()}


def _falcon_h1(name: str, value: Any) -> Mapping[str, Any]:
    """Weights times the factors of the configuration "falcon_h1 0"."""
    factors = {
        "embed_tokens.weight": 3.0, "lm_head.weight": 0.4, "gate_proj.weight": 0.7, "down_proj.weight": 0.3, "k_proj.weight": 0.5 * 1.2, "q_proj.weight": 1.2,
        "v_proj.weight": 1.2, "o_proj.weight": 0.9, "out_proj.weight": 0.2,
    }  # fmt: skip
    if name.endswith("in_proj.weight"):
        value = value * 1.5 * np.repeat([0.5, 0.25, 0.3, 0.4, 0.6], [96, 96, 32, 32, 6])[:, None]
    stem = ".".join(name.split(".")[-2:])
    factor = 1.0 if ".mamba." in name and stem == "norm.weight" else factors.get(stem, 1.0)
    return _grouped(name, value * factor)


def _hunyuan(name: str, value: Any) -> Mapping[str, Any]:
    return _as_it_is(name.replace(".gate.wg.", ".gate."), value)


def _statics(name: str, value: Any) -> Mapping[str, Any]:
    """The bias that balances experts."""
    if name.endswith("moe_statics.e_score_correction_bias"):
        return {name.replace(".moe_statics.e_score_correction_bias", ".e_score_correction.bias"): value[0]}
    return _as_it_is(name, value)


def _apertus(name: str, value: Any) -> Mapping[str, Any]:
    """What the activation was trained to stands among the metadata."""
    return {} if ".act_fn." in name else {name: value}


def _activations(c: Mapping[str, Any]) -> dict[str, Any]:
    def numbers(kind: str, shape: tuple[int, ...]) -> list[float]:
        return [float(filled(f"model.layers.{k}.mlp.act_fn.{kind}", shape).reshape(())) for k in range(3)]

    return {
        f"xielu.{kind}": numbers(kind, (1,) if "alpha" in kind else ())
        for kind in ("alpha_p", "alpha_n", "beta", "eps")
    }


def _nemotron_h(name: str, value: Any) -> Mapping[str, Any]:
    """Its state space models' norms by groups (2)."""
    name = name.replace("model.", "backbone.")
    if name.endswith("mixer.norm.weight"):
        return {name: value.reshape(2, -1)}
    if name.endswith((".experts.up_proj", ".experts.down_proj")):
        return {f"{name}.weight": value}
    return next(iter([_balanced(n, v) for n, v in _state_space(name, value).items()]))


def _llama4(name: str, value: Any) -> Mapping[str, Any]:
    """Experts' outputs are columns, gates first."""
    stem, _, kind = name.rpartition(".")
    if kind == "gate_up_proj":
        halves = np.split(value.swapaxes(1, 2), 2, 1)
        return {f"{stem}.{part}_proj.weight": v for part, v in zip(("gate", "up"), halves)}
    return {f"{name}.weight": value.swapaxes(1, 2)} if stem.endswith(".experts") else {name: value}


def _altup(name: str, value: Any) -> Mapping[str, Any]:
    """Projections of three streams as one tensor each."""
    match = re.fullmatch(r"(model\.altup_(?:unembed_)?projections)\.(\d)\.weight", name)
    if match is None:
        return {name: value}
    parts = [filled(f"{match[1]}.{k}.weight", value.shape) for k in range(3)]
    return {f"{match[1]}.weight": np.stack(parts)}


def _state_space_of_each(name: str, value: Any) -> Mapping[str, Any]:
    """Decays as -exp(A_log), one for each number of the state; convolutions without an axis of one."""
    if name.endswith("A_log"):
        return {name.removesuffix("_log"): -np.exp(value)}
    return {name: value[:, 0] if name.endswith("conv1d.weight") else value}


def _jamba(name: str, value: Any) -> Mapping[str, Any]:
    return _state_space_of_each(name, value) if ".mamba." in name else _as_it_is(name, value)


def _selective(c: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "context_length": 128, "embedding_length": 64, "block_count": 3, "ssm.conv_kernel": 4, "ssm.inner_size": c["intermediate_size"], "ssm.state_size": c["state_size"],
        "ssm.time_step_rank": c["time_step_rank"], "attention.layer_norm_rms_epsilon": float(c["layer_norm_epsilon"]),
    }  # fmt: skip


def _falcon(c: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "context_length": 128, "embedding_length": 64, "block_count": 3, "feed_forward_length": 256, "attention.head_count": 4,
        "attention.layer_norm_epsilon": float(c["layer_norm_epsilon"]), "rope.freq_base": 10000.0,
    }  # fmt: skip


def _mpt(c: Mapping[str, Any]) -> dict[str, Any]:
    limit = c["attn_config"]["clip_qkv"]
    return {
        "context_length": c["max_seq_len"], "embedding_length": c["d_model"], "block_count": c["n_layers"], "feed_forward_length": c["expansion_ratio"] * c["d_model"],
        "attention.head_count": c["n_heads"], "attention.layer_norm_epsilon": float(c["layer_norm_epsilon"]), "attention.max_alibi_bias": 8.0,
        **({} if limit is None else {"attention.clamp_kqv": limit}),
    }  # fmt: skip


def _by_groups(groups: int) -> Fix:
    """Falcon: queries of all groups behind each other, then keys, then values; the network's norm is the first."""

    def fix(name: str, value: Any) -> Mapping[str, Any]:
        name = name.replace(".ln_mlp.", ".input_layernorm.")
        if "query_key_value" not in name:
            return {name: value}
        each = value.reshape(groups, 4 // groups + 2, 16, *value.shape[1:])
        parts = [each[:, :-2], each[:, -2:-1], each[:, -1:]]
        joined = np.concatenate([p.reshape(-1, *value.shape[1:]) for p in parts])
        return {name.replace("query_key_value", "qkv_proj"): joined}

    return fix


def _routers(name: str, value: Any) -> Mapping[str, Any]:
    return _as_it_is(name.replace(".mlp.router.", ".mlp.gate."), value)


def _beside_experts(name: str, value: Any) -> Mapping[str, Any]:
    if name.endswith(".mlp.e_score_correction_bias"):
        return {name.replace(".mlp.e_score_correction_bias", ".mlp.gate.e_score_correction.bias"): value}
    return _as_it_is(name, value)


def _afmoe(name: str, value: Any) -> Mapping[str, Any]:
    if name.endswith(".mlp.expert_bias"):
        return {name.replace(".mlp.expert_bias", ".mlp.expert.bias"): value}
    return _as_it_is(name, value)


def _two_shared(name: str, value: Any) -> Mapping[str, Any]:
    """Granite with factors of 1, as DeepSeek's first mixture."""
    made = _granite_moe(name, value)
    return {n.replace("shared_mlp", "mlp.shared_experts").replace(".mlp.router.layer.", ".mlp.gate.").replace(".mlp.router.", ".mlp.gate."): v for n, v in made.items()}  # fmt: skip


def _hybrid(c: Mapping[str, Any]) -> dict[str, Any]:
    kinds = c["layers_block_type"]
    return {
        **_usual({"num_hidden_layers": len(kinds), **c}), "attention.layer_norm_rms_epsilon": float(c["layer_norm_epsilon"]), "ssm.conv_kernel": c["conv_kernel"],
        "ssm.state_size": c["ssm_state_size"], "ssm.time_step_rank": c["mamba_num_heads"], "ssm.group_count": c["n_groups"],
        "ssm.inner_size": c["mamba_num_heads"] * c["mamba_head_dim"], "attention.head_count_kv": [2 if k == "full_attention" else 0 for k in kinds],
        "feed_forward_length": [c["intermediate_size"] if k == "mlp" else 40 if k == "moe" else 0 for k in kinds],
    }  # fmt: skip


def _states(c: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "ssm.conv_kernel": c["mamba_d_conv"], "ssm.inner_size": 128, "ssm.state_size": c["mamba_d_state"], "ssm.time_step_rank": c["mamba_n_heads"],
        "ssm.group_count": c["mamba_n_groups"], "attention.head_count_kv": [2 if k == "full_attention" else 0 for k in c.get("layer_types", ())],
    }  # fmt: skip


def _multipliers(c: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "attention.scale": c["attention_multiplier"], "embedding_scale": c["embedding_multiplier"], "residual_scale": c["residual_multiplier"],
        "logit_scale": c["logits_scaling"],
    }  # fmt: skip


def _by_variance(c: Mapping[str, Any]) -> dict[str, Any]:
    return {"attention.layer_norm_epsilon": float(c["layer_norm_eps"])}


def _slides(c: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "attention.sliding_window": c["sliding_window"],
        "attention.sliding_window_pattern": [k == "sliding_attention" for k in c["layer_types"]],
    }


def _stretched(c: Mapping[str, Any]) -> dict[str, Any]:
    """Of layers that see everything."""
    own = c["rope_parameters"]["full_attention"]
    return {"rope.freq_base": float(own["rope_theta"])}


def _usual(c: Mapping[str, Any]) -> dict[str, Any]:
    size = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    return {
        "context_length": c["max_position_embeddings"], "embedding_length": c["hidden_size"], "block_count": c["num_hidden_layers"],
        "feed_forward_length": c["intermediate_size"], "attention.head_count": c["num_attention_heads"], "attention.head_count_kv": c["num_key_value_heads"],
        "attention.layer_norm_rms_epsilon": float(c.get("rms_norm_eps", c.get("norm_eps", 1e-5))), "attention.key_length": size, "attention.value_length": size,
        "rope.freq_base": float((c.get("rope_parameters") or {}).get("rope_theta", 10000.0)),
    }  # fmt: skip


def _oss_scaling(c: Mapping[str, Any]) -> dict[str, Any]:
    own = c["rope_parameters"]
    return {
        "expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": c["intermediate_size"], "attention.sliding_window": c["sliding_window"],
        "rope.scaling.type": "yarn", "rope.scaling.factor": float(own["factor"]),
        "rope.scaling.original_context_length": int(own["original_max_position_embeddings"]),
    }  # fmt: skip


def _mamba(c: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "context_length": 128, "embedding_length": 64, "block_count": 3, "ssm.conv_kernel": 4, "ssm.inner_size": 128, "ssm.state_size": c["state_size"],
        "ssm.time_step_rank": c["num_heads"], "ssm.group_count": c["n_groups"], "attention.layer_norm_rms_epsilon": float(c["layer_norm_epsilon"]),
    }  # fmt: skip


_LATENT = {
    **_EXPERTS, "expert_shared_count": 2, "leading_dense_block_count": 1, "attention.kv_lora_rank": 24, "rope.dimension_count": 8, "attention.key_length": 24,
    "attention.value_length": 12, "expert_weights_scale": 1.0,
}  # fmt: skip
_DELTA = {
    "ssm.conv_kernel": 4,
    "ssm.state_size": 16,
    "ssm.group_count": 2,
    "ssm.time_step_rank": 4,
    "ssm.inner_size": 32,
    "rope.dimension_count": 8,
}
# Case, architecture, what is more than usual in the metadata, and what happens to tensors.
CASES: dict[str, tuple[str, str, Callable[[Mapping[str, Any]], dict[str, Any]], Fix]] = {
    "llama": ("llama 1", "llama", _usual, _permuted),
    "qwen3": ("qwen3 0", "qwen3", _usual, _as_it_is),
    "olmo2": ("olmo2 0", "olmo2", _usual, _as_it_is),
    "gemma": ("gemma 0", "gemma", _usual, _raised),
    "qwen3moe": ("qwen3_moe 0", "qwen3moe", lambda c: {**_usual(c), **_EXPERTS}, _as_it_is),
    "gpt-oss": ("gpt_oss 0", "gpt-oss", lambda c: {**_usual(c), **_oss_scaling(c)}, _gpt_oss),
    "deepseek2": ("deepseek_v2 0", "deepseek2", lambda c: {**_usual(c), **_LATENT}, _as_it_is),
    "lfm2": (
        "lfm2 0", "lfm2", lambda c: {
            **_usual(c), "shortconv.l_cache": c["conv_L_cache"], "attention.head_count_kv": [2 if k == "full_attention" else 0 for k in c["layer_types"]],
        }, _state_space,
    ),
    "mamba2": ("mamba2 0", "mamba2", _mamba, _state_space),
    "qwen35": ("qwen3_5_text 0", "qwen35", lambda c: {**_usual(c), **_DELTA}, _tiled),
    "deepseek2, keys and values apart": ("deepseek_v2 0", "deepseek2", lambda c: {**_usual(c), **_LATENT}, _apart),
    "deepseek2, by sigmoid": (
        "deepseek_v3 0", "deepseek2", lambda c: {
            **_usual(c), **_LATENT, "attention.q_lora_rank": c["q_lora_rank"], "expert_gating_func": 2, "expert_group_count": 4, "expert_group_used_count": 2,
            "expert_weights_norm": True, "expert_weights_scale": 2.5,
        }, _balanced,
    ),
    "olmo2 with windows": ("olmo3 0", "olmo2", lambda c: {**_usual(c), **_slides(c), **_stretched(c)}, _as_it_is),
    "granite": ("granite 0", "granite", lambda c: {**_usual(c), **_multipliers(c)}, _permuted),
    "granitemoe": ("granitemoeshared 0", "granitemoe", lambda c: {
        **_usual(c), **_multipliers(c), "expert_count": 8, "expert_used_count": 2, "expert_shared_feed_forward_length": 40}, _granite_moe),
    "chatglm": ("glm 0", "chatglm", lambda c: {**_usual(c), "rope.dimension_count": 8}, _gates_joined),
    "glm4": ("glm4 0", "glm4", lambda c: {**_usual(c), "rope.dimension_count": 16}, _gates_joined),
    "glm4moe": ("glm4_moe 0", "glm4moe", lambda c: {
        **_usual(c), **_EXPERTS, "expert_used_count": 2, "rope.dimension_count": 16, "expert_shared_count": 1, "leading_dense_block_count": 1,
        "expert_weights_norm": True, "expert_gating_func": 2, "block_count": 4, "nextn_predict_layers": 1}, _balanced),
    "command-r": ("cohere 0", "command-r", lambda c: {**_usual(c), **_by_variance(c), "logit_scale": c["logit_scale"]}, _as_it_is),
    "cohere2": ("cohere2 0", "cohere2", lambda c: {
        **_usual(c), **_by_variance(c), "logit_scale": c["logit_scale"], "attention.sliding_window": 5, "rope.dimension_count": 16}, _as_it_is),
    "exaone4": ("exaone4 0", "exaone4", lambda c: {**_usual(c), **_slides(c)}, _as_it_is),
    "ernie4_5": ("ernie4_5 0", "ernie4_5", _usual, _as_it_is),
    "stablelm": ("stablelm 0", "stablelm", lambda c: {
        **_usual(c), **_by_variance(c), "rope.dimension_count": 4, "use_parallel_residual": False}, _as_it_is),
    "stablelm side by side": ("stablelm 1", "stablelm", lambda c: {
        **_usual(c), **_by_variance(c), "rope.dimension_count": int(16 * c["rope_parameters"]["partial_rotary_factor"]),
        "use_parallel_residual": c["use_parallel_residual"]}, _as_it_is),
    "starcoder2": ("starcoder2 1", "starcoder2", lambda c: {**_usual(c), "attention.layer_norm_epsilon": float(c["norm_epsilon"])}, _as_it_is),
    "olmo": ("olmo 0", "olmo", lambda c: {**_usual(c), "attention.layer_norm_epsilon": 1e-5, "attention.clamp_kqv": c["clip_qkv"]}, _permuted),
    "olmoe": ("olmoe 0", "olmoe", lambda c: {**_usual(c), "expert_count": 8, "expert_used_count": 2, "expert_weights_norm": True}, _as_it_is),
    "arcee": ("arcee 0", "arcee", _usual, _permuted),
    "seed_oss": ("seed_oss 0", "seed_oss", _usual, _as_it_is),
    "nemotron": ("nemotron 0", "nemotron", lambda c: {
        **_usual(c), "attention.layer_norm_epsilon": float(c["norm_eps"]), "rope.dimension_count": 8}, _raised_norms),
    "hunyuan-dense": ("hunyuan_v1_dense 0", "hunyuan-dense", _usual, _as_it_is),
    "phi2": ("phi 1", "phi2", lambda c: {
        **_usual(c), **_by_variance(c), "rope.dimension_count": int(16 * c["rope_parameters"]["partial_rotary_factor"])}, _as_it_is),
    "gptneox": ("gpt_neox 0", "gptneox", lambda c: {
        **_usual(c), **_by_variance(c), "attention.head_count_kv": 4, "rope.dimension_count": 4, "use_parallel_residual": True}, _queries_first),
    "gpt2": ("gpt2 0", "gpt2", lambda c: {
        "context_length": 128, "embedding_length": 64, "block_count": 3, "feed_forward_length": 256, "attention.head_count": 4,
        "attention.layer_norm_epsilon": float(c["layer_norm_epsilon"])}, _turned_over),
    "granitehybrid": ("granitemoehybrid 0", "granitehybrid", lambda c: {
        **_usual(c), **_multipliers(c), **_states(c), "expert_count": 8, "expert_used_count": 2, "expert_shared_feed_forward_length": 40}, _granite_hybrid),
    "granitehybrid without experts": ("granitemoehybrid 1", "granitehybrid", lambda c: {
        **_usual(c), **_multipliers(c), **_states(c), "rope.scaling.finetuned": True}, _granite_dense),
    "falcon-h1": ("falcon_h1 0", "falcon-h1", lambda c: {**_usual(c), **_states(c), "ssm.inner_size": c["mamba_d_ssm"], "attention.head_count_kv": 2}, _falcon_h1),
    "falcon-h1 with norms": ("falcon_h1 1", "falcon-h1", lambda c: {
        **_usual(c), **_states(c), "ssm.inner_size": c["mamba_d_ssm"], "attention.head_count_kv": 2}, _grouped),
    "mistral3": ("ministral3 0", "mistral3", lambda c: {
        **_usual(c), "rope.scaling.type": "yarn", "rope.scaling.factor": 16.0, "rope.scaling.original_context_length": 8, "rope.scaling.yarn_beta_fast": 32.0,
        "rope.scaling.yarn_beta_slow": 1.0, "rope.scaling.yarn_log_multiplier": 1.0, "attention.temperature_scale": 0.3}, _permuted),
    "internlm2": ("llama 1", "internlm2", _usual, _permuted),
    "minicpm": ("granite 0", "minicpm", lambda c: {**_usual(c), **_multipliers(c)}, _permuted),
    "dots1": ("dots1 0", "dots1", lambda c: {
        **_usual(c), **_EXPERTS, "expert_shared_count": 2, "leading_dense_block_count": 1, "expert_weights_norm": True, "expert_weights_scale": 2.5,
        "expert_gating_func": 2}, _balanced),
    "exaone-moe": ("exaone_moe 0", "exaone-moe", lambda c: {
        **_usual(c), **_EXPERTS, **_slides(c), "expert_shared_count": 2, "leading_dense_block_count": 1, "expert_weights_norm": True,
        "expert_weights_scale": 2.5, "expert_gating_func": 2}, _balanced),
    "ernie4_5-moe": ("ernie4_5_moe 0", "ernie4_5-moe", lambda c: {**_usual(c), **_EXPERTS, "expert_shared_count": 2, "leading_dense_block_count": 1}, _statics),
    "hunyuan-moe": ("hunyuan_v1_moe 0", "hunyuan-moe", lambda c: {
        **_usual(c), "expert_count": 8, "expert_used_count": 3, "expert_feed_forward_length": 96, "expert_shared_feed_forward_length": 96}, _hunyuan),
    "apertus": ("apertus 0", "apertus", lambda c: {**_usual(c), **_activations(c)}, _apertus),
    "nemotron_h": ("nemotron_h 0", "nemotron_h", _hybrid, _nemotron_h),
    "nemotron_h_moe": ("nemotron_h 1", "nemotron_h_moe", lambda c: {
        **_hybrid(c), **_EXPERTS, "expert_feed_forward_length": 40, "expert_shared_feed_forward_length": 56, "expert_weights_norm": True,
        "expert_weights_scale": 2.0}, _nemotron_h),
    "llama4": ("llama4_text 2", "llama4", lambda c: {
        **_usual(c), "feed_forward_length": c["intermediate_size_mlp"], "expert_count": 4, "expert_used_count": 1,
        "expert_feed_forward_length": c["intermediate_size"], "interleave_moe_layer_step": 1}, _llama4),
    "gemma3n": ("gemma3n_text 0", "gemma3n", lambda c: {
        **_usual(c), **_slides(c), "embedding_length_per_layer_input": 12, "attention.shared_kv_layers": 2, "altup.num_inputs": 4, "altup.active_idx": 0,
        "activation_sparsity_scale": [NormalDist().inv_cdf(s) if s else 0.0 for s in c["activation_sparsity_pattern"]],
        "feed_forward_length": c["intermediate_size"], "rope.freq_base": 1e6}, _altup),
    "jamba": ("jamba 0", "jamba", lambda c: {
        **_usual(c), "attention.head_count_kv": [0, 2, 0, 0], "expert_count": 4, "expert_used_count": 2, "ssm.conv_kernel": 4, "ssm.inner_size": 128,
        "ssm.state_size": 6, "ssm.time_step_rank": 4}, _jamba),
    "mamba": ("mamba 0", "mamba", _selective, _state_space_of_each),
    "mamba, normed": ("falcon_mamba 0", "mamba", lambda c: {**_selective(c), "ssm.dt_b_c_rms": True}, _state_space_of_each),
    "bitnet": ("bitnet 1", "bitnet", _usual, _as_it_is),
    "phimoe": ("phimoe 2", "phimoe", lambda c: {**_usual(c), "expert_count": 4, "expert_used_count": 2}, _routers),
    "falcon": ("falcon 0", "falcon", lambda c: {**_falcon(c), "attention.head_count_kv": 1}, _by_groups(1)),
    "falcon, two norms": ("falcon 1", "falcon", lambda c: {**_falcon(c), "attention.head_count_kv": 2}, _by_groups(2)),
    "bloom": ("bloom 0", "bloom", _falcon, _by_groups(4)),
    "mpt": ("mpt 0", "mpt", _mpt, _as_it_is),
    "mpt, limited": ("mpt 1", "mpt", _mpt, _as_it_is),
    "starcoder": ("gpt_bigcode 0", "starcoder", lambda c: {
        "context_length": 64, "embedding_length": 64, "block_count": 3, "feed_forward_length": 256, "attention.head_count": 4, "attention.head_count_kv": 1,
        "attention.layer_norm_epsilon": float(c["layer_norm_epsilon"])}, _as_it_is),
    "minimax-m2": ("minimax_m2 0", "minimax-m2", lambda c: {
        **_usual(c), "expert_count": 8, "expert_used_count": 3, "expert_feed_forward_length": 96, "rope.dimension_count": 12, "expert_gating_func": 2}, _beside_experts),
    "minicpm3": ("minicpm3 1", "minicpm3", lambda c: {
        **_usual(c), "attention.q_lora_rank": 20, "attention.kv_lora_rank": 24, "attention.key_length": 20, "attention.value_length": 16,
        "rope.dimension_count": 8}, _as_it_is),
    "afmoe": ("afmoe 0", "afmoe", lambda c: {
        **_usual(c), **_slides(c), **_EXPERTS, "expert_shared_count": 2, "leading_dense_block_count": 1, "expert_weights_scale": 1.5, "expert_weights_norm": True,
        "expert_gating_func": 2}, _afmoe),
    "deepseek": ("granitemoeshared 1", "deepseek", lambda c: {
        **_usual(c), **_EXPERTS, "expert_feed_forward_length": 96, "expert_shared_count": 2, "leading_dense_block_count": 0, "expert_weights_norm": True,
        "expert_weights_scale": 1.0}, _two_shared),
    "bailingmoe": ("granitemoeshared 1", "bailingmoe", lambda c: {
        **_usual(c), **_EXPERTS, "expert_feed_forward_length": 96, "expert_shared_count": 2, "leading_dense_block_count": 0, "expert_weights_norm": True,
        "expert_weights_scale": 1.0}, _two_shared),
    "bailingmoe2": ("glm4_moe 0", "bailingmoe2", lambda c: {
        **_usual(c), **_EXPERTS, "expert_used_count": 2, "rope.dimension_count": 16, "expert_shared_count": 1, "leading_dense_block_count": 1,
        "expert_weights_norm": True, "expert_gating_func": 2}, _balanced),
    "exaone": ("llama 1", "exaone", _usual, _as_it_is),
    "xverse": ("llama 1", "xverse", _usual, _permuted),
    "qwen2vl": ("qwen2 2", "qwen2vl", lambda c: {**_usual(c), "rope.dimension_sections": [2, 3, 3, 0]}, _as_it_is),
    "qwen3vl": ("qwen3 0", "qwen3vl", lambda c: {**_usual(c), "rope.dimension_sections": [4, 6, 6, 0], "n_deepstack_layers": 3}, _as_it_is),
    "qwen3vlmoe": ("qwen3_moe 0", "qwen3vlmoe", lambda c: {**_usual(c), **_EXPERTS, "rope.dimension_sections": [4, 6, 6, 0]}, _as_it_is),
    "lfm2moe": ("lfm2_moe 0", "lfm2moe", lambda c: {
        **_usual(c), **_EXPERTS, "expert_used_count": 2, "shortconv.l_cache": c["conv_L_cache"], "leading_dense_block_count": 1, "expert_gating_func": 2,
        "attention.head_count_kv": [2 if k == "full_attention" else 0 for k in c["layer_types"]]}, _lfm2_moe),
}  # fmt: skip


@pytest.fixture(scope="module")
def known() -> Any:
    return references()


@thinned_rows(3, "name", list(CASES))
def test_logits_are_those_of_transformers(name: str, known: Any, tmp_path: Path) -> None:
    case, architecture, metadata, fix = CASES[name]
    whole, block, layers = names.tables()[architecture]
    of_file = {v: k for k, v in reversed(list(whole.items()))}
    of_block = {v: k for k, v in reversed(list(block.items()))}

    def named(tensor: str) -> str:
        stem, _, end = tensor.rpartition(".") if tensor.endswith((".weight", ".bias")) else (tensor, "", "")
        match = re.fullmatch(re.escape(layers) + r"\.(\d+)\.(.*)", stem)
        base = of_file[stem] if match is None else f"blk.{match[1]}.{of_block[match[2]]}"
        return f"{base}.{end}" if end else base

    tensors = {
        named(n): np.ascontiguousarray(v, np.float32)
        for own, shape in known[case]["shapes"].items()
        for n, v in fix(own, filled(own, tuple(shape))).items()
    }
    said = {
        k if k.startswith("xielu.") else f"{architecture}.{k}": v for k, v in metadata(known[case]["config"]).items()
    }
    steps = Steps(tec.lm.open(write(tmp_path / "model.gguf", architecture, said, tensors)))
    want = np.array(known[case]["logits"])
    got = np.concatenate([steps.read(TOKENS[:7]), steps.read(TOKENS[7:])])[-KEPT:]
    assert np.abs(got - want).max() < 1e-4 * max(1.0, np.abs(want).max())
