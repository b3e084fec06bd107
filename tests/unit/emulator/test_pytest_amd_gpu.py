"""The package pytest-amd-gpu (packaging/pytest-amd-gpu): its fixture in a run of pytest of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from .test_guide import ROOT, saxpy

_TESTS = """
import numpy as np
import pytest


def launch(amd_gpu, n):
    x, y = np.arange(1000, dtype="float32"), np.ones(1000, "float32")
    amd_gpu.load(f"saxpy-{amd_gpu.arch}.hsaco")["saxpy"][(4,), 256](2.0, x, y, n)
    np.testing.assert_array_equal(y, 2 * x + 1)


def test_right(amd_gpu):
    launch(amd_gpu, 1000)


@pytest.mark.amd_gpu(chips=["gfx1100"], check="bounds")
def test_wrong(amd_gpu):
    launch(amd_gpu, 1024)
"""


def test_the_fixture(tmp_path: Path) -> None:
    for chip in ("gfx942", "gfx1100"):
        (tmp_path / f"saxpy-{chip}.hsaco").write_bytes(saxpy(chip))
    (tmp_path / "test_kernels.py").write_text(_TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\namd_chips = gfx942 gfx1100\n")
    paths = [ROOT / "packaging" / "pytest-amd-gpu", ROOT, ROOT / "frontends"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    words = ["-p", "no:cacheprovider", "-p", "pytest_amd_gpu", "-q", "--amd-html", "pages"]
    done = subprocess.run([sys.executable, "-m", "pytest", *words], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False)  # fmt: skip
    assert "1 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert "test_wrong[gfx1100]" in done.stdout and "out of bounds" in done.stdout
    assert {p.name for p in (tmp_path / "pages").iterdir()} >= {"test_right_gfx942_-0.html", "test_right_gfx1100_-0.html"}  # fmt: skip
