"""An AMD GPU in software: runs, checks and measures AMDGPU kernels without the hardware. See docs/emulator.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import TecError
from ..locks import fork_safe_lock

if TYPE_CHECKING:
    from ..runtime.devices.surface import Driver
    from .driver import EmuDriver

_LOCK = fork_safe_lock()
_drivers: dict[tuple[Any, ...], EmuDriver] = {}


def get_driver(chip: str, instance: int = 0, **options: Any) -> EmuDriver:
    """The driver of the emulated `chip` ("gfx942", or a product, "mi325x"), one for each set of options (see `EmuDriver`) and each `instance`: each is a GPU of its own."""
    from .checks.names import parse_checks
    from .driver import EmuDriver

    checks = parse_checks(options.pop("check", "bounds"))
    key = (chip, instance, checks, tuple(sorted(options.items())))
    with _LOCK:
        found = _drivers.get(key)
        if found is None:
            found = _drivers[key] = EmuDriver(chip, checks, **options)
    return found


def emulator_profile(driver: Driver | None, run: bool = True, product: str = "", warm: bool = False) -> Any:
    """A context manager that counts every launch on `driver` and models its time: see `tec.emulator.profile`.

    driver: that of a device of the software GPU. Raises TecError for another one.
    """
    from .driver import EmuDriver
    from .profile import emulator_profile as profile

    if not isinstance(driver, EmuDriver):
        raise TecError(
            f"emulator_profile takes the driver of a software GPU, not {driver!r}", hint='tec.rocm_emu("gfx942").driver'
        )
    return profile(driver, run, product, warm)
