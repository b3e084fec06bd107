"""A plan's layout as plain data, so that a start that finds both on the disk proves nothing a second time.

`to_data(layout)` gives JSON-able facts and int64 arrays; `of_data(plan, facts, arrays)` the layout again. It is for files that the same user's cache wrote
(`Network`'s `trusted`): it checks no more than that the parts are there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from ..modules.package import damaged
from . import layout as _layout
from .layout import PlanLayout
from .plan import Plan, Repeat
from .size_table import Limits, SizeTable

_PREFIX = "layout/"
# What is wrong with a row, by the names that stand in files.
_WRONG: dict[str, Callable[..., Exception]] = {
    "guard": _layout._unguarded, "damaged": _layout._damaged, "too_large": _layout._too_large, "past_32_bits": _layout.past_32_bits,
}  # fmt: skip
_ARRAYS = ("base_of", "_offset_rows", "_members", "_starts", "_slot_of", "_aligned", "_arguments", "_scalar_rows")


def to_data(layout: PlanLayout) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """(facts, arrays by name) of a layout to which nothing was added since it was made; None for one whose checks are not its own."""
    table, names = layout.table, {f: n for n, f in _WRONG.items()}
    limits: list[list[Any]] = []
    texts: dict[tuple[Any, ...], int] = {}
    for row, least, most, wrong in layout.limits.rows():
        function, args = (wrong.func, wrong.args) if isinstance(wrong, partial) else (wrong, ())
        if function not in names:
            return None
        limits.append([row, least, most, texts.setdefault((names[function], *args), len(texts))])
    polynomials = [[[list(m), c] for m, c in p] for p in table.sums()[1]]
    shapes = list(layout.shapes.values())
    facts = {
        "atoms": table.atom_expressions(), "polynomials": polynomials, "known": list(table._known.items()), "wrong": list(texts),
        "bases": layout.bases, "trips": [layout.trips[id(s)] for s in _loops(layout.plan)], "strides": layout._stride_rows, "whole": layout._whole,
        "ranks": [len(s) for s in shapes],
    }  # fmt: skip
    arrays = {n: getattr(layout, n) for n in _ARRAYS}
    arrays |= {
        "bytes": np.array(layout._bytes, np.int64), "shapes": np.array([r for s in shapes for r in s], np.int64),
        "calls": np.array(layout.calls, np.int64).reshape(-1, 2), "limits": np.array(limits, np.int64).reshape(-1, 4),
    }  # fmt: skip
    return facts, {_PREFIX + n: a for n, a in arrays.items()}


def of_data(plan: Plan, facts: Mapping[str, Any], arrays: Mapping[str, Any]) -> PlanLayout:
    """The layout of `to_data`. arrays: those among others. Raises PackageError where parts are missing."""
    try:
        found = {n.removeprefix(_PREFIX): a for n, a in arrays.items() if n.startswith(_PREFIX)}
        made = PlanLayout.__new__(PlanLayout)
        made.plan, made.names = plan, {name: k for k, name in enumerate(plan.values)}
        made.table = _table(facts)
        for n in _ARRAYS:
            setattr(made, n, found[n])
        made.bases, made._whole = list(facts["bases"]), int(facts["whole"])
        made._bytes, made.calls = found["bytes"].tolist(), [(a, b) for a, b in found["calls"].tolist()]
        rows, made.shapes = found["shapes"].tolist(), {}
        end = 0
        for name, rank in zip(plan.values, facts["ranks"], strict=True):
            made.shapes[name] = rows[end : end + rank]
            end += rank
        made.trips = {id(s): row for s, row in zip(_loops(plan), facts["trips"], strict=True)}
        made._stride_rows = dict(facts["strides"])
        made.argument_bases = made.base_of[made._arguments]
        made.limits = Limits()
        wrong = [partial(_WRONG[w], *args) for w, *args in facts["wrong"]]
        for row, least, most, text in found["limits"].tolist():
            made.limits.add(row, least, most, wrong[text])
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise damaged(f"its layout: {type(error).__name__}: {error}") from None
    return made


def is_layout(name: str) -> bool:
    """Whether an array is one of a layout's."""
    return name.startswith(_PREFIX)


def _loops(plan: Plan) -> list[Repeat]:
    return [s for s, _ in plan.holders if isinstance(s, Repeat) and s.trips is not None]


def _table(facts: Mapping[str, Any]) -> SizeTable:
    polynomials = [tuple((tuple(m), c) for m, c in p) for p in facts["polynomials"]]
    return SizeTable.of(facts["atoms"], polynomials, dict(facts["known"]))
