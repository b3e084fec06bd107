"""Products of parameters, of which the gate runs a part and a night (`make night`) all.

    @thinned(2, ("name", CASES), ("dtype", ["float32", "float16"]), ("chip", CHIPS))
    def test_lines_touched(name: str, dtype: str, chip: str) -> None: ...

runs, at the gate, so few rows of the product that each two values of different parameters still meet in one: most faults need one value or two to show
(Kuhn, Wallace, Gallo: Software Fault Interactions, 2004). With 1 each value comes once at least, as where the same cases run on several chips.
`thinned_rows` does the same for a list of cases. `night_rows` are those that tools/night_rows.py found, whose lines
of tec other tests reach too.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests import seeds

NIGHT_ROWS = Path(__file__).with_name("night_rows.txt")


@cache
def night_rows() -> frozenset[str]:
    """The tests' names, rows and all, that run at night alone."""
    found, test = set(), ""
    for line in NIGHT_ROWS.read_text("utf-8").splitlines():
        if line.startswith("    "):
            found.add(f"{test}[{line[4:]}]")
        else:
            test = line
    return frozenset(found)


def thinned(strength: int, *axes: tuple[str, Iterable[Any]]) -> pytest.MarkDecorator:
    """pytest's `parametrize` over the product of `axes`: (name, values), or ("name, name", tuples).

    `strength` values of as many axes meet in some row of the gate. Values that are `pytest.param` with marks are never left out.
    """
    names = [name.strip() for axis, _ in axes for name in axis.split(",")]
    values = [[_param(axis, v) for v in given] for axis, given in axes]
    rows = list(itertools.product(*(range(len(v)) for v in values)))
    plain = [row for row in rows if not any(of[k].marks for of, k in zip(values, row))]
    kept = set(plain if seeds.number() else covering(plain, strength))
    params = []
    for row in rows:
        parts = [of[k] for of, k in zip(values, row)]
        marks = [m for p in parts for m in p.marks]
        if marks or row in kept:
            params.append(pytest.param(*(v for p in parts for v in p.values), marks=marks))
    return pytest.mark.parametrize(names, params)


def _param(axis: str, value: Any) -> Any:
    if hasattr(value, "marks"):
        return value
    return pytest.param(*value) if "," in axis else pytest.param(value)


def thinned_rows(kept: int, names: str | tuple[str, ...], rows: Collection[Any]) -> pytest.MarkDecorator:
    """pytest's `parametrize` over `rows` that are no product of anything: the gate runs `kept` of them, evenly spread, and a night all."""
    chosen = list(rows)
    if not seeds.number() and kept < len(chosen):
        chosen = [chosen[k * len(rows) // kept] for k in range(kept)]
    return pytest.mark.parametrize(names, chosen)


def covering(rows: Collection[tuple[int, ...]], strength: int) -> list[tuple[int, ...]]:
    """Few of the rows that have each combination of `strength` columns' values that a row has: greedily, and each value about equally often."""

    def parts(row: tuple[int, ...]) -> set[tuple[tuple[int, int], ...]]:
        return set(itertools.combinations(enumerate(row), min(strength, len(row))))

    left = set[Any]().union(*map(parts, rows))
    used: Counter[tuple[int, int]] = Counter()
    kept = []
    while left:
        best = max(rows, key=lambda row: (len(parts(row) & left), -sum(used[v] for v in enumerate(row))))
        left -= parts(best)
        used.update(enumerate(best))
        kept.append(best)
    return kept
