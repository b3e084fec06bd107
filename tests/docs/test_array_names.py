"""The functions of NumPy on the page about arrays are those of the namespace."""

from __future__ import annotations

import re

import tec
from tec.array.numpy_names import ALIASES, FUNCTIONS
from tests.docs.test_pages import ROOT
from tools import array_names_page, docs_hooks


def test_every_function_stands_in_one_row() -> None:
    page = (ROOT / "docs" / "arrays.md").read_text("utf-8")
    assert array_names_page.table() in docs_hooks.on_page_markdown(page)
    *rows, others = array_names_page.table().splitlines()[2:]
    shown = [n for row in rows for n in re.findall(r"`(\w+)`", row)]
    assert sorted(shown) == sorted(FUNCTIONS) and all(hasattr(tec.array, n) for n in shown)
    assert set(re.findall(r"`(\w+)` \(", others)) == set(ALIASES)
