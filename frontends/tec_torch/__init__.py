"""The PyTorch frontend of tec: modules, exported programs, and a backend of `torch.compile`.

    net = tec.compile(module, args=(x,))             # a Network, called as the module is: torch tensors in and out
    net = tec.compile(torch.export.export(module, (x,)))
    fast = torch.compile(module, backend="tec")      # what tec lacks is left to torch
    print(tec_torch.report())                        # which calls these are, and why

This module does not import torch: what is no business of torch's is told apart without it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tec import ImportModelError
from tec.errors import install

if TYPE_CHECKING:
    from tec.graph import Graph


def accepts(source: Any) -> bool:
    """Whether that is a module, an exported program, or the path of one that `torch.export.save` wrote (.pt2)."""
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source).endswith(".pt2")
    torch = sys.modules.get("torch")  # what is torch's has imported it
    if torch is None or not hasattr(torch, "nn"):
        return False
    return isinstance(source, (torch.nn.Module, torch.export.ExportedProgram))


def load(
    source: Any,
    shapes: Mapping[str, Any] | None = None,
    *,
    freeze: Mapping[str, Any] | None = None,
    args: Any = None,
) -> Graph:
    """The graph of a model; see `graphs.load`. Raises ImportModelError."""
    try:
        from .graphs import load
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        what = repr(str(source)) if isinstance(source, (str, os.PathLike)) else type(source).__name__
        raise ImportModelError(f"{what} needs the package torch", hint=install("torch")) from None
    return load(source, shapes, freeze, args)


def __getattr__(name: str) -> Any:
    where = {
        "backend": ".dynamo",
        "export": ".export",
        "operators": ".every",
        "convert": ".importer",
        "report": ".reports",
        "synchronize": ".late_checks",
    }.get(name)
    if where is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(where, __name__), name)


__all__ = ["accepts", "backend", "convert", "export", "load", "operators", "report", "synchronize"]
