"""Names of the project that stand in backticks in the docs exist: modules and attributes, classes with their members, files, commands and options, variables.

`tec.nd.array`   `Stage.split`   `tec/ir/stmt.py`   `tec tune --trials`   `TEC_DUMP`   `make check`
"""

from __future__ import annotations

import ast
import functools
import importlib
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import click
import pytest

from tec.errors import TecError
from tests.docs.test_pages import PAGES, ROOT, name_of

SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
FOLDERS = ("tec", "frontends", "tests", "tools", "benchmarks", "tutorials", "docs")
FILE = re.compile(rf"^(?:{'|'.join(FOLDERS)}|\.ci)/[\w./*\[\]-]+$")
DOTTED = re.compile(r"^(tec(?:_onnx)?(?:\.\w+)+)\b")
MEMBER = re.compile(r"^([A-Z]\w*[a-z]\w*)\.(\w+)\b")
# `snake_case`, `CamelCase` and `call(...)`: of tec, or a name of others that its sources speak of.
WORD = re.compile(r"^(\w+_\w+|[A-Z][a-z0-9]+[A-Z]\w*|\w{3,}(?=\())(\(.*\))?$")
OPCODE = re.compile(r"^_?(v|s|ds|global|image|signal)_\w+")  # the manuals', modelled or not
OTHERS = {  # names of others, and whose
    "ProcessPoolExecutor": "concurrent.futures", "parallel_launch_point": "TVM's pragmas",
    "256x128x128x64_32x32_2x2_intrawave_v5": "a kernel of CK",
}  # fmt: skip


def spans(page: Path) -> list[tuple[int, str]]:
    """(line, text) of what stands in backticks, outside of blocks."""
    text = re.sub(
        r"^```.*?^```|^<!--.*?-->", lambda m: "\n" * m[0].count("\n"), page.read_text("utf-8"), flags=re.M | re.S
    )
    return [(n, m[1]) for n, line in enumerate(text.splitlines(), 1) for m in SPAN.finditer(line)]


@functools.cache
def sources() -> dict[Path, str]:
    return {p: p.read_text("utf-8") for top in FOLDERS for p in (ROOT / top).rglob("*.py") if p != Path(__file__)}


@functools.cache
def known_words() -> set[str]:
    return {w for text in sources().values() for w in re.findall(r"\w+", text)}


@functools.cache
def loggers() -> set[str]:
    return {name for text in sources().values() for name in re.findall(r'getLogger\("([\w.]+)"\)', text)}


@functools.cache
def classes() -> dict[str, list[Path]]:
    """The files that define a class of a name, of tec and the frontends."""
    found: dict[str, list[Path]] = defaultdict(list)
    for path, text in sources().items():
        if path.relative_to(ROOT).parts[0] in ("tec", "frontends"):
            for name in sorted(set(re.findall(r"(?m)^[ \t]*class (\w+)", text))):
                found[name].append(path)
    return dict(found)


@functools.cache
def defined(path: Path) -> list[ast.ClassDef]:
    return [node for node in ast.walk(ast.parse(sources()[path])) if isinstance(node, ast.ClassDef)]


@functools.cache
def own_members(cls: str) -> tuple[frozenset[str], frozenset[str]]:
    """(names that the classes of a name bind or annotate, the names of their bases)."""
    found, bases = set[str](), set[str]()
    for node in (node for path in classes()[cls] for node in defined(path) if node.name == cls):
        bases |= {ast.unparse(b).split(".")[-1].split("[")[0] for b in node.bases}
        for x in ast.walk(node):
            match x:
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    found.add(name)
                case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                    found.add(name)
                case ast.Constant(value=str(name)) if name.isidentifier():
                    found.add(name)  # slots, tables of methods
    return frozenset(found), frozenset(bases)


def members(cls: str) -> set[str]:
    """The names of a class of tec and of what it stands on; nothing where no class has the name. Files of other classes are not parsed."""
    found, seen, left = set[str](), set[str](), [cls]
    while left:
        name = left.pop()
        if name in classes() and name not in seen:
            seen.add(name)
            names, bases = own_members(name)
            found |= names
            left += bases
    return found


def missing_attribute(dotted: str) -> bool:
    """Whether a dotted name is neither a module nor what one holds."""
    parts = dotted.split(".")
    for n in range(len(parts), 0, -1):
        try:
            here: Any = importlib.import_module(".".join(parts[:n]))
        except ImportError:
            continue
        for k, part in enumerate(parts[n:]):
            try:
                here = getattr(here, part)
            except TecError:
                return False  # a word of kernels, which has members inside of one alone
            except AttributeError:
                # A field of a class has no value on it.
                is_last = k + n + 1 == len(parts)
                return not (isinstance(here, type) and is_last and part in members(here.__name__))
        return False
    return True


@functools.cache
def command(words: tuple[str, ...]) -> click.Command | None:
    """The command that some words name, as far as they do."""
    from tec.cli.app import app

    here: click.Command = app
    ctx = click.Context(app)
    for word in words:
        if not isinstance(here, click.Group):
            break
        below = here.get_command(ctx, word)
        if below is None:
            return None
        here = below
    return here


def wrong(span: str) -> str:
    """What is wrong with a name, or nothing."""
    if FILE.match(span):
        path = re.sub(r"NAME|NN_name|NN", "*", span.rstrip("/."))
        return "" if list(ROOT.glob(path)) or list(ROOT.glob(f"{path}*")) else "no such file"
    if span.startswith(("tec ", "make ")) and re.fullmatch(r"make [a-z-]+", span):
        return "" if re.search(rf"^{span[5:]}:", (ROOT / "Makefile").read_text(), re.M) else "no such goal of make"
    if span.startswith("tec "):
        words = span.split(" -- ")[0].split()[1:]
        if not words or not re.fullmatch(r"[a-z-]+", words[0]):
            return ""
        named = command(tuple(w for w in words if re.fullmatch(r"[a-z]+", w))[:2])
        if named is None:
            return f"no command {words[0]}"
        known = {o for p in named.params for o in (*p.opts, *p.secondary_opts)} | {"--help"}
        unknown = [w.split("=")[0] for w in words if re.match(r"--[a-z]", w) and w.split("=")[0] not in known]
        return f"no option {unknown[0]}" if unknown else ""
    if re.fullmatch(r"TEC_[A-Z_]+(=.*)?", span):
        return "" if span.split("=")[0] in known_words() else "nothing reads this variable"
    if m := DOTTED.match(span):
        return f"no {m[1]}" if missing_attribute(m[1]) and m[1] not in loggers() else ""
    if (m := MEMBER.match(span)) and m[1] in classes():
        return "" if m[2] in members(m[1]) else f"{m[1]} has no {m[2]}"
    if (m := WORD.match(span)) and m[1] not in known_words() and m[1] not in OTHERS and not OPCODE.match(span):
        return "a word that no source has"
    return ""


def test_names_in_backticks_exist() -> None:
    """One test for all pages: what the sources hold is read once, not by each worker."""
    found = [
        f"{name_of(page)}:{line}: `{span}`: {what}"
        for page in PAGES
        for line, span in spans(page)
        if (what := wrong(span))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "span, is_right",
    [
        ("tec.nd.array(x)", True), ("tec.nd.arrays", False), ("tec.ir.stmt.StorageNotes", True), ("tec/ir/stmt.py", True), ("tec/ir/stmts.py", False),
        ("For.unroll", True), ("For.annotations", False), ("tec tune --trials 8", True), ("tec tune --trails 8", False), ("tec tun", False),
        ("TEC_DUMP=flat", True), ("TEC_DUMB", False), ("make check", True), ("make chekc", False), ("Stage.split", True), ("Stage.splits", False), ("to_loops(s, args)", True), ("to_lops(s)", False),
        ("StorageNote", False),
    ],
)  # fmt: skip
def test_a_name_that_is_not_there_is_told(span: str, is_right: bool) -> None:
    assert bool(wrong(span)) != is_right
