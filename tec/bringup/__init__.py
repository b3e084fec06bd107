"""What to run on the first day with an AMD GPU: does it, its driver, the software GPU and the time model say the same?

`check(driver)` makes a `Report` (`tec doctor --amd`): the ABI, streams, events and graphs, every matrix instruction against the software GPU bit for bit, microbenchmarks of the
time model's constants, and forty kernels by the clock and by the model. `use(report)` puts what was measured in the machine table. See docs/bring-up.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ..target import MACHINES, Machine, product_of_device
from . import abi, constants, matrix, modelled, ordering
from .correct import corrected, use
from .findings import AGREES, DIFFERS, FAILED, NOTE, Finding, Report, read_report
from .gpu import Gpu
from .page import page

if TYPE_CHECKING:
    from ..runtime.devices.surface import Driver

SECTIONS = ("abi", "streams", "matrix", "constants", "kernels")
SECONDS = 600.0  # that a chip's owner waits; a section that has not begun by then is left out, and said so


def machine_of(gpu: Gpu) -> Machine | None:
    """The product that the device is: by its name, else by its chip and units; None where the table has none."""
    found = product_of_device(gpu.attributes.name)
    if found is not None and found.chip == gpu.chip:
        return found
    like = [m for m in MACHINES.values() if m.chip == gpu.chip and m.units == gpu.attributes.compute_units]
    return like[0] if like else None


def check(
    driver: Driver, ordinal: int = 0, sections: tuple[str, ...] = SECTIONS, quick: bool = False, only: str = "", seconds: float = SECONDS,
    tell: Callable[[Finding], None] | None = None,
) -> Report:  # fmt: skip
    """All checks of one device, section after section. `only`: instructions, benchmarks and kernels whose names contain one of its words (`findings.wanted`). `quick`: fewer and smaller ones, for a stand-in.
    `tell` hears each finding as it comes. Raises DeviceError where there is no such device."""
    gpu = Gpu(driver, ordinal, quick)
    machine = machine_of(gpu)
    a = gpu.attributes
    facts = {"arch": a.arch, "driver": driver.kind, "ordinal": ordinal, **a.extra}
    report = Report(gpu.chip, machine.name if machine else "", a.name, facts)
    began = time.monotonic()
    parts: dict[str, Callable[[], Iterator[Finding]]] = {
        "abi": lambda: abi.check(gpu, machine),
        "streams": lambda: ordering.check(gpu),
        "matrix": lambda: matrix.check(gpu, waves=2 if quick else matrix.WAVES, only=only),
        "constants": lambda: constants.check(gpu, machine, 16 if quick else 1, 1 if quick else 5, only),
        "kernels": lambda: modelled.check(gpu, machine, quick, 1 if quick else 7, only),
    }
    for name in sections:
        start = time.monotonic()
        for f in parts[name]():
            report.findings.append(f)
            if tell is not None:
                tell(f)
            if time.monotonic() - began > seconds:
                late = Finding(f.section, "not finished", NOTE, f"{seconds:.0f} seconds had passed")
                report.findings.append(late)
                break
        report.seconds[name] = round(time.monotonic() - start, 1)
    return report


__all__ = ["AGREES", "DIFFERS", "FAILED", "NOTE", "SECTIONS", "Finding", "Report", "check", "corrected", "machine_of", "page", "read_report", "use"]  # fmt: skip
