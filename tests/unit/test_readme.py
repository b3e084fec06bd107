"""README.md's figures are those of the stored results."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks.records import read
from tools import readme_figures as figures


def test_the_table_is_drawn_from_the_results() -> None:
    page = figures.PAGE.read_text()
    assert page == figures.drawn(page, read()), "python -m tools.readme_figures writes it"


def test_a_newer_row_changes_the_page() -> None:
    page, rows = figures.PAGE.read_text(), read()
    shown = next(r for r in rows if (r.kind, r.what, r.target, r.measure) in figures.SHOWN)
    other = figures.drawn(page, [*rows, dataclasses.replace(shown, value=12345.0, date="2100-01-01")])
    assert "| 12,340 " in other and "| 12,340 " not in page
    with pytest.raises(ValueError, match="no table of figures"):
        figures.drawn("# tec\n", rows)
