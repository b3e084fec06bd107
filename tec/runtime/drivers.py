"""Drivers by name: where each implementation of `surface.Driver` stands, imported when it is first asked for.

The runtime names them and imports none ahead: a package runs with NumPy alone, and the software GPU (`tec.emulator`), which needs
LLVM, stands above the runtime.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .surface import Driver

# Kind of driver: "module:callable that makes one".
DRIVERS = {
    "hip": "tec.runtime.hip_driver:HipDriver",
    "cuda": "tec.runtime.cuda_driver:CudaDriver",
    "emu": "tec.emulator:get_driver",
}


def open_driver(kind: str, *args: Any, **options: Any) -> Driver:
    """The driver of `kind`. Raises ImportError where a package that it needs is missing, DeviceError where its library is."""
    module, _, name = DRIVERS[kind].partition(":")
    driver: Driver = getattr(import_module(module), name)(*args, **options)
    return driver
