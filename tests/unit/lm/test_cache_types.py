"""Caches of keys and values in fewer bits than activations: as codes with scales, or as floats of 16 bits, in every way that a text is read."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tec
from tec.errors import ArgumentError
from tec.lm import load
from tec.lm.joint import PagedModel, Piece
from tec.lm.serve.batches import BatchEngine
from tec.lm.serve.engine import Done, Request
from tests import seeds
from tests.thinned import thinned_rows

from .tiny import llama

# The largest difference from float32 caches, over the logits' largest: 8 codes of 127 steps, 3 bits of a mantissa, 10, and 7.
CLOSE = {"int8": 0.02, "fp8": 0.12, "float16": 2e-3, "bfloat16": 0.02}
WINDOW = {"sliding_window": 6}


@pytest.fixture(scope="module")
def models() -> Any:
    """By the cache's type and whether layers have a window."""
    made: dict[Any, Any] = {}

    def get(kind: str | None, windows: bool = False) -> Any:
        key = kind, windows
        if key not in made:
            made[key] = load(llama(WINDOW if windows else None), target="llvm", cache_type=kind)
        return made[key]

    return get


def texts(count: int = 1) -> list[list[int]]:
    rng = np.random.default_rng(seeds.first())
    return [rng.integers(0, 128, n).tolist() for n in rng.integers(20, 40, count)]


@pytest.mark.parametrize("windows", [False, True])
@thinned_rows(3, "kind", list(CLOSE))
def test_logits(models: Any, kind: str, windows: bool) -> None:
    """Near to those of wide caches, and the same token by token as all at once: what a token sees of itself went through the cache, too."""
    lm, wide = models(kind, windows), models(None, windows)
    (text,) = texts()
    whole = lm.begin(text)
    exact = wide.begin(text)
    assert 0 < np.abs(whole - exact).max() < CLOSE[kind] * np.abs(exact).max()
    lm.begin(text[:1])
    for token in text[1:]:
        stepwise = lm.next(token)
    np.testing.assert_allclose(stepwise, whole, atol=2e-4 * np.abs(exact).max())


def test_memory(models: Any) -> None:
    """Caches take a byte an element and 4 a row."""
    for lm in (models(None), models("int8")):
        lm.begin(texts()[0])
    wide, narrow = ({n: x.nbytes for n, x in models(k).executor.state.items()} for k in (None, "int8"))
    keys = [n for n in narrow if n.endswith("key")]
    assert keys and all(narrow[n] * 4 == wide[n] for n in keys)
    assert all(narrow[f"{n}.scale"] * 16 == wide[n] for n in keys)  # heads of 16 elements


@thinned_rows(1, "kind", ["int8", "fp8"])
def test_a_state_in_a_file(models: Any, kind: str, tmp_path: Path) -> None:
    (text,) = texts()
    lm = models(kind)
    expected = lm.begin(text)
    lm.begin(text[:-3])
    lm.save_state(tmp_path / "state")
    other = load(llama(), target="llvm", cache_type=kind)
    other.load_state(tmp_path / "state")
    assert other.ids == text[:-3]
    np.testing.assert_allclose(other.begin(text), expected, atol=1e-5 * np.abs(expected).max())
    with pytest.raises(ArgumentError, match="state"):
        models(None).load_state(tmp_path / "state")


@thinned_rows(2, "kind", ["int8", "fp8", "float16"])
def test_blocks_of_many_texts(models: Any, kind: str) -> None:
    """In pieces, beside each other; and a server's prompt that takes over blocks of the one before."""
    lm = models(kind)
    paged = PagedModel(lm, block=8, blocks=24)
    some = texts(3)
    tables = np.random.default_rng(1).permutation(24)[:15].reshape(3, 5).tolist()
    paged.step([Piece(t[:9], 0, table, 0) for t, table in zip(some, tables)])
    got = paged.step([Piece(t[9:], 9, table) for t, table in zip(some, tables)])
    for row, t in zip(got, some):
        expected = lm.begin(t)
        np.testing.assert_allclose(row, expected, atol=2e-4 * np.abs(expected).max())
    engine = BatchEngine(paged, lm.checkpoint.tokenizer.token_bytes, slots=2)
    try:
        for _ in range(2):
            events, over = [], threading.Event()
            engine.submit(
                Request(some[0], 4), lambda e, to=events, end=over: (to.append(e), isinstance(e, Done) and end.set())
            )
            assert over.wait(60) and events[-1].error is None
            logits = lm.begin(some[0])
            for event in events[:-1]:
                assert logits[event.id] > logits.max() - 1e-3
                logits = lm.next(event.id)
        assert events[-1].cached >= 16
    finally:
        engine.close()


def test_guesses(models: Any) -> None:
    """What is guessed and taken back leaves the caches as they were."""
    lm = models("int8")
    prompt = [1, 2, 3, 4] * 5
    plain = "".join(lm.generate(prompt, max_tokens=12))
    assert "".join(lm.generate(prompt, max_tokens=12, ngrams=True)) == plain


@thinned_rows(1, "kind", ["int8", "fp8"])
def test_on_the_software_gpu(models: Any, kind: str) -> None:
    """A prompt, and steps that are told their row, on gfx942."""
    (text,) = texts()
    lm = load(
        llama(),
        target="rocm -mcpu=gfx942",
        device=tec.rocm_emu("gfx942", check="race"),
        dtype="float32",
        cache_type=kind,
        context=48,
    )
    host = models(kind)
    np.testing.assert_allclose(lm.begin(text), host.begin(text), atol=2e-3)
    assert "step" not in lm.report, lm.report["step"]
    for token in (5, 6):
        np.testing.assert_allclose(lm.next(token), host.next(token), atol=2e-3)
    assert lm.is_placed


def test_what_there_is_not() -> None:
    for kind, said in (("int7", "int8"), ("q4_0", "int8"), (8, "int8")):
        with pytest.raises(ArgumentError, match="cache_type is") as caught:
            load(llama(), target="llvm", cache_type=kind)  # type: ignore[arg-type]
        assert said in str(caught.value)
    with pytest.raises(ArgumentError, match="caches of float16 with activations of bfloat16"):
        load(llama(), target="llvm", dtype="bfloat16", cache_type="float16")
    assert load(llama(), target="llvm", cache_type="q8_0").cache_type == "int8"
