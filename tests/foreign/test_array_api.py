"""array-api-tests, the suite of the Python array API standard, on `tec.array`; its files are read where they lie.

    git clone --recurse-submodules https://github.com/data-apis/array-api-tests /tmp/array-api-tests
    TEC_ARRAY_API_CHECKOUT=/tmp/array-api-tests python -m pytest -q -s tests/foreign/test_array_api.py

Each file runs in a process of its own, on the CPU, or on a chip in software where TEC_ARRAY_API_CHIP names one. TEC_ARRAY_API_EXAMPLES: what hypothesis draws for each
test (20). A test that fails must stand in `array_api_reasons`, and one that stands there must fail. The end of the run prints what passes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

from .array_api_reasons import ON_A_CHIP, REASONS

CHECKOUT = os.environ.get("TEC_ARRAY_API_CHECKOUT", "")
CHIP = os.environ.get("TEC_ARRAY_API_CHIP")
EXAMPLES = os.environ.get("TEC_ARRAY_API_EXAMPLES", "20")
EXPLAINED = {**REASONS, **(ON_A_CHIP if CHIP else {})}
FILES = sorted(p.name for p in Path(CHECKOUT or "/nowhere", "array_api_tests").glob("test_*.py"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHECKOUT, reason="TEC_ARRAY_API_CHECKOUT names no checkout of array-api-tests"),
]

_COUNTS: dict[str, tuple[int, int]] = {}


@pytest.fixture(scope="module", autouse=True)
def counts_by_file():
    """Prints what passed, when all files have run."""
    yield
    for name, (passed, total) in sorted(_COUNTS.items()):
        print(f"{name:50} {passed:4} of {total}")
    print(f"{'all':50} {sum(p for p, _ in _COUNTS.values()):4} of {sum(n for _, n in _COUNTS.values())}")


def run(file: str, report: Path) -> dict[str, bool]:
    """Whether each test of a file passed; those that the suite skips do not apply."""
    here = Path(__file__).resolve().parents[2]
    env = {
        **os.environ,
        "ARRAY_API_TESTS_MODULE": "tests.foreign.array_api_on_device" if CHIP else "tec.array",
        "PYTHONPATH": os.pathsep.join([str(here), os.environ.get("PYTHONPATH", "")]),
    }
    words = ["-q", "-p", "no:cacheprovider", "--max-examples", EXAMPLES, "--disable-deadline", f"--junitxml={report}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, f"array_api_tests/{file}"],
        cwd=CHECKOUT,
        env=env,
        capture_output=True,
        text=True,
        timeout=7200,
    )
    if not report.exists():
        pytest.fail(f"{file} did not run:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    found = {}
    for case in xml.parse(report).getroot().iter("testcase"):
        outcome = {child.tag for child in case}
        if "skipped" not in outcome:
            found[str(case.get("name"))] = not outcome & {"failure", "error"}
    return found


@pytest.mark.parametrize("file", FILES)
def test_file(file: str, tmp_path: Path) -> None:
    outcomes = run(file, tmp_path / "report.xml")
    _COUNTS[file] = (sum(outcomes.values()), len(outcomes))
    unexplained = [n for n, passed in outcomes.items() if not passed and n not in EXPLAINED]
    mended = [n for n, passed in outcomes.items() if passed and n in EXPLAINED]
    assert not unexplained, f"these fail without a reason in array_api_reasons: {unexplained}"
    assert not mended, f"these pass, and array_api_reasons says why they do not: {mended}"
