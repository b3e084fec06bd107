"""The table of passes on the page of the architecture is the pipeline itself."""

from __future__ import annotations

import pytest

from tec.driver import PIPELINE, short_name
from tests.docs.test_pages import ROOT
from tools import docs_hooks, passes_page


def test_the_page_shows_every_pass_in_order() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    drawn = docs_hooks.on_page_markdown(page)
    assert passes_page.MARK in page and passes_page.MARK not in drawn
    rows = [line.split(" | ") for line in drawn.splitlines() if line.startswith("| ") and line[2].isdigit()]
    assert [(name.strip("`"), stage) for _, name, stage, _ in rows] == [(short_name(n), stage) for n, stage in PIPELINE]


@pytest.mark.parametrize("name", sorted({name for name, _ in PIPELINE}))
def test_a_pass_says_in_a_sentence_what_it_is_for(name: str) -> None:
    said = passes_page.sentence(name)
    assert said.endswith(".") and 20 < len(said) < 200


def test_a_file_that_says_nothing_is_told(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "quiet.py").write_text("x = 1\n")
    monkeypatch.setattr(passes_page, "_PASSES", tmp_path)
    with pytest.raises(ValueError, match="has no docstring"):
        passes_page.sentence("quiet")
