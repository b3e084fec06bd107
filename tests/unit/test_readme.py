"""README.md's picture shows the stored results, each point where its ratio belongs."""

from __future__ import annotations

import dataclasses
import math
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from benchmarks.records import Record, read
from tools import docs_hooks
from tools import readme_figures as figures

SVG = "{http://www.w3.org/2000/svg}"


def points(svg: str) -> list[tuple[float, str]]:
    """The distance of each point from the line of equal times, in pixels, and whether its colour says less or more."""
    tree = ElementTree.fromstring(svg)
    equal = next(float(e.attrib["x1"]) for e in tree.iter(f"{SVG}line") if e.get("class") == "equal")
    return [(float(e.attrib["cx"]) - equal, e.attrib["class"]) for e in tree.iter(f"{SVG}circle")]


def rows_shown(rows: list[Record]) -> list[Record]:
    return [r for some in figures.shown(rows).values() for r in some]


def test_the_picture_is_drawn_from_the_results() -> None:
    kept = figures.PICTURE.read_text("utf-8")
    assert kept == figures.picture(read()), "python -m tools.readme_figures writes it"
    readme = Path("README.md").read_text("utf-8")
    assert figures.PICTURE.relative_to(figures.ROOT).as_posix() in readme


def test_a_stranger_reads_it_in_a_few_minutes() -> None:
    assert len(Path("README.md").read_text("utf-8").splitlines()) <= 120


def test_every_row_is_stored_and_some_peers_are_ahead() -> None:
    found = rows_shown(read())
    assert len(found) == sum(map(len, figures.SHOWN.values()))
    for device, some in figures.shown(read()).items():
        sides = {r.ratio > 1 for r in some if r.ratio is not None}
        assert sides == {False, True}, f"{device}: choose rows on both sides"


def test_a_point_stands_where_its_ratio_is() -> None:
    svg, found = figures.picture(read()), rows_shown(read())
    drawn = points(svg)
    assert len(drawn) == len(found)
    scale = {round(at / math.log(r.ratio)) for (at, _), r in zip(drawn, found) if r.ratio and abs(r.ratio - 1) > 0.3}
    assert len(scale) == 1  # one logarithmic axis for all
    assert [colour for _, colour in drawn] == ["less" if r.ratio and r.ratio < 1 else "more" for r in found]
    text = "".join(ElementTree.fromstring(svg).itertext())
    for r in found:
        assert r.what in text and f"{r.ratio:.2f}" in text and r.date[:10] in text


def test_a_newer_row_moves_its_point() -> None:
    rows = read()
    first = rows_shown(rows)[0]
    newer = dataclasses.replace(first, value=12345.0, ratio=2.0, commit="fedcba9", date="2100-01-01")
    svg = figures.picture([*rows, newer])
    assert "tec 12,340" in svg and "fedcba9, 2100-01-01" in svg and points(svg)[0][1] == "more"
    with pytest.raises(ValueError, match="none of the rows"):
        figures.picture([dataclasses.replace(first, what="another")])


def test_the_page_of_results_lists_the_same_rows() -> None:
    page = Path("docs/results.md").read_text("utf-8")
    drawn = docs_hooks.on_page_markdown(page)
    assert figures.MARK in page and figures.MARK not in drawn
    for r in rows_shown(read()):
        line = next(x for x in drawn.splitlines() if x.startswith(f"| {r.what}, {r.measure} | {r.target} |"))
        number = re.findall(r"(\d+) \|$", line)[0]
        assert f"| {r.ratio:.2f} |" in line and re.search(rf"^{number}\. .*{r.date[:10]}", drawn, re.M)
