"""Whole kernels: loops, LDS with barriers, divergence, scratch, atomics, flat pointers, constants, several chips."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from tec.emulator.modules import QUICK_WAVES
from tec.emulator.translate.jit import Jit
from tests.thinned import thinned

from .harness import compile_ir, download, function, upload
from .test_checks import COPY

CHIPS = ("gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1200")
_TAIL = """
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workitem.id.y()
declare i32 @llvm.amdgcn.workgroup.id.x()
declare i32 @llvm.amdgcn.workgroup.id.y()
declare i32 @llvm.amdgcn.workgroup.id.z()
declare void @llvm.amdgcn.s.barrier()
attributes #0 = { "amdgpu-flat-work-group-size"="1,256" "amdgpu-no-implicitarg-ptr" }
"""
_SYNC = """fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire"""


def run(
    chip: str,
    ir: str,
    arrays: list[np.ndarray],
    scalars: str = "",
    values: tuple = (),
    grid=(1, 1, 1),
    block=(64, 1, 1),
    shared=0,
):
    driver, k = function(ir + _TAIL, chip)
    addresses = [upload(driver, a) for a in arrays]
    driver.launch(k, grid, block, shared, struct.pack(f"<{len(addresses)}Q{scalars}", *addresses, *values))
    out = [download(driver, p, a) for p, a in zip(addresses, arrays)]
    for p in addresses:
        driver.free(0, p)
    return out


@pytest.mark.parametrize("chip", CHIPS)
def test_divergent_loop_with_early_exit(chip: str) -> None:
    """Collatz steps: each lane its own trip count, some leave before."""
    ir = """define amdgpu_kernel void @k(ptr addrspace(1) %p, ptr addrspace(1) %o, i32 %n) #0 {
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %b = mul i32 %g, 100
  %i = add i32 %b, %t
  %ok = icmp slt i32 %i, %n
  br i1 %ok, label %go, label %done
go:
  %a = getelementptr i32, ptr addrspace(1) %p, i32 %i
  %x0 = load i32, ptr addrspace(1) %a
  br label %loop
loop:
  %x = phi i32 [ %x0, %go ], [ %x1, %step ]
  %c = phi i32 [ 0, %go ], [ %c1, %step ]
  %end = icmp ule i32 %x, 1
  br i1 %end, label %out, label %step
step:
  %half = lshr i32 %x, 1
  %x3 = mul i32 %x, 3
  %x31 = add i32 %x3, 1
  %odd0 = and i32 %x, 1
  %odd = icmp ne i32 %odd0, 0
  %x1 = select i1 %odd, i32 %x31, i32 %half
  %c1 = add i32 %c, 1
  br label %loop
out:
  %q = getelementptr i32, ptr addrspace(1) %o, i32 %i
  store i32 %c, ptr addrspace(1) %q
  br label %done
done:
  ret void
}"""
    n = 470
    x = np.random.default_rng(0).integers(0, 5000, n).astype(np.int32)
    got = run(chip, ir, [x, np.full(500, -7, np.int32)], "i", (n,), (5, 1, 1), (100, 1, 1))[1]

    def steps(v: int) -> int:
        c = 0
        while v > 1:
            v, c = (3 * v + 1 if v & 1 else v // 2), c + 1
        return c

    assert (got[:n] == [steps(int(v)) for v in x]).all() and (got[n:] == -7).all()


@pytest.mark.parametrize("chip", CHIPS)
def test_tree_reduction_in_lds(chip: str) -> None:
    """A loop with a barrier in it: waves suspend and resume within control flow."""
    ir = f"""@buf = internal addrspace(3) global [256 x float] poison
define amdgpu_kernel void @k(ptr addrspace(1) %p, ptr addrspace(1) %o) #0 {{
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %b = mul i32 %g, 256
  %i = add i32 %b, %t
  %a = getelementptr float, ptr addrspace(1) %p, i32 %i
  %x = load float, ptr addrspace(1) %a
  %m = getelementptr float, ptr addrspace(3) @buf, i32 %t
  store float %x, ptr addrspace(3) %m
  br label %loop
loop:
  %s = phi i32 [ 128, %entry ], [ %s1, %next ]
  {_SYNC}
  %on = icmp ult i32 %t, %s
  br i1 %on, label %add, label %next
add:
  %u = add i32 %t, %s
  %q = getelementptr float, ptr addrspace(3) @buf, i32 %u
  %y = load float, ptr addrspace(3) %q
  %z = load float, ptr addrspace(3) %m
  %w = fadd float %y, %z
  store float %w, ptr addrspace(3) %m
  br label %next
next:
  %s1 = lshr i32 %s, 1
  %more = icmp ne i32 %s1, 0
  br i1 %more, label %loop, label %end
end:
  %first = icmp eq i32 %t, 0
  br i1 %first, label %put, label %done
put:
  %r = load float, ptr addrspace(3) %m
  %e = getelementptr float, ptr addrspace(1) %o, i32 %g
  store float %r, ptr addrspace(1) %e
  br label %done
done:
  ret void
}}"""
    x = np.random.default_rng(1).standard_normal(256 * 7).astype(np.float32)
    got = run(chip, ir, [x, np.zeros(7, np.float32)], grid=(7, 1, 1), block=(256, 1, 1))[1]
    assert np.allclose(got, x.reshape(7, 256).sum(1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("chip", CHIPS)
def test_ids_in_three_dimensions(chip: str) -> None:
    ir = """define amdgpu_kernel void @k(ptr addrspace(1) %o) #0 {
  %x = call i32 @llvm.amdgcn.workitem.id.x()
  %y = call i32 @llvm.amdgcn.workitem.id.y()
  %gx = call i32 @llvm.amdgcn.workgroup.id.x()
  %gy = call i32 @llvm.amdgcn.workgroup.id.y()
  %gz = call i32 @llvm.amdgcn.workgroup.id.z()
  %a = mul i32 %gz, 3
  %b = add i32 %a, %gy
  %c = mul i32 %b, 2
  %d = add i32 %c, %gx
  %e = mul i32 %d, 5
  %f = add i32 %e, %y
  %g = mul i32 %f, 7
  %h = add i32 %g, %x
  %p = getelementptr i32, ptr addrspace(1) %o, i32 %h
  store i32 %h, ptr addrspace(1) %p
  ret void
}"""
    n = 4 * 3 * 2 * 5 * 7
    assert (run(chip, ir, [np.zeros(n, np.int32)], grid=(2, 3, 4), block=(7, 5, 1))[0] == np.arange(n)).all()


@thinned(1, ("chip", CHIPS), ("space", [3, 1]))
def test_atomics(chip: str, space: int) -> None:
    """A histogram, in LDS or in global memory, with lanes that collide; the old values are a permutation."""
    top = "@h = internal addrspace(3) global [16 x i32] poison\n" if space == 3 else ""
    base = "@h" if space == 3 else "%h"
    zero = (
        f"""  %z = icmp ult i32 %t, 16
  br i1 %z, label %clear, label %ready
clear:
  %zp = getelementptr i32, ptr addrspace(3) @h, i32 %t
  store i32 0, ptr addrspace(3) %zp
  br label %ready
ready:
  {_SYNC}
"""
        if space == 3
        else ""
    )
    ir = f"""{top}define amdgpu_kernel void @k(ptr addrspace(1) %p, ptr addrspace(1) %o, ptr addrspace(1) %h) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
{zero}  %a = getelementptr i32, ptr addrspace(1) %p, i32 %t
  %x = load i32, ptr addrspace(1) %a
  %q = getelementptr i32, ptr addrspace({space}) {base}, i32 %x
  %r = atomicrmw add ptr addrspace({space}) %q, i32 1 syncscope("agent") monotonic
  %b = getelementptr i32, ptr addrspace(1) %o, i32 %t
  store i32 %r, ptr addrspace(1) %b
  ret void
}}"""
    x = np.random.default_rng(2).integers(0, 16, 256).astype(np.int32)
    _, ranks, counts = run(chip, ir, [x, np.zeros(256, np.int32), np.zeros(16, np.int32)], block=(256, 1, 1))
    for bucket in range(16):
        assert sorted(ranks[x == bucket]) == list(range((x == bucket).sum()))
    if space == 1:
        assert (counts == np.bincount(x, minlength=16)).all()


@pytest.mark.parametrize("chip", CHIPS)
def test_scratch_with_dynamic_index(chip: str) -> None:
    """A private array indexed at run time, also through bytes; it cannot be kept in registers."""
    ir = """define amdgpu_kernel void @k(ptr addrspace(1) %p, ptr addrspace(1) %o) #0 {
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %s = alloca [80 x i32], addrspace(5)
  br label %fill
fill:
  %i = phi i32 [ 0, %entry ], [ %i1, %fill ]
  %v = mul i32 %i, %t
  %a = getelementptr i32, ptr addrspace(5) %s, i32 %i
  store volatile i32 %v, ptr addrspace(5) %a
  %i1 = add i32 %i, 1
  %more = icmp ult i32 %i1, 80
  br i1 %more, label %fill, label %read
read:
  %q = getelementptr i32, ptr addrspace(1) %p, i32 %t
  %x = load i32, ptr addrspace(1) %q
  %b = getelementptr i32, ptr addrspace(5) %s, i32 %x
  %c = getelementptr i8, ptr addrspace(5) %b, i32 1
  store volatile i8 7, ptr addrspace(5) %c
  %r = load volatile i32, ptr addrspace(5) %b
  %e = getelementptr i32, ptr addrspace(1) %o, i32 %t
  store i32 %r, ptr addrspace(1) %e
  ret void
}"""
    x = np.random.default_rng(3).integers(0, 80, 128).astype(np.int32)
    got = run(chip, ir, [x, np.zeros(128, np.int32)], block=(128, 1, 1))[1]
    assert (got == ((x * np.arange(128)) & ~0xFF00 | 0x700)).all()


@pytest.mark.parametrize("chip", CHIPS)
def test_constants_and_generic_pointers(chip: str) -> None:
    """A table in the code object; a flat pointer that is LDS in some lanes and global memory in others."""
    ir = f"""@tab = internal addrspace(4) constant [8 x float] [float 1.0, float 2.0, float 3.0, float 5.0, float 8.0, float 13.0, float 21.0, float 34.0]
@l = internal addrspace(3) global [64 x float] poison
define amdgpu_kernel void @k(ptr addrspace(1) %p, ptr addrspace(1) %o) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %m = and i32 %t, 7
  %a = getelementptr float, ptr addrspace(4) @tab, i32 %m
  %x = load float, ptr addrspace(4) %a
  %b = getelementptr float, ptr addrspace(3) @l, i32 %t
  store float %x, ptr addrspace(3) %b
  {_SYNC}
  %c = getelementptr float, ptr addrspace(1) %p, i32 %t
  %fl = addrspacecast ptr addrspace(3) %b to ptr
  %fg = addrspacecast ptr addrspace(1) %c to ptr
  %odd = trunc i32 %t to i1
  %f = select i1 %odd, ptr %fl, ptr %fg
  %y = load float, ptr %f
  %d = getelementptr float, ptr addrspace(1) %o, i32 %t
  store float %y, ptr addrspace(1) %d
  ret void
}}"""
    x = np.random.default_rng(4).standard_normal(64).astype(np.float32)
    got = run(chip, ir, [x, np.zeros(64, np.float32)])[1]
    table = np.array([1, 2, 3, 5, 8, 13, 21, 34], np.float32)[np.arange(64) % 8]
    assert (got == np.where(np.arange(64) % 2, table, x)).all()


@thinned(
    1,
    ("chip", CHIPS),
    (
        "t",
        [
            "i8",
            "i16",
            "i32",
            "i64",
            "half",
            "<2 x half>",
            "<4 x half>",
            "<2 x float>",
            "<3 x float>",
            "<4 x float>",
            "<16 x i8>",
            "<8 x float>",
        ],
    ),
)
def test_memory_widths(chip: str, t: str) -> None:
    """Each width through global memory, LDS and scratch."""
    ir = f"""@l = internal addrspace(3) global [64 x {t}] poison
define amdgpu_kernel void @k(ptr addrspace(1) %p, ptr addrspace(1) %o, i32 %j) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %s = alloca [4 x {t}], addrspace(5)
  %a = getelementptr {t}, ptr addrspace(1) %p, i32 %t
  %x = load {t}, ptr addrspace(1) %a
  %b = getelementptr {t}, ptr addrspace(3) @l, i32 %t
  store {t} %x, ptr addrspace(3) %b
  {_SYNC}
  %r = sub i32 63, %t
  %c = getelementptr {t}, ptr addrspace(3) @l, i32 %r
  %y = load {t}, ptr addrspace(3) %c
  %d = getelementptr {t}, ptr addrspace(5) %s, i32 %j
  store volatile {t} %y, ptr addrspace(5) %d
  %z = load volatile {t}, ptr addrspace(5) %d
  %e = getelementptr {t}, ptr addrspace(1) %o, i32 %t
  store {t} %z, ptr addrspace(1) %e
  ret void
}}"""
    size = {"i8": 1, "i16": 2, "i32": 4, "i64": 8, "half": 2, "<2 x half>": 4, "<4 x half>": 8, "<2 x float>": 8,
            "<3 x float>": 16, "<4 x float>": 16, "<16 x i8>": 16, "<8 x float>": 32}[t]  # fmt: skip
    x = np.random.default_rng(5).integers(0, 256, (64, size)).astype(np.uint8)
    got = run(chip, ir, [x, np.zeros_like(x)], "i", (2,))[1]
    used = 12 if t == "<3 x float>" else size
    assert (got[:, :used] == x[::-1, :used]).all()


def test_dynamic_lds_and_two_kernels() -> None:
    ir = """@dyn = external addrspace(3) global [0 x i32], align 16
define amdgpu_kernel void @first(ptr addrspace(1) %o) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %a = getelementptr i32, ptr addrspace(3) @dyn, i32 %t
  store i32 %t, ptr addrspace(3) %a
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %r = xor i32 %t, 127
  %b = getelementptr i32, ptr addrspace(3) @dyn, i32 %r
  %x = load i32, ptr addrspace(3) %b
  %c = getelementptr i32, ptr addrspace(1) %o, i32 %t
  store i32 %x, ptr addrspace(1) %c
  ret void
}
define amdgpu_kernel void @second(ptr addrspace(1) %o) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %c = getelementptr i32, ptr addrspace(1) %o, i32 %t
  store i32 5, ptr addrspace(1) %c
  ret void
}"""
    from tec.emulator import get_driver
    from tec.emulator.errors import KernelFault

    for chip in ("gfx942", "gfx1100"):
        asm, image = compile_ir(ir + _TAIL, chip)
        driver = get_driver(chip)
        module = driver.load_module(0, image, asm)
        first, second = driver.get_function(module, "first"), driver.get_function(module, "second")
        o = upload(driver, np.zeros(128, np.int32))
        driver.launch(first, (1, 1, 1), (128, 1, 1), 512, struct.pack("<Q", o))
        assert (download(driver, o, np.zeros(128, np.int32)) == np.arange(128) ^ 127).all()
        driver.launch(second, (1, 1, 1), (128, 1, 1), 0, struct.pack("<Q", o))
        assert (download(driver, o, np.zeros(128, np.int32)) == 5).all()
        with pytest.raises(KernelFault, match="LDS"):
            driver.launch(first, (1, 1, 1), (128, 1, 1), 256, struct.pack("<Q", o))


def test_code_made_quickly_gives_way_where_a_kernel_runs_much(monkeypatch):
    """The first launches, of few wavefronts, run what LLVM did not optimise; results are the same."""
    levels = []
    compiled = Jit.compile

    def compile_and_note(jit, ir, level, passes, what):
        if what.startswith("kernel"):
            levels.append(level)
        return compiled(jit, ir, level, passes, what)

    monkeypatch.setattr(Jit, "compile", compile_and_note)
    driver, k = function(COPY, "gfx942")
    x = np.arange(64, dtype=np.float32)
    for groups, made in ((1, [0]), (4, [0]), (QUICK_WAVES, [0, 1]), (1, [0, 1])):
        p, o = upload(driver, x), upload(driver, np.zeros(64, np.float32))
        driver.launch(k, (groups, 1, 1), (64, 1, 1), 0, struct.pack("<QQi", p, o, 0))
        assert levels == made
        assert (download(driver, o, np.zeros(64, np.float32)) == x).all()
