"""Dispatches that IREE compiles; needs the package iree-base-compiler."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

try:
    from iree import compiler as iree
except ImportError:
    pytest.skip("iree-base-compiler is not installed", allow_module_level=True)

import tec

from .conftest import CHECKS

pytestmark = pytest.mark.slow

F32 = np.float32
_M = "tensor<64x128xf32>"
# Text of a function, its inputs' shapes, and NumPy's answer; each becomes one dispatch.
CASES: dict[str, tuple[str, list[tuple[int, ...]], Callable[..., np.ndarray]]] = {
    "square_add": (
        f"""func.func @f(%x: {_M}, %y: {_M}) -> {_M} {{
  %0 = arith.mulf %x, %x : {_M}
  %1 = arith.addf %0, %y : {_M}
  return %1 : {_M}
}}""",
        [(64, 128), (64, 128)],
        lambda x, y: x * x + y,
    ),
    "matmul": (
        """func.func @f(%a: tensor<64x96xf32>, %b: tensor<96x32xf32>) -> tensor<64x32xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x32xf32>
  %i = linalg.fill ins(%z : f32) outs(%e : tensor<64x32xf32>) -> tensor<64x32xf32>
  %r = linalg.matmul ins(%a, %b : tensor<64x96xf32>, tensor<96x32xf32>) outs(%i : tensor<64x32xf32>) -> tensor<64x32xf32>
  return %r : tensor<64x32xf32>
}""",
        [(64, 96), (96, 32)],
        lambda a, b: a @ b,
    ),
    "row_sum": (
        f"""func.func @f(%x: {_M}) -> tensor<64xf32> {{
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64xf32>
  %i = linalg.fill ins(%z : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %r = linalg.reduce ins(%x : {_M}) outs(%i : tensor<64xf32>) dimensions = [1] (%v: f32, %acc: f32) {{
    %s = arith.addf %v, %acc : f32
    linalg.yield %s : f32
  }}
  return %r : tensor<64xf32>
}}""",
        [(64, 128)],
        lambda x: x.sum(1),
    ),
    "softmax": (
        f"""func.func @f(%x: {_M}) -> {_M} {{
  %e = tensor.empty() : {_M}
  %r = linalg.softmax dimension(1) ins(%x : {_M}) outs(%e : {_M}) -> {_M}
  return %r : {_M}
}}""",
        [(64, 128)],
        lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True),
    ),
    "transpose": (
        f"""func.func @f(%x: {_M}) -> tensor<128x64xf32> {{
  %e = tensor.empty() : tensor<128x64xf32>
  %r = linalg.transpose ins(%x : {_M}) outs(%e : tensor<128x64xf32>) permutation = [1, 0]
  return %r : tensor<128x64xf32>
}}""",
        [(64, 128)],
        lambda x: x.T,
    ),
    "exp_tanh": (
        f"""func.func @f(%x: {_M}) -> {_M} {{
  %0 = math.exp %x : {_M}
  %1 = math.tanh %0 : {_M}
  return %1 : {_M}
}}""",
        [(64, 128)],
        lambda x: np.tanh(np.exp(x)),
    ),
}


def _compiled(text: str, chip: str, folder: Path) -> tuple[Path, int]:
    """The code object of the one dispatch, and its work-groups."""
    flags = [
        "--iree-hal-target-device=hip",
        f"--iree-rocm-target={chip}",
        f"--iree-hal-dump-executable-binaries-to={folder}",
    ]
    flags += [
        f"--iree-hal-dump-executable-intermediates-to={folder}",
        f"--iree-hal-dump-executable-benchmarks-to={folder}",
    ]
    iree.compile_str(text, extra_args=flags)
    (code,) = folder.glob("*.hsaco")
    counts = [
        int(m)
        for p in folder.glob("*.ll")
        for m in re.findall(r"range\(i32 0, (\d+)\) i32 @llvm\.amdgcn\.workgroup\.id\.x", p.read_text())
    ]
    return code, max(counts, default=1)


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("name", list(CASES))
def test_dispatch(name: str, chip: str, tmp_path: Path, counted: Callable[[str, str], None]) -> None:
    text, shapes, want = CASES[name]
    path, groups = _compiled(text, chip, tmp_path)
    code = tec.rocm_emu(chip, check=CHECKS).load(path)
    (kernel,) = code.names
    inputs = [np.random.default_rng(s).standard_normal(shape).astype(F32) for s, shape in enumerate(shapes)]
    wanted = want(*inputs)
    out = np.full_like(wanted, np.nan, order="C")
    code[kernel][(groups,)](*inputs, out)
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-4)
    counted("IREE", name)
