"""LLVM's loop vectorizer has aborted the process on loops around vectors and on 16-bit floats: tec makes the vectors, and these build."""

from __future__ import annotations

import subprocess
import sys

from tests.thinned import thinned_rows


@thinned_rows(1, "seed", [194, 493, 1997])
def test_the_kernel_that_aborted_builds(seed: int) -> None:
    """Seeds of the kernel fuzzer. 194: a softmax of (2, 23), fused, split by 3 and vectorized; 493 and 1997: a minimum of
    bfloat16, a maximum of float16."""
    command = [sys.executable, "-m", "tests.fuzz.kernel_worker", str(seed), str(seed + 1)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert '"failed": []' in done.stdout
