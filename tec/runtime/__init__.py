"""What a compiled module needs at run time: devices, arrays, modules, packages, profiles. NumPy is all it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .arrays import nd
from .arrays.ndarray import NDArray
from .devices.device import Device, as_device, cpu, cuda, cuda_exists, rocm, rocm_emu, rocm_exists

if TYPE_CHECKING:
    from .devices.profiling import Profile, profile
    from .devices.stream import Event, Stream
    from .modules.function import Function
    from .modules.module import Module, load_module

_LAZY = {
    "Module": "modules.module", "Function": "modules.function", "load_module": "modules.module",
    "Profile": "devices.profiling", "profile": "devices.profiling", "Stream": "devices.stream", "Event": "devices.stream",
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


def __dir__() -> list[str]:
    """The public names, which completion then offers."""
    return sorted(__all__)
