"""LLVM's loop vectorizer stays away from functions whose schedule made the vectors, and from 16-bit floats: it has aborted the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tec
from tec import te


def _build(vectorize: bool) -> str:
    a = te.placeholder((64, 23), name="A")
    b = te.compute((64, 23), lambda i, j: a[i, j] + 1.0, name="B")
    s = tec.create_schedule(b.op)
    outer, inner = s[b].split(b.op.axis[0], factor=4)
    if vectorize:
        s[b].reorder(outer, b.op.axis[1], inner)
        s[b].vectorize(inner)
    return str(tec.build(s, [a, b], "llvm", name="f").get_source("llvm"))


def test_loops_around_vectors_are_left_alone() -> None:
    assert '"llvm.loop.vectorize.enable", i1 false' in _build(True)
    assert "llvm.loop.vectorize.enable" not in _build(False)


@pytest.mark.parametrize("seed", [194, 493, 1997])
def test_the_kernel_that_aborted_builds(seed: int) -> None:
    """Seeds of the kernel fuzzer. 194: a softmax of (2, 23), fused, split by 3 and vectorized; 493 and 1997: a minimum of
    bfloat16, a maximum of float16."""
    command = [sys.executable, "-m", "tests.fuzz.kernel_worker", str(seed), str(seed + 1)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert '"failed": []' in done.stdout
