"""The support library's LLVM IR: the sections of its `.ll` files and what is filled in."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tec.emulator.context import CTX
from tec.emulator.support import template
from tec.emulator.support.library import group_ir, group_names, groups

FOLDER = Path(template.__file__).parent
SECTIONS = {f"{p.stem}.{s}" for p in FOLDER.glob("*.ll") for s in re.findall(r"^;;; (\w+)$", p.read_text(), re.M)}


def test_every_section_is_asked_for_and_no_other() -> None:
    code = "".join(p.read_text() for p in [*FOLDER.glob("*.py"), FOLDER.parent / "translate" / "jit.py"])
    assert set(re.findall(r'\bir\(\s*"([\w.]+)"', code)) == SECTIONS
    assert len(SECTIONS) > 40


@pytest.mark.parametrize("group", groups())
def test_every_name_is_filled_in(group: str) -> None:
    text = group_ir(group)
    assert "$" not in text
    for name in group_names(group):
        assert f"@{name}(" in text, name


@pytest.mark.parametrize("space", ["global", "lds", "scratch"])
def test_accesses_loop_over_groups_of_lanes(space: str) -> None:
    """A copy of an access for each group of 16 lanes took LLVM twice as long for the widest waves, in each process that begins with an empty cache."""
    texts = [group_ir(f"{space}_{w}") for w in (32, 64)]
    assert len({t.count("\n") for t in texts}) == 1
    accesses = len([n for n in group_names(f"{space}_64") if n.startswith(("tec_ld_", "tec_st_"))])
    assert all(t.count("phi i64 [ 0, %") >= accesses for t in texts)


def test_names_are_held_to_the_section(monkeypatch: pytest.MonkeyPatch) -> None:
    template._pieces.cache_clear()
    monkeypatch.setattr(
        template, "_sections", lambda file: {"a": "%p = add i64 $CTX.site, ${n}0\n", "b": "%p = add i64 $nobody, 0\n"}
    )
    assert template.ir("x.a", n=3) == f"%p = add i64 {CTX['site']}, 30\n"
    with pytest.raises(KeyError, match="has no m"):
        template.ir("x.a", n=3, m=4)
    with pytest.raises(KeyError, match="n"):
        template.ir("x.a")
    with pytest.raises(KeyError, match="nobody"):
        template.ir("x.b")
