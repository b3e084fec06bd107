"""The stored results are rows of the schema, and a worse, a lost and a broken row each end `make baseline` with 1."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import onnx
import pytest

from benchmarks import baseline, cliff_cases, records
from benchmarks.baseline_networks import instructions
from benchmarks.records import Record, append, compare, newest, read
from tools import docs_hooks, results_page, results_plots
from tools.house_figures import any_share, kind_questions

ROW = Record(
    "network",
    "net",
    "time",
    100.0,
    "us",
    records.MODELLED,
    "abc1234",
    "2026-01-02 03:04",
    "a command",
    target="gfx942",
    model="abc1234",
)


def test_the_stored_rows_are_rows() -> None:
    rows = read()
    assert len({r.kind for r in rows}) > 1
    assert not [r for r in newest(rows).values() if r.error and r.error.startswith(("KeyError", "TypeError"))]


@pytest.mark.parametrize(
    "fields",
    [{"value": None}, {"value": float("nan")}, {"better": "most"}, {"date": "yesterday"}, {"model": ""}, {"band": 0.9}, {"ratio": 1.0},
     {"host": "a machine"}, {"commit": ""}, {"value": "digest"}],
)  # fmt: skip
def test_what_is_no_row_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="network, net, time"):
        replace(ROW, **fields)


def test_rows_are_kept_and_the_last_one_counts(tmp_path: Path) -> None:
    assert append([ROW, ROW, replace(ROW, value=90.0)], tmp_path) == 2
    rows = read(tmp_path)
    assert rows == [ROW, replace(ROW, value=90.0)]
    assert newest(rows)[ROW.key].value == 90.0
    (tmp_path / "network.jsonl").open("a").write('{"kind": "network", "colour": 3}\n')
    with pytest.raises(ValueError, match=r"network\.jsonl:3"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("after", "worse"),
    [({"value": 103.0}, True), ({"value": 101.0}, False), ({"value": 50.0}, False), ({"value": None, "error": "no"}, True)],
)  # fmt: skip
def test_the_band_judges(after: dict[str, Any], worse: bool) -> None:
    found = compare(ROW, replace(ROW, **after))
    assert found is not None and found.is_worse == worse
    assert baseline.report([replace(ROW, **after)], [ROW]) == int(worse)


def test_more_can_be_better_and_ratios_stand_for_clocks() -> None:
    rate = replace(ROW, better="more")
    assert compare(rate, replace(rate, value=90.0)).is_worse  # type: ignore[union-attr]
    clocked = replace(ROW, host="a machine", load=1.0, model="", peer="p", ratio=1.0)
    assert compare(clocked, replace(clocked, value=500.0)) is None
    assert compare(clocked, replace(clocked, ratio=1.5)).is_worse  # type: ignore[union-attr]


def test_a_row_that_is_gone_is_told() -> None:
    assert baseline.report([ROW], [ROW, replace(ROW, measure="launches")]) == 1
    assert baseline.report([ROW], [ROW, replace(ROW, what="another net")]) == 0


def test_a_clock_of_another_host_is_counted_apart(capsys: pytest.CaptureFixture[str]) -> None:
    clocked = replace(ROW, host="AMD EPYC, avx2, 2 cores", load=1.0)
    slower = replace(clocked, host="AMD EPYC, avx2 avx512f, 2 cores", value=9 * clocked.value)
    assert baseline.report([slower], [clocked]) == 0
    assert "0 new, 1 timed on other hosts alone" in capsys.readouterr().out
    assert baseline.report([replace(slower, host=clocked.host)], [clocked]) == 1


def test_figures_of_sources(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text('def f(x: Any, y: int) -> list[Any]:\n    z: int = 1\n    return x.kind == "rocm"\n')
    assert any_share(tmp_path) == (2, 4)
    assert kind_questions(tmp_path) == 1


def test_instructions_are_told_from_the_rest() -> None:
    assert instructions("label:\n\t.word 3\n\tadd r1, r2 ; why\n\n// text\n\tmov.b64 %rd1, %rd2;\n}") == [
        "add r1, r2",
        "mov.b64 \t%rd1, %rd2;".replace("\t", ""),
    ]


def test_the_page_has_the_newest_row_of_each() -> None:
    text = results_page.tables([ROW, replace(ROW, value=90.0), replace(ROW, what="a|b")])
    assert "90 us" in text and "100 us" in text and text.count("| net |") == 1 and "a\\|b" in text
    page = (records.ROOT / "docs" / "results.md").read_text("utf-8")
    drawn = docs_hooks.on_page_markdown(page)
    assert results_page.MARK in page and results_page.MARK not in drawn and "resnet50" in drawn
    assert all(m in page and m not in drawn for m in results_plots.MARKS) and drawn.count("<figure") == 2


def _ratios(what: str, ratios: list[float], **fields: Any) -> list[Record]:
    rows = [
        replace(ROW, what=f"{what} {k}" if what == "case" else what, peer="other", ratio=r)
        for k, r in enumerate(ratios)
    ]
    return [replace(r, **fields) for r in rows]


def test_a_distribution_shows_the_share_of_cases_at_each_ratio() -> None:
    rows = _ratios("case", [0.5, 1.0, 2.0, 8.0], kind="cliff")
    drawn = results_plots.distributions([*rows, replace(ROW, kind="cliff", what="no peer")])
    assert "gfx942 / other: 4 operators, median 2.00, 90 % 8.00, worst 8.0" in drawn
    points = [tuple(map(float, p.split(","))) for p in drawn.partition('points="')[2].partition('"')[0].split()]
    xs, ys = {x for x, _ in points}, {y for _, y in points}
    assert len(xs) == 4 and len(ys) == 5 and points == sorted(points, key=lambda p: (p[0], -p[1]))
    left, second, third, right = sorted(xs)
    assert abs((right - third) - 2 * (second - left)) < 0.3  # logarithmic: 2 to 8 is twice as far as 0.5 to 1
    assert "2026-01-02" in drawn and "\n\n" not in drawn and results_plots.distributions([ROW]) == ""


def test_over_time_joins_commits_on_one_kind_of_machine() -> None:
    first, last = _ratios("net", [1.5, 0.75])
    last = replace(last, commit="def5678", date="2026-02-02")
    drawn = results_plots.over_time([last, first])
    assert "1.50 → 0.75" in drawn and drawn.count("<circle") == 2 and "from 2026-01-02 to 2026-02-02" in drawn
    assert results_plots.over_time([first, replace(last, commit=first.commit)]) == ""  # one commit, twice
    assert results_plots.over_time([first, replace(last, host="another CPU", model="", load=1.0)]) == ""


@pytest.mark.parametrize("kind", cliff_cases.KINDS)
def test_drawn_operators_are_models_within_their_bounds(kind: str) -> None:
    bounds = cliff_cases.Bounds(10**7, 2**18, ("float32",))
    first, again = (cliff_cases.draw(kind, Random(5), bounds) for _ in range(2))
    assert first.name == again.name and first.macs <= bounds.macs
    model = first.model()
    assert model.SerializeToString() == again.model().SerializeToString()
    onnx.checker.check_model(model, full_check=True)
    assert {i.name for i in model.graph.input} == first.inputs.keys()
