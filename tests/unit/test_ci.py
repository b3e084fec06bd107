"""What CI must not let pass unseen."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


SKIP = 'pytest.importorskip("no_such_package", reason="not installed")\n'


@pytest.mark.parametrize("ci", ["true", ""])
def test_a_missing_package_skips_at_home_alone(tmp_path: Path, ci: str) -> None:
    """One that a whole module needs, and one that a test needs."""
    (tmp_path / "test_module.py").write_text(f"import pytest\n{SKIP}def test_it():\n    assert True\n")
    (tmp_path / "test_function.py").write_text(f"import pytest\ndef test_it():\n    {SKIP}")
    # Of the plugins that are installed none is asked for: they would be half the time.
    env = {**os.environ, "CI": ci, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "--continue-on-collection-errors", "-p", "tests.conftest", "-p", "no:cacheprovider", "-c", os.devnull, str(tmp_path)],
        capture_output=True, text=True, timeout=60, check=False, cwd=ROOT, env=env,
    )  # fmt: skip
    said = done.stdout + done.stderr
    if ci:
        assert done.returncode == 1 and "1 failed, 1 error" in done.stdout, said
        assert re.search("(?m)^ERROR .*test_module.py", said) and re.search("(?m)^FAILED .*test_function.py", said), (
            said
        )
    else:
        assert done.returncode == 0 and "2 skipped" in done.stdout, said
