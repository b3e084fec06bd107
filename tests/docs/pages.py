"""Runs the Python blocks of a page in order, in one namespace, in the working directory.

    TEC_EMULATE=gfx942 python -m tests.docs.pages docs/runtime.md

A block is fenced with ```python and nothing else. Setup that a reader need not see stands in an HTML comment, `<!-- invisible-code-block: python ... -->`. A fragment is
marked with the reason why it does not run, `<!-- skip: next "a GPU" -->`. A fence with a title is no program of the page: a file, or printed loops.
"""

from __future__ import annotations

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


if __name__ == "__main__":
    count, left_out = run(Path(sys.argv[1]).resolve())
    print(f"{count} blocks ran", *(f"not run: {x}" for x in left_out), sep="\n")
