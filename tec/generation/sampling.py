"""Which token comes next: the likeliest, or one drawn from those that are likely."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ArgumentError


@dataclass(frozen=True)
class Sampling:
    """temperature 0: the likeliest token (greedy). Else logits are divided by it and a token is drawn from the `top_k` likeliest (0: all), of these from the
    fewest that together have a probability of `top_p` (nucleus sampling, Holtzman and others). `seed`: equal seeds draw equal tokens."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise ArgumentError(
                f"temperature is {self.temperature}", hint="0 for the likeliest token, about 1 for variety"
            )
        if self.top_k < 0:
            raise ArgumentError(f"top_k is {self.top_k}", hint="a number of tokens; 0 for all")
        if not 0 < self.top_p <= 1:
            raise ArgumentError(f"top_p is {self.top_p}", hint="a probability above 0, at most 1")

    def picker(self) -> Picker:
        """One that begins with the seed."""
        return Picker(self)


class Picker:
    """Draws token after token."""

    def __init__(self, sampling: Sampling):
        self.sampling = sampling
        self.rng = np.random.default_rng(sampling.seed)

    def pick(self, logits: Any) -> int:
        """The token for logits [vocabulary]; of equals the first. Raises ArgumentError where they are no numbers."""
        s = self.sampling
        x = np.asarray(logits, np.float64)
        if np.isnan(x).any() or not np.isfinite(x).any():
            raise ArgumentError(
                "the model's logits are no numbers", hint="a range that float16 has not: try --dtype float32"
            )
        if s.temperature == 0:
            return int(x.argmax())
        order = np.argsort(-x, kind="stable")
        if s.top_k:
            order = order[: s.top_k]
        p = np.exp((x[order] - x[order[0]]) / s.temperature)
        p /= p.sum()
        if s.top_p < 1:
            count = int(np.searchsorted(np.cumsum(p), s.top_p)) + 1
            order, p = order[:count], p[:count] / p[:count].sum()
        return int(self.rng.choice(order, p=p))
