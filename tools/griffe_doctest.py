"""An extension of griffe, which reads the docstrings for the site: examples and loop nests in them become blocks of code.

    >>> x = f(1)            lines of a session: a Python block
    ... more
    result

Markdown would take `>>>` for three quotations. And sentences about parameters become lists with their types. Text in, text out: `fenced`, `listed`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
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


def listed(text: str, types: Mapping[str, str]) -> str:
    """A docstring whose sentences about parameters ("name: what it is. other, more: what they are.") are a list, each with its type.

    types: of the parameters that there are, as the signature has them; nothing is said of one that may be anything.
    """
    names = "|".join(map(re.escape, types))
    if not names:
        return text
    head = re.compile(rf"(?:(?<=[.;])\s+|(?<=\n)[ ]*|^)((?:{names})(?:(?:, | and )(?:{names}))*): (?=\S)")
    paragraphs = []
    for part in re.split(r"\n[ ]*\n", text):
        found = [] if part.startswith("    ") or "```" in part or ">>>" in part else list(head.finditer(part))
        if not found:
            paragraphs.append(part)
            continue
        before, rows = part[: found[0].start()].strip(), []
        tail = ""
        for k, m in enumerate(found):
            end = found[k + 1].start() if k + 1 < len(found) else len(part)
            words = " ".join(part[m.end() : end].split())
            cut = re.search(r"\s(?=(?:Returns|Raises|Gives)\b)", words)
            if cut:  # what follows the parameters is no part of the last one
                words, tail = words[: cut.start()], f"{tail} {words[cut.end() :]}".strip()
            own = re.split(r", | and ", m[1])
            known = dict.fromkeys(types[n] for n in own if types[n] and "Any" not in types[n])
            kind = f" ({', '.join(f'`{t}`' for t in known)})" if known else ""
            rows.append(f"- {', '.join(f'`{n}`' for n in own)}{kind}: {words.rstrip('; ')}")
        paragraphs += [p for p in (before, "\n".join(rows), tail) if p]
    return "\n\n".join(paragraphs)


def _types(function: Any) -> dict[str, str]:
    """The parameters of a function with their types as text."""
    return {p.name.lstrip("*"): str(p.annotation or "") for p in function.parameters if p.name not in ("self", "cls")}


class Doctests(griffe.Extension):
    """Applies `fenced` and `listed` to every docstring."""

    def on_instance(self, *, obj: Any, **kwargs: Any) -> None:
        if obj.docstring is not None and ">>>" in obj.docstring.value:
            obj.docstring.value = fenced(obj.docstring.value)

    def on_function_instance(self, *, func: Any, **kwargs: Any) -> None:
        if func.docstring is not None:
            func.docstring.value = listed(func.docstring.value, _types(func))
