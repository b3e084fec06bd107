"""Models whose configuration and tensors are another architecture's under other names: what theirs are called there.

`config.json` of a model that brings its own program, or of the part for texts of one that also sees: MiniCPM is Granite's arithmetic, InternLM 2 and EXAONE 3 are
Llama's. `model_type_of_file` keeps what the file says, by which its tensors are renamed (`tensors`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tec.errors import ImportModelError, one_line
from tec.lm.checkpoint import PackedTensor
from tec.lm.remedies import FETCH_AGAIN

Config = dict[str, Any]
KEY = "model_type_of_file"
# The same model under another name.
_SAME = {
    "qwen2_vl": "qwen2", "qwen2_vl_text": "qwen2", "qwen2_5_vl": "qwen2", "qwen2_5_vl_text": "qwen2", "qwen3_vl_text": "qwen3", "qwen3_vl_moe_text": "qwen3_moe",
    "kimi_k2": "deepseek_v3", "internlm3": "llama", "internlm2": "llama", "llama4": "llama4_text", "gemma3n": "gemma3n_text",
}  # fmt: skip


def known(config: Config) -> None:
    """Make a configuration that of the architecture which computes the same. Raises ImportModelError for what it has beyond that."""
    kind = str(config["model_type"])
    change = _CHANGES.get(kind)
    if change is not None:
        try:
            change(config)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise ImportModelError(
                f"the configuration of {kind} cannot be read: {one_line(str(error))[:200]}", hint=FETCH_AGAIN
            ) from None
    elif kind in _SAME:
        config["model_type"] = _SAME[kind]
    else:
        return
    config[KEY] = kind
    if kind.startswith("qwen"):
        for name in ("rope_scaling", "rope_parameters"):
            config[name] = _of_texts(config.get(name))


def _of_texts(rope: Any) -> Any:
    """Rotary positions of texts: three numbers a token, of a picture's time, row and column, are one and the same there."""
    if not isinstance(rope, dict):
        return rope
    kept = {k: v for k, v in rope.items() if k not in ("mrope_section", "mrope_interleaved")}
    for name in ("type", "rope_type"):
        if kept.get(name) == "mrope":
            kept[name] = "default"
    return kept


def _minicpm(config: Config) -> None:
    for key in ("num_experts", "sparse_config"):
        if config.get(key):
            raise ImportModelError(
                f"{key} = {one_line(repr(config[key]))[:80]} of minicpm", hint="its models without experts, and whose tokens see all, are read"
            )  # fmt: skip
    layers, hidden = config.get("num_hidden_layers"), config.get("hidden_size")
    if type(layers) is not int or type(hidden) is not int or layers < 1:
        raise ImportModelError(
            f"num_hidden_layers = {layers!r} and hidden_size = {hidden!r} of minicpm", hint=FETCH_AGAIN
        )
    heads = config.get("num_attention_heads")
    config |= {
        "model_type": "granite", "embedding_multiplier": config.get("scale_emb", 1), "residual_multiplier": config.get("scale_depth", 1) / layers**0.5,
        "logits_scaling": hidden / config.get("dim_model_base", hidden), "tie_word_embeddings": config.get("tie_word_embeddings", True),
        "attention_multiplier": (hidden // heads if type(heads) is int and heads > 0 else 1) ** -0.5,
    }  # fmt: skip


def _exaone(config: Config) -> None:
    config["model_type"] = "llama"
    for theirs, ours in (("num_layers", "num_hidden_layers"), ("activation_function", "hidden_act"), ("layer_norm_epsilon", "rms_norm_eps")):  # fmt: skip
        if theirs in config:
            config.setdefault(ours, config.pop(theirs))


def _bailing(config: Config) -> None:
    """Ling and Ring: the first as DeepSeek's first mixture, those from 2.0 on by sigmoid, as GLM-4.5."""
    if config.get("norm_head"):
        raise ImportModelError(
            "norm_head = True of bailing_moe", hint="take the model's GGUF file, which has the normed rows"
        )
    config["n_shared_experts"] = config.get("num_shared_experts", 0)
    if config.get("score_function") == "sigmoid":
        config |= {"model_type": "glm4_moe", "n_routed_experts": config.get("num_experts"), "partial_rotary_factor": config.get("partial_rotary_factor", 1.0)}  # fmt: skip
    else:
        config["model_type"] = "deepseek"


_CHANGES: dict[str, Callable[[Config], None]] = {
    "minicpm": _minicpm, "exaone": _exaone, "bailing_moe": _bailing, "bailing_moe_v2": _bailing,
}  # fmt: skip
_STEMS: dict[str, tuple[tuple[str, str], ...]] = {
    "internlm2": (
        ("model.tok_embeddings.", "model.embed_tokens."), ("output.weight", "lm_head.weight"), (".attention.wo.", ".self_attn.o_proj."),
        (".attention.w", ".self_attn.w"), (".feed_forward.w1.", ".mlp.gate_proj."), (".feed_forward.w3.", ".mlp.up_proj."),
        (".feed_forward.w2.", ".mlp.down_proj."), (".attention_norm.", ".input_layernorm."), (".ffn_norm.", ".post_attention_layernorm."),
    ),
    "exaone": (
        ("transformer.wte.", "model.embed_tokens."), ("transformer.ln_f.", "model.norm."), ("transformer.h.", "model.layers."),
        (".ln_1.", ".input_layernorm."), (".ln_2.", ".post_attention_layernorm."), (".attn.attention.out_proj.", ".self_attn.o_proj."),
        (".attn.attention.", ".self_attn."), (".mlp.c_fc_0.", ".mlp.gate_proj."), (".mlp.c_fc_1.", ".mlp.up_proj."), (".mlp.c_proj.", ".mlp.down_proj."),
    ),
    "bailing_moe": (
        ("model.word_embeddings.", "model.embed_tokens."), (".attention.query_key_value.", ".self_attn.qkv_proj."), (".attention.dense.", ".self_attn.o_proj."),
        (".attention.query_layernorm.", ".self_attn.q_norm."), (".attention.key_layernorm.", ".self_attn.k_norm."),
        (".mlp.gate.expert_bias", ".mlp.gate.e_score_correction_bias"),
    ),
}  # fmt: skip
_STEMS["bailing_moe_v2"] = _STEMS["bailing_moe"]


def tensors(raw: Mapping[str, PackedTensor], config: Mapping[str, Any]) -> dict[str, PackedTensor]:
    """Tensors by the names of the architecture that a file's is."""
    kind = str(config.get(KEY))
    made: dict[str, PackedTensor] = {}
    for name, t in raw.items():
        for before, after in _STEMS.get(kind, ()):
            name = after + name[len(before) :] if name.startswith(before) else name.replace(before, after)
        if kind == "internlm2" and (match := re.fullmatch(r"(.*\.self_attn)\.wqkv\.(weight|bias)", name)):
            made |= _by_groups(match[1], match[2], t, config)
        else:
            made[name] = t
    return made


def _by_groups(stem: str, end: str, t: PackedTensor, config: Mapping[str, Any]) -> dict[str, PackedTensor]:
    """Queries, keys and values of a matrix whose rows are, group by group, the queries of a group, its key and its value."""
    heads, groups, size = (config.get(n) for n in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    if not all(type(n) is int and n > 0 for n in (heads, groups, size)) or t.shape[0] != (heads + 2 * groups) * size:
        raise ImportModelError(
            f"{t.name} has {t.shape[0]} rows; the configuration says {heads!r} heads, {groups!r} of keys, of {size!r} features",
            hint=FETCH_AGAIN,
        )
    each = heads // groups
    made = {}
    for part, rows in (("q", slice(0, each)), ("k", slice(each, each + 1)), ("v", slice(each + 1, each + 2))):

        def take(rows: slice = rows) -> Any:
            return np.ascontiguousarray(t.data.reshape(groups, each + 2, -1)[:, rows]).reshape(-1)

        name = f"{stem}.{part}_proj.{end}"
        count = (rows.stop - rows.start) * groups * size
        made[name] = PackedTensor(name, (count, *t.shape[1:]), t.format, take)
    return made
