"""Language models from checkpoints: logits against NumPy, packed formats against their own numbers, texts, and what goes wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tec_hf import quantized

import tec
from tec.lm import Checkpoint, Format, PackedTensor, filling, load
from tec.lm.architectures import NAMES
from tec.lm.blocks import FORMATS
from tec.lm.checkpoint import stacked
from tec.lm.kept import Form, key_of
from tec.lm.plain import graph_of
from tec.lm.stream import Stops
from tec.lm.weights import WeightBuilder
from tests.thinned import thinned_rows

from .tiny import CONFIG, Bytes, llama, mixture, tensor

IDS = [3, 17, 90, 4, 4, 61, 127, 0, 55]
GATED = ("gate", "up", "down")


def reference(c: Checkpoint, ids: list[int]) -> Any:
    """Logits [tokens, vocabulary] of a Llama in float64."""
    g, n = c.config, len(ids)
    w = {name: t.dequantize().astype(np.float64) for name, t in c.tensors.items()}
    heads, kv, size = g["num_attention_heads"], g["num_key_value_heads"], g["hidden_size"] // g["num_attention_heads"]

    def norm(x: Any, name: str) -> Any:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + g["rms_norm_eps"]) * w[name]

    turns = np.arange(n)[:, None] / g["rope_theta"] ** (np.arange(0, size, 2) / size)
    cos, sin = np.cos(turns)[:, None], np.sin(turns)[:, None]

    def turned(x: Any) -> Any:
        a, b = np.split(x, 2, -1)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    def gated(h: Any, gate: Any, up: Any, down: Any) -> Any:
        a = h @ gate.T
        return (a / (1 + np.exp(-a)) * (h @ up.T)) @ down.T

    def experts(h: Any, at: str) -> Any:
        p = np.exp(h @ w[at + "gate.weight"].T)
        chosen = np.argsort(-p, -1)[:, : g["num_experts_per_tok"]]
        own = np.zeros_like(p)
        np.put_along_axis(own, chosen, np.take_along_axis(p, chosen, -1), -1)
        own /= own.sum(-1, keepdims=True)
        parts = [w[f"{at}experts.{m}_proj.weight"] for m in GATED]
        return sum(own[:, e : e + 1] * gated(h, *(part[e] for part in parts)) for e in range(p.shape[1]))

    x = w["model.embed_tokens.weight"][ids]
    for k in range(g["num_hidden_layers"]):
        at = f"model.layers.{k}."
        h = norm(x, at + "input_layernorm.weight")
        q, k_, v = (
            (h @ w[f"{at}self_attn.{m}_proj.weight"].T).reshape(n, count, size)
            for m, count in (("q", heads), ("k", kv), ("v", kv))
        )
        q, k_, v = turned(q), turned(k_).repeat(heads // kv, 1), v.repeat(heads // kv, 1)
        scores = np.einsum("ihd,jhd->hij", q, k_) / np.sqrt(size)
        window = g.get("sliding_window") or n
        seen = (np.arange(n)[None] <= np.arange(n)[:, None]) & (np.arange(n)[None] > np.arange(n)[:, None] - window)
        scores = np.where(seen, scores, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        y = np.einsum("hij,jhd->ihd", p / p.sum(-1, keepdims=True), v).reshape(n, -1)
        x = x + y @ w[at + "self_attn.o_proj.weight"].T
        h = norm(x, at + "post_attention_layernorm.weight")
        x = x + (
            experts(h, f"{at}mlp.")
            if f"{at}mlp.gate.weight" in w
            else gated(h, *(w[f"{at}mlp.{m}_proj.weight"] for m in GATED))
        )
    return norm(x, "model.norm.weight") @ w["model.embed_tokens.weight"].T


@pytest.fixture(scope="module")
def lm() -> Any:
    return load(llama(), target="llvm", cache=False)


def test_logits_are_those_of_numpy_read_at_once_or_token_by_token(lm: Any) -> None:
    want = reference(lm.checkpoint, IDS)
    assert np.abs(lm.begin(IDS) - want[-1]).max() < 1e-4
    lm.begin(IDS[:2])
    for k in range(2, len(IDS)):
        assert np.abs(lm.next(IDS[k]) - want[k]).max() < 1e-4


def test_what_two_prompts_begin_with_is_read_once(lm: Any) -> None:
    lm.begin(IDS)
    read: list[int] = []
    own, lm.inputs = lm.inputs, lambda ids, *at: read.extend(ids) or own(ids, *at)
    try:
        got = lm.begin([*IDS[:5], 9, 8])
    finally:
        del lm.inputs
    assert read == [9, 8]
    assert np.abs(got - reference(lm.checkpoint, [*IDS[:5], 9, 8])[-1]).max() < 1e-4


def test_a_window_of_keys() -> None:
    lm = load(llama({"sliding_window": 3}), target="llvm", cache=False)
    assert np.abs(lm.begin(IDS) - reference(lm.checkpoint, IDS)[-1]).max() < 1e-4


@thinned_rows(2, "format", [Format.Q4_1, Format.Q4_0, Format.Q5_1, Format.Q5_0, Format.Q8_0, Format.F16, Format.BF16])
def test_packed_formats(format: Format) -> None:
    """Floats of 16 bits are packed too, and exact."""
    matrices = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "embed_tokens")
    checkpoint = llama(formats=dict.fromkeys(matrices, format))
    lm = load(checkpoint, target="llvm", cache=False)
    want = reference(checkpoint, IDS)[-1]
    # Where x is rounded to bytes, each product adds noise of 1/254 of a block's largest number.
    near = 0.05 * np.abs(want).max() if format.name in FORMATS else 1e-4
    assert np.abs(lm.begin(IDS) - want).max() < near
    for count in (
        (1, 3, 4, 7, 35) if format.name not in FORMATS else ()
    ):  # few rows, some and many are loops of their own
        ids = [count, *IDS * 4][:count]
        assert np.abs(lm.begin(ids) - reference(checkpoint, ids)[-1]).max() < near, count
    assert lm.report["weight_bytes"] < 0.7 * 4 * sum(np.prod(t.shape) for t in checkpoint)
    assert lm.report["slow_formats"] == []


def grouped(name: str, shape: tuple[int, int], kind: str, bits: int, group: int, rng: Any) -> PackedTensor:
    """Random weights [out, k] of AWQ or GPTQ, whose scales are of `group` columns."""
    out, k = shape
    settings = {"bits": bits, "group_size": group, "desc_act": False}
    words = {"qweight": (k, out * bits // 32), "qzeros": (k // group, out * bits // 32)}
    if kind == "gptq":
        words["qweight"] = k * bits // 32, out
    parts = {
        n: PackedTensor(n, s, Format.I32, rng.integers(0, 256, (*s, 4), np.uint8).reshape(-1)) for n, s in words.items()
    }
    scales = (rng.random((k // group, out)) * 0.4 / 2**bits).astype("<f2")
    parts["scales"] = PackedTensor("scales", scales.shape, Format.F16, scales.reshape(-1).view(np.uint8))
    made: PackedTensor = getattr(quantized, kind)(name, parts, settings)
    return made


@pytest.mark.parametrize("kind", ["awq", "gptq"])
def test_experts_of_several_parts_are_stacked(kind: str) -> None:
    """Values, codes one below the other and side by side, and one of the experts again."""
    apart = [grouped(f"e{k}", (16, 64), kind, 4, 32, np.random.default_rng(k)) for k in range(3)]
    whole = stacked("experts", apart)
    want = np.stack([t.dequantize() for t in apart])
    np.testing.assert_array_equal(whole.dequantize(), want)
    np.testing.assert_array_equal(whole.part(1).dequantize(), want[1])
    assert whole.codes is not None and whole.nbytes == sum(t.nbytes for t in apart)
    for lie, rows in (({}, want.reshape(48, 64)), ({"beside": True}, want.swapaxes(0, 1).reshape(16, 192))):
        read = filling._rows(whole, {"depth": rows.shape[1], "block": 16, **lie}, filling._codes)
        codes, scales, zeros = read.read(0, read.count)
        made = (codes - np.repeat(zeros, 16, 1)) * np.repeat(scales, 16, 1)
        assert read.k == rows.shape[1]
        np.testing.assert_array_equal(made, rows)


@thinned_rows(1, ("kind", "bits"), [("awq", 4), ("gptq", 8)])
def test_groups_of_hugging_face_stay_packed(kind: str, bits: int) -> None:
    """Of AWQ, whose groups are a block each, and of GPTQ, whose one group a row is several."""
    rng, whole = np.random.default_rng(5), llama()

    def made(t: PackedTensor) -> PackedTensor:
        out, k = t.shape
        return grouped(t.name, (out, k), kind, bits, 32 if kind == "awq" else k, rng)

    tensors = {n: made(t) if "_proj" in n else t for n, t in whole.tensors.items()}
    checkpoint = Checkpoint("llama", whole.config, tensors, Bytes)
    lm = load(checkpoint, target="llvm", cache=False)
    want = reference(checkpoint, IDS)[-1]
    assert np.abs(lm.begin(IDS) - want).max() < 0.05 * np.abs(want).max()
    assert not lm.report["slow_formats"]
    assert lm.report["weight_bytes"] < 0.55 * 4 * sum(np.prod(t.shape) for t in checkpoint)


@thinned_rows(
    2, ("format", "instruction"), [(Format.Q4_1, "vpmaddubsw"), (Format.Q8_0, "vpsignb"), (Format.Q5_0, "vpmaddubsw")]
)
def test_bytes_on_a_core_without_their_dot_product(format: Format, instruction: str) -> None:
    """Exact sums by way of 16 bits: what they are of one row at a time (a panel's codes in registers) and of many (unpacked) differs in the order of float32
    sums alone, and code for such cores runs on better ones."""
    checkpoint = llama(formats=dict.fromkeys(("q_proj", "down_proj", "gate_proj", "up_proj", "embed_tokens"), format))
    lm = load(checkpoint, target="llvm -mcpu=haswell", cache=False)
    assert instruction in lm.network.get_source("asm")
    want = reference(checkpoint, IDS)[-1]
    at_once = lm.begin(IDS)
    lm.begin(IDS[:1])
    one_by_one = [lm.next(t) for t in IDS[1:]][-1]
    assert np.abs(at_once - one_by_one).max() < 1e-4
    assert np.abs(at_once - want).max() < 0.05 * np.abs(want).max()


@pytest.mark.slow
def test_packed_weights_on_the_amd_gpu_in_software() -> None:
    checkpoint = llama(
        formats=dict.fromkeys(("q_proj", "down_proj", "gate_proj", "up_proj", "embed_tokens"), Format.Q4_1)
    )
    lm = load(checkpoint, target="rocm -mcpu=gfx942", device=tec.rocm_emu("gfx942"), dtype="float16", cache=False)
    want = reference(checkpoint, IDS[:3])[-1]
    assert np.abs(lm.begin(IDS[:3]) - want).max() < 0.01 * np.abs(want).max()


@thinned_rows(2, "format", [Format.Q8_0, Format.F32, Format.Q4_0, Format.BF16])
def test_experts(format: Format) -> None:
    """Packed ones stay packed: gates and ups one below the other, downs beside each other."""
    checkpoint = mixture(format)
    lm = load(checkpoint, target="llvm", cache=False)
    want = reference(checkpoint, IDS)[-1]
    near = 0.05 * np.abs(want).max() if format.name in FORMATS else 1e-4
    assert np.abs(lm.begin(IDS) - want).max() < near
    assert not lm.report["slow_formats"]


def test_experts_of_a_graph_with_numbers_are_one_wide_network() -> None:
    checkpoint = mixture(Format.F32)
    graph = graph_of(checkpoint, "llvm")
    name = "model.layers.1.mlp.experts.down_proj.weight"
    (made,) = (v.data for v in graph.constants() if v.name.startswith(name))
    np.testing.assert_array_equal(made, np.concatenate(checkpoint.tensors[name].dequantize(), 1))


def test_code_is_kept_for_all_weights_of_its_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEC_CACHE_DIR", str(tmp_path))
    first, second = llama(what=1), llama(what=2)
    assert not load(first, target="llvm").report["from_cache"]
    again = load(second, target="llvm")
    assert again.report["from_cache"]
    assert np.abs(again.begin(IDS) - reference(second, IDS)[-1]).max() < 1e-4
    form = Form(tec.target.Target("llvm"), "float32")
    assert key_of(first, form) == key_of(second, form) != key_of(llama({"rms_norm_eps": 1e-6}), form)


def test_texts(lm: Any) -> None:
    run = lm.generate("abc", max_tokens=5)
    text = "".join(run)
    ids = [ord(c) for c in "abc"]
    for token in run.ids:
        assert token == int(reference(lm.checkpoint, ids)[-1].argmax())
        ids.append(token)
    assert text == run.text == bytes(run.ids).decode() and run.reason == "length" and run.prompt_tokens == 3
    drawn = [lm.generate("abc", max_tokens=8, temperature=1.0, top_k=20, min_p=0.01, seed=s) for s in (1, 1, 2)]
    texts = ["".join(d) for d in drawn]
    assert texts[0] == texts[1] != texts[2]
    assert run.tokens_per_second > 0 and run.prompt_seconds > 0
    scored = lm.generate(IDS, max_tokens=2, logprobs=3)
    list(scored)
    assert [e[0][0] for e in scored.logprobs] == scored.ids and all(e[0][1] < 0 for e in scored.logprobs)


def test_a_stop_that_comes_in_two_pieces_is_not_shown() -> None:
    s = Stops(["<end>"])
    assert [s.add("a<e"), s.add("x<"), s.add("end>b")] == ["a", "<ex", ""] and s.stopped and s.text == "a<ex"
    s = Stops(["<end>"])
    assert s.add("a<en") + s.add("", final=True) == "a<en" and not s.stopped


def test_a_prompt_longer_than_the_context_and_a_full_one() -> None:
    lm = load(llama(), target="llvm", context=12, cache=False)
    with pytest.raises(tec.ArgumentError, match="13 tokens, and the context has 12"):
        lm.generate([1] * 13)
    run = lm.generate(IDS)
    list(run)
    assert run.reason == "length" and len(lm.ids) == 12 and len(run.ids) == 4


def test_logits_that_are_no_numbers(lm: Any) -> None:
    broken = llama()
    spoiled = {"model.norm.weight": tensor("model.norm.weight", np.full(64, np.nan))}
    run = load(Checkpoint("llama", CONFIG, {**broken.tensors, **spoiled}, Bytes), target="llvm", cache=False).generate(
        IDS
    )
    with pytest.raises(tec.ArgumentError, match="logits are no numbers"):
        list(run)


def test_a_model_larger_than_the_memory_is_refused_before_it_is_read() -> None:
    def read() -> Any:
        raise AssertionError("read")

    c = llama()
    big = PackedTensor("model.embed_tokens.weight", (1 << 30, 1 << 12), Format.F32, read)
    with pytest.raises(tec.ArgumentError, match=r"the weights take 1759\d\.\d GB, and .* GB of memory are free"):
        load(Checkpoint("llama", c.config, {**c.tensors, big.name: big}, Bytes), target="llvm")


def test_an_interrupt_in_a_token_leaves_the_text_as_it_was(lm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lm.begin(IDS[:-1])
    engine = lm.executor._engine
    with monkeypatch.context() as m:

        def interrupted(*args: Any) -> None:
            raise KeyboardInterrupt

        m.setattr(type(engine), "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            lm.next(IDS[-1])
    assert lm.ids == IDS[:-1]
    assert np.abs(lm.next(IDS[-1]) - reference(lm.checkpoint, IDS)[-1]).max() < 1e-4


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"hidden_size": None}, "has no hidden_size"), ({"num_key_value_heads": 3}, "4 heads of queries and 3 of keys"),
        ({"intermediate_size": 95}, "the configuration says"), ({"hidden_act": "golu"}, "activation 'golu'"), ({"num_hidden_layers": 3}, "no tensor"),
        ({"rope_scaling": {"rope_type": "spiral"}}, "rotary positions of type 'spiral'"), ({"rope_scaling": {"rope_type": "linear"}}, "rope_scaling"),
        ({"vocab_size": "many"}, "vocab_size = 'many'"),
    ],
)  # fmt: skip
def test_configurations_that_do_not_fit(change: Mapping[str, Any], says: str) -> None:
    with pytest.raises(tec.ImportModelError, match=says):
        load(llama(change), target="llvm", cache=False)


@pytest.mark.parametrize("how", [{}, {"ngrams": True}])
def test_a_text_ends_when_another_one_begins(lm: Any, how: Mapping[str, Any]) -> None:
    """It would go on from the other one's keys."""
    lm.ends.clear()
    whole = list(lm.generate("Once", max_tokens=20))
    one = lm.generate("Once", max_tokens=20, **how)
    first = [next(one), next(one)]
    other = "".join(lm.generate("Twice", max_tokens=6, **how))
    assert [*first, *one] == whole[:2] and one.reason == "stop" and len(one.ids) < 20
    assert other == "".join(lm.generate("Twice", max_tokens=6)) and list(lm.generate("Once", max_tokens=20)) == whole


def test_settings_that_do_not_fit(lm: Any) -> None:
    for settings in ({"min_p": 1.0}, {"repetition_penalty": 0.0}, {"max_tokens": 0}, {"temperature": -1.0}):
        with pytest.raises(tec.ArgumentError):
            lm.generate("a", **settings)
    for settings, said in (
        ({"temperature": "hot"}, "temperature is 'hot'"), ({"top_k": 2.5}, "top_k is 2.5"), ({"top_p": True}, "top_p is True"), ({"logit_bias": {"5": 1.0}}, "logit_bias is"),
        ({"logit_bias": [5]}, "logit_bias is"), ({"stop": 5}, "stop is 5"), ({"stop": ["a", 5]}, "stop is"), ({"logprobs": -1}, "logprobs is -1"),
        ({"repeat_penalty": 1.1}, "no setting 'repeat_penalty'"),
    ):  # fmt: skip
        with pytest.raises(tec.ArgumentError, match=said):
            lm.generate("a", **settings)
    for prompt in (None, 5, [1.5], ["a", "b"], {"role": "user"}):
        with pytest.raises(tec.ArgumentError, match="the prompt is"):
            lm.generate(prompt)
    with pytest.raises(tec.ArgumentError, match="the model is None"):
        load(None)  # type: ignore[arg-type]
    with pytest.raises(tec.ArgumentError, match="no tokens"):
        lm.generate("")
    with pytest.raises(tec.ArgumentError, match="logit_bias names the token 128, and there are 128"):
        lm.generate("a", logit_bias={3: 1.0, 128: -1.0})
    with pytest.raises(tec.ArgumentError, match="token 128 is none"):
        lm.generate([128])
    with pytest.raises(tec.ArgumentError, match="context is 0"):
        load(llama(), context=0)
    with pytest.raises(tec.ImportModelError, match="architecture 'vgg' is not known"):
        load(Checkpoint("vgg", CONFIG, {}))


def test_a_text_that_goes_on_keeps_its_first_space() -> None:
    """A vocabulary that puts a space before each text: what the model writes behind a prompt begins with the space that its first token has."""
    from tec.lm.generation import Generation
    from tec.lm.sampling import Sampling
    from tec.lm.text.tokenizer import tokenizer_of
    from tec.lm.text.vocabulary import Vocabulary

    tokenizer = tokenizer_of(
        Vocabulary("llama", ["<unk>", "\u2581a", "\u2581b", "c"], np.array([2, 1, 1, 1]), np.zeros(4, np.float32))
    )

    class Fixed:
        room = None
        written = 0

        def begin(self, prompt: Any) -> Any:
            return np.eye(4)[2]

        def next(self, *tokens: int) -> Any:
            return np.eye(4)[3]

    assert "".join(Generation(Fixed(), tokenizer, [1], 3, Sampling())) == " bcc"


def test_the_page_lists_the_architectures_that_run() -> None:
    page = (Path(__file__).parents[3] / "docs" / "language-models.md").read_text()
    rows = page.partition("| `model_type` | models | GGUF |")[2].partition("\n\n")[0]
    named = [
        name
        for row in rows.splitlines()
        for name in re.findall(r"`(\w+)`", row.split("|")[1:2][0] if "|" in row else "")
    ]
    # Of folders whose models are another architecture's (`tec_hf.namesakes`).
    others = {
        "internlm2", "internlm3", "exaone", "llama4", "gemma3n", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "kimi_k2", "bailing_moe", "minicpm",
    }  # fmt: skip
    assert sorted(named) == sorted({*NAMES, *others})


@pytest.mark.parametrize(("target", "stacked", "apart"), [("llvm", True, False), ("rocm -mcpu=gfx942", False, False)])
def test_chosen_experts_alone_are_read_on_cpus_where_they_lie_in_one_tensor(
    target: str, stacked: bool, apart: bool
) -> None:
    tensors: Any = {"stacked": SimpleNamespace(shape=(4, 8, 8)), "apart": SimpleNamespace(shape=(8, 8))}
    made: Any = None
    w = WeightBuilder(made, tensors, tec.Target(target))
    assert w.gathers(["stacked"]) is stacked and w.gathers(["stacked", "apart"]) is apart


def test_tokens_need_no_tokenizer():
    """Folders without one are met in the wild: tokens in, tokens out."""
    whole, bare = llama(), replace(llama(), make_tokenizer=lambda: None)
    want = load(whole).generate([5, 6, 7], max_tokens=5)
    assert "".join(want) and len(want.ids) == 5
    lm = load(bare)
    run = lm.generate([5, 6, 7], max_tokens=5)
    assert list(run) == [] and run.ids == want.ids and run.reason == "length"
    with pytest.raises(tec.ArgumentError, match=r"no tokenizer[^$]*give tokens"):
        lm.generate("text")
