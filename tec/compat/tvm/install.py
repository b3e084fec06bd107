"""`import tvm` finds tec's package: an entry of `sys.modules`, and a finder for the modules below it."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from tec.errors import ArgumentError

from .names import Part, part

_OURS = "tec.compat.tvm"
# Modules of TVM's that are objects here, or stand elsewhere.
_PLACES = {
    "tvm.te.hybrid.runtime": "te.runtime",
    "tvm.ndarray": "nd",
    "tvm.topi.nn.pooling": "topi.nn",
    "tvm.topi.nn.utils": "topi.utils",
    "tvm.topi.nn.qnn": "topi.nn",
    "tvm.runtime.ndarray": "nd",
    "tvm.runtime.module": "runtime",
    "tvm.tir.op": "tir.op",
}


class _Loader(importlib.abc.Loader):
    """Hands out a module that is there."""

    def __init__(self, module: ModuleType):
        self.module, self.spec = module, module.__spec__

    def create_module(self, spec: Any) -> ModuleType:
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec  # the import system has put the alias's there


class _Finder(importlib.abc.MetaPathFinder):
    """`tvm.te.schedule` is `tec.compat.tvm.te.schedule`."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if not name.startswith("tvm."):
            return None
        own = _PLACES.get(name, name.removeprefix("tvm."))
        try:
            module = import_module(f"{_OURS}.{own}")
        except ModuleNotFoundError as error:
            if error.name is None or not error.name.startswith(_OURS):
                raise
            found = self._object(own) or part(own)
            if found is None:
                return None
            module = found
        return importlib.machinery.ModuleSpec(name, _Loader(module))

    def _object(self, own: str) -> Any:
        """A namespace that is no module file (`driver.build_module`)."""
        parent, _, last = own.rpartition(".")
        try:
            found = getattr(import_module(f"{_OURS}.{parent}" if parent else _OURS), last, None)
        except ModuleNotFoundError:
            return None
        if found is None or isinstance(found, (Part, type)) or callable(found):
            return None
        if isinstance(found, ModuleType):
            return found
        made = ModuleType(f"{_OURS}.{own}")
        made.__dict__.update(vars(found))
        return made


def install(replace: bool = False) -> None:
    """From here on `import tvm` gives this package. Raises ArgumentError where TVM itself has been imported, unless `replace`."""
    there = sys.modules.get("tvm")
    if there is not None and there.__name__ != _OURS and not replace:
        raise ArgumentError("TVM itself is imported already", hint="install() first, or install(replace=True)")
    for name in [n for n in sys.modules if n == "tvm" or n.startswith("tvm.")]:
        del sys.modules[name]
    sys.modules["tvm"] = import_module(_OURS)
    sys.modules["topi"] = import_module(f"{_OURS}.topi")  # a package of its own before TVM 0.7
    if not any(isinstance(f, _Finder) for f in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def uninstall() -> None:
    """`import tvm` finds what it found before."""
    sys.modules.pop("topi", None)
    sys.meta_path[:] = [f for f in sys.meta_path if not isinstance(f, _Finder)]
    for name in [n for n in sys.modules if n == "tvm" or n.startswith("tvm.")]:
        del sys.modules[name]
