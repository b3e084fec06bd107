"""What CI must not let pass unseen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("ci", "says"), [("true", "1 failed"), ("", "1 skipped")])
@pytest.mark.parametrize("scope", ["module", "test"])
def test_a_missing_package_skips_at_home_alone(tmp_path: Path, ci: str, says: str, scope: str) -> None:
    skip = 'pytest.importorskip("no_such_package", reason="not installed")\n'
    test = "def test_it():\n    assert True\n" if scope == "module" else "def test_it():\n    " + skip
    (tmp_path / "test_some.py").write_text("import pytest\n" + (skip if scope == "module" else "") + test)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider", "-c", os.devnull, str(tmp_path)],
        capture_output=True, text=True, timeout=60, check=False, cwd=ROOT, env={**os.environ, "CI": ci, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    wanted = "1 error" if ci and scope == "module" else says
    assert wanted in done.stdout and (done.returncode != 0) == bool(ci or scope == "module"), done.stdout + done.stderr
