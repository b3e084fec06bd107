"""Drawn config.json files of every architecture of `tec.lm` against transformers: the same file and the same weights, logits in float32.

What transformers itself refuses is no case. `python -m pytest tests/torch/test_drawn_configurations.py` draws few; with TEC_SEED each architecture has four.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tec_hf.settings import config_of

import tec.lm
from tec.lm.config import Config
from tec.lm.rope import frequencies
from tests.seeds import number, some
from tests.unit.lm.configurations import drawn
from tests.unit.lm.families import FAMILIES, TOKENS, filled

transformers = pytest.importorskip("transformers")
from tests.unit.lm.steps import Steps  # noqa: E402

_EACH = 4 if number() else 1
_TRIES = 20  # of 100 drawn files transformers refuses some 25


def _model(folder: Path) -> Any:
    config = transformers.AutoConfig.from_pretrained(folder)
    how = "sdpa" if getattr(config, "alibi", False) else "eager"  # as of `tools.lm_references`
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=how).eval().float()
    tied = ("lm_head.weight", "embed_out.weight") if config.tie_word_embeddings else ()
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if value.dtype.is_floating_point and name not in tied:
                value.copy_(torch.from_numpy(filled(name, tuple(value.shape))))
    return model


def _case(kind: str, seed: int, folder: Path, as_said: bool = False, **said: Any) -> tuple[Any, Any]:
    """A drawn file that transformers reads, beside weights in the folder; and its logits [tokens, vocabulary]. Every second file is as transformers writes it, with
    `as_said` none. said: by the file besides; what is None is left out."""
    for k in range(_TRIES):
        raw = drawn(kind, random.Random(f"{kind} {seed} {k}")) | said
        raw = {key: value for key, value in raw.items() if key not in said or value is not None}
        file = folder / "config.json"
        file.write_text(json.dumps(raw))
        try:
            model = _model(folder)
            with torch.no_grad():
                logits = model(torch.tensor([TOKENS]), use_cache=False).logits[0].numpy()
        except Exception:  # of any type: it checks little before it computes
            continue
        if not np.isfinite(logits).all():
            continue
        model.save_pretrained(folder)
        if as_said or (seed + k) % 2:
            file.write_text(json.dumps(raw))
        return raw, logits
    raise AssertionError(f"transformers reads none of {_TRIES} files of {kind}")


@pytest.mark.parametrize("kind", FAMILIES)
def test_logits_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    for seed in some(_EACH):
        folder = tmp_path / str(seed)
        folder.mkdir()
        raw, want = _case(kind, seed, folder)
        steps = Steps(tec.lm.open(folder))
        got = np.concatenate([steps.read(part) for part in (TOKENS[:7], TOKENS[7:-1], TOKENS[-1:])])
        if "dynamic" in json.dumps(raw):  # its keys have the frequencies of the whole text in the last token alone
            got, want = got[-1:], want[-1:]
        assert np.abs(got - want).max() < 1e-4 * max(1.0, np.abs(want).max()), raw


@pytest.mark.parametrize(
    "kind, said",
    [
        ("cohere2", {"use_qk_norm": True}),  # as Command R's heads are where a file says so
        ("gptj", {"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}}),
        ("gptj", {"n_embd": 96, "n_head": 3}),  # beside the usual names of these sizes
    ],
)
def test_what_an_architecture_does_not_read_is_passed_over(kind: str, said: dict[str, Any], tmp_path: Path) -> None:
    _, want = _case(kind, 1, tmp_path, **said)
    got = Steps(tec.lm.open(tmp_path)).read(list(TOKENS))
    assert np.abs(got - want).max() < 1e-4 * max(1.0, np.abs(want).max())


_YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 20000.0}
_LLAMA3 = {**_YARN, "rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}


@pytest.mark.parametrize(
    "kind, said",
    [
        # The length that a model was trained with: beside the table, within it, or the context.
        ("llama", {"rope_parameters": {**_YARN, "original_max_position_embeddings": 32}, "original_max_position_embeddings": 64}),
        ("qwen2", {"rope_parameters": _LLAMA3, "original_max_position_embeddings": 24}),
        ("mistral", {"rope_parameters": _LLAMA3}),
        ("ministral3", {"rope_parameters": None, "original_max_position_embeddings": 8}),
        ("llama", {"rope_parameters": {**_YARN, "factor": None, "original_max_position_embeddings": 32}}),
        # Tables for kinds of layers, and one for none, which is not read.
        ("olmo3", {"rope_parameters": None, "rope_scaling": {**_YARN, "original_max_position_embeddings": 32}, "rope_theta": 700.0}),
        ("gemma3n_text", {"rope_parameters": {"rope_type": "linear", "factor": 8.0, "rope_theta": 500.0}, "rope_scaling": None}),
        ("gemma3_text", {"rope_parameters": None, "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "rope_theta": 500.0}),
        ("gemma3_text", {"rope_parameters": {"sliding_attention": {"rope_type": "linear", "factor": 2.0}}, "rope_scaling": None}),
        # Layers with a window that the file names, whatever its switch says; and no kinds of layers.
        ("smollm3", {"layer_types": ["full_attention", "sliding_attention"], "num_hidden_layers": 2, "sliding_window": 4, "use_sliding_window": False, "no_rope_layers": [1, 0]}),
        ("granitemoehybrid", {"layer_types": None}),
        # By which its experts are not scaled.
        ("afmoe", {"route_scale": None, "routed_scaling_factor": 2.5}),
    ],
)  # fmt: skip
def test_what_a_file_says_is_what_it_says_to_transformers(kind: str, said: dict[str, Any], tmp_path: Path) -> None:
    _, want = _case(kind, 3, tmp_path, as_said=True, **{"rope_scaling": None, **said})
    got = Steps(tec.lm.open(tmp_path)).read(list(TOKENS))
    assert np.abs(got - want).max() < 1e-4 * max(1.0, np.abs(want).max())


# Other names of architectures of `FAMILIES`.
_OTHER_NAMES = ("exaone", "internlm3", "qwen2_vl", "qwen2_5_vl", "qwen3_vl_text", "qwen3_vl_moe_text")
_READ = (
    "attn_logit_softcapping", "final_logit_softcapping", "logit_scale", "max_position_embeddings", "moe_intermediate_size", "n_group",
    "norm_topk_prob", "num_experts", "num_experts_per_tok", "num_key_value_heads", "num_local_experts", "query_pre_attn_scalar", "routed_scaling_factor",
    "use_sliding_window",
)  # fmt: skip


# Mamba-2's sizes are its own, and GPT-J turns 64 features, which these heads do not have.
@pytest.mark.parametrize("kind", [k for k in [*FAMILIES, *_OTHER_NAMES] if k not in ("mamba2", "gptj")])
def test_what_a_file_leaves_out_means_what_it_means_to_transformers(kind: str, tmp_path: Path) -> None:
    sizes = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 128}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind, **sizes}))
    theirs = transformers.AutoConfig.from_pretrained(tmp_path).get_text_config().to_dict()
    values = config_of(tmp_path)
    ours = Config(values, kind)
    for key in _READ:
        if key in values and theirs.get(key) is not None:
            assert values[key] == theirs[key], key
    assert ours.context == theirs.get("max_position_embeddings", ours.context)
    epsilons = [v for k, v in theirs.items() if k in ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps")]  # fmt: skip
    assert not epsilons or ours.epsilon in epsilons
    rope = theirs.get("rope_parameters") or {}
    rope = rope.get("full_attention", rope)
    if rope.get("rope_type") == "default":
        share = rope.get("partial_rotary_factor") or theirs.get("partial_rotary_factor") or 1.0
        size = int(ours.head_size * share)
        assert np.allclose(frequencies(ours).inverse, rope["rope_theta"] ** -(np.arange(0, size, 2) / size))
