"""Scalar loads that no lane is there for; registers beyond the declared count."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tec.emulator import get_driver
from tec.emulator.analyses.calls import parse_kernel
from tec.emulator.checks.hazards import check_hazards
from tec.emulator.chips import CHIPS
from tec.emulator.decode.disassemble import decoder
from tec.emulator.decode.inst import KernelText
from tec.emulator.errors import EmulationError, KernelFault
from tec.emulator.isa import opcodes
from tests.thinned import thinned

from .harness import compile_ir, download, upload
from .planted import launch

GUARDED = """define amdgpu_kernel void @k(ptr addrspace(1) %o, ptr addrspace(4) %p, i32 %n) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %c = icmp ult i32 %t, %n
  br i1 %c, label %go, label %end
go:
  %far = getelementptr i8, ptr addrspace(4) %p, i32 OFFSET
  %x = load i32, ptr addrspace(4) %far
  %q = getelementptr i32, ptr addrspace(1) %o, i32 %t
  store i32 %x, ptr addrspace(1) %q
  br label %end
end:
  ret void
}
declare i32 @llvm.amdgcn.workitem.id.x()
attributes #0 = { "amdgpu-flat-work-group-size"="64,64" "amdgpu-no-implicitarg-ptr" }"""


@thinned(1, ("check", ["bounds", "race,init,wait,registers"]), ("chip", ["gfx942", "gfx1100"]))
def test_scalar_load_that_no_lane_is_there_for(chip: str, check: str) -> None:
    """Code within reach of a branch that no lane takes runs with EXEC = 0: a load past its array is no fault there, and is one elsewhere."""
    for offset, lanes, faults in ((1 << 30, 0, False), (1 << 30, 5, True), (4, 5, False)):
        asm, image = compile_ir(GUARDED.replace("OFFSET", str(offset)), chip)
        driver = get_driver(chip, check=check)
        through = re.sub(r"s_cbranch_execz \S+", "s_nop 0", asm)
        assert through != asm
        function = driver.get_function(driver.load_module(0, image, through), "k")
        out = np.full(64, 7, np.int32)
        o, p = upload(driver, out), upload(driver, np.arange(16, dtype=np.int32))
        arguments = np.array([o, p], np.uint64).tobytes() + np.array([lanes, 0], np.int32).tobytes()
        if faults:
            with pytest.raises(KernelFault, match="out of bounds"):
                driver.launch(function, (1, 1, 1), (64, 1, 1), 0, arguments)
            continue
        driver.launch(function, (1, 1, 1), (64, 1, 1), 0, arguments)
        np.testing.assert_array_equal(download(driver, o, out), np.where(np.arange(64) < lanes, 1, 7))


@pytest.mark.parametrize(("chip", "file"), [("gfx942", "v"), ("gfx942", "a"), ("gfx1100", "v")])
def test_register_beyond_the_declared_count(chip: str, file: str) -> None:
    asm, image = compile_ir(GUARDED.replace("OFFSET", "4"), chip)
    driver = get_driver(chip, check="registers")
    driver.get_function(driver.load_module(0, image, asm), "k")
    line = "v_accvgpr_write_b32 a200, v0" if file == "a" else "v_mov_b32_e32 v200, v0"
    wrong = asm.replace("\ts_endpgm", f"\t{line}\n\ts_endpgm", 1)
    with pytest.raises(EmulationError, match=f"register {file}200 is beyond the \\d+ that the kernel declares"):
        driver.get_function(driver.load_module(0, image, wrong), "k")


STORES = """@lds = internal addrspace(3) global [64 x i32] undef
define amdgpu_kernel void @k(ptr addrspace(1) %o, i32 %step) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %lane = and i32 %t, 63
  %wave = lshr i32 %t, 6
  %more = mul i32 %wave, %step
  %v = add i32 %lane, %more
  %p = getelementptr [64 x i32], ptr addrspace(3) @lds, i32 0, i32 %lane
  store i32 %v, ptr addrspace(3) %p
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %x = load i32, ptr addrspace(3) %p
  %q = getelementptr i32, ptr addrspace(1) %o, i32 %t
  store i32 %x, ptr addrspace(1) %q
  ret void
}
declare i32 @llvm.amdgcn.workitem.id.x()
declare void @llvm.amdgcn.s.barrier()
attributes #0 = { "amdgpu-flat-work-group-size"="256,256" "amdgpu-no-implicitarg-ptr" }"""


@thinned(1, ("check", ["race", "race,init"]), ("chip", ["gfx942", "gfx1100"]))
def test_equal_values_stored_by_several_waves(chip: str, check: str) -> None:
    """Four waves (eight) store to the same words of LDS: a race where the values differ, none where they are equal."""
    asm, image = compile_ir(STORES, chip)
    driver = get_driver(chip, check=check)
    function = driver.get_function(driver.load_module(0, image, asm), "k")
    out = np.zeros(256, np.int32)
    o = upload(driver, out)
    for step in (0, 1):
        arguments = np.array([o], np.uint64).tobytes() + np.array([step, 0], np.int32).tobytes()
        if step:
            with pytest.raises(KernelFault, match=r"race(.|\n)*in LDS; the other access: a store by wave"):
                driver.launch(function, (1, 1, 1), (256, 1, 1), 0, arguments)
        else:
            driver.launch(function, (1, 1, 1), (256, 1, 1), 0, arguments)
            np.testing.assert_array_equal(download(driver, o, out), np.arange(256) % 64)


def test_a_scalar_load_by_the_words_of_a_resource() -> None:
    """An address with only its highest bit set, as the words of a scratch resource make one, is out of bounds like any other."""
    for address in (1 << 63, (1 << 64) - 4, 0):
        with pytest.raises(KernelFault, match="out of bounds"):
            launch("gfx942", f"s_mov_b32 s12, {address & 0xFFFFFFFF:#x}\ns_mov_b32 s13, {address >> 32:#x}\ns_load_dword s14, s[12:13], 0x0\ns_waitcnt lgkmcnt(0)", "bounds", 1, 64, False, 0)  # fmt: skip


_FLOAT_ADD = """
define amdgpu_kernel void @k(ptr addrspace(1) %p) #0 {
  %o = atomicrmw fadd ptr addrspace(1) %p, double 1.0 syncscope("agent") monotonic
  ret void
}
attributes #0 = { "amdgpu-flat-work-group-size"="32,32" "amdgpu-no-implicitarg-ptr" }"""


def test_the_first_guess_of_a_compare_and_swap_is_no_race() -> None:
    """gfx1100 adds no doubles in memory: LLVM writes a plain load, then a loop of compare and swap, which checks what was loaded."""
    asm, image = compile_ir(_FLOAT_ADD, "gfx1100")
    assert "cmpswap" in asm and "global_atomic_add_f64" not in asm
    driver = get_driver("gfx1100", check="race,init,wait")
    p = upload(driver, np.zeros(1))
    kernel = driver.get_function(driver.load_module(0, image, asm), "k")
    driver.launch(kernel, (3, 1, 1), (32, 1, 1), 0, p.to_bytes(8, "little"))
    assert download(driver, p, np.zeros(1))[0] == 96


def test_a_first_guess_whose_address_is_written_in_another_way_is_no_race() -> None:
    """The load by a scalar base and an offset, the swap by a pair of registers, as LLVM writes Triton's additions on gfx1100."""
    body = """v_mov_b32_e32 v8, 1
global_load_b32 v7, v1, s[6:7]
v_add_co_u32 v4, s12, s6, v1
v_add_co_ci_u32_e64 v5, null, s7, 0, s12
s_waitcnt vmcnt(0)
s_mov_b32 s13, 0
.Lloop:
v_add_nc_u32_e32 v6, v7, v8
global_atomic_cmpswap_b32 v6, v[4:5], v[6:7], off glc
s_waitcnt vmcnt(0)
buffer_gl1_inv
buffer_gl0_inv
v_cmp_eq_u32_e32 vcc_lo, v6, v7
v_mov_b32_e32 v7, v6
s_or_b32 s13, vcc_lo, s13
s_and_not1_b32 exec_lo, exec_lo, s13
s_cbranch_execnz .Lloop"""
    launch("gfx1100", body, "all", 5, 32, False, 0)
    stored = body.replace("global_load_b32 v7, v1", "global_load_b32 v9, v1").replace(
        "v_add_co_u32 v4", "v_mov_b32_e32 v7, 3\nv_add_co_u32 v4"
    )
    with pytest.raises(KernelFault, match="race"):  # a load of what the swap does not check
        launch("gfx1100", stored, "race", 5, 32, False, 0)


@pytest.mark.parametrize("name", ["v_mfma_f32_16x16x4_f32", "v_mfma_f32_16x16x4f32"])
def test_products_of_f32_by_either_name_need_a_state_less(name: str) -> None:
    """On gfx942 their 8 passes and 2 states, not 3: LLVM puts s_nop 9 behind them."""
    opcodes.load()

    def program(nops: int) -> KernelText:
        lines = [
            f"{name} v[0:3], v4, v5, v[0:3]",
            f"s_nop {nops}",
            "global_store_dword v[8:9], v0, off",
            "s_endpgm",
            ".Lfunc_end0:",
        ]
        return parse_kernel("k:\n" + "\n".join(lines), "k")

    check_hazards(program(9), CHIPS["gfx942"])
    with pytest.raises(EmulationError, match="v0 needs 10 wait states between, and has 9"):
        check_hazards(program(8), CHIPS["gfx942"])


@pytest.mark.parametrize("after,states", [("v_accvgpr_read_b32 v8, a0", 10), ("v_accvgpr_write_b32 a0, v8", 7)])
def test_results_in_accumulation_registers_of_cdna1(after: str, states: int) -> None:
    """They may be read a wait state sooner than on CDNA 2, and overwritten sooner still."""
    opcodes.load()

    def program(between: int) -> KernelText:
        lines = [
            "v_mfma_f32_16x16x16f16 a[0:3], v[4:5], v[6:7], a[0:3]",
            *["s_nop 0"] * between,
            after,
            "s_endpgm",
            ".Lfunc_end0:",
        ]
        return parse_kernel("k:\n" + "\n".join(lines), "k")

    check_hazards(program(states), CHIPS["gfx908"])
    with pytest.raises(EmulationError, match=f"a0 needs {states} wait states between, and has {states - 1}"):
        check_hazards(program(states - 1), CHIPS["gfx908"])


def test_a_decoded_chain_of_products_needs_no_states() -> None:
    """In machine code the accumulator and the result are one operand; the accumulator may follow at once, A and B may not."""
    opcodes.load()

    def chain(second: str) -> KernelText:
        code = decoder("gfx942", bytes.fromhex("0400e1d328911204" + second + "000081bf"))
        insts = [code.next() for _ in range(3)]
        assert insts[1].text.startswith("v_mfma_f32_16x16x16")
        return KernelText("k", insts, {})

    check_hazards(chain("0400e1d328911204"), CHIPS["gfx942"])  # v[4:7], v[40:41], v[72:73], v[4:7], twice
    with pytest.raises(EmulationError, match=r"v4 needs 7 wait states between, and has 0.*as A or B"):
        check_hazards(chain("0800e1d304911204"), CHIPS["gfx942"])  # v[8:11], v[4:5], v[72:73], v[4:7]
