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

import tec.lm
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


def _case(kind: str, seed: int, folder: Path, **said: Any) -> tuple[Any, Any]:
    """A drawn file that transformers reads, beside weights in the folder; and its logits [tokens, vocabulary]. Every second file is as transformers writes it. said: by the file besides."""
    for k in range(_TRIES):
        raw = drawn(kind, random.Random(f"{kind} {seed} {k}")) | said
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
        if (seed + k) % 2:
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
    ],
)
def test_what_an_architecture_does_not_read_is_passed_over(kind: str, said: dict[str, Any], tmp_path: Path) -> None:
    _, want = _case(kind, 1, tmp_path, **said)
    got = Steps(tec.lm.open(tmp_path)).read(list(TOKENS))
    assert np.abs(got - want).max() < 1e-4 * max(1.0, np.abs(want).max())
