"""Folders whose models are another architecture's under other names: the logits are those of transformers for the same weights."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import tec.lm
from tests.thinned import thinned_rows
from tests.unit.lm.families import KEPT, TOKENS, filled, references
from tests.unit.lm.steps import Steps

Tensors = dict[str, Any]
Config = dict[str, Any]


def _named(*pairs: tuple[str, str]) -> Callable[[Tensors], Tensors]:
    """Tensors by other names: each pair is what stands there and what it becomes."""

    def change(tensors: Tensors) -> Tensors:
        made = {}
        for name, value in tensors.items():
            for ours, theirs in pairs:
                name = name.replace(ours, theirs)
            made[name] = value
        return made

    return change


def _grouped(tensors: Tensors) -> Tensors:
    """InternLM 2: two groups of two queries, a key and a value, of 16 features each, in one matrix."""
    made = _named(
        ("model.embed_tokens.", "model.tok_embeddings."), ("lm_head.", "output."), (".self_attn.o_proj.", ".attention.wo."), (".mlp.gate_proj.", ".feed_forward.w1."),
        (".mlp.up_proj.", ".feed_forward.w3."), (".mlp.down_proj.", ".feed_forward.w2."), (".input_layernorm.", ".attention_norm."),
        (".post_attention_layernorm.", ".ffn_norm."),
    )(tensors)  # fmt: skip
    for name in [n for n in made if n.endswith("q_proj.weight")]:
        parts = [made.pop(name.replace("q_proj", f"{p}_proj")).reshape(2, -1, 16, 64) for p in "qkv"]
        made[name.replace("self_attn.q_proj", "attention.wqkv")] = np.concatenate(parts, 1).reshape(-1, 64)
    return made


def _bailing(tensors: Tensors) -> Tensors:
    """Ling: queries, keys and values behind each other in one matrix; experts one by one."""
    made = _named(
        ("model.embed_tokens.", "model.word_embeddings."), (".self_attn.o_proj.", ".attention.dense."), (".self_attn.q_norm.", ".attention.query_layernorm."),
        (".self_attn.k_norm.", ".attention.key_layernorm."), (".gate.e_score_correction_bias", ".gate.expert_bias"),
        ("block_sparse_moe.router.layer.", "mlp.gate."), ("block_sparse_moe.router.", "mlp.gate."),
    )(tensors)  # fmt: skip
    for name in [n for n in made if n.endswith("q_proj.weight")]:
        parts = [made.pop(name.replace("q_proj", f"{p}_proj")) for p in "qkv"]
        made[name.replace("self_attn.q_proj", "attention.query_key_value")] = np.concatenate(parts)
    for name in [n for n in made if n.endswith((".experts.gate_up_proj", ".experts.down_proj", "shared_mlp.input_linear.weight"))]:  # fmt: skip
        value = made.pop(name)
        if "shared_mlp" in name:
            for part, half in zip(("gate", "up"), np.split(value, 2, 0)):
                made[name.replace("shared_mlp.input_linear", f"mlp.shared_experts.{part}_proj")] = half
            continue
        stem = name.rpartition(".")[0].replace("block_sparse_moe", "mlp")
        parts = np.split(value, 2, 1) if name.endswith("gate_up_proj") else [value]
        for part, whole in zip(("gate", "up") if len(parts) == 2 else ("down",), parts):
            made |= {f"{stem}.{k}.{part}_proj.weight": v for k, v in enumerate(whole)}
    return _named(("shared_mlp.output_linear", "mlp.shared_experts.down_proj"))(made)


def _ling(c: Config) -> Config:
    return {
        **c, "model_type": "bailing_moe", "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 96, "num_shared_experts": 2, "norm_topk_prob": True,
    }  # fmt: skip


def _ling2(c: Config) -> Config:
    rope = c.pop("rope_parameters")
    return {
        **c, "model_type": "bailing_moe", "num_experts": 8, "num_shared_experts": 1, "score_function": "sigmoid", "rope_theta": rope["rope_theta"],
        "partial_rotary_factor": rope["partial_rotary_factor"],
    }  # fmt: skip


def _factors(c: Config) -> Config:
    """MiniCPM, whose scores have no factor of their own."""
    return {
        **{k: v for k, v in c.items() if "multiplier" not in k}, "model_type": "minicpm", "scale_emb": c["embedding_multiplier"], "dim_model_base": 64 / c["logits_scaling"],
        "scale_depth": c["residual_multiplier"] * c["num_hidden_layers"] ** 0.5,
    }  # fmt: skip


def _exaone(c: Config) -> Config:
    return {
        **{k: v for k, v in c.items() if k not in ("num_hidden_layers", "hidden_act", "rms_norm_eps")}, "model_type": "exaone", "num_layers": c["num_hidden_layers"],
        "activation_function": c["hidden_act"], "layer_norm_epsilon": c["rms_norm_eps"],
    }  # fmt: skip


def _seeing(kind: str, flat: bool = False) -> Callable[[Config], Config]:
    """A model that sees pictures too, whose tokens of texts have one place."""

    def change(c: Config) -> Config:
        own = {**c, "model_type": f"{kind}_text", "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}}
        own["rope_theta"] = own.pop("rope_parameters")["rope_theta"]
        return {**own, "model_type": kind, "vision_config": {}} if flat else {"model_type": kind, "text_config": own}

    return change


CASES: dict[str, tuple[str, Callable[[Config], Config], Callable[[Tensors], Tensors]]] = {
    "internlm2": ("llama 1", lambda c: {**c, "model_type": "internlm2"}, _grouped),
    "internlm3": ("llama 2", lambda c: {**c, "model_type": "internlm3", "qkv_bias": True}, _named()),
    "minicpm": ("granite 1", _factors, _named()),
    "exaone": ("llama 1", _exaone, _named(
        ("model.embed_tokens.", "transformer.wte."), ("model.norm.", "transformer.ln_f."), ("model.layers.", "transformer.h."), (".input_layernorm.", ".ln_1."),
        (".post_attention_layernorm.", ".ln_2."), (".self_attn.o_proj.", ".attn.attention.out_proj."), (".self_attn.", ".attn.attention."),
        (".mlp.gate_proj.", ".mlp.c_fc_0."), (".mlp.up_proj.", ".mlp.c_fc_1."), (".mlp.down_proj.", ".mlp.c_proj."))),
    "ling": ("granitemoeshared 1", _ling, _bailing),
    "ling 2": ("glm4_moe 0", _ling2, _bailing),
    "qwen2_vl": ("qwen2 2", _seeing("qwen2_vl", flat=True), _named()),
    "qwen2_5_vl": ("qwen2 2", _seeing("qwen2_5_vl"), _named(("model.", "model.language_model."))),
    "qwen3_vl": ("qwen3 0", _seeing("qwen3_vl"), _named(("model.", "model.language_model."))),
    "qwen3_vl_moe": ("qwen3_moe 0", _seeing("qwen3_vl_moe"), _named(("model.", "model.language_model."))),
    "smolvlm": ("llama 1", lambda c: {"model_type": "smolvlm", "text_config": c}, _named(("model.", "model.text_model."))),
}  # fmt: skip


@pytest.fixture(scope="module")
def known() -> Mapping[str, Any]:
    return references()


@thinned_rows(3, "name", list(CASES))
def test_logits_are_those_of_transformers(name: str, known: Mapping[str, Any], tmp_path: Path) -> None:
    case, of_config, of_tensors = CASES[name]
    tensors = of_tensors({n: filled(n, tuple(s)) for n, s in known[case]["shapes"].items()})
    save_file({n: np.ascontiguousarray(v) for n, v in tensors.items()}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(of_config(dict(known[case]["config"]))))
    want = np.array(known[case]["logits"])
    got = Steps(tec.lm.open(tmp_path)).read(TOKENS)[-KEPT:]
    assert np.abs(got - want).max() < 1e-4 * max(1.0, np.abs(want).max())


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "minicpm", "num_experts": 8}, "num_experts = 8"),
        ({"model_type": "minicpm", "num_hidden_layers": "two", "hidden_size": 64}, "num_hidden_layers = 'two'"),
        ({"model_type": "bailing_moe", "norm_head": True}, "norm_head"),
    ],
)
def test_what_they_have_beyond_that_is_refused(config: Config, said: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(tec.ImportModelError, match=said):
        tec.lm.open(tmp_path)


def test_a_matrix_of_other_groups_is_refused(tmp_path: Path) -> None:
    config = {"model_type": "internlm2", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 1}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file({"model.layers.0.attention.wqkv.weight": np.zeros((100, 64), np.float32)}, tmp_path / "model.safetensors")
    with pytest.raises(tec.ImportModelError, match="100 rows"):
        tec.lm.open(tmp_path)
