"""Kernels in assembly, each with one bug that people make; the line that is wrong ends in `; BUG`.

Registers at the start of a body: s[4:5] the first array, s[6:7] the second, s8 a number, s2 the work-group (s9 on RDNA too), v0 the work-item,
v1 four times it, v2 = 0. Waves of 64 lanes on gfx9, of 32 on RDNA.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tec.emulator import get_driver

from .harness import compile_ir, upload


@dataclass(frozen=True)
class Bug:
    name: str
    said: str  # what the message must say (a regular expression)
    body: str
    chip: str = "gfx942"
    check: str = "all"
    grid: int = 1
    block: int = 128
    fresh: bool = False  # the first array was never written
    n: int = 0


_HEAD = {
    "gfx9": """	s_load_dwordx4 s[4:7], s[0:1], 0x0
	s_load_dword s8, s[0:1], 0x10
	s_waitcnt lgkmcnt(0)
	v_and_b32_e32 v0, 0x3ff, v0
	v_lshlrev_b32_e32 v1, 2, v0
	v_mov_b32_e32 v2, 0
	s_nop 1
""",
    "gfx11": """	s_mov_b32 s9, s15
	s_clause 0x1
	s_load_b128 s[4:7], s[0:1], 0x0
	s_load_b32 s8, s[0:1], 0x10
	s_waitcnt lgkmcnt(0)
	v_and_b32_e32 v0, 0x3ff, v0
	v_lshlrev_b32_e32 v1, 2, v0
	v_mov_b32_e32 v2, 0
	s_nop 1
""",
    "gfx12": """	s_mov_b32 s9, ttmp9
	s_clause 0x1
	s_load_b128 s[4:7], s[0:1], 0x0
	s_load_b32 s8, s[0:1], 0x10
	s_wait_kmcnt 0x0
	v_and_b32_e32 v0, 0x3ff, v0
	v_lshlrev_b32_e32 v1, 2, v0
	v_mov_b32_e32 v2, 0
	s_nop 1
""",
}


@cache
def image(chip: str) -> bytes:
    """A code object of a kernel with the registers that a body finds, 1 KiB of LDS and some 48 vector registers."""
    held = ", ".join(f"i32 %x{k}" for k in range(44))
    loads = "".join(
        f"  %q{k} = getelementptr i32, ptr addrspace(1) %p, i32 {1000 * k}\n  %x{k} = load volatile i32, ptr addrspace(1) %q{k}\n"
        for k in range(44)
    )
    asm = 'asm sideeffect "", "' + ",".join("v" for _ in range(44)) + '"'
    accumulators = '  call void asm sideeffect "", "~{a31}"()\n' if chip.startswith("gfx9") else ""
    ir = f"""@lds = internal addrspace(3) global [256 x i32] poison, align 16
define amdgpu_kernel void @k(ptr addrspace(1) %p, ptr addrspace(1) %o, i32 %n) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %l = getelementptr i32, ptr addrspace(3) @lds, i32 %t
  store volatile i32 %n, ptr addrspace(3) %l
{loads}  call void {asm}({held})
{accumulators}  %q = getelementptr i32, ptr addrspace(1) %o, i32 %g
  store volatile i32 %t, ptr addrspace(1) %q
  ret void
}}
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
attributes #0 = {{ "amdgpu-flat-work-group-size"="1,256" "amdgpu-no-implicitarg-ptr" }}"""
    return compile_ir(ir, chip)[1]


def text(chip: str, body: str) -> str:
    head = _HEAD["gfx9" if chip.startswith("gfx9") else "gfx12" if chip.startswith("gfx12") else "gfx11"]
    if chip == "gfx90a":  # a descriptor of scratch comes first
        head = "\ts_mov_b64 s[0:1], s[4:5]\n\ts_mov_b32 s2, s6\n" + head
    lines = [line if line.rstrip().endswith(":") else "\t" + line for line in body.strip().split("\n")]
    return (
        f'\t.amdgcn_target "amdgcn-amd-amdhsa--{chip}"\nk:\n{head}' + "\n".join(lines) + "\n\ts_endpgm\n.Lfunc_end0:\n"
    )


def marked(asm: str) -> int:
    found = [i + 1 for i, line in enumerate(asm.split("\n")) if line.rstrip().endswith("; BUG")]
    assert len(found) == 1, found
    return found[0]


def launch(
    chip: str, body: str, check: str, grid: int, block: int, fresh: bool, n: int, threads: int = 2, host_cpu: str = ""
) -> None:
    more: dict[str, Any] = {"host_cpu": host_cpu} if host_cpu else {}  # a driver is one for its options
    more["seed"] = None  # by their numbers: some of these show in an order alone
    driver = get_driver(chip, check=check, threads=threads, **more)
    function = driver.get_function(driver.load_module(0, image(chip), text(chip, body)), "k")
    p = driver.alloc(0, 4096) if fresh else upload(driver, np.arange(1024, dtype=np.int32))
    o = upload(driver, np.full(1024, -1, np.int32))
    try:
        driver.launch(function, (grid, 1, 1), (block, 1, 1), 0, struct.pack("<QQi", p, o, n))
    finally:
        driver.free(0, p)
        driver.free(0, o)


WAIT = "s_waitcnt vmcnt(0) lgkmcnt(0)\n"
_STORE = "global_store_dword v1, v3, s[6:7]"
_STORE11 = "global_store_b32 v1, v3, s[6:7]"

_ZERO = "".join(f"v_mov_b32_e32 v{k}, 0\n" for k in range(3, 44))
_LEFT = "s_nop 7\ns_nop 7\ns_nop 7\nglobal_store_dword v1, v0, s[6:7]"

# A pipeline of two stages of LDS: the first is read while the second is on its way.
_STAGE = "s_movk_i32 m0, 0x{stage}00\ns_nop 0\nglobal_load_lds_dword v1, s[4:5]\n"
_PIPELINE = f"{_STAGE.format(stage=0)}{_STAGE.format(stage=1)}s_waitcnt vmcnt({{left}})\nds_read_b32 v3, v1 ; BUG\n"
# Each of two waves fills its part of LDS; v4 is a place in the other's.
_FILL = "v_readfirstlane_b32 s12, v0\ns_lshl_b32 s12, s12, 2\ns_mov_b32 m0, s12\nv_xor_b32_e32 v4, 64, v0\nv_lshlrev_b32_e32 v4, 2, v4\nglobal_load_lds_dword v1, s[4:5]\n"

WAITS = [
    Bug("load_used_at_once", "missing wait", f"global_load_dword v3, v1, s[4:5]\nv_add_u32_e32 v3, 1, v3 ; BUG\n{_STORE}"),
    Bug("lds_read_used_at_once", "missing wait", f"ds_write_b32 v1, v0\nds_read_b32 v3, v1\nv_add_u32_e32 v3, 1, v3 ; BUG\n{_STORE}"),
    Bug("scalar_load_used_at_once", "missing wait", "s_load_dword s12, s[4:5], 0x0\ns_add_u32 s12, s12, 1 ; BUG"),
    Bug("lds_write_at_a_barrier", "LDS store may still be on its way", f"ds_write_b32 v1, v0\ns_barrier ; BUG\nds_read_b32 v3, v1\n{WAIT}{_STORE}"),
    Bug("waits_for_one_too_few", "missing wait", f"global_load_dword v4, v1, s[4:5]\nglobal_load_dword v3, v1, s[4:5]\ns_waitcnt vmcnt(1)\nv_add_u32_e32 v3, v3, v4 ; BUG\n{_STORE}"),
    Bug("waits_on_one_path", "missing wait", f"global_load_dword v3, v1, s[4:5]\ns_cmp_eq_u32 s8, 0\ns_cbranch_scc1 .Lon\ns_waitcnt vmcnt(0)\n.Lon:\nv_add_u32_e32 v3, 1, v3 ; BUG\n{_STORE}"),
    Bug("waits_for_the_other_counter", "missing wait", "global_load_b32 v3, v1, s[4:5]\ns_waitcnt lgkmcnt(0)\nv_add_nc_u32_e32 v3, 1, v3 ; BUG\nglobal_store_b32 v1, v3, s[6:7]", "gfx1100"),
    Bug("overwrites_what_is_on_its_way", "missing wait", f"global_load_dword v3, v1, s[4:5]\nv_mov_b32_e32 v3, 0 ; BUG\n{_STORE}"),
    Bug("load_straight_into_lds_read_at_once", r"missing wait: LDS is read.*line \d+: global_load_lds_dword", f"s_mov_b32 m0, 0\ns_nop 0\nglobal_load_lds_dword v1, s[4:5]\nds_read_b32 v3, v1 ; BUG\n{WAIT}{_STORE}", block=64),
    Bug("stores_have_a_counter_of_their_own_on_rdna", "missing wait", f"global_load_b32 v3, v1, s[4:5]\nglobal_store_b32 v1, v0, s[6:7]\ns_waitcnt vmcnt(1)\nv_add_nc_u32_e32 v3, 1, v3 ; BUG\n{_STORE11}", "gfx1100"),
    Bug("waits_for_stores_where_a_load_is_meant", "missing wait", f"global_load_b32 v3, v1, s[4:5]\ns_wait_storecnt 0x0\nv_add_nc_u32_e32 v3, 1, v3 ; BUG\n{_STORE11}", "gfx1201"),
    Bug("scalar_load_waited_for_as_a_vector_load", "missing wait", "s_load_b32 s12, s[4:5], 0x0\ns_wait_loadcnt 0x0\ns_add_co_u32 s12, s12, 1 ; BUG\nglobal_store_b32 v1, v0, s[6:7]", "gfx1201"),
    Bug("scalar_loads_return_out_of_order", "missing wait", f"s_load_dword s12, s[4:5], 0x0\ns_load_dword s13, s[4:5], 0x4\ns_waitcnt lgkmcnt(1)\ns_add_u32 s12, s12, 1 ; BUG\n{_LEFT}"),
    Bug("lds_read_feeds_a_matrix_instruction_at_once", "missing wait", f"{_ZERO}ds_write_b64 v1, v[2:3]\n{WAIT}ds_read_b64 v[4:5], v2\nv_mfma_f32_16x16x16_f16 v[16:19], v[4:5], v[6:7], v[16:19] ; BUG\n{WAIT}{_LEFT}", block=64),
    Bug("result_of_an_atomic_used_at_once", "missing wait", f"v_mov_b32_e32 v6, 1\nglobal_atomic_add v7, v2, v6, s[4:5] sc0\nv_add_u32_e32 v3, v7, v0 ; BUG\n{WAIT}{_STORE}", block=1),
    Bug("pipeline_waits_for_one_stage_too_few", r"missing wait: LDS is read.*wave 0 loads, line \d+: global_load_lds_dword", f"{_PIPELINE.format(left=2)}{WAIT}{_STORE}", block=64),
    Bug("last_stage_of_a_pipeline_not_waited_for", "missing wait: LDS is read.*wave 0 loads", f"{_PIPELINE.format(left=1).replace('; BUG', '')}{_STAGE.format(stage=2)}ds_read_b32 v4, v1 offset:512 ; BUG\n{WAIT}v_add_u32_e32 v3, v3, v4\n{_STORE}", block=64),
    Bug("wave_waits_behind_the_barrier", "missing wait: LDS is read.*wave [01] loads", f"{_FILL}s_barrier\ns_waitcnt vmcnt(0)\nds_read_b32 v3, v4 ; BUG\n{WAIT}{_STORE}", check="wait"),
    Bug("barrier_before_the_wait_of_a_later_stage", "missing wait: LDS is read.*wave [01] loads", f"{_FILL}s_waitcnt vmcnt(0)\ns_barrier\nds_read_b32 v3, v4\n{WAIT}s_barrier\nglobal_load_lds_dword v1, s[4:5]\ns_waitcnt vmcnt(1)\ns_barrier\nds_read_b32 v3, v4 ; BUG\n{WAIT}{_STORE}", check="wait"),
    Bug("async_copy_not_waited_for", "missing wait|may still be on its way", f"global_load_async_to_lds_b32 v1, v1, s[4:5]\ns_barrier_signal -1\ns_barrier_wait -1\nds_load_b32 v3, v1 ; BUG\ns_wait_dscnt 0x0\n{_STORE11}", "gfx1250"),
]  # fmt: skip

_MFMA = "v_mfma_f32_16x16x16_f16 v[16:19], v[4:5], v[6:7], v[16:19]\n"
_MFMA32 = "v_mfma_f32_32x32x8_f16 v[16:31], v[4:5], v[6:7], v[16:31]\n"

HAZARDS = [
    Bug("matrix_result_read", "hazard: v16 needs 7 wait states", f"{_ZERO}s_nop 1\n{_MFMA}s_nop 5\nv_add_f32_e32 v3, v16, v17 ; BUG\n{_LEFT}"),
    Bug("matrix_result_stored", "hazard: v16 needs 11 wait states", f"{_ZERO}s_nop 1\n{_MFMA32}s_nop 7\nglobal_store_dwordx4 v2, v[16:19], s[6:7] ; BUG\n{_LEFT}"),
    Bug("matrix_result_as_an_operand", "hazard: v16 needs 7 wait states", f"{_ZERO}s_nop 1\n{_MFMA}v_mfma_f32_16x16x16_f16 v[20:23], v[16:17], v[6:7], v[20:23] ; BUG\n{_LEFT}"),
    Bug("matrix_result_overwritten", "hazard: v17 needs 7 wait states", f"{_ZERO}s_nop 1\n{_MFMA}s_nop 2\nv_mov_b32_e32 v17, 0 ; BUG\n{_LEFT}"),
    Bug("matrix_result_read_on_cdna1", "hazard: a16 needs 10 wait states", f"{_ZERO}s_nop 1\nv_mfma_f32_16x16x16f16 a[16:19], v[4:5], v[6:7], a[16:19]\ns_nop 7\nv_accvgpr_read_b32 v3, a16 ; BUG\n{_LEFT}", "gfx908"),
    Bug("matrix_result_read_on_cdna2", "hazard: v16 needs 11 wait states", f"{_ZERO}s_nop 1\nv_mfma_f32_16x16x16f16 v[16:19], v[4:5], v[6:7], v[16:19]\ns_nop 7\nv_add_f32_e32 v3, v16, v17 ; BUG\n{_LEFT}", "gfx90a"),
    Bug("operand_of_a_matrix_instruction", "hazard: v42 needs 2 wait states", f"{_ZERO}v_mfma_f32_16x16x16_f16 v[16:19], v[42:43], v[6:7], v[16:19] ; BUG\n{_LEFT}"),
    Bug("fresh_scalar_in_a_vector_instruction", "hazard: s12 needs 2 wait states", f"v_readfirstlane_b32 s12, v2\nv_add_u32_e32 v3, s12, v0 ; BUG\n{_STORE}"),
    Bug("fresh_lane_number", "hazard: s12 needs 4 wait states", f"v_readfirstlane_b32 s12, v2\ns_nop 2\nv_readlane_b32 s13, v0, s12 ; BUG\n{_LEFT}"),
    Bug("fresh_vector_as_scalar", "hazard: v3 needs 1 wait states", f"v_mov_b32_e32 v3, 0\nv_readfirstlane_b32 s12, v3 ; BUG\n{_LEFT}"),
    Bug("fresh_vector_in_dpp", "hazard: v3 needs 2 wait states", f"v_mov_b32_e32 v3, v0\ns_nop 0\nv_mov_b32_dpp v4, v3 row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:1 ; BUG\n{_LEFT}"),
    Bug("fresh_vcc_in_div_fmas", "hazard: vcc needs 4 wait states", f"v_mov_b32_e32 v3, 1.0\nv_cmp_eq_u32_e32 vcc, 0, v0\ns_nop 1\nv_div_fmas_f32 v3, v3, v3, v3 ; BUG\n{_LEFT}"),
    Bug("transcendental_read_at_once", "hazard: v3 needs 1 wait states", f"v_mov_b32_e32 v3, 1.0\nv_rcp_f32_e32 v3, v3\nv_add_f32_e32 v3, 1.0, v3 ; BUG\n{_LEFT}"),
    Bug("data_of_a_wide_store_overwritten", "hazard: v5 needs 2 wait states", f"{_ZERO}v_lshlrev_b32_e32 v3, 4, v0\nglobal_store_dwordx4 v3, v[4:7], s[6:7]\nv_mov_b32_e32 v5, 1 ; BUG\ns_endpgm"),
    Bug("fresh_scalar_in_a_buffer_resource", "hazard: s14 needs 5 wait states", f"s_mov_b64 s[12:13], s[4:5]\ns_mov_b32 s15, 0x20000\nv_mov_b32_e32 v3, 0x1000\ns_nop 0\nv_readfirstlane_b32 s14, v3\nbuffer_load_dword v4, v1, s[12:15], 0 offen ; BUG\n{WAIT}{_LEFT}"),
    Bug("dot_product_read_at_once", "hazard: v3 needs 3 wait states", f"v_mov_b32_e32 v3, 0\nv_dot2_f32_f16 v3, v2, v2, v3\nv_add_f32_e32 v3, 1.0, v3 ; BUG\n{_LEFT}"),
    Bug("wmma_of_the_one_before", "hazard: v16 needs 1 wait states", f"{_ZERO}v_wmma_f32_16x16x16_f16 v[16:23], v[4:11], v[4:11], v[16:23]\nv_wmma_f32_16x16x16_f16 v[24:31], v[16:23], v[4:11], v[24:31] ; BUG\nglobal_store_b32 v1, v0, s[6:7]", "gfx1100"),
    Bug("fresh_mask_in_cndmask", "hazard: s12 needs 2 wait states", f"v_cmp_eq_u32_e64 s[12:13], 0, v0\nv_cndmask_b32_e64 v3, 0, 1, s[12:13] ; BUG\n{_STORE}"),
    Bug("exec_written_by_cmpx_before_readlane", "hazard: exec needs 4 wait states", f"v_mov_b32_e32 v3, v0\ns_nop 1\nv_cmpx_gt_u32_e32 40, v0\nv_readlane_b32 s12, v3, 3 ; BUG\n{_LEFT}"),
    Bug("mode_read_behind_its_write", "hazard", f"s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0\ns_getreg_b32 s12, hwreg(HW_REG_MODE, 4, 2) ; BUG\n{_LEFT}"),
    Bug("m0_fresh_at_a_load_into_lds", "hazard: m0 needs 1 wait states", f"s_mov_b32 m0, 0\nglobal_load_lds_dword v1, s[4:5] ; BUG\n{WAIT}{_LEFT}", block=64),
    Bug("float64_matrix_result_stored", "hazard: v16 needs 18 wait states", f"{_ZERO}s_nop 1\nv_mfma_f64_16x16x4_f64 v[16:23], v[4:5], v[6:7], v[16:23]\ns_nop 15\nglobal_store_dwordx4 v2, v[16:19], s[6:7] ; BUG\n{_LEFT}", block=64),
    Bug("part_of_a_result_as_the_accumulator", "hazard: v1[6-9] needs", f"{_ZERO}s_nop 1\nv_mfma_f32_16x16x16_f16 v[16:19], v[4:5], v[6:7], v[16:19]\nv_mfma_f32_16x16x16_f16 v[18:21], v[4:5], v[6:7], v[18:21] ; BUG\n{_LEFT}", block=64),
    Bug("matrix_result_behind_a_branch_taken", "hazard: v16 needs 7 wait states", f"{_ZERO}s_nop 1\nv_mfma_f32_16x16x16_f16 v[16:19], v[4:5], v[6:7], v[16:19]\ns_cmp_eq_u32 s8, 0\ns_cbranch_scc1 .Lon\ns_nop 7\n.Lon:\nv_add_f32_e32 v3, v16, v17 ; BUG\n{_LEFT}", block=64),
]  # fmt: skip

# The wave's number, from 0, in s12; a branch on SCC.
_WAVE = "v_readfirstlane_b32 s12, v0\ns_lshr_b32 s12, s12, 6\n"

# Lanes of even numbers alone, the others' in s[10:11].
_ODD = f"v_and_b32_e32 v3, 1, v0\nv_cmp_eq_u32_e32 vcc, 0, v3\ns_and_saveexec_b64 s[10:11], vcc\ns_xor_b64 s[10:11], exec, s[10:11]\ns_cbranch_execz .Lelse\nds_write_b32 v1, v0\n{WAIT}"
_STORE0 = "global_store_dword v1, v0, s[6:7]"

BARRIERS = [
    Bug("a_wave_skips_the_barrier", "ended without it", f"ds_write_b32 v1, v0\n{WAIT}{_WAVE}s_cmp_eq_u32 s12, 1\ns_cbranch_scc1 .Lend\ns_barrier ; BUG\n.Lend:"),
    Bug("a_wave_comes_once_less", "ended without it", f"ds_write_b32 v1, v0\n{WAIT}{_WAVE}s_add_u32 s12, s12, 1\n.Lloop:\ns_barrier ; BUG\ns_sub_u32 s12, s12, 1\ns_cmp_lg_u32 s12, 0\ns_cbranch_scc1 .Lloop"),
    Bug("waves_at_different_barriers", "at another barrier", f"{_WAVE}s_cmp_eq_u32 s12, 1\ns_cbranch_scc1 .Lother\ns_barrier\ns_branch .Lend\n.Lother:\ns_barrier ; BUG\n.Lend:"),
    Bug("both_sides_of_a_branch_of_lanes_have_a_barrier", "lanes of one wave at different barriers.*lane 1 of wave 0", f"{_ODD}s_barrier\n.Lelse:\ns_or_saveexec_b64 s[10:11], s[10:11]\ns_xor_b64 exec, exec, s[10:11]\ns_cbranch_execz .Ljoin\ns_barrier ; BUG\n.Ljoin:\ns_or_b64 exec, exec, s[10:11]\n{_STORE0}"),
    Bug("some_lanes_come_to_a_barrier_more", "lanes of one wave at different barriers", f"{_ODD}s_barrier\n.Lelse:\ns_or_b64 exec, exec, s[10:11]\ns_barrier ; BUG\n{_STORE0}", block=64),
]  # fmt: skip

_OTHER = "v_xor_b32_e32 v4, 64, v0\nv_lshlrev_b32_e32 v4, 2, v4\n"  # the same lane of the other wave
_MINE = "v_mov_b32_e32 v5, s2\nv_lshlrev_b32_e32 v5, 2, v5\n"  # four times the work-group
# Store a value of the group's own at o[group], then count at p[0]; the group that counts last (s8 groups) goes on.
_COUNT = "v_mov_b32_e32 v6, 1\n"
_CALL_IN = "global_atomic_add v7, v2, v6, s[4:5] sc0\ns_waitcnt vmcnt(0)\n"
_LAST = "v_readfirstlane_b32 s12, v7\ns_nop 4\ns_cmp_lg_u32 s12, s8\ns_cbranch_scc1 .Lend\n"

RACES = [
    Bug("no_barrier_before_the_read", r"a load by wave 0 of work-group \(0, 0, 0\), line \d+: ds_read_b32 v3, v4", f"{_OTHER}ds_write_b32 v1, v0 ; BUG\n{WAIT}ds_read_b32 v3, v4\n{WAIT}{_STORE}", check="race"),
    Bug("no_barrier_before_the_next_write", r"a store by wave 0 of work-group \(0, 0, 0\), line \d+: ds_write_b32 v1, v1", f"{_OTHER}ds_write_b32 v1, v0\n{WAIT}s_barrier\nds_read_b32 v3, v4 ; BUG\n{WAIT}ds_write_b32 v1, v1\n{_STORE}"),
    Bug("two_waves_store_to_one_word_of_lds", "a store by wave 0", f"v_and_b32_e32 v4, 63, v0\nv_lshlrev_b32_e32 v4, 2, v4\nds_write_b32 v4, v0 ; BUG\n{WAIT}"),
    Bug("two_groups_store_to_one_word", "a store by wave", "v_mov_b32_e32 v3, s2\ns_nop 1\nglobal_store_dword v1, v3, s[6:7] ; BUG", grid=2),
    Bug("reads_what_another_group_writes", r"a load by wave 0 of work-group \(0, 0, 0\), line \d+: global_load_dword v3, v7", f"{_MINE}v_mov_b32_e32 v6, s2\nglobal_store_dword v5, v6, s[6:7] ; BUG\nv_xor_b32_e32 v7, 4, v5\nglobal_load_dword v3, v7, s[6:7]\n{WAIT}", grid=2, block=1, check="race"),
    Bug("scalar_load_of_what_another_group_stored", r"a store by wave 0 of work-group \(0, 0, 0\), line \d+: global_store_dword v2, v6", f"v_mov_b32_e32 v6, 5\ns_cmp_lg_u32 s2, 0\ns_cbranch_scc1 .Lread\nglobal_store_dword v2, v6, s[6:7] offset:8\ns_endpgm\n.Lread:\ns_load_dwordx4 s[12:15], s[6:7], 0x0 ; BUG\n{WAIT}", grid=2, block=1, check="race"),
    Bug("stores_what_another_group_loads_by_scalars", r"a load by wave 0 of work-group \(0, 0, 0\), line \d+: s_load_dwordx8 s\[12:19\]", f"v_mov_b32_e32 v6, 5\ns_cmp_lg_u32 s2, 0\ns_cbranch_scc1 .Lwrite\ns_load_dwordx8 s[12:19], s[6:7], 0x20\n{WAIT}s_endpgm\n.Lwrite:\nglobal_store_dword v2, v6, s[6:7] offset:60 ; BUG", grid=2, block=1, check="race"),
    Bug("scalar_load_without_a_barrier", r"a store by wave 0 of work-group \(0, 0, 0\), line \d+: global_store_dword v1, v0", f"{_WAVE}global_store_dword v1, v0, s[6:7]\n{WAIT}s_cmp_eq_u32 s12, 0\ns_cbranch_scc1 .Lend\ns_load_dword s13, s[6:7], 0x10 ; BUG\n{WAIT}.Lend:"),
    Bug("scalar_load_from_a_buffer", r"a store by wave 0 of work-group \(0, 0, 0\), line \d+: global_store_b32 v2, v6", "v_mov_b32_e32 v6, 5\ns_cmp_lg_u32 s9, 0\ns_cbranch_scc1 .Lread\nglobal_store_b32 v2, v6, s[6:7] offset:4\ns_endpgm\n.Lread:\ns_mov_b64 s[12:13], s[6:7]\ns_mov_b32 s14, 64\ns_mov_b32 s15, 0x31016000\ns_buffer_load_b64 s[16:17], s[12:15], 0x0 ; BUG\ns_waitcnt lgkmcnt(0)", chip="gfx1100", grid=2, block=1, check="race"),
    Bug("lanes_store_to_one_word_of_lds", "lanes of one wave store different values to one word.*; lane", f"v_and_b32_e32 v4, 60, v1\nds_write_b32 v4, v0 ; BUG\n{WAIT}", block=64),
    Bug("lanes_store_to_one_word", "lanes of one wave store different values to one word", "v_lshrrev_b32_e32 v4, 1, v0\nv_lshlrev_b32_e32 v4, 2, v4\nglobal_store_dword v4, v0, s[6:7] ; BUG", block=64),
    Bug("halves_of_lanes_overlap", "lanes of one wave store different values to one word", "v_lshlrev_b32_e32 v4, 1, v0\nv_mov_b32_e32 v5, v0\nglobal_store_dword v4, v5, s[6:7] ; BUG", block=64, check="race"),
    Bug("adds_without_an_atomic", "an atomic by wave|a store by wave|a load by", f"v_mov_b32_e32 v6, 1\nglobal_load_dword v3, v2, s[6:7] ; BUG\n{WAIT}v_add_u32_e32 v3, s2, v3\nglobal_store_dword v2, v3, s[6:7]", grid=3, block=1),
    Bug("last_group_reads_too_early", "a store by wave", f"{_MINE}{_COUNT}v_mov_b32_e32 v3, s2\nglobal_store_dword v5, v3, s[6:7]\n{_CALL_IN}buffer_inv sc1\n{_LAST}global_load_dword v8, v2, s[6:7] ; BUG\n{WAIT}.Lend:", grid=3, block=1, n=2, check="race"),
    Bug("last_group_does_not_drop_its_cache", "a store by wave", f"{_MINE}{_COUNT}v_mov_b32_e32 v3, s2\nglobal_store_dword v5, v3, s[6:7]\n{WAIT}buffer_wbl2 sc1\n{WAIT}{_CALL_IN}{_LAST}global_load_dword v8, v2, s[6:7] ; BUG\n{WAIT}.Lend:", grid=3, block=1, n=2, check="race"),
    Bug("atomic_and_a_plain_store_of_lds", "race|atomic", f"ds_write_b32 v1, v2\n{WAIT}s_barrier\nv_mov_b32_e32 v6, 7\nv_and_b32_e32 v4, 63, v0\nv_lshlrev_b32_e32 v4, 2, v4\n{_WAVE}s_cmp_eq_u32 s12, 0\ns_cbranch_scc1 .La\nds_write_b32 v4, v0 ; BUG\n{WAIT}s_branch .Lend\n.La:\nds_add_u32 v4, v6\n{WAIT}.Lend:"),
    Bug("sum_of_atomics_read_without_a_barrier", "race", f"v_mov_b32_e32 v6, 1\nds_write_b32 v1, v2\n{WAIT}s_barrier\nds_add_u32 v2, v6 ; BUG\n{WAIT}ds_read_b32 v3, v2\n{WAIT}{_STORE}", check="race"),
    Bug("byte_of_a_word_that_another_group_loads", "race", f"v_mov_b32_e32 v6, 5\ns_cmp_lg_u32 s2, 0\ns_cbranch_scc1 .Lread\nglobal_store_byte v2, v6, s[6:7] offset:6\ns_endpgm\n.Lread:\nglobal_load_dword v3, v2, s[6:7] offset:4 ; BUG\n{WAIT}", grid=2, block=1, check="race"),
    Bug("one_buffer_where_two_are_needed", "race", f"{_OTHER}s_mov_b32 s12, 2\n.Lloop:\nds_write_b32 v1, v0\n{WAIT}s_barrier\nds_read_b32 v3, v4 ; BUG\n{WAIT}s_sub_u32 s12, s12, 1\ns_cmp_lg_u32 s12, 0\ns_cbranch_scc1 .Lloop\n{_STORE}", check="race"),
    Bug("wave32_where_64_lanes_in_step_are_assumed", "race", "v_xor_b32_e32 v4, 0x80, v1\nds_store_b32 v1, v0 ; BUG\ns_waitcnt lgkmcnt(0)\nds_load_b32 v3, v4\ns_waitcnt lgkmcnt(0)\n"+_STORE11,"gfx1100", block=64, check="race"),
]  # fmt: skip

MEMORY = [
    Bug("load_past_the_end", "out of bounds", f"v_add_u32_e32 v4, 0x1000, v1\nglobal_load_dword v3, v4, s[4:5] ; BUG\n{WAIT}{_STORE}"),
    Bug("store_before_the_start", "out of bounds", "v_mov_b32_e32 v4, -4\nv_mov_b32_e32 v5, -1\nv_mov_b32_e32 v6, s6\nv_mov_b32_e32 v7, s7\ns_nop 1\nv_add_co_u32_e32 v4, vcc, v4, v6\ns_nop 1\nv_addc_co_u32_e32 v5, vcc, v5, v7, vcc\nglobal_store_dword v[4:5], v0, off ; BUG", block=1),
    Bug("null_pointer", "null pointer", "v_mov_b32_e32 v4, 0\nv_mov_b32_e32 v5, 0\nglobal_load_dword v3, v[4:5], off ; BUG\ns_waitcnt vmcnt(0)"),
    Bug("lds_past_the_end", "LDS access out of bounds", f"v_add_u32_e32 v4, 0x300, v1\nds_write_b32 v4, v0 ; BUG\n{WAIT}"),
    Bug("index_runs_into_the_next_array_of_lds", r"across arrays.*lane 63 of wave 1.*byte 512 of LDS, .*array 1 \(from 512 on\), the lowest lane's at byte 260, in array 0", f"; LDS arrays of k: 0 512\nds_write_b32 v1, v0 offset:4 ; BUG\n{WAIT}"),
    Bug("load_begins_before_its_array_of_lds", "across arrays.*lane 1 of wave 0.*the lowest lane's at byte 508, in array 0", f"; LDS arrays of k: 0 512\nds_write_b32 v1, v0\n{WAIT}s_barrier\nv_add_u32_e32 v3, 0x1fc, v1\nds_read_b32 v4, v3 ; BUG\n{WAIT}", check="arrays"),
    Bug("wide_store_ends_in_the_next_array_of_lds", "across arrays.*lane 0 of wave 0", f"; LDS arrays of k: 0 16 24\nv_mov_b32_e32 v3, 0\nds_write_b64 v2, v[2:3] offset:12 ; BUG\n{WAIT}", check="arrays", block=1),
    Bug("wide_lds_read_off_its_alignment", "misaligned LDS access", f"ds_write_b32 v1, v0\n{WAIT}ds_read_b128 v[4:7], v1 ; BUG\n{WAIT}", block=2, check="align"),
    Bug("register_never_written_is_stored", "uninitialized value stored", "global_store_dword v1, v7, s[6:7] ; BUG"),
    Bug("lds_never_written_is_stored", "uninitialized value stored", f"ds_read_b32 v3, v1\n{WAIT}global_store_dword v1, v3, s[6:7] ; BUG"),
    Bug("memory_never_written_decides", "uninitialized value decides a branch", f"global_load_dword v3, v1, s[4:5]\n{WAIT}v_readfirstlane_b32 s12, v3\ns_cmp_eq_u32 s12, 0\ns_cbranch_scc1 .Lend ; BUG\n.Lend:", fresh=True),
    Bug("memory_never_written_is_an_address", "uninitialized value in an address", f"global_load_dword v3, v1, s[4:5]\n{WAIT}v_lshlrev_b32_e32 v3, 2, v3\nglobal_store_dword v3, v0, s[6:7] ; BUG", fresh=True, check="init"),
    Bug("vector_register_beyond_the_count", "register v90 is beyond", "v_mov_b32_e32 v90, 0 ; BUG"),
    Bug("scalar_register_beyond_the_count", "register s99 is beyond", "s_mov_b32 s99, 0 ; BUG"),
    Bug("half_of_a_register_never_written", "uninitialized value stored", f"global_load_short_d16 v3, v1, s[4:5]\n{WAIT}global_store_dword v1, v3, s[6:7] ; BUG"),
    Bug("half_of_an_lds_word_never_written", "uninitialized value stored", f"ds_write_b16 v1, v0\n{WAIT}ds_read_b32 v3, v1\n{WAIT}global_store_dword v1, v3, s[6:7] ; BUG"),
    Bug("scalar_never_written_is_stored", "uninitialized value stored", "v_mov_b32_e32 v3, s13\nglobal_store_dword v1, v3, s[6:7] ; BUG"),
    Bug("vcc_never_written_decides", "uninitialized value decides a branch", "s_cbranch_vccnz .Lend ; BUG\nglobal_store_dword v1, v0, s[6:7]\n.Lend:"),
    Bug("scc_never_written_decides", "uninitialized value decides a branch", "s_cbranch_scc1 .Lend ; BUG\nglobal_store_dword v1, v0, s[6:7]\n.Lend:"),
    Bug("accumulator_never_written", "uninitialized value stored", "v_mov_b32_e32 v4, 0\nv_mov_b32_e32 v5, 0\nv_mov_b32_e32 v6, 0\nv_mov_b32_e32 v7, 0\ns_nop 1\nv_mfma_f32_16x16x16_f16 v[16:19], v[4:5], v[6:7], v[16:19]\ns_nop 15\nglobal_store_dword v1, v16, s[6:7] ; BUG", block=64),
    Bug("mask_never_written_chooses", "uninitialized value stored", "v_cndmask_b32_e64 v3, 0, v0, s[12:13]\nglobal_store_dword v1, v3, s[6:7] ; BUG"),
    Bug("wide_load_ends_past_the_end", "out of bounds", f"v_add_u32_e32 v4, 0xff8, v2\nglobal_load_dwordx4 v[4:7], v4, s[4:5] ; BUG\n{WAIT}{_LEFT}", block=1),
    Bug("offset_before_the_start", "out of bounds", f"global_load_dword v3, v1, s[4:5] offset:-4 ; BUG\n{WAIT}{_STORE}"),
    Bug("atomic_past_the_end", "out of bounds", f"v_mov_b32_e32 v6, 1\nv_add_u32_e32 v4, 0xf04, v1\nglobal_atomic_add v4, v6, s[6:7] ; BUG\n{WAIT}", block=64),
    Bug("lds_atomic_past_the_end", "LDS access out of bounds", f"v_mov_b32_e32 v6, 1\nds_add_u32 v1, v6 offset:1020 ; BUG\n{WAIT}"),
    Bug("scalar_load_past_the_end", "out of bounds", f"s_load_dwordx4 s[12:15], s[4:5], 0xff8 ; BUG\n{WAIT}{_LEFT}"),
    Bug("buffer_range_larger_than_the_array", "out of bounds", "s_mov_b64 s[12:13], s[6:7]\ns_mov_b32 s14, 0x2000\ns_mov_b32 s15, 0x20000\nv_add_u32_e32 v4, 0x1000, v1\nbuffer_store_dword v0, v4, s[12:15], 0 offen ; BUG"),
]  # fmt: skip

# Loads straight into LDS, lanes that are off, and what else goes wrong in kernels with several stages.
STAGES = [
    Bug("m0_beyond_lds_at_a_load_into_it", "LDS access out of bounds", f"s_movk_i32 m0, 0x380\ns_nop 0\nglobal_load_lds_dword v1, s[4:5] ; BUG\n{WAIT}{_LEFT}", block=64),
    Bug("next_stage_fills_what_another_wave_reads", "race", f"{_FILL}s_waitcnt vmcnt(0)\ns_barrier\nds_read_b32 v3, v4 ; BUG\n{WAIT}global_load_lds_dword v1, s[4:5] offset:64\n{WAIT}{_STORE}", check="race"),
    Bug("consumer_reads_what_a_producer_wave_loads", "race|missing wait", f"{_WAVE}s_cmp_eq_u32 s12, 1\ns_cbranch_scc1 .Lread\ns_mov_b32 m0, 0\ns_nop 0\nglobal_load_lds_dword v1, s[4:5]\n{WAIT}s_endpgm\n.Lread:\nv_and_b32_e32 v4, 63, v0\nv_lshlrev_b32_e32 v4, 2, v4\nds_read_b32 v3, v4 ; BUG\n{WAIT}{_STORE}"),
    Bug("dpp_leaves_lanes_that_have_no_source", "uninitialized value stored", "v_mov_b32_e32 v3, v0\ns_nop 1\nv_mov_b32_dpp v4, v3 row_shr:1 row_mask:0xf bank_mask:0xf\nglobal_store_dword v1, v4, s[6:7] ; BUG", block=64),
    Bug("one_lane_written_all_stored", "uninitialized value stored", "s_mov_b32 s12, 7\nv_writelane_b32 v4, s12, 3\nglobal_store_dword v1, v4, s[6:7] ; BUG", block=64),
    Bug("waves_exchange_through_global_memory_without_a_barrier", "race", f"{_OTHER}global_store_dword v1, v0, s[6:7] ; BUG\n{WAIT}global_load_dword v3, v4, s[6:7]\n{WAIT}v_add_u32_e32 v3, 1, v3\n", check="race"),
    Bug("kernel_argument_past_the_segment", "out of bounds", f"s_load_dword s12, s[0:1], 0x1000 ; BUG\n{WAIT}{_LEFT}"),
    Bug("lds_atomic_off_its_alignment", "misaligned LDS", f"{_COUNT}ds_write_b32 v1, v0\n{WAIT}v_add_u32_e32 v4, 2, v1\nds_add_u32 v4, v6 ; BUG\n{WAIT}", block=2, check="align"),
    Bug("buffer_toggle_wraps_into_the_stage_that_is_read", "race", f"{_OTHER}s_mov_b32 s12, 3\ns_mov_b32 s13, 0\n.Lloop:\nv_add_u32_e32 v5, s13, v1\nv_add_u32_e32 v6, s13, v4\nds_write_b32 v5, v0\n{WAIT}s_barrier\nds_read_b32 v3, v6 ; BUG\n{WAIT}s_xor_b32 s13, s13, 0\ns_sub_u32 s12, s12, 1\ns_cmp_lg_u32 s12, 0\ns_cbranch_scc1 .Lloop\n{_STORE}", check="race"),
    Bug("lanes_that_were_off_are_stored", "uninitialized", "v_cmp_gt_u32_e32 vcc, 40, v0\ns_and_saveexec_b64 s[10:11], vcc\nv_mov_b32_e32 v3, v0\ns_mov_b64 exec, s[10:11]\nv_mov_b32_e32 v5, v1\ns_nop 4\nglobal_store_dword v1, v3, s[6:7] ; BUG", block=64),
    Bug("bpermute_of_a_lane_never_written", "uninitialized", f"v_cmp_gt_u32_e32 vcc, 40, v0\ns_and_saveexec_b64 s[10:11], vcc\nv_mov_b32_e32 v3, v0\ns_mov_b64 exec, s[10:11]\nv_mov_b32_e32 v5, 0xfc\nds_bpermute_b32 v4, v5, v3\n{WAIT}global_store_dword v1, v4, s[6:7] ; BUG", block=64),
    Bug("scratch_never_written", "uninitialized|scratch access out", f"scratch_load_dword v3, off, off ; BUG\n{WAIT}global_store_dword v1, v3, s[6:7]", block=64),
    Bug("async_pipeline_waits_for_one_too_few", "missing wait: LDS is read", f"global_load_async_to_lds_b32 v1, v1, s[4:5]\nv_add_nc_u32_e32 v4, 0x100, v1\nglobal_load_async_to_lds_b32 v4, v1, s[4:5]\ns_wait_asynccnt 0x2\nds_load_b32 v3, v1 ; BUG\ns_wait_dscnt 0x0\n{_STORE11}", "gfx1250", block=32),
    Bug("a_store_behind_the_load_counts_too", "missing wait: LDS is read", f"s_mov_b32 m0, 0\ns_nop 0\nglobal_load_lds_dword v1, s[4:5]\nglobal_store_dword v1, v0, s[6:7]\ns_waitcnt vmcnt(2)\nds_read_b32 v3, v1 ; BUG\n{WAIT}{_STORE}", block=64),
    Bug("wait_on_the_other_side_of_a_branch", "missing wait: LDS is read", f"{_STAGE.format(stage=0)}s_waitcnt vmcnt(0)\n{_STAGE.format(stage=1)}s_cmp_eq_u32 s8, 0\ns_cbranch_scc1 .Lon\ns_waitcnt vmcnt(0)\n.Lon:\nds_read_b32 v3, v1 offset:256 ; BUG\n{WAIT}{_STORE}", block=64),
    Bug("lds_store_overwrites_a_fill_on_its_way", "missing wait|race", f"{_STAGE.format(stage=0)}ds_write_b32 v1, v0 ; BUG\n{WAIT}ds_read_b32 v3, v1\n{WAIT}{_STORE}", block=64),
    Bug("matrix_b_operand_still_loading", "missing wait", f"{_ZERO}global_load_dwordx2 v[6:7], v1, s[4:5]\ns_nop 1\nv_mfma_f32_16x16x16_f16 v[16:19], v[4:5], v[6:7], v[16:19] ; BUG\n{WAIT}{_LEFT}", block=64),
    Bug("accumulator_read_by_a_store_too_early", "hazard: a16", f"{_ZERO}v_accvgpr_write_b32 a16, 0\nv_accvgpr_write_b32 a17, 0\nv_accvgpr_write_b32 a18, 0\nv_accvgpr_write_b32 a19, 0\ns_nop 1\nv_mfma_f32_16x16x16_f16 a[16:19], v[4:5], v[6:7], a[16:19]\nglobal_store_dword v1, a16, s[6:7] ; BUG\n{_LEFT}", block=64),
    Bug("atomic_at_a_number_that_is_no_address", "out of bounds|null", f"{_COUNT}v_mov_b32_e32 v4, 16\nv_mov_b32_e32 v5, 0\nglobal_atomic_add v[4:5], v6, off ; BUG\n{WAIT}", block=1),
    Bug("vcc_never_written_chooses", "uninitialized", "v_cndmask_b32_e32 v3, v0, v1, vcc\nglobal_store_dword v1, v3, s[6:7] ; BUG"),
    Bug("barrier_in_a_loop_whose_count_differs", "barrier|ended without", f"{_WAVE}s_cmp_eq_u32 s12, 0\ns_cselect_b32 s13, 2, 3\n.Lloop:\nds_write_b32 v1, v0\n{WAIT}s_barrier ; BUG\ns_sub_u32 s13, s13, 1\ns_cmp_lg_u32 s13, 0\ns_cbranch_scc1 .Lloop"),
    Bug("waves_store_to_the_same_pairs", "race", "v_lshlrev_b32_e32 v4, 3, v0\nv_and_b32_e32 v4, 0x1f8, v4\nv_mov_b32_e32 v5, v0\nv_mov_b32_e32 v6, v0\nv_mov_b32_e32 v7, v0\nglobal_store_dwordx2 v4, v[6:7], s[6:7] ; BUG", check="race"),
]  # fmt: skip

PROGRESS = [
    # Work-group 0 waits until work-group 1 has set p[4].
    Bug("waits_for_a_later_group", "no forward progress", "v_mov_b32_e32 v6, 1\ns_cmp_lg_u32 s2, 0\ns_cbranch_scc1 .Lset\n.Lwait:\nglobal_load_dword v3, v2, s[4:5] offset:16 sc1 ; BUG\ns_waitcnt vmcnt(0)\nv_readfirstlane_b32 s12, v3\ns_cmp_lg_u32 s12, 1\ns_cbranch_scc1 .Lwait\ns_endpgm\n.Lset:\nglobal_store_dword v2, v6, s[4:5] offset:16 sc1", grid=2, block=1),
    Bug("waits_for_itself", "no forward progress", "v_mov_b32_e32 v6, 1\n.Lwait:\nglobal_atomic_or v3, v2, v2, s[4:5] sc0 ; BUG\ns_waitcnt vmcnt(0)\nv_readfirstlane_b32 s12, v3\ns_cmp_lg_u32 s12, 1\ns_cbranch_scc1 .Lwait\nglobal_store_dword v2, v6, s[4:5]", block=1),
]  # fmt: skip

_RELEASE = f"{WAIT}buffer_wbl2 sc1\n{WAIT}"
_ACQUIRE = "buffer_inv sc1\n"
# A lock at p[8]: take it, add the work-group's number and 1 to o[0], give it back.
_LOCK = (
    "v_mov_b32_e32 v4, 1\nv_mov_b32_e32 v5, 0\n.Llock:\n{take}s_waitcnt vmcnt(0)\ns_nop 1\nv_readfirstlane_b32 s12, v7\ns_cmp_lg_u32 s12, 0\n"
    "s_cbranch_scc1 .Llock\n{acquire}global_load_dword v8, v2, s[6:7]\ns_waitcnt vmcnt(0)\nv_add_u32_e32 v8, s2, v8\n"
    "v_add_u32_e32 v8, 1, v8\nglobal_store_dword v2, v8, s[6:7]\n{release}{give}"
)

# Right kernels that a checker may well hold for wrong.
RIGHT = [
    Bug("consumer_behind_the_barrier_of_its_producer", "", f"{_WAVE}s_cmp_eq_u32 s12, 1\ns_cbranch_scc1 .Lread\ns_mov_b32 m0, 0\ns_nop 0\nglobal_load_lds_dword v1, s[4:5]\n{WAIT}.Lread:\ns_barrier\nv_and_b32_e32 v4, 63, v0\nv_lshlrev_b32_e32 v4, 2, v4\nds_read_b32 v3, v4\n{WAIT}{_STORE}"),
    Bug("dpp_writes_zeros_where_there_is_no_source", "", "v_mov_b32_e32 v3, v0\ns_nop 1\nv_mov_b32_dpp v4, v3 row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:1\nglobal_store_dword v1, v4, s[6:7]", block=64),
    Bug("waves_exchange_through_global_memory_at_a_barrier", "", f"{_OTHER}global_store_dword v1, v0, s[6:7]\n{WAIT}s_barrier\nglobal_load_dword v3, v4, s[6:7]\n{WAIT}", check="race"),
    Bug("async_pipeline_waits_for_all_but_the_last", "", f"global_load_async_to_lds_b32 v1, v1, s[4:5]\nv_add_nc_u32_e32 v4, 0x100, v1\nglobal_load_async_to_lds_b32 v4, v1, s[4:5]\ns_wait_asynccnt 0x1\nds_load_b32 v3, v1\ns_wait_dscnt 0x0\n{_STORE11}", "gfx1250", block=32),
    Bug("a_store_behind_the_load_may_stay_on_its_way", "", f"s_mov_b32 m0, 0\ns_nop 0\nglobal_load_lds_dword v1, s[4:5]\nglobal_store_dword v1, v0, s[6:7]\ns_waitcnt vmcnt(1)\nds_read_b32 v3, v1\n{WAIT}{_STORE}", block=64),
    Bug("lds_store_behind_the_wait_for_a_fill", "", f"{_STAGE.format(stage=0)}{WAIT}ds_write_b32 v1, v0\n{WAIT}ds_read_b32 v3, v1\n{WAIT}{_STORE}", block=64),
    Bug("two_fills_of_one_place_return_in_order", "", f"{_STAGE.format(stage=0)}{_STAGE.format(stage=0)}{WAIT}ds_read_b32 v3, v1\n{WAIT}{_STORE}", block=64),
    Bug("a_pipeline_waits_for_all_but_the_stage_ahead", "", f"{_PIPELINE.format(left=1).replace('; BUG', '')}{_STAGE.format(stage=2)}s_waitcnt vmcnt(1)\nds_read_b32 v4, v1 offset:256\n{WAIT}v_add_u32_e32 v3, v3, v4\n{_STORE}", block=64),
    Bug("each_wave_waits_before_the_barrier", "", f"{_FILL}s_waitcnt vmcnt(0)\ns_barrier\nds_read_b32 v3, v4\n{WAIT}s_barrier\nglobal_load_lds_dword v1, s[4:5]\ns_waitcnt vmcnt(0)\ns_barrier\nds_read_b32 v3, v4\n{WAIT}{_STORE}"),
    Bug("the_next_stage_is_on_its_way_while_one_is_read", "", f"s_mov_b32 m0, 0\ns_nop 0\nglobal_load_lds_dword v1, s[4:5]\n{WAIT}s_movk_i32 m0, 0x200\ns_nop 0\nglobal_load_lds_dword v1, s[4:5] offset:256\nds_read_b32 v3, v1\n{WAIT}{_STORE}", block=64),
    Bug("last_group_reduces", "", f"{_MINE}{_COUNT}v_mov_b32_e32 v3, s2\nglobal_store_dword v5, v3, s[6:7]\n{_RELEASE}{_CALL_IN}{_ACQUIRE}{_LAST}global_load_dwordx3 v[8:10], v2, s[6:7]\n{WAIT}global_store_dword v2, v8, s[6:7] offset:64\n.Lend:", grid=3, block=1, n=2),
    Bug("last_of_many_groups_reduces", "", f"{_MINE}{_COUNT}v_mov_b32_e32 v3, s2\nglobal_store_dword v5, v3, s[6:7]\n{_RELEASE}{_CALL_IN}{_ACQUIRE}{_LAST}v_lshlrev_b32_e32 v1, 2, v2\n.Lsum:\nglobal_load_dword v8, v1, s[6:7]\ns_waitcnt vmcnt(0)\nv_add_u32_e32 v1, 4, v1\nv_cmp_gt_u32_e32 vcc, 0x320, v1\ns_nop 4\ns_cbranch_vccnz .Lsum\nglobal_store_dword v2, v8, s[6:7]\n.Lend:", grid=200, block=1, n=199),
    Bug("last_group_after_a_barrier", "", f"{_MINE}{_COUNT}v_lshl_add_u32 v11, s2, 9, v1\nglobal_store_dword v11, v0, s[6:7]\n{_RELEASE}s_barrier\n{_CALL_IN}{_ACQUIRE}v_readfirstlane_b32 s12, v7\ns_nop 4\nglobal_load_dword v8, v1, s[6:7]\n{WAIT}s_endpgm", grid=1, block=128, n=0),
    Bug("lock_with_compare_and_swap", "", _LOCK.format(take="global_atomic_cmpswap v7, v2, v[4:5], s[4:5] offset:4096 sc0\n".replace("4096", "0"), acquire=_ACQUIRE, release=_RELEASE, give="global_store_dword v2, v5, s[4:5] sc1\n"), grid=8, block=1),
    Bug("lock_given_back_by_an_exchange", "", _LOCK.format(take="global_atomic_cmpswap v7, v2, v[4:5], s[4:5] sc0\n", acquire=_ACQUIRE, release=_RELEASE, give="global_atomic_swap v2, v5, s[4:5]\n"), grid=8, block=1),
    Bug("lock_on_cdna2", "", _LOCK.format(take="global_atomic_cmpswap v7, v2, v[4:5], s[4:5] glc\n", acquire="buffer_wbinvl1_vol\n", release=WAIT, give="global_store_dword v2, v5, s[4:5]\n"), chip="gfx90a", grid=8, block=1),
    Bug("flag_of_an_earlier_group", "", f"v_mov_b32_e32 v6, 1\ns_cmp_lg_u32 s2, 0\ns_cbranch_scc1 .Lwait\nglobal_store_dword v2, v6, s[6:7]\n{_RELEASE}global_store_dword v2, v6, s[4:5] offset:16 sc1\ns_endpgm\n.Lwait:\nglobal_load_dword v3, v2, s[4:5] offset:16 sc1\ns_waitcnt vmcnt(0)\nv_readfirstlane_b32 s12, v3\ns_cmp_lg_u32 s12, 1\ns_cbranch_scc1 .Lwait\n{_ACQUIRE}global_load_dword v8, v2, s[6:7]\ns_waitcnt vmcnt(0)", grid=4, block=1),
    Bug("waves_store_one_value", "", f"v_mov_b32_e32 v3, 9\nds_write_b32 v2, v3\n{WAIT}s_barrier\nds_read_b32 v4, v2\n{WAIT}global_store_dword v2, v4, s[6:7]", grid=3),
    Bug("lanes_store_one_value", "", "v_mov_b32_e32 v3, s2\nv_lshlrev_b32_e32 v4, 2, v3\nglobal_store_dword v4, v3, s[6:7]", grid=3, block=64),
    Bug("bytes_of_one_word", "", "global_store_byte v0, v0, s[6:7]", grid=1, block=128),
    Bug("a_wave_that_has_nothing_to_do_ends_early", "", f"{_WAVE}s_cmp_eq_u32 s12, 1\ns_cbranch_scc1 .Lend\nds_write_b32 v1, v0\n{WAIT}s_barrier\n.Lend:"),
    Bug("lanes_that_have_ended_come_to_no_barrier", "", f"v_cmp_gt_u32_e32 vcc, 40, v0\ns_and_saveexec_b64 s[10:11], vcc\ns_cbranch_execz .Lend\nds_write_b32 v1, v0\n{WAIT}s_barrier\n{_STORE0}\ns_barrier\n.Lend:", block=64),
    Bug("lanes_masked_by_hand_around_a_barrier", "", f"s_mov_b64 exec, 1\nv_mov_b32_e32 v3, 5\nds_write_b32 v2, v3\n{WAIT}s_barrier\ns_mov_b64 exec, -1\nds_read_b32 v3, v2\n{WAIT}s_barrier\nglobal_store_dword v1, v3, s[6:7]"),
    Bug("a_barrier_of_one_wave_after_an_lds_read", "", f"v_mov_b32_e32 v3, 7\ns_mov_b64 exec, 1\nds_write_b32 v2, v3\n{WAIT}s_barrier\ns_mov_b64 exec, -1\nds_read_b32 v4, v2\n{WAIT}s_barrier\nglobal_store_dword v1, v4, s[6:7]", block=64),
    Bug("a_barrier_of_one_wave_after_an_lds_load", "", "v_mov_b32_e32 v3, 7\ns_mov_b32 exec_lo, 1\nds_store_b32 v2, v3\ns_waitcnt lgkmcnt(0)\ns_barrier\ns_mov_b32 exec_lo, -1\nds_load_b32 v4, v2\ns_waitcnt lgkmcnt(0)\ns_barrier\nglobal_store_b32 v1, v4, s[6:7]", chip="gfx1100", block=32),
    Bug("groups_load_one_table_by_scalars", "", f"s_load_dwordx4 s[12:15], s[4:5], 0x0\n{WAIT}v_mov_b32_e32 v3, s15\nv_lshl_add_u32 v4, s2, 9, v1\nglobal_store_dword v4, v3, s[6:7]", grid=8),
    Bug("scalar_load_behind_a_barrier", "", f"global_store_dword v1, v0, s[6:7]\n{WAIT}s_barrier\ns_dcache_inv\ns_load_dwordx4 s[12:15], s[6:7], 0x0\n{WAIT}"),
    Bug("scalar_load_where_no_lane_is_on", "", f"v_mov_b32_e32 v6, 5\ns_cmp_lg_u32 s2, 0\ns_cbranch_scc1 .Lread\nglobal_store_dword v2, v6, s[6:7] offset:8\ns_endpgm\n.Lread:\ns_mov_b64 exec, 0\ns_load_dwordx4 s[12:15], s[6:7], 0x0\n{WAIT}", grid=2, block=1),
    Bug("two_arrays_of_lds_by_one_instruction", "", f"; LDS arrays of k: 0 512\nv_mov_b32_e32 v3, v0\nds_write2st64_b32 v1, v0, v3 offset1:2\n{WAIT}s_barrier\nds_read2st64_b32 v[4:5], v1 offset0:2 offset1:0\n{WAIT}"),
    Bug("reads_the_clock", "", f"s_memtime s[12:13]\ns_memrealtime s[14:15]\n{WAIT}v_mov_b32_e32 v3, s12\nv_add_u32_e32 v3, s14, v3\n{_STORE}"),
    Bug("waves_store_halves_of_a_pair", "", "v_and_b32_e32 v3, 31, v0\nv_lshrrev_b32_e32 v4, 5, v0\nv_lshlrev_b32_e32 v6, 3, v3\nv_lshl_add_u32 v3, v4, 2, v6\nds_store_b32 v3, v0\nglobal_store_b32 v3, v0, s[6:7]\ns_waitcnt lgkmcnt(0)\ns_barrier\nds_load_b64 v[4:5], v6\ns_waitcnt lgkmcnt(0)\nv_add_nc_u32_e32 v4, v4, v5\nglobal_store_b32 v3, v4, s[6:7] offset:256", chip="gfx1100", block=64),
    Bug("reads_the_clock_on_rdna", "", "s_getreg_b32 s12, hwreg(HW_REG_SHADER_CYCLES, 0, 20)\ns_sendmsg_rtn_b64 s[14:15], sendmsg(MSG_RTN_GET_REALTIME)\ns_waitcnt lgkmcnt(0)\nv_mov_b32_e32 v3, s12\nv_add_nc_u32_e32 v3, s14, v3\nglobal_store_b32 v1, v3, s[6:7]", chip="gfx1100"),
    Bug("matrix_result_after_its_wait", "", f"{_ZERO}s_nop 1\n{_MFMA}s_nop 6\nv_add_f32_e32 v3, v16, v17\n{_LEFT}"),
    Bug("matrix_results_in_a_chain", "", f"{_ZERO}s_nop 1\n{_MFMA}{_MFMA}{_MFMA}s_nop 6\nglobal_store_dwordx4 v2, v[16:19], s[6:7]", block=64),
    Bug("store_to_global_memory_on_its_way_at_a_barrier", "", f"{_OTHER}global_store_dword v1, v0, s[6:7]\ns_barrier\nglobal_load_dword v3, v4, s[6:7]\n{WAIT}", check="race"),
    Bug("a_wave_that_has_signalled_ends", "", "v_readfirstlane_b32 s12, v0\ns_cmp_lg_u32 s12, 0\ns_cbranch_scc1 .Lread\nds_store_b32 v1, v0\ns_wait_dscnt 0x0\ns_barrier_signal -1\ns_endpgm\n.Lread:\ns_barrier_signal -1\ns_barrier_wait -1\nv_and_b32_e32 v4, 31, v0\nv_lshlrev_b32_e32 v4, 2, v4\nds_load_b32 v3, v4\ns_wait_dscnt 0x0\nglobal_store_b32 v1, v3, s[6:7]", chip="gfx1201", block=64),
    Bug("lds_is_read_while_it_is_stored_from", "", "ds_store_b32 v1, v0\ns_wait_dscnt 0x0\nglobal_store_async_from_lds_b32 v1, v1, s[6:7]\nds_load_b32 v3, v1\ns_wait_dscnt 0x0\ns_wait_asynccnt 0x0\nds_store_b32 v1, v3\ns_wait_dscnt 0x0", chip="gfx1250", block=32),
    Bug("counts_into_bins", "", "v_and_b32_e32 v4, 60, v1\nv_mov_b32_e32 v6, 1\nglobal_atomic_add v4, v6, s[6:7]", grid=20),
]  # fmt: skip

BUGS = [*WAITS, *HAZARDS, *BARRIERS, *RACES, *MEMORY, *STAGES, *PROGRESS]
assert len({b.name for b in BUGS}) == len(BUGS) >= 40 and all(re.compile(b.said) for b in BUGS)
