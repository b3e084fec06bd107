"""The sessions in docstrings of the public API run, each in a namespace of its own with `tec`, `te`, `topi`, `np`, `xp` for `tec.array`, and `tl` for
`tec.tile`; those of language models have a small `checkpoint`. What compiles on a device runs on an interpreter: tests/conformance holds that devices give the same."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest

import tec
from tec import te
from tec.array import computing
from tec.array.program import graph_of
from tec.array.trace import Trace
from tec.graph import run_graph
from tec.jit.launching import Launcher
from tec.runtime import Device, NDArray
from tests.conformance.harness import Step, interpret
from tests.unit.lm.tiny import llama

ROOT = Path(__file__).resolve().parents[2]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
PLACES = (
    "driver.py",
    "errors.py",
    "time_model.py",
    "ir/build.py",
    "ir/expr.py",
    "target",
    "collectives",
    "sharding",
    "tuning",
    "te",
    "schedule",
    "array",
    "tile",
    "kernels",
    "jit",
    "lm",
    "autodiff",
    "topi",
    "runtime",
    "graph",
)
# Fragments of a larger program, which a page or a tutorial runs whole.
FRAGMENTS = {"tec.te.intrin": "docs/matrix-units.md"}


def modules() -> list[str]:
    """The modules of the public packages that have a session."""
    places = [(ROOT, ROOT / "tec" / p) for p in PLACES] + [(ROOT / "frontends", ROOT / "frontends" / "tec_onnx")]
    files = [(base, p) for base, place in places for p in sorted({place, *place.rglob("*.py")})]
    return sorted(
        ".".join(p.relative_to(base).with_suffix("").parts).removesuffix(".__init__")
        for base, p in files
        if p.suffix == ".py" and ">>> " in p.read_text("utf-8")
    )


def interpreted(launch: Launcher, *args: Any) -> None:
    """A launch on the interpreter, on the terms of a GPU of 32 lanes, as the CPU's code has them."""
    interpret(Step(launch.kernel, (launch.grid, launch.shape.block), args), tec.Target("rocm -mcpu=gfx1100"))


class InterpretedExpression:
    """Stands in for the compiled code of an expression of arrays: its operators one by one, in NumPy."""

    def __init__(self, trace: Trace, device: Device):
        self.consts: dict[str, NDArray] = {}
        self.graph, _ = graph_of(trace.entries, trace.roots, {})

    def run(self, arrays: list[NDArray]) -> list[NDArray]:
        feeds = {v.name: a.numpy() for v, a in zip(self.graph.inputs, arrays)}
        return [tec.nd.array(x) for x in run_graph(self.graph, feeds)]


def sessions_of_values(module: ModuleType) -> list[doctest.DocTest]:
    """The sessions that doctest does not look for: of values with a docstring of their own (`tec.sum`), and of functions that another module wraps (`tec.array.sin`)."""

    def is_passed_over(value: Any) -> bool:
        if isinstance(value, FunctionType):
            return value.__module__ == module.__name__ and value.__globals__ is not vars(module)
        return not isinstance(value, type | ModuleType) and isinstance(
            getattr(value, "__dict__", {}).get("__doc__"), str
        )

    finder = doctest.DocTestFinder(recurse=False)
    return [
        session
        for name, value in vars(module).items()
        if not name.startswith("_") and is_passed_over(value)
        for session in finder.find(value, f"{module.__name__}.{name}", module=False)
    ]


@pytest.mark.parametrize("name", modules())
def test_sessions_of_docstrings_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEC_EMULATE", "gfx942")
    if name.startswith("tec.tile."):
        monkeypatch.setenv("TEC_INTERPRET", "1")
    if name == "tec.kernels.language":
        monkeypatch.setattr(Launcher, "__call__", interpreted)
    if f"{name}.".startswith("tec.array."):
        monkeypatch.setattr(computing, "_bound", InterpretedExpression)
        monkeypatch.setattr(computing, "_know", lambda *found: None)  # what is kept for later is for compiled code
    module = importlib.import_module(name)
    names = {"tec": tec, "te": te, "topi": tec.topi, "np": np, "xp": tec.array, "tl": tec.tile}
    if name.startswith("tec.lm."):
        names["checkpoint"] = llama()
    if name.startswith("tec_onnx"):
        names["tec_onnx"] = importlib.import_module("tec_onnx")
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    for session in [*doctest.DocTestFinder().find(module, name, module=module), *sessions_of_values(module)]:
        if session.examples and session.name not in FRAGMENTS:
            session.globs = dict(names)
            said: list[str] = []
            runner.run(session, out=said.append)
            assert not runner.failures, "".join(said)


def test_where_fragments_run_whole() -> None:
    assert all((ROOT / page).is_file() for page in FRAGMENTS.values())


def test_values_with_a_docstring_have_sessions() -> None:
    found = {
        session.name for session in sessions_of_values(importlib.import_module("tec.te.reducer")) if session.examples
    }
    assert {"tec.te.reducer.sum", "tec.te.reducer.max"} <= found
    wrapped = sessions_of_values(importlib.import_module("tec.array.elementwise"))
    assert any(session.examples for session in wrapped if session.name == "tec.array.elementwise.sin")


def test_a_wrong_session_fails() -> None:
    session = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, 0)
    assert doctest.DocTestRunner().run(session, out=lambda _: None).failed == 1
