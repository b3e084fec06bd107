"""Rankers: what was measured of some choices says which others are worth a trial.

Both learn the logarithm of the time on the same features: each parameter's size, its square, products of two sizes, words and flags as 0 and 1, and what
the cost model says. `ridge` solves one small linear system; LightGBM, where it is installed, grows trees.
"""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ..choices import Space
from ..errors import ArgumentError, install
from .candidates import Candidate

LEAST = 8  # trials before a ranker says more than the cost model
# Ridge's: with standardized features and noise of some percent, enough that 8 trials do not fix 40 weights.
_SHRINK = 1.0
_NAMES = ("auto", "ridge", "lightgbm")

Floats = np.ndarray[Any, np.dtype[np.float64]]


class Ranker(Protocol):
    """Learns log times of feature rows and predicts others'."""

    def fit(self, x: Floats, y: Floats) -> None: ...

    def predict(self, x: Floats) -> Floats: ...


class Ridge:
    """Ridge regression on standardized features."""

    def fit(self, x: Floats, y: Floats) -> None:
        self.mean, deviation = x.mean(0), x.std(0)
        self.scale = np.where(deviation > 1e-12, deviation, np.inf)  # what never changes says nothing
        z = (x - self.mean) / self.scale
        self.offset = float(y.mean())
        self.weights = np.linalg.solve(z.T @ z + _SHRINK * np.eye(x.shape[1]), z.T @ (y - self.offset))

    def predict(self, x: Floats) -> Floats:
        found: Floats = (x - self.mean) / self.scale @ self.weights + self.offset
        return found


class Trees:
    """LightGBM's gradient-boosted trees, few and small as the trials are; one thread and a fixed seed, so that equal trials rank alike."""

    def __init__(self) -> None:
        self._lightgbm = importlib.import_module("lightgbm")
        self._ridge = Ridge()

    def fit(self, x: Floats, y: Floats) -> None:
        # Trees alone say the same of all that lies beyond what was tried: they learn what the line leaves.
        self._ridge.fit(x, y)
        data = self._lightgbm.Dataset(x, y - self._ridge.predict(x), params={"verbose": -1, "min_data_in_bin": 1})
        options = {
            "objective": "l2", "num_leaves": 8, "min_data_in_leaf": 3, "learning_rate": 0.1, "num_threads": 1, "seed": 0, "deterministic": True,
            "verbose": -1,
        }  # fmt: skip
        self._trees = self._lightgbm.train(options, data, num_boost_round=60)

    def predict(self, x: Floats) -> Floats:
        return self._ridge.predict(x) + np.asarray(self._trees.predict(x), np.float64)


def make_ranker(name: str = "auto") -> Ranker:
    """ "ridge", "lightgbm", or "auto": LightGBM where it is installed. Raises ArgumentError for others, and where it is not."""
    if name not in _NAMES:
        raise ArgumentError(f"no ranker {name!r}", hint="there are: " + ", ".join(_NAMES))
    if name == "ridge":
        return Ridge()
    try:
        return Trees()
    except (ImportError, OSError):
        if name == "auto":
            return Ridge()
        raise ArgumentError("the ranker lightgbm needs the package lightgbm", hint=install("tune")) from None


class Features:
    """A choice as a row of numbers, alike for all choices of some spaces."""

    def __init__(self, spaces: Mapping[str, Space]):
        self.spaces = spaces
        self.columns: list[tuple[str, str, tuple[Any, ...]]] = []  # template, parameter, its words (none for a number)
        for space in spaces.values():
            for name, options in space.parameters.items():
                is_number = all(isinstance(o, (int, float)) and not isinstance(o, bool) for o in options)
                self.columns.append((space.template, name, () if is_number else tuple(options)))

    def row(self, candidate: Candidate) -> list[float]:
        choice = candidate.choice
        out = [float(choice["template"] == t) for t in self.spaces]
        cost = math.log(candidate.cost) if candidate.cost else 0.0
        out += [cost, cost * cost]
        sizes = []
        for template, name, words in self.columns:
            value = choice.get(name) if choice["template"] == template else None
            if words:
                out += [float(value == w and type(value) is type(w)) for w in words]
            else:
                sizes.append(math.log2(1.0 + abs(value)) if isinstance(value, (int, float)) else 0.0)
        out += sizes
        out += [a * b for a, b in itertools.combinations_with_replacement(sizes, 2)]
        return out

    def rows(self, candidates: Sequence[Candidate]) -> Floats:
        return np.array([self.row(c) for c in candidates], np.float64)
