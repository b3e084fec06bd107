"""Public libraries' kernels for Triton, through `tec.tile`, on the CPU and on an AMD chip in software.

TEC_TRITON_LIBRARIES names a folder with checkouts of Liger-Kernel, flash-linear-attention, unsloth and aiter, and FlagGems if wanted. Needs torch and einops.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

FOLDER = os.environ.get("TEC_TRITON_LIBRARIES", "")
CHIP = os.environ.get("TEC_TRITON_CHIP", "gfx942")
LEAST = 0.8  # of the cases

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER, reason="TEC_TRITON_LIBRARIES names no folder of checkouts"),
]


@pytest.mark.parametrize("device", ["cpu", CHIP])
def test_libraries(device: str) -> None:
    words = [sys.executable, "-m", "tests.foreign.triton_libraries", FOLDER, device]
    done = subprocess.run(words, capture_output=True, text=True)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    right = [r for r in rows if r["said"] == "right"]
    print(f"{device}: {len(right)} of {len(rows)} right", *[r for r in rows if r["said"] != "right"], sep="\n")
    assert rows and len(right) >= LEAST * len(rows), done.stderr[-2000:]
