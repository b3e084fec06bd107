"""`tec generate` and `tec chat` with what they keep of a text, and by beams."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.tec_gguf import files


@pytest.fixture
def model(tmp_path: Path) -> Path:
    tokens = ["<unk>", "<s>", "</s>", "<e>", *"abcdefghijklmnopqrstuvwxyz ABCDEFGHI"]
    facts = {
        **files.LLAMA, "tokenizer.chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}", "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.scores": [-float(k) for k in range(len(tokens))], "tokenizer.ggml.token_type": [2, 3, 3, 3, *[1] * 36],
        "tokenizer.ggml.add_space_prefix": False,
    }  # fmt: skip
    return files.write(tmp_path / "model.gguf", "llama", facts, files.llama_tensors())


def test_beams_and_greedy(tec_cli: Any, model: Path) -> None:
    got = tec_cli("generate", model, "a", "-n", "3", "--beams", "2", "--json")
    assert got.exit_code == 0, got.output
    assert json.loads(got.stdout)["reason"] in ("length", "end")
    for more, message in ((["--temperature", "0.5"], "--beams go without --temperature"), (["--ngrams"], "--ngrams")):
        got = tec_cli("generate", model, "a", "--beams", "2", *more)
        assert got.exit_code == 2 and message in got.stderr


def test_several_texts(tec_cli: Any, model: Path) -> None:
    words = ("generate", model, "ab", "-n", "5", "--temperature", "1.5", "--seed", "3")
    got = tec_cli(*words, "--samples", "3", "--json")
    assert got.exit_code == 0, got.output
    found = json.loads(got.stdout)
    alone = [json.loads(tec_cli(*words[:-1], str(3 + k), "--json").stdout)["text"] for k in range(3)]
    assert found["texts"] == alone and len(set(alone)) > 1
    assert tec_cli(*words, "--samples", "3").stdout == "\n---\n".join(alone) + "\n"
    for more in (["--ngrams"], ["--state", "x"], ["--beams", "2"]):
        got = tec_cli("generate", model, "a", "--samples", "2", *more)
        assert got.exit_code == 2 and (
            "--samples go without" in got.stderr or "--beams go without --samples" in got.stderr
        )


def test_a_prompt_is_longer_than_names_of_files_are(tec_cli: Any, model: Path) -> None:
    got = tec_cli("generate", model, "a " * 3000, "-n", "1")
    assert got.exit_code == 2 and "3000 tokens, and the context has 64" in got.stderr, got.output


def test_a_text_is_kept_and_taken_up(tec_cli: Any, model: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    runs = [tec_cli("generate", model, "a", "-n", "3", "--state", state) for _ in range(2)]
    assert [r.exit_code for r in runs] == [0, 0], runs[-1].output
    assert runs[0].stdout == runs[1].stdout and state.exists()
    state.write_bytes(b"nothing")
    got = tec_cli("generate", model, "a", "--state", tmp_path / "nowhere" / "state")
    assert got.exit_code == 2 and not got.stdout and "there is no folder" in got.stderr
    got = tec_cli("generate", model, "a", "--state", state)
    assert got.exit_code == 3 and "no file of safetensors" in got.stderr


def test_a_conversation_is_kept_and_taken_up(tec_cli: Any, model: Path, tmp_path: Path) -> None:
    state = tmp_path / "talk"
    assert tec_cli("chat", model, "-m", "a", "-n", "2", "--state", state).exit_code == 0
    got = tec_cli("chat", model, "-m", "a", "-n", "2", "--state", state)
    assert got.exit_code == 0 and "2 messages" in got.stderr, got.output
    got = tec_cli("chat", model, "-m", "a", "--state", state, "--system", "b")
    assert got.exit_code == 2 and "has a conversation" in got.stderr
