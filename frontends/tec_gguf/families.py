"""What files of one architecture say in a way of their own, and what they leave out because llama.cpp knows it: values of Hugging Face's config.json from them.

Sources: conversion/*.py and src/models/*.cpp of llama.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tec.errors import ImportModelError
from tec.lm.checkpoint import PackedTensor
from tec.lm.formats import Format
from tec.lm.remedies import FETCH_AGAIN

from .config import Metadata

_SIGMOID = 2  # of llama.cpp's functions that weigh experts
Config = dict[str, Any]
Tensors = Mapping[str, Any]


def complete(meta: Metadata, config: Config, tensors: Tensors) -> None:
    """Add to a configuration what its architecture has for itself."""
    more = _MORE.get(meta.architecture)
    if more is not None:
        more(meta, config, tensors)


def whole(meta: Metadata, tensors: dict[str, PackedTensor]) -> None:
    """What is no tensor of the file, or one of several. Matrices that files hold in parts, joined: `kv_b_proj` [heads * (keys + values), rank] of `k_b_proj` [heads, rank, keys] and `v_b_proj` [heads, values, rank]."""
    if meta.architecture == "apertus":
        _numbers_of_activations(meta, tensors)
    if meta.architecture == "gemma3n":
        _apart(tensors, ("model.altup_projections", "model.altup_unembed_projections"))
    for name in [n for n in tensors if n.endswith(".self_attn.k_b_proj.weight")]:
        stem = name.removesuffix("k_b_proj.weight")
        keys, values = tensors.pop(name), tensors.pop(f"{stem}v_b_proj.weight", None)
        if values is None or len(keys.shape) != 3 or keys.shape[:2] != (values.shape[0], values.shape[-1]):
            raise ImportModelError(
                f"{meta.path}: {name} is {list(keys.shape)}, and v_b_proj beside it {None if values is None else list(values.shape)}",
                hint="the file is damaged",
            )
        tensors[f"{stem}kv_b_proj.weight"] = _joined(f"{stem}kv_b_proj.weight", keys, values)


def _numbers_of_activations(meta: Metadata, tensors: dict[str, PackedTensor]) -> None:
    """Apertus: what the activation of each layer was trained to, which files hold beside the tensors."""
    for key in ("alpha_p", "alpha_n", "beta", "eps"):
        said = meta.values.get(f"xielu.{key}")
        for layer, number in enumerate([] if said is None else np.atleast_1d(np.asarray(said, np.float32))):
            name = f"model.layers.{layer}.mlp.act_fn.{key}"
            tensors[name] = PackedTensor(name, (1,), Format.F32, np.asarray([number], "<f4").view(np.uint8))


def _apart(tensors: dict[str, PackedTensor], names: tuple[str, ...]) -> None:
    """Matrices that are one tensor of a file, one by one."""
    for name in names:
        whole = tensors.pop(f"{name}.weight", None)
        if whole is not None and len(whole.shape) != 3:
            raise ImportModelError(f"{name} is {list(whole.shape)}, and not some matrices", hint="the file is damaged")
        for k in range(0 if whole is None else whole.shape[0]):
            assert whole is not None
            tensors[f"{name}.{k}.weight"] = whole.part(k)


def _joined(name: str, keys: PackedTensor, values: PackedTensor) -> PackedTensor:
    heads, rank, size = keys.shape
    kind, stored = (Format.F32, "<f4") if Format.F32 in (keys.format, values.format) else (Format.F16, "<f2")

    def join() -> Any:
        both = [keys.dequantize().swapaxes(1, 2), values.dequantize()]
        return np.concatenate(both, 1).astype(stored).reshape(-1).view(np.uint8)

    return PackedTensor(name, (heads * (size + values.shape[1]), rank), kind, join)


def _pattern(meta: Metadata, config: Config, period: int) -> None:
    """`layer_types`: as the file says, or every `period`-th layer sees everything (llama.cpp's `set_swa_pattern`)."""
    layers = config["num_hidden_layers"]
    said = meta.get("attention.sliding_window_pattern")
    if isinstance(said, int) and not isinstance(said, bool) and said > 0:
        period, said = said, None
    slides = list(said) if isinstance(said, list) else [(k + 1) % period != 0 for k in range(layers)]
    if len(slides) < layers:
        raise ImportModelError(
            f"{meta.path}: attention.sliding_window_pattern tells of {len(slides)} layers, and there are {layers}",
            hint=FETCH_AGAIN,
        )
    if config.get("sliding_window"):
        config["layer_types"] = ["sliding_attention" if s else "full_attention" for s in slides[:layers]]


def _windows(period: int) -> Callable[[Metadata, Config, Tensors], None]:
    def more(meta: Metadata, config: Config, tensors: Tensors) -> None:
        _pattern(meta, config, period)

    return more


def _mixture(meta: Metadata, config: Config, tensors: Tensors) -> None:
    if config.get("num_experts"):
        config |= {"model_type": "mixtral", "num_local_experts": config["num_experts"]}


def _gemma2(meta: Metadata, config: Config, tensors: Tensors) -> None:
    wide = config["num_hidden_layers"] == 46  # Gemma 2 27B alone: its model's width a head
    config["query_pre_attn_scalar"] = (
        config["hidden_size"] // config["num_attention_heads"] if wide else config["head_dim"]
    )
    _pattern(meta, config, 2)


def _gemma3(meta: Metadata, config: Config, tensors: Tensors) -> None:
    wide = config["num_hidden_layers"] == 62  # Gemma 3 27B alone
    config["query_pre_attn_scalar"] = (
        config["hidden_size"] // config["num_attention_heads"] if wide else config["head_dim"]
    )
    config.setdefault("rope_local_base_freq", 10000.0)
    _pattern(meta, config, 6)
    if meta.architecture == "gemma-embedding":
        config["use_bidirectional_attention"] = True


def _gemma4(meta: Metadata, config: Config, tensors: Tensors) -> None:
    """Sizes of heads, numbers of heads of keys and widths that differ between kinds of layers. The factors of rotary are of layers that see everything."""
    config["global_head_dim"] = config["head_dim"]
    config["head_dim"] = meta.get("attention.key_length_swa", config["head_dim"])
    config.setdefault("rope_local_base_freq", 10000.0)
    _pattern(meta, config, 6)
    kinds = config.get("layer_types", [])
    heads = config["num_key_value_heads"]
    if isinstance(heads, list):
        of = dict(zip(kinds, heads))
        config["num_key_value_heads"] = of.get("sliding_attention", heads[0])
        config["num_global_key_value_heads"] = of.get("full_attention", heads[0])
    widths = config["intermediate_size"]
    if isinstance(widths, list):
        config |= {"intermediate_size": min(widths), "use_double_wide_mlp": max(widths) != min(widths)}


def _delta(meta: Metadata, config: Config, tensors: Tensors) -> None:
    """Qwen3-Next and Qwen3.5: layers of linear attention. Heads of values lie in turns (`linear_value_heads_tiled`) in files of Qwen3.5: head k of v belongs to
    head k mod n of q and k, where Hugging Face's belongs to k / (count / n). `linear_attn.A` is -exp(A_log)."""
    layers, values = config["num_hidden_layers"], meta.size("ssm.time_step_rank")
    recurrent, every = meta.get("attention.recurrent_layers"), meta.get("full_attention_interval", 4)
    if not isinstance(recurrent, list) or len(recurrent) < layers:
        recurrent = [(k + 1) % every != 0 if isinstance(every, int) and every > 0 else True for k in range(layers)]
    config |= {
        "linear_conv_kernel_dim": meta.size("ssm.conv_kernel"), "linear_key_head_dim": meta.size("ssm.state_size"),
        "linear_num_key_heads": meta.size("ssm.group_count"), "linear_num_value_heads": values,
        "linear_value_head_dim": meta.size("ssm.inner_size") // values,
        "layer_types": ["linear_attention" if r else "full_attention" for r in recurrent[:layers]],
        "linear_value_heads_tiled": meta.architecture != "qwen3next" and values != meta.size("ssm.group_count"),
    }  # fmt: skip
    config.setdefault("norm_topk_prob", True)
    _partial(meta, config, tensors)


def _partial(meta: Metadata, config: Config, tensors: Tensors) -> None:
    turned = config.get("rotary_dim")
    if isinstance(turned, int) and isinstance(config.get("head_dim"), int) and 0 < turned < config["head_dim"]:
        config["partial_rotary_factor"] = turned / config["head_dim"]


def _mamba(meta: Metadata, config: Config, tensors: Tensors) -> None:
    inner, rank = meta.size("ssm.inner_size"), meta.size("ssm.time_step_rank")
    config |= {
        "conv_kernel": meta.size("ssm.conv_kernel"), "state_size": meta.size("ssm.state_size"), "intermediate_size": inner,
        "expand": inner // config["hidden_size"], "layer_norm_epsilon": config.get("rms_norm_eps", 1e-5),
    }  # fmt: skip
    if meta.architecture == "mamba2":
        config |= {"num_heads": rank, "head_dim": inner // rank, "n_groups": meta.size("ssm.group_count")}
    else:
        config["time_step_rank"] = rank
        if meta.get("ssm.dt_b_c_rms"):
            config["model_type"] = "falcon_mamba"


def _jamba(meta: Metadata, config: Config, tensors: Tensors) -> None:
    heads = config["num_key_value_heads"]
    config |= {
        "num_key_value_heads": max(heads) if isinstance(heads, list) and heads else heads, "mamba_d_conv": meta.size("ssm.conv_kernel"),
        "mamba_d_state": meta.size("ssm.state_size"), "mamba_dt_rank": meta.size("ssm.time_step_rank"),
        "mamba_expand": meta.size("ssm.inner_size") // config["hidden_size"],
    }  # fmt: skip


def _llama4(meta: Metadata, config: Config, tensors: Tensors) -> None:
    """The chunks, and that heads are normed in the model of 16 experts alone, llama.cpp knows."""
    config |= {
        "num_local_experts": config.get("num_experts"), "intermediate_size_mlp": config["intermediate_size"],
        "intermediate_size": config.get("moe_intermediate_size", config["intermediate_size"]), "attention_chunk_size": 8192,
        "use_qk_norm": config.get("num_experts") != 128,
    }  # fmt: skip


def _gemma3n(meta: Metadata, config: Config, tensors: Tensors) -> None:
    config.setdefault("rope_local_base_freq", 10000.0)
    config.setdefault("final_logit_softcapping", 30.0)
    _pattern(meta, config, 5)
    for ours, theirs in (("altup_num_inputs", "altup.num_inputs"), ("altup_active_idx", "altup.active_idx"), ("activation_sparsity_scale", "activation_sparsity_scale")):  # fmt: skip
        said = meta.get(theirs)
        if said is not None:
            config[ours] = said


def _minicpm3(meta: Metadata, config: Config, tensors: Tensors) -> None:
    """Its factors are those of the one model that there is."""
    turned, hidden = meta.size("rope.dimension_count"), config["hidden_size"]
    key = meta.size("attention.key_length")
    config |= {
        "qk_rope_head_dim": turned, "qk_nope_head_dim": key - turned, "v_head_dim": meta.size("attention.value_length", hidden // config["num_attention_heads"]),
        "num_key_value_heads": config["num_attention_heads"], "scale_emb": 12.0, "scale_depth": 1.4, "dim_model_base": 256.0,
    }  # fmt: skip


def _local_experts(meta: Metadata, config: Config, tensors: Tensors) -> None:
    config["num_local_experts"] = config.get("num_experts")
    _partial(meta, config, tensors)


def _afmoe(meta: Metadata, config: Config, tensors: Tensors) -> None:
    """Embeddings are multiplied in all its models."""
    config |= {"mup_enabled": True, "route_scale": config.get("routed_scaling_factor", 1.0)}
    _pattern(meta, config, 4)


def _starcoder(meta: Metadata, config: Config, tensors: Tensors) -> None:
    config |= {"hidden_act": "gelu_pytorch_tanh", "n_inner": config.get("intermediate_size")}


def _mpt(meta: Metadata, config: Config, tensors: Tensors) -> None:
    """A file whose slopes end at 2^-0 has positions that were learned in their place."""
    config |= {"hidden_act": "gelu", "alibi": config.get("alibi_bias_max") != 0}


def _lfm2(meta: Metadata, config: Config, tensors: Tensors) -> None:
    heads = config["num_key_value_heads"]
    if isinstance(heads, list):
        config["layer_types"] = ["full_attention" if h else "conv" for h in heads]
        config["num_key_value_heads"] = max(heads, default=0)
    config |= {"norm_eps": config.get("rms_norm_eps", 1e-5), "block_auto_adjust_ff_dim": False}


def _deepseek2(meta: Metadata, config: Config, tensors: Tensors) -> None:
    """Latent attention. Files of new converters have `k_b_proj` and `v_b_proj` [heads, ...] in place of `kv_b_proj` (see `whole`), and one head of keys. DeepSeek V3
    and what came after it weigh experts by sigmoid."""
    if meta.get("expert_gating_func") == _SIGMOID:
        config["model_type"] = "deepseek_v3"
    turned = meta.size("rope.dimension_count")
    key = meta.get("attention.key_length_mla", meta.get("attention.key_length"))
    config |= {
        "qk_rope_head_dim": turned, "qk_nope_head_dim": key - turned if isinstance(key, int) else None,
        "v_head_dim": meta.get("attention.value_length_mla", meta.get("attention.value_length")), "n_routed_experts": config.get("num_experts"),
        "num_key_value_heads": config["num_attention_heads"], "rope_interleave": True,
    }  # fmt: skip
    config.setdefault("norm_topk_prob", False)
    scaling = config.get("rope_scaling")
    if scaling and scaling.get("log_multiplier"):
        scaling["mscale_all_dim"] = scaling["mscale"] = round(scaling["log_multiplier"] / 0.1, 6)


def _windows_or_none(meta: Metadata, config: Config, tensors: Tensors) -> None:
    """OLMo 2 and 3 share a name; the later ones have windows, and stretch positions outside of them alone."""
    _pattern(meta, config, 4)
    if config.get("sliding_window"):
        config["model_type"] = "olmo3"


def _granite(meta: Metadata, config: Config, tensors: Tensors) -> None:
    config["logits_scaling"] = config.pop("logit_scale", 1.0)
    if config.get("num_experts"):
        config["shared_intermediate_size"] = config.get("shared_expert_intermediate_size")


def _states(meta: Metadata, config: Config) -> None:
    """Of layers of a state space model among others."""
    config |= {
        "mamba_n_heads": meta.size("ssm.time_step_rank"), "mamba_d_state": meta.size("ssm.state_size"), "mamba_n_groups": meta.size("ssm.group_count", 1),
        "mamba_d_conv": meta.size("ssm.conv_kernel"), "mamba_d_ssm": meta.size("ssm.inner_size"), "mamba_d_head": "auto",
    }  # fmt: skip


def _granite_hybrid(meta: Metadata, config: Config, tensors: Tensors) -> None:
    """Layers without heads of keys are state space models; those with some have positions where the file was made for them."""
    _granite(meta, config, tensors)
    _states(meta, config)
    heads, layers = config["num_key_value_heads"], config["num_hidden_layers"]
    heads = heads if isinstance(heads, list) else [heads] * layers
    config["layer_types"] = ["full_attention" if h else "mamba" for h in heads]
    config["num_key_value_heads"] = max(heads, default=0)
    config["position_embedding_type"] = "rope" if meta.get("rope.scaling.finetuned") else "nope"
    gate = tensors.get("model.layers.0.mlp.gate_proj.weight")
    if gate is not None and gate.shape:
        config["intermediate_size"] = gate.shape[0]


def _falcon_h1(meta: Metadata, config: Config, tensors: Tensors) -> None:
    """Weights hold the factors of what goes in and comes out."""
    _states(meta, config)
    config |= {
        "mamba_rms_norm": "model.layers.0.mamba.norm.weight" in tensors,
        "mamba_norm_before_gate": False,
    }


def _mistral3(meta: Metadata, config: Config, tensors: Tensors) -> None:
    scaling = config.get("rope_scaling")
    if not scaling:
        config["model_type"] = "mistral"
        return
    scaling["llama_4_scaling_beta"] = meta.get("attention.temperature_scale")
    if scaling.get("log_multiplier"):
        scaling["mscale_all_dim"] = scaling["mscale"] = scaling["log_multiplier"]


def _glm4_moe(meta: Metadata, config: Config, tensors: Tensors) -> None:
    _partial(meta, config, tensors)
    config |= {
        "n_routed_experts": config.get("num_experts"),
        "use_qk_norm": "model.layers.0.self_attn.q_norm.weight" in tensors,
    }


def _routed(meta: Metadata, config: Config, tensors: Tensors) -> None:
    config["n_routed_experts"] = config.get("num_experts")


def _exaone_moe(meta: Metadata, config: Config, tensors: Tensors) -> None:
    _pattern(meta, config, 4)
    config["num_shared_experts"] = config.pop("n_shared_experts", 0)


def _apertus(meta: Metadata, config: Config, tensors: Tensors) -> None:
    config["hidden_act"] = "xielu"


def _nemotron_h(meta: Metadata, config: Config, tensors: Tensors) -> None:
    """A layer with heads of keys is attention, one with inner features a network, or experts where it has a router, and any other a state space model."""
    layers = config["num_hidden_layers"]
    heads, widths = (
        v if isinstance(v, list) else [v] * layers for v in (config["num_key_value_heads"], config["intermediate_size"])
    )
    if min(len(heads), len(widths)) < layers:
        raise ImportModelError(
            f"{meta.path} tells heads of {len(heads)} layers and widths of {len(widths)}, and there are {layers}",
            hint=FETCH_AGAIN,
        )

    def kind(k: int) -> str:
        if heads[k]:
            return "full_attention"
        return "moe" if f"backbone.layers.{k}.mixer.gate.weight" in tensors else "mlp" if widths[k] else "mamba"

    inner, states = meta.size("ssm.inner_size"), meta.size("ssm.time_step_rank")
    config |= {
        "layer_types": [kind(k) for k in range(layers)], "num_key_value_heads": max(heads), "intermediate_size": max(widths), "mamba_num_heads": states,
        "mamba_head_dim": inner // states, "n_groups": meta.size("ssm.group_count", 1), "ssm_state_size": meta.size("ssm.state_size"),
        "conv_kernel": meta.size("ssm.conv_kernel"), "moe_shared_expert_intermediate_size": config.get("shared_expert_intermediate_size"),
    }  # fmt: skip
    _routed(meta, config, tensors)


def _minicpm(meta: Metadata, config: Config, tensors: Tensors) -> None:
    """The first files leave out the multipliers of the first models."""
    config.setdefault("embedding_multiplier", 12.0)
    config.setdefault("residual_multiplier", 1.4 / config["num_hidden_layers"] ** 0.5)
    config.setdefault("logit_scale", config["hidden_size"] / 256)
    _granite(meta, config, tensors)


def _cohere(meta: Metadata, config: Config, tensors: Tensors) -> None:
    config["use_qk_norm"] = "model.layers.0.self_attn.q_norm.weight" in tensors
    if meta.architecture == "cohere2":
        _pattern(meta, config, 4)


def _stablelm(meta: Metadata, config: Config, tensors: Tensors) -> None:
    _partial(meta, config, tensors)
    config["qk_layernorm"] = any(n.endswith(".self_attn.q_norm.weight") for n in tensors)


def _activated(name: str) -> Callable[[Metadata, Config, Tensors], None]:
    """Networks by another activation, heads of which a part may turn."""

    def more(meta: Metadata, config: Config, tensors: Tensors) -> None:
        config["hidden_act"] = name
        _partial(meta, config, tensors)

    return more


def _lfm2_moe(meta: Metadata, config: Config, tensors: Tensors) -> None:
    _lfm2(meta, config, tensors)
    config |= {"num_dense_layers": config.get("first_k_dense_replace", 0), "use_expert_bias": True}


def _gpt_oss(meta: Metadata, config: Config, tensors: Tensors) -> None:
    config |= {
        "num_local_experts": config.get("num_experts"),
        "intermediate_size": config.get("moe_intermediate_size", config.get("intermediate_size")),
    }
    if config.get("rope_scaling"):
        config["rope_scaling"]["truncate"] = False  # as the model was trained; files do not say it
    _pattern(meta, config, 2)


def _qwen3_moe(meta: Metadata, config: Config, tensors: Tensors) -> None:
    config.setdefault("norm_topk_prob", True)


def _smollm3(meta: Metadata, config: Config, tensors: Tensors) -> None:
    """Every fourth layer turns nothing; in Hugging Face's list 1 stands for layers that do."""
    config["no_rope_layers"] = [int((k + 1) % 4 != 0) for k in range(config["num_hidden_layers"])]


def _bert(meta: Metadata, config: Config, tensors: Tensors) -> None:
    config |= {"hidden_act": "gelu", "is_causal": False}
    types = tensors.get("embeddings.token_type_embeddings.weight")
    if types is not None and len(types.shape) == 2:
        config["type_vocab_size"] = types.shape[0]


_MORE: dict[str, Callable[[Metadata, Config, Tensors], None]] = {
    "llama": _mixture,
    "llama4": _llama4,
    "gemma3n": _gemma3n,
    "jamba": _jamba,
    "phimoe": _local_experts,
    "minimax-m2": _local_experts,
    "minicpm3": _minicpm3,
    "afmoe": _afmoe,
    "deepseek": _routed,
    "bailingmoe": _routed,
    "bailingmoe2": _glm4_moe,
    "falcon": _activated("gelu"),
    "bloom": _activated("gelu_pytorch_tanh"),
    "mpt": _mpt,
    "starcoder": _starcoder,
    "qwen3vlmoe": _qwen3_moe,
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "gemma-embedding": _gemma3,
    "gemma4": _gemma4,
    "gpt-oss": _gpt_oss,
    "olmo2": _windows_or_none,
    "exaone4": _windows(4),
    "granite": _granite,
    "granitemoe": _granite,
    "granitehybrid": _granite_hybrid,
    "falcon-h1": _falcon_h1,
    "mistral3": _mistral3,
    "chatglm": _partial,
    "glm4": _partial,
    "glm4moe": _glm4_moe,
    "dots1": _routed,
    "exaone-moe": _exaone_moe,
    "apertus": _apertus,
    "nemotron_h": _nemotron_h,
    "nemotron_h_moe": _nemotron_h,
    "minicpm": _minicpm,
    "command-r": _cohere,
    "cohere2": _cohere,
    "stablelm": _stablelm,
    "arcee": _activated("relu2"),
    "nemotron": _activated("relu2"),
    "starcoder2": _activated("gelu_pytorch_tanh"),
    "phi2": _activated("gelu_new"),
    "gpt2": _activated("gelu_new"),
    "gptneox": _activated("gelu"),
    "lfm2moe": _lfm2_moe,
    "phi3": _partial,
    "qwen3moe": _qwen3_moe,
    "qwen3next": _delta,
    "qwen35": _delta,
    "qwen35moe": _delta,
    "mamba": _mamba,
    "mamba2": _mamba,
    "lfm2": _lfm2,
    "deepseek2": _deepseek2,
    "smollm3": _smollm3,
    "bert": _bert,
}
