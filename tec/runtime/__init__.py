"""What a compiled module needs at run time: devices, arrays, modules, packages, profiles. NumPy is all it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import ndarray as nd
from .device import Device, as_device, cpu, cuda, cuda_exists, rocm, rocm_emu, rocm_exists
from .ndarray import NDArray

if TYPE_CHECKING:
    from .function import Function
    from .module import Module, load_module
    from .profiling import Profile, profile
    from .stream import Event, Stream

_LAZY = {
    "Module": "module", "Function": "function", "load_module": "module",
    "Profile": "profiling", "profile": "profiling", "Stream": "stream", "Event": "stream",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        value = getattr(import_module(f".{_LAZY[name]}", __name__), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Device", "Event", "Function", "Module", "NDArray", "Profile", "Stream", "as_device", "cpu", "cuda", "cuda_exists",
    "load_module", "nd", "profile", "rocm", "rocm_emu", "rocm_exists",
]  # fmt: skip
