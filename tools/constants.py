"""Constants of one machine or one network that stand in code: numbers whose reason, a comment or docstring beside them, names a chip, a network or a time.

    python -m tools.constants [folder...]    lists them, file:line and the words that tell

What was measured on one machine belongs to `tec/target` (what the machine is) or to `tec/choices/rules` (what is best there, with its source).
A number that a comment explains by what hardware or arithmetic is, and not by a measurement, is no such constant.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FOLDERS = ("tec/choices", "tec/ops", "tec/graph/passes")

_CHIPS = r"MI\d{2,3}[AX]?\b|\b(?:H|A|B|V)[1-3]00\b|\bgfx\d{3,4}[a-z]?\b|\bsm_\d+|\bRX \d{4}|\bZen \d|Sapphire Rapids|\bznver\d|\bRTX\b|\b9800X3D\b"
_NETWORKS = r"ResNet|BERT|MobileNet|SqueezeNet|SqueezeBERT|EfficientNet|ConvNeXt|Llama|Qwen|GPT|Whisper|YOLO|VGG|Inception|DenseNet|MiniLM|Swin|silero|crepe"
_TIMES = r"\d ?(?:us|ms|ns|microseconds|milliseconds|seconds|TFLOP/s|GFLOP/s|GB/s)\b|\btime model\b|\bmeasured on\b"
TELLS = re.compile("|".join((_CHIPS, _NETWORKS, _TIMES)), re.IGNORECASE)


class Constant(NamedTuple):
    """A place that holds a number, and the words of its reason that tell."""

    file: str
    line: int
    words: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.words}"


def _comments(text: str) -> tuple[dict[int, str], set[int]]:
    """Comments by line; the lines that hold nothing else."""
    found, alone = {}, set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            found[token.start[0]] = token.string
            if not token.line[: token.start[1]].strip():
                alone.add(token.start[0])
    return found, alone


def _numbers(tree: ast.AST) -> set[int]:
    """Lines with a number of some meaning: all but 0, 1 and -1, which count and begin."""
    return {
        n.lineno
        for n in ast.walk(tree)
        if isinstance(n, ast.Constant) and type(n.value) in (int, float) and n.value not in (0, 1)
    }


def _statements(tree: ast.AST) -> Iterator[tuple[int, int]]:
    """First and last line of each statement, of one that holds others its head."""
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else (node.end_lineno or node.lineno)
            yield node.lineno, max(node.lineno, last)


def constants_of(text: str, file: str) -> Iterator[Constant]:
    """The places of one file, each once, in order."""
    comments, alone = _comments(text)
    tree = ast.parse(text)
    numbers = _numbers(tree)
    spans = sorted(_statements(tree), key=lambda s: (s[1] - s[0], s[0]))
    told: dict[int, str] = {}

    def holder(line: int) -> tuple[int, int] | None:
        """The least statement that a line is in."""
        return next((s for s in spans if s[0] <= line <= s[1]), None)

    line, end = 0, len(text.splitlines())
    while (line := line + 1) <= end:
        if line not in comments:
            continue
        first = line
        while line in alone and line + 1 in alone:
            line += 1
        words = " ".join(comments[n].lstrip("# ") for n in range(first, line + 1))
        span = holder(line + 1 if line in alone else line) or holder(line)
        if span is not None and TELLS.search(words) and any(span[0] <= n <= span[1] for n in numbers):
            told.setdefault(span[0], words)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and TELLS.search(doc := ast.get_docstring(node) or ""):
            body = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            if isinstance(node, ast.FunctionDef) and any(n in numbers for n in body):
                told.setdefault(node.lineno, doc)
    for at, words in sorted(told.items()):
        tells = ", ".join(dict.fromkeys(m.group(0) for m in TELLS.finditer(words)))
        yield Constant(file, at, tells)


def constants(root: Path, folders: tuple[str, ...] = FOLDERS) -> list[Constant]:
    """All of some folders under a root."""
    files = [p for f in folders for p in sorted((root / f).rglob("*.py"))]
    return [c for p in files for c in constants_of(p.read_text("utf-8"), p.relative_to(root).as_posix())]


def main(words: list[str]) -> None:
    found = constants(Path.cwd(), tuple(words) or FOLDERS)
    for c in found:
        print(c)
    print(f"{len(found)} constants of one machine or network")


if __name__ == "__main__":
    main(sys.argv[1:])
