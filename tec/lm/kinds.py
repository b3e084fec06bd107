"""What the keys of a configuration may hold: a file says `rope_theta: "x"` or `sliding_window: true` only by mistake, and what would be made of it is no model.

`check(values, architecture)` raises an ImportModelError with the key's name. Keys that no architecture reads may hold anything; sizes are checked where they are
read (`Config.size`), since some files have lists of them.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import ImportModelError, one_line

_LARGEST = 1 << 31


def _is_number(x: Any) -> bool:
    """Of a size that float32 holds, its inverse too."""
    is_real = isinstance(x, numbers.Real) and not isinstance(x, bool) and math.isfinite(x)
    return is_real and (x == 0 or 1e-30 < abs(x) < 1e30)


def _is_count(x: Any) -> bool:
    return isinstance(x, numbers.Integral) and not isinstance(x, bool) and 0 <= int(x) < _LARGEST


def _is_flag(x: Any) -> bool:
    return isinstance(x, bool) or (_is_count(x) and x < 2)


def _is_token(x: Any) -> bool:
    return isinstance(x, numbers.Integral) and not isinstance(x, bool) and -1 <= int(x) < _LARGEST


def _is_part(x: Any) -> bool:
    return _is_number(x) and 0 <= x < 1


def _each(kind: Callable[[Any], bool], least: int = 0) -> Callable[[Any], bool]:
    return lambda x: isinstance(x, (list, tuple)) and len(x) >= least and all(map(kind, x))


_LAYERS = (
    "full_attention",
    "sliding_attention",
    "chunked_attention",
    "linear_attention",
    "conv",
    "attention",
    "mamba",
    "moe",
    "mlp",
)
# By kind: whether a value is one, and what to say where it is not.
_COUNT = _is_count, "an int from 0 on"
_FLAG = _is_flag, "true or false"
_NUMBER = _is_number, "a number"
_POSITIVE = (lambda x: _is_number(x) and x > 0), "a number above 0"
_BASE = (lambda x: _is_number(x) and x >= 1), "a number from 1 on"
_FROM_ZERO = (lambda x: _is_number(x) and x >= 0), "a number from 0 on"
_SHARE = (lambda x: _is_number(x) and 0 < x <= 1), "a number above 0, 1 at most"
_TEXT = (lambda x: isinstance(x, str)), "a text"
_TOKENS = (lambda x: _is_token(x) or _each(_is_token)(x)), "a token's number, or a list of them"
_FACTORS = _each(_POSITIVE[0], 1), "a list of numbers above 0"
_Kind = tuple[Callable[[Any], bool], str]


def _numbers(count: int) -> _Kind:
    return lambda x: _each(_is_number)(x) and len(x) == count, f"a list of {count} numbers"


def _is_range(x: Any) -> bool:
    """Two numbers, of which the second may be infinite."""
    return _each(lambda e: _is_number(e) or e == math.inf)(x) and len(x) == 2 and x[0] <= x[1]


_AUTO = (lambda x: _is_count(x) or x == "auto"), 'an int, or "auto"'
_KINDS: dict[str, _Kind] = {
    **dict.fromkeys(("attention_chunk_size", "altup_active_idx"), _COUNT),
    **dict.fromkeys(("time_step_rank", "mamba_dt_rank"), _AUTO),
    **dict.fromkeys(
        ("alibi", "multi_query", "mup_enabled", "altup_correct_scale", "attn_temperature_tuning", "new_decoder_architecture"), _FLAG),
    **dict.fromkeys(("mixer_rms_eps", "router_jitter_noise"), _FROM_ZERO),
    **dict.fromkeys(("floor_scale", "dim_model_base", "expand"), _POSITIVE),
    **dict.fromkeys(("attn_scale", "route_scale", "scale_emb", "scale_depth"), _NUMBER),
    "activation_sparsity_pattern": (lambda x: _is_part(x) or _each(_is_part)(x), "a number from 0 to below 1, or a list of them"),
    **dict.fromkeys(
        ("sliding_window", "sliding_window_pattern", "first_k_dense_replace", "n_shared_experts", "num_dense_layers", "num_kv_shared_layers", "q_lora_rank",
         "hidden_size_per_layer_input", "shared_intermediate_size", "moe_num_shared_experts", "num_shared_experts", "num_local_experts", "no_rope_layer_interval"), _COUNT),
    **dict.fromkeys(
        ("norm_topk_prob", "use_sliding_window", "tie_word_embeddings", "use_bidirectional_attention", "use_qk_norm", "qk_layernorm", "rope_interleave",
         "use_parallel_residual", "use_expert_bias", "scale_attn_weights", "mamba_rms_norm", "mamba_norm_before_gate", "scale_attn_by_inverse_layer_idx", "linear_value_heads_tiled"), _FLAG),
    **dict.fromkeys(("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"), _FROM_ZERO),
    **dict.fromkeys(("rope_theta", "rope_local_base_freq"), _BASE),
    **dict.fromkeys(("query_pre_attn_scalar", "logits_scaling", "clip_qkv"), _POSITIVE),
    **dict.fromkeys(("attn_logit_softcapping", "final_logit_softcapping", "rms_norm_offset", "swiglu_limit"), _FROM_ZERO),
    **dict.fromkeys(
        ("routed_scaling_factor", "attention_multiplier", "embedding_multiplier", "residual_multiplier", "logit_scale", "swiglu_alpha",
         "key_multiplier", "attention_in_multiplier", "attention_out_multiplier", "ssm_in_multiplier", "ssm_out_multiplier", "lm_head_multiplier"), _NUMBER),
    "mlp_multipliers": _numbers(2), "ssm_multipliers": _numbers(5),
    "mlp_layer_types": (_each(("dense", "sparse").__contains__), "a list of dense and sparse"),
    "mamba_d_head": _AUTO, "time_step_limit": (_is_range, "the least and the largest step"), "time_step_min": _FROM_ZERO,
    "partial_rotary_factor": _SHARE,
    **dict.fromkeys(("hidden_act", "hidden_activation", "mlp_hidden_act", "topk_method", "position_embedding_type"), _TEXT),
    "layer_types": (_each(_LAYERS.__contains__), f"a list of {', '.join(_LAYERS)}"),
    "no_rope_layers": (_each(_is_flag), "a list of 0 and 1"),
    **dict.fromkeys(("eos_token_id", "bos_token_id", "pad_token_id"), _TOKENS),
    "original_max_position_embeddings": (lambda x: _is_number(x) and x >= 1, "a number of tokens"),
}  # fmt: skip
_ROPE: dict[str, _Kind] = {
    "rope_type": _TEXT, "type": _TEXT, "rope_theta": _BASE, "partial_rotary_factor": _SHARE,
    **dict.fromkeys(("factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "alpha", "short_mscale", "long_mscale"), _POSITIVE),
    **dict.fromkeys(("attention_factor", "mscale", "mscale_all_dim", "llama_4_scaling_beta"), _FROM_ZERO),
    **dict.fromkeys(("short_factor", "long_factor", "factors"), _FACTORS), "truncate": _FLAG,
}  # fmt: skip
_TABLES = ("rope_scaling", "rope_parameters")
_SOME_LAYERS = ("full_attention", "sliding_attention")  # whose own parameters a table may hold


def check(values: Mapping[str, Any], architecture: str) -> None:
    """ImportModelError for the first key that holds what it cannot."""
    _check(values, _KINDS, architecture, "")
    for name in _TABLES:
        table = values.get(name)
        if table is None:
            continue
        _require(isinstance(table, Mapping), name, table, "a table", architecture)
        _check(table, _ROPE, architecture, f"{name}.")
        for part in _SOME_LAYERS:
            own = table.get(part)
            if own is not None:
                _require(isinstance(own, Mapping), f"{name}.{part}", own, "a table", architecture)
                _check(own, _ROPE, architecture, f"{name}.{part}.")


def _check(values: Mapping[str, Any], kinds: Mapping[str, _Kind], architecture: str, at: str) -> None:
    for name, value in values.items():
        if value is not None and name in kinds:
            fits, what = kinds[name]
            _require(fits(value), at + name, value, what, architecture)


def _require(fits: bool, name: str, value: Any, what: str, architecture: str) -> None:
    if not fits:
        raise ImportModelError(
            f"the configuration of {one_line(architecture)} has {name} = {one_line(repr(value))[:80]}", hint=what
        )
