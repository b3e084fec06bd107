"""GGUF files as checkpoints: names, configuration and values of files that the package `gguf` wrote."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from tec_gguf import names
from tec_gguf.config import MODEL_TYPES

import tec.lm.opening as opening
from tec.lm.formats import Format

from .files import LLAMA, llama_tensors, write


def test_a_llama(tmp_path):
    tensors = llama_tensors()
    kinds = {"blk.0.ffn_up.weight": "Q8_0", "blk.0.attn_q.weight": "Q4_0", "blk.0.attn_v.weight": "F16"}
    checkpoint = opening.open(write(tmp_path / "m.gguf", "llama", LLAMA, tensors, kinds))
    assert checkpoint.architecture == "llama"
    wanted = {
        "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96,
        "vocab_size": 40, "tie_word_embeddings": True, "rope_theta": 500000.0, "max_position_embeddings": 64,
    }  # fmt: skip
    assert {k: checkpoint.config[k] for k in wanted} == wanted
    assert checkpoint.generation["eos_token_ids"] == [2, 3]
    formats = {n: t.format for n, t in checkpoint.tensors.items()}
    assert formats["model.layers.0.mlp.up_proj.weight"] is Format.Q8_0
    assert formats["model.layers.0.self_attn.v_proj.weight"] is Format.F16
    assert set(formats) == {
        "model.embed_tokens.weight", "model.norm.weight",
        *(f"model.layers.0.{n}.weight" for n in (
            "input_layernorm", "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj",
            "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
        )),
    }  # fmt: skip
    down = checkpoint.tensors["model.layers.0.mlp.down_proj.weight"]
    np.testing.assert_array_equal(down.dequantize(), tensors["blk.0.ffn_down.weight"])
    assert down.nbytes == down.data.nbytes == 64 * 96 * 4


def test_weights_are_views_of_the_mapped_file(tmp_path):
    checkpoint = opening.open(write(tmp_path / "m.gguf", "llama", LLAMA, llama_tensors()))
    for t in checkpoint:
        base = t.data
        while isinstance(base, np.ndarray) and base.base is not None:
            base = base.base
        assert not isinstance(base, np.ndarray) and not t.data.flags.writeable, t.name


def permuted(w: np.ndarray, heads: int) -> np.ndarray:
    """What conversion/llama.py does to q and k: halves of a head's rows become neighbours."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(w.shape)


def test_rows_of_q_and_k_are_put_back(tmp_path):
    tensors = llama_tensors()
    stored = dict(tensors)
    stored["blk.0.attn_q.weight"] = permuted(tensors["blk.0.attn_q.weight"], 4)
    stored["blk.0.attn_k.weight"] = permuted(tensors["blk.0.attn_k.weight"], 2)
    checkpoint = opening.open(write(tmp_path / "m.gguf", "llama", LLAMA, stored, {"blk.0.attn_k.weight": "Q8_0"}))
    q, k, v = (checkpoint.tensors[f"model.layers.0.self_attn.{n}_proj.weight"] for n in "qkv")
    assert (q.rotary_heads, k.rotary_heads, v.rotary_heads) == (4, 2, 0)
    np.testing.assert_array_equal(q.dequantize(), tensors["blk.0.attn_q.weight"])
    np.testing.assert_array_equal(q.dequantize(as_stored=True), stored["blk.0.attn_q.weight"])
    assert np.abs(k.dequantize() - tensors["blk.0.attn_k.weight"]).max() < 0.02
    moved = k.half_split()
    assert moved.rotary_heads == 0 and moved.format is Format.Q8_0
    np.testing.assert_array_equal(moved.dequantize(), k.dequantize())


@pytest.mark.parametrize("architecture", sorted(MODEL_TYPES))
def test_names_are_those_that_the_converter_maps(architecture):
    """Each name that a table has for Hugging Face's goes back to the file's by the converter's own table."""
    arch = next((a for a, n in gguf.MODEL_ARCH_NAMES.items() if n == architecture), None)
    if arch is None:
        pytest.skip(f"the package gguf does not know {architecture}")
    theirs = gguf.get_tensor_name_map(arch, 1)
    files = {gguf.TENSOR_NAMES[t].format(bid=0) for t in gguf.MODEL_TENSORS[arch]}
    table = names.tables()[architecture]
    compared = 0
    for ours, text in [(f"blk.0.{k}", f"{table[2]}.0.{v}") for k, v in table[1].items()] + list(table[0].items()):
        found = theirs.get_name(text, try_suffixes=(".weight", ".bias"))
        if ours in files and found is not None:
            assert found == ours, text
            compared += 1
    assert compared >= 7


def test_names_that_no_table_has_keep_their_endings() -> None:
    from tec_gguf.names import name_of, tables

    table = tables()["llama"]
    named = {
        "blk.7.attn_q.weight": "model.layers.7.self_attn.q_proj.weight",
        "blk.7.unheard_of.bias": "model.layers.7.unheard_of.bias",
        "blk.7.unheard_of": "model.layers.7.unheard_of",
        "unheard_of.weight": "unheard_of.weight",
    }
    assert {name: name_of(name, table) for name in named} == named
