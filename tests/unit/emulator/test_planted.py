"""The table of planted bugs (`planted`): each is found, at its line; and kernels that look like them and are right are left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tec.cli.emu import command as group
from tec.emulator import get_driver
from tec.emulator.errors import EmulationError

from .planted import BUGS, RIGHT, Bug, image, launch, marked, text


@pytest.mark.parametrize("bug", BUGS, ids=lambda b: b.name)
def test_planted_bug(bug: Bug) -> None:
    with pytest.raises(EmulationError, match=f"(?s){bug.said}") as e:
        launch(bug.chip, bug.body, bug.check, bug.grid, bug.block, bug.fresh, bug.n)
    assert e.value.line == marked(text(bug.chip, bug.body)), str(e.value)


@pytest.mark.parametrize("right", RIGHT, ids=lambda b: b.name)
@pytest.mark.parametrize("threads", [1, 3])
def test_right_kernels_are_left_alone(right: Bug, threads: int) -> None:
    launch(right.chip, right.body, right.check, right.grid, right.block, right.fresh, right.n, threads)


def test_a_store_of_one_value_by_several_waves_is_noted() -> None:
    driver = get_driver("gfx942", check="all", threads=2)
    driver.notes.clear()
    launch("gfx942", "v_mov_b32_e32 v3, 5\nglobal_store_dword v2, v3, s[6:7]", "all", 4, 128, False, 0)
    assert len(driver.notes) == 1 and "line 11: global_store_dword v2, v3, s[6:7]" in driver.notes[0]


def test_the_cli_tells_notes_and_faults(tmp_path: Path) -> None:
    """`tec emu run` on the code object and its text."""
    object_file, asm = tmp_path / "k.hsaco", tmp_path / "k.s"
    object_file.write_bytes(image("gfx942"))
    asm.write_text(text("gfx942", "v_mov_b32_e32 v3, 5\nglobal_store_dword v2, v3, s[6:7]"))
    words = [
        "run",
        str(object_file),
        "--asm",
        str(asm),
        "--grid",
        "2",
        "--block",
        "64",
        "--arg",
        "i32:64",
        "--arg",
        "i32:64",
        "--arg",
        "i32=0",
    ]
    done = CliRunner().invoke(group, [*words, "--check", "all"])
    assert done.exit_code == 0 and "note: k, line 11: global_store_dword" in done.output, done.output
