"""Architectures from GGUF files, written with llama.cpp's names and orders, against the logits that transformers has for the same weights."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
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
    said = {f"{architecture}.{k}": v for k, v in metadata(known[case]["config"]).items()}
    steps = Steps(tec.lm.open(write(tmp_path / "model.gguf", architecture, said, tensors)))
    want = np.array(known[case]["logits"])
    got = np.concatenate([steps.read(TOKENS[:7]), steps.read(TOKENS[7:])])[-KEPT:]
    assert np.abs(got - want).max() < 1e-4 * max(1.0, np.abs(want).max())
