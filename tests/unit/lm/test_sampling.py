"""Tokens that are drawn: those of a plain definition that sorts the whole vocabulary, which the picker does where the tail is met alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec.lm.sampling as sampling
from tec.errors import ArgumentError
from tec.lm import Sampling
from tests import seeds


def plainly(s: Sampling, x: Any, rng: Any) -> int:
    """A token by all tokens in falling order."""
    order = np.argsort(-x.astype(np.float64), kind="stable")[: s.top_k or None]
    p = np.exp((x[order].astype(np.float64) - x[order[0]]) / s.temperature)
    p /= p.sum()
    count = len(p)
    if s.top_p < 1:
        count = min(count, int(np.searchsorted(np.cumsum(p), s.top_p)) + 1)
    if s.min_p:
        count = min(count, max(1, int(np.count_nonzero(p >= s.min_p * p[0]))))
    return int(rng.choice(order[:count], p=p[:count] / p[:count].sum()))


def logits(rng: Any) -> Any:
    """Of few tokens or many, peaked or flat, with equals, without some."""
    x = rng.standard_normal(int(rng.choice([5, 40, 1000, 20_000]))) * rng.choice([0.01, 1, 3, 8])
    if rng.random() < 0.5:
        x[rng.integers(0, len(x), 3)] += rng.choice([5, 12])
    if rng.random() < 0.3:
        x = np.round(x)
    if rng.random() < 0.3:
        x[rng.integers(1, len(x), len(x) // 3)] = -np.inf
    return x.astype(np.float32)


def test_draws_are_those_of_the_definition() -> None:
    rng = np.random.default_rng(seeds.first(4))
    for _ in range(400):
        x = logits(rng)
        draw = lambda *values: rng.choice(values)  # noqa: E731
        s = Sampling(
            temperature=float(draw(0.01, 0.3, 0.8, 1, 2, 10)), top_k=int(draw(0, 0, 0, 1, 5, 40, 1000)),
            top_p=float(draw(1, 1, 0.95, 0.5, 0.01, 0.999)), min_p=float(draw(0, 0, 0.05, 0.5, 1e-6)), seed=int(rng.integers(1 << 30)),
        )  # fmt: skip
        picker, peer = s.picker(), np.random.default_rng(s.seed)
        assert [picker.pick(x) for _ in range(4)] == [plainly(s, x, peer) for _ in range(4)], s


@pytest.mark.parametrize("more", [{}, {"top_p": 0.95}, {"min_p": 0.05}, {"top_k": 40}])
def test_a_large_vocabulary_is_not_sorted(more: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seeds.first(5))
    x = rng.standard_normal(50_000).astype(np.float32) * 2
    x[rng.integers(0, len(x), 20)] += 20
    monkeypatch.setattr(sampling, "_falling", lambda x: pytest.fail("sorted"))
    picker = Sampling(temperature=0.8, seed=3, **more).picker()
    assert len({picker.pick(x) for _ in range(50)}) > 1


def test_the_likeliest_tokens_and_their_probabilities() -> None:
    rng = np.random.default_rng(seeds.first(6))
    for count in (0, 1, 5, 900):
        x = np.round(rng.standard_normal(1000) * 3).astype(np.float32)
        order = np.argsort(-x, kind="stable")[:count]
        found = sampling.log_probabilities(x, count)
        total = np.log(np.exp(x.astype(np.float64)).sum())
        assert [t for t, _ in found] == order.tolist()
        np.testing.assert_allclose([p for _, p in found], x[order] - total, atol=1e-9)


@pytest.mark.parametrize("temperature", [1e-320, 1e-50, 1e-40, 1e-6])
@pytest.mark.parametrize("more", [{}, {"top_p": 0.9}, {"min_p": 0.05}, {"top_k": 40}])
@pytest.mark.filterwarnings("error")
def test_hardly_any_temperature(temperature: float, more: dict[str, Any]) -> None:
    """The likeliest token, without a quotient that no float holds."""
    x = np.random.default_rng(seeds.first(8)).standard_normal(1000).astype(np.float32) * 20
    x[3] = -np.inf
    assert Sampling(temperature=temperature, seed=1, **more).picker().pick(x) == x.argmax()


@pytest.mark.parametrize("more", [{"temperature": 0}, {"temperature": 1}, {"temperature": 1, "top_k": 1}])
@pytest.mark.parametrize("x", [[np.nan, 1], [np.inf, 1], [-np.inf, -np.inf]])
def test_logits_that_are_no_numbers(x: list[float], more: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match="no numbers"):
        Sampling(**more).picker().pick(np.array(x, np.float32))
