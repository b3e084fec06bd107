"""Compiled modules that are saved under TVM's names of files: `.so`, `.tar`, `.o` are tec's packages, which `load_module` reads."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tec.errors import ArgumentError
from tec.runtime.modules.module import Module as _Module
from tec.runtime.modules.module import load_module as _load
from tec.runtime.networks.network import Network
from tec.runtime.networks.network import load as _load_network

from .devices import cpu


def keep(path: Any, saved: Any) -> None:
    """`saved.save` under any name. What loads it is `load_module`, not a linker."""
    with tempfile.TemporaryDirectory(dir=os.path.dirname(os.path.abspath(path))) as folder:
        made = Path(folder, "kept.tec" if isinstance(saved, Network) else "kept.tecmod")
        saved.save(made)
        os.replace(made, path)


class Module(_Module):
    """A module by TVM's methods; all else is tec's."""

    @staticmethod
    def of(made: Any) -> Any:
        """A module that was built, and what it imports, with these methods."""
        if type(made) is _Module:
            made.__class__ = Module
            for inner in made.imported_modules:
                Module.of(inner)
        return made

    @property
    def type_key(self) -> str:
        """ "llvm", "rocm" or "cuda"."""
        return self.kind

    def save(self, path: Any, fmt: str = "") -> None:
        """Write it to a file of any name."""
        if path is not None and str(path).endswith(".tecmod"):
            super().save(path)
        else:
            keep(path, _plain(self))

    def export_library(self, file_name: Any, fcompile: Any = None, **options: Any) -> None:  # type: ignore[override]
        """Write it to a file of any name (`.so`, `.tar`), which `load_module` reads."""
        self.save(file_name)

    def get_function(self, name: str, query_imports: bool = False) -> Any:
        """A function by name."""
        return self[name]

    def import_module(self, module: Any) -> None:
        """Modules come whole here: what was built with this one is in it."""


def _plain(module: _Module) -> _Module:
    made = object.__new__(_Module)
    made.__dict__.update(module.__dict__)
    return made


class Factory:
    """What relay.build gives: `lib["default"](dev)` makes an executor, `lib.export_library(path)` keeps it."""

    def __init__(self, network: Network):
        self.network = network

    def __getitem__(self, name: str) -> Any:
        if name not in ("default", "get_graph_json"):
            raise ArgumentError(f"a network has no function {name!r}", hint='lib["default"](device)')
        return lambda *devices: SimpleNamespace(network=self.network, device=devices[0] if devices else cpu())

    def get_lib(self) -> Network:
        """The compiled network."""
        return self.network

    def get_params(self) -> dict[str, Any]:
        """None: the weights are in the network."""
        return {}

    def export_library(self, file_name: Any, fcompile: Any = None, **options: Any) -> None:
        """Write the network to a file, which `tvm.runtime.load_module` reads."""
        keep(file_name, self.network)


def load_module(path: Any, fmt: str = "") -> Any:
    """What `save` or `export_library` wrote: a module, or a network's factory."""
    try:
        return Module.of(_load(path))
    except Exception as error:
        try:
            network = _load_network(path)
        except Exception:
            raise error from None
        return Factory(network)
