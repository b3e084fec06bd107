"""The state of a text in a file: another process goes on from it, and what does not fit is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tec.errors import ArgumentError, ImportModelError
from tec.lm import load
from tests.seeds import first

from .tiny import llama

PROMPT = [3, 17, 90, 4, 4, 61]


@pytest.fixture(scope="module")
def lm() -> Any:
    return load(llama(), target="llvm")


@pytest.fixture
def state(lm: Any, tmp_path: Path) -> Path:
    lm.begin([1])
    "".join(lm.generate(PROMPT, max_tokens=5))
    lm.save_state(tmp_path / "text.state", [{"role": "user", "content": "a"}])
    return tmp_path / "text.state"


def read_by(lm: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tokens each call of the model reads from now on."""
    counts: list[int] = []
    inner = lm._read
    monkeypatch.setattr(lm, "_read", lambda tokens: (counts.append(len(tokens)), inner(tokens))[1])
    return counts


def test_a_new_model_goes_on(lm: Any, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = "".join(lm.generate(PROMPT, max_tokens=12))
    other = load(llama(), target="llvm")
    assert other.load_state(state) == [{"role": "user", "content": "a"}]
    counts = read_by(other, monkeypatch)
    assert "".join(other.generate([*other.ids], max_tokens=8)) == whole[4:]
    assert counts[0] == 1, "the text was read again"
    assert "".join(other.generate(PROMPT, max_tokens=12)) == whole
    other.load_state(state)
    np.testing.assert_allclose(other.next(9), lm.begin([*PROMPT, *map(ord, whole[:4]), 9]), atol=1e-5)


def test_behind_guesses(lm: Any, tmp_path: Path) -> None:
    """A text that a run of guesses ended, some of which its caches hold."""
    lm.begin(PROMPT)
    lm.checked([*PROMPT, 5], [9, 9, 4])
    lm.save_state(tmp_path / "text.state")
    other = load(llama(), target="llvm")
    other.load_state(tmp_path / "text.state")
    assert other.ids == [*PROMPT, 5, 9, 9, 4]
    np.testing.assert_allclose(other.next(7), lm.begin([*PROMPT, 5, 9, 9, 4, 7]), atol=1e-5)


def test_by_the_package_safetensors(state: Path) -> None:
    from safetensors.numpy import load_file

    found = load_file(state)
    assert found["ids"][: len(PROMPT)].tolist() == PROMPT
    assert {n for n in found if n.startswith("state.")}


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: load(llama(what=1), target="llvm"), "another model"),
        (lambda: load(llama(), target="llvm", dtype="float16"), "and the model takes F16"),
        (lambda: load(llama(), target="llvm", context=4), "the context has 4"),
    ],
)
def test_of_another_model(state: Path, make: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make().load_state(state)


def test_before_a_text(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="no text yet"):
        load(llama(), target="llvm").save_state(tmp_path / "x")


def test_damaged_files(lm: Any, state: Path, tmp_path: Path) -> None:
    """Files that are cut off, or have changed bytes in the header or the numbers, are refused, and the text before is as it was."""
    raw, rng = state.read_bytes(), np.random.default_rng(first(3))
    end = 8 + int.from_bytes(raw[:8], "little")
    before = list(lm.ids)
    for k in range(60):
        made = bytearray(raw)
        if k % 3 == 0:
            del made[int(rng.integers(len(made))) :]
        else:
            for _ in range(int(rng.integers(1, 4))):
                made[int(rng.integers(end + 80 if k % 3 == 1 else len(made)))] = int(rng.integers(256))
        if made[end:] == raw[end:] and len(made) == len(raw):
            continue  # a blank more or less in the header may change nothing
        (tmp_path / "bad").write_bytes(made)
        with pytest.raises((ArgumentError, ImportModelError)):
            lm.load_state(tmp_path / "bad")
        assert lm.ids == before
