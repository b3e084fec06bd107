"""Prose of the pages has lines below 100 characters. Tables, code, and links that are longer by themselves are left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs/decisions").glob("*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_lines_of_prose_are_short(page: Path) -> None:
    text = re.sub(r"^```.*?^```|<!--.*?-->", "", page.read_text("utf-8"), flags=re.M | re.S)
    lines = [x for x in text.splitlines() if not x.startswith(("|", "![", "    ")) and re.search(r"\s\S+\s", x.strip())]
    assert [x for x in lines if len(re.sub(r"`[^`]*`", "", x)) >= 100] == []
