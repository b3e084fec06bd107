"""Hugging Face folders as checkpoints."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from tec_hf.settings import config_of

import tec.lm.opening as opening
from tec.errors import ImportModelError
from tec.lm.formats import Format

from .files import LLAMA, folder, weights


def test_a_folder(tmp_path):
    tensors = weights()
    tensors["model.layers.1.mlp.up_proj.weight"] = tensors["model.layers.1.mlp.up_proj.weight"].astype(
        ml_dtypes.bfloat16
    )
    place = folder(
        tmp_path / "m", LLAMA, tensors, generation_config={"eos_token_id": [2, 5], "temperature": 0.6, "top_p": 0.9, "max_length": 7},
        tokenizer_config={"chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]},
    )  # fmt: skip
    checkpoint = opening.open(place)
    assert (
        checkpoint.architecture == "llama"
        and checkpoint.config["head_dim"] == 16
        and checkpoint.config["rms_norm_offset"] == 0.0
    )
    assert checkpoint.generation == {"eos_token_ids": [2, 5], "temperature": 0.6, "top_p": 0.9}
    assert checkpoint.chat_template == "d" and checkpoint.tokenizer is None
    assert checkpoint.tensors.keys() == tensors.keys()
    for name, t in checkpoint.tensors.items():
        np.testing.assert_array_equal(t.dequantize(), tensors[name].astype(np.float32))
    assert checkpoint.tensors["model.layers.1.mlp.up_proj.weight"].format is Format.BF16
    assert not checkpoint.tensors["model.norm.weight"].data.flags.writeable, "the file is mapped"
    assert checkpoint.nbytes == sum(t.nbytes for t in tensors.values())


@pytest.mark.parametrize(
    "kept", [("rope_parameters", {"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0}), ("rope_theta", 500.0)]
)
def test_gptj_has_its_own_angles(tmp_path, kept):
    """transformers' GPT-J reads no others, whatever a file says."""
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "gptj", "n_embd": 64, "n_head": 4, "n_layer": 1, "rotary_dim": 8, kept[0]: kept[1]})
    )
    config = config_of(tmp_path)
    assert (
        config.get("rope_theta", 10000.0) == 10000.0
        and not config.get("rope_scaling")
        and not config.get("rope_parameters")
    )
    assert config["partial_rotary_factor"] == 0.5


def test_shards_and_other_parts(tmp_path):
    """A model for texts and pictures in two files: the text's part alone is taken, its configuration from text_config."""
    place = tmp_path / "m"
    text = {**{k: v for k, v in LLAMA.items() if k != "model_type"}, "rope_parameters": {
        "full_attention": {"rope_theta": 1e6, "rope_type": "linear", "factor": 8.0}, "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"}}}  # fmt: skip
    tensors = {"language_model." + n: v for n, v in weights().items()}
    folder(place, {"model_type": "gemma3", "text_config": text, "eos_token_id": [1, 106]}, {})
    (place / "model.safetensors").unlink()
    names = sorted(tensors)
    safetensors.numpy.save_file({n: tensors[n] for n in names[::2]}, place / "model-00001-of-00002.safetensors")
    rest = {n: tensors[n] for n in names[1::2]} | {"vision_tower.x.weight": np.zeros(3, np.float32)}
    safetensors.numpy.save_file(rest, place / "model-00002-of-00002.safetensors")
    shards = {n: f"model-0000{1 + k % 2}-of-00002.safetensors" for k, n in enumerate(names)}
    (place / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    checkpoint = opening.open(place)
    assert checkpoint.architecture == "gemma3_text" and checkpoint.config["rms_norm_offset"] == 1.0
    assert checkpoint.config["rope_theta"] == 1e6 and checkpoint.config["rope_local_base_freq"] == 1e4
    assert checkpoint.config["rope_scaling"] == {"rope_type": "linear", "factor": 8.0}
    assert checkpoint.tensors.keys() == weights().keys() and checkpoint.generation["eos_token_ids"] == [1, 106]


@pytest.mark.parametrize("family", ["qwen3_moe", "mixtral"])
def test_experts_become_one_tensor(tmp_path, family):
    rng = np.random.default_rng(1)
    block, parts = (
        ("mlp", ("gate_proj", "up_proj", "down_proj"))
        if family == "qwen3_moe"
        else ("block_sparse_moe", ("w1", "w3", "w2"))
    )
    tensors = {
        f"model.layers.0.{block}.experts.{e}.{p}.weight": rng.standard_normal((8, 4) if k < 2 else (4, 8)).astype(np.float16)
        for e in range(3) for k, p in enumerate(parts)
    }  # fmt: skip
    tensors[f"model.layers.0.{block}.gate.weight"] = np.zeros((3, 4), np.float32)
    checkpoint = opening.open(folder(tmp_path / "m", {**LLAMA, "model_type": family}, tensors))
    assert checkpoint.tensors.keys() == {
        f"model.layers.0.mlp.{n}.weight" for n in ("gate", "experts.gate_proj", "experts.up_proj", "experts.down_proj")
    }
    for k, name in enumerate(("gate_proj", "up_proj", "down_proj")):
        t = checkpoint.tensors[f"model.layers.0.mlp.experts.{name}.weight"]
        wanted = np.stack([tensors[f"model.layers.0.{block}.experts.{e}.{parts[k]}.weight"] for e in range(3)])
        np.testing.assert_array_equal(t.dequantize(), wanted.astype(np.float32))
        np.testing.assert_array_equal(t.part(1).dequantize(), wanted[1].astype(np.float32))
    del tensors[f"model.layers.0.{block}.experts.1.{parts[0]}.weight"]
    with pytest.raises(ImportModelError, match="expert 1 is missing"):
        opening.open(folder(tmp_path / "n", {**LLAMA, "model_type": family}, tensors))


def pack(codes: np.ndarray, bits: int, order: list[int] | None = None) -> np.ndarray:
    """Codes [..., n] as words [..., n * bits / 32], the first in the lowest bits."""
    each = 32 // bits
    lanes = codes.reshape(*codes.shape[:-1], -1, each)[..., order or list(range(each))].astype(np.uint32)
    return (lanes << (bits * np.arange(each, dtype=np.uint32))).sum(-1, dtype=np.uint32).view(np.int32)


@pytest.mark.parametrize(
    "bits,order,version", [(4, False, None), (8, False, None), (2, True, None), (4, True, "gptq_v2")]
)
def test_gptq(tmp_path, bits, order, version):
    """Packed as AutoGPTQ does: words along the inputs, zero points one less but in "gptq_v2", groups in any order by g_idx."""
    rng = np.random.default_rng(bits)
    rows, out, group = 64, 32, 16
    codes, zeros = rng.integers(0, 1 << bits, (rows, out)), rng.integers(1, 1 << bits, (rows // group, out))
    scales = rng.random((rows // group, out)).astype(np.float16)
    index = (rng.permutation(rows) // group if order else np.arange(rows) // group).astype(np.int32)
    stem = "model.layers.0.self_attn.q_proj"
    tensors = {
        f"{stem}.qweight": np.ascontiguousarray(pack(codes.T, bits).T), f"{stem}.scales": scales, f"{stem}.g_idx": index,
        f"{stem}.qzeros": pack(zeros - (0 if version else 1), bits), "model.norm.weight": np.ones(4, np.float32),
    }  # fmt: skip
    settings = {
        "quant_method": "gptq",
        "bits": bits,
        "group_size": group,
        "desc_act": order,
        "checkpoint_format": version,
    }
    checkpoint = opening.open(folder(tmp_path / "m", {**LLAMA, "quantization_config": settings}, tensors))
    t = checkpoint.tensors[f"{stem}.weight"]
    assert (t.shape, t.format, t.bits, t.group) == ((out, rows), Format.GPTQ, bits, group)
    np.testing.assert_allclose(t.dequantize(), ((codes - zeros[index]) * scales.astype(np.float32)[index]).T, rtol=1e-6)
    assert (t.codes is None) == order, "groups of neighbours stay packed"
    if t.codes is not None:
        for found, want in zip(t.codes(), (codes.T, scales.T, zeros.T)):
            np.testing.assert_array_equal(found, want)
    assert t.data.nbytes == rows * out * bits // 8 and set(checkpoint.tensors) == {
        f"{stem}.weight",
        "model.norm.weight",
    }


def test_awq(tmp_path):
    """Packed as AutoAWQ does: of eight columns 0 2 4 6 1 3 5 7 from the lowest bits on."""
    rng = np.random.default_rng(0)
    rows, out, group = 64, 32, 32
    codes, zeros = rng.integers(0, 16, (rows, out)), rng.integers(0, 16, (rows // group, out))
    scales = rng.random((rows // group, out)).astype(np.float16)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    stem = "model.layers.0.self_attn.q_proj"
    tensors = {
        f"{stem}.qweight": pack(codes, 4, order),
        f"{stem}.qzeros": pack(zeros, 4, order),
        f"{stem}.scales": scales,
    }
    settings = {"quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm", "zero_point": True}
    t = opening.open(folder(tmp_path / "m", {**LLAMA, "quantization_config": settings}, tensors)).tensors[
        f"{stem}.weight"
    ]
    index = np.arange(rows) // group
    assert (t.shape, t.format, t.group) == ((out, rows), Format.AWQ, group)
    assert t.codes is not None
    for found, want in zip(t.codes(), (codes.T, scales.T, zeros.T)):
        np.testing.assert_array_equal(found, want)
    np.testing.assert_allclose(t.dequantize(), ((codes - zeros[index]) * scales.astype(np.float32)[index]).T, rtol=1e-6)


@pytest.mark.parametrize("kind", ["blocks", "rows", "one"])
def test_8_bit_floats(tmp_path, kind):
    rng = np.random.default_rng(2)
    values = rng.standard_normal((160, 200)).astype(ml_dtypes.float8_e4m3fn)
    scale = rng.random({"blocks": (2, 2), "rows": (160, 1), "one": (1,)}[kind]).astype(np.float32)
    stem = "model.layers.0.mlp.up_proj"
    raw = {
        f"{stem}.weight": values.view(np.uint8),
        f"{stem}.{'weight_scale_inv' if kind == 'blocks' else 'weight_scale'}": scale,
    }
    settings = (
        {"quant_method": "fp8", "weight_block_size": [128, 128]}
        if kind == "blocks"
        else {"quant_method": "compressed-tensors"}
    )
    place = folder(tmp_path / "m", {**LLAMA, "quantization_config": settings}, raw)
    path = place / "model.safetensors"
    path.write_bytes(path.read_bytes().replace(b'"U8"', b'"F8_E4M3"').replace(b"      ", b" ", 1))
    header = path.read_bytes()
    length = header.index(b"}}") + 2 - 8 if b"}}" in header[:2000] else 0
    path.write_bytes(
        length.to_bytes(8, "little") + header[8 : 8 + length] + header[len(header) - values.nbytes - scale.nbytes :]
    )
    checkpoint = opening.open(place)
    t = checkpoint.tensors[f"{stem}.weight"]
    spread = np.repeat(np.repeat(scale, 128, 0)[:160], 128, 1)[:, :200] if kind == "blocks" else scale
    np.testing.assert_allclose(t.dequantize(), values.astype(np.float32) * spread, rtol=1e-6)
    assert t.format is Format.F8_E4M3 and t.nbytes == values.nbytes + scale.nbytes and len(checkpoint.tensors) == 1


def test_the_mxfp4_of_gpt_oss(tmp_path):
    """Neighbours share a byte, and rows of gate and up lie in turn; values are those of E2M1 times two to the scale's power."""
    rng = np.random.default_rng(4)
    blocks, scales = rng.integers(0, 256, (2, 6, 3, 16), np.uint8), rng.integers(120, 130, (2, 6, 3), np.uint8)
    bias = rng.standard_normal((2, 6)).astype(np.float32)
    stem = "model.layers.0.mlp.experts"
    tensors = {f"{stem}.gate_up_proj_blocks": blocks, f"{stem}.gate_up_proj_scales": scales, f"{stem}.gate_up_proj_bias": bias,
               f"{stem}.down_proj_blocks": blocks, f"{stem}.down_proj_scales": scales, f"{stem}.down_proj_bias": bias}  # fmt: skip
    settings = {"quant_method": "mxfp4"}
    checkpoint = opening.open(
        folder(tmp_path / "m", {**LLAMA, "model_type": "gpt_oss", "quantization_config": settings}, tensors)
    )
    table = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
    values = (
        np.stack([table[blocks & 15], table[blocks >> 4]], -1).reshape(2, 6, 3, 32)
        * np.exp2(scales.astype(np.float32) - 127)[..., None]
    )
    values = values.reshape(2, 6, 96)
    found = {n: t.dequantize() for n, t in checkpoint.tensors.items()}
    np.testing.assert_array_equal(found[f"{stem}.gate_proj.weight"], values[:, ::2])
    np.testing.assert_array_equal(found[f"{stem}.up_proj.weight"], values[:, 1::2])
    np.testing.assert_array_equal(found[f"{stem}.down_proj.weight"], values)
    np.testing.assert_array_equal(found[f"{stem}.up_proj.bias"], bias[:, 1::2])
    assert checkpoint.tensors[f"{stem}.gate_proj.weight"].format is Format.MXFP4 and len(found) == 6


def header(text: str | bytes, data: int = 64, length: int | None = None) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return (len(raw) if length is None else length).to_bytes(8, "little") + raw + bytes(data)


def entry(name: str = "w", dtype: str = "F32", shape: object = (2, 2), offsets: object = (0, 16)) -> str:
    return json.dumps({name: {"dtype": dtype, "shape": shape, "data_offsets": offsets}})


FILES = {
    "nothing": (b"", "it has 0 bytes"),
    "a header of 2^60": (header("{}", length=1 << 60), "a header of 1152921504606846976 bytes"),
    "a header that is cut off": (header("{}", data=0, length=99), "a header of 99 bytes"),
    "no JSON": (header("{x"), "the header is damaged"),
    "deep JSON": (header("[" * 100_000 + "]" * 100_000), "the header is damaged"),
    "no UTF-8": (header(b'{"\xff": 1}'), "the header is damaged"),
    "a list": (header("[]"), "holds no tensors"),
    "a name twice": (header('{"w": 1, "w": 2}'), "a name that is there twice"),
    "no facts": (header('{"w": 1}'), "no dtype, shape and data_offsets"),
    "a type": (header(entry(dtype="F4\x1b")), "which is unknown"),
    "a shape of texts": (header(entry(shape=["2"])), "the shape"),
    "a shape of bools": (header(entry(shape=[True])), "the shape"),
    "a shape below zero": (header(entry(shape=[-2, -2])), "the shape"),
    "a shape of 2^60": (header(entry(shape=[1 << 60])), "16 bytes for F32"),
    "three offsets": (header(entry(offsets=[0, 1, 2])), "the shape"),
    "offsets outside": (header(entry(offsets=[60, 76])), "bytes 60 to 76 of 64"),
    "offsets backwards": (header(entry(offsets=[16, 0])), "bytes 16 to 0"),
    "too few bytes": (header(entry(offsets=[0, 12])), "12 bytes for F32"),
    "overlap": (header(entry()[:-1] + ", " + entry("v", offsets=[8, 24])[1:]), "overlap"),
}  # fmt: skip


@pytest.mark.parametrize("what", FILES)
def test_damaged_files(tmp_path, what):
    raw, match = FILES[what]
    place = folder(tmp_path / "m", LLAMA, {})
    (place / "model.safetensors").write_bytes(raw)
    with pytest.raises(ImportModelError, match=match) as caught:
        opening.open(place)
    assert "\x1b" not in str(caught.value)


FOLDERS = {
    "no model_type": ({"config": {"hidden_size": 4}}, "has no model_type"),
    "a config of a list": ({"config": []}, "holds no settings"),
    "an index that leads out": (
        {"model.safetensors.index": {"weight_map": {"w": "../m/model.safetensors"}}},
        "files lie in the folder itself",
    ),
    "an index to what is missing": (
        {"model.safetensors.index": {"weight_map": {"w": "x.safetensors"}}},
        "x.safetensors is missing",
    ),
    "an index of nothing": ({"model.safetensors.index": {"metadata": {}}}, "has no weight_map"),
    "a way of quantizing": (
        {"config": {**LLAMA, "quantization_config": {"quant_method": "bitsandbytes"}}},
        "quantized by bitsandbytes",
    ),
    "a tokenizer that is none": ({"tokenizer": {"x": 1}}, "is no tokenizer"),
}


@pytest.mark.parametrize("what", FOLDERS)
def test_damaged_folders(tmp_path, what):
    files, match = FOLDERS[what]
    place = folder(tmp_path / "m", LLAMA, {"model.norm.weight": np.ones(4, np.float32)})
    for name, value in files.items():
        (place / f"{name}.json").write_text(json.dumps(value))
    with pytest.raises(ImportModelError, match=match):
        opening.open(place)


def test_a_pointer_of_git_lfs_is_told(tmp_path):
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5000000000\n"
    (tmp_path / "model.gguf").write_bytes(pointer)
    place = folder(tmp_path / "m", LLAMA, {})
    (place / "model.safetensors").write_bytes(pointer)
    for path in (tmp_path / "model.gguf", place):
        with pytest.raises(ImportModelError, match="is a pointer of git-lfs") as caught:
            opening.open(path)
        assert "git lfs pull" in caught.value.hint


def test_no_weights(tmp_path):
    place = folder(tmp_path / "m", LLAMA, {})
    (place / "model.safetensors").unlink()
    with pytest.raises(ImportModelError, match="no weights in"):
        opening.open(place)
    with pytest.raises(ImportModelError, match="holds no language model"):
        opening.open(tmp_path)
    with pytest.raises(ImportModelError, match="no such file"):
        opening.open(tmp_path / "x")
