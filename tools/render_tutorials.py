"""Tutorials to pages: each percent-format script is run, cell by cell, and written as Markdown with what it printed.

    python -m tools.render_tutorials OUT_FOLDER [SCRIPT...]

A cell that raises ends the run: a page never shows what does not work. Only where a trained network cannot be fetched
(`tools.zoo.Unavailable`) the page is written without outputs, and says so.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import os
import re
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tools.archives import Unavailable

ROOT = Path(__file__).resolve().parent.parent
_MOST_LINES = 60  # of one cell's output on a page


@dataclass
class Cell:
    """A piece of a script: "markdown" (without its comment marks) or "code", and the line it starts on."""

    kind: str
    text: str
    line: int


def cells(text: str) -> list[Cell]:
    """The cells of a percent-format script."""
    out: list[Cell] = []
    for k, line in enumerate(text.splitlines(), 1):
        mark = re.match(r"# %%(.*)", line)
        if mark:
            out.append(Cell("markdown" if "[markdown]" in mark[1] else "code", "", k + 1))
        elif out:
            if out[-1].kind == "markdown":
                line = re.sub(r"^# ?", "", line)
            out[-1].text += line + "\n"
    return [Cell(c.kind, c.text.strip("\n"), c.line) for c in out if c.text.strip()]


def render(text: str, name: str) -> str:
    """The page of a script. Runs it."""
    space: dict[str, Any] = {"__name__": "__main__", "__file__": name, "ROOT": ROOT}
    # Errors name the user's line: the script's own.
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    parts = []
    for cell in cells(text):
        if cell.kind == "markdown":
            parts.append(cell.text)
            continue
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile("\n" * (cell.line - 1) + cell.text, name, "exec"), space)
        parts.append(f"```python\n{cell.text}\n```")
        lines = said.getvalue().rstrip().splitlines()
        if lines:
            more = [f"... {len(lines) - _MOST_LINES} more lines"] if len(lines) > _MOST_LINES else []
            parts.append("```text\n" + "\n".join([*lines[:_MOST_LINES], *more]) + "\n```")
    return "\n\n".join(parts) + "\n"


def unrun(text: str, why: str) -> str:
    """The page of a script that cannot be run here: its text and code, without outputs and pictures."""
    parts = [f"!!! warning\n    Not run when this page was made: {why}."]
    for cell in cells(text):
        words = re.sub(r"!\[([^\]]*)\]\([^)]*\)", r"(\1)", cell.text)
        parts.append(words if cell.kind == "markdown" else f"```python\n{cell.text}\n```")
    return "\n\n".join([parts[1], parts[0], *parts[2:]]) + "\n"


def write(script: Path, folder: Path) -> tuple[Path, str]:
    """(the page of a script, which stands in `folder`; why it was not run, or nothing)."""
    page, why = folder / f"{script.stem}.md", ""
    text, environment = script.read_text(), dict(os.environ)
    try:
        with contextlib.chdir(folder):  # pictures that a tutorial saves lie beside its page
            result = render(text, script.name)
    except Unavailable as error:
        why = str(error)
        result = unrun(text, why)
    finally:
        os.environ.clear()  # what a tutorial sets is its own
        os.environ.update(environment)
    page.write_text(result)
    return page, why


def main(words: list[str]) -> int:
    folder = Path(words[0]).resolve()
    scripts = [Path(w).resolve() for w in words[1:]] or sorted((ROOT / "tutorials").glob("[0-9][0-9]_*.py"))
    folder.mkdir(parents=True, exist_ok=True)
    processes = min(len(scripts), len(os.sched_getaffinity(0)))
    order = scripts[::-1]  # the last tutorial is the longest: it starts first
    with contextlib.ExitStack() as stack:
        # One script, or one core, needs no process of its own.
        pool = stack.enter_context(ProcessPoolExecutor(processes, get_context("spawn"))) if processes > 1 else None
        pages = (pool.map if pool else map)(write, order, [folder] * len(order))
        for script, (page, why) in zip(order, pages):
            if why:
                print(f"{script.name}: not run: {why}", file=sys.stderr)
            print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
