"""Published times as rows: the split into fit and judged ones, and that no constant was chosen by a judged one."""

from __future__ import annotations

import re

from benchmarks.amd_model import drawn, good_rows, right_rows
from benchmarks.model_rows import Row, rows
from tec.target.fitted import FITTED


def judged(shape: str) -> bool:
    m, n, k = map(int, shape.split("x"))
    return Row("product", "", "", "", "", (m, n, k, 1), 1.0, "", False).judged


def test_a_third_of_the_shapes_is_judged_on_every_chip() -> None:
    found = rows()
    side: dict[str, set[bool]] = {}
    for r in found:
        side.setdefault(r.shape, set()).add(r.judged)
    assert all(len(s) == 1 for s in side.values())
    assert 0.28 < sum(next(iter(s)) for s in side.values()) / len(side) < 0.39


def test_constants_were_chosen_by_fit_rows_alone() -> None:
    named = {s for f in FITTED.values() for s in re.findall(r"(?:attention )?\d+x\d+(?:x\d+)+", f.rows)}
    attention = {s for s in named if s.startswith("attention") or s.count("x") == 4}
    assert len(named) >= 8 and len(attention) == 2
    assert not [s for s in named - attention if judged(s)]
    sides = {r.shape: r.judged for r in rows() if r.op == "attention"}
    assert not [s for s in attention if sides["attention " + s.removeprefix("attention ")]]


def test_draws_are_the_same_from_one_seed_and_take_every_group_in_turn() -> None:
    found = right_rows()
    first, second = drawn(found, 20, 3), drawn(found, 20, 3)
    assert [r.shape for r in first] == [r.shape for r in second]
    groups = {(r.product, r.dtype, r.kind) for r in found}
    assert {(r.product, r.dtype, r.kind) for r in drawn(found, len(groups), 3)} == groups


def test_rows_that_hold_a_launch_are_left_out() -> None:
    assert all(r.us >= 30 for r in good_rows() if r.impl == "tensile")
