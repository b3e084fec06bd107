"""Low-rank adapters from PEFT's folders and GGUF files, and what does not fit a model."""

from __future__ import annotations

import json

import gguf
import numpy as np
import pytest
import safetensors.numpy
import tokenizers as tk

import tec.lm.opening as opening
from tec.cli import chatting, generating, serving_texts
from tec.cli.generating import adapted
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
    path.mkdir(parents=True, exist_ok=True)
    (path / "adapter_config.json").write_text(json.dumps(config))
    named = {f"base_model.model.{n}.weight": v for n, v in (parts() if tensors is None else tensors).items()}
    safetensors.numpy.save_file(named, path / "adapter_model.safetensors")
    return path


@pytest.mark.parametrize(
    "more,scale",
    [
        ({}, 2.0),
        ({"use_rslora": True}, 4.0),
        ({"alpha_pattern": {"q_proj": 1}, "rank_pattern": {"self_attn.q_proj": 4}, "r": 16}, 0.25),
        ({"alpha_pattern": {r"layers\.[0-9]+\.self_attn\.(q|k)_proj": 1, "q_proj": 3}}, 0.25),
        ({"alpha_pattern": {r".*\.layers\.\d+\.self.*": 1}}, 0.25),
        ({"alpha_pattern": {r"layers\.1\..*q_proj": 1, "proj": 3}}, 2.0),
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


def whole(path, more, tensors, tied=True):
    """A checkpoint with what an adapter of these tensors, by their names in the file, makes of it."""
    checkpoint = opening.open(folder(path / "m", {**LLAMA, "tie_word_embeddings": tied}, weights()))
    peft(path / "a", {**CONFIG, **more}, {})
    safetensors.numpy.save_file({f"base_model.model.{n}": v for n, v in tensors.items()}, path / "a" / "adapter_model.safetensors")  # fmt: skip
    return applied(checkpoint, [opening.open_adapter(path / "a")])


def test_rows_of_dora_have_their_own_lengths(tmp_path):
    p, w = parts(), weights()[f"{Q}.weight"]
    lengths = np.linspace(1, 3, 64, dtype=np.float32)
    named = {f"{Q}.lora_{n}.weight": p[f"{Q}.lora_{n}"] for n in "AB"} | {f"{Q}.lora_magnitude_vector": lengths}
    found = whole(tmp_path, {"use_dora": True}, named).tensors[f"{Q}.weight"].dequantize()
    together = w + 2 * (p[f"{Q}.lora_B"] @ p[f"{Q}.lora_A"])
    np.testing.assert_allclose(found, together * (lengths / np.linalg.norm(together, axis=1))[:, None], rtol=1e-5, atol=1e-5)  # fmt: skip


def test_tensors_that_an_adapter_has_in_place_of_the_models(tmp_path):
    """A head becomes a matrix of its own; a table may have rows for more tokens."""
    norm, head = np.full(64, 2, np.float32), np.full((42, 64), 3, np.float32)
    named = {"model.norm.weight": norm, "lm_head.modules_to_save.default.weight": head, "model.embed_tokens.base_layer.weight": head + 1}  # fmt: skip
    found = whole(tmp_path, {"modules_to_save": ["lm_head", "norm"]}, named)
    assert (found.tensors["model.norm.weight"].dequantize() == 2).all()
    assert (found.tensors["lm_head.weight"].dequantize() == 3).all() and (found.tensors["model.embed_tokens.weight"].dequantize() == 4).all()  # fmt: skip
    assert found.config["vocab_size"] == 42 and found.config["tie_word_embeddings"] is False


def test_a_table_of_embeddings(tmp_path):
    """Its parts lie turned over, and the vocabulary's product keeps the table that it shared."""
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((4, 40), (64, 4)))
    named = {"model.embed_tokens.lora_embedding_A": a, "model.embed_tokens.lora_embedding_B": b}
    found, table = whole(tmp_path, {}, named), weights()["model.embed_tokens.weight"]
    np.testing.assert_allclose(found.tensors["model.embed_tokens.weight"].dequantize(), table + 2 * (b @ a).T, rtol=1e-5, atol=1e-5)  # fmt: skip
    assert (found.tensors["lm_head.weight"].dequantize() == table).all()
    assert found.config["tie_word_embeddings"] is False


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


EXPERTS = "model.layers.0.mlp.experts"
MOE = {"model_type": "mixtral", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 24, "vocab_size": 40}  # fmt: skip


def of_experts(path, more, tensors):
    """Three experts' gates, ups and downs with what an adapter of these tensors adds, and without."""
    rng = np.random.default_rng(2)
    shapes = {"w1": (24, 16), "w3": (24, 16), "w2": (16, 24)}
    plain = {f"model.layers.0.block_sparse_moe.experts.{k}.{n}.weight": rng.standard_normal(s).astype(np.float32) for k in range(3) for n, s in shapes.items()}  # fmt: skip
    path.mkdir(exist_ok=True)
    checkpoint = opening.open(folder(path / "m", MOE, {**plain, "model.embed_tokens.weight": np.zeros((40, 16), np.float32), "model.norm.weight": np.zeros(16, np.float32)}))  # fmt: skip
    found = applied(checkpoint, [opening.open_adapter(peft(path / "a", {**CONFIG, **more}, tensors))]).tensors
    names = [f"{EXPERTS}.{part}_proj.weight" for part in ("gate", "up", "down")]
    return [found[n].dequantize() - checkpoint.tensors[n].dequantize() for n in names]


def test_a_weight_that_files_call_otherwise(tmp_path):
    """Mixtral's router is block_sparse_moe.gate in the files, and mlp.gate for transformers."""
    a, b = np.ones((4, 16), np.float32), np.ones((3, 4), np.float32)
    router = np.zeros((3, 16), np.float32)
    checkpoint = opening.open(folder(tmp_path / "m", MOE, {"model.layers.0.block_sparse_moe.gate.weight": router, "model.norm.weight": router[0]}))  # fmt: skip
    adapter = opening.open_adapter(peft(tmp_path / "a", CONFIG, {"model.layers.0.mlp.gate.lora_A": a, "model.layers.0.mlp.gate.lora_B": b}))  # fmt: skip
    assert (applied(checkpoint, [adapter]).tensors["model.layers.0.mlp.gate.weight"].dequantize() == 8).all()


def test_an_adapter_of_one_expert(tmp_path):
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((4, 16), (24, 4)))
    stem = "model.layers.0.block_sparse_moe.experts.1.w3"
    gate, up, down = of_experts(tmp_path, {}, {f"{stem}.lora_A": a, f"{stem}.lora_B": b})
    np.testing.assert_allclose(up[1], 2 * b @ a, rtol=1e-4, atol=1e-4)
    assert not gate.any() and not down.any() and not up[[0, 2]].any()
    with pytest.raises(ImportModelError, match=r"adds \[10, 24, 16\] to .*up_proj.weight, which is \[3, 24, 16\]"):
        stem = "model.layers.0.block_sparse_moe.experts.9.w3"
        of_experts(tmp_path / "more", {}, {f"{stem}.lora_A": a, f"{stem}.lora_B": b})


@pytest.mark.parametrize("more, scale", [({}, 8 / 2), ({"use_rslora": True}, 8 / 2**0.5), ({"alpha_pattern": {r".*\.gate_up_proj": 6}}, 3)])  # fmt: skip
def test_an_adapter_of_all_experts_together(tmp_path, more, scale):
    """As peft's target_parameters makes them, of rank 2: parts of all experts in one pair, which of b in turn."""
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((6, 16), (48, 6)))
    named = {f"{EXPERTS}.base_layer.lora_A": a, f"{EXPERTS}.base_layer.lora_B": b}
    gate, up, down = of_experts(tmp_path, more, named)
    want = scale * np.einsum("ore,eri->eoi", b.reshape(48, 2, 3), a.reshape(3, 2, 16))
    np.testing.assert_allclose(np.concatenate([gate, up], 1), want, rtol=1e-4, atol=1e-4)
    assert not down.any()


def test_the_tokenizer_and_the_template_that_were_saved_with_an_adapter(tmp_path):
    """As trl saves them that made a chat's tokens: the model's own tokenizer would read these letter by letter."""
    model, adapter = folder(tmp_path / "m", LLAMA, weights(), tokenizer_config={"chat_template": "old"}), peft(tmp_path / "a")  # fmt: skip
    made = tk.Tokenizer(tk.models.BPE(dict(zip("abcdefgh", range(8))), []))  # fmt: skip
    made.save(str(model / "tokenizer.json"))
    made.add_special_tokens(["<|im_end|>"])
    assert applied(opening.open(model), [opening.open_adapter(adapter)]).chat_template == "old"
    made.save(str(adapter / "tokenizer.json"))
    (adapter / "tokenizer_config.json").write_text(json.dumps({"eos_token": "h", "chat_template": "new"}))
    found = applied(opening.open(model), [opening.open_adapter(adapter).fitted(opening.open(model))])
    assert found.tokenizer.encode("a<|im_end|>b") == [0, 8, 1] and opening.open(model).tokenizer.encode("a<|im_end|>b") == [0, 4, 3, 1]  # fmt: skip
    assert found.chat_template == "new" and found.generation["eos_token_ids"] == [2, 7, 8] and found.generation["eos_token"] == "h"  # fmt: skip


def test_commands_take_adapters(tmp_path):
    """What `tec generate`, `tec chat` and `tec serve` load."""
    model, adapter = folder(tmp_path / "m", LLAMA, weights()), peft(tmp_path / "a")
    assert adapted(model, []) is model
    changed = adapted(model, [adapter]).tensors[f"{Q}.weight"].dequantize() != weights()[f"{Q}.weight"]
    assert changed.all()
    assert all(any("--adapter" in p.opts for p in c.params) for c in (generating.command, chatting.command, serving_texts.command))  # fmt: skip


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
    "lengths of other rows": (
        CONFIG,
        {**P, f"{Q}.lora_magnitude_vector": P[f"{UP}.lora_B"]},
        r"lengths of .* are \[96, 4\]",
    ),
    "an expression that takes long": ({**CONFIG, "alpha_pattern": {"(a+)+b": 1}}, P, r"alpha_pattern has \(a\+\)\+b"),
    "another that takes long": ({**CONFIG, "alpha_pattern": {".*.*.*.*b": 1}}, P, "alpha_pattern has"),
    "no expression": ({**CONFIG, "alpha_pattern": {"a**": 1}}, P, "alpha_pattern has"),
    "another part's": (CONFIG, {"model.vision_tower.q.lora_A": P[f"{Q}.lora_A"]}, "no part of the text model"),
    "half a pair": (CONFIG, {f"{Q}.lora_A": P[f"{Q}.lora_A"]}, "one half of its pair"),
    "ranks that differ": (
        CONFIG,
        {f"{Q}.lora_A": P[f"{Q}.lora_A"][:3].copy(), f"{Q}.lora_B": P[f"{Q}.lora_B"]},
        r"\[3, 64\] and \[64, 4\]",
    ),
    "no rank": (
        CONFIG,
        {f"{Q}.lora_A": np.zeros((0, 64), np.float32), f"{Q}.lora_B": np.zeros((64, 0), np.float32)},
        "rank 0",
    ),
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
    with pytest.raises(ImportModelError, match=r"has model\.other\.weight, which .* does not have"):
        opening.open_adapter(peft(tmp_path / "c", tensors={"model.other": np.zeros(4, np.float32)})).fitted(checkpoint)
    with pytest.raises(ImportModelError, match=r"has model\.norm\.weight of \[4\], which is \[64\]"):
        opening.open_adapter(peft(tmp_path / "d", tensors={"model.norm": np.zeros(4, np.float32)})).fitted(checkpoint)
