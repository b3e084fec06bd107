"""The table of planted bugs (`planted`): each is found, at its line; and kernels that look like them and are right are left alone."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tec.cli.emu import command as group
from tec.emulator import get_driver
from tec.emulator.analyses.calls import parse_kernel
from tec.emulator.checks import order
from tec.emulator.errors import EmulationError
from tec.emulator.stopping import WaveState, find_line
from tec.errors import DeviceError
from tests.thinned import thinned

from .harness import download, upload
from .hosts import HOSTS
from .planted import BUGS, RIGHT, WAIT, Bug, image, launch, marked, text
from .planted_pairs import PAIRS, Pair
from .planted_twins import TWINS


@pytest.mark.parametrize("bug", BUGS, ids=lambda b: b.name)
def test_planted_bug(bug: Bug) -> None:
    with pytest.raises(EmulationError, match=f"(?s){bug.said}") as e:
        # On one thread: which of two accesses comes second, and is reported, is decided by nothing but the order of work-groups.
        launch(bug.chip, bug.body, bug.check, bug.grid, bug.block, bug.fresh, bug.n, threads=1)
    assert e.value.line == marked(text(bug.chip, bug.body)), str(e.value)


@pytest.mark.parametrize("pair", [*PAIRS, *TWINS], ids=lambda p: p.bug.name)
def test_a_mistake_is_found_and_the_kernel_without_it_left_alone(pair: Pair) -> None:
    test_planted_bug(pair.bug)
    for threads in (1, 3):
        _run(pair.right, threads)


@thinned(1, ("right", RIGHT), ("threads", [1, 3]))
def test_right_kernels_are_left_alone(right: Bug, threads: int) -> None:
    _run(right, threads)


def _run(right: Bug, threads: int) -> None:
    launch(right.chip, right.body, right.check, right.grid, right.block, right.fresh, right.n, threads)


@pytest.mark.parametrize("check", ["bounds", "align", "race"])
@pytest.mark.parametrize("between", ["s_barrier\n", "s_trap 3\n"])
def test_a_barrier_of_one_wave_keeps_what_was_read(between: str, check: str) -> None:
    """A store takes its data where registers lie in memory; a group of one wave passes barriers without a stop."""
    body = f"v_add_u32_e32 v3, 3, v0\ns_mov_b64 exec, -1\nds_write_b32 v1, v3\n{WAIT}ds_read_b32 v4, v1\n{WAIT}{between}global_store_dword v1, v4, s[6:7]"
    driver = get_driver("gfx942", check=check, seed=None)
    function = driver.get_function(driver.load_module(0, image("gfx942"), text("gfx942", body)), "k")
    o = upload(driver, np.full(64, -1, np.int32))
    driver.launch(function, (1, 1, 1), (64, 1, 1), 0, struct.pack("<QQi", o, o, 0))
    got = download(driver, o, np.empty(64, np.int32))
    driver.free(0, o)
    np.testing.assert_array_equal(got, np.arange(64) + 3)


@pytest.mark.parametrize("compiled", [True, False])
def test_assembly_by_hand_may_meet_at_different_barriers(compiled: bool) -> None:
    """LLVM states the spills of each kernel; where nobody does, waves that went different ways meet as the hardware has it: by their number."""
    bug = next(b for b in BUGS if b.name == "waves_at_different_barriers")
    driver = get_driver("gfx942", check="all", seed=None)
    function = driver.get_function(driver.load_module(0, image("gfx942"), text("gfx942", bug.body)), "k")
    if not compiled:
        del function.info.metadata[".vgpr_spill_count"]
    o = upload(driver, np.zeros(128, np.int32))
    words = struct.pack("<QQi", o, o, 0)
    if compiled:
        with pytest.raises(EmulationError, match="at another barrier"):
            driver.launch(function, (1, 1, 1), (128, 1, 1), 0, words)
    else:
        driver.launch(function, (1, 1, 1), (128, 1, 1), 0, words)
    driver.free(0, o)


def test_a_store_of_one_value_by_several_waves_is_noted() -> None:
    driver = get_driver("gfx942", check="all", threads=2, seed=None)
    driver.notes.clear()
    launch("gfx942", "v_mov_b32_e32 v3, 5\nglobal_store_dword v2, v3, s[6:7]", "all", 4, 128, False, 0)
    assert len(driver.notes) == 1 and "line 11: global_store_dword v2, v3, s[6:7]" in driver.notes[0]


def run_words(object_file: Path, asm: Path, grid: int, block: int, elements: int) -> list[str]:
    """Of `tec emu run`: two arrays of so many elements, and a number."""
    args = (f"i32:{elements}", f"i32:{elements}", "i32=0")
    sizes = ["--grid", str(grid), "--block", str(block)]
    return ["run", str(object_file), "--asm", str(asm), *sizes, *(w for a in args for w in ("--arg", a))]


def test_the_cli_tells_notes_and_faults(tmp_path: Path) -> None:
    """`tec emu run` on the code object and its text."""
    object_file, asm = tmp_path / "k.hsaco", tmp_path / "k.s"
    object_file.write_bytes(image("gfx942"))
    asm.write_text(text("gfx942", "v_mov_b32_e32 v3, 5\nglobal_store_dword v2, v3, s[6:7]"))
    words = run_words(object_file, asm, 2, 64, 64)
    done = CliRunner().invoke(group, [*words, "--check", "all"])
    assert done.exit_code == 0 and "note: k, line 11: global_store_dword" in done.output, done.output


def test_a_wave_stops_at_a_line_and_shows_its_registers(tmp_path: Path) -> None:
    body = "s_mov_b32 s20, s2\nv_add_u32_e32 v5, 7, v0\nv_mov_b32_e32 v6, 1.5\nv_mov_b32_e32 v5, 0\nglobal_store_dword v1, v0, s[6:7]"
    object_file, asm = tmp_path / "k.hsaco", tmp_path / "kernel.s"
    object_file.write_bytes(image("gfx942"))
    asm.write_text(text("gfx942", body))
    line = asm.read_text().split("\n").index("\tv_mov_b32_e32 v5, 0") + 1
    words = run_words(object_file, asm, 3, 128, 512)
    stop = ["--break", f"kernel.s:{line}", "--lane", "3", "--wave", "1", "--group", "2"]
    done = CliRunner().invoke(group, [*words, *stop])
    assert done.exit_code == 0, done.output
    assert f"wave 1 of work-group (2, 0, 0) before line {line}: v_mov_b32_e32 v5, 0" in done.output
    assert re.search(r"s20 +00000002 +2 ", done.output) and re.search(r"v5 +0000004a +74 ", done.output), done.output
    assert re.search(r"v6 +3fc00000 +\d+  1.5$", done.output, re.M) and "exec 0xffffffffffffffff" in done.output
    refused = CliRunner().invoke(group, [*words, "--break", "900"])
    assert refused.exit_code != 0 and "no instruction on line 900" in str(refused.exception or refused.output)
    driver = get_driver("gfx942")
    assert driver.stop is None
    launch("gfx942", body, "bounds", 3, 128, False, 0)  # the kernel itself runs on


def test_places_that_are_not_there_to_stop_at() -> None:
    """Lines of the source are its own, not the assembly's; a wavefront of 32 has no lane 40."""
    kernel = parse_kernel(text("gfx942", "v_mov_b32_e32 v3, 5\nv_mov_b32_e32 v4, 6\nv_mov_b32_e32 v5, 7"), "k")
    lines = [inst.line for inst in kernel.insts]
    kernel.statements.update({lines[0]: "/src/k.hip:7", lines[1]: "/src/k.hip:9", lines[2]: "/src/k.hip:7"})
    assert find_line(kernel, "k.hip:7") == lines[0] and find_line(kernel, "k.hip:8") == lines[1]
    assert find_line(kernel, f"k.s:{lines[2]}") == lines[2] == find_line(kernel, str(lines[2]))
    for wanted, said in (
        ("k.hip:10", "k.hip or behind it"),
        ("other.hip:7", "no lines of other.hip"),
        ("k.s:900", "line 900"),
        ("k.hip:", "no line in"),
    ):
        with pytest.raises(DeviceError, match=said):
            find_line(kernel, wanted)
    state = WaveState(1, "s_nop 0", (0, 0, 0), 0, {}, {("v", 0): np.zeros(32, np.uint32)}, 0, -1)
    assert "v0" in state.describe(31)
    with pytest.raises(DeviceError, match="no lane 40"):
        state.describe(40)


def test_order_among_very_many_waves_is_taken_for_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above a number of waves no vectors of times are kept, and nothing is reported between work-groups that synchronize."""
    monkeypatch.setattr(order, "_MOST_WAVES", 100)
    for name in ("last_of_many_groups_reduces", "lock_given_back_by_an_exchange"):
        right = next(b for b in RIGHT if b.name == name)
        launch(right.chip, right.body, right.check, 200, right.block, right.fresh, 199, 2)


@pytest.mark.parametrize("host", HOSTS[:1])
def test_planted_bugs_on_an_old_host(host: str) -> None:
    """Kernels with atomics, and with products of halves, where the host converts no f16 by itself."""
    for right in RIGHT:
        if right.name in ("last_group_after_a_barrier", "matrix_results_in_a_chain"):
            launch(right.chip, right.body, right.check, right.grid, right.block, right.fresh, right.n, 1, host_cpu=host)
