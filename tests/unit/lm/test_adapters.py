"""Low-rank adapters from PEFT's folders and GGUF files, and what does not fit a model."""

from __future__ import annotations

import json

import gguf
import numpy as np
import pytest
import safetensors.numpy

import tec.lm.opening as opening
from tec.errors import ImportModelError
from tec.lm.adapters import applied
from tec.lm.formats import Format
from tests.unit.tec_gguf.files import LLAMA as GGUF_LLAMA
from tests.unit.tec_gguf.files import llama_tensors, write
from tests.unit.tec_gguf.test_reading import permuted
from tests.unit.tec_hf.files import LLAMA, folder, weights

Q, UP = "model.layers.0.self_attn.q_proj", "model.layers.0.mlp.up_proj"
CONFIG = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "up_proj"], "bias": "none"}


def parts(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = {f"{Q}.lora_A": (4, 64), f"{Q}.lora_B": (64, 4), f"{UP}.lora_A": (4, 64), f"{UP}.lora_B": (96, 4)}
    return {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}


def peft(path, config=CONFIG, tensors=None):
    path.mkdir(exist_ok=True)
    (path / "adapter_config.json").write_text(json.dumps(config))
    named = {f"base_model.model.{n}.weight": v for n, v in (parts() if tensors is None else tensors).items()}
    safetensors.numpy.save_file(named, path / "adapter_model.safetensors")
    return path


@pytest.mark.parametrize(
    "more,scale",
    [
        ({}, 2.0),
        ({"use_rslora": True}, 4.0),
        ({"alpha_pattern": {"q_proj": 1}, "rank_pattern": {"self_attn.q_proj": 2}}, 0.5),
    ],
)
def test_a_folder_of_peft(tmp_path, more, scale):
    checkpoint = opening.open(folder(tmp_path / "m", LLAMA, weights()))
    adapter = opening.open_adapter(peft(tmp_path / "a", {**CONFIG, **more})).fitted(checkpoint)
    p = parts()
    weight = checkpoint.tensors[f"{Q}.weight"]
    np.testing.assert_allclose(
        adapter.merged(weight).dequantize(),
        weight.dequantize() + scale * (p[f"{Q}.lora_B"] @ p[f"{Q}.lora_A"]),
        rtol=1e-5,
        atol=1e-5,
    )
    other = checkpoint.tensors["model.layers.1.self_attn.q_proj.weight"]
    assert adapter.merged(other) is other and adapter.deltas[f"{Q}.weight"].rank == 4


def test_adapters_add_up(tmp_path):
    checkpoint = opening.open(folder(tmp_path / "m", LLAMA, weights()))
    two = [opening.open_adapter(peft(tmp_path / n, tensors=parts(k))) for k, n in enumerate("ab")]
    found = applied(checkpoint, two)
    for stem in (Q, UP):
        added = sum(2 * (parts(k)[f"{stem}.lora_B"] @ parts(k)[f"{stem}.lora_A"]) for k in range(2))
        t = found.tensors[f"{stem}.weight"]
        np.testing.assert_allclose(t.dequantize(), weights()[f"{stem}.weight"] + added, rtol=1e-4, atol=1e-4)
        assert t.format is Format.F32 and t.data.nbytes == t.nbytes
    assert (
        found.tensors["model.norm.weight"] is checkpoint.tensors["model.norm.weight"]
        and applied(checkpoint, []) is checkpoint
    )


def test_a_gguf_file(tmp_path):
    """Rows of b for q are permuted as the weight's are, and put back with the model's number of heads."""
    p, tensors = parts(), llama_tensors()
    stored = {**tensors, "blk.0.attn_q.weight": permuted(tensors["blk.0.attn_q.weight"], 4)}
    checkpoint = opening.open(write(tmp_path / "m.gguf", "llama", GGUF_LLAMA, stored))
    path = tmp_path / "a.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 8.0)
    writer.add_tensor("blk.0.attn_q.weight.lora_a", p[f"{Q}.lora_A"])
    writer.add_tensor("blk.0.attn_q.weight.lora_b", permuted(p[f"{Q}.lora_B"], 4))
    writer.add_tensor("blk.0.ffn_up.weight.lora_a", p[f"{UP}.lora_A"])
    writer.add_tensor("blk.0.ffn_up.weight.lora_b", p[f"{UP}.lora_B"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    adapter = opening.open_adapter(path).fitted(checkpoint)
    for stem, name in ((Q, "blk.0.attn_q.weight"), (UP, "blk.0.ffn_up.weight")):
        found = adapter.merged(checkpoint.tensors[f"{stem}.weight"]).dequantize()
        np.testing.assert_allclose(
            found, tensors[name] + 2 * (p[f"{stem}.lora_B"] @ p[f"{stem}.lora_A"]), rtol=1e-5, atol=1e-5
        )
    with pytest.raises(ImportModelError, match="holds a model, not an adapter"):
        opening.open_adapter(tmp_path / "m.gguf")


P = parts()
MISTAKES = {
    "another kind": ({**CONFIG, "peft_type": "IA3"}, P, "of the kind IA3"),
    "DoRA": ({**CONFIG, "use_dora": True}, P, "of the kind DoRA"),
    "biases": ({**CONFIG, "bias": "all"}, P, "changes biases"),
    "half a pair": (CONFIG, {f"{Q}.lora_A": P[f"{Q}.lora_A"]}, "one half of its pair"),
    "ranks that differ": (
        CONFIG,
        {f"{Q}.lora_A": P[f"{Q}.lora_A"][:3].copy(), f"{Q}.lora_B": P[f"{Q}.lora_B"]},
        r"\[3, 64\] and \[64, 4\]",
    ),
    "no rank": ({**CONFIG, "r": 0}, P, "r 0"),
    "another tensor": (CONFIG, {f"{Q}.lora_C": P[f"{Q}.lora_A"]}, "no part of a LoRA"),
    "an endless scale": ({**CONFIG, "lora_alpha": float("inf")}, P, "scale of .* is inf"),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_mistakes(tmp_path, what):
    config, tensors, match = MISTAKES[what]
    with pytest.raises(ImportModelError, match=match):
        opening.open_adapter(peft(tmp_path / "a", config, tensors))


def test_an_adapter_of_another_model(tmp_path):
    checkpoint = opening.open(folder(tmp_path / "m", LLAMA, weights()))
    elsewhere = {n.replace("layers.0", "layers.7"): v for n, v in P.items()}
    with pytest.raises(ImportModelError, match=r"changes model\.layers\.7\..*, which .* does not have"):
        opening.open_adapter(peft(tmp_path / "a", tensors=elsewhere)).fitted(checkpoint)
    wide = {f"{Q}.lora_A": np.zeros((4, 80), np.float32), f"{Q}.lora_B": P[f"{Q}.lora_B"]}
    with pytest.raises(ImportModelError, match=r"adds \[64, 80\] to .* which is \[64, 64\]"):
        opening.open_adapter(peft(tmp_path / "b", tensors=wide)).fitted(checkpoint)
    with pytest.raises(ImportModelError, match="holds no adapter"):
        opening.open_adapter(tmp_path / "m")
