"""`triton.experimental.gluon` for programs that import it beside Triton's own kernels, and choose between the two when they run.

Its names can be imported and its kernels defined. A launch of one, and a kernel over tiles that uses a name of it, are refused.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import FunctionType, ModuleType
from typing import Any, NoReturn

from .. import tile as language
from ..errors import KernelError
from ..tile.foreign import GLUON_HINT
from .tiles import TileKernel

ROOT = "triton.experimental"


class Name:
    """What Gluon has by a name. On the host it stands for anything, so that modules which name layouts can be imported."""

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return self.name

    def __tec_refuse__(self) -> NoReturn:
        """Say that a kernel over tiles cannot use it."""
        raise KernelError(f"a kernel over tiles uses {self.name}, and tec has no Gluon", hint=GLUON_HINT)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Name(f"{self.name}.{name}")

    def __call__(self, *args: Any, **named: Any) -> Any:
        """A layout, or what a decorator gives."""
        only = args[0] if len(args) == 1 and not named else None
        return only if isinstance(only, (type, FunctionType)) else Name(f"{self.name}(...)")


class GluonKernel(TileKernel):
    """A kernel of Gluon's, which can be named and not launched."""

    def run(self, *args: Any, **named: Any) -> NoReturn:
        """Refuse a launch."""
        self.__tec_refuse__()

    def __tec_refuse__(self) -> NoReturn:
        """Say that it cannot be launched, nor called by a kernel over tiles."""
        code = self.fn.__code__
        raise KernelError(
            f"{self.__name__} is a Gluon kernel ({code.co_filename}:{code.co_firstlineno}), whose author places threads, layouts and shared memory",
            hint=GLUON_HINT,
        )


def jit(fn: Any = None, **options: Any) -> Any:
    """The decorator `gluon.jit`."""
    return GluonKernel if fn is None else GluonKernel(fn)


class _Module(ModuleType):
    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # the import system asks for those
            raise AttributeError(name)
        if name in ("gluon", "language"):
            return importlib.import_module(f"{self.__name__}.{name}")
        if name == "jit":
            return jit
        found = getattr(language, name, None)
        if name == "constexpr" or isinstance(found, language.dtype):
            return found
        return Name(f"{self.__name__.removeprefix(ROOT + '.')}.{name}")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        here = fullname == ROOT or fullname.startswith(f"{ROOT}.")
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True) if here else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def install() -> ModuleType:
    """Let `triton.experimental` and all below it be imported."""
    if not any(isinstance(f, _Finder) for f in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    return importlib.import_module(ROOT)


__all__ = ["GluonKernel", "Name", "install", "jit"]
