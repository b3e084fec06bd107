"""The quick look before the race and init checks (`checks.screening`): what it lets pass, and that it loses no fault."""

from __future__ import annotations

import re
import struct

import numpy as np
import pytest

from tec.emulator import get_driver
from tec.emulator import launch as launching
from tec.emulator.analyses.calls import parse_kernel
from tec.emulator.analyses.definedness import all_filled
from tec.emulator.decode.inst import generation
from tec.emulator.errors import EmulationError
from tests.thinned import thinned_rows

from .harness import download, upload
from .planted import BUGS, WAIT, Bug, image, marked, text

V, L = "s_waitcnt vmcnt(0)\n", "s_waitcnt lgkmcnt(0)\n"
B = f"{WAIT}s_barrier\n"
# v3: the lanes' places in rows of eight words, of which each is turned by another number.
TURNED = "v_lshrrev_b32_e32 v3, 1, v0\nv_and_b32_e32 v3, 0x1c, v3\nv_xor_b32_e32 v3, v1, v3\n"


def columns(apart: int) -> str:
    """v3: the lanes' places in a transposed tile, of which each wave has the half of four columns that begin so many bytes apart, 16 words of each."""
    words = "v_and_b32_e32 v4, 0x3c, v0\nv_add_u32_e32 v3, v3, v4\nv_and_b32_e32 v4, 64, v0\nv_add_u32_e32 v3, v3, v4\n"
    return f"v_and_b32_e32 v3, 3, v0\nv_mul_u32_u24_e32 v3, {apart}, v3\n{words}"


# v3: places of words of rows that are padded, so that no lane goes on where another ends; v4: those of 8 bytes of a wave in reverse; v[4:5]: what is stored there.
PADDED = "v_lshlrev_b32_e32 v3, 1, v1\n"
REVERSED = "v_xor_b32_e32 v4, 63, v0\nv_lshlrev_b32_e32 v6, 3, v4\nv_mov_b32_e32 v5, 1\n"


# Kernels with a fault each, and what is said of it. The work-groups are of 128 work-items in two waves.
PLANTED = {
    "a wave reads what the other stores": ("race", f"ds_write_b32 v1, v0\n{WAIT}v_xor_b32_e32 v3, 0x100, v1\nds_read_b32 v4, v3\n"),
    "the next stores before the others have read": (
        "race",
        f"ds_write_b32 v1, v0\n{B}v_xor_b32_e32 v3, 0x100, v1\nds_read_b32 v4, v3\n{L}ds_write_b32 v1, v4\n{WAIT}",
    ),
    "two waves at one word, another value": ("race", f"v_and_b32_e32 v3, 0xfc, v1\nds_write_b32 v3, v0\n{WAIT}"),
    "half a word each": ("race", f"v_lshlrev_b32_e32 v3, 1, v0\nv_and_b32_e32 v3, 0x7e, v3\nds_write_b16 v3, v0\n{WAIT}"),
    "two work-groups at one place": ("race", "global_store_dword v1, v0, s[6:7]\nv_add_u32_e32 v3, s2, v0\nglobal_store_dword v1, v3, s[6:7] offset:4\n"),
    "a work-group loads what another stores": (
        "race",
        f"s_lshl_b32 s10, s2, 9\nv_add_u32_e32 v3, s10, v1\nglobal_store_dword v3, v0, s[6:7]\nv_xor_b32_e32 v4, 0x200, v3\nglobal_load_dword v5, v4, s[6:7]\n{V}",
    ),
    "a wave stores where the other loaded": (
        "race",
        f"v_xor_b32_e32 v3, 0x100, v1\nglobal_load_dword v5, v3, s[4:5]\n{V}global_store_dword v1, v0, s[4:5]\n",
    ),
    "one behind the end of LDS": ("LDS access out of bounds", f"v_add_u32_e32 v3, 0x204, v1\nds_write_b32 v3, v0\n{WAIT}"),
    "words of LDS that nobody stored": ("uninitialized value stored", f"ds_write_b32 v1, v0\n{B}ds_read_b32 v4, v1 offset:512\n{L}global_store_dword v1, v4, s[6:7]\n"),
    "the half of a word that nobody stored": ("uninitialized value stored", f"ds_write_b16 v1, v0\n{B}ds_read_b32 v4, v1\n{L}global_store_dword v1, v4, s[6:7]\n"),
    "an array that nobody wrote": ("uninitialized value stored", f"global_load_dword v4, v1, s[4:5]\n{V}global_store_dword v1, v4, s[6:7]\n"),
    "an address out of it": ("uninitialized value in an address", f"global_load_dword v4, v1, s[4:5]\n{V}global_load_dword v5, v4, s[6:7]\n{V}"),
    "lanes that a branch left out": (
        "uninitialized value stored",
        "v_cmp_gt_u32_e32 vcc, 100, v0\ns_and_saveexec_b64 s[10:11], vcc\nv_mov_b32_e32 v4, 1\ns_or_b64 exec, exec, s[10:11]\nglobal_store_dword v1, v4, s[6:7]\n",
    ),
    "two lanes of a turned tile at one word": (
        "lanes of one wave store different values",
        f"{TURNED}v_max_u32_e32 v3, 4, v3\nds_write_b32 v3, v0\n{WAIT}",
    ),
    "a wave reads the other's turned tile": (
        "race",
        f"{TURNED}ds_write_b32 v3, v0\n{WAIT}v_xor_b32_e32 v3, 0x100, v3\nds_read_b32 v4, v3\n{L}",
    ),
    "a turned tile one word too far": ("LDS access out of bounds", f"{TURNED}ds_write_b32 v3, v0 offset:516\n{WAIT}"),
    "a wave reads the last word of the other's transposed tile": (
        "race",
        f"{columns(128)}ds_write_b32 v3, v0\n{WAIT}v_xor_b32_e32 v4, 64, v4\nds_read_b32 v4, v4 offset:444\n{L}",
    ),
    "a lane of a transposed tile at a word of the other's": (
        "race",
        f"{columns(128)}v_cmp_eq_u32_e32 vcc, 37, v0\nv_mov_b32_e32 v5, 0x44\ns_nop 1\nv_cndmask_b32_e32 v3, v3, v5, vcc\nds_write_b32 v3, v0\n{WAIT}",
    ),
    "two columns of a transposed tile that share a word": (
        "lanes of one wave store different values",
        f"{columns(60)}ds_write_b32 v3, v0\n{WAIT}",
    ),
    "a transposed tile one word too far": ("LDS access out of bounds", f"{columns(128)}ds_write_b32 v3, v0 offset:516\n{WAIT}"),
    "a transposed tile that begins behind an array": (
        "out of bounds", f"{columns(128)}v_add_u32_e32 v3, 0xe04, v3\nglobal_store_dword v3, v0, s[6:7]\n"
    ),
    "lanes that read past what the others stored": (
        "uninitialized value stored",
        f"v_cmp_ne_u32_e32 vcc, 37, v0\ns_and_saveexec_b64 s[10:11], vcc\nds_write_b32 v1, v0\ns_or_b64 exec, exec, s[10:11]\n{B}{TURNED}ds_read_b32 v4, v3\n{L}global_store_dword v1, v4, s[6:7]\n",
    ),
    "a wave reads the other's padded rows": (
        "race",
        f"{PADDED}ds_write_b32 v3, v0\n{WAIT}v_xor_b32_e32 v3, 0x200, v3\nds_read_b32 v4, v3\n{L}",
    ),
    "a wave stores over padded rows that the other read": (
        "race",
        f"{PADDED}ds_write_b32 v3, v0\n{B}v_xor_b32_e32 v3, 0x200, v3\nds_read_b32 v4, v3\n{L}v_xor_b32_e32 v3, 0x200, v3\nds_write_b32 v3, v4\n{WAIT}",
    ),
    "the padding of rows": (
        "uninitialized value stored",
        f"{PADDED}ds_write_b32 v3, v0\n{B}ds_read_b32 v4, v3 offset:4\n{L}global_store_dword v1, v4, s[6:7]\n",
    ),
    "padded rows one word too far": ("LDS access out of bounds", f"{PADDED}ds_write_b32 v3, v0 offset:12\n{WAIT}"),
    "a wave reads the other's double words in reverse": (
        "race",
        f"{REVERSED}ds_write_b64 v6, v[4:5]\n{WAIT}v_xor_b32_e32 v6, 0x200, v6\nds_read_b64 v[8:9], v6\n{L}",
    ),
    "four words in reverse, of which one has none": (
        "uninitialized value stored",
        f"v_cmp_ne_u32_e32 vcc, 37, v0\ns_and_saveexec_b64 s[10:11], vcc\n{REVERSED}ds_write_b64 v6, v[4:5]\ns_or_b64 exec, exec, s[10:11]\n"
        f"{B}v_xor_b32_e32 v6, 0x7e, v0\nv_lshlrev_b32_e32 v6, 3, v6\nv_and_b32_e32 v6, 0x3f0, v6\nds_read_b128 v[8:11], v6\n{L}v_xor_b32_e32 v8, v8, v10\nglobal_store_dword v1, v8, s[6:7]\n",
    ),
    "a lane of another wave's array": ("out of bounds", "v_add_u32_e32 v3, 0xe04, v1\nglobal_store_dword v3, v0, s[6:7]\n"),
    "one behind the end of an array": ("out of bounds", f"v_add_u32_e32 v3, 0xe04, v1\nglobal_load_dword v4, v3, s[4:5]\n{V}"),
}  # fmt: skip
FRESH = ("an array that nobody wrote", "an address out of it")
RIGHT = {
    "sums through LDS": f"ds_write_b32 v1, v0\n{B}v_xor_b32_e32 v3, 0x100, v1\nds_read_b32 v4, v3\n{L}v_add_u32_e32 v4, v4, v0\nglobal_store_dword v1, v4, s[6:7]\n",
    "in place": f"global_load_dword v4, v1, s[4:5]\n{V}v_add_u32_e32 v4, 1, v4\nglobal_store_dword v1, v4, s[4:5]\n",
    "twice through one buffer": f"ds_write_b32 v1, v0\n{B}v_xor_b32_e32 v3, 0x100, v1\nds_read_b32 v4, v3\n{L}s_barrier\nds_write_b32 v1, v4\n{B}ds_read_b32 v4, v3\n{L}global_store_dword v1, v4, s[6:7]\n",
    "a tile whose rows are turned": f"{TURNED}ds_write_b32 v3, v0\n{B}v_xor_b32_e32 v3, 0x100, v3\nds_read_b32 v4, v3\n{L}global_store_dword v1, v4, s[6:7]\n",
    "a tile that is stored transposed": f"{columns(128)}ds_write_b32 v3, v0\n{B}ds_read_b32 v4, v1\n{L}global_store_dword v3, v4, s[6:7]\n",
    "runs of lanes with others off between": f"v_and_b32_e32 v4, 5, v0\nv_cmp_ne_u32_e32 vcc, 5, v4\nds_write_b32 v1, v0\n{B}s_and_saveexec_b64 s[10:11], vcc\nglobal_load_dword v5, v1, s[4:5]\n"
    f"{TURNED}ds_read_b32 v4, v3\n{WAIT}v_add_u32_e32 v4, v4, v5\nglobal_store_dword v1, v4, s[6:7]\n",
    "padded rows": f"{PADDED}ds_write_b32 v3, v0\n{B}v_xor_b32_e32 v3, 0x200, v3\nds_read_b32 v4, v3\n{L}s_barrier\nds_write_b32 v3, v4 offset:4\n{B}ds_read_b64 v[8:9], v3\n{L}"
    "v_add_u32_e32 v8, v8, v9\nglobal_store_dword v1, v8, s[6:7]\n",
    "double words in reverse": f"{REVERSED}ds_write_b64 v6, v[4:5]\n{B}v_xor_b32_e32 v6, 0x7e, v0\nv_lshlrev_b32_e32 v6, 3, v6\nv_and_b32_e32 v6, 0x3f0, v6\nds_read_b128 v[8:11], v6\n{L}"
    "v_xor_b32_e32 v8, v8, v10\nglobal_store_dword v1, v8, s[6:7]\n",
    "some lanes": "v_cmp_gt_u32_e32 vcc, 100, v0\nv_mov_b32_e32 v4, 2\ns_and_saveexec_b64 s[10:11], vcc\nv_mov_b32_e32 v4, 1\ns_or_b64 exec, exec, s[10:11]\nglobal_store_dword v1, v4, s[6:7]\n",
}  # fmt: skip


def _run(
    body: str, monkeypatch: pytest.MonkeyPatch, fresh: bool = False, grid: int = 2, screened_from: int = 0
) -> tuple[list[bool], np.ndarray, object]:
    """Launch with every launch of so many waves screened; which screened launches ended so, what is in the arrays then, the error."""
    ended: list[bool] = []
    inner = launching._screened

    def noted(*args: object) -> bool:
        ended.append(inner(*args))  # type: ignore[arg-type]
        return ended[-1]

    monkeypatch.setattr(launching, "_screened", noted)
    driver = get_driver("gfx942", check="all", threads=1, seed=None)
    driver.screened_from = screened_from
    function = driver.get_function(driver.load_module(0, image("gfx942"), text("gfx942", body)), "k")
    first = driver.alloc(0, 4096) if fresh else upload(driver, np.arange(1024, dtype=np.int32))
    second = upload(driver, np.full(1024, 7, np.int32))
    error: object = None
    try:
        driver.launch(function, (grid, 1, 1), (128, 1, 1), 0, struct.pack("<QQi", first, second, 0))
    except EmulationError as e:
        error = e
    return ended, download(driver, second, np.empty(1024, np.int32)), error


@pytest.mark.parametrize("name", PLANTED)
def test_a_bug_is_said_as_if_there_were_no_quick_look(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said, body = PLANTED[name]
    grid = 1 if "work-group" not in name else 2
    ended, _, error = _run(body, monkeypatch, name in FRESH, grid)
    assert isinstance(error, EmulationError) and re.search(said, str(error)), error
    _, _, other = _run(body, monkeypatch, name in FRESH, grid, screened_from=1 << 30)
    assert isinstance(other, EmulationError) and error.line == other.line
    assert ended in ([], [False])


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_kernel_ends_under_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ended, _, error = _run(RIGHT[name], monkeypatch, grid=1)
    assert error is None and ended == [True]


@thinned_rows(8, ("bug",), [(b,) for b in BUGS if b.chip == "gfx942" and b.check in ("all", "race", "init")])
def test_the_table_of_bugs_is_found_behind_it(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tec.emulator.driver.FEWEST_WAVES", 0)
    from .planted import launch

    with pytest.raises(EmulationError, match=f"(?s){bug.said}") as e:
        launch(bug.chip, bug.body, bug.check, bug.grid, bug.block, bug.fresh, bug.n, threads=1)
    assert e.value.line == marked(text(bug.chip, bug.body)), str(e.value)


def test_memory_is_put_back_before_the_full_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch that adds to what it finds in memory gives the same whether it began twice or once: two waves store one value to one word, which is no fault."""
    body = f"global_load_dword v4, v1, s[6:7]\n{V}v_add_u32_e32 v4, 1, v4\nglobal_store_dword v1, v4, s[6:7]\nv_mov_b32_e32 v5, 9\nglobal_store_dword v2, v5, s[6:7] offset:2048\n"
    ended, got, error = _run(body, monkeypatch, grid=1)
    assert error is None and ended == [False]
    want = np.full(1024, 7)
    want[:128], want[512] = 8, 9
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("fresh", [True, False])
def test_undefined_bits_are_put_back_too(fresh: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch that began twice has filled what it stored to, and of a page that had undefined words the others are undefined still."""
    body = "global_store_dword v1, v0, s[4:5]\nv_mov_b32_e32 v5, 9\nglobal_store_dword v2, v5, s[6:7] offset:2048\n"
    driver = get_driver("gfx942", check="all", threads=1, seed=None)
    driver.screened_from = 0
    first = driver.alloc(0, 4096) if fresh else upload(driver, np.arange(1024, dtype=np.int32))
    args = struct.pack("<QQi", first, upload(driver, np.full(1024, 7, np.int32)), 0)

    def launch(body: str) -> None:
        function = driver.get_function(driver.load_module(0, image("gfx942"), text("gfx942", body)), "k")
        driver.launch(function, (1, 1, 1), (128, 1, 1), 0, args)

    load = f"global_load_dword v4, v1, s[4:5]{{}}\n{V}global_store_dword v1, v4, s[6:7]\n"
    launch(body)
    launch(load.format(""))
    if not fresh:
        launch(load.format(" offset:512"))
        return
    with pytest.raises(EmulationError, match="uninitialized value stored"):
        launch(load.format(" offset:512"))


@pytest.mark.parametrize(
    ("filled", "body"),
    [
        (True, "v_mov_b32_e32 v3, 1\nv_add_u32_e32 v4, v3, v0\nglobal_store_dword v1, v4, s[6:7]"),
        (False, "global_store_dword v1, v4, s[6:7]"),
        (True, "v_add_u32_e32 v4, v3, v0\nv_mov_b32_e32 v4, 1\nglobal_store_dword v1, v4, s[6:7]"),  # computed, and used for nothing
        (False, "s_cbranch_scc0 .Lskip\nv_mov_b32_e32 v4, 1\n.Lskip:\nglobal_store_dword v1, v4, s[6:7]"),
        (False, "s_cmp_eq_u32 s8, 0\ns_cbranch_scc1 .Lskip\nv_mov_b32_e32 v4, 1\n.Lskip:\nglobal_store_dword v1, v4, s[6:7]"),
        (True, "v_cmp_eq_u32_e32 vcc, 1, v0\ns_and_saveexec_b64 s[10:11], vcc\nv_mov_b32_e32 v4, 1\nglobal_store_dword v1, v4, s[6:7]"),
        (False, "v_cmp_eq_u32_e32 vcc, 1, v0\ns_and_saveexec_b64 s[10:11], vcc\nv_mov_b32_e32 v4, 1\ns_mov_b64 exec, s[10:11]\nglobal_store_dword v1, v4, s[6:7]"),
        # The other side of a branch: both sides store what they filled, then all lanes what was filled before.
        (True, "v_cmp_eq_u32_e32 vcc, 1, v0\nv_mov_b32_e32 v5, 3\ns_and_saveexec_b64 s[10:11], vcc\ns_xor_b64 s[10:11], exec, s[10:11]\nv_mov_b32_e32 v4, 1\n"
               "global_store_dword v1, v4, s[6:7]\ns_andn2_saveexec_b64 s[10:11], s[10:11]\nv_mov_b32_e32 v6, 2\nglobal_store_dword v1, v6, s[6:7]\n"
               "s_or_b64 exec, exec, s[10:11]\nglobal_store_dword v1, v5, s[6:7]"),
        (False, "v_cmp_eq_u32_e32 vcc, 1, v0\ns_and_saveexec_b64 s[10:11], vcc\ns_xor_b64 s[10:11], exec, s[10:11]\nv_mov_b32_e32 v4, 1\n"
                "s_andn2_saveexec_b64 s[10:11], s[10:11]\nglobal_store_dword v1, v4, s[6:7]"),
        # Lanes leave a loop one after another; what the loop fills for those that are in it is not filled behind it.
        (False, "s_mov_b64 s[10:11], exec\n.Lagain:\nv_mov_b32_e32 v4, 1\nv_cmp_lt_u32_e32 vcc, 5, v0\ns_and_b64 exec, exec, vcc\nv_mov_b32_e32 v5, 1\n"
                "s_cbranch_execnz .Lagain\ns_mov_b64 exec, s[10:11]\nglobal_store_dword v1, v5, s[6:7]"),
        (False, "global_load_short_d16 v4, v1, s[4:5]\ns_waitcnt vmcnt(0)\nglobal_store_dword v1, v4, s[6:7]"),
        (True, "global_load_short_d16 v4, v1, s[4:5]\nglobal_load_short_d16_hi v4, v1, s[4:5]\ns_waitcnt vmcnt(0)\nglobal_store_dword v1, v4, s[6:7]"),
        (False, "v_mov_b32_dpp v4, v0 row_shl:1 row_mask:0xf bank_mask:0xf\nglobal_store_dword v1, v4, s[6:7]"),
        (True, "v_mov_b32_dpp v4, v0 row_shl:1 row_mask:0xf bank_mask:0xf bound_ctrl:0\nglobal_store_dword v1, v4, s[6:7]"),
    ],
)  # fmt: skip
def test_registers_that_are_surely_filled(filled: bool, body: str) -> None:
    kernel = parse_kernel(text("gfx942", body), "k")
    assert all_filled(kernel, 9, 64, True, 9, 1) is filled


# Chip, what stands before a store of v4: nothing fills it in all lanes, or the scalar that it comes from.
UNFILLED = [
    # From gfx10 on v_cmpx has no result but EXEC, so that its first operand is read.
    ("gfx1100", "v_cmpx_gt_u32_e32 v4, v0"),
    ("gfx1100", "v_cmpx_gt_u32_e64 v4, v0"),
    # What adds to its result.
    ("gfx1100", "v_dot2acc_f32_f16_e32 v4, v0, v0"),
    ("gfx1201", "s_fmac_f32 s12, s6, s6\nv_mov_b32_e32 v4, s12"),
    # The upper half stays.
    ("gfx1100", "v_dot2_f16_f16 v4, v0, v0, v0"),
    # Floats and wide integers leave SCC alone.
    ("gfx1201", "s_add_f32 s10, s6, s6\ns_cselect_b32 s11, 1, 2\nv_mov_b32_e32 v4, s11"),
    ("gfx1201", "s_add_nc_u64 s[10:11], s[6:7], s[6:7]\ns_cselect_b32 s11, 1, 2\nv_mov_b32_e32 v4, s11"),
    ("gfx942", "v_mov_b32_e32 v4, src_scc"),
    # Half of EXEC.
    ("gfx942", "s_mov_b64 exec, 1\ns_mov_b32 exec_lo, -1\nv_mov_b32_e32 v4, 1\ns_mov_b64 exec, -1"),
    ("gfx942", "s_mov_b32 s10, exec_lo\ns_mov_b64 exec, 0\ns_mov_b32 exec_lo, s10\nv_mov_b32_e32 v4, 1\ns_mov_b64 exec, -1"),
    ("gfx942", "v_cmp_eq_u32_e32 vcc, 1, v0\ns_and_saveexec_b64 s[10:11], vcc\ns_or_b32 exec_lo, exec_lo, s10\nv_mov_b32_e32 v4, 1\ns_mov_b64 exec, s[10:11]"),
    # EXEC as the result of a vector instruction.
    ("gfx942", "v_cmp_eq_u32_e64 exec, 1, v0\nv_mov_b32_e32 v4, 1\ns_mov_b64 exec, -1"),
    ("gfx942", "v_readfirstlane_b32 exec_lo, v0\nv_mov_b32_e32 v4, 1\ns_mov_b64 exec, -1"),
    # Where no lane is on, the first one is read.
    ("gfx942", "v_cmp_eq_u32_e32 vcc, -1, v0\ns_and_saveexec_b64 s[10:11], vcc\nv_mov_b32_e32 v4, 1\nv_readfirstlane_b32 s12, v4\ns_mov_b64 exec, s[10:11]\nv_mov_b32_e32 v4, s12"),
    # Keeps its result where the lane that is read is off.
    ("gfx1100", "v_cmp_eq_u32_e32 vcc_lo, 1, v0\ns_and_saveexec_b32 s10, vcc_lo\nv_permlane16_b32 v4, v0, s6, s6"),
    # The carry takes the place of a mask.
    ("gfx1201", "s_mov_b32 s10, exec_lo\nv_mad_co_u64_u32 v[6:7], s10, v0, v1, v[0:1]\ns_mov_b32 exec_lo, 1\ns_mov_b32 exec_lo, s10\nv_mov_b32_e32 v4, 1\ns_mov_b32 exec_lo, -1"),
]  # fmt: skip


@pytest.mark.parametrize(("chip", "body"), UNFILLED)
def test_registers_that_may_not_be_filled(chip: str, body: str) -> None:
    store = "global_store_dword" if chip == "gfx942" else "global_store_b32"
    kernel = parse_kernel(text(chip, f"{body}\n{store} v1, v4, s[6:7]"), "k")
    assert not all_filled(kernel, generation(chip), 64 if chip == "gfx942" else 32, True, 9, 2)


def test_a_lane_mask_of_an_unfilled_register_is_said_on_gfx11(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way: the launch is not screened, and the init check says where it reads."""
    driver = get_driver("gfx1100", check="all", threads=1, seed=None)
    driver.screened_from = 0
    function = driver.get_function(driver.load_module(0, image("gfx1100"), text("gfx1100", "v_cmpx_gt_u32_e32 v4, v0\nv_mov_b32_e32 v4, 1\nglobal_store_b32 v1, v4, s[6:7]\n")), "k")  # fmt: skip
    first, second = (upload(driver, np.zeros(1024, np.int32)) for _ in range(2))
    with pytest.raises(EmulationError, match="uninitialized"):
        driver.launch(function, (1, 1, 1), (128, 1, 1), 0, struct.pack("<QQi", first, second, 0))
