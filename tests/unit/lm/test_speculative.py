"""Guessed tokens that one run checks: the same text as without them, whatever guesses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tec.choices.families.attention.few import MOST
from tec.errors import ArgumentError
from tec.lm import Format, load
from tec.lm.generation import Generation
from tec.lm.sampling import Sampling
from tec.lm.speculative import _ALIKE, Ngrams, Speculative
from tests.seeds import first

from .tiny import VOCABULARY, Bytes, llama

PROMPT = [3, 17, 5, 9, 3, 17, 5]


PACKED = dict.fromkeys(
    ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "embed_tokens"), Format.Q4_0
)


@pytest.fixture(scope="module")
def models() -> tuple[Any, Any]:
    return load(llama()), load(llama(what=1))


@pytest.fixture(scope="module")
def packed() -> Any:
    return load(llama(formats=PACKED))


class Drawn:
    """Guesses right so often, by a text that is known, and else anything."""

    def __init__(self, text: list[int], rng: Any):
        self.text, self.rng = text, rng

    def guess(self, ids: Any, count: int) -> list[int]:
        own = self.text[len(ids) : len(ids) + int(self.rng.integers(0, count + 1))]
        return [t if self.rng.random() < 0.7 else int(self.rng.integers(VOCABULARY)) for t in own]


@pytest.mark.parametrize("is_packed", [False, True])
def test_any_guesses_give_the_same_text(models: tuple[Any, Any], packed: Any, is_packed: bool) -> None:
    """Right, wrong and none, some at once, greedy and drawn; also where activations are rounded to bytes."""
    lm = packed if is_packed else models[0]
    rng = np.random.default_rng(first(11))
    for settings in (Sampling(), Sampling(0.7, top_k=9, seed=4), Sampling(0, repetition_penalty=1.3)):
        prompt = rng.integers(0, VOCABULARY, int(rng.integers(1, 9))).tolist()
        lm.begin([1])  # caches hold nothing of it, else the prompt's end is read alone
        plain = Generation(lm, Bytes(), prompt, 40, settings)
        "".join(plain)
        lm.begin([1])
        guessing = Speculative(lm, Drawn([*prompt, *plain.ids], rng))
        run = Generation(guessing, Bytes(), prompt, 40, settings)
        "".join(run)
        assert run.ids == plain.ids
        assert 0 < guessing.accepted < guessing.guessed and guessing.runs + guessing.accepted == 39


def test_a_draft_and_ngrams(models: tuple[Any, Any]) -> None:
    lm, other = models
    want = "".join(lm.generate(PROMPT, max_tokens=57))
    assert "".join(lm.generate(PROMPT, max_tokens=57, ngrams=True)) == want
    assert "".join(lm.generate(PROMPT, max_tokens=57, draft=other)) == want, "to the last token of the context"
    twin = load(llama())
    guessing = lm.generate(PROMPT, max_tokens=30, draft=twin)
    assert want.startswith("".join(guessing))
    spec = guessing._decoder  # only those behind the last token of all are not asked for
    assert spec.accepted > 20 and spec.guessed - spec.accepted == len(spec._known)
    for wrong, said in (({"draft": lm}, "its own draft"), ({"draft": other, "ngrams": True}, "n-grams or from")):
        with pytest.raises(ArgumentError, match=said):
            lm.generate(PROMPT, **wrong)


def test_ngrams() -> None:
    assert _ALIKE == MOST
    guesser = Ngrams()
    assert guesser.guess([1, 2, 3, 4, 1, 2], 3) == [3, 4, 1]
    assert guesser.guess([1, 2, 3, 4, 1, 2, 3, 9, 1, 2], 2) == [3, 9], "the last place counts"
    assert guesser.guess([5, 1, 2], 2) == [] and guesser.guess([], 2) == []


@pytest.mark.parametrize("how", [{"ngrams": True}, {"draft": 1}])
def test_a_model_that_cannot_take_tokens_back_is_told_before_a_text(
    models: tuple[Any, Any], how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    lm, other = models
    monkeypatch.setattr(lm, "_boundary", 16)  # as of frequencies that follow a text's length
    with pytest.raises(ArgumentError, match="llama cannot take back tokens"):
        lm.generate(PROMPT, **({"draft": other} if "draft" in how else how))
