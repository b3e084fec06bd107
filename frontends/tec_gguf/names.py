"""Names of tensors in GGUF files, and the names that Hugging Face has for them: one table for what most architectures share, and what differs for each.

A name is `blk.LAYER.STEM.weight` (or .bias) in a file, and `model.layers.LAYER.STEM.weight` here. What no table names keeps its own name.
"""

from __future__ import annotations

import re

from tec.errors import ImportModelError
from tec.lm.remedies import FETCH_AGAIN

_GLOBAL = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_EXPERTS = {f"ffn_{part}_exps": f"mlp.experts.{part}_proj" for part in ("gate", "up", "down", "gate_up")}
_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_sinks": "self_attn.sinks",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    **_EXPERTS,
}
_FOUR_NORMS = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_SHARED_EXPERT = {
    **{f"ffn_{part}_shexp": f"mlp.shared_expert.{part}_proj" for part in ("gate", "up", "down")},
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
}
_SHARED_EXPERTS = {f"ffn_{part}_shexp": f"mlp.shared_experts.{part}_proj" for part in ("gate", "up", "down")}
_BALANCE = {"exp_probs_b": "mlp.gate.e_score_correction"}
_NEMOTRON_H = {  # one norm and one mixer a layer
    "attn_norm": "norm", **{f"attn_{n}": f"mixer.{n}_proj" for n in "qkv"}, "attn_output": "mixer.o_proj", "ffn_up": "mixer.up_proj",
    "ffn_down": "mixer.down_proj", "ffn_gate_inp": "mixer.gate", "exp_probs_b": "mixer.gate.e_score_correction",
    **{f"ffn_{n}_exps": f"mixer.experts.{n}_proj" for n in ("up", "down")}, **{f"ffn_{n}_shexp": f"mixer.shared_experts.{n}_proj" for n in ("up", "down")},
    **{f"ssm_{n}": f"mixer.{theirs}" for n, theirs in (
        ("in", "in_proj"), ("conv1d", "conv1d"), ("dt", "dt_proj"), ("a", "A"), ("d", "D"), ("norm", "norm"), ("out", "out_proj"))},
}  # fmt: skip
_TWO_NORMS_BEHIND = {
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_DELTA = {  # layers of linear attention (gated delta rule)
    "post_attention_norm": "post_attention_layernorm",
    "attn_qkv": "linear_attn.in_proj_qkv",
    "attn_gate": "linear_attn.in_proj_z",
    "ssm_alpha": "linear_attn.in_proj_a",
    "ssm_beta": "linear_attn.in_proj_b",
    "ssm_ba": "linear_attn.in_proj_ba",
    "ssm_conv1d": "linear_attn.conv1d",
    "ssm_norm": "linear_attn.norm",
    "ssm_out": "linear_attn.out_proj",
    "ssm_dt": "linear_attn.dt_proj",
    "ssm_a": "linear_attn.A",
}
_MAMBA = {
    "attn_norm": "norm",
    "ssm_in": "mixer.in_proj",
    "ssm_conv1d": "mixer.conv1d",
    "ssm_x": "mixer.x_proj",
    "ssm_dt": "mixer.dt_proj",
    "ssm_a": "mixer.A",
    "ssm_d": "mixer.D",
    "ssm_norm": "mixer.norm",
    "ssm_out": "mixer.out_proj",
}
_LFM2 = {
    "attn_norm": "operator_norm", "ffn_norm": "ffn_norm", "attn_output": "self_attn.out_proj", "attn_q_norm": "self_attn.q_layernorm",
    "attn_k_norm": "self_attn.k_layernorm", "ffn_gate": "feed_forward.w1", "ffn_up": "feed_forward.w3", "ffn_down": "feed_forward.w2",
    "shortconv.conv": "conv.conv", "shortconv.in_proj": "conv.in_proj", "shortconv.out_proj": "conv.out_proj",
}  # fmt: skip
_STATES = {  # layers of a state space model among others
    "ssm_in": "mamba.in_proj", "ssm_conv1d": "mamba.conv1d", "ssm_dt": "mamba.dt_proj", "ssm_a": "mamba.A", "ssm_d": "mamba.D", "ssm_norm": "mamba.norm",
    "ssm_out": "mamba.out_proj",
}  # fmt: skip
_GRANITE_EXPERTS = {
    "ffn_gate_inp": "mlp.router",
    **{f"ffn_{part}_shexp": f"shared_mlp.{part}_proj" for part in ("gate", "up", "down")},
}
_PER_LAYER = {  # an embedding for each layer
    "inp_gate": "per_layer_input_gate",
    "proj": "per_layer_projection",
    "post_norm": "post_per_layer_input_norm",
}
_PER_LAYER_GLOBAL = {
    "per_layer_token_embd": "model.embed_tokens_per_layer",
    "per_layer_model_proj": "model.per_layer_model_projection",
    "per_layer_proj_norm": "model.per_layer_projection_norm",
}
_FEED_FORWARD = {  # networks and experts under another name
    "ffn_gate_inp": "feed_forward.router",
    **{f"ffn_{part}": f"feed_forward.{part}_proj" for part in ("gate", "up", "down")},
    **{f"ffn_{part}_exps": f"feed_forward.experts.{part}_proj" for part in ("gate", "up", "down")},
}
_LATENT = {
    "attn_q_a": "self_attn.q_a_proj",
    "attn_q_a_norm": "self_attn.q_a_layernorm",
    "attn_q_b": "self_attn.q_b_proj",
    "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
    "attn_kv_a_norm": "self_attn.kv_a_layernorm",
    "attn_kv_b": "self_attn.kv_b_proj",
}
_GPT2 = {
    "attn_norm": "ln_1", "attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj", "ffn_norm": "ln_2", "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj",
}  # fmt: skip
_GPT2_GLOBAL = {
    "token_embd": "transformer.wte",
    "position_embd": "transformer.wpe",
    "output_norm": "transformer.ln_f",
}
_BLOCKS: dict[str, dict[str, str]] = {
    "gemma2": _FOUR_NORMS,
    "gemma3": _FOUR_NORMS,
    "gemma4": {
        **_FOUR_NORMS, **_PER_LAYER, "layer_output_scale": "layer_scalar", "ffn_gate_inp": "router.proj", "ffn_gate_up_exps": "experts.gate_up_proj",
        "ffn_down_exps": "experts.down_proj", "ffn_pre_norm_2": "pre_feedforward_layernorm_2", "ffn_post_norm_1": "post_feedforward_layernorm_1",
        "ffn_post_norm_2": "post_feedforward_layernorm_2",
    },
    "gemma-embedding": _FOUR_NORMS,
    "olmo2": _TWO_NORMS_BEHIND,
    "exaone4": _TWO_NORMS_BEHIND,
    "glm4": {
        "post_attention_norm": "post_self_attn_layernorm",
        "post_ffw_norm": "post_mlp_layernorm",
        "ffn_up": "mlp.gate_up_proj",
    },
    "chatglm": {"ffn_up": "mlp.gate_up_proj"},
    "glm4moe": {"post_attention_norm": "post_attention_layernorm", **_BALANCE, **_SHARED_EXPERTS},
    "granitemoe": _GRANITE_EXPERTS,
    "granitehybrid": {**_GRANITE_EXPERTS, **_STATES},
    "falcon-h1": {
        "ffn_norm": "pre_ff_layernorm",
        **{f"ffn_{part}": f"feed_forward.{part}_proj" for part in ("gate", "up", "down")},
        **_STATES,
    },
    "dots1": {**_BALANCE, **_SHARED_EXPERTS},
    "exaone-moe": {**_BALANCE, **_SHARED_EXPERTS},
    "ernie4_5-moe": {**_BALANCE, **_SHARED_EXPERTS},
    "hunyuan-moe": {
        "attn_q_norm": "self_attn.query_layernorm", "attn_k_norm": "self_attn.key_layernorm",
        **{f"ffn_{part}_shexp": f"mlp.shared_mlp.{part}_proj" for part in ("gate", "up", "down")},
    },
    "apertus": {"attn_norm": "attention_layernorm", "ffn_norm": "feedforward_layernorm"},
    "nemotron_h": _NEMOTRON_H,
    "nemotron_h_moe": _NEMOTRON_H,
    "seed_oss": {"post_attention_norm": "post_attention_layernorm"},
    "hunyuan-dense": {"attn_q_norm": "self_attn.query_layernorm", "attn_k_norm": "self_attn.key_layernorm"},
    "starcoder2": {"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"},
    "phi2": {"attn_output": "self_attn.dense", "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"},
    "gptneox": {
        "attn_qkv": "attention.qkv_proj", "attn_output": "attention.dense", "ffn_up": "mlp.dense_h_to_4h", "ffn_down": "mlp.dense_4h_to_h",
    },
    "gpt2": _GPT2,
    "starcoder": _GPT2,
    "bloom": {
        "attn_qkv": "self_attention.qkv_proj", "attn_output": "self_attention.dense", "ffn_up": "mlp.dense_h_to_4h", "ffn_down": "mlp.dense_4h_to_h",
    },
    "mpt": {
        "attn_norm": "norm_1", "attn_qkv": "attn.Wqkv", "attn_output": "attn.out_proj", "ffn_norm": "norm_2", "ffn_up": "ffn.up_proj", "ffn_down": "ffn.down_proj",
    },
    "falcon": {
        "attn_norm_2": "ln_attn", "attn_qkv": "self_attention.qkv_proj", "attn_output": "self_attention.dense", "ffn_up": "mlp.dense_h_to_4h",
        "ffn_down": "mlp.dense_4h_to_h",
    },
    "llama4": {
        **_FEED_FORWARD, **{f"ffn_{part}_shexp": f"feed_forward.shared_expert.{part}_proj" for part in ("gate", "up", "down")},
    },
    "gemma3n": {
        **_FOUR_NORMS, **_PER_LAYER, "altup_correct_coef": "altup.correction_coefs", "altup_correct_scale": "altup.correct_output_scale",
        "altup_predict_coef": "altup.prediction_coefs", "altup_router": "altup.modality_router", "altup_router_norm": "altup.router_norm",
        "laurel_l": "laurel.linear_left", "laurel_r": "laurel.linear_right", "laurel_post_norm": "laurel.post_laurel_norm",
    },
    "jamba": {
        "ffn_norm": "pre_ff_layernorm", **_FEED_FORWARD, **_STATES, "ssm_x": "mamba.x_proj",
        **{f"ssm_{part}_norm": f"mamba.{part}_layernorm" for part in ("dt", "b", "c")},
    },
    "bitnet": {"attn_sub_norm": "self_attn.attn_sub_norm", "ffn_sub_norm": "mlp.ffn_sub_norm"},
    "minimax-m2": _BALANCE,
    "minicpm3": _LATENT,
    "afmoe": {
        "attn_gate": "self_attn.gate_proj", "post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_mlp_layernorm",
        "post_ffw_norm": "post_mlp_layernorm", "ffn_gate_inp": "mlp.router.gate", "exp_probs_b": "mlp.expert", **_SHARED_EXPERTS,
    },
    "deepseek": _SHARED_EXPERTS,
    "bailingmoe": _SHARED_EXPERTS,
    "bailingmoe2": {**_BALANCE, **_SHARED_EXPERTS},
    "phi3": {"ffn_up": "mlp.gate_up_proj"},
    "gpt-oss": {"post_attention_norm": "post_attention_layernorm", "ffn_gate_inp": "mlp.router"},
    "qwen2moe": _SHARED_EXPERT,
    "qwen3next": {**_SHARED_EXPERT, **_DELTA},
    "qwen35": _DELTA,
    "qwen35moe": {**_SHARED_EXPERT, **_DELTA},
    "deepseek2": {
        **_LATENT, "attn_k_b": "self_attn.k_b_proj", "attn_v_b": "self_attn.v_b_proj", **_BALANCE, **_SHARED_EXPERTS,
    },
    "lfm2": _LFM2,
    "lfm2moe": {
        **_LFM2, "ffn_gate_inp": "feed_forward.gate", "exp_probs_b": "feed_forward.expert",
        **{f"ffn_{part}_exps": f"feed_forward.experts.{part}_proj" for part in ("gate", "up", "down")},
    },
    "mamba": _MAMBA,
    "mamba2": _MAMBA,
    "bert": {
        "attn_q": "attention.self.query", "attn_k": "attention.self.key", "attn_v": "attention.self.value", "attn_qkv": "attention.self.qkv",
        "attn_output": "attention.output.dense", "attn_output_norm": "attention.output.LayerNorm", "ffn_up": "intermediate.dense",
        "ffn_down": "output.dense", "layer_output_norm": "output.LayerNorm",
    },
}  # fmt: skip
_BACKBONE = {"token_embd": "backbone.embeddings", "output_norm": "backbone.norm_f"}
_GLOBALS: dict[str, dict[str, str]] = {
    "gemma4": _PER_LAYER_GLOBAL,
    "gemma3n": {
        **_PER_LAYER_GLOBAL, "altup_proj": "model.altup_projections", "altup_unembd_proj": "model.altup_unembed_projections",
    },
    "jamba": {"output_norm": "model.final_layernorm"},
    "falcon": {"token_embd": "transformer.word_embeddings", "output_norm": "transformer.ln_f"},
    "bloom": {
        "token_embd": "transformer.word_embeddings", "token_embd_norm": "transformer.word_embeddings_layernorm", "output_norm": "transformer.ln_f",
    },
    "mpt": {"token_embd": "transformer.wte", "position_embd": "transformer.wpe", "output_norm": "transformer.norm_f"},
    "starcoder": _GPT2_GLOBAL,
    "lfm2": {"token_embd_norm": "model.embedding_norm", "output_norm": "model.embedding_norm"},
    "lfm2moe": {"token_embd_norm": "model.embedding_norm", "output_norm": "model.embedding_norm"},
    "phi2": {"output_norm": "model.final_layernorm"},
    "falcon-h1": {"output_norm": "model.final_layernorm"},
    "gptneox": {"token_embd": "gpt_neox.embed_in", "output_norm": "gpt_neox.final_layer_norm"},
    "gpt2": _GPT2_GLOBAL,
    "mamba": _BACKBONE,
    "mamba2": _BACKBONE,
    "nemotron_h": _BACKBONE,
    "nemotron_h_moe": _BACKBONE,
    "bert": {
        "token_embd": "embeddings.word_embeddings", "position_embd": "embeddings.position_embeddings",
        "token_types": "embeddings.token_type_embeddings", "token_embd_norm": "embeddings.LayerNorm",
    },
}  # fmt: skip
_LAYERS = {
    "mamba": "backbone.layers",
    "mamba2": "backbone.layers",
    "nemotron_h": "backbone.layers",
    "nemotron_h_moe": "backbone.layers",
    "bert": "encoder.layer",
    "gptneox": "gpt_neox.layers",
    "gpt2": "transformer.h",
    "starcoder": "transformer.h",
    "falcon": "transformer.h",
    "bloom": "transformer.h",
    "mpt": "transformer.blocks",
}
_NAME = re.compile(r"(?:blk\.(\d{1,6})\.)?(.+?)(?:\.(weight|bias))?", re.DOTALL)
# What in Hugging Face's files has no ".weight" behind it.
_BARE = {
    "self_attn.sinks",
    "mixer.A",
    "mixer.D",
    "mamba.A",
    "mamba.D",
    "linear_attn.A",
    "layer_scalar",
    "altup.correct_output_scale",
}
# Rows of q and k lie for a rotary that turns neighbours (`permute` in conversion/llama.py).
INTERLEAVED = {
    "llama",
    "smollm3",
    "olmo",
    "granite",
    "granitemoe",
    "granitehybrid",
    "arcee",
    "mistral3",
    "internlm2",
    "minicpm",
    "xverse",
    "deepseek",
    "bailingmoe",
}
# Architectures whose names are the usual ones.
_USUAL = (
    "llama", "qwen2", "qwen3", "qwen3moe", "gemma", "smollm3", "granite", "command-r", "cohere2", "ernie4_5", "stablelm", "olmo", "olmoe", "arcee", "nemotron", "mistral3",
    "internlm2", "minicpm", "exaone", "xverse", "qwen2vl", "qwen3vl", "qwen3vlmoe", "phimoe",
)  # fmt: skip


def tables() -> dict[str, tuple[dict[str, str], dict[str, str], str]]:
    """By architecture: names outside of layers, names within a layer, and what stands before a layer's number."""
    known = {*_USUAL, *_BLOCKS}
    return {
        a: ({**_GLOBAL, **_GLOBALS.get(a, {})}, {**_BLOCK, **_BLOCKS.get(a, {})}, _LAYERS.get(a, "model.layers"))
        for a in sorted(known)
    }


def name_of(name: str, table: tuple[dict[str, str], dict[str, str], str]) -> str:
    """Hugging Face's name for a file's. Raises ImportModelError for a layer whose number is no plain one."""
    match = _NAME.fullmatch(name)
    if match is None:
        return name
    layer, stem, ending = match.groups()
    if layer is not None and layer != str(int(layer)):
        raise ImportModelError(f"the tensor {name!r} has no plain number of a layer", hint=FETCH_AGAIN)
    found = table[0].get(stem) if layer is None else table[1].get(stem)
    if found is None:
        return name if layer is None else f"{table[2]}.{layer}.{stem}" + (f".{ending}" if ending else "")
    head = found if layer is None else f"{table[2]}.{layer}.{found}"
    return head if ending is None or found in _BARE else f"{head}.{ending}"
