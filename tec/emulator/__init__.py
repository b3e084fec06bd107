"""An AMD GPU in software: runs, checks and measures AMDGPU kernels without the hardware. See docs/emulator.md."""

from __future__ import annotations

import difflib
import inspect
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError, TecError
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
    _check_options(options, EmuDriver)
    key = (chip, instance, checks, tuple(sorted(options.items())))
    with _LOCK:
        found = _drivers.get(key)
        if found is None:
            found = _drivers[key] = EmuDriver(chip, checks, **options)
    return found


def _check_options(options: dict[str, Any], driver: type[EmuDriver]) -> None:
    """Raises ArgumentError for an option that there is not, and for one of another type."""
    known = list(inspect.signature(driver).parameters.values())[2:]  # behind the chip and the checks
    for name, value in options.items():
        option = next((p for p in known if p.name == name), None)
        if option is None:
            words = [p.name for p in known] + ["check"]
            near = difflib.get_close_matches(name, words, 1)
            raise ArgumentError(
                f"a GPU in software has no option {name!r}",
                hint=f"did you mean {near[0]}?" if near else ", ".join(words),
            )
        wanted = str if isinstance(option.default, str) else int
        if value is not None and (not isinstance(value, wanted) or isinstance(value, bool)):
            raise ArgumentError(
                f"{name} of a GPU in software is {value!r}",
                hint=f"{name}={option.default!r}, {'a text' if wanted is str else 'or a whole number'}",
            )


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
