"""The three distributions of a release: what each holds and imports, and what the runtime does where the others are not installed."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tools.distributions import COMPILER, DISTRIBUTIONS, EMULATOR, ROOT, RUNTIME, files_of, project, write_tree

PACKAGES = Path(__file__).parent / "packages"


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("distributions")
    for distribution in DISTRIBUTIONS:
        write_tree(distribution, folder / distribution.name)
    return folder


def _wheel(tree: Path, folder: Path) -> Path:
    wheel = pytest.importorskip("hatchling.builders.wheel", reason="hatchling is not installed")
    (path,) = wheel.WheelBuilder(str(tree)).build(directory=str(folder))
    return Path(path)


def _imported(name: str) -> set[str]:
    """The files of tec that a file imports, at its top or in its functions; not what it imports for types alone."""
    package = Path(name).parent.parts
    found = set()
    for node in _statements(ast.parse((ROOT / name).read_text("utf-8")).body):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = Path(*package[: len(package) - node.level + 1], *(node.module or "").split("."))
            found |= {_file(base / n.name) or _file(base) for n in node.names}
    return found - {""}


def _statements(some: Iterable[ast.AST]) -> Iterator[ast.AST]:
    for node in some:
        yield node
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            for field in ("body", "handlers", "orelse", "finalbody", "cases"):
                yield from _statements(getattr(node, field, []))


@cache
def _file(path: Path) -> str:
    return next((str(f) for f in (path.with_suffix(".py"), path / "__init__.py") if (ROOT / f).is_file()), "")


@pytest.mark.parametrize("distribution", [RUNTIME, EMULATOR], ids=lambda d: d.name)
def test_imports_stay_within(distribution) -> None:
    held = {*files_of(distribution), *(f for d in DISTRIBUTIONS if d.name in distribution.needs for f in files_of(d))}
    wrong = {f: out for f in files_of(distribution) if f.endswith(".py") and (out := _imported(f) - held)}
    assert not wrong


def test_wheels(trees: Path) -> None:
    """They share no file, hold together what the project's own wheel holds, and the runtime's is small and needs NumPy alone."""
    held = {}
    for d in DISTRIBUTIONS:
        path = _wheel(trees / d.name, trees / "dist")
        with zipfile.ZipFile(path) as z:
            held[d.name] = [n for n in z.namelist() if ".dist-info/" not in n]
            about = {n.rpartition("/")[2]: z.read(n).decode() for n in z.namelist() if ".dist-info/" in n}
        needs = [line[15:] for line in about["METADATA"].splitlines() if line.startswith("Requires-Dist: ")]
        version = project()["project"]["version"]
        if d is RUNTIME:
            assert path.stat().st_size < 1_500_000
            assert [n.partition(">")[0] for n in needs] == ["numpy"]
        assert all(f"{other}=={version}" in needs for other in d.needs)
        points = about.get("entry_points.txt", "")
        assert ("pytest11" in points, "tec = tec.cli:main" in points) == (d is EMULATOR, d is COMPILER)
    names = [n for some in held.values() for n in some]
    assert len(names) == len(set(names))
    with zipfile.ZipFile(_wheel(ROOT, trees / "whole")) as z:
        assert sorted(names) == sorted(n for n in z.namelist() if ".dist-info/" not in n)


_RUNTIME_ALONE = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np, tec
assert tec.__file__.startswith(sys.argv[1])
from tec.errors import TecError
net = tec.load(sys.argv[2])
print([o.tolist() for o in net.run([np.ones(i["shape"], i["dtype"]) for i in net.inputs])])
for missing in (lambda: tec.compile, lambda: net.show(), lambda: net.export_library("x.so"), lambda: tec.rocm_emu("gfx942")):
    try:
        missing()
    except TecError as error:
        print(type(error).__name__, error.hint.split(";")[0])
assert not {"llvmlite", "networkx", "tec.graph", "tec.emulator"} & set(sys.modules)
"""


def test_the_runtime_alone(trees: Path, tmp_path: Path) -> None:
    """A package that a release saved runs, and what needs another distribution names it."""
    import tec

    package = PACKAGES / "version3-cpu.tec"
    words = [sys.executable, "-c", _RUNTIME_ALONE, str(trees / RUNTIME.name), str(package)]
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ""},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    outputs, *missing = done.stdout.splitlines()
    net = tec.load(package)
    assert outputs == str([o.tolist() for o in net.run([np.ones(i["shape"], i["dtype"]) for i in net.inputs])])
    needed = "MissingPackageError pip install tec-compiler"
    assert missing == [needed, needed, needed, "DeviceError pip install tec-compiler-emulator"]
