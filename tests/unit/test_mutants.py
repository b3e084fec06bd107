"""Planted errors: a package of two functions, of which tests hold one and only run the other."""

from __future__ import annotations

import ast
import threading
from pathlib import Path
from typing import Any

import pytest

from benchmarks.records import Maker
from tools import mutants, probes
from tools.mutations import mutations

HELD = """def clamp(x, low, high):
    if x < low or x > high:
        return low if x < low else high
    return x
"""
RUN = """def sums(xs):
    total = 0
    for x in xs:
        if not x:
            continue
        total += x * 2
    return total
"""
TEST = """import pytest
from toy.held import clamp
from toy.run import sums

@pytest.mark.parametrize("x", range(-3, 9))
def test_held(x):
    assert clamp(x, 0, 5) == sorted([x, 0, 5])[1]

def test_run():
    sums([0, 1, 2])

def test_fails_already():
    assert sums([1]) == 7
"""
# Its tests' names depend on what was imported before it.
OTHER = """import sys, pytest
from toy.run import sums

@pytest.mark.parametrize("x", [1, 2] if "toy.held" in sys.modules else [3])
def test_other(x):
    sums([x])
"""


def test_kinds_of_errors() -> None:
    text = "def f(a: int, b=(\n  2)):\n    '''1 < 2'''\n    if not a < b and g(a, b):\n        a += 1\n    raise KeyError(a + 1)\n"
    found = {(m.line, m.what) for m in mutations(text)}
    assert found >= {(2, "one more"), (2, "one less"), (4, "a `not` left out"), (4, "a comparison turned"), (4, "arguments swapped"), (5, "a statement left out")}  # fmt: skip
    assert not {what for line, what in found if line in (3, 6)}, "words and errors are left as they are"
    assert not mutations("x = EQ(a, b), E.Add(a, b)\n"), "what has the same value either way is no error"
    assert not mutations("ROWS = 3\nA: int\n_BYTES: int = -(4 << 30)\n"), "nor is a number that was chosen"
    assert mutations("_TABLE = {1: 3}\n") and mutations("def f():\n    n = 3\n")
    assert not mutations("class A:\n    def __repr__(self):\n        return str(self.n + 1)\n")
    assert not mutations("def f(a, b):\n    cache.cache_clear(1)\n    return zip(a, strict=True)\n")
    for m in mutations(text):
        changed = m.apply(text)
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text)) and changed.count("\n") == text.count("\n"), m


def test_errors_of_the_projects_own_files_keep_its_lines() -> None:
    for path in sorted((mutants.ROOT / "tec" / "ir" / "arith").glob("*.py")):
        text = path.read_text("utf-8")
        for m in mutations(text)[::9]:
            changed = m.apply(text)
            ast.parse(changed)
            assert changed.count("\n") == text.count("\n"), (path, m)


KEPT = """import functools

@functools.cache
def table():
    return [1, 2, 3]
"""


def laboratory(
    root: Path, text: str, line: int, seconds: dict[str, float], **seen: dict[str, list[str]]
) -> mutants.Laboratory:
    """One whose only mutant is "one more" in a line of tec/toy/kept.py, with what a recording run saw."""
    (root / "tec/toy").mkdir(parents=True)
    (root / "tec/toy/kept.py").write_text(text)
    (m,) = {m.line: m for m in mutations(text) if m.line == line and m.what == "one more"}.values()
    made = mutants.Laboratory.__new__(mutants.Laboratory)
    made.copy, made.mutants, made.seconds = root, [mutants.Mutant("tec/toy/kept.py", m)], seconds
    made.seen = {"reached": {}, "differs": {}, **seen}
    return made


def test_what_runs_once_is_held_by_a_later_test(tmp_path: Path) -> None:
    """A probe sees the first test in a function whose results are kept; the second holds them."""
    first, second = "tests/test_kept.py::test_a_first", "tests/test_kept.py::test_b_values"
    for test in (first, second):
        (tmp_path / test.partition("::")[0]).parent.mkdir(exist_ok=True)
        (tmp_path / test.partition("::")[0]).write_text("")
    reached = {"0": [first], "tec/toy/kept.py:4": [first, second]}
    made = laboratory(tmp_path, KEPT, 5, {first: 0.1, second: 0.2}, reached=reached, differs={"0": [first]})
    assert made.reach(0) == [first, second]


DEFAULT = """class Sizes:
    def table(self, n=3):
        return [n]
"""


def test_a_default_value_is_held_by_who_comes_into_the_function(tmp_path: Path) -> None:
    """A probe sees the test that imports the file, which may take all of the time."""
    first, second = "tests/test_kept.py::test_a_first", "tests/test_kept.py::test_b_values"
    for test in (first, second):
        (tmp_path / test.partition("::")[0]).parent.mkdir(exist_ok=True)
        (tmp_path / test.partition("::")[0]).write_text("from tec.toy import kept")
    reached = {"0": [first], "tec/toy/kept.py:2": [second]}
    made = laboratory(tmp_path, DEFAULT, 2, {first: 90.0, second: 0.2}, reached=reached, differs={"0": [first]})
    assert made.reach(0) == [second]
    nested = "def f():\n    def g(n=3):\n        return n\n    return g(4)\n"
    (of_nested,) = {m.what: m for m in mutations(nested) if m.line == 2 and m.what == "one more"}.values()
    assert not probes.is_default(nested, of_nested), "which runs where the outer function does"


def test_a_value_that_is_the_same_in_each_test_is_not_looked_for(tmp_path: Path) -> None:
    made = laboratory(
        tmp_path, KEPT, 5, {"tests/test_kept.py::test_a": 0.1}, reached={"0": ["tests/test_kept.py::test_a"]}
    )
    assert made.reach(0) == []


def test_readers_of_a_table_and_a_budget(tmp_path: Path) -> None:
    """A table's row is made at import: who imports its package comes first, a test of each file in turn, as far as the seconds go."""
    seconds = {
        "tests/test_reads.py::test_1": 1.0,
        "tests/test_reads.py::test_2": 2.0,
        "tests/test_other.py::test_3": 0.5,
        "tests/test_more.py::test_4": 70.0,
    }
    (tmp_path / "tests").mkdir()
    for file, text in {
        "reads": "from tec.toy import kept",
        "other": "import tec.toyota",
        "more": "from tec.toy.kept import TABLE",
    }.items():
        (tmp_path / f"tests/test_{file}.py").write_text(text)
    first = {"0": ["tests/test_other.py::test_3"]}  # which imported it
    made = laboratory(tmp_path, "TABLE = {\n    'a': 1,\n}\n", 2, seconds, reached=first, differs=first)
    assert made.reach(0) == ["tests/test_reads.py::test_1"]
    made.seconds["tests/test_more.py::test_4"] = 3.0
    assert made.reach(0) == ["tests/test_reads.py::test_1", "tests/test_more.py::test_4", "tests/test_reads.py::test_2"]


PROBED = '''"""A module."""
from __future__ import annotations
LIMIT = [3, 4]

def steps(n, kind=2):
    """Its own words."""
    if n < LIMIT[0] and not (
        kind == 1
    ):
        n += sum(x for x in (n, 1))
        return n
    match kind:
        case 2:
            return -n
    return next(iter([n + 1]))
'''


def test_probes_tell_which_tests_an_error_makes_a_difference_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = mutations(PROBED)
    keys = {str(n): m for n, m in enumerate(found)}
    text = probes.probed(PROBED, keys, "tec/toy/steps.py")
    assert text.count("\n") == PROBED.count("\n") and text.startswith(
        '"""A module."""\nfrom __future__ import annotations; from _tec_probes import'
    )
    monkeypatch.setenv("TEC_REACHED", str(tmp_path / "reached"))
    runtime: dict[str, Any] = {}
    exec(probes.RUNTIME, runtime)
    made = {probes.NAME: runtime[probes.NAME]}
    exec(text.replace(f"; from _tec_probes import {probes.NAME}", ""), made)
    for test, n in (("low", 1), ("high", 9)):
        monkeypatch.setenv("PYTEST_CURRENT_TEST", f"tests/test_steps.py::test_{test} (call)")
        assert made["steps"](n) == (3 if test == "low" else -9)
    low, high = ("tests/test_steps.py::test_low", "tests/test_steps.py::test_high")
    seen = probes.read(tmp_path / "reached")
    assert seen["reached"]["tec/toy/steps.py:5"] == [low, high], "whoever comes into the function"
    (turned,) = [k for k, m in keys.items() if m.what == "a comparison turned" and m.line == 7]
    assert seen["reached"][turned] == [low, high] and turned not in seen["differs"], (
        "1 and 9 are on one side of 3 either way"
    )
    (either,) = [k for k, m in keys.items() if m.what.startswith("`and`")]
    assert seen["differs"][either] == [high]
    (left_out,) = [k for k, m in keys.items() if m.what == "a statement left out"]
    assert seen["reached"][left_out] == [low]


def test_survivors_are_rows_of_the_results() -> None:
    ms = [mutants.Mutant("tec/toy/kept.py", m) for m in mutations(KEPT) if m.line == 5][:2]
    outcomes = [mutants.Outcome(m, m is ms[0], 3, "all pass", ["return [1]", "return [2]"]) for m in ms]
    share, survivor = mutants.rows(outcomes, 7, Maker("mutants", "python -m tools.mutants"))
    assert share.value == 50 and share.better == "more" and share.note == "1 of 2 drawn by seed 7"
    assert survivor.what == str(ms[1]) and survivor.note == "all pass: return [1] becomes return [2]"


def test_several_at_once_each_in_its_copy(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lab = mutants.Laboratory.__new__(mutants.Laboratory)
    lab.mutants = [mutants.Mutant("tec/toy/kept.py", m) for m in mutations(KEPT) for _ in range(4)]
    lab.copies = [Path("a"), Path("b")]
    both, here = threading.Barrier(2), []

    def plant(number: int, copy: Path, end: float) -> mutants.Outcome | None:
        assert copy not in here, "two errors in one copy"
        here.append(copy)
        both.wait(30)  # the other copy has one at the same time
        here.remove(copy)
        both.wait(30)
        return None if number < 2 else mutants.Outcome(lab.mutants[number], number > 3, 1, "", ["", ""])

    monkeypatch.setattr(lab, "plant", plant)
    n = len(lab.mutants) // 2 * 2
    lab.mutants = lab.mutants[:n]
    outcomes = list(lab.outcomes())
    assert len(outcomes) == n - 2, "what had not ended counts neither way"
    assert capsys.readouterr().out.count("SURVIVED") == sum(not o.noticed for o in outcomes) == 2
    assert not list(lab.outcomes(end=0.0)), "none begins behind the end"


@pytest.mark.slow  # seven runs of pytest
def test_a_toy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "root"
    for name, text in {
        "tec/toy/held.py": HELD,
        "tec/toy/run.py": RUN,
        "tests/test_toy.py": TEST,
        "tests/test_zoo.py": OTHER,
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "tests" / "conftest.py").write_text(
        "import sys\nfrom pathlib import Path\nsys.path.insert(0, str(Path(__file__).parents[1] / 'tec'))\n"
    )
    arguments = [
        "--root",
        str(root),
        "--areas",
        "tec/toy",
        "--count",
        "7",
        "--seed",
        "5",
        "--jobs",
        "2",
        "--options=--rootdir=.",
    ]
    assert mutants.main(arguments) == 1, "what is only run is not noticed"
    said = capsys.readouterr().out
    lines = [line for line in said.splitlines() if line.startswith(("noticed", "SURVIVED"))]
    assert len(lines) == 7 and {"held.py", "run.py"} <= {
        part for line in lines for part in ("held.py", "run.py") if part in line
    }
    assert all(line.startswith("noticed") for line in lines if "held.py" in line), said
    assert any(line.startswith("SURVIVED") for line in lines if "run.py" in line), said
    assert (root / "build/mutants/checkout-0/tec/toy/held.py").read_text() == HELD, "the copy is as it was"
    assert "test_fails_already" not in said
