"""Planted errors: a package of two functions, of which tests hold one and only run the other."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from benchmarks.records import Maker
from tools import mutants
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


def test_what_runs_once_is_held_by_a_later_test() -> None:
    """Coverage sees the first test in a function whose results are kept; the second holds them."""
    laboratory = mutants.Laboratory.__new__(mutants.Laboratory)
    first, second = "tests/test_kept.py::test_a_first", "tests/test_kept.py::test_b_values"
    laboratory.map = {"seconds": {first: 0.1, second: 0.2}, "lines": {"tec/toy/kept.py": {"5": [first], "3": [second]}}}
    (m,) = {m.line: m for m in mutations(KEPT) if m.line == 5 and m.what == "one more"}.values()
    assert laboratory.reach(mutants.Mutant("tec/toy/kept.py", m)) == [first, second]


def test_survivors_are_rows_of_the_results() -> None:
    ms = [mutants.Mutant("tec/toy/kept.py", m) for m in mutations(KEPT) if m.line == 5][:2]
    outcomes = [mutants.Outcome(m, m is ms[0], 3, "all pass", ["return [1]", "return [2]"]) for m in ms]
    share, survivor = mutants.rows(outcomes, 7, Maker("mutants", "python -m tools.mutants"))
    assert share.value == 50 and share.better == "more" and share.note == "1 of 2 drawn by seed 7"
    assert survivor.what == str(ms[1]) and survivor.note == "all pass: return [1] becomes return [2]"


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
    arguments = ["--root", str(root), "--areas", "tec/toy", "--count", "7", "--seed", "5", "--options=--rootdir=."]
    assert mutants.main(arguments) == 1, "what is only run is not noticed"
    said = capsys.readouterr().out
    lines = [line for line in said.splitlines() if line.startswith(("noticed", "SURVIVED"))]
    assert len(lines) == 7 and {"held.py", "run.py"} <= {
        part for line in lines for part in ("held.py", "run.py") if part in line
    }
    assert all(line.startswith("noticed") for line in lines if "held.py" in line), said
    assert any(line.startswith("SURVIVED") for line in lines if "run.py" in line), said
    assert (root / "build/mutants/checkout/tec/toy/held.py").read_text() == HELD, "the copy is as it was"
    assert "test_fails_already" not in said
