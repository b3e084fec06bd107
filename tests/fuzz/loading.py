"""Drawn programs as modules: kernels are read from files."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType


def module_of(text: str, path: Path) -> ModuleType:
    """The module of a program's text, which is written to `path`."""
    path.write_text(text, "utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
