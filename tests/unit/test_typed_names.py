"""What type checkers see of the public names: a strict one takes a name from a package only where that exports it in its text, and what `__getattr__` finds is Any."""

from __future__ import annotations

import ast
import importlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

import tec
from tec.array import numpy_names

LATER = {"tir", "testing"}  # namespaces of another library's spelling
OTHER_SPELLINGS = {*numpy_names.ALIASES, "load", "save", "hamming", "hanning", "blackman", "bartlett"}


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Of a module, those under `if TYPE_CHECKING` included."""
    for s in body:
        if isinstance(s, ast.If) and "TYPE_CHECKING" in ast.unparse(s.test):
            yield from statements(s.body)
        else:
            yield s


def exported(module: str) -> set[str]:
    """The names that a strict checker takes from a module: what it defines, what it imports as itself, and what `import *` brings."""
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    found = set[str]()
    package = module if spec.submodule_search_locations else module.rpartition(".")[0]
    for s in statements(ast.parse(Path(spec.origin).read_text("utf-8")).body):
        if isinstance(s, ast.FunctionDef | ast.ClassDef):
            found.add(s.name)
        elif isinstance(s, ast.Assign):
            found |= {n.id for t in s.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
            if ast.unparse(s.targets[0]) == "__all__" and isinstance(s.value, ast.List):
                found |= {e.value for e in s.value.elts if isinstance(e, ast.Constant)}
        elif isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name):
            found.add(s.target.id)
        elif isinstance(s, ast.ImportFrom):
            of = importlib.util.resolve_name("." * s.level + (s.module or ""), package)
            for name in s.names:
                if name.name == "*":
                    found |= exported(of)
                elif name.asname == name.name:
                    found.add(name.name)
    return found


@pytest.mark.parametrize("module,left", [("tec", LATER), ("tec.array", OTHER_SPELLINGS), ("tec.lm", set())])
def test_public_names_have_types(module: str, left: set[str]) -> None:
    names = {n for n in dir(importlib.import_module(module)) if not n.startswith("_")}
    assert names - exported(module) - left == set()


def test_no_name_is_any_where_it_could_be_more() -> None:
    """`tec.array` was Any to users' checkers: with it everything that they compute."""
    text = ast.parse(Path(tec.__file__).read_text("utf-8"))
    anys = {
        s.target.id for s in statements(text.body)
        if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name) and ast.unparse(s.annotation) == "Any"
    }  # fmt: skip
    assert anys <= LATER
