"""Rows that wait for the night: which they are, and that they run when they are asked for."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests import conftest
from tests.thinned import NIGHT_ROWS, night_rows
from tools.night_rows import REACHED, SHORT_S, Row, noted, text_of, waiting

ROOT = Path(__file__).resolve().parents[2]


def row(
    name: str, lines: str, seconds: float = 1.0, started: int = 0, test: str = "tests/unit/test_x.py::test_it"
) -> Row:
    return Row(f"{test}[{name}]", seconds, started, np.array(sorted(map(ord, lines)), np.int32))


def left_out(*rows: Row) -> set[str]:
    """Beside as many other tests as must reach the lines `x` and `y`; nobody else reaches `z`."""
    others = [row("o", "xy", test=f"tests/unit/test_y.py::test_{k}") for k in range(REACHED)]
    return {r.name.partition("[")[2].removesuffix("]") for r in waiting([*rows, *others])}


def test_the_longest_half_waits_where_others_reach_its_lines() -> None:
    assert left_out(row("a", "xy", 3.0), row("b", "xy", 1.0), row("c", "x", 2.0)) == {"a"}
    assert left_out(row("a", "xyz", 3.0), row("b", "xy", 1.0), row("c", "x", 2.0)) == {"c"}
    assert left_out(row("a", "z"), row("b", "z")) == set()
    assert left_out(row("a", "x", SHORT_S / 2), row("b", "x", SHORT_S / 2)) == set()
    assert left_out(row("a", "x")) == set()


def test_each_target_and_type_stays() -> None:
    assert left_out(row("gfx942-bfloat16", "x"), row("gfx90a-bfloat16", "x")) == set()
    assert left_out(row("gfx942-float16", "x", 2.0), row("gfx942-float16-3", "x"), row("2", "x")) == {"gfx942-float16"}


def test_what_says_little_by_its_lines_stays() -> None:
    assert left_out(row("a", "x"), row("b", "x", started=1)) == set()  # lines that a process reaches are not seen
    assert left_out(*(row(n, "x", test="tests/unit/emulator/test_rows_memory.py::test_it") for n in "ab")) == set()
    other = row("b", "x", test="tests/unit/test_x.py::test_another")
    assert left_out(row("a", "x"), other) == set()  # another test asserts something else


def test_what_is_noted_is_read(tmp_path: Path) -> None:
    """Lines are told once, and of each test what differs from the one before it; processes count on their own."""
    noting = '["tec/a.py", 3]\n["tec/a.py", 5]\n["t[a]", 0.5, 0, [0, 1]]\n["t[b]", 0.25, 1, [0]]\n'
    (tmp_path / "1.jsonl").write_text(noting)
    (tmp_path / "2.jsonl").write_text('["tec/a.py", 5]\n["t[c]", 0.5, 0, [0]]\n')
    first, second, third = noted(tmp_path)
    assert (first.name, first.test, first.seconds, first.started) == ("t[a]", "t", 0.5, 0) and second.started == 1
    assert [list(r.lines) for r in (first, second, third)] == [[0, 1], [1], [1]]


def test_the_file_names_tests_that_are_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    functions = defaultdict[str, set[str]](set)
    for name in night_rows():
        file, *_, function = name.partition("[")[0].split("::")
        functions[file].add(function)
    for file, names in functions.items():
        text = (ROOT / file).read_text("utf-8")
        assert not (gone := {n for n in names if f"def {n}(" not in text}), f"stale in {NIGHT_ROWS.name}: {file} {gone}"
    rows = [row("a ]b[", "x"), row("é", "x")]
    monkeypatch.setattr("tests.thinned.NIGHT_ROWS", tmp_path / "rows.txt")
    (tmp_path / "rows.txt").write_text(text_of(rows), "utf-8")
    night_rows.cache_clear()
    assert night_rows() == {r.name for r in rows}
    night_rows.cache_clear()


@pytest.mark.parametrize(
    ("seed", "args", "stay"), [("", ["tests"], 1), ("20270131", ["tests"], 2), ("", ["tests/test_x.py::test_it"], 2)]
)
def test_they_run_at_night_and_by_their_names(
    monkeypatch: pytest.MonkeyPatch, seed: str, args: list[str], stay: int
) -> None:
    monkeypatch.setenv("TEC_SEED", seed)
    monkeypatch.delenv("TEC_LINES", raising=False)
    monkeypatch.setattr(conftest, "night_rows", lambda: {"t[b]"})
    told: list[Any] = []
    hook = SimpleNamespace(pytest_deselected=lambda items: told.extend(items))
    items = [SimpleNamespace(nodeid="t[a]"), SimpleNamespace(nodeid="t[b]")]
    conftest.pytest_collection_modifyitems(SimpleNamespace(args=args, hook=hook), items)  # type: ignore[arg-type]
    assert len(items) == stay and [i.nodeid for i in told] == ["t[b]"] * (2 - stay)
