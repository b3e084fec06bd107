"""The time model's order of kernels that published results put in one: of grids on an MI355X, of LDS with conflicts, padded and swizzled, of few and many rows."""

from __future__ import annotations

import struct

import pytest

import tec
from tec.choices import schedule
from tec.emulator.time.model import Estimate, model_launch
from tec.ops.registry import TensorType, get_op
from tests.unit.emulator.harness import function

# A work-group a compute unit (by its LDS), of eight wavefronts, reads 256 KiB of a row of tiles and of a column of tiles, 1,024 tiles in all.
_GRID = """
define amdgpu_kernel void @k(ptr addrspace(1) %a, ptr addrspace(1) %b, ptr addrspace(1) %c) "amdgpu-flat-work-group-size"="1,512" {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  ORDER
  %lane = mul i32 %t, 16
  %rm = mul i32 %m, 262144
  %rn = mul i32 %n, 262144
  br label %l
l:
  %i = phi i32 [ 0, %0 ], [ %j, %l ]
  %x = phi <4 x i32> [ zeroinitializer, %0 ], [ %y, %l ]
  %at = mul i32 %i, 8192
  %o = add i32 %at, %lane
  %oa = add i32 %o, %rm
  %ob = add i32 %o, %rn
  %pa = getelementptr i8, ptr addrspace(1) %a, i32 %oa
  %pb = getelementptr i8, ptr addrspace(1) %b, i32 %ob
  %va = load <4 x i32>, ptr addrspace(1) %pa
  %vb = load <4 x i32>, ptr addrspace(1) %pb
  %s = xor <4 x i32> %va, %vb
  %y = xor <4 x i32> %x, %s
  %j = add i32 %i, 1
  %more = icmp ult i32 %j, 32
  br i1 %more, label %l, label %e
e:
  %og = mul i32 %g, 8192
  %oc = add i32 %og, %lane
  %pc = getelementptr i8, ptr addrspace(1) %c, i32 %oc
  store <4 x i32> %y, ptr addrspace(1) %pc
  ret void
}
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
"""
_ROWS = "%m = udiv i32 %g, 32\n  %n = urem i32 %g, 32"
_BANDS = """%d = urem i32 %g, 8
  %l0 = udiv i32 %g, 8
  %d0 = mul i32 %d, 128
  %w = add i32 %d0, %l0
  %band = udiv i32 %w, WHOLE
  %in = urem i32 %w, WHOLE
  %m0 = urem i32 %in, BAND
  %m1 = mul i32 %band, BAND
  %m = add i32 %m0, %m1
  %n = udiv i32 %in, BAND"""


def _grid(band: int) -> Estimate:
    order = _BANDS.replace("WHOLE", str(32 * band)).replace("BAND", str(band)) if band else _ROWS
    driver, f = function(_GRID.replace("ORDER", order), "gfx950")
    args = struct.pack("<3Q", *(driver.alloc(0, n) for n in (8 << 20, 8 << 20, 8 << 20)))
    return model_launch(driver, f, (1024, 1, 1), (512, 1, 1), 120 << 10, args)


def test_orders_of_a_grid_on_an_mi355x():
    """HipKittens' grid_micro: rows 1.08 ms, bands of 4 rows, die by die, 0.99, of 32 1.26. A die's 32 tiles at a time have 12 rows and columns, or 33."""
    rows, fours, most = (_grid(band) for band in (0, 4, 32))
    assert most.traffic["MALL"] / fours.traffic["MALL"] == pytest.approx(33 / 12, rel=0.2)
    assert most.kernel_us > 1.2 * max(rows.kernel_us, fours.kernel_us)


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_padding_and_swizzling_do_the_same_for_lds(chip):
    """A column of a tile of 32 words: all lanes in one bank, or each in its own by a word more a row, or by turns within the row."""
    ir = """
@buf = internal addrspace(3) global [4096 x i32] poison
define amdgpu_kernel void @k() "amdgpu-flat-work-group-size"="1,64" {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  WHERE
  %p = getelementptr i32, ptr addrspace(3) @buf, i32 %o
  %q = ptrtoint ptr addrspace(3) %p to i32
  br label %l
l:
  %i = phi i32 [ 0, %0 ], [ %j, %l ]
  LOADS
  call void asm sideeffect "s_waitcnt lgkmcnt(0)", ""()
  %j = add i32 %i, 1
  %more = icmp ult i32 %j, 50
  br i1 %more, label %l, label %e
e:
  ret void
}
declare i32 @llvm.amdgcn.workitem.id.x()
"""
    load = {"gfx942": "ds_read_b32", "gfx1100": "ds_load_b32"}[chip]
    loads = "\n".join(f'call i32 asm sideeffect "{load} $0, $1", "=v,v"(i32 %q)' for _ in range(12))
    lanes = {"gfx942": 64, "gfx1100": 32}[chip]
    us = {}
    for name, where in (
        ("plain", "%o = mul i32 %t, 32"),
        ("padded", "%o = mul i32 %t, 33"),
        ("swizzled", "%r = mul i32 %t, 32\n  %c = and i32 %t, 31\n  %o = xor i32 %r, %c"),
    ):
        driver, f = function(ir.replace("WHERE", where).replace("LOADS", loads), chip)
        us[name] = model_launch(driver, f, (1, 1, 1), (lanes, 1, 1), 0, b"").kernel_us
    assert us["padded"] == pytest.approx(us["swizzled"], rel=0.01)
    assert us["plain"] > 3 * us["padded"]


def test_few_rows_take_less_than_many():
    """A product of 16 and of 2,048 rows on an MI300X, 128 times the work: more time, and far from 128 times as much."""
    us = []
    for m in (16, 2048):
        types = [TensorType("float16", (m, 512)), TensorType("float16", (512, 512))]
        xs = [tec.te.placeholder(t.shape, t.dtype, name=f"x{k}") for k, t in enumerate(types)]
        known, attrs = get_op("matmul"), {"transpose_b": True}
        s = schedule(known.compute(attrs, list(xs), known.infer(types, attrs))[:1], tec.Target("rocm -mcpu=gfx942"))
        f = tec.build(s.schedule, [*xs, *s.outputs], "rocm -mcpu=gfx942", name="kernel")
        args = [(t.shape, t.dtype) for t in types] + [((m, 512), "float16")]
        us.append(sum(r.estimate.kernel_us for r in tec.model(f, args, "MI300X").launches))
    assert 1.2 * us[0] < us[1] < 32 * us[0]
