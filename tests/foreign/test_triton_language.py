"""Triton's own tests of its language, through `tec.tile`; the files are read where they lie.

    git clone https://github.com/triton-lang/triton /tmp/triton
    TEC_TRITON_CHECKOUT=/tmp/triton python -m pytest -q -s tests/foreign/test_triton_language.py

Of the tests that apply (`triton_reasons` says which do not, and why) so many as TEC_TRITON_DRAW says are drawn by TEC_SEED (0: all) and run on the CPU and on the
software GPU that TEC_TRITON_CHIP names; on an NVIDIA GPU where TEC_TRITON_CHIP is "cuda". The run prints how many passed, and those that did not. Needs torch.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .triton_reasons import FILES

CHECKOUT = os.environ.get("TEC_TRITON_CHECKOUT", "")
CHIP = os.environ.get("TEC_TRITON_CHIP", "gfx942")
DRAWN = os.environ.get("TEC_TRITON_DRAW", "500")
LEAST = 0.95  # of the tests that are not skipped

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHECKOUT, reason="TEC_TRITON_CHECKOUT names no checkout of Triton"),
]


@pytest.mark.parametrize("device", ["cpu", CHIP])
def test_language(device: str) -> None:
    folder = Path(CHECKOUT, "python", "test", "unit", "language")
    files = [str(folder / f) for f in FILES if (folder / f).exists()]
    assert files, f"{folder} has none of {', '.join(FILES)}"
    words = ["-p", "tests.foreign.triton_plugin", "-p", "no:cacheprovider", "-c", os.devnull, "--noconftest", "-q"]
    words += ["--tb=line", "-W", "ignore", "-rfE", "--continue-on-collection-errors"]
    env = {**os.environ, "TEC_TRITON_DEVICE": device, "TEC_TRITON_DRAW": DRAWN}
    done = subprocess.run([sys.executable, "-m", "pytest", *words, *files], env=env, capture_output=True, text=True)
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr
    print(f"{device}: {last}")
    print("\n".join(line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))))
    found = {w: int(n) for n, w in re.findall(r"(\d+) (passed|failed|errors?)", last)}
    passed, wrong = found.get("passed", 0), sum(n for w, n in found.items() if w != "passed")
    assert passed and passed >= LEAST * (passed + wrong), last
