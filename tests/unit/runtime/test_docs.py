"""The program in docs/runtime.md runs as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "runtime.md"


def test_the_page_is_a_program(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert len(blocks) >= 6
    check = "\nassert (b.numpy() == 2 * a.numpy()).all()\n"
    env = {**os.environ, "TEC_EMULATE": "gfx942"}
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks) + check],
        capture_output=True,
        text=True,
        env=env,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "trace.json").exists() and (tmp_path / "double.tecmod").exists()
