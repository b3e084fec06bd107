"""Live vector registers of hand-written kernels."""

from __future__ import annotations

from tec.emulator.analyses.calls import parse_kernel
from tec.emulator.analyses.liveness import live_vgprs


def live(*lines: str) -> list[int]:
    return live_vgprs(parse_kernel("k:\n" + "\n".join(lines) + "\ns_endpgm\n.Lfunc_end0:\n", "k"))


def test_straight_code():
    got = live(
        "v_add_u32_e32 v1, v0, v0",  # v0
        "v_mul_lo_u32 v2, v1, v0",  # v0, v1
        "global_store_dword v1, v2, s[0:1]",  # v1, v2
    )
    assert got == [1, 2, 2, 0]


def test_loads_define_and_stores_read_tuples():
    got = live(
        "global_load_dwordx4 v[4:7], v0, s[0:1]",  # v0
        "v_mov_b32_e32 v1, 0",  # v4-7, v0
        "global_store_dwordx4 v0, v[4:7], s[2:3]",
        "global_atomic_add_f32 v0, v1, s[2:3]",
    )
    assert got == [1, 5, 6, 2, 0]


def test_a_loop_carries_its_accumulator():
    got = live(
        "v_mov_b32_e32 v1, 0",  # v0
        ".LBB0_1:",
        "v_fmac_f32_e32 v1, v0, v0",  # v0, v1 round the loop
        "s_cbranch_scc1 .LBB0_1",
        "global_store_dword v0, v1, s[0:1]",
    )
    assert got == [1, 2, 2, 2, 0]


def test_what_is_written_and_never_read_is_not_live():
    assert live("v_mov_b32_e32 v9, 1", "v_mov_b32_e32 v9, 2") == [0, 0, 0]


def test_lds_accesses():
    got = live("ds_read_b64 v[2:3], v0", "ds_write_b64 v1, v[2:3]")
    assert got == [2, 3, 0]  # v0 and v1; v1, v2, v3
