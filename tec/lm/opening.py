"""Opening a model's files: the first frontend that takes a path makes its checkpoint.

A frontend is a module with `accepts(path) -> bool` and `open(path) -> Checkpoint`. tec's own are tec_gguf and tec_hf; a package names another one under the
entry point group "tec.checkpoints".
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from ..errors import ArgumentError, ImportModelError, one_line
from .adapters import Adapter
from .checkpoint import Checkpoint, refuse_pointer

GROUP = "tec.checkpoints"
OWN = ("tec_gguf", "tec_hf")
_LOCAL = "a path on this machine: tec downloads nothing"


def open(path: str | os.PathLike[str]) -> Checkpoint:
    """The checkpoint of a model: a GGUF file, or a Hugging Face folder. No weight is read before it is needed.

    path: of the file or folder. Returns a `Checkpoint`. Raises ImportModelError if no frontend accepts the path, and
    for files that are damaged or of an unknown architecture.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise ArgumentError(f"the model is {one_line(repr(path))[:80]}", hint="the path of a .gguf file or of a folder")
    place = Path(path)
    if not os.path.exists(place):
        raise ImportModelError(f"{place}: no such file or folder", hint=_LOCAL)
    for frontend in _frontends():
        if frontend.accepts(place):
            found: Checkpoint = frontend.open(place)
            return found
    what = "folder" if place.is_dir() else "file"
    if place.is_file():
        with place.open("rb") as file:
            refuse_pointer(place, file.read(64))
    raise ImportModelError(
        f"the {what} {place} holds no language model that is known",
        hint="a .gguf file, or a folder with config.json and .safetensors files",
    )


def _frontends() -> Iterator[Any]:
    for name in OWN:
        yield import_module(name)
    from importlib.metadata import entry_points  # which takes longer than opening a file

    for point in sorted(entry_points(group=GROUP), key=lambda p: p.name):
        yield import_module(point.module)


def open_adapter(path: str | os.PathLike[str]) -> Adapter:
    """A low-rank adapter: a PEFT folder, or a GGUF file. Raises ImportModelError if it is neither, or is damaged."""
    place = Path(path)
    if not os.path.exists(place):
        raise ImportModelError(f"{place}: no such file or folder", hint=_LOCAL)
    for name in OWN:
        frontend = import_module(f"{name}.adapters")
        if frontend.accepts(place):
            found: Adapter = frontend.open_adapter(place)
            return found
    raise ImportModelError(f"{place} holds no adapter", hint="a folder with adapter_config.json, or a .gguf file")
