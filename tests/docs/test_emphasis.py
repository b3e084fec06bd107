"""Formulas on pages stand in code: between two asterisks of a line Markdown makes text italic, and the asterisks are gone."""

from __future__ import annotations

import re

import pytest

from tests.docs.test_pages import PAGES, name_of

_CODE = re.compile(r"^```.*?^```|<!--.*?-->|^    .*?$|`[^`\n]*`", re.M | re.S)
_PRODUCT = re.compile(r"[\w)]\*[\w(]")


def italic_formulas(text: str) -> list[str]:
    """Lines outside of code with an asterisk between two operands, and another one that would end the italics."""
    plain = re.sub(r"\*\*[^*\n]+\*\*", "", _CODE.sub("", text))
    return [line for line in plain.splitlines() if line.count("*") > 1 and _PRODUCT.search(line)]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_formula_is_italic(page) -> None:
    assert not italic_formulas(page.read_text("utf-8"))


def test_a_formula_outside_of_code_is_found() -> None:
    assert italic_formulas("| 8*(i // 4) + 4*(l // 32) |") and italic_formulas("x*x + y*y")
    assert not italic_formulas("D = A*B + C\n\n`x*x + y*y`, an *emphasis* and **strong** words\n")
