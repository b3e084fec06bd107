"""The labels of least cost for variables that are priced alone and in pairs: exact, by eliminating one variable after another.

Eliminating a variable leaves a table over those that it is priced with: its best cost for each of their labels. The one with the smallest such table goes
first. Networks are close to trees, so tables stay small and the result is the least there is. Where a table would pass a limit, the variable with the most
neighbours gets the label that is best where all of them are at their cheapest, and the rest is exact again.
Source: bucket elimination (R. Dechter, 1999), smallest table first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from ..records import dataclass

_MOST_ENTRIES = 1 << 18  # of one table: 2 MiB

Table = tuple[tuple[int, ...], Any]  # variables, and the costs of their labels, an axis each


@dataclass
class Problem:
    """Variables 0, 1, ... with some labels each, and what labels cost."""

    sizes: list[int] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)

    def variable(self, costs: Sequence[float]) -> int:
        """A new variable, with the cost of each of its labels."""
        self.sizes.append(len(costs))
        self.alone(len(self.sizes) - 1, costs)
        return len(self.sizes) - 1

    def alone(self, v: int, costs: Sequence[float]) -> None:
        """What a variable's labels cost besides."""
        self.tables.append(((v,), np.asarray(costs, np.float64)))

    def pair(self, a: int, b: int, costs: Sequence[Sequence[float]]) -> None:
        """What two different variables cost together: costs[label of a][label of b]."""
        self.tables.append(((a, b), np.asarray(costs, np.float64)))

    def cost(self, labels: Sequence[int]) -> float:
        """What a choice of all labels costs."""
        return float(sum(table[tuple(labels[v] for v in names)] for names, table in self.tables))

    def solve(self, most_entries: int = _MOST_ENTRIES) -> list[int]:
        """The labels of least cost; of equal ones the first."""
        of: list[list[Table]] = [[] for _ in self.sizes]
        for t in self.tables:
            for v in t[0]:
                of[v].append(t)
        left = dict.fromkeys(range(len(self.sizes)), 0)
        steps: list[Table] = []  # a variable and those its label follows from; its label for each of theirs

        def around(v: int) -> tuple[int, ...]:
            return tuple(sorted({u for names, _ in of[v] for u in names} - {v}))

        def entries(v: int) -> int:
            return math.prod(self.sizes[u] for u in (v, *around(v)))

        for v in left:
            left[v] = entries(v)
        while left:
            v = min(zip(left.values(), left))[1]
            if left[v] <= most_entries:
                names = around(v)
                total = sum(_spread(t, (*names, v)) for t in of[v])
                steps.append(((v, *names), total.argmin(axis=-1)))
                made = [(names, total.min(axis=-1))]
            else:
                v = max(left, key=lambda u: (len(around(u)), -u))
                names = around(v)
                alone = sum(t.min(axis=tuple(k for k, u in enumerate(held) if u != v)) for held, t in of[v])
                label = alone.argmin()
                steps.append(((v,), label))
                made = [(tuple(u for u in held if u != v), t.take(label, axis=held.index(v))) for held, t in of[v]]
            del left[v]
            for u in names:
                of[u] = [t for t in of[u] if v not in t[0]] + [t for t in made if u in t[0]]
            for u in names:
                left[u] = entries(u)
        labels = [0] * len(self.sizes)
        for held, best in reversed(steps):
            labels[held[0]] = int(best[tuple(labels[u] for u in held[1:])])
        return labels


def _spread(table: Table, order: tuple[int, ...]) -> Any:
    """A table's costs with its axes in an order of variables, others of size 1."""
    names, costs = table
    kept = [v for v in order if v in names]
    turned = costs.transpose([names.index(v) for v in kept])
    return turned.reshape([turned.shape[kept.index(v)] if v in kept else 1 for v in order])
