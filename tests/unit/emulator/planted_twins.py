"""More kernels in assembly with a mistake each, and what to write in its place (as `planted_pairs`): the order that scopes, waits and barriers make on each
generation, loads straight into LDS, LDS that is filled in part, bounds missed by one element, lanes that are off, hazards.
"""

from __future__ import annotations

from typing import Any

from .planted import (
    _CALL_IN,
    _COUNT,
    _LAST,
    _LEFT,
    _MINE,
    _OTHER,
    _RELEASE,
    _STAGE,
    _STORE,
    _STORE11,
    _WAVE,
    _ZERO,
    WAIT,
    Bug,
)
from .planted_pairs import _OTHER11, Pair

_ACQUIRE = "buffer_inv sc1\n"
_WAIT12 = "s_wait_loadcnt_dscnt 0x0\ns_wait_storecnt 0x0\n"
_BARRIER12 = "s_barrier_signal -1\ns_barrier_wait -1\n"
_COUNTED11 = "v_mov_b32_e32 v5, s9\nv_lshlrev_b32_e32 v5, 2, v5\nv_mov_b32_e32 v6, 1\nv_mov_b32_e32 v3, s9\nglobal_store_b32 v5, v3, s[6:7]\n"
_LAST11 = "v_readfirstlane_b32 s12, v7\ns_cmp_lg_u32 s12, s8\ns_cbranch_scc1 .Lend\nglobal_load_b96 v[8:10], v2, s[6:7] ; BUG\n{wait}\n.Lend:"
# A lock at p[0] around an addition to o[0], which `after` ends.
_LOCKED = (
    "v_mov_b32_e32 v4, 1\nv_mov_b32_e32 v5, 0\n.Llock:\nglobal_atomic_cmpswap v7, v2, v[4:5], s[4:5] sc0\ns_waitcnt vmcnt(0)\ns_nop 1\nv_readfirstlane_b32 s12, v7\n"
    "s_cmp_lg_u32 s12, 0\ns_cbranch_scc1 .Llock\nbuffer_inv sc1\nglobal_load_dword v8, v2, s[6:7] ; BUG\ns_waitcnt vmcnt(0)\nv_add_u32_e32 v8, s2, v8\n{after}"
)
_GIVE, _KEEP = f"{_RELEASE}global_atomic_swap v2, v5, s[4:5]\n", "global_store_dword v2, v8, s[6:7]"
_TWO_STORES = "global_store_b32 v1, v0, s[6:7]\nglobal_store_b32 v1, v0, s[6:7] offset:256\n"
# Lanes below a number alone; the others' come back by s[10:11].
_BELOW = "v_cmp_gt_u32_e32 vcc, {n}, v0\ns_and_saveexec_b64 s[10:11], vcc\n"
_DRAINED = (
    f"{_STAGE.format(stage=0)}s_mov_b32 s13, 0\n.Lloop:\ns_xor_b32 s13, s13, 0x100\ns_cmp_eq_u32 s8, 0\ns_cbranch_scc1 .Llast\ns_mov_b32 m0, s13\ns_nop 0\n"
    "global_load_lds_dword v1, s[4:5]\n.Llast:\ns_waitcnt vmcnt(1)\ns_xor_b32 s12, s13, 0x100\nv_add_u32_e32 v4, s12, v1\nds_read_b32 v3, v4 ; BUG\n"
    f"s_waitcnt lgkmcnt(0)\ns_sub_u32 s8, s8, 1\ns_cmp_lg_u32 s8, -1\ns_cbranch_scc1 .Lloop\n{_STORE}"
)


def _last(release: str = _RELEASE, acquire: str = _ACQUIRE) -> str:
    """The work-group that counts last reads what all have stored."""
    stored = f"{_MINE}{_COUNT}v_mov_b32_e32 v3, s2\nglobal_store_dword v5, v3, s[6:7]\n"
    return f"{stored}{release}{_CALL_IN}{acquire}{_LAST}global_load_dwordx3 v[8:10], v2, s[6:7] ; BUG\n{WAIT}.Lend:"


def _last11(release: str, acquire: str) -> str:
    """The same on gfx11."""
    counted = f"{_COUNTED11}{release}\nglobal_atomic_add_u32 v7, v2, v6, s[4:5] glc\ns_waitcnt vmcnt(0)\n{acquire}\n"
    return counted + _LAST11.format(wait="s_waitcnt vmcnt(0)")


def _last12(release: str, acquire: str) -> str:
    """The same on gfx12."""
    atomic = "global_atomic_add_u32 v7, v2, v6, s[4:5] th:TH_ATOMIC_RETURN scope:SCOPE_DEV\ns_wait_loadcnt 0x0\n"
    return f"{_COUNTED11}{release}\n{atomic}{acquire}\n" + _LAST11.format(wait="s_wait_loadcnt 0x0")


def _flag(store: str = " sc1", load: str = " sc1", acquire: str = _ACQUIRE, data: str = "") -> str:
    """Work-group 0 stores o[0] and sets the flag p[4], the others poll it."""
    return (
        f"v_mov_b32_e32 v6, 1\ns_cmp_lg_u32 s2, 0\ns_cbranch_scc1 .Lwait\nglobal_store_dword v2, v6, s[6:7]\n{_RELEASE}global_store_dword v2, v6, s[4:5] offset:16{store}\ns_endpgm\n"
        f".Lwait:\nglobal_load_dword v3, v2, s[4:5] offset:16{load}\ns_waitcnt vmcnt(0)\nv_readfirstlane_b32 s12, v3\ns_cmp_lg_u32 s12, 1\ns_cbranch_scc1 .Lwait\n"
        f"{acquire}global_load_dword v8, v2, s[6:7]{data}\ns_waitcnt vmcnt(0)"
    )


def _resource(array: str, size: int, word3: int = 0x20000) -> str:
    """A buffer resource in s[12:15]: of the first array "s[4:5]" or the second "s[6:7]"."""
    return f"s_mov_b64 s[12:13], {array}\ns_mov_b32 s14, {size}\ns_mov_b32 s15, {word3:#x}\n"


_RAW11 = 0x31016000


def _twin(name: str, said: str, body: str, wrong: str, mended: str, chip: str = "gfx942", **launch: Any) -> Pair:
    """`wrong` is a part of the body, `launch` has fields of `Bug`."""
    return Pair(Bug(name, said, body, chip, **launch), wrong, mended)


TWINS = [
    # The order between work-groups, by scope.
    _twin("caches_dropped_for_a_work_group_alone_on_gfx12", "race", _last12("s_wait_storecnt 0x0", "global_inv scope:SCOPE_SE"), "scope:SCOPE_SE", "scope:SCOPE_DEV", "gfx1201", grid=3, block=1, n=2, check="race"),
    _twin("release_waits_for_loads_on_gfx12", "race", _last12("s_wait_dscnt 0x0", "global_inv scope:SCOPE_DEV"), "s_wait_dscnt 0x0", "s_wait_storecnt 0x0", "gfx1201", grid=3, block=1, n=2, check="race"),
    _twin("release_waits_for_loads_on_gfx11", "race", _last11("s_waitcnt vmcnt(0) lgkmcnt(0)", "buffer_gl1_inv\nbuffer_gl0_inv"), "s_waitcnt vmcnt(0) lgkmcnt(0)", "s_waitcnt_vscnt null, 0x0", "gfx1100", grid=3, block=1, n=2, check="race"),
    _twin("acquire_leaves_the_first_cache_on_gfx11", "race", _last11("s_waitcnt_vscnt null, 0x0", "buffer_gl1_inv\ns_nop 0"), "s_nop 0", "buffer_gl0_inv", "gfx1100", grid=3, block=1, n=2, check="race"),
    _twin("acquire_leaves_the_second_cache_on_gfx11", "race", _last11("s_waitcnt_vscnt null, 0x0", "s_nop 0\nbuffer_gl0_inv"), "s_nop 0", "buffer_gl1_inv", "gfx1100", grid=3, block=1, n=2, check="race"),
    _twin("caches_dropped_for_a_work_group_alone", "race", _last(acquire="buffer_inv sc0\n"), "buffer_inv sc0\n", "buffer_inv sc1\n", grid=3, block=1, n=2, check="race"),
    _twin("store_left_in_the_cache_of_its_die", "race", _last(WAIT + "s_nop 0\n" + WAIT), "s_nop 0\n", "buffer_wbl2 sc1\n", grid=3, block=1, n=2, check="race"),
    _twin("cache_written_back_for_a_work_group_alone", "race", _last(WAIT + "buffer_wbl2 sc0\n" + WAIT), "buffer_wbl2 sc0\n", "buffer_wbl2 sc1\n", grid=3, block=1, n=2, check="race"),
    _twin("flag_polled_by_a_plain_load", "race", _flag(load=" ; BUG"), " ; BUG", " sc1", grid=4, block=1, check="race"),
    _twin("flag_set_by_a_plain_store", "race", _flag(store="\ns_nop 0", load=" sc1 ; BUG"), "\ns_nop 0", " sc1", grid=4, block=1, check="race"),
    _twin("data_read_before_the_caches_are_dropped", "race", _flag(acquire="global_load_dword v9, v2, s[6:7] ; BUG\ns_nop 0\nbuffer_inv sc1\n"), "global_load_dword v9, v2, s[6:7] ; BUG\ns_nop 0\nbuffer_inv sc1\n", "buffer_inv sc1\n", grid=4, block=1, check="race"),
    _twin("lock_given_back_before_the_store", "race", _LOCKED.format(after=_GIVE + _KEEP), _GIVE + _KEEP, _KEEP + "\n" + _GIVE.rstrip("\n"), grid=8, block=1, check="race"),
    # Global memory between waves of a work-group that run on two compute units.
    _twin("store_waited_for_as_a_load_at_the_barrier_on_gfx11", "missing wait|race", f"{_OTHER11}global_store_b32 v1, v0, s[6:7]\ns_waitcnt vmcnt(0)\ns_barrier\nbuffer_gl0_inv\nglobal_load_b32 v3, v4, s[6:7] ; BUG\ns_waitcnt vmcnt(0)", "s_waitcnt vmcnt(0)\ns_barrier", "s_waitcnt_vscnt null, 0x0\ns_barrier", "gfx1100", block=64),
    _twin("store_waited_for_as_a_load_at_the_barrier_on_gfx12", "missing wait|race", f"{_OTHER11}global_store_b32 v1, v0, s[6:7]\ns_wait_loadcnt 0x0\ns_barrier_signal -1\ns_barrier_wait -1\nglobal_inv scope:SCOPE_SE\nglobal_load_b32 v3, v4, s[6:7] ; BUG\ns_wait_loadcnt 0x0", "s_wait_loadcnt 0x0\ns_barrier_signal", "s_wait_storecnt 0x0\ns_barrier_signal", "gfx1201", block=64),
    _twin("release_waits_for_nothing_on_gfx12", "race", _last12("s_nop 0", "global_inv scope:SCOPE_DEV"), "s_nop 0", "s_wait_idle", "gfx1201", grid=3, block=1, n=2, check="race"),
    _twin("store_left_on_its_way_by_the_wait_at_the_barrier", "race", f"{_OTHER11}{_TWO_STORES}s_waitcnt_vscnt null, 0x1\ns_barrier\nbuffer_gl0_inv\nglobal_load_b32 v3, v4, s[6:7] offset:256 ; BUG\ns_waitcnt vmcnt(0)", "null, 0x1", "null, 0x0", "gfx1100", block=64),
    _twin("the_younger_of_two_stores_is_read", "race", f"{_OTHER11}{_TWO_STORES}s_waitcnt_vscnt null, 0x1\ns_barrier\nbuffer_gl0_inv\nglobal_load_b32 v3, v4, s[6:7] offset:256 ; BUG\ns_waitcnt vmcnt(0)", " offset:256 ; BUG", " ; BUG", "gfx1100", block=64),
    _twin("async_store_waited_for_as_one_from_registers", "race", f"{_OTHER11}ds_store_b32 v1, v0\ns_wait_dscnt 0x0\nglobal_store_async_from_lds_b32 v1, v1, s[6:7]\ns_wait_storecnt 0x0\n{_BARRIER12}global_load_b32 v3, v4, s[6:7] ; BUG\ns_wait_loadcnt 0x0", "s_wait_storecnt", "s_wait_asynccnt", "gfx1250", block=64),
    # Loads straight into LDS, stores straight out of it.
    _twin("fill_by_a_buffer_waited_for_as_lds", "missing wait: LDS is read", f"{_resource('s[4:5]', 4096)}s_mov_b32 m0, 0\ns_nop 0\nbuffer_load_dword v1, s[12:15], 0 offen lds\ns_waitcnt lgkmcnt(0)\nds_read_b32 v3, v1 ; BUG\n{WAIT}{_STORE}", "s_waitcnt lgkmcnt(0)\nds_read", "s_waitcnt vmcnt(0)\nds_read", block=64),
    _twin("waves_fill_overlapping_parts", "race", f"v_readfirstlane_b32 s12, v0\ns_lshl_b32 s12, s12, 1\ns_mov_b32 m0, s12\ns_nop 0\nglobal_load_lds_dword v1, s[4:5] ; BUG\n{WAIT}", "s_lshl_b32 s12, s12, 1", "s_lshl_b32 s12, s12, 2", check="race"),
    _twin("wide_fills_overlap_on_gfx950", "race|LDS access|lanes", f"v_lshlrev_b32_e32 v3, 4, v0\nv_readfirstlane_b32 s12, v0\ns_lshl_b32 s12, s12, 1\ns_mov_b32 m0, s12\ns_mov_b64 exec, 0xffff\nglobal_load_lds_dwordx4 v3, s[4:5] ; BUG\n{WAIT}", "s_lshl_b32 s12, s12, 1", "s_lshl_b32 s12, s12, 2", "gfx950", check="race"),
    _twin("wide_pipeline_waits_for_one_too_few_on_gfx950", "missing wait: LDS is read", f"v_lshlrev_b32_e32 v3, 4, v0\ns_mov_b32 m0, 0\ns_nop 0\nglobal_load_lds_dwordx4 v3, s[4:5]\ns_movk_i32 m0, 0x200\ns_nop 0\nglobal_load_lds_dwordx4 v3, s[4:5]\ns_waitcnt vmcnt(2)\nds_read_b128 v[4:7], v3 ; BUG\n{WAIT}{_LEFT}", "vmcnt(2)", "vmcnt(1)", "gfx950", block=32),
    _twin("drained_pipeline_waits_as_a_full_one", "missing wait: LDS is read", _DRAINED, "vmcnt(1)", "vmcnt(0)", block=64, n=4),
    _twin("fill_ends_past_lds", "LDS access out of bounds", f"s_movk_i32 m0, 0x304\ns_nop 0\nglobal_load_lds_dword v1, s[4:5] ; BUG\n{WAIT}", "0x304", "0x300", block=64),
    _twin("async_copy_waited_for_as_a_load", "missing wait", f"global_load_async_to_lds_b32 v1, v1, s[4:5]\ns_wait_loadcnt 0x0\nds_load_b32 v3, v1 ; BUG\ns_wait_dscnt 0x0\n{_STORE11}", "s_wait_loadcnt 0x0", "s_wait_asynccnt 0x0", "gfx1250", block=32),
    _twin("lds_overwritten_under_an_async_store", "missing wait|race", "ds_store_b32 v1, v0\ns_wait_dscnt 0x0\nglobal_store_async_from_lds_b32 v1, v1, s[6:7]\ns_nop 0\nds_store_b32 v1, v2 ; BUG\ns_wait_dscnt 0x0", "s_nop 0", "s_wait_asynccnt 0x0", "gfx1250", block=32),
    _twin("async_store_of_lds_still_being_written", "missing wait|race", "ds_store_b32 v1, v0\ns_nop 0\nglobal_store_async_from_lds_b32 v1, v1, s[6:7] ; BUG\ns_wait_asynccnt 0x0", "s_nop 0", "s_wait_dscnt 0x0", "gfx1250", block=32),
    # Barriers in two parts.
    _twin("barrier_signalled_and_not_waited_for", "race", f"{_OTHER11}ds_store_b32 v1, v0 ; BUG\ns_wait_dscnt 0x0\ns_barrier_signal -1\ns_nop 0\nds_load_b32 v3, v4\ns_wait_dscnt 0x0\n{_STORE11}", "s_nop 0", "s_barrier_wait -1", "gfx1201", block=64, check="race"),
    _twin("barrier_waited_for_by_another_number", "barrier|race|unsupported", f"{_OTHER11}ds_store_b32 v1, v0\ns_wait_dscnt 0x0\ns_barrier_signal -1\ns_barrier_wait -2 ; BUG\nds_load_b32 v3, v4\ns_wait_dscnt 0x0\n{_STORE11}", "s_barrier_wait -2 ; BUG", "s_barrier_wait -1", "gfx1201", block=64),
    _twin("barrier_waited_for_without_a_signal", "barrier", f"{_OTHER11}ds_store_b32 v1, v0\ns_wait_dscnt 0x0\ns_nop 0\ns_barrier_wait -1 ; BUG\nds_load_b32 v3, v4\ns_wait_dscnt 0x0\n{_STORE11}", "s_nop 0", "s_barrier_signal -1", "gfx1201", block=64),
    _twin("one_wave_does_not_signal", "barrier|ended without", f"ds_store_b32 v1, v0\ns_wait_dscnt 0x0\nv_readfirstlane_b32 s12, v0\ns_cmp_lg_u32 s12, 0\ns_cbranch_scc1 .Lon\ns_barrier_signal -1\n.Lon:\ns_barrier_wait -1 ; BUG\n{_STORE11.replace('v3','v0')}", "s_cmp_lg_u32 s12, 0", "s_cmp_lg_u32 s12, s12", "gfx1201", block=64),
    _twin("signal_before_the_store", "missing wait|race", f"{_OTHER11}s_barrier_signal -1\nds_store_b32 v1, v0\ns_wait_dscnt 0x0\ns_barrier_wait -1\nds_load_b32 v3, v4 ; BUG\ns_wait_dscnt 0x0\n{_STORE11}", "s_barrier_signal -1\nds_store_b32 v1, v0\ns_wait_dscnt 0x0", "ds_store_b32 v1, v0\ns_wait_dscnt 0x0\ns_barrier_signal -1", "gfx1201", block=64, check="race"),
    _twin("signalled_twice_for_one_wait", "barrier|race", f"{_OTHER11}ds_store_b32 v1, v0\ns_wait_dscnt 0x0\ns_barrier_signal -1\ns_barrier_signal -1 ; BUG\ns_barrier_wait -1\nds_load_b32 v3, v4\ns_wait_dscnt 0x0\n{_STORE11}", "s_barrier_signal -1 ; BUG\n", "", "gfx1201", block=64),
    # Waits.
    _twin("lds_and_scalar_loads_return_in_any_order", "missing wait", f"ds_write_b32 v1, v0\n{WAIT}ds_read_b32 v3, v1\ns_load_dword s12, s[4:5], 0x0\ns_waitcnt lgkmcnt(1)\nv_add_u32_e32 v3, 1, v3 ; BUG\n{WAIT}{_STORE}", "lgkmcnt(1)", "lgkmcnt(0)"),
    _twin("last_turn_waits_as_the_others", "missing wait", "v_mov_b32_e32 v5, 0\nglobal_load_dword v3, v1, s[4:5]\n.Lloop:\ns_cmp_eq_u32 s8, 0\ns_cbranch_scc1 .Llast\nglobal_load_dword v4, v1, s[4:5]\n.Llast:\ns_waitcnt vmcnt(1)\nv_add_u32_e32 v5, v5, v3 ; BUG\ns_waitcnt vmcnt(0)\nv_mov_b32_e32 v3, v4\ns_sub_u32 s8, s8, 1\ns_cmp_lg_u32 s8, -1\ns_cbranch_scc1 .Lloop\nglobal_store_dword v1, v5, s[6:7]", "vmcnt(1)", "vmcnt(0)", n=3),
    _twin("joint_wait_leaves_a_load_on_gfx12", "missing wait", f"global_load_b32 v3, v1, s[4:5]\ns_wait_loadcnt_dscnt 0x100\nv_add_nc_u32_e32 v3, 1, v3 ; BUG\n{_STORE11}", "0x100", "0x0", "gfx1201"),
    _twin("joint_wait_leaves_an_lds_load_on_gfx12", "missing wait", f"ds_store_b32 v1, v0\n{_WAIT12}ds_load_b32 v3, v1\ns_wait_storecnt_dscnt 0x1\nv_add_nc_u32_e32 v3, 1, v3 ; BUG\n{_STORE11}", "dscnt 0x1", "dscnt 0x0", "gfx1201"),
    _twin("scalar_load_waited_for_as_lds_on_gfx12", "missing wait", "s_load_b32 s12, s[4:5], 0x0\ns_wait_dscnt 0x0\ns_add_co_u32 s12, s12, 1 ; BUG", "s_wait_dscnt", "s_wait_kmcnt", "gfx1201"),
    _twin("upper_half_still_loading", "missing wait", f"global_load_short_d16 v3, v1, s[4:5]\nglobal_load_short_d16_hi v3, v1, s[4:5] offset:2\ns_waitcnt vmcnt(1)\nv_add_u32_e32 v3, 1, v3 ; BUG\n{_STORE}", "vmcnt(1)", "vmcnt(0)"),
    _twin("data_of_a_store_still_loading", "missing wait", "global_load_dword v3, v1, s[4:5]\ns_nop 0\nglobal_store_dword v1, v3, s[6:7] ; BUG", "s_nop 0", "s_waitcnt vmcnt(0)"),
    _twin("address_still_loading", "missing wait", f"ds_write_b32 v1, v1\n{WAIT}ds_read_b32 v3, v1\ns_nop 0\nglobal_load_dword v4, v3, s[4:5] ; BUG\n{WAIT}", "s_nop 0", "s_waitcnt lgkmcnt(0)"),
    _twin("base_still_loading", "missing wait", f"s_load_dwordx2 s[14:15], s[0:1], 0x0\ns_nop 0\nglobal_load_dword v3, v1, s[14:15] ; BUG\n{WAIT}{_STORE}", "s_nop 0", "s_waitcnt lgkmcnt(0)"),
    _twin("atomic_with_return_waited_for_as_a_store_on_gfx11", "missing wait", f"v_mov_b32_e32 v6, 1\nglobal_atomic_add_u32 v7, v2, v6, s[4:5] glc\ns_waitcnt_vscnt null, 0x0\nv_add_nc_u32_e32 v3, 1, v7 ; BUG\n{_STORE11}", "s_waitcnt_vscnt null, 0x0", "s_waitcnt vmcnt(0)", "gfx1100", block=1),
    _twin("accumulator_register_still_loading", "missing wait", f"global_load_dword a4, v1, s[4:5]\ns_nop 0\nv_accvgpr_read_b32 v3, a4 ; BUG\n{_STORE}", "s_nop 0", "s_waitcnt vmcnt(0)"),
    _twin("mask_still_loading", "missing wait", f"s_load_dwordx2 vcc, s[4:5], 0x0\ns_nop 0\nv_cndmask_b32_e32 v3, v0, v1, vcc ; BUG\n{_STORE}", "s_nop 0", "s_waitcnt lgkmcnt(0)"),
    _twin("load_overtakes_a_store_in_the_count_on_gfx9", "missing wait", f"global_load_dword v3, v1, s[4:5]\nglobal_store_dword v1, v0, s[6:7]\nglobal_store_dword v1, v0, s[6:7] offset:512\ns_waitcnt vmcnt(3)\nv_add_u32_e32 v3, 1, v3 ; BUG\n{WAIT}", "vmcnt(3)", "vmcnt(2)"),
    _twin("permute_still_on_its_way", "missing wait", f"v_mov_b32_e32 v3, v0\nds_bpermute_b32 v4, v1, v3\ns_nop 0\nv_add_u32_e32 v3, 1, v4 ; BUG\n{_STORE}", "s_nop 0", "s_waitcnt lgkmcnt(0)", block=64),
    _twin("transposing_read_used_at_once_on_gfx950", "missing wait", f"v_lshlrev_b32_e32 v3, 3, v0\nv_mov_b32_e32 v4, v0\nv_mov_b32_e32 v5, v0\nds_write_b64 v3, v[4:5]\n{WAIT}ds_read_b64_tr_b16 v[6:7], v3\ns_nop 0\nv_add_u32_e32 v3, v6, v7 ; BUG\n{_STORE}", "s_nop 0", "s_waitcnt lgkmcnt(0)", "gfx950", block=64),
    # LDS filled in part.
    _twin("byte_written_word_read", "uninitialized", f"ds_write_b8 v1, v0\n{WAIT}ds_read_b32 v3, v1\n{WAIT}global_store_dword v1, v3, s[6:7] ; BUG", "ds_write_b8", "ds_write_b32"),
    _twin("three_words_written_four_read", "uninitialized", f"{_ZERO}v_lshlrev_b32_e32 v3, 4, v0\nds_write_b96 v3, v[4:6]\n{WAIT}ds_read_b128 v[8:11], v3\n{WAIT}global_store_dwordx4 v3, v[8:11], s[6:7] ; BUG", "ds_write_b96 v3, v[4:6]", "ds_write_b128 v3, v[4:7]", block=64),
    _twin("rows_written_wider_than_read", "uninitialized", f"v_lshlrev_b32_e32 v4, 3, v0\nds_write_b32 v4, v0\n{WAIT}ds_read_b32 v3, v1\n{WAIT}global_store_dword v1, v3, s[6:7] ; BUG", "v_lshlrev_b32_e32 v4, 3, v0", "v_lshlrev_b32_e32 v4, 2, v0", block=64),
    _twin("one_wave_of_two_fills_lds", "uninitialized", f"{_OTHER}{_WAVE}s_cmp_eq_u32 s12, 1\ns_cbranch_scc1 .Lon\nds_write_b32 v1, v0\n{WAIT}.Lon:\ns_barrier\nds_read_b32 v3, v4\n{WAIT}global_store_dword v1, v3, s[6:7] ; BUG", "s_cmp_eq_u32 s12, 1", "s_cmp_eq_u32 s12, 2"),
    _twin("counter_in_lds_never_cleared", "uninitialized", f"{_COUNT}s_nop 0\n{WAIT}ds_add_rtn_u32 v3, v2, v6 ; BUG\n{WAIT}", "s_nop 0", "ds_write_b32 v2, v2", block=64),
    _twin("padding_of_a_row_read", "uninitialized", f"v_lshrrev_b32_e32 v3, 3, v0\nv_lshlrev_b32_e32 v3, 2, v3\nv_add_u32_e32 v4, v1, v3\nds_write_b32 v4, v0\n{WAIT}ds_read_b32 v5, v1\n{WAIT}global_store_dword v1, v5, s[6:7] ; BUG", "ds_read_b32 v5, v1", "ds_read_b32 v5, v4", block=64),
    _twin("read2_of_a_place_never_written", "uninitialized", f"ds_write_b32 v1, v0\n{WAIT}ds_read2st64_b32 v[4:5], v1 offset0:0 offset1:2\n{WAIT}v_add_u32_e32 v3, v4, v5\nglobal_store_dword v1, v3, s[6:7] ; BUG", "offset1:2", "offset1:0", block=64),
    _twin("transposing_read_of_rows_never_written_on_gfx950", "uninitialized", f"v_lshlrev_b32_e32 v3, 3, v0\nv_mov_b32_e32 v4, v0\nv_mov_b32_e32 v5, v0\ns_mov_b64 s[10:11], exec\ns_mov_b64 exec, 0xffff\nds_write_b64 v3, v[4:5]\ns_mov_b64 exec, s[10:11]\n{WAIT}ds_read_b64_tr_b16 v[6:7], v3\n{WAIT}global_store_dwordx2 v3, v[6:7], s[6:7] ; BUG", "s_mov_b64 exec, 0xffff", "s_mov_b64 exec, -1", "gfx950", block=64),
    # Bounds missed by one element.
    _twin("records_one_too_many", "out of bounds", f"{_resource('s[4:5]', 1025)}s_or_b32 s13, s13, 0x40000\nv_add_u32_e32 v4, 1, v0\nv_mov_b32_e32 v4, 0x400\nbuffer_load_dword v3, v4, s[12:15], 0 idxen ; BUG\n{WAIT}{_STORE}", "s_mov_b32 s14, 1025", "s_mov_b32 s14, 1024", block=64),
    _twin("range_of_a_buffer_four_bytes_too_long", "out of bounds", f"{_resource('s[4:5]', 4100)}v_add_u32_e32 v4, 0xf04, v1\nbuffer_load_dword v3, v4, s[12:15], 0 offen ; BUG\n{WAIT}{_STORE}", "4100", "4096", block=64),
    _twin("scalar_buffer_four_bytes_too_long", "out of bounds", f"{_resource('s[4:5]', 4100)}s_buffer_load_dword s10, s[12:15], 0x1000 ; BUG\n{WAIT}", "4100", "4096", block=64),
    _twin("buffer_atomic_one_past_the_end", "out of bounds", f"{_COUNT}{_resource('s[6:7]', 4100)}v_add_u32_e32 v4, 0xf04, v1\nbuffer_atomic_add v6, v4, s[12:15], 0 offen ; BUG\n{WAIT}", "4100", "4096", block=64),
    _twin("pair_of_a_buffer_ends_past_the_end", "out of bounds", f"{_resource('s[4:5]', 4104)}v_add_u32_e32 v4, 0xf00, v1\nbuffer_load_dwordx2 v[6:7], v4, s[12:15], 0 offen ; BUG\n{WAIT}", "4104", "4096", block=64),
    _twin("buffer_store_one_past_the_end_on_gfx11", "out of bounds", f"{_resource('s[6:7]', 4100, _RAW11)}v_add_nc_u32_e32 v4, 0xf84, v1\nbuffer_store_b32 v0, v4, s[12:15], 0 offen ; BUG", "4100", "4096", "gfx1100", block=32),
    _twin("buffer_load_one_past_the_end_on_gfx12", "out of bounds", f"{_resource('s[4:5]', 4100, _RAW11)}v_add_nc_u32_e32 v4, 0xf84, v1\nbuffer_load_b32 v3, v4, s[12:15], null offen ; BUG\ns_wait_loadcnt 0x0\n{_STORE11}", "4100", "4096", "gfx1201", block=32),
    _twin("argument_one_past_the_last", "uninitialized value stored.*scalar load", f"s_load_dword s12, s[0:1], 0x18\n{WAIT}v_mov_b32_e32 v3, s12\nglobal_store_dword v1, v3, s[6:7] ; BUG", "0x18", "0x10"),
    _twin("byte_of_lds_one_past_the_end", "LDS access out of bounds", f"ds_write_b8 v0, v0 offset:961 ; BUG\n{WAIT}", "offset:961", "offset:960", block=64),
    _twin("pair_ends_past_lds", "LDS access out of bounds", f"{_ZERO}v_lshlrev_b32_e32 v3, 3, v0\nds_write_b64 v3, v[4:5] offset:768 ; BUG\n{WAIT}", "offset:768", "offset:512", block=64),
    _twin("half_word_one_past_the_end", "out of bounds", f"v_add_u32_e32 v4, 0x1000, v2\nglobal_load_ushort v3, v4, s[4:5] ; BUG\n{WAIT}{_STORE}", "0x1000, v2", "0xffe, v2", block=1),
    _twin("wide_atomic_ends_past_the_end", "out of bounds|misaligned", f"v_mov_b32_e32 v6, 1\nv_mov_b32_e32 v7, 0\nv_add_u32_e32 v4, 0xffc, v2\nglobal_atomic_add_x2 v4, v[6:7], s[6:7] ; BUG\n{WAIT}", "0xffc", "0xff8", block=1),
    _twin("negative_offset_as_a_large_one", "out of bounds", f"v_add_u32_e32 v4, -4, v1\nglobal_load_dword v3, v4, s[4:5] ; BUG\n{WAIT}{_STORE}", "-4", "4", block=64),
    # Lanes that are off.
    _twin("dpp_leaves_rows_out", "uninitialized", "v_mov_b32_e32 v3, v0\ns_nop 1\nv_mov_b32_dpp v4, v3 quad_perm:[1,0,3,2] row_mask:0x7 bank_mask:0xf\nglobal_store_dword v1, v4, s[6:7] ; BUG", "row_mask:0x7", "row_mask:0xf", block=64),
    _twin("dpp_leaves_banks_out", "uninitialized", "v_mov_b32_e32 v3, v0\ns_nop 1\nv_mov_b32_dpp v4, v3 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xe\nglobal_store_dword v1, v4, s[6:7] ; BUG", "bank_mask:0xe", "bank_mask:0xf", block=64),
    _twin("dpp_reads_lanes_that_are_off", "uninitialized", "v_mov_b32_e32 v3, v0\ns_mov_b32 s12, 0x55555555\ns_mov_b32 s13, s12\ns_mov_b64 exec, s[12:13]\ns_nop 1\nv_mov_b32_dpp v4, v3 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf\nglobal_store_dword v1, v4, s[6:7] ; BUG", "bank_mask:0xf\n", "bank_mask:0xf bound_ctrl:1\n", block=64),
    _twin("broadcast_of_rows_into_a_register_never_written", "uninitialized", "v_mov_b32_e32 v3, v0\ns_nop 0\ns_nop 1\nv_mov_b32_dpp v4, v3 row_bcast:15 row_mask:0xa bank_mask:0xf\nglobal_store_dword v1, v4, s[6:7] ; BUG", "s_nop 0\n", "v_mov_b32_e32 v4, 0\n", block=64),
    _twin("lane_read_that_nothing_wrote", "uninitialized", f"{_BELOW.format(n=40)}v_mov_b32_e32 v3, v0\ns_mov_b64 exec, s[10:11]\ns_nop 4\nv_readlane_b32 s12, v3, 50\nv_mov_b32_e32 v4, v0\ns_nop 1\nv_mov_b32_e32 v5, s12\nglobal_store_dword v1, v5, s[6:7] ; BUG", "v3, 50", "v3, 30", block=64),
    _twin("first_lane_is_one_that_nothing_wrote", "uninitialized", f"{_BELOW.format(n=40)}v_mov_b32_e32 v3, v0\ns_andn2_b64 exec, s[10:11], vcc\ns_nop 4\nv_readfirstlane_b32 s12, v3\ns_cmp_eq_u32 s12, 0\ns_cbranch_scc1 .Lend ; BUG\n.Lend:", "s_andn2_b64 exec", "s_and_b64 exec", block=64),
    _twin("compare_of_lanes_never_written_decides", "uninitialized", f"{_BELOW.format(n=40)}v_mov_b32_e32 v3, v0\ns_mov_b64 exec, s[10:11]\ns_nop 4\nv_cmp_eq_u32_e32 vcc, 63, v3\ns_nop 4\ns_cbranch_vccnz .Lend ; BUG\n.Lend:", "v_cmp_gt_u32_e32 vcc, 40, v0", "v_cmp_gt_u32_e32 vcc, 64, v0", block=64),
    _twin("mask_of_lanes_from_lanes_never_written", "uninitialized", f"{_BELOW.format(n=40)}v_mov_b32_e32 v3, v0\ns_mov_b64 exec, s[10:11]\ns_nop 4\nv_cmpx_gt_u32_e32 50, v3 ; BUG\nglobal_store_dword v1, v0, s[6:7]", "v_cmp_gt_u32_e32 vcc, 40, v0", "v_cmp_gt_u32_e32 vcc, 64, v0", block=64),
    _twin("row_of_the_other_half_never_written_on_gfx11", "uninitialized", "s_mov_b32 exec_lo, 0xffff\nv_mov_b32_e32 v3, v0\ns_mov_b32 exec_lo, -1\nv_permlanex16_b32 v4, v3, s4, s5\nglobal_store_b32 v1, v4, s[6:7] ; BUG", "s_mov_b32 exec_lo, 0xffff", "s_mov_b32 exec_lo, -1", "gfx1100", block=32),
    _twin("swap_of_halves_with_one_never_written_on_gfx950", "uninitialized", "v_mov_b32_e32 v4, 0\ns_mov_b64 s[10:11], exec\ns_mov_b32 s13, 0\ns_mov_b32 s12, -1\ns_mov_b64 exec, s[12:13]\nv_mov_b32_e32 v3, v0\ns_mov_b64 exec, s[10:11]\ns_nop 1\nv_permlane32_swap_b32_e32 v3, v4\nglobal_store_dword v1, v4, s[6:7] ; BUG\nglobal_store_dword v1, v3, s[6:7] offset:512", "s_mov_b32 s13, 0\n", "s_mov_b32 s13, -1\n", "gfx950", block=64),
    _twin("swizzle_of_lanes_never_written", "uninitialized", f"{_BELOW.format(n=40)}v_mov_b32_e32 v3, v0\ns_mov_b64 exec, s[10:11]\nds_swizzle_b32 v4, v3 offset:swizzle(SWAP,16)\n{WAIT}global_store_dword v1, v4, s[6:7] ; BUG", "vcc, 40, v0", "vcc, 64, v0", block=64),
    _twin("dpp8_of_lanes_never_written_on_gfx12", "uninitialized", "s_mov_b32 exec_lo, 0xffff\nv_mov_b32_e32 v3, v0\ns_mov_b32 exec_lo, -1\nv_mov_b32_dpp v4, v3 dpp8:[7,6,5,4,3,2,1,0]\nglobal_store_b32 v1, v4, s[6:7] ; BUG", "s_mov_b32 exec_lo, 0xffff", "s_mov_b32 exec_lo, -1", "gfx1201", block=32),
    _twin("atomic_of_lanes_never_written", "uninitialized", f"{_BELOW.format(n=40)}v_mov_b32_e32 v3, v0\ns_mov_b64 exec, s[10:11]\nglobal_atomic_add v2, v3, s[6:7] ; BUG\n{WAIT}", "vcc, 40, v0", "vcc, 64, v0", block=64),
    # Races.
    _twin("groups_one_element_too_near", "race", "s_mul_i32 s12, s2, 63\nv_add_u32_e32 v4, s12, v0\nv_lshlrev_b32_e32 v4, 2, v4\nv_mov_b32_e32 v3, s2\nglobal_store_dword v4, v3, s[6:7] ; BUG", "s2, 63", "s2, 64", grid=4, block=64),
    _twin("group_number_cut_short", "race", "s_and_b32 s12, s2, 1\ns_lshl_b32 s12, s12, 8\nv_add_u32_e32 v4, s12, v1\nv_mov_b32_e32 v3, s2\nglobal_store_dword v4, v3, s[6:7] ; BUG", "s2, 1", "s2, 3", grid=3, block=64),
    _twin("half_word_of_another_groups_word", "race", "v_mov_b32_e32 v6, s2\ns_cmp_lg_u32 s2, 0\ns_cbranch_scc1 .Lo\nglobal_store_dword v2, v6, s[6:7]\ns_endpgm\n.Lo:\nglobal_store_short v2, v6, s[6:7] offset:2 ; BUG", "offset:2", "offset:4", grid=2, block=1),
    _twin("counter_read_by_a_plain_load", "race", f"{_COUNT}global_atomic_add v2, v6, s[4:5] ; BUG\n{WAIT}global_load_dword v3, v2, s[4:5]\n{WAIT}", "global_load_dword v3, v2, s[4:5]", "global_load_dword v3, v2, s[6:7]", grid=4, block=1, check="race"),
    _twin("row_moved_by_one_in_place", "race", f"global_load_dword v3, v1, s[4:5] offset:4\n{WAIT}s_nop 0\nglobal_store_dword v1, v3, s[4:5] ; BUG", "s_nop 0", "s_barrier", check="race"),
    _twin("row_moved_by_one_in_place_by_groups", "race", f"s_lshl_b32 s12, s2, 8\nv_add_u32_e32 v4, s12, v1\nglobal_load_dword v3, v4, s[4:5] offset:4\n{WAIT}global_store_dword v4, v3, s[4:5] ; BUG", "global_store_dword v4, v3, s[4:5]", "global_store_dword v4, v3, s[6:7]", grid=4, block=64, check="race"),
    _twin("bytes_of_a_word_changed_by_groups", "race", f"global_load_dword v3, v2, s[6:7] ; BUG\n{WAIT}v_or_b32_e32 v3, s2, v3\nglobal_store_dword v2, v3, s[6:7]", "global_store_dword v2, v3, s[6:7]", "global_atomic_or v2, v3, s[4:5]", grid=3, block=1, check="race"),
    _twin("tile_transposed_without_a_barrier", "race", f"v_and_b32_e32 v4, 15, v0\nv_lshrrev_b32_e32 v5, 4, v0\nv_lshlrev_b32_e32 v4, 6, v4\nv_lshl_add_u32 v4, v5, 2, v4\nds_write_b32 v1, v0 ; BUG\n{WAIT}s_nop 0\nds_read_b32 v3, v4\n{WAIT}{_STORE}", "s_nop 0", "s_barrier", block=256, check="race"),
    _twin("halo_read_without_a_barrier", "race", f"ds_write_b32 v1, v0 ; BUG\n{WAIT}s_nop 0\nv_add_u32_e32 v4, 4, v1\nv_min_u32_e32 v4, 0x3fc, v4\nds_read_b32 v3, v4\n{WAIT}{_STORE}", "s_nop 0", "s_barrier", block=256, check="race"),
    # Hazards.
    _twin("bits_moved_by_sdwa_read_at_once", "hazard", f"v_mov_b32_e32 v3, 0\nv_add_u16_sdwa v3, v0, v0 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:WORD_0 src1_sel:WORD_0\nv_add_u32_e32 v4, v3, v0 ; BUG\n{_LEFT}", "v_add_u32_e32 v4, v3, v0", "s_nop 0\nv_add_u32_e32 v4, v3, v0"),
    _twin("mask_written_by_a_compare_before_dpp", "hazard: exec", f"v_mov_b32_e32 v3, v0\nv_mov_b32_e32 v4, 0\ns_nop 1\nv_cmpx_gt_u32_e32 40, v0\ns_nop 2\nv_mov_b32_dpp v4, v3 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf ; BUG\n{_LEFT}", "s_nop 2", "s_nop 4", block=64),
    _twin("accumulator_operand_overwritten", "hazard", f"{_ZERO}s_nop 1\nv_mfma_f32_32x32x8_f16 v[16:31], v[4:5], v[6:7], 0\nv_mfma_f32_16x16x16_f16 v[32:35], v[4:5], v[6:7], v[8:11]\ns_nop 0\nv_mov_b32_e32 v9, 1 ; BUG\n{_LEFT}", "s_nop 0", "s_nop 7", block=64),
    _twin("index_of_a_sparse_product_fresh", "hazard", f"{_ZERO}s_nop 1\nv_mov_b32_e32 v40, 0\nv_smfmac_f32_16x16x32_f16 v[16:19], v[4:5], v[8:11], v40 ; BUG\n{_LEFT}", "v_mov_b32_e32 v40, 0\nv_smfmac", "v_mov_b32_e32 v40, 0\ns_nop 1\nv_smfmac", block=64),
    _twin("data_of_a_buffer_store_overwritten", "hazard", f"{_ZERO}{_resource('s[6:7]', 4096)}v_lshlrev_b32_e32 v3, 4, v0\nbuffer_store_dwordx4 v[4:7], v3, s[12:15], 0 offen\nv_mov_b32_e32 v6, 1 ; BUG\n{_LEFT}", "v_mov_b32_e32 v6, 1", "s_nop 1\nv_mov_b32_e32 v6, 1", block=64),
    _twin("float64_product_read_too_early", "hazard", f"{_ZERO}s_nop 1\nv_mfma_f64_4x4x4_4b_f64 v[16:17], v[4:5], v[6:7], v[16:17]\ns_nop 3\nv_add_f64 v[20:21], v[16:17], v[4:5] ; BUG\n{_LEFT}", "s_nop 3", "s_nop 7", block=64),
    _twin("scaled_product_read_too_early_on_gfx950", "hazard", f"{_ZERO}s_nop 1\nv_mfma_f32_16x16x128_f8f6f4 v[16:19], v[4:11], v[4:11], v[16:19]\ns_nop 6\nv_add_f32_e32 v3, v16, v17 ; BUG\n{_LEFT}", "s_nop 6", "s_nop 15", "gfx950", block=64),
    _twin("base_in_a_scalar_made_by_a_vector_instruction", "hazard", f"v_mov_b32_e32 v3, s4\nv_mov_b32_e32 v4, s5\ns_nop 1\nv_readfirstlane_b32 s12, v3\nv_readfirstlane_b32 s13, v4\ns_nop 0\nglobal_load_dword v5, v1, s[12:13] ; BUG\n{WAIT}", "s_nop 0", "s_nop 4", block=64),
    # Progress, and what came later.
    _twin("queue_waits_for_a_group_behind", "no forward progress", "v_mov_b32_e32 v6, 1\ns_cmp_lg_u32 s2, 1\ns_cbranch_scc1 .Lset\n.Lwait:\nglobal_load_dword v3, v2, s[4:5] offset:16 sc1 ; BUG\ns_waitcnt vmcnt(0)\nv_readfirstlane_b32 s12, v3\ns_cmp_lg_u32 s12, 1\ns_cbranch_scc1 .Lwait\ns_endpgm\n.Lset:\ns_cmp_lg_u32 s2, 2\ns_cbranch_scc1 .Lend\nglobal_store_dword v2, v6, s[4:5] offset:16 sc1\n.Lend:", "s_cmp_lg_u32 s2, 2", "s_cmp_lg_u32 s2, 0", grid=3, block=1),
    _twin("loads_what_its_cache_held_before_on_gfx11", "race", f"{_OTHER11}global_store_b32 v1, v0, s[6:7]\ns_waitcnt_vscnt null, 0x0\ns_barrier\ns_nop 0\nglobal_load_b32 v3, v4, s[6:7] ; BUG\ns_waitcnt vmcnt(0)", "s_nop 0", "buffer_gl0_inv", "gfx1100", block=64),
    _twin("loads_what_its_cache_held_before_on_gfx12", "race", f"{_OTHER11}global_store_b32 v1, v0, s[6:7]\ns_wait_storecnt 0x0\n{_BARRIER12}s_nop 0\nglobal_load_b32 v3, v4, s[6:7] ; BUG\ns_wait_loadcnt 0x0", "s_nop 0", "global_inv scope:SCOPE_SE", "gfx1201", block=64),
    _twin("store_not_waited_for_at_the_barrier_on_gfx1250", "race", f"{_OTHER11}global_store_b32 v1, v0, s[6:7]\ns_nop 0\n{_BARRIER12}global_load_b32 v3, v4, s[6:7] ; BUG\ns_wait_loadcnt 0x0", "s_nop 0", "s_wait_storecnt 0x0", "gfx1250", block=64),
    _twin("sparse_product_of_lanes_never_written", "uninitialized", f"{_ZERO.replace('v_mov_b32_e32 v4, 0', 's_nop 0')}v_cmp_gt_u32_e32 vcc, 40, v0\ns_and_saveexec_b64 s[10:11], vcc\nv_mov_b32_e32 v4, 0\ns_mov_b64 exec, s[10:11]\ns_nop 4\nv_smfmac_f32_16x16x32_f16 v[16:19], v[4:5], v[8:11], v40\ns_nop 7\ns_nop 7\nglobal_store_dword v1, v16, s[6:7] ; BUG", "vcc, 40, v0", "vcc, 64, v0", block=64),
]  # fmt: skip
