"""The chapters of d2l-tvm ("Dive into Deep Learning Compiler") and te's tutorials of TVM v0.14, their import changed and nothing else.

    git clone https://github.com/d2l-ai/d2l-tvm /tmp/d2l
    TEC_D2L_CHECKOUT=/tmp/d2l TEC_TVM_CHECKOUT=/tmp/tvm python -m pytest -q tests/foreign/test_d2l_tvm.py

Each runs in a process of its own with `tvm` installed, plotting and MXNet stubbed, timing loops cut short, and the software gfx942 in place of CUDA. Chapters that are
for a processor with AVX-512 are run for the host's own where it lacks that. What MXNet computes to compare with is computed by NumPy (`tvm_programs`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

D2L, TVM = (os.environ.get(n, "") for n in ("TEC_D2L_CHECKOUT", "TEC_TVM_CHECKOUT"))
pytestmark = pytest.mark.slow

# Those over MXNet's models and over RPC are left out.
LEFT_OUT = ("from_mxnet", "remote", "install", "index", "arch")
CHAPTERS = sorted(
    str(p.relative_to(D2L)) for p in Path(D2L or "/nowhere").glob("chapter_*/*.md") if p.stem not in LEFT_OUT
)
TUTORIALS = [
    f"gallery/{n}.py"
    for n in (
        "tutorial/tensor_expr_get_started", "tutorial/intro_topi", "tutorial/autotvm_matmul_x86", "how_to/work_with_schedules/schedule_primitives",
        "how_to/work_with_schedules/reduction", "how_to/work_with_schedules/scan", "how_to/work_with_schedules/intrin_math",
        "how_to/work_with_schedules/tensorize", "how_to/work_with_schedules/tuple_inputs", "how_to/work_with_schedules/extern_op",
        "how_to/work_with_schedules/tedd", "how_to/optimize_operators/opt_gemm", "how_to/optimize_operators/opt_conv_cuda",
        "how_to/optimize_operators/opt_conv_tensorcore",
    )
]  # fmt: skip


def run(path: Path) -> None:
    env = {**os.environ, "TEC_EMULATE": "gfx942"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.foreign.tvm_programs", str(path)],
        env=env,
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, f"{done.stdout[-1500:]}\n{done.stderr[-3000:]}"


@pytest.mark.skipif(not D2L, reason="TEC_D2L_CHECKOUT names no checkout of d2l-tvm")
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_chapter(chapter: str) -> None:
    run(Path(D2L, chapter))


@pytest.mark.skipif(not TVM, reason="TEC_TVM_CHECKOUT names no checkout of TVM v0.14")
@pytest.mark.parametrize("tutorial", TUTORIALS)
def test_tutorial(tutorial: str) -> None:
    run(Path(TVM, tutorial))
