"""The barrier of cooperative groups as ROCm's device library writes it: one lane of each work-group at a barrier of the whole grid (GWS)."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from tec.emulator import get_driver
from tec.emulator.decode.disassemble import decoder
from tec.emulator.errors import EmulationError, KernelFault
from tests.thinned import thinned

from .harness import compile_ir, download, upload

# Each work-group stores, waits for all, and reads what its neighbour stored; twice, so that the barrier is used again.
_IR = """define amdgpu_kernel void @exchange(ptr addrspace(1) %data, ptr addrspace(1) %out, i32 %groups) #0 {
entry:
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %more = sub i32 %groups, 1
  %next = add i32 %g, 1
  %other = urem i32 %next, %groups
  br label %round
round:
  %i = phi i32 [ 0, %entry ], [ %i1, %behind ]
  %base = mul i32 %i, 1024
  %mine0 = mul i32 %g, 128
  %mine1 = add i32 %mine0, %t
  %mine = add i32 %mine1, %base
  %p = getelementptr i32, ptr addrspace(1) %data, i32 %mine
  %v0 = mul i32 %mine, 3
  %v = add i32 %v0, %i
  store i32 %v, ptr addrspace(1) %p
  fence syncscope("agent") seq_cst
  call void @llvm.amdgcn.s.barrier()
  %first = icmp eq i32 %t, 0
  br i1 %first, label %gate, label %past
gate:
  call void @llvm.amdgcn.ds.gws.barrier(i32 %more, i32 0)
  br label %past
past:
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("agent") seq_cst
  %their0 = mul i32 %other, 128
  %their1 = add i32 %their0, %t
  %their = add i32 %their1, %base
  %q = getelementptr i32, ptr addrspace(1) %data, i32 %their
  %w = load i32, ptr addrspace(1) %q
  %r = getelementptr i32, ptr addrspace(1) %out, i32 %mine
  store i32 %w, ptr addrspace(1) %r
  br label %behind
behind:
  %i1 = add i32 %i, 1
  %go = icmp ult i32 %i1, 2
  br i1 %go, label %round, label %end
end:
  ret void
}
declare i32 @llvm.amdgcn.workgroup.id.x()
declare i32 @llvm.amdgcn.workitem.id.x()
declare void @llvm.amdgcn.s.barrier()
declare void @llvm.amdgcn.ds.gws.barrier(i32, i32)
attributes #0 = { "amdgpu-flat-work-group-size"="128,128" "amdgpu-no-implicitarg-ptr" }"""


@thinned(1, ("check", ["bounds", "race"]), ("chip", ["gfx90a", "gfx942", "gfx1100"]))
def test_a_barrier_of_the_grid(chip: str, check: str) -> None:
    """Run from the code object alone; with the race check it orders the work-groups' accesses."""
    _, image = compile_ir(_IR, chip)
    driver = get_driver(chip, check=check)
    kernel = driver.get_function(driver.load_module(0, image), "exchange")
    groups = 5
    data, out = np.full((2, 1024), -1, np.int32), np.full((2, 1024), -1, np.int32)
    held = [upload(driver, x) for x in (data, out)]
    driver.launch(kernel, (groups, 1, 1), (128, 1, 1), 0, struct.pack("<QQi", *held, groups), cooperative=True)
    got = download(driver, held[1], out)
    stored = np.arange(2 * 1024).reshape(2, 1024) * 3 + np.array([[0], [1]])
    want = np.roll(stored[:, : 128 * groups].reshape(2, groups, 128), -1, axis=1).reshape(2, -1)
    np.testing.assert_array_equal(got[:, : 128 * groups], want)


def test_a_barrier_of_the_grid_in_a_plain_launch() -> None:
    _, image = compile_ir(_IR, "gfx942")
    driver = get_driver("gfx942")
    kernel = driver.get_function(driver.load_module(0, image), "exchange")
    held = [upload(driver, np.zeros(2048, np.int32)) for _ in range(2)]
    with pytest.raises(KernelFault, match="a barrier of the whole grid in a launch that is not cooperative"):
        driver.launch(kernel, (2, 1, 1), (128, 1, 1), 0, struct.pack("<QQi", *held, 2))
    driver.launch(kernel, (1, 1, 1), (128, 1, 1), 0, struct.pack("<QQi", *held, 1))  # one work-group waits for nobody


def test_without_the_barrier_it_is_a_race() -> None:
    _, image = compile_ir(_IR.replace("  call void @llvm.amdgcn.ds.gws.barrier(i32 %more, i32 0)\n", ""), "gfx942")
    driver = get_driver("gfx942", check="race")
    kernel = driver.get_function(driver.load_module(0, image), "exchange")
    held = [upload(driver, np.zeros(2048, np.int32)) for _ in range(2)]
    with pytest.raises(EmulationError, match="race"):
        driver.launch(kernel, (5, 1, 1), (128, 1, 1), 0, struct.pack("<QQi", *held, 5), cooperative=True)


def test_encodings() -> None:
    """As LLVM 19's assembler writes them."""
    for chip, words, text in (
        ("gfx1030", "030066d805000000", "ds_gws_init v5 offset:3 gds"),
        ("gfx1100", "030076d805000000", "ds_gws_barrier v5 offset:3 gds"),
    ):
        assert decoder(chip, bytes.fromhex(words)).next().text == text
