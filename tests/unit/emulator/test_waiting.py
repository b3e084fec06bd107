"""Loops in which a wave only waits for another work-group: found in the text, and gone through once by a trace."""

from __future__ import annotations

from tec.emulator.analyses.calls import parse_kernel
from tec.emulator.analyses.skeleton import data_only
from tec.emulator.checks.order import find_order, polling_branches, waiting_branches, waiting_places
from tec.emulator.decode.inst import KernelText

POLL = ("s_load_dword s4, s[2:3], 0x0 glc", "s_waitcnt lgkmcnt(0)", "s_cmp_gt_u32 s4, 0", "s_cbranch_scc0 .L_0")


def kernel(*body: str, before: str = "s_nop 0") -> KernelText:
    lines = ["k:", f"\t{before}", ".L_0:", *(f"\t{x}" for x in body), "\ts_endpgm", ".Lfunc_end0:"]
    return parse_kernel("\n".join(lines) + "\n", "k")


def test_a_poll_of_a_semaphore_waits() -> None:
    text = kernel(*POLL)
    assert polling_branches(text, "gfx942") == waiting_branches(text, "gfx942") == {4}
    assert waiting_places(text, "gfx942") == {1, 2, 3, 4}


def test_a_loop_that_works_does_not() -> None:
    text = kernel("global_store_dword v0, v1, s[8:9]", *POLL)
    assert polling_branches(text, "gfx942") == {5}
    assert not waiting_branches(text, "gfx942")
    assert not waiting_branches(kernel(POLL[0].removesuffix(" glc"), *POLL[1:]), "gfx942")


def test_what_a_trace_leaves_out_does_not_hang_on_the_semaphore() -> None:
    text = kernel(*POLL, "v_add_f32 v1, v2, v3", before="s_load_dwordx2 s[2:3], s[0:1], 0x0")
    assert data_only(text, 0) is None
    assert data_only(text, 0, waiting_places(text, "gfx942")) is not None


def test_a_store_past_the_caches_gives_nothing_back() -> None:
    text = kernel("s_store_dword s5, s[2:3], 0x0 glc", before="s_load_dwordx2 s[2:3], s[0:1], 0x0")
    assert data_only(text, 0) is not None


def test_a_poll_of_a_semaphore_is_no_race_with_the_atomics_on_it() -> None:
    order = find_order(kernel(*POLL, before="global_atomic_add v0, v1, s[2:3]"), "gfx942")
    assert order is not None and 1 in order.atomics
    order = find_order(kernel(POLL[0].removesuffix(" glc"), *POLL, before="global_atomic_add v0, v1, s[2:3]"), "gfx942")
    assert order is not None and 1 not in order.atomics and 2 in order.atomics, "a load through the caches is one"
