"""The passes as a Markdown table, in the order of `tec.driver.PIPELINE`, each with the first sentence of its file.

    python -m tools.passes_page

The site's hook puts the table in the place of its mark in docs/architecture.md.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tec.driver import PIPELINE, short_name

MARK = "<!-- passes -->"
_PASSES = Path(__file__).resolve().parent.parent / "tec" / "ir" / "passes"


def _file(name: str) -> Path:
    single = _PASSES / f"{name.replace('.', '/')}.py"
    return single if single.exists() else _PASSES / name / "__init__.py"


def sentence(name: str) -> str:
    """What a pass is for: the first sentence of its file. Raises ValueError for a file that says nothing."""
    text = ast.get_docstring(ast.parse(_file(name).read_text("utf-8")))
    if not text:
        raise ValueError(f"{_file(name)} has no docstring")
    first = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=[.])\s+(?=[A-Z`])", first)[0].replace("|", "\\|")


def table() -> str:
    """One row for each entry: a pass that runs twice stands twice."""
    rows = [
        f"| {n} | `{short_name(name)}` | {stage} | {sentence(name)} |" for n, (name, stage) in enumerate(PIPELINE, 1)
    ]
    return "\n".join(["| | pass | stage after it | what it does |", "| --- | --- | --- | --- |", *rows])


def with_table(markdown: str) -> str:
    """A page with the table in the place of its mark."""
    return markdown.replace(MARK, table()) if MARK in markdown else markdown


if __name__ == "__main__":
    print(table())
