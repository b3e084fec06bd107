"""Compiled modules that are saved under TVM's names of files: `.so`, `.tar`, `.o` are tec's packages, which `load_module` reads."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from tec.runtime.modules.module import Module as _Module
from tec.runtime.modules.module import load_module as _load
from tec.runtime.networks.network import Network
from tec.runtime.networks.network import load as _load_network


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


def load_module(path: Any, fmt: str = "") -> Any:
    """What `save` or `export_library` wrote: a module, or a network's factory."""
    try:
        return Module.of(_load(path))
    except Exception as error:
        try:
            network = _load_network(path)
        except Exception:
            raise error from None
        from .relay.build import Factory

        return Factory(network)
