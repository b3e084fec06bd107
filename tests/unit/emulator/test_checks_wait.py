"""`check="wait"` over short programs: what a wait must cover, and what comes in order by itself."""

from __future__ import annotations

import pytest

from tec.emulator.analyses.calls import parse_kernel
from tec.emulator.checks.waits import check_waits
from tec.emulator.errors import EmulationError


def check(program: str, gfx: int = 11) -> None:
    check_waits(parse_kernel("k:\n" + program.replace("; ", "\n") + "\ns_endpgm\n.Lfunc_end0:\n", "k"), gfx)


GOOD = (
    # Both halves of a register, each by a load of its own: the second keeps the first one's half without reading it.
    "global_load_d16_b16 v1, v[2:3], off; global_load_d16_hi_b16 v1, v[4:5], off; s_waitcnt vmcnt(0); v_mov_b32 v6, v1",
    "global_load_d16_u8 v1, v[2:3], off; global_load_d16_hi_u8 v1, v[4:5], off; s_waitcnt vmcnt(0); v_mov_b32 v6, v1",
    "ds_load_u16_d16 v1, v2; ds_load_u16_d16_hi v1, v3; s_waitcnt lgkmcnt(0); v_mov_b32 v6, v1",
    "scratch_load_d16_b16 v1, off, s0; global_load_d16_hi_b16 v1, v[4:5], off; s_waitcnt vmcnt(0); v_mov_b32 v6, v1",
    # LDS loads come in order, so a wait for one covers those before it.
    "ds_load_b32 v1, v2; ds_load_b32 v3, v2; s_waitcnt lgkmcnt(1); v_mov_b32 v6, v1",
    # A register loaded twice: the loads come in order.
    "global_load_b64 v[1:2], v[2:3], off; global_load_b32 v2, v[4:5], off; s_waitcnt vmcnt(0); v_mov_b32 v6, v2",
    # The half that has come is used while the other is on its way.
    "global_load_d16_b16 v1, v[2:3], off; global_load_d16_hi_b16 v1, v[4:5], off; s_waitcnt vmcnt(1); v_mov_b16 v6.l, v1.l",
    "global_load_d16_b16 v1, v[2:3], off; v_mov_b16 v1.h, v4.l; s_waitcnt vmcnt(0); v_mov_b32 v6, v1",
)
BAD = (
    ("global_load_d16_hi_b16 v1, v[4:5], off; v_mov_b32 v6, v1", "v1"),
    ("global_load_d16_b16 v1, v[2:3], off; global_load_d16_hi_b16 v1, v[4:5], off; s_waitcnt vmcnt(1); v_mov_b32 v6, v1", "v1"),
    ("global_load_d16_b16 v1, v[2:3], off; global_load_d16_hi_b16 v1, v[4:5], off; s_waitcnt vmcnt(1); v_mov_b16 v6.l, v1.h", "v1"),
    # Different units answer in any order.
    ("ds_load_u16_d16 v1, v2; global_load_d16_hi_b16 v1, v[4:5], off; s_waitcnt vmcnt(0) lgkmcnt(0)", "v1"),
    ("global_load_b32 v1, v[2:3], off; ds_load_b32 v1, v2; s_waitcnt vmcnt(0) lgkmcnt(0)", "v1"),
    ("s_load_b32 s4, s[0:1], null; s_load_b32 s4, s[2:3], null; s_waitcnt lgkmcnt(0)", "s4"),
    # Scalar loads in any order.
    ("s_load_b32 s4, s[0:1], null; s_load_b32 s5, s[2:3], null; s_waitcnt lgkmcnt(1); s_mov_b32 s6, s4", "s4"),
    # The address of a load is a use, whatever its destination is.
    ("global_load_b64 v[2:3], v[2:3], off; global_load_b32 v2, v[2:3], off; s_waitcnt vmcnt(0)", "v2"),
    ("ds_load_b32 v1, v2; ds_load_b32 v1, v1; s_waitcnt lgkmcnt(0)", "v1"),
    # The data of an atomic is a use, though the old value comes to the same register.
    ("global_load_b32 v1, v[2:3], off; buffer_atomic_add_u32 v1, off, s[0:3], 0 glc; s_waitcnt vmcnt(0)", "v1"),
    ("ds_load_b32 v1, v2; ds_add_rtn_u32 v1, v3, v1; s_waitcnt lgkmcnt(0)", "v1"),
)  # fmt: skip


@pytest.mark.parametrize("program", GOOD)
def test_in_order(program: str) -> None:
    check(program)


@pytest.mark.parametrize(("program", "register"), BAD)
def test_missing(program: str, register: str) -> None:
    with pytest.raises(EmulationError, match=f"missing wait: {register} is used"):
        check(program)


def test_gfx12_counters() -> None:
    check("ds_load_u16_d16 v1, v2; ds_load_u16_d16_hi v1, v3; s_wait_dscnt 0x0; v_mov_b32 v6, v1", 12)
    with pytest.raises(EmulationError, match="dscnt"):
        check("ds_load_u16_d16 v1, v2; ds_load_u16_d16_hi v1, v3; s_wait_dscnt 0x1; v_mov_b32 v6, v1", 12)


@pytest.mark.parametrize(
    ("program", "gfx"),
    [
        ("ds_store_b32 v1, v2; s_waitcnt lgkmcnt(0); s_barrier", 11),
        ("ds_load_b32 v1, v2; s_barrier; s_waitcnt lgkmcnt(0)", 11),
        ("ds_store_b32 v1, v2; ds_load_b32 v3, v4; s_waitcnt lgkmcnt(1); s_barrier; s_waitcnt lgkmcnt(0)", 11),
        ("ds_bpermute_b32 v1, v2, v3; s_barrier; s_waitcnt lgkmcnt(0)", 9),
        ("ds_store_b32 v1, v2; s_wait_dscnt 0x0; s_barrier_signal -1; s_barrier_wait -1", 12),
    ],
)
def test_stores_to_lds_before_barriers(program: str, gfx: int) -> None:
    check(program, gfx)


@pytest.mark.parametrize(
    ("program", "gfx", "line"),
    [
        ("ds_store_b32 v1, v2; s_barrier", 11, 2),
        ("ds_write_b32 v1, v2; s_waitcnt vmcnt(0); s_barrier", 9, 2),
        ("ds_add_u32 v1, v2; s_barrier", 11, 2),
        ("ds_load_b32 v3, v4; ds_store_b32 v1, v2; s_waitcnt lgkmcnt(1); s_barrier", 11, 3),
        ("s_cbranch_scc0 on; ds_store_b32 v1, v2; on:; s_barrier", 11, 3),
        ("ds_store_b32 v1, v2; s_wait_loadcnt 0x0; s_barrier_signal -1; s_barrier_wait -1", 12, 2),
    ],
)
def test_stores_to_lds_on_their_way_at_barriers(program: str, gfx: int, line: int) -> None:
    with pytest.raises(EmulationError, match=rf"an LDS store may still be on its way at a barrier \(line {line}:"):
        check(program, gfx)
