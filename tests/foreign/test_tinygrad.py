"""tinygrad's kernels through its HIP backend on the stand-in for libamdhip64; needs the tinygrad package and LLVM's library."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tec.emulator.hip import environment

from .conftest import CHECKS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("tinygrad") is None, reason="tinygrad is not installed"),
]

PROGRAM = '''
import numpy as np
from tinygrad.renderer.llvmir import AMDLLVMRenderer
from tinygrad.runtime import ops_hip
ops_hip.HIPRenderer = AMDLLVMRenderer  # LLVM, in the place of ROCm's compiler library
from tinygrad import Device, Tensor, dtypes
assert Device.DEFAULT == "HIP"
rng = np.random.default_rng(0)
a, b = (rng.standard_normal((48, 48)).astype(np.float32) for _ in range(2))
img, flt = rng.standard_normal((1, 4, 14, 14)).astype(np.float32), rng.standard_normal((6, 4, 3, 3)).astype(np.float32)
idx = rng.integers(0, 48, 20).astype(np.int32)
x, y = Tensor(a), Tensor(b)
soft = lambda v: np.exp(v - v.max(-1, keepdims=True)) / np.exp(v - v.max(-1, keepdims=True)).sum(-1, keepdims=True)
def conv():
    out = np.zeros((1, 6, 12, 12), np.float32)
    for i in range(3):
        for j in range(3):
            out += np.einsum("nchw,oc->nohw", img[:, :, i:i + 12, j:j + 12], flt[:, :, i, j])
    return out
CASES = {
    "elementwise": (lambda: (x * 2 + y).relu(), lambda: np.maximum(a * 2 + b, 0)),
    "matmul": (lambda: x @ y, lambda: a @ b),
    "matmul_half": (lambda: (x.half() @ y.half()).float(), lambda: a.astype(np.float16).astype(np.float32) @ b.astype(np.float16).astype(np.float32)),
    "softmax": (lambda: x.softmax(), lambda: soft(a)),
    "reduce_rows": (lambda: x.sum(axis=1), lambda: a.sum(1)),
    "reduce_all": (lambda: (x * y).sum(), lambda: (a * b).sum()),
    "max_columns": (lambda: x.max(axis=0), lambda: a.max(0)),
    "argmax": (lambda: x.argmax(axis=1), lambda: a.argmax(1)),
    "layernorm": (lambda: x.layernorm(), lambda: (a - a.mean(1, keepdims=True)) / np.sqrt(a.var(1, keepdims=True) + 1e-5)),
    "conv2d": (lambda: Tensor(img).conv2d(Tensor(flt)), conv),
    "max_pool2d": (lambda: Tensor(img).max_pool2d((2, 2)), lambda: img.reshape(1, 4, 7, 2, 7, 2).max((3, 5))),
    "gather": (lambda: x[Tensor(idx)], lambda: a[idx]),
    "cumsum": (lambda: x.cumsum(axis=1), lambda: a.cumsum(1)),
    "sort": (lambda: x[0].sort()[0], lambda: np.sort(a[0])),
    "gelu": (lambda: x.gelu(), lambda: 0.5 * a * (1 + np.tanh(0.7978845608 * (a + 0.044715 * a ** 3)))),
    "transpose": (lambda: (x.T + 1).contiguous(), lambda: a.T + 1),
    "where": (lambda: (x > 0).where(x, y), lambda: np.where(a > 0, a, b)),
    "attention": (lambda: x.scaled_dot_product_attention(y, x), lambda: soft(a @ b.T / np.sqrt(48)) @ a),
}
for name, (got, want) in CASES.items():
    np.testing.assert_allclose(got().numpy(), want(), rtol=2e-3, atol=2e-3, err_msg=name)
    print("right:", name)
'''  # fmt: skip


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_kernels(chip: str, tmp_path: Path, counted: Callable[[str, str], None]) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    path = os.pathsep.join(p for p in sys.path if p)
    env = environment(chip, CHECKS, os.environ | {"DEV": "HIP", "PYTHONPATH": path, "CACHELEVEL": "0"})
    got = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=900, env=env
    )
    for line in got.stdout.splitlines():
        if line.startswith("right: "):
            counted("tinygrad", line.removeprefix("right: "))
    assert got.returncode == 0, got.stdout + got.stderr[-3000:]
