"""Every architecture against logits of transformers, at once and token by token, from a folder as Hugging Face has it; some compiled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tec.lm
from tec.lm.architectures import NAMES
from tec.lm.plain import graph_of
from tests.seeds import first
from tests.thinned import thinned_rows

from .families import CASES, EMBEDDERS, FAMILIES, KEPT, RERANKERS, SECOND, TOKENS, filled, references
from .steps import Steps


@pytest.fixture(scope="module")
def known() -> Any:
    return references()


def folder_of(case: Any, folder: Path) -> Path:
    """A model's folder: the configuration, and tensors of the names and shapes that transformers has."""
    from safetensors.numpy import save_file

    (folder / "config.json").write_text(json.dumps(case["config"]))
    save_file({n: filled(n, tuple(s)) for n, s in case["shapes"].items()}, folder / "model.safetensors")
    return folder


@thinned_rows(10, "name", list(CASES))
def test_logits_are_those_of_transformers(name: str, known: Any, tmp_path: Path) -> None:
    checkpoint = tec.lm.open(folder_of(known[name], tmp_path))
    want = np.array(known[name]["logits"])
    near = 1e-4 * max(1.0, np.abs(want).max())
    steps = Steps(checkpoint)
    parts = [steps.read(part) for part in (TOKENS[:7], TOKENS[7:-1], TOKENS[-1:])]
    assert np.abs(np.concatenate(parts)[-KEPT:] - want).max() < near


@pytest.mark.parametrize(
    ("name", "left_out", "more"),
    [
        ("lfm2_moe 0", [], {"hidden_act": "relu"}),
        ("gpt2 0", [], {"hidden_act": "silu"}),
        ("gpt_bigcode 0", [], {"scale_attn_by_inverse_layer_idx": True}),
        ("ministral3 0", ["rms_norm_eps"], {}),
        ("afmoe 1", ["layer_types"], {}),
        ("apertus 1", ["rope_parameters"], {"rope_theta": 77.0}),
        ("llama 7", ["rope_parameters"], {"rope_theta": 1e6, "rope_scaling": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}}),
        ("mistral 0", [], {"layer_types": ["full_attention", "sliding_attention", "full_attention"]}),
        ("gpt_neox 0", ["rope_parameters"], {"rope_theta": 77.0, "partial_rotary_factor": 0.5, "rotary_emb_base": 10000, "rotary_pct": 0.25}),
    ],
)  # fmt: skip
def test_keys_that_an_architecture_does_not_read(
    name: str, left_out: list[str], more: dict[str, Any], known: Any, tmp_path: Path
) -> None:
    """Networks and experts of LFM2 are gated by SiLU whatever the file says, GPT-NeoX and GPT-2 have names of their own, StarCoder scales all layers alike, a theta in `rope_scaling` comes before the one beside it, Apertus without scaling has its own whatever theta stands there, and all layers of Mistral have its window."""
    config = {k: v for k, v in known[name]["config"].items() if k not in left_out} | more
    want = np.array(known[name]["logits"])
    got = Steps(tec.lm.open(folder_of({**known[name], "config": config}, tmp_path))).read(TOKENS)[-KEPT:]
    assert np.abs(got - want).max() < 1e-4 * max(1.0, np.abs(want).max())


@thinned_rows(
    1,
    "kind",
    [
        "gpt_oss",
        "qwen3_5_text",
        "mamba2",
        "deepseek_v2",
        "lfm2",
        "gemma4_text",
        "granitemoe",
        "gpt2",
        "mamba",
        "jamba",
        "llama4_text",
        "gemma3n_text",
        "phimoe",
    ],
)
def test_compiled(kind: str, known: Any, tmp_path: Path) -> None:
    """Weights are constants that recipes make, and states grow in place."""
    case = known[f"{kind} 0"]
    lm = tec.lm.load(folder_of(case, tmp_path), target="llvm", cache=False)
    want = np.array(case["logits"])
    near = 1e-4 * max(1.0, np.abs(want).max())
    assert np.abs(lm.begin(TOKENS) - want[-1]).max() < near
    lm.begin(TOKENS[:-KEPT])
    lm.save_state(tmp_path / "state")
    lm.begin(TOKENS[:2])
    lm.load_state(tmp_path / "state")
    for token, row in zip(TOKENS[-KEPT:], want):
        assert np.abs(lm.next(token) - row).max() < near


@thinned_rows(1, "name", list(EMBEDDERS))
def test_embeddings(name: str, known: Any, tmp_path: Path) -> None:
    case = known[f"embedder {name}"]
    model = tec.lm.embedder(folder_of(case, tmp_path), target="llvm", cache=False)
    for _ in range(2):  # one text leaves nothing for the next
        got = model.features(TOKENS)
        assert np.abs(got[-KEPT:] - np.array(case["logits"])).max() < 1e-4
        assert model.features(TOKENS[:3]).shape == (3, 64)
    whole = got.mean(0) if model.pooling == "mean" else got[-1]
    assert np.abs(model.embed(TOKENS) - whole / np.linalg.norm(whole)).max() < 1e-5
    for wrong in ([], [128], [5] * 200):
        with pytest.raises(tec.ArgumentError):
            model.embed(wrong)


def test_how_vectors_are_made_is_what_the_folder_says(known: Any, tmp_path: Path) -> None:
    from tec.lm.embedding import usual_pooling

    folder = folder_of(known["embedder bert"], tmp_path)
    assert usual_pooling(tec.lm.open(folder)) == "mean"
    (folder / "1_Pooling").mkdir()
    said = folder / "1_Pooling" / "config.json"
    said.write_text(json.dumps({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}))
    assert usual_pooling(tec.lm.open(folder)) == "first"
    said.write_text(json.dumps({"pooling_mode_max_tokens": True}))
    with pytest.raises(tec.ImportModelError, match="pooling_mode_max_tokens"):
        tec.lm.open(folder)
    with pytest.raises(tec.ArgumentError, match="bert writes no texts"):
        said.unlink()
        tec.lm.load(tec.lm.open(folder))


def test_vectors_go_through_the_layers_behind_the_pooling(known: Any, tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    folder = folder_of(known["embedder bert"], tmp_path)
    plain = tec.lm.embedder(folder, normalize=False).embed(TOKENS)
    rng = np.random.default_rng(3)
    first_w, first_b, second = (rng.standard_normal(s).astype(np.float32) for s in ((96, 64), (96,), (32, 96)))
    for name, tensors, activation in (
        ("2_Dense", {"linear.weight": first_w, "linear.bias": first_b}, "torch.nn.modules.activation.Tanh"),
        ("3_Dense", {"linear.weight": second}, "torch.nn.modules.linear.Identity"),
    ):
        (folder / name).mkdir()
        save_file(tensors, folder / name / "model.safetensors")
        (folder / name / "config.json").write_text(json.dumps({"activation_function": activation}))
    want = second @ np.tanh(first_w @ plain + first_b)
    modules = [{"path": "", "type": "sentence_transformers.models.Transformer"}] + [
        {"path": n, "type": f"sentence_transformers.models.{n[2:]}"} for n in ("1_Pooling", "2_Dense", "3_Dense", "4_Normalize")
    ]  # fmt: skip
    for listed in (None, modules):  # an older folder has no list
        if listed is not None:
            (folder / "modules.json").write_text(json.dumps(listed))
        found = tec.lm.embedder(folder).embed(TOKENS)
        assert found.shape == (32,) and np.abs(found - want / np.linalg.norm(want)).max() < 1e-5
    for wrong, said in (
        ({"path": "2_LSTM", "type": "x.LSTM"}, "has a LSTM"),
        ({"path": "../2_Dense", "type": "x.Dense"}, r"a Dense in '\.\./2_Dense'"),
        ({"path": "5_Dense", "type": "x.Dense"}, "5_Dense.* is missing"),
        ({"path": "3_Dense", "type": "x.Dense"}, r"dense_4.weight behind the pooling is \[32, 96\] of 32 features"),
    ):
        (folder / "modules.json").write_text(json.dumps([*modules, wrong]))
        with pytest.raises(tec.ImportModelError, match=said):
            tec.lm.embedder(folder)
    (folder / "modules.json").write_text("{}")
    with pytest.raises(tec.ImportModelError, match="holds no list of modules"):
        tec.lm.open(folder)


def test_every_architecture_has_a_case(known: Any) -> None:
    # A model for pictures too whose text part is the one beside it; the same as Mistral; one that transformers has not, compared by GGUF and under another name.
    outside = {"gemma3", "gemma4", "ministral", "deepseek"}
    assert set(FAMILIES) == set(NAMES) - outside
    assert sorted(known) == sorted(
        [*CASES, *(f"embedder {n}" for n in EMBEDDERS), *(f"reranker {n}" for n in RERANKERS)]
    )


def test_configurations_that_are_not_read_name_the_key(known: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(first())
    changes = [
        ("llama 0", "hidden_act", "golu"), ("deepseek_v2 0", "topk_method", "noaux"), ("mixtral 0", "num_experts_per_tok", 9), ("deepseek_v3 0", "n_group", 3),
        ("llama 0", "rope_parameters", {"rope_type": "spiral", "rope_theta": 1e4}), ("stablelm 0", "qk_layernorm", True), ("gpt_oss 0", "head_dim", 1.5),
    ]  # fmt: skip
    for name, key, value in [changes[k] for k in rng.permutation(len(changes))]:
        case = {**known[name], "config": {**known[name]["config"], key: value}}
        with pytest.raises(tec.ImportModelError) as told:
            graph_of(tec.lm.open(folder_of(case, tmp_path)), "llvm")
        assert key in str(told.value) or str(value) in str(told.value) or "spiral" in str(told.value)


@thinned_rows(1, "name", list(RERANKERS))
def test_rerankers(name: str, known: Any, tmp_path: Path) -> None:
    case = known[f"reranker {name}"]
    model: Any = tec.lm.reranker(folder_of(case, tmp_path), target="llvm", cache=False)
    assert abs(model.score_tokens(TOKENS, SECOND) - case["logits"][0][0]) < 1e-4
    if name == "bert":  # segments are told apart
        assert abs(model.score_tokens(TOKENS) - case["logits"][0][0]) > 1e-3
