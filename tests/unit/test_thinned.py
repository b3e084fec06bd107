"""What the gate leaves out of a product of parameters, and that a night leaves out nothing."""

from __future__ import annotations

import itertools
import random

import pytest

from tests.thinned import covering, thinned


@pytest.mark.parametrize(
    ("sizes", "most"), [((16, 2, 2), 32), ((3, 2, 2), 7), ((3, 6, 2), 18), ((4, 4, 4), 20), ((5,), 5)]
)
def test_any_two_values_meet(sizes: tuple[int, ...], most: int) -> None:
    rows = list(itertools.product(*map(range, sizes)))
    kept = covering(rows, 2)
    assert len(kept) == len(set(kept)) <= most and set(kept) <= set(rows)
    for a, b in itertools.combinations(range(len(sizes)), 2):
        assert {(row[a], row[b]) for row in kept} == set(itertools.product(range(sizes[a]), range(sizes[b])))


@pytest.mark.parametrize("strength", [1, 2, 3])
def test_what_any_row_has_is_kept(strength: int) -> None:
    """Rows of no whole product: what some of them have together, some kept one has."""
    rng = random.Random(4)
    rows = sorted({(rng.randrange(4), rng.randrange(3), rng.randrange(2)) for _ in range(12)})
    kept = covering(rows, strength)
    for columns in itertools.combinations(range(3), strength):
        assert {tuple(r[c] for c in columns) for r in kept} == {tuple(r[c] for c in columns) for r in rows}
    assert strength < 3 or sorted(kept) == rows


def test_cases_are_dealt_to_chips_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEC_SEED", "")
    slow = pytest.param("f", 6, marks=pytest.mark.slow)
    axes = ("chip", ["x", "y"]), ("case, size", [("a", 1), ("b", 2), ("c", 3), ("d", 4), slow])
    mark = thinned(1, *axes)
    names, params = mark.args
    assert names == ["chip", "case", "size"]
    plain = [p.values for p in params if not p.marks]
    assert len(plain) == 4 and {p[1:] for p in plain} == {("a", 1), ("b", 2), ("c", 3), ("d", 4)}
    assert sorted(p[0] for p in plain) == ["x", "x", "y", "y"]
    assert [p.values for p in params if p.marks] == [("x", "f", 6), ("y", "f", 6)]
    monkeypatch.setenv("TEC_SEED", "20270131")
    assert len(thinned(1, *axes).args[1]) == 10
