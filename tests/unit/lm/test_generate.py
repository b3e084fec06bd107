"""Text from decoders: a small model trained on sums, days and opposites, as torch exports it and as onnxruntime-genai is built, against ONNX Runtime."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import tec
from tec.lm import Generator, Sampling
from tec.lm.exported.text import Bytes
from tec.lm.stream import Stream
from tests.networks.genai import genai_decoder

from .tiny import llama

ort = pytest.importorskip("onnxruntime")

SPEAKER = Path(__file__).parents[2] / "networks" / "data" / "speaker.onnx"
PROMPT = "\ntwo plus three is"


def greedy(path: Path, prompt: str, count: int) -> list[int]:
    """ONNX Runtime's tokens, all read anew each time."""
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    ids = list(prompt.encode())
    for _ in range(count):
        feeds: dict[str, Any] = {}
        for i in session.get_inputs():
            if i.name.startswith("past"):
                feeds[i.name] = np.zeros((1, i.shape[1], 0, i.shape[3]), np.float32)
        feeds |= {"input_ids": np.array([ids]), "attention_mask": np.ones((1, len(ids)), np.int64)}
        if any(i.name == "position_ids" for i in session.get_inputs()):
            feeds["position_ids"] = np.arange(len(ids))[None]
        ids.append(int(session.run(["logits"], feeds)[0][0, -1].argmax()))
    return ids[-count:]


@pytest.fixture(scope="module")
def speaker() -> Generator:
    return Generator(SPEAKER, tokenizer="bytes", target="llvm")


@pytest.fixture(scope="module")
def genai(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as the model builder makes it, with the weights of the trained model in 8 bits."""
    folder = tmp_path_factory.mktemp("genai")
    weights = {t.name: numpy_helper.to_array(t) for t in onnx.load(SPEAKER).graph.initializer}
    embed = next(w for w in weights.values() if w.shape == (256, 64))
    given: dict[str, Any] = {"embed": embed, "lm_head": weights["lm_head"], "norm": weights["norm"], **weights}
    model = genai_decoder(2, 64, 4, 2, 256, feed=128, bits=8, block=32, zeros=True, positions=128, weights=given)
    onnx.save(model, folder / "model.onnx")
    config = {
        "model": {"decoder": {"filename": "model.onnx"}, "eos_token_id": [10], "context_length": 100, "vocab_size": 256}
    }
    (folder / "genai_config.json").write_text(json.dumps(config))
    return folder


def test_it_says_sense_and_what_onnxruntime_says(speaker: Generator) -> None:
    run = speaker.generate(PROMPT, max_tokens=40)
    pieces = list(run)
    assert run.ids == greedy(SPEAKER, PROMPT, 40)
    assert "".join(pieces) == run.text and run.text.startswith(" five.\n") and run.reason == "length"
    assert run.prompt_tokens == len(PROMPT) and run.tokens_per_second > 0


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ("\nfour plus five is", " nine."), ("\ntwelve minus two is", " ten."), ("\nafter tuesday comes", " wednesday."), ("\nthe opposite of cold is", " hot."),
    ],
)  # fmt: skip
def test_what_it_has_learned(speaker: Generator, prompt: str, said: str) -> None:
    run = speaker.generate(prompt, stop=["\n"])
    assert "".join(run) == said and run.reason == "stop"


def test_without_caches_the_tokens_are_the_same(speaker: Generator) -> None:
    anew = Generator(SPEAKER, tokenizer="bytes", target="llvm", cached=False)
    one, two = (g.generate(PROMPT, max_tokens=24) for g in (anew, speaker))
    assert "".join(one) == "".join(two) and one.ids == two.ids


def test_genai_layout(genai: Path) -> None:
    run = tec.generate(genai, PROMPT, tokenizer="bytes", target="llvm")
    assert "".join(run) == " five." and run.reason == "end"
    assert run.ids == greedy(genai / "model.onnx", PROMPT, 7)[: len(run.ids)]


@pytest.mark.slow
def test_on_a_software_gpu(genai: Path) -> None:
    device = tec.rocm_emu("gfx942")
    run = tec.generate(genai, PROMPT, tokenizer="bytes", target="rocm -mcpu=gfx942", device=device, max_tokens=6)
    assert "".join(run) == " five."


def test_more_than_the_model_holds_is_refused(genai: Path) -> None:
    with pytest.raises(tec.ArgumentError, match="the model holds 100"):
        list(tec.generate(genai, "\n" * 101, tokenizer="bytes", target="llvm"))


# ---- drawing


def test_equal_seeds_draw_equal_texts(speaker: Generator) -> None:
    texts = ["".join(speaker.generate("\n", max_tokens=30, temperature=1.0, seed=s)) for s in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_the_likeliest_of_one_is_greedy(speaker: Generator) -> None:
    want = "".join(speaker.generate("\n", max_tokens=20))
    assert "".join(speaker.generate("\n", max_tokens=20, temperature=1.0, top_k=1)) == want
    assert "".join(speaker.generate("\n", max_tokens=20, temperature=1.0, top_p=1e-6)) == want


def test_draws_follow_the_probabilities() -> None:
    logits = np.log([0.5, 0.3, 0.15, 0.05])
    for sampling, want in (
        (Sampling(1.0), [0.5, 0.3, 0.15, 0.05]), (Sampling(1.0, top_k=2), [0.625, 0.375, 0, 0]), (Sampling(1.0, top_p=0.9), [0.526, 0.316, 0.158, 0]),
        (Sampling(0.5), [0.685, 0.247, 0.062, 0.007]),
    ):  # fmt: skip
        picker = sampling.picker()
        counts = np.bincount([picker.pick(logits) for _ in range(4000)], minlength=4) / 4000
        np.testing.assert_allclose(counts, want, atol=0.03)


@pytest.mark.parametrize("options", [{"temperature": -1.0}, {"top_k": -1}, {"top_p": 0.0}, {"top_p": 1.5}])
def test_what_no_drawing_is(options: dict[str, Any]) -> None:
    with pytest.raises(tec.ArgumentError, match=next(iter(options))):
        Sampling(**options)


def test_letters_of_several_bytes_come_whole() -> None:
    stream = Stream(Bytes())
    pieces = [stream.add(b) for b in "aé語".encode()]
    assert pieces == ["a", "", "é", "", "", "語"]


# ---- files


def test_folders_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(tec.ImportModelError, match="no model in"):
        Generator(tmp_path, tokenizer="bytes")
    (tmp_path / "genai_config.json").write_text('{"model": {"decoder": {"filename": "gone.onnx"}}}')
    with pytest.raises(tec.ImportModelError, match=r"gone.onnx, which is not there"):
        Generator(tmp_path, tokenizer="bytes")
    with pytest.raises(tec.ArgumentError, match="no such file"):
        Generator(tmp_path / "none", tokenizer="bytes")


def test_a_model_without_a_tokenizer() -> None:
    with pytest.raises(tec.ArgumentError, match=r"no tokenizer.json"):
        Generator(SPEAKER)


def test_an_answer_without_a_prompt(speaker: Generator) -> None:
    with pytest.raises(tec.ArgumentError, match="prompt has no tokens"):
        list(speaker.generate(""))


def test_command(genai: Path) -> None:
    words = [
        sys.executable,
        "-m",
        "tec.cli",
        "generate",
        str(genai),
        "--tokenizer",
        "bytes",
        "--target",
        "llvm",
        "--prompt",
        PROMPT,
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and done.stdout == " five.\n" and "tokens a second" in done.stderr
    done = subprocess.run([*words, "--json"], capture_output=True, text=True, timeout=120, check=False)
    assert json.loads(done.stdout)["text"] == " five."
    done = subprocess.run([*words, "--top-p", "2"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "top_p" in done.stderr and "Traceback" not in done.stderr


@pytest.fixture(scope="module")
def tiny() -> Any:
    return tec.lm.load(llama(), target="llvm")


@pytest.mark.parametrize(
    "said, message",
    [
        ({"num_beams": 4}, "lm.beams"),
        ({"max_new_tokens": 4}, "max_tokens="),
        ({"seeed": 4}, "seed"),
        ({"max_tokens": 2.5}, "max_tokens is 2.5"),
        ({"max_tokens": True}, "max_tokens is True"),
    ],
)
def test_settings_of_others_and_numbers_that_are_none(tiny: Any, said: dict[str, Any], message: str) -> None:
    with pytest.raises(tec.ArgumentError, match=message):
        "".join(tiny.generate("a", **said))


@pytest.mark.parametrize(
    "prompt", [b"abc", {"role": "user"}, [{"content": "a"}], [{"role": "user"}], [{"role": 3, "content": ""}]]
)
def test_prompts_that_are_none(tiny: Any, prompt: Any) -> None:
    tiny.checkpoint.chat_template = "{{ messages[0].content }}"
    with pytest.raises(tec.ArgumentError):
        tiny.generate(prompt)


def test_names_of_others(tiny: Any) -> None:
    for name, said in (
        ("tokenize", "lm.encode"),
        ("decode", "lm.tokenizer.decode"),
        ("generat", "generate"),
        ("chat", "lm.generate"),
    ):
        with pytest.raises(AttributeError, match=said):
            getattr(tiny, name)
    with pytest.raises(AttributeError, match=r"tec\.lm\.load"):
        tec.lm.from_pretrained  # noqa: B018
    assert not hasattr(tiny, "_repr_html_")
    assert "join it" in repr(tiny.generate("a", max_tokens=1))
