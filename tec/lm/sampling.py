"""Which token comes next: the likeliest, or one drawn from those that are likely."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cached_property
from numbers import Integral, Real
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..records import dataclass

_FAR = 12.0  # in logits at temperature 1: others together weigh little, and few draws meet one
_WIDER = 1.001  # for what rounding takes off
_COLDEST = 1e-20  # lower temperatures are as good as this one, by which logits stay in f32
_PENALIZED = 64  # the last tokens that repetition penalties see, as llama.cpp's default


PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias", "penalized")


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen from the logits.

    temperature: 0 takes the most likely token (greedy). Otherwise logits are divided by it, and a token is drawn.
    top_k: only from the k most likely tokens; 0 for all. top_p: of these, from the fewest that together have this
    probability (nucleus sampling, Holtzman and others). min_p: only tokens at least this many times as likely as the
    most likely one. seed: equal seeds draw equal tokens. repetition_penalty: logits of the last `penalized` tokens
    are divided by it if positive, and multiplied if negative (Keskar and others). presence_penalty,
    frequency_penalty: subtracted from the logits of tokens that were generated, once and for each occurrence.
    logit_bias: added, by token.

    >>> settings = tec.lm.Sampling(temperature=0.7, top_k=40, seed=1)
    >>> settings.top_p
    1.0
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    penalized: int = _PENALIZED

    def __post_init__(self) -> None:
        for kind, names, what in (
            (Real, ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"), "a number"),
            (Integral, ("top_k", "penalized"), "an int"),
        ):  # fmt: skip
            for name in names:
                value = getattr(self, name)
                if isinstance(value, bool) or not isinstance(value, kind):
                    raise ArgumentError(f"{name} is {value!r}", hint=what)
        if not isinstance(self.logit_bias, Mapping) or not all(
            isinstance(t, Integral) and isinstance(b, Real) and b == b for t, b in self.logit_bias.items()
        ):
            raise ArgumentError(f"logit_bias is {self.logit_bias!r}", hint="numbers by tokens: {13: -100.0}")
        if not 0 <= self.temperature < float("inf"):
            raise ArgumentError(
                f"temperature is {self.temperature}", hint="0 for the likeliest token, about 1 for variety"
            )
        if self.top_k < 0:
            raise ArgumentError(f"top_k is {self.top_k}", hint="a number of tokens; 0 for all")
        if not 0 < self.top_p <= 1:
            raise ArgumentError(f"top_p is {self.top_p}", hint="a probability above 0, at most 1")
        if not 0 <= self.min_p < 1:
            raise ArgumentError(
                f"min_p is {self.min_p}", hint="a part of the likeliest token's probability; 0 for none"
            )
        if isinstance(self.seed, bool) or not hasattr(self.seed, "__index__") or self.seed < 0:
            raise ArgumentError(f"the seed is {self.seed!r}", hint="an int from 0 on")
        if not all(-float("inf") < p < float("inf") for p in (self.presence_penalty, self.frequency_penalty)):
            raise ArgumentError(
                f"penalties are {self.presence_penalty} and {self.frequency_penalty}", hint="0 for none"
            )
        if not 0 < self.repetition_penalty < float("inf"):
            raise ArgumentError(
                f"repetition_penalty is {self.repetition_penalty}", hint="1 for none, about 1.1 against loops"
            )

    @property
    def counts_written(self) -> bool:
        """Whether what was written changes what comes."""
        return self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0

    def picker(self) -> Picker:
        """One that begins with the seed."""
        return Picker(self)


def _falling(x: Any) -> Any:
    """Places of numbers in falling order, of equals the first first. Numbers of 32 bits are sorted with their places as words of 64, a fourth of an argsort's time."""
    if x.dtype != np.float32:
        return np.argsort(-x, kind="stable")
    bits = (x + np.float32(0)).view(np.uint32)  # without -0
    rising = np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31))
    words = (~rising).astype(np.uint64) << np.uint64(32) | np.arange(len(x), dtype=np.uint64)
    words.sort()
    return (words & np.uint64(0xFFFFFFFF)).astype(np.intp)


def _largest(x: Any, count: int) -> Any:
    """Places of the `count` largest numbers and of all that equal the least of them."""
    return np.flatnonzero(x >= np.partition(x, len(x) - count)[len(x) - count])


def _drawn(weights: Any, rest: float, number: float) -> int:
    """The place that a number of [0, 1) draws; that behind the last one where it is among the rest."""
    shares = np.cumsum(weights / (weights.sum() + rest))
    if not rest:
        shares /= shares[-1]
    return int(np.searchsorted(shares, number, side="right"))


def no_numbers() -> ArgumentError:
    """What is told where logits are no numbers."""
    return ArgumentError("the model's logits are no numbers", hint="a range that float16 has not: try --dtype float32")


class Picker:
    """Draws token after token."""

    def __init__(self, sampling: Sampling):
        self.sampling = sampling
        self.temperature = max(sampling.temperature, _COLDEST)

    @cached_property
    def rng(self) -> Any:
        """What draws, imported by the first who does: the likeliest token needs none."""
        return np.random.default_rng(self.sampling.seed)

    def pick(self, logits: Any, written: Sequence[int] = ()) -> int:
        """The token for logits [vocabulary]; of equals the first. written: the tokens before it. Raises ArgumentError where logits are no numbers."""
        s = self.sampling
        x = np.asarray(logits)
        x = x if x.dtype in (np.float32, np.float64) else x.astype(np.float32)
        best = int(x.argmax())  # of what is no number the first
        if not np.isfinite(x[best]):
            raise no_numbers()
        if s.temperature == 0 and not s.logit_bias and not s.counts_written:
            return best
        x = self._biased(x, written)
        if s.temperature == 0:
            return int(x.argmax())
        order, weights, rest = self._likely(x)
        if rest and s.top_p < 1 and weights.sum() < s.top_p * (weights.sum() + rest):
            order, weights, rest = self._sorted(x, _falling(x))
        count = len(order)
        if s.top_p < 1:
            shares = np.cumsum(weights / (weights.sum() + rest))
            count = min(count, int(np.searchsorted(shares, s.top_p)) + 1)
        if s.min_p:
            count = min(count, max(1, int(np.count_nonzero(weights >= s.min_p * weights[0]))))
        drawn = self.rng.random()
        if rest and s.top_p == 1 and not s.min_p:  # all tokens may be drawn
            if (at := _drawn(weights, rest, drawn)) < count:
                return int(order[at])
            order, weights, _ = self._sorted(x, _falling(x))
            count = len(order)
        return int(order[_drawn(weights[:count], 0.0, drawn)])

    def _likely(self, x: Any) -> tuple[Any, Any, float]:
        """Tokens by their logits in falling order, the `top_k` first ones; what each weighs beside the likeliest, float64, and what others that may be drawn weigh
        together. These are far from the likeliest: a sort of a large vocabulary takes longer than a small model's token."""
        k, t, top = self.sampling.top_k, self.temperature, x.max()
        if k and k < len(x) // 8:
            near = _largest(x, k)
        elif k:
            return self._sorted(x, _falling(x)[:k])
        else:
            far = max(_FAR, -np.log(self.sampling.min_p)) if self.sampling.min_p else _FAR
            near = np.flatnonzero(x >= top - (t * far * _WIDER + _WIDER - 1))
        if len(near) > len(x) // 4:
            return self._sorted(x, _falling(x)[: k or None])
        found = self._sorted(x, near[np.argsort(-x[near].astype(np.float64), kind="stable")][: k or None])
        if k:
            return found
        each = np.exp((x - top) / x.dtype.type(t))
        return *found[:2], max(0.0, float(each.sum(dtype=np.float64) - each[near].sum(dtype=np.float64)))

    def _sorted(self, x: Any, order: Any) -> tuple[Any, Any, float]:
        """All that may be drawn."""
        some = x[order].astype(np.float64)
        return order, np.exp((some - some[0]) / self.temperature), 0.0

    def _biased(self, x: Any, written: Sequence[int]) -> Any:
        s = self.sampling
        if not s.logit_bias and not (s.counts_written and len(written)):
            return x
        x = x.astype(np.float64)
        last = np.asarray(written[-s.penalized :], np.int64)
        last = last[(last >= 0) & (last < len(x))]
        if s.counts_written and last.size:
            tokens, times = np.unique(last, return_counts=True)
            own = x[tokens]
            own = np.where(own > 0, own / s.repetition_penalty, own * s.repetition_penalty)
            x[tokens] = own - s.presence_penalty - s.frequency_penalty * times
        for token, bias in s.logit_bias.items():
            if 0 <= token < len(x):
                x[token] += bias
        return x


def log_probabilities(logits: Any, count: int) -> list[tuple[int, float]]:
    """The `count` likeliest tokens of logits [vocabulary] and the logarithms of their probabilities."""
    x = np.asarray(logits, np.float64)
    some = _largest(x, count) if 0 < count < len(x) // 8 else np.arange(len(x))
    top = some[np.argsort(-x[some], kind="stable")][:count]
    total = x.max() + np.log(np.exp(x - x.max()).sum())
    return [(int(t), float(x[t] - total)) for t in top]
