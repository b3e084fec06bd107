"""The gate draws what it always drew; a night's date draws others, which the same date draws again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import conftest, seeds

DRAWS = re.compile(r"\bseeds\.(first|some|stream|number)\(|import.* given\b|^@thinned", re.M)


@pytest.mark.parametrize("text", [None, "", "0"])
def test_the_gate(text: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEC_SEED", raising=False)
    if text is not None:
        monkeypatch.setenv("TEC_SEED", text)
    assert (seeds.first(), seeds.first(1000), seeds.stream("index7"), seeds.said()) == (0, 1000, "index7", "")
    assert seeds.some(3, 20) == range(20, 23)


@pytest.mark.parametrize(("number", "given", "want"), [("", None, None), ("7", None, "7"), ("7", "5", "5")])
def test_hypothesis_draws_by_the_nights_number(
    number: str, given: str | None, want: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEC_SEED", number)
    # A worker's: the run that started it has a folder for temporary files.
    config = SimpleNamespace(option=SimpleNamespace(hypothesis_seed=given), workerinput={})
    conftest.pytest_configure(config)  # type: ignore[arg-type]
    assert config.option.hypothesis_seed == want


def test_a_night_runs_each_test_that_draws() -> None:
    """Whatever takes this file's seeds, or hypothesis, is among the words of `make night`."""
    root = Path(__file__).resolve().parents[2]
    said = subprocess.run(["make", "-n", "night"], cwd=root, capture_output=True, text=True).stdout
    named = {
        p.relative_to(root).as_posix()
        for p in (root / "tests").rglob("test_*.py")
        if DRAWS.search(p.read_text("utf-8"))
    }
    # Fuzz is named whole, the others have machines of their own.
    outside = ("tests/gpu/", "tests/torch/", "tests/foreign/", "tests/fuzz/")
    missing = [n for n in named if not n.startswith(outside) and f" {n} " not in f"{said.replace(chr(10), ' ')} "]
    assert "tests/fuzz " in said and missing == ["tests/unit/test_seeds.py"]


def test_nights_share_no_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    firsts = []
    for day in range(20270101, 20270132):
        monkeypatch.setenv("TEC_SEED", str(day))
        firsts.append(seeds.first())
        assert firsts[-1] == seeds.first() and seeds.stream("a") != "a" and seeds.said() == f"TEC_SEED={day}"
        assert 0 < firsts[-1] < seeds.LAST - seeds.STRIDE
    firsts.sort()
    assert all(b - a >= seeds.STRIDE for a, b in pairwise(firsts))


@pytest.mark.parametrize("text", ["yesterday", "-3", "1.5"])
def test_a_seed_that_is_none(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEC_SEED", text)
    with pytest.raises(ValueError, match="a whole number"):
        seeds.first()


def test_a_failure_prints_it(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    test = tmp_path / "test_drawn.py"
    test.write_text("from tests import seeds\n\ndef test_drawn():\n    assert seeds.first() == 0\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.conftest", "--rootdir", str(tmp_path), str(test)]  # fmt: skip
    path = os.pathsep.join((str(root), str(root / "frontends")))
    env = {**os.environ, "TEC_SEED": "20270131", "PYTHONPATH": path}
    ran = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert ran.returncode == 1 and "TEC_SEED=20270131 python -m pytest 'test_drawn.py::test_drawn'" in ran.stdout
