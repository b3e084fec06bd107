"""Figures of the sources, counted: lines by folder, the longest files, the share of `Any` in annotations, choices that ask for a target's kind.

    python -m tools.house_figures

As rows of results they are of kind "house"; none of them depends on a machine.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.records import Maker, Record

FOLDERS = ("tec", "frontends", "tests", "tools", "benchmarks", "tutorials", "docs")
LONG = 500  # lines; what a file should rarely exceed


def _files(folder: Path) -> list[Path]:
    """Sources and pages under a folder, without what is built or downloaded."""
    kinds = (".py", ".md")
    return [p for p in sorted(folder.rglob("*")) if p.suffix in kinds and "__pycache__" not in p.parts]


def lines(folder: Path) -> int:
    return sum(len(p.read_text("utf-8").splitlines()) for p in _files(folder))


def any_share(folder: Path) -> tuple[int, int]:
    """How often annotations of a folder name `Any`, and how many annotations there are: of arguments, results and variables."""
    named = total = 0
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.arg() | ast.AnnAssign():
                    annotation = node.annotation
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    annotation = node.returns
                case _:
                    continue
            if annotation is not None:
                total += 1
                named += any(isinstance(n, ast.Name) and n.id == "Any" for n in ast.walk(annotation))
    return named, total


def kind_questions(folder: Path) -> int:
    """Comparisons of a `.kind` or a target's kind with a text, by == or `in`."""
    return sum(
        len(re.findall(r"\bkind (?:==|!=|in|not in) [\"'(]", p.read_text("utf-8"))) for p in folder.rglob("*.py")
    )


def measure(make: Maker, quick: bool = False, only: list[str] | None = None) -> Iterator[Record]:
    """The rows, of `make.tree`."""
    tree = make.tree
    for top in FOLDERS:
        if (tree / top).is_dir():
            yield make.counted(top, "lines", lines(tree / top), "lines", band=None)
    for folder in sorted(p for p in (tree / "tec").iterdir() if p.is_dir() and p.name != "__pycache__"):
        yield make.counted(f"tec/{folder.name}", "lines", lines(folder), "lines", band=None)
    sources = [p for p in _files(tree / "tec") if p.suffix == ".py"]
    long = sum(len(p.read_text("utf-8").splitlines()) > LONG for p in sources)
    yield make.counted("tec", f"files above {LONG} lines", long, "files", band=1.0)
    for top in ("tec", "tec/choices"):
        named, total = any_share(tree / top)
        yield make.counted(top, "annotations with Any", round(100 * named / total, 2), "percent of annotations")
    yield make.counted(
        "tec/choices", "questions for a kind", kind_questions(tree / "tec" / "choices"), "comparisons", band=1.0
    )


def main() -> None:
    for row in measure(Maker("house", "python -m tools.house_figures")):
        print(f"{row.what:20s} {row.measure:24s} {row.value:>10} {row.unit}")


if __name__ == "__main__":
    sys.exit(main())
