"""How many errors of each part tell no remedy: the numbers may only fall."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import tec.errors
from tec.errors import InternalError, TecError

ROOT = Path(tec.errors.__file__).resolve().parents[1]

# InternalError is left out: a bug in tec has no remedy that a user could apply.
KINDS = {
    name
    for name, kind in vars(tec.errors).items()
    if isinstance(kind, type) and issubclass(kind, TecError) and not issubclass(kind, InternalError)
}

# What is left. Lower a number with the errors that get a hint; a new error has one.
LEFT: dict[str, int] = {
    "frontends/tec_gguf": 12,
    "tec/ir": 37,
    "tec/bringup": 3,
    "tec/choices": 8,
    "tec/codegen": 37,
    "tec/driver.py": 1,
    "tec/emulator": 3,
    "tec/explore": 3,
    "tec/graph": 4,
    "tec/jit": 3,
    "tec/kernels": 3,
    "tec/native": 12,
    "tec/report": 2,
    "tec/runtime": 9,
    "tec/schedule": 1,
    "tec/sharding": 5,
    "tec/target": 1,
    "tec/te": 2,
    "tec/tile": 11,
    "tec/topi": 1,
    "tec/tuning": 2,
}


# Kernels and tiles raise by a method that adds the line: `self.error(message, hint=...)`.
_RAISE = re.compile(r"^ *raise (?:[\w()]+\.)*(\w+)\(", re.M)


def without_hint(source: str) -> Iterator[int]:
    """The lines that raise one of `KINDS` by its message alone. Of all sources these statements alone are parsed: walking whole trees takes five seconds."""
    for found in _RAISE.finditer(source):
        if found[1] not in KINDS and found[1] != "error":
            continue
        (statement,) = ast.parse(_statement(source[found.start() :])).body
        assert isinstance(statement, ast.Raise)
        call = statement.exc
        if not isinstance(call, ast.Call):
            continue
        options = {k.arg for k in call.keywords}
        if len(call.args) == 1 and not options & {"hint", None}:
            yield source.count("\n", 0, found.start()) + 1


def _statement(text: str) -> str:
    """The statement that a text begins with."""
    whole = ""
    for line in text.splitlines(keepends=True):
        whole += line if whole else line.lstrip(" ")
        try:
            ast.parse(whole)
        except SyntaxError:
            continue
        return whole
    raise AssertionError(f"no end of {text[:80]!r}")


def part_of(path: Path) -> str:
    return "/".join(path.relative_to(ROOT).parts[:2])


def counted() -> Counter[str]:
    files = [*(ROOT / "tec").rglob("*.py"), *(ROOT / "frontends").rglob("*.py")]
    return Counter(part_of(p) for p in files for _ in without_hint(p.read_text()))


def test_no_part_has_more_errors_without_a_remedy() -> None:
    more = {part: (n, LEFT.get(part, 0)) for part, n in counted().items() if n > LEFT.get(part, 0)}
    assert not more, f"errors without hint=, and how many may be there: {more}"


@pytest.mark.parametrize(
    "source,lines",
    [
        ("raise TecError('a')", [1]),
        ("raise errors.ArgumentError('a', locate=False)", [1]),
        ("raise TecError('a', hint='b')", []),
        ("raise TecError('a', **more)", []),
        ("raise InternalError('a')", []),
        ("raise self.error('a', node=s)", [1]),
        ("raise current().error('a', hint='b')", []),
        ("raise ValueError('a')", []),
    ],
)
def test_what_is_counted(source: str, lines: list[int]) -> None:
    assert list(without_hint(source)) == lines
