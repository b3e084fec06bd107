"""Waves of code that others made keep up with each other (`analyses.lockstep`)."""

from __future__ import annotations

import re
import struct

import numpy as np
import pytest

from tec.emulator import get_driver
from tec.emulator.analyses.calls import parse_kernel
from tec.emulator.analyses.lockstep import way_given
from tec.emulator.errors import EmulationError

from .harness import download, upload
from .planted import image, text

_L = "s_waitcnt lgkmcnt(0)\n"
# Each wave reads what the other stored, and stores again with no barrier between, three times.
LOOP = (
    f"s_mov_b32 s10, 3\nv_mov_b32_e32 v5, 0\nv_mov_b32_e32 v6, v0\nds_write_b32 v1, v6\n{_L}s_barrier\n.Lloop:\n"
    f"v_xor_b32_e32 v3, 0x100, v1\nds_read_b32 v4, v3\n{_L}v_add_u32_e32 v6, 0x3e8, v6\nds_write_b32 v1, v6\nv_add_u32_e32 v5, v5, v4\n{_L}s_barrier\n"
    "s_sub_u32 s10, s10, 1\ns_cmp_lg_u32 s10, 0\ns_cbranch_scc1 .Lloop\nglobal_store_dword v1, v5, s[6:7]\n"
)


def _run(lockstep: bool, check: str) -> np.ndarray:
    driver = get_driver("gfx942", check=check, threads=1, seed=None)
    function = driver.get_function(driver.load_module(0, image("gfx942"), text("gfx942", LOOP)), "k")
    function.lockstep = lockstep
    out = upload(driver, np.zeros(128, np.int32))
    driver.launch(function, (1, 1, 1), (128, 1, 1), 0, struct.pack("<QQi", out, out, 0))
    return download(driver, out, np.empty(128, np.int32))


@pytest.mark.parametrize("check", ["bounds", "init", "barrier"])
def test_a_wave_stores_when_the_others_have_read(check: str) -> None:
    want = 3 * (np.arange(128) ^ 64) + 3000
    np.testing.assert_array_equal(_run(True, check), want)
    assert np.any(_run(False, check) != want)


def test_the_missing_barrier_is_told_all_the_same() -> None:
    with pytest.raises(EmulationError, match=re.compile("race: .*in LDS", re.S)):
        _run(True, "race")


def test_places() -> None:
    """The first store to LDS behind a load of it, or behind a label, and the first load behind a store; none behind a barrier."""
    kernel = parse_kernel(
        text(
            "gfx942",
            "ds_write_b32 v1, v0\ns_barrier\nds_write_b32 v1, v0\nds_read_b32 v3, v1\nds_write_b32 v1, v0\nds_write_b32 v1, v0\n.Lx:\n"
            "buffer_load_dword v1, s[4:7], 0 offen lds\ns_barrier\nds_read_b32 v3, v1\ns_barrier\nds_write_b32 v1, v0",
        ),
        "k",
    )
    first = next(i for i, inst in enumerate(kernel.insts) if inst.op == "ds_write_b32")
    assert way_given(kernel) == {first + 3, first + 4, first + 6}


# Each wave fills 64 words of LDS straight from memory, waits, and fills the 64 behind them, which the next wave has filled with others before.
FILLS = (
    "v_add_u32_e32 v5, 0x200, v1\nv_readfirstlane_b32 s10, v0\ns_lshl_b32 s10, s10, 2\ns_mov_b32 m0, s10\ns_nop 1\nglobal_load_lds_dword v1, s[4:5]\n"
    "s_waitcnt vmcnt(0)\ns_add_u32 m0, s10, 0x100\ns_nop 1\nglobal_load_lds_dword v5, s[4:5]\ns_waitcnt vmcnt(0)\ns_barrier\n"
    f"ds_read_b32 v3, v1 offset:256\n{_L}global_store_dword v1, v3, s[6:7]\n"
)


@pytest.mark.parametrize("lockstep", [True, False])
def test_a_wave_fills_lds_again_when_what_the_others_loaded_has_arrived(lockstep: bool) -> None:
    driver = get_driver("gfx942", check="bounds", threads=1, seed=None)
    function = driver.get_function(driver.load_module(0, image("gfx942"), text("gfx942", FILLS)), "k")
    function.lockstep = lockstep
    given = np.arange(256, dtype=np.int32)
    out = upload(driver, np.zeros(128, np.int32))
    driver.launch(function, (1, 1, 1), (128, 1, 1), 0, struct.pack("<QQi", upload(driver, given), out, 0))
    got = download(driver, out, np.empty(128, np.int32))
    assert np.array_equal(got, given[128:]) == lockstep


# Each wave reads what the other one stored, with no barrier between.
EXCHANGE = (
    f"v_xor_b32_e32 v3, 0x100, v1\nds_write_b32 v1, v0\n{_L}ds_read_b32 v4, v3\n{_L}global_store_dword v1, v4, s[6:7]\n"
)


@pytest.mark.parametrize("lockstep", [True, False])
def test_a_wave_reads_when_the_others_have_stored(lockstep: bool) -> None:
    driver = get_driver("gfx942", check="bounds", threads=1, seed=None)
    function = driver.get_function(driver.load_module(0, image("gfx942"), text("gfx942", EXCHANGE)), "k")
    function.lockstep = lockstep
    out = upload(driver, np.zeros(128, np.int32))
    driver.launch(function, (1, 1, 1), (128, 1, 1), 0, struct.pack("<QQi", out, out, 0))
    got = download(driver, out, np.empty(128, np.int32))
    assert np.array_equal(got, np.arange(128) ^ 64) == lockstep
