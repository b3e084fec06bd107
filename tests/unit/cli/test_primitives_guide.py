"""The guide to the primitives is what its programs print, and leaves none out."""

from __future__ import annotations

import inspect

import pytest

from tec.schedule import Schedule, Stage
from tools import primitives_guide as guide


def test_the_page_is_what_the_programs_give() -> None:
    assert guide.PAGE.read_text(encoding="utf-8") == guide.page(), "run python -m tools.primitives_guide"


def test_every_primitive_is_there() -> None:
    own = {
        n
        for cls in (Stage, Schedule)
        for n, f in vars(cls).items()
        if callable(f) and not n.startswith("_") and "self.sch.apply(" in _code(f)
    }
    own |= {"cache_read", "cache_write", "rfactor", "create_group"}
    assert own == {e.title for e in guide.ENTRIES}


def _code(f: object) -> str:
    return inspect.getsource(f)  # type: ignore[arg-type]


@pytest.mark.parametrize("entry", guide.ENTRIES, ids=lambda e: e.title)
def test_each_changes_the_loops(entry: guide.Entry) -> None:
    assert guide.loops(entry, False) != guide.loops(entry, True)
