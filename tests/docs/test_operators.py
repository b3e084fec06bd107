"""The operators on the page about ONNX are those of the frontend's registry."""

from __future__ import annotations

import re

from tec_onnx import operators

from tests.docs.test_pages import ROOT
from tools import docs_hooks, operators_page

PAGE = (ROOT / "docs" / "onnx.md").read_text("utf-8")


def test_every_operator_stands_in_one_row() -> None:
    drawn = docs_hooks.on_page_markdown(PAGE)
    assert operators_page.MARK in PAGE and operators_page.MARK not in drawn
    rows = [line.strip("| ").split(" | ") for line in operators_page.table().splitlines()[2:]]
    assert operators_page.table() in drawn
    shown = {(domain, name): how for domain, how, _, names in rows for name in names.split(", ")}
    assert sum(int(number) for _, _, number, _ in rows) == len(shown) == len(operators())
    for name, how in operators().items():
        domain, _, operator = name.rpartition(".")
        assert shown[domain or "ai.onnx", operator] == ("not supported" if how == "no" else how)


def test_the_groups_of_onnx_runtimes_operators_are_complete() -> None:
    section = PAGE.partition("## ONNX Runtime's own operators")[2].partition("\n\nAttention becomes")[0]
    cells = [line.split(" | ")[1] for line in section.splitlines() if line.startswith("| ")][2:]
    named = set(re.findall(r"\b[A-Z]\w+", re.sub(r"\(.*?\)", "", " ".join(cells))))
    known = {name.removeprefix("com.microsoft.") for name in operators() if name.startswith("com.microsoft.")}
    assert named == known
