"""Processor seconds of tests are a test's own and its children's, and sum up to the run's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tools.test_seconds import slowest

ROOT = Path(__file__).resolve().parents[2]
BUSY = "import time\nwhile time.process_time() < {}: pass\n"


def test_a_run(tmp_path: Path) -> None:
    test = tmp_path / "test_three.py"
    child = BUSY.format(0.4)
    test.write_text(
        f"import subprocess, sys, time\n\ndef test_sleeps(): time.sleep(0.3)\n\ndef test_child(): subprocess.run([sys.executable, '-c', {child!r}])\n\n"
        f"def test_left():\n    global left\n    left = subprocess.Popen([sys.executable, '-c', {child!r} + 'input()'], stdin=subprocess.PIPE)\n    time.sleep(1)\n"
    )  # fmt: skip
    out = tmp_path / "seconds.jsonl"
    env = {
        **os.environ,
        "TEC_SECONDS": str(out),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "frontends"))),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tools.test_seconds", "--rootdir", str(tmp_path), str(test)]  # fmt: skip
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    total, tests = slowest(str(out))
    by = {name.partition("::")[2]: s for name, s in tests}
    assert by["test_child"] > 0.35 and by["test_sleeps"] < 0.25
    assert by["test_left"] > 0.1, "a child that still runs counts"
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert abs(total - sum(r["seconds"] for r in rows)) < 1e-6 and rows[0]["test"] == "(collection)"
    assert slowest(str(out), 1)[1] == tests[:1]
