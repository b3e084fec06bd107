"""Speed of the AMD GPU in software: an LDS-tiled f32 matrix product, an FMA loop, translation and compile times.

    python benchmarks/emulator.py [--chip gfx942] [--n 1024] [--threads 1,2]

Bounds checks are on in every figure. Rates are given by the wall clock and by the CPU time of the process: on a machine with other
work the second says what an idle one would do.
"""

from __future__ import annotations

import argparse
import os
import struct
import tempfile
import time

import llvmlite.binding as llvm
import numpy as np
from turns import line

from tec.codegen.objects.linking import link
from tec.emulator import get_driver

_FLAGS = '\n!llvm.module.flags = !{!9000}\n!9000 = !{i32 1, !"amdhsa_code_object_version", i32 500}\n'
_TAIL = """
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
declare i32 @llvm.amdgcn.workgroup.id.y()
declare void @llvm.amdgcn.s.barrier()
declare float @llvm.fma.f32(float, float, float)
attributes #0 = { "amdgpu-flat-work-group-size"="256,256" "amdgpu-no-implicitarg-ptr" }
"""
_SYNC = """  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire"""


def build(ir: str, chip: str) -> tuple[str, bytes]:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(cpu=chip, opt=3)

    def module() -> llvm.ModuleRef:
        m = llvm.parse_assembly('target triple = "amdgcn-amd-amdhsa"\n' + ir + _TAIL + _FLAGS)
        m.verify()
        builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
        builder.getModulePassManager().run(m, builder)
        return m

    return machine.emit_assembly(module()), link(machine.emit_object(module()))


def sgemm_ir() -> str:
    """C = A B, row-major: 64 x 64 tiles, steps of 16, 256 threads with 4 x 4 results each."""
    p = ["@As = internal addrspace(3) global [1024 x float] poison, align 16",
         "@Bs = internal addrspace(3) global [1024 x float] poison, align 16",
         "define amdgpu_kernel void @sgemm(ptr addrspace(1) noalias %A, ptr addrspace(1) noalias %B, "
         "ptr addrspace(1) noalias %C, i32 %N, i32 %K) #0 {", "entry:"]  # fmt: skip

    def op(name: str, text: str) -> None:
        p.append(f"  %{name} = {text}")

    def at(name: str, space: int, base: str, index: str) -> None:
        op(name, f"getelementptr float, ptr addrspace({space}) {base}, i32 {index}")

    op("t", "call i32 @llvm.amdgcn.workitem.id.x()")
    op("bx", "call i32 @llvm.amdgcn.workgroup.id.x()")
    op("by", "call i32 @llvm.amdgcn.workgroup.id.y()")
    for name, text in (
        ("tx", "and i32 %t, 15"), ("ty", "lshr i32 %t, 4"), ("ar", "lshr i32 %t, 2"), ("ac0", "and i32 %t, 3"),
        ("ac", "shl i32 %ac0, 2"), ("bc", "shl i32 %tx, 2"), ("row0", "shl i32 %by, 6"), ("col0", "shl i32 %bx, 6"),
        ("arow", "add i32 %row0, %ar"), ("aoff0", "mul i32 %arow, %K"), ("aoff", "add i32 %aoff0, %ac"),
        ("bcol", "add i32 %col0, %bc"), ("sa0", "shl i32 %ac, 6"), ("sa", "add i32 %sa0, %ar"),
        ("sb0", "shl i32 %ty, 6"), ("sb", "add i32 %sb0, %bc"), ("ty4", "shl i32 %ty, 2"),
    ):  # fmt: skip
        op(name, text)
    p += ["  br label %loop", "loop:", "  %k = phi i32 [ 0, %entry ], [ %k1, %loop ]"]
    for i in range(16):
        op(f"acc{i}", f"phi float [ 0.0, %entry ], [ %n{i}_15, %loop ]")
    for name, text in (
        ("ao", "add i32 %aoff, %k"), ("brow", "add i32 %k, %ty"), ("bo0", "mul i32 %brow, %N"), ("bo", "add i32 %bo0, %bcol"),
    ):  # fmt: skip
        op(name, text)
    at("pa", 1, "%A", "%ao")
    op("av", "load <4 x float>, ptr addrspace(1) %pa, align 16")
    at("pb", 1, "%B", "%bo")
    op("bv", "load <4 x float>, ptr addrspace(1) %pb, align 16")
    p.append(_SYNC)
    for i in range(4):
        op(f"ae{i}", f"extractelement <4 x float> %av, i32 {i}")
        op(f"si{i}", f"add i32 %sa, {64 * i}")
        at(f"sp{i}", 3, "@As", f"%si{i}")
        p.append(f"  store float %ae{i}, ptr addrspace(3) %sp{i}")
    at("sbp", 3, "@Bs", "%sb")
    p += ["  store <4 x float> %bv, ptr addrspace(3) %sbp, align 16", _SYNC]
    for k in range(16):
        for name, base, column in (("a", "@As", "%ty4"), ("b", "@Bs", "%bc")):
            op(f"i{name}{k}", f"add i32 {column}, {64 * k}")
            at(f"q{name}{k}", 3, base, f"%i{name}{k}")
            op(f"v{name}{k}", f"load <4 x float>, ptr addrspace(3) %q{name}{k}, align 16")
            for i in range(4):
                op(f"x{name}{k}_{i}", f"extractelement <4 x float> %v{name}{k}, i32 {i}")
        for i in range(16):
            before = f"%acc{i}" if k == 0 else f"%n{i}_{k - 1}"
            op(f"n{i}_{k}", f"call float @llvm.fma.f32(float %xa{k}_{i // 4}, float %xb{k}_{i % 4}, float {before})")
    op("k1", "add i32 %k, 16")
    op("more", "icmp slt i32 %k1, %K")
    p += ["  br i1 %more, label %loop, label %end", "end:"]
    op("orow", "add i32 %row0, %ty4")
    op("ocol", "add i32 %col0, %bc")
    for i in range(4):
        op(f"r{i}", f"add i32 %orow, {i}")
        op(f"rm{i}", f"mul i32 %r{i}, %N")
        op(f"rc{i}", f"add i32 %rm{i}, %ocol")
        at(f"po{i}", 1, "%C", f"%rc{i}")
        vector = "poison"
        for j in range(4):
            op(f"o{i}_{j}", f"insertelement <4 x float> {vector}, float %n{4 * i + j}_15, i32 {j}")
            vector = f"%o{i}_{j}"
        p.append(f"  store <4 x float> {vector}, ptr addrspace(1) %po{i}, align 16")
    return "\n".join([*p, "  ret void", "}"])


def fma_ir() -> str:
    """Eight chains of x = a x + b a lane."""
    p = ["define amdgpu_kernel void @fma(ptr addrspace(1) %A, ptr addrspace(1) %C, i32 %n) #0 {", "entry:",
         "  %t = call i32 @llvm.amdgcn.workitem.id.x()", "  %g = call i32 @llvm.amdgcn.workgroup.id.x()",
         "  %b = shl i32 %g, 8", "  %i = add i32 %b, %t", "  %pa = getelementptr float, ptr addrspace(1) %A, i32 %i",
         "  %a = load float, ptr addrspace(1) %pa", "  br label %loop", "loop:",
         "  %k = phi i32 [ 0, %entry ], [ %k1, %loop ]"]  # fmt: skip
    p += [f"  %x{j} = phi float [ {float(j)}, %entry ], [ %z{j}_3, %loop ]" for j in range(8)]
    for u in range(4):
        for j in range(8):
            p.append(
                f"  %z{j}_{u} = call float @llvm.fma.f32(float %{f'z{j}_{u - 1}' if u else f'x{j}'}, float %a, float 0.5)"
            )
    p += ["  %k1 = add i32 %k, 1", "  %m = icmp slt i32 %k1, %n", "  br i1 %m, label %loop, label %end", "end:"]
    total = "%z0_3"
    for j in range(1, 8):
        p.append(f"  %s{j} = fadd float {total}, %z{j}_3")
        total = f"%s{j}"
    p += [
        "  %pc = getelementptr float, ptr addrspace(1) %C, i32 %i",
        f"  store float {total}, ptr addrspace(1) %pc",
        "  ret void",
        "}",
    ]
    return "\n".join(p)


def timed(run, repeats: int = 3) -> tuple[float, float]:  # type: ignore[no-untyped-def]
    """Best (wall, CPU) seconds."""
    best = (float("inf"), float("inf"))
    for _ in range(repeats):
        w, c = time.perf_counter(), time.process_time()
        run()
        best = min(best[0], time.perf_counter() - w), min(best[1], time.process_time() - c)
    return best


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--chip", default="gfx942")
    parser.add_argument("--n", type=int, default=1024)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--check", default="bounds")
    arguments = parser.parse_args()
    chip, n = arguments.chip, arguments.n
    os.environ["TEC_CACHE_DIR"] = tempfile.mkdtemp()
    asm, image = build(sgemm_ir(), chip)
    loop_asm, loop_image = build(fma_ir(), chip)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, n)).astype(np.float32) for _ in range(2))
    want = a.astype(np.float64) @ b
    for threads in (int(t) for t in arguments.threads.split(",")):
        measure(chip, n, threads, arguments.check, (asm, image), (loop_asm, loop_image), a, b, want)


def measure(
    chip: str, n: int, threads: int, check: str, gemm: tuple[str, bytes], loop: tuple[str, bytes],
    a: np.ndarray, b: np.ndarray, want: np.ndarray,
) -> None:  # fmt: skip
    """One set of figures, printed."""
    (asm, image), (loop_asm, loop_image) = gemm, loop
    driver = get_driver(chip, threads=threads, check=check)
    full = 256 % driver.chip.wavefront_size == 0
    function = driver.get_function(driver.load_module(0, image, asm), "sgemm")
    pa, pb, pc = (driver.alloc(0, a.nbytes) for _ in range(3))
    driver.copy_to_device(0, pa, a.ctypes.data, a.nbytes)
    driver.copy_to_device(0, pb, b.ctypes.data, b.nbytes)
    args = struct.pack("<QQQii", pa, pb, pc, n, n)
    small = driver.get_function(driver.load_module(0, loop_image, loop_asm), "fma")
    small.compiled(full, True)  # the support library first: it is compiled once for all kernels
    w, c = time.perf_counter(), time.process_time()
    function.compiled(full, True)
    cold = time.perf_counter() - w, time.process_time() - c
    warm = timed(lambda: driver.get_function(driver.load_module(0, image, asm), "sgemm").compiled(full, True))
    wall, cpu = timed(lambda: driver.launch(function, (n // 64, n // 64, 1), (256, 1, 1), 0, args))
    out = np.empty_like(a)
    driver.copy_from_device(0, out.ctypes.data, pc, out.nbytes)
    assert np.abs(out - want).max() < 1e-2, "wrong product"
    flops = 2.0 * n**3

    def row(name: str, value: float, unit: str, goal: float, cpu_value: float) -> None:
        where = f"{name}, {chip}, {threads} thread{'s' * (threads != 1)}, check {check}"
        line(where, value, unit, "goal", goal, by_cpu_time=round(cpu_value, 4))

    row(f"compile {len(function.text.insts)} instructions, cold", cold[0], "s", 0.7, cold[1])
    row("the same from the disk cache", warm[0], "s", 0.02, warm[1])
    row(f"sgemm {n}", flops / wall / 1e9, "GFLOP/s", 15.0 * (1.7 if threads > 1 else 1), flops / cpu / 1e9)
    lanes, steps = 64 * 256, 2000
    pd = driver.alloc(0, 4 * lanes)
    data = np.full(lanes, 0.5, np.float32)
    driver.copy_to_device(0, pd, data.ctypes.data, data.nbytes)
    loop_args = struct.pack("<QQi", pd, pd, steps)
    wall, cpu = timed(lambda: driver.launch(small, (lanes // 256, 1, 1), (256, 1, 1), 0, loop_args))
    flops = 64.0 * steps * lanes
    row("FMA loop", flops / wall / 1e9, "GFLOP/s", 80.0, flops / cpu / 1e9)


if __name__ == "__main__":
    main()
