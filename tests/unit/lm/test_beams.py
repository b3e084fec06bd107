"""Beam search against one that keeps plain lists and reads each text from its start."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tec.errors import ArgumentError
from tec.lm import load
from tec.lm.beams import BeamSearch
from tec.lm.branches import Branches
from tests.seeds import first

from .tiny import VOCABULARY, llama


@pytest.fixture(scope="module")
def lm() -> Any:
    return load(llama(), target="llvm")


def plainly(
    lm: Any, prompt: list[int], count: int, most: int, ends: set[int], penalty: float
) -> list[tuple[float, list[int]]]:
    """(score, tokens with the end) of the best finished texts."""
    under_way: list[tuple[float, list[int]]] = [(0.0, [])]
    done: list[tuple[float, list[int]]] = []
    for length in range(1, most + 1):
        every = []
        for logprob, written in under_way:
            x = np.asarray(lm.begin([*prompt, *written]), np.float64)
            steps = x - x.max() - np.log(np.exp(x - x.max()).sum())
            every += [(logprob + steps[t], [*written, t]) for t in range(len(steps))]
        every.sort(key=lambda c: -c[0])
        done += [(p / length**penalty, t) for p, t in every[:count] if t[-1] in ends]
        done = sorted(done, key=lambda d: -d[0])[:count]
        under_way = [c for c in every if c[1][-1] not in ends][:count]
        if len(done) == count and done[-1][0] >= under_way[0][0] / length**penalty:
            return done
    return sorted([*done, *((p / most**penalty, t) for p, t in under_way)], key=lambda d: -d[0])[:count]


@pytest.mark.parametrize("case", range(4))
def test_the_same_texts_as_plain_lists(lm: Any, case: int) -> None:
    """Drawn prompts, some of which end within a block of keys and some at its end; many ends, so that texts finish early; both signs of the penalty."""
    rng = np.random.default_rng(first(100 + case))
    prompt = rng.integers(0, VOCABULARY, (29, 31, 32, int(rng.integers(1, 9)))[case]).tolist()
    count, most = int(rng.integers(2, 6)), 7
    penalty = float(rng.choice([-1.0, 0.0, 1.0, 2.0]))
    ends = set(rng.integers(0, VOCABULARY, 12 * (case % 2)).tolist())
    kept, lm.ends = lm.ends, ends
    try:
        found = lm.beams(prompt, count, max_tokens=most, length_penalty=penalty)
    finally:
        lm.ends = kept
    want = plainly(lm, prompt, count, most, ends, penalty)
    assert [b.reason == "end" for b in found] == [t[-1] in ends for _, t in want]
    assert [list(b.ids) for b in found] == [t[:-1] if t[-1] in ends else t for _, t in want]
    np.testing.assert_allclose([b.score for b in found], [s for s, _ in want], atol=2e-4)


def test_one_beam_is_the_greedy_text(lm: Any) -> None:
    run = lm.generate([5, 9, 3], max_tokens=12)
    assert "".join(run) == lm.beams([5, 9, 3], 1, max_tokens=12)[0].text


def test_a_text_under_way_goes_on(lm: Any) -> None:
    alone = "".join(lm.generate([7, 7, 1], max_tokens=6))
    run = lm.generate([7, 7, 1], max_tokens=6)
    begun = next(run)
    lm.beams([2, 4], 3, max_tokens=4)
    assert begun + "".join(run) == alone


class Flat:
    """All tokens are as likely, in a pool of one block too few."""

    block, blocks = 4, 3

    def step(self, pieces: Any) -> Any:
        return np.zeros((len(pieces), 9), np.float32)

    def copy(self, source: int, target: int) -> None:
        assert source != target


def test_a_pool_that_is_too_small_says_so() -> None:
    with pytest.raises(ArgumentError, match="4 texts need more than 3 blocks of 4 tokens"):
        BeamSearch(Branches(Flat(), 4), Flat().step, 4, set()).run([1, 2, 3, 4, 5], 9)


@pytest.mark.parametrize("wrong", [{"count": 0}, {"count": 1.5}, {"max_tokens": 0}, {"length_penalty": "x"}])
def test_settings_are_checked(lm: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        lm.beams([1], **wrong)
