"""The search in one task's choices: draft by cost, measure, learn, evolve. It proposes and is told; who measures, and where, is not its matter.

Scores are logarithms of times over the default's: negative is faster.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np

from ..choices import Space
from .candidates import Candidate, Candidates
from .ranker import LEAST, Features, Ranker

_PARENTS = 8  # of the next generation
_CHILDREN = 64  # a round
_STALE_TRIALS = 64  # without a gain, and the search ends
WORTH = 0.02  # a smaller gain is none: timing does not tell it from noise


class Search:
    """One task's search. `batch` proposals a round, whatever the number of workers: so the same seed gives the same search on any."""

    def __init__(self, spaces: Sequence[Space], ranker: Ranker, seed: int, batch: int = 8):
        self.rng = random.Random(seed)
        self.batch = batch
        self.candidates = Candidates(spaces, self.rng)
        self.features = Features(self.candidates.spaces)
        self.ranker = ranker
        self.default = self.incumbent = self.candidates.default
        self.incumbent_score = 0.0
        self.scores: dict[str, float | None] = {self.default.key: 0.0}  # None: failed
        self.trials = 0
        self.rounds = 0
        self.since_gain = 0  # trials
        self.last_gain = 0.0  # of the last round, as a share of the time

    @property
    def is_spent(self) -> bool:
        """Nothing left to try, or nothing gained for long."""
        left = self.candidates.is_listed and len(self.scores) >= len(self.candidates)
        return left or self.since_gain >= _STALE_TRIALS

    @property
    def promise(self) -> float:
        """The share of the task's time that another round may be expected to win: what the last round won, or what first rounds usually do, less the
        longer nothing came."""
        stale = self.since_gain / self.batch
        return max(self.last_gain, 0.2 / (1.0 + self.rounds + stale))

    def propose(self, most: int) -> list[Candidate]:
        """The next round's trials, at most `most`; empty when the search is spent."""
        if self.is_spent:
            return []
        n = min(self.batch, most)
        measured = sorted((s, k) for k, s in self.scores.items() if s is not None)
        known = self.candidates.known
        self.candidates.grow([known[k] for _, k in measured[:_PARENTS]], _CHILDREN)
        left = [c for c in known.values() if c.key not in self.scores]
        ranked = self._ranked(left)
        # One in eight by chance, at least one once there are four: what the ranker is wrong about is never seen otherwise.
        chance = max(1, n // 8) if n >= 4 else 0
        if len(measured) < LEAST:
            chance = n // 2
        chosen = ranked[: n - chance]
        rest = ranked[n - chance :]
        chosen += self.rng.sample(rest, min(chance, len(rest)))
        return chosen

    def _ranked(self, left: list[Candidate]) -> list[Candidate]:
        """By the ranker once it has seen enough, by the cost model before."""
        seen = [self.candidates.known[k] for k in self.scores]
        if len(seen) < LEAST:
            return sorted(left, key=lambda c: c.cost if c.cost is not None else 0.0)
        good = [s for s in self.scores.values() if s is not None]
        worst = max(good) + 0.5  # what failed is worse than the slowest
        y = [worst if s is None else s for s in self.scores.values()]
        if not left:
            return []
        self.ranker.fit(self.features.rows(seen), np.array(y, np.float64))
        predicted = self.ranker.predict(self.features.rows(left))
        order = sorted(range(len(left)), key=lambda k: (round(float(predicted[k]), 9), k))
        return [left[k] for k in order]

    def learn(self, batch: Sequence[Candidate], ratios: Sequence[float | None]) -> list[Candidate]:
        """Ratios to the incumbent's time (None: failed). Returns those that look better than the incumbent, the best first: they are to be
        measured once more before they are believed."""
        better = []
        for c, ratio in zip(batch, ratios):
            self.scores[c.key] = None if ratio is None else self.incumbent_score + math.log(ratio)
            if ratio is not None and ratio < 1 - WORTH:
                better.append((ratio, c))
        self.trials += len(batch)
        self.since_gain += len(batch)
        self.rounds += 1
        self.last_gain = 0.0
        return [c for _, c in sorted(better, key=lambda pair: pair[0])]

    def accept(self, winner: Candidate, ratio: float) -> None:
        """A better choice, by an interleaved remeasure: it is what others are measured against from now on."""
        self.incumbent = winner
        self.incumbent_score += math.log(ratio)
        self.scores[winner.key] = self.incumbent_score
        self.since_gain = 0
        self.last_gain = 1 - ratio

    def refute(self, candidate: Candidate, ratio: float | None) -> None:
        """What the remeasure said of one that looked better."""
        self.scores[candidate.key] = None if ratio is None else self.incumbent_score + math.log(ratio)
