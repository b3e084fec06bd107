"""An extension of griffe, which reads the docstrings for the site: examples and loop nests in them become blocks of code.

    >>> x = f(1)            lines of a session: a Python block
    ... more
    result

Markdown would take `>>>` for three quotations. Text in, text out: `fenced`.
"""

from __future__ import annotations

import re
from typing import Any

import griffe


def fenced(text: str) -> str:
    """A docstring with its sessions as fenced blocks: from `>>>` to the next empty line."""
    out: list[str] = []
    inside = False
    for line in text.splitlines():
        starts = re.match(r"\s*>>> ?", line) is not None
        if starts and not inside:
            if out and out[-1].strip():
                out.append("")
            out.append("```pycon")
            inside = True
        elif inside and not line.strip():
            out.append("```")
            inside = False
        out.append(line.strip() if inside else line)
    if inside:
        out.append("```")
    return "\n".join(out)


class Doctests(griffe.Extension):
    """Applies `fenced` to every docstring."""

    def on_instance(self, *, obj: Any, **kwargs: Any) -> None:
        if obj.docstring is not None and ">>>" in obj.docstring.value:
            obj.docstring.value = fenced(obj.docstring.value)
