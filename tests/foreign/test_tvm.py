"""TVM v0.14's own tests of te, through `tec.compat.tvm`; its files are read where they lie.

    git clone --branch v0.14.0 https://github.com/apache/tvm /tmp/tvm
    TEC_TVM_CHECKOUT=/tmp/tvm python -m pytest -q -s tests/foreign/test_tvm.py

Each file runs in a process of its own, with the software gfx942 in place of GPUs. A test that fails must stand in `tvm_reasons.REASONS`, and one that stands
there must fail. The end of the run prints the tests that pass, by file.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

from .tvm_reasons import FILES, is_hollow, reason_of

CHECKOUT = os.environ.get("TEC_TVM_CHECKOUT", "")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHECKOUT, reason="TEC_TVM_CHECKOUT names no checkout of TVM v0.14"),
]

_COUNTS: dict[str, tuple[int, int]] = {}


@pytest.fixture(scope="module", autouse=True)
def counts_by_file():
    """Prints what passed, when all files have run."""
    yield
    for name, (passed, total) in sorted(_COUNTS.items()):
        print(f"{name:60} {passed:4} of {total}")
    print(f"{'all':60} {sum(p for p, _ in _COUNTS.values()):4} of {sum(n for _, n in _COUNTS.values())}")


def run(file: Path, report: Path) -> dict[str, bool]:
    """Whether each test of a file passed."""
    env = {**os.environ, "TEC_EMULATE": os.environ.get("TEC_EMULATE", "gfx942")}
    words = [
        "-p",
        "tec.compat.tvm.testing.plugin",
        "-p",
        "no:cacheprovider",
        "-q",
        "--rootdir",
        str(file.parent),
        f"--confcutdir={file.parent}",  # the conftest above it loads the plugin once more, as tvm.testing.plugin
        f"--junitxml={report}",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, str(file)], env=env, capture_output=True, text=True, timeout=1800
    )
    if not report.exists():
        pytest.fail(f"{file.name} did not run:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    found = {}
    for case in xml.parse(report).getroot().iter("testcase"):
        owner = case.get("classname", "").rpartition(".")[2]
        name = f"{owner}::{case.get('name')}" if not owner.startswith("test_") else str(case.get("name"))
        outcome = {child.tag for child in case}
        found[name] = not outcome & {"failure", "error", "skipped"} and not is_hollow(file.name, name)
    return found


@pytest.mark.parametrize("name", FILES, ids=lambda n: re.sub(r".*/test_|\.py", "", n))
def test_file(name: str, tmp_path: Path) -> None:
    outcomes = run(Path(CHECKOUT, "tests", "python", name), tmp_path / "report.xml")
    base = name.rpartition("/")[2]
    _COUNTS[base] = (sum(outcomes.values()), len(outcomes))
    unexplained = [n for n, passed in outcomes.items() if not passed and reason_of(base, n) is None]
    mended = [n for n, passed in outcomes.items() if passed and reason_of(base, n) is not None]
    assert not unexplained, f"these fail without a reason in tvm_reasons: {unexplained}"
    assert not mended, f"these pass, and tvm_reasons says why they do not: {mended}"
