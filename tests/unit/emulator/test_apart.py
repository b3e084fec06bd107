"""Helpers of matrix instructions are modules of their own, which kernels of few wavefronts share."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec.emulator.translate.jit import apart, get_jit
from tec.graph.graph import Graph

MODULE = """define i32 @wave(ptr %st) {
  call void @outer(ptr %st)
  ret i32 0
}
define internal void @outer(ptr %p) noinline {
  call void @inner(ptr %p, float 1.0)
  %x = call float @llvm.fabs.f32(float 1.0), !prof !0
  ret void
}
define internal void @inner(ptr %p, float %x) noinline {
  %t = getelementptr [2 x i64], ptr @table, i64 1
  ret void
}
@table = internal constant [2 x i64] [i64 1, i64 2]
declare float @llvm.fabs.f32(float)
!0 = !{}
"""


def test_a_module_and_its_helpers() -> None:
    """Each has the declarations and constants that it names, and no more."""
    whole, inner = apart(MODULE)
    assert sorted(inner) == ["inner", "outer"]
    assert "define internal" not in whole and "declare void @outer(ptr %p)" in whole and "@inner" not in whole
    assert (
        inner["outer"].startswith("define void @outer(") and "declare void @inner(ptr %p, float %x)" in inner["outer"]
    )
    assert "declare float @llvm.fabs.f32" in inner["outer"] and "@table" not in inner["outer"]
    assert "@table = internal constant" in inner["inner"] and "@outer" not in inner["inner"]


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_kernels_share_a_helper(chip: str) -> None:
    """A second kernel with the same matrix instruction brings no other helper for it."""
    device = tec.rocm_emu(chip)
    products = []
    for n in (128, 256):  # of so many outputs that the matrix unit is used
        g = Graph("g")
        (y,) = g.add("matmul", [g.input("x", "float16", (256, 256)), g.constant(np.ones((256, n), "float16"))])
        g.set_outputs([y])
        net = tec.compile(g, target=f"rocm -mcpu={chip}", cache=False)
        (got,) = net.run(np.ones((256, 256), "float16"), device=device)
        assert (got == 256).all()
        products.append({t for t in get_jit().helpers if "define void @mul_" in t or "define void @wmma_" in t})
    assert products[0] and products[1] == products[0]
