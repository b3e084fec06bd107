"""The chips that the emulator stands for, each as one product: limits that a launch is held against, and figures for the time model.

All figures are the machine table's (`tec.target`).
"""

from __future__ import annotations

from dataclasses import dataclass

from tec.errors import DeviceError

from ..target import CHIPS as TABLE
from ..target import MACHINES, Machine, find_product, machine_of_chip
from ..target import Chip as Limits

# Whose instructions the tables of opcodes know.
EMULATED = (
    "gfx90a", "gfx942", "gfx950", "gfx900", "gfx906", "gfx908", "gfx1030", "gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1200", "gfx1201", "gfx1250",
)  # fmt: skip
# The types of matrix instructions, by the letters in their names.
DTYPES = {
    "f64": "float64", "f32": "float32", "xf32": "tf32", "f16": "float16", "bf16": "bfloat16", "i8": "int8", "f8": "float8", "f4": "float4",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Chip:
    """One emulated chip: its limits, and the product it is one of."""

    limits: Limits
    machine: Machine

    @property
    def name(self) -> str:
        return self.limits.name

    @property
    def product(self) -> str:
        return self.machine.name

    @property
    def compute_units(self) -> int:
        return self.machine.units

    @property
    def wavefront_size(self) -> int:
        return self.limits.wavefront_sizes[0]

    @property
    def matrix(self) -> dict[str, int]:
        """Multiply-adds a clock of a compute unit, by the letters of matrix instructions."""
        return {k: self.machine.matrix_macs[t] for k, t in DTYPES.items() if t in self.machine.matrix_macs}


def product_chip(name: str, product: str) -> Chip:
    """The chip as another of its products ("MI325X"); DeviceError where there is none of that name."""
    found = find_product(product)
    if found is None or found.chip != name:
        known = ", ".join(m.name for m in MACHINES.values() if m.chip == name)
        raise DeviceError(f"{product!r} is no product of {name}", hint=f"one of: {known}")
    return Chip(TABLE[name], found)


CHIPS: dict[str, Chip] = {n: Chip(TABLE[n], machine_of_chip(TABLE[n])) for n in EMULATED}


def named_chip(name: str) -> Chip:
    """The emulated chip of a name, "gfx942", or of a product's, "mi325x", with that product's figures. Raises DeviceError where there is none."""
    if name in CHIPS:
        return CHIPS[name]
    found = find_product(name)
    if found is None or found.chip not in CHIPS:
        products = ", ".join(k for k, m in MACHINES.items() if m.chip in CHIPS)
        raise DeviceError(f"no emulated chip {name!r}", hint=f"one of: {', '.join(CHIPS)}; or a product: {products}")
    return product_chip(found.chip, found.name)


def places(chip: Chip, vgprs: int, lds_bytes: int, group_waves: int, lanes: int) -> int:
    """Work-groups that a unit holds at once."""
    waves, _ = chip.limits.occupancy(vgprs, 0, group_waves, lanes)
    count = waves * chip.limits.simds // group_waves
    if lds_bytes:
        count = min(count, chip.limits.unit_lds_bytes // lds_bytes)
    return max(1, count)
