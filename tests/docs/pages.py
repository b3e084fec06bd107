"""Runs the Python blocks of a page in order, in one namespace, in the working directory.

    TEC_EMULATE=gfx942 python -m tests.docs.pages docs/runtime.md

A block is fenced with ```python and nothing else. Setup that a reader need not see stands in an HTML comment, `<!-- invisible-code-block: python ... -->`. A fragment is
marked with the reason why it does not run, `<!-- skip: next "a GPU" -->`. A fence with a title is no program of the page: a file, or printed loops.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from unittest import SkipTest

from sybil.document import Document
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser


def run(page: Path) -> tuple[int, list[str]]:
    """How many blocks ran, and why others did not. Raises what a block raises, with the page's line."""
    ran, reasons = 0, []
    for example in Document.parse(str(page), PythonCodeBlockParser(), SkipParser()).examples():
        try:
            example.evaluate()
        except SkipTest as e:
            reasons.append(str(e))
        else:
            ran += isinstance(example.parsed, str)
    return ran, reasons


def report(page: Path) -> None:
    count, left_out = run(page)
    print(f"{count} blocks ran", *(f"not run: {x}" for x in left_out), sep="\n", flush=True)


def report_in(folder: str, page: str) -> None:
    """For a process that is forked for a page: its blocks run in a folder, whose `out` and `err` hold what they print."""
    os.chdir(folder)
    sys.path.insert(0, folder)
    for name, stream in (("out", 1), ("err", 2)):
        os.dup2(os.open(name, os.O_CREAT | os.O_WRONLY, 0o600), stream)
    os.environ["TEC_EMULATE"] = "gfx942"
    report(Path(page))


if __name__ == "__main__":
    report(Path(sys.argv[1]).resolve())
