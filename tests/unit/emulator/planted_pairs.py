"""Kernels in assembly as in `planted`, each with one mistake that people make, and what to write in its place: the same kernel then is right."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .planted import _COUNT, _LEFT, _OTHER, _STORE, _STORE11, _WAVE, _ZERO, WAIT, Bug


@dataclass(frozen=True)
class Pair:
    bug: Bug
    wrong: str  # a part of the bug's body
    mended: str

    @property
    def right(self) -> Bug:
        assert self.bug.body.count(self.wrong) == 1, self.bug.name
        body = self.bug.body.replace(self.wrong, self.mended).replace(" ; BUG", "")
        return replace(self.bug, body=body, said="", check="all")


# Of four waves the first two add what the others have, then the first adds what the second has.
_ROUND = "ds_read_b32 v3, v1\nds_read_b32 v4, v1 offset:{apart}\n{wait}v_add_u32_e32 v3, v3, v4\nds_write_b32 v1, v3{bug}\n{wait}"
_REDUCTION = (
    f"ds_write_b32 v1, v0\n{WAIT}s_barrier\n{_WAVE}s_cmp_ge_u32 s12, 2\ns_cbranch_scc1 .Lone\n{_ROUND.format(apart=512, wait=WAIT, bug=' ; BUG')}.Lone:\n"
    f"s_nop 0\ns_cmp_ge_u32 s12, 1\ns_cbranch_scc1 .Lend\n{_ROUND.format(apart=256, wait=WAIT, bug='')}{_STORE}\n.Lend:"
)
_SIGNAL = "s_barrier_signal -1\n"
_READ12 = "ds_load_b32 v3, v4\ns_wait_dscnt 0x0\n"
_OTHER11 = "v_xor_b32_e32 v4, 32, v0\nv_lshlrev_b32_e32 v4, 2, v4\n"  # the same lane of the other wave of 32

PAIRS = [
    Pair(Bug("reduction_has_no_barrier_between_its_rounds", "race.*a load by several waves", _REDUCTION, block=256, check="race"), "s_nop 0", "s_barrier"),
    Pair(Bug("lds_atomic_with_return_used_at_once", "missing wait", f"{_COUNT}ds_write_b32 v1, v0\n{WAIT}ds_add_rtn_u32 v3, v1, v6\ns_nop 0\nv_add_u32_e32 v3, 1, v3 ; BUG\n{_STORE}", block=64), "s_nop 0", "s_waitcnt lgkmcnt(0)"),
    Pair(Bug("lds_read_waited_for_by_the_counter_of_loads", "missing wait", f"ds_write_b32 v1, v0\n{WAIT}ds_read_b32 v3, v1\ns_waitcnt vmcnt(0)\nv_add_u32_e32 v3, 1, v3 ; BUG\n{_STORE}"), "vmcnt(0)\nv_add", "lgkmcnt(0)\nv_add"),
    Pair(Bug("barrier_signalled_with_stores_on_their_way", "LDS store may still be on its way", f"{_OTHER11}ds_store_b32 v1, v0\ns_nop 0\ns_barrier_signal -1 ; BUG\ns_barrier_wait -1\n{_READ12}{_STORE11}", "gfx1201", block=64), "s_nop 0", "s_wait_dscnt 0x0"),
    Pair(Bug("read_between_the_signal_and_the_wait", "race.*a load by wave 0", f"{_OTHER11}ds_store_b32 v1, v0 ; BUG\ns_wait_dscnt 0x0\n{_SIGNAL}{_READ12}s_barrier_wait -1\n{_STORE11}", "gfx1201", block=64, check="race"),
         f"{_READ12}s_barrier_wait -1\n", f"s_barrier_wait -1\n{_READ12}"),
    Pair(Bug("second_place_of_a_read2_past_the_end", "LDS access out of bounds", f"ds_write_b32 v1, v0\nds_write_b32 v1, v0 offset:512\n{WAIT}ds_read2_b32 v[4:5], v1 offset1:255 ; BUG\n{WAIT}{_LEFT}"), "offset1:255", "offset1:128"),
    Pair(Bug("lanes_of_a_matrix_operand_never_written", "uninitialized value stored", f"{_ZERO.replace('v_mov_b32_e32 v4, 0', 's_nop 0')}v_cmp_gt_u32_e32 vcc, 40, v0\ns_and_saveexec_b64 s[10:11], vcc\nv_mov_b32_e32 v4, 0\ns_mov_b64 exec, s[10:11]\ns_nop 4\n"
             f"v_mfma_f32_16x16x16_f16 v[16:19], v[4:5], v[6:7], v[16:19]\ns_nop 7\ns_nop 7\nglobal_store_dword v1, v16, s[6:7] ; BUG", block=64), "v_cmp_gt_u32_e32 vcc, 40, v0", "v_cmp_gt_u32_e32 vcc, 64, v0"),
    Pair(Bug("wave_numbers_of_64_lanes_where_waves_have_32", "race.*a store by wave 0", "v_lshrrev_b32_e32 v3, 6, v0\nv_lshlrev_b32_e32 v3, 2, v3\ns_mov_b32 exec_lo, 1\nds_store_b32 v3, v0 ; BUG\ns_waitcnt lgkmcnt(0)", "gfx1100", block=64), "v3, 6, v0", "v3, 5, v0"),
    Pair(Bug("signed_compare_lets_a_negative_index_pass", "out of bounds", f"v_subrev_u32_e32 v4, 1, v0\nv_cmp_gt_i32_e32 vcc, 64, v4\ns_and_saveexec_b64 s[10:11], vcc\nv_lshlrev_b32_e32 v5, 2, v4\nv_ashrrev_i32_e32 v6, 31, v5\nv_mov_b32_e32 v7, s5\n"
             f"v_add_co_u32_e32 v8, vcc, s4, v5\ns_nop 1\nv_addc_co_u32_e32 v9, vcc, v7, v6, vcc\nglobal_load_dword v3, v[8:9], off ; BUG\n{WAIT}", block=64), "v_cmp_gt_i32", "v_cmp_gt_u32"),
    Pair(Bug("other_side_of_a_branch_by_a_mask_that_changed", "uninitialized value stored", "v_cmp_gt_u32_e32 vcc, 40, v0\ns_mov_b64 s[12:13], vcc\ns_mov_b64 s[10:11], exec\ns_and_b64 exec, s[10:11], vcc\nv_mov_b32_e32 v3, 1\nv_cmp_gt_u32_e32 vcc, 50, v0\n"
             "s_mov_b64 exec, s[10:11]\nv_cmp_gt_u32_e32 vcc, 50, v0\ns_andn2_b64 exec, s[10:11], vcc\nv_mov_b32_e32 v3, 2\ns_mov_b64 exec, s[10:11]\nglobal_store_dword v1, v3, s[6:7] ; BUG", block=64), "s_andn2_b64 exec, s[10:11], vcc", "s_andn2_b64 exec, s[10:11], s[12:13]"),
    Pair(Bug("a_loop_of_no_turns_fills_nothing", "uninitialized value stored", "s_nop 0\ns_cmp_eq_u32 s8, 0\ns_cbranch_scc1 .Lon\n.Lloop:\nv_mov_b32_e32 v3, v0\ns_sub_u32 s8, s8, 1\ns_cmp_lg_u32 s8, 0\ns_cbranch_scc1 .Lloop\n.Lon:\nglobal_store_dword v1, v3, s[6:7] ; BUG"), "s_nop 0", "v_mov_b32_e32 v3, 0"),
    Pair(Bug("a_counter_that_nobody_cleared", "uninitialized memory in an atomic", f"{_COUNT}s_nop 0\n{WAIT}global_atomic_add v7, v2, v6, s[4:5] sc0 ; BUG\n{WAIT}v_lshlrev_b32_e32 v7, 2, v7\nglobal_store_dword v7, v0, s[6:7]", block=1, fresh=True), "s_nop 0", "global_store_dword v2, v2, s[4:5]"),
    Pair(Bug("flat_address_past_the_end_of_lds", "LDS access out of bounds", f"ds_write_b32 v1, v0\n{WAIT}s_mov_b64 s[12:13], src_shared_base\nv_mov_b32_e32 v5, s13\nv_add_u32_e32 v4, 0x400, v1\nflat_load_dword v3, v[4:5] ; BUG\n{WAIT}{_STORE}"), "v_add_u32_e32 v4, 0x400, v1", "v_add_u32_e32 v4, 0, v1"),
    Pair(Bug("flat_load_waited_for_by_the_counter_of_lds", "missing wait", f"v_mov_b32_e32 v5, s5\nv_mov_b32_e32 v4, s4\nflat_load_dword v3, v[4:5]\ns_waitcnt lgkmcnt(0)\nv_add_u32_e32 v3, 1, v3 ; BUG\n{_STORE}"), "s_waitcnt lgkmcnt(0)", "s_waitcnt vmcnt(0) lgkmcnt(0)"),
    Pair(Bug("index_out_of_memory_runs_past_lds", "LDS access out of bounds", f"ds_write_b32 v1, v0\n{WAIT}s_barrier\nglobal_load_dword v4, v1, s[4:5]\n{WAIT}v_lshlrev_b32_e32 v4, 6, v4\nds_read_b32 v3, v4 ; BUG\n{WAIT}{_STORE}"), "v4, 6, v4", "v4, 2, v4"),
    Pair(Bug("a_wave_reads_its_slot_of_the_next_round", "race", f"{_OTHER}ds_write_b32 v1, v0\n{WAIT}s_barrier\nds_read_b32 v3, v4\n{WAIT}ds_write_b32 v1, v3 offset:512 ; BUG\n{WAIT}s_nop 0\nds_read_b32 v5, v4 offset:512\n{WAIT}v_add_u32_e32 v3, v3, v5\n{_STORE}", check="race"), "s_nop 0", "s_barrier"),
]  # fmt: skip
