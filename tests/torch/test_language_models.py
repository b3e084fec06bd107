"""Architectures of `tec.lm` against transformers: small random weights, logits in float32, and greedy tokens."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
import pytest
import torch

import tec.lm
from tec.lm import Checkpoint, Format, PackedTensor, load
from tests.seeds import first

transformers = pytest.importorskip("transformers")

_SIZES: dict[str, Any] = {
    "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 128,
    "max_position_embeddings": 128, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
_EXPERTS = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}), "llama tied": ("llama", {"tie_word_embeddings": True}), "llama 3": ("llama", {"rope_scaling": {"rope_theta": 10000.0, **_LLAMA3}}),
    "llama, wide heads": ("llama", {"head_dim": 32, "attention_bias": True, "mlp_bias": True}), "yarn": ("llama", {"rope_scaling": {"rope_theta": 10000.0, **_YARN}}),
    "mistral": ("mistral", {"sliding_window": 5}), "smollm3": ("smollm3", {}), "qwen2": ("qwen2", {}), "qwen3": ("qwen3", {"head_dim": 32}),
    "gemma2": ("gemma2", {"head_dim": 16, "sliding_window": 5, "query_pre_attn_scalar": 24}),
    "gemma3": ("gemma3_text", {"head_dim": 32, "sliding_window": 5, "num_hidden_layers": 7}), "phi3": ("phi3", {"partial_rotary_factor": 0.5}),
    "olmo2": ("olmo2", {}),
    "qwen3_moe": ("qwen3_moe", {**_EXPERTS, "head_dim": 32, "norm_topk_prob": True, "mlp_only_layers": [1]}), "mixtral": ("mixtral", {"num_local_experts": 4}),
    "qwen2_moe": ("qwen2_moe", {**_EXPERTS, "shared_expert_intermediate_size": 48}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_logits_and_greedy_tokens(case: str) -> None:
    kind, more = CASES[case]
    config = transformers.AutoConfig.for_model(kind, **{**_SIZES, **more})
    torch.manual_seed(first())
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval().float()
    with torch.no_grad():
        for p in model.parameters():  # norms begin as ones and biases as zeros, which would hide them
            p.add_(torch.randn_like(p) * 0.05)
    lm = load(_checkpoint(kind, model), target="llvm", cache=False)
    ids = np.random.default_rng(first()).integers(3, 128, 20).tolist()
    with torch.no_grad():
        want = model(torch.tensor([ids])).logits[0].numpy()
    assert np.abs(lm.begin(ids) - want[-1]).max() < 1e-4
    lm.begin(ids[:7])
    for k in range(7, 12):
        assert np.abs(lm.next(ids[k]) - want[k]).max() < 1e-4
    run = lm.generate(ids, max_tokens=8)
    lm.ends.clear()
    run = lm.generate(ids, max_tokens=8)
    for _ in run:
        pass
    text = list(ids)
    for _ in range(8):
        with torch.no_grad():
            text.append(int(model(torch.tensor([text])).logits[0, -1].argmax()))
    assert run.ids == text[len(ids) :]


def _checkpoint(kind: str, model: Any) -> Checkpoint:
    tensors = {}
    for name, p in model.state_dict().items():
        value = np.ascontiguousarray(p.detach().numpy(), np.float32)
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        for own, part in _parts(name, value):
            tensors[own] = PackedTensor(own, part.shape, Format.F32, part.reshape(-1).view(np.uint8))
    return Checkpoint(kind, model.config.to_dict(), tensors, _Tokens)


def _parts(name: str, value: Any) -> list[tuple[str, Any]]:
    """Experts as files have them (`Checkpoint`): transformers joins their gates and ups when it reads them."""
    if name.endswith("experts.gate_up_proj"):
        stem = name.removesuffix("gate_up_proj")
        return [(f"{stem}{n}_proj.weight", v.copy()) for n, v in zip(("gate", "up"), np.split(value, 2, 1))]
    return [(f"{name}.weight" if name.endswith("experts.down_proj") else name, value)]


class _Tokens:
    """Tokens as numbers."""

    size = 128

    def encode(self, text: str, *, special: bool = True, add_special: bool = True) -> list[int]:
        return [int(t) for t in text.split()]

    def decode(self, ids: Any, *, special: bool = False) -> str:
        return "".join(f"{t} " for t in ids)

    def token_bytes(self, id: int) -> bytes:
        return f"{id} ".encode()

    def id_of(self, token: str) -> int | None:
        return None


def test_whisper() -> None:
    """Random weights and features, and sizes of which no two are alike: logits, and the tokens that are written."""
    sizes = {
        "vocab_size": 80, "num_mel_bins": 24, "encoder_layers": 3, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 4,
        "encoder_ffn_dim": 40, "decoder_ffn_dim": 72, "d_model": 48, "max_source_positions": 30, "max_target_positions": 20, "pad_token_id": 0,
        "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3, "suppress_tokens": [9, 11], "begin_suppress_tokens": [5, 2],
    }  # fmt: skip
    torch.manual_seed(first())
    made = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**sizes)).eval().float()
    with torch.no_grad():
        for p in made.parameters():
            p.add_(torch.randn_like(p) * 0.05)
    with tempfile.TemporaryDirectory() as folder:
        made.save_pretrained(folder)
        model = tec.lm.transcriber(folder, target="llvm", cache=False)
        x = np.random.default_rng(first()).standard_normal((24, 60)).astype(np.float32)
        ids = np.random.default_rng(first()).integers(3, 80, 7).tolist()
        with torch.no_grad():
            want = made(input_features=torch.from_numpy(x)[None], decoder_input_ids=torch.tensor([ids])).logits[0]
            written = made.generate(torch.from_numpy(x)[None], max_new_tokens=8, do_sample=False)[0].tolist()
        for k in range(len(ids)):
            assert np.abs(model.logits(x, ids[: k + 1]) - want[k].numpy()).max() < 1e-4
        assert model.transcribe(x, max_tokens=8).ids == [t for t in written if t not in (2, 3)]
