"""Drivers (and the linker) by name: where each implementation of `surface.Driver` stands, imported when it is first asked for.

The runtime names them and imports none ahead: a package runs with NumPy alone, and the software GPU (`tec.emulator`), which needs
LLVM, stands above the runtime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import other_part

if TYPE_CHECKING:
    from .surface import Driver

# Kind of driver: "module:callable that makes one".
DRIVERS = {
    "hip": "tec.runtime.devices.hip_driver:HipDriver",
    "cuda": "tec.runtime.devices.cuda_driver:CudaDriver",
    "emu": "tec.emulator:get_driver",
}
LINKER = "tec.codegen.objects.linking:link"


def _named(text: str, what: str) -> Any:
    module, _, name = text.partition(":")
    return getattr(other_part(module, what), name)


def link_object(image: bytes) -> bytes:
    """A relocatable object for AMDGPU as a linked code object; `tec.codegen` has the linker."""
    linked: bytes = _named(LINKER, "a linker")(image)
    return linked


def open_driver(kind: str, *args: Any, **options: Any) -> Driver:
    """The driver of `kind`. Raises ImportError where a package that it needs is missing, DeviceError where its library is."""
    driver: Driver = _named(DRIVERS[kind], f"the driver {kind!r}")(*args, **options)
    return driver
