"""Faults and checks: each a kernel with one mistake, and the message that names it; and a right kernel that passes."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest

import tec
from tec.emulator import get_driver
from tec.emulator.errors import EmulationError, KernelFault
from tec.emulator.launch import check_wave
from tec.errors import ArgumentError, DeviceError

from .harness import compile_ir, download, function, upload
from .planted import image, text

_DECLARES = """
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
declare void @llvm.amdgcn.s.barrier()
attributes #0 = { "amdgpu-flat-work-group-size"="1,256" "amdgpu-no-implicitarg-ptr" }
"""
CHIPS = ("gfx90a", "gfx942", "gfx1100")


def kernel(body: str, params: str = "ptr addrspace(1) %p, ptr addrspace(1) %o, i32 %n", top: str = "") -> str:
    return f"{top}define amdgpu_kernel void @k({params}) #0 {{\n  %t = call i32 @llvm.amdgcn.workitem.id.x()\n{body}\n}}\n{_DECLARES}"


COPY = kernel("""  %i = add i32 %t, %n
  %a = getelementptr float, ptr addrspace(1) %p, i32 %i
  %x = load float, ptr addrspace(1) %a
  %b = getelementptr float, ptr addrspace(1) %o, i32 %t
  store float %x, ptr addrspace(1) %b
  ret void""")

# Writes LDS, then reads the neighbour's word; with or without the barrier between.
NEIGHBOUR = """  %a = getelementptr i32, ptr addrspace(3) @lds, i32 %t
  store i32 %t, ptr addrspace(3) %a
  BARRIER
  %m = sub i32 255, %t
  %b = getelementptr i32, ptr addrspace(3) @lds, i32 %m
  %x = load i32, ptr addrspace(3) %b
  %c = getelementptr i32, ptr addrspace(1) %o, i32 %t
  store i32 %x, ptr addrspace(1) %c
  ret void"""
_LDS = "@lds = internal addrspace(3) global [256 x i32] poison\n"
_BARRIER = """fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire"""


@pytest.mark.parametrize("chip", CHIPS)
def test_out_of_bounds_names_lane_and_allocation(chip: str) -> None:
    driver, k = function(COPY, chip)
    p, o = upload(driver, np.ones(64, np.float32)), upload(driver, np.zeros(64, np.float32))
    with pytest.raises(KernelFault) as e:
        driver.launch(k, (1, 1, 1), (64, 1, 1), 0, struct.pack("<QQi", p, o, 4))
    fault = e.value.fault
    assert fault.kind == "out of bounds" and fault.address == p + 256
    lanes = driver.chip.wavefront_size
    assert (fault.wave, fault.lane) == (60 // lanes, 60 % lanes)
    assert "0 bytes past the end" in fault.detail and "load" in fault.instruction
    driver.launch(k, (1, 1, 1), (64, 1, 1), 0, struct.pack("<QQi", p, o, 0))  # the device lives on
    assert (download(driver, o, np.zeros(64, np.float32)) == 1).all()


def test_freed_null_and_misaligned() -> None:
    driver, k = function(COPY, "gfx942")
    p, o = upload(driver, np.ones(64, np.float32)), upload(driver, np.zeros(64, np.float32))
    driver.launch(k, (1, 1, 1), (8, 1, 1), 0, struct.pack("<QQi", p + 2, o, 0))  # amdhsa allows unaligned loads
    strict, ks = function(COPY, "gfx942", check="align")
    q = upload(strict, np.ones(64, np.float32))
    with pytest.raises(KernelFault, match="misaligned"):
        strict.launch(ks, (1, 1, 1), (8, 1, 1), 0, struct.pack("<QQi", q + 2, q, 0))
    every, ka = function(COPY, "gfx942", check="all")  # so does what all checks ask
    r, t = upload(every, np.ones(65, np.float32)), upload(every, np.zeros(65, np.float32))
    every.launch(ka, (1, 1, 1), (8, 1, 1), 0, struct.pack("<QQi", r + 2, t + 2, 0))
    driver.free(0, p)
    with pytest.raises(KernelFault, match="which was freed"):
        driver.launch(k, (1, 1, 1), (64, 1, 1), 0, struct.pack("<QQi", p, o, 0))
    with pytest.raises(KernelFault, match="null pointer"):
        driver.launch(k, (1, 1, 1), (64, 1, 1), 0, struct.pack("<QQi", 0, o, 0))
    with pytest.raises(DeviceError, match="freed before"):
        driver.free(0, p)


@pytest.mark.parametrize("chip", ["gfx950", "gfx1201"])
def test_all_checks_take_wide_lds_accesses_from_anywhere(chip: str) -> None:
    """LLVM joins three dwords of a row that begins at a multiple of 2 bytes into one access, which amdhsa's alignment mode allows."""
    body = """  %u = mul i32 %t, 14
  %a = getelementptr i8, ptr addrspace(3) @lds, i32 %u
  %v = insertelement <3 x i32> <i32 poison, i32 7, i32 8>, i32 %t, i64 0
  store <3 x i32> %v, ptr addrspace(3) %a, align 2
  BARRIER
  %m = sub i32 63, %t
  %n14 = mul i32 %m, 14
  %b = getelementptr i8, ptr addrspace(3) @lds, i32 %n14
  %w = load <3 x i32>, ptr addrspace(3) %b, align 2
  %x = call i32 @llvm.vector.reduce.add.v3i32(<3 x i32> %w)
  %c = getelementptr i32, ptr addrspace(1) %o, i32 %t
  store i32 %x, ptr addrspace(1) %c
  ret void"""
    text = (
        kernel(body.replace("BARRIER", _BARRIER), top=_LDS) + "\ndeclare i32 @llvm.vector.reduce.add.v3i32(<3 x i32>)\n"
    )
    assert "_b96" in compile_ir(text, chip)[0]
    driver, k = function(text, chip, check="all")
    o = upload(driver, np.zeros(64, np.int32))
    driver.launch(k, (1, 1, 1), (64, 1, 1), 0, struct.pack("<QQi", o, o, 0))
    assert (download(driver, o, np.zeros(64, np.int32)) == 63 - np.arange(64) + 15).all()
    strict, k = function(text, chip, check="align")
    o = upload(strict, np.zeros(64, np.int32))
    with pytest.raises(KernelFault, match="misaligned LDS access"):
        strict.launch(k, (1, 1, 1), (64, 1, 1), 0, struct.pack("<QQi", o, o, 0))


def test_lds_out_of_bounds() -> None:
    driver, k = function(kernel(NEIGHBOUR.replace("BARRIER", _BARRIER), top=_LDS.replace("256", "100")), "gfx942")
    o = upload(driver, np.zeros(256, np.int32))
    with pytest.raises(KernelFault, match="LDS access out of bounds"):
        driver.launch(k, (1, 1, 1), (256, 1, 1), 0, struct.pack("<QQi", o, o, 0))


@pytest.mark.parametrize("chip", CHIPS)
def test_race_needs_the_barrier(chip: str) -> None:
    good, bad = (kernel(NEIGHBOUR.replace("BARRIER", b), top=_LDS) for b in (_BARRIER, ""))
    driver, k = function(good, chip, check="race")
    o = upload(driver, np.zeros(256, np.int32))
    args = struct.pack("<QQi", o, o, 0)
    driver.launch(k, (1, 1, 1), (256, 1, 1), 0, args)
    assert (download(driver, o, np.zeros(256, np.int32)) == 255 - np.arange(256)).all()
    driver, k = function(bad, chip, check="race")
    with pytest.raises(KernelFault, match="race") as e:
        driver.launch(k, (1, 1, 1), (256, 1, 1), 0, args)
    assert "wave" in e.value.fault.detail


def test_race_between_work_groups() -> None:
    driver, k = function(COPY, "gfx942", check="race")
    p, o = upload(driver, np.ones(64, np.float32)), upload(driver, np.zeros(64, np.float32))
    driver.notes.clear()  # those of the process's other kernels with these checks
    driver.launch(k, (2, 1, 1), (64, 1, 1), 0, struct.pack("<QQi", p, o, 0))  # both groups write o, the same values
    assert len(driver.notes) == 1 and "several waves store the same value" in driver.notes[0]
    differ = kernel("""  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %b = getelementptr i32, ptr addrspace(1) %o, i32 %t
  store i32 %g, ptr addrspace(1) %b
  ret void""")
    driver, k = function(differ, "gfx942", check="race")
    p, o = upload(driver, np.ones(64, np.float32)), upload(driver, np.full(64, 7, np.int32))
    with pytest.raises(KernelFault, match="race") as e:
        driver.launch(k, (2, 1, 1), (64, 1, 1), 0, struct.pack("<QQi", p, o, 0))
    # The other side's line is this one's.
    assert f"line {e.value.fault.line}: global_store_dword" in e.value.fault.detail
    atomic = kernel("""  %b = getelementptr i32, ptr addrspace(1) %o, i32 %t
  %x = atomicrmw add ptr addrspace(1) %b, i32 1 syncscope("agent") monotonic
  ret void""")
    driver, k = function(atomic, "gfx942", check="race")
    z = upload(driver, np.zeros(64, np.int32))
    driver.launch(k, (5, 1, 1), (64, 1, 1), 0, struct.pack("<QQi", p, z, 0))
    assert (download(driver, z, np.zeros(64, np.int32)) == 5).all()


def test_uninitialized_reads() -> None:
    driver, k = function(COPY, "gfx942", check="init")
    p, o = driver.alloc(0, 256), driver.alloc(0, 256)
    with pytest.raises(KernelFault, match="uninitialized"):
        driver.launch(k, (1, 1, 1), (64, 1, 1), 0, struct.pack("<QQi", p, o, 0))
    half = np.ones(32, np.float32)
    driver.copy_to_device(0, p, half.ctypes.data, half.nbytes)
    driver.launch(k, (1, 1, 1), (32, 1, 1), 0, struct.pack("<QQi", p, o, 0))
    driver.launch(k, (1, 1, 1), (32, 1, 1), 0, struct.pack("<QQi", o, p, 0))  # o's first half was written by the kernel
    with pytest.raises(KernelFault, match="uninitialized") as e:
        driver.launch(k, (1, 1, 1), (64, 1, 1), 0, struct.pack("<QQi", p, o, 0))
    assert e.value.fault.lane == 32
    lds = kernel("""  %b = getelementptr i32, ptr addrspace(3) @lds, i32 %t
  %x = load i32, ptr addrspace(3) %b
  %c = getelementptr i32, ptr addrspace(1) %o, i32 %t
  store i32 %x, ptr addrspace(1) %c
  ret void""", top="@lds = internal addrspace(3) global [256 x i32] poison\n")  # fmt: skip
    lds = lds.replace(
        "  %b = ",
        "  %z = getelementptr i32, ptr addrspace(3) @lds, i32 %n\n  store i32 0, ptr addrspace(3) %z\n  %b = ",
    )
    driver, k = function(lds, "gfx942", check="init")
    with pytest.raises(KernelFault, match="uninitialized"):
        driver.launch(k, (1, 1, 1), (64, 1, 1), 0, struct.pack("<QQi", p, o, 0))


@pytest.mark.parametrize("chip", [*CHIPS, "gfx1200"])
def test_missing_wait(chip: str) -> None:
    asm, image = compile_ir(COPY, chip)
    driver = get_driver(chip, check="wait")
    k = driver.get_function(driver.load_module(0, image, asm), "k")  # LLVM's waits are enough
    lines = asm.split("\n")
    waits = [i for i, l in enumerate(lines) if "s_waitcnt" in l or "s_wait_" in l]
    assert len(waits) >= 2
    for i in waits:
        if "vscnt" in lines[i] or "alu" in lines[i]:
            continue
        broken = "\n".join(lines[:i] + lines[i + 1 :])
        with pytest.raises(EmulationError, match="missing wait"):
            driver.get_function(driver.load_module(0, image, broken), "k")
    assert k.info.name == "k"


def test_fails_closed() -> None:
    asm, image = compile_ir(COPY, "gfx942")
    driver = get_driver("gfx942")
    args = struct.pack("<QQi", *(upload(driver, np.zeros(64, np.float32)) for _ in range(2)), 0)
    for line, what in (
        ("v_frobnicate_b32 v0, v1", "opcode v_frobnicate_b32"),
        ("v_mov_b32 v1, v2 row_frob:3", "row_frob"),
        ("v_add_u32 v1, v2, v3 mul:2", "mul"),
        ("v_and_b32 v1, -v2, v3", "neg or abs"),
        ("s_mov_b32 s3, vccz_lo", "vccz_lo"),
        ("v_mfma_f32_32x32x2_f32 a[0:15], v0, v1, a[0:15] cbsz:2", "cbsz"),
        ("s_swappc_b64 s[30:31], s[4:5]", "s_swappc_b64"),
    ):
        broken = asm.replace("\ts_endpgm", f"\t{line}\n\ts_endpgm", 1)
        with pytest.raises(EmulationError, match=what) as e:
            k = driver.get_function(driver.load_module(0, image, broken), "k")
            driver.launch(k, (1, 1, 1), (64, 1, 1), 0, args)
        assert e.value.kernel == "k" and line in str(e.value)


def test_bad_launches() -> None:
    driver, k = function(COPY, "gfx942")
    args = struct.pack("<QQi", *(upload(driver, np.zeros(64, np.float32)) for _ in range(2)), 0)
    for grid, block, shared, kernargs, what in (
        ((0, 1, 1), (64, 1, 1), 0, args, "grid"),
        ((1, 1, 1), (0, 1, 1), 0, args, "work-group"),
        ((1, 1, 1), (2048, 1, 1), 0, args, "1024"),
        ((1, 1, 1), (512, 1, 1), 0, args, "at most 256"),
        ((1, 1, 1), (64, 1, 1), 70000, args, "LDS"),
        ((1, 1, 1), (64, 1, 1), 0, args[:-8], "parameters take 20"),
        ((1, 1, 1), (64, 1, 1), 0, args + bytes(64), "parameters take 20"),
    ):
        with pytest.raises(EmulationError, match=what):
            driver.launch(k, grid, block, shared, kernargs)
    asm, image = compile_ir(COPY, "gfx942")
    with pytest.raises(EmulationError, match="cannot run on gfx90a"):
        get_driver("gfx90a").load_module(0, image, asm)
    assert driver.get_function(driver.load_module(0, image, None), "k").text.insts  # from the machine code
    with pytest.raises(EmulationError, match="no kernel 'missing'"):
        driver.get_function(driver.load_module(0, image, asm), "missing")
    with pytest.raises(DeviceError, match="damaged code object"):
        driver.load_module(0, image[:200], asm)
    with pytest.raises(DeviceError, match="no emulated chip"):
        get_driver("gfx1")
    with pytest.raises(DeviceError, match="no emulator check"):
        get_driver("gfx942", check="bound")


def test_a_loop_that_does_not_end_is_told_with_its_lines():
    """Those of the assembly, and of the source where `.loc` names them."""
    body = '.file 1 "/src" "k.hip"\n.loc 1 4\nv_mov_b32_e32 v3, 0\n.Lloop:\n.loc 1 5\nv_add_u32_e32 v3, 1, v3\n.loc 1 7\ns_cmp_eq_u32 s8, 0\ns_cbranch_scc1 .Lloop'
    asm = text("gfx942", body)
    first, last = (
        1 + next(i for i, line in enumerate(asm.split("\n")) if word in line) for word in ("v_add_u32", "s_cbranch")
    )
    driver = get_driver("gfx942", budget=100_000)
    kernel = driver.get_function(driver.load_module(0, image("gfx942"), asm), "k")
    p = driver.alloc(0, 4096)
    told = rf"budget of 100000 is spent by wave 0 of work-group \(0, 0, 0\), in the loop of lines {first} to {last}, from .*k.hip:5 to 7: "
    with pytest.raises(EmulationError, match=told) as e:
        driver.launch(kernel, (1, 1, 1), (128, 1, 1), 0, struct.pack("<QQi", p, p, 0))
    assert e.value.line == last
    driver.free(0, p)


def test_code_objects_of_tomorrow_and_waves_of_another_size_are_refused():
    """By the version in the ELF header; by the lanes that descriptor and metadata say."""
    _, image = compile_ir(COPY, "gfx942")
    driver = get_driver("gfx942")
    newer = bytearray(image)
    newer[8] = 5
    with pytest.raises(EmulationError, match="code object version 7; versions to 6 are known"):
        driver.load_module(0, bytes(newer), None)
    for chip, told, what in (("gfx942", 32, "descriptor says waves of 64 lanes, its metadata 32"), ("gfx1100", 64, "waves of 32 lanes, its metadata 64")):  # fmt: skip
        _, image = compile_ir(COPY, chip)
        other = bytearray(image)
        at = image.index(b".wavefront_size") + len(b".wavefront_size")
        other[at] = told
        module = get_driver(chip).load_module(0, bytes(other), None)
        with pytest.raises(EmulationError, match=what):
            get_driver(chip).get_function(module, "k")
    info = replace(driver.load_module(0, compile_ir(COPY, "gfx942")[1], None).code.kernels["k"], wavefront_size=32)
    with pytest.raises(EmulationError, match="its waves have 32 lanes; gfx942's have 64"):
        check_wave(driver.chip, info)


def test_a_function_is_modelled_on_the_product_that_it_is_built_for():
    n = 1 << 24
    A = tec.te.placeholder((n,), name="A")
    B = tec.te.compute((n,), lambda i: A[i] * 2.0)

    def us(target, **more):
        s = tec.topi.schedule(B, target).schedule
        (launch,) = tec.model(tec.build(s, [A, B], target), [((n,), "float32")] * 2, **more).launches
        return launch.estimate.microseconds

    assert us("mi325x") == us("mi300x", product="MI325X") < us("mi300x")  # by its memory's bandwidth
    with pytest.raises(ArgumentError, match=r"not a function(?s:.*)tec\.profile"):
        tec.model(us, [])


def test_a_product_is_its_chip_with_its_own_figures():
    assert get_driver("mi325x").chip.name == "gfx942" and get_driver("mi325x").chip.product == "MI325X"
    assert get_driver("RX 7900 XTX").chip.name == "gfx1100" and get_driver("gfx942").chip.product == "MI300X"


def test_endless_loop_spends_its_budget() -> None:
    ir = kernel("""  br label %loop
loop:
  store volatile i32 1, ptr addrspace(1) %o
  br label %loop""")
    driver, k = function(ir, "gfx942", budget=100000)
    o = upload(driver, np.zeros(1, np.int32))
    with pytest.raises(EmulationError, match="budget"):
        driver.launch(k, (1, 1, 1), (64, 1, 1), 0, struct.pack("<QQi", o, o, 0))


def test_several_launches_agree_with_one_thread() -> None:
    ir = kernel("""  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %b = mul i32 %g, 256
  %i = add i32 %b, %t
  %a = getelementptr i32, ptr addrspace(1) %o, i32 %i
  %v = mul i32 %i, %i
  store i32 %v, ptr addrspace(1) %a
  ret void""")
    for threads in (1, 3):
        driver, k = function(ir, "gfx942", threads=threads)
        o = upload(driver, np.zeros(256 * 64, np.int32))
        driver.launch(k, (64, 1, 1), (256, 1, 1), 0, struct.pack("<QQi", o, o, 0))
        want = (np.arange(256 * 64, dtype=np.int64) ** 2).astype(np.uint32).view(np.int32)
        assert (download(driver, o, np.zeros(256 * 64, np.int32)) == want).all()


def test_each_translation_has_its_modifiers() -> None:
    """A kernel is translated once for whole waves and once for partial ones; both must see every modifier."""
    ir = kernel("""  %a = getelementptr float, ptr addrspace(1) %p, i32 %t
  %x = load float, ptr addrspace(1) %a
  %y = call float asm sideeffect "v_add_f32 $0, -|$1|, $1 clamp", "=v,v"(float %x)
  %z = fadd float %y, 1.0
  %b = getelementptr float, ptr addrspace(1) %o, i32 %t
  store float %z, ptr addrspace(1) %b
  ret void""")
    driver, k = function(ir, "gfx942")
    x = np.linspace(-2, 2, 64, dtype=np.float32)
    p, o = upload(driver, x), upload(driver, x)
    want = np.clip(x - np.abs(x), 0, 1) + 1
    for block in (64, 48, 64):
        driver.launch(k, (1, 1, 1), (block, 1, 1), 0, struct.pack("<QQi", p, o, 0))
        assert (download(driver, o, x)[:block] == want[:block]).all()


def test_an_overrun_is_told_where_another_array_lay_before() -> None:
    driver, k = function(COPY, "gfx942")
    big = upload(driver, np.ones(1 << 16, np.float32))
    driver.free(0, big)
    p, o = upload(driver, np.ones(64, np.float32)), upload(driver, np.zeros(64, np.float32))
    with pytest.raises(KernelFault, match="0 bytes past the end of"):
        driver.launch(k, (1, 1, 1), (64, 1, 1), 0, struct.pack("<QQi", p, o, 4))
