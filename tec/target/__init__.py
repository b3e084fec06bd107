"""Targets: what code is made for (`Target`), and the one table of chips and machines that costs, code generation and the software GPU read."""

from __future__ import annotations

from ..errors import listed
from .chips import CHIPS, Chip, MatrixShape, chip_of_device
from .cpus import CORES, Core, host_core, host_features, host_stand_in
from .machines import (
    MACHINES,
    Level,
    Machine,
    find_product,
    l2_gbps,
    latency_ns,
    level_gbps,
    machine_of_chip,
    product_of_device,
)
from .target import FAST_MATH_FLAGS, Target, as_target, cuda, llvm, rocm

__all__ = [
    "CHIPS",
    "CORES",
    "FAST_MATH_FLAGS",
    "MACHINES",
    "Chip",
    "Core",
    "Level",
    "Machine",
    "MatrixShape",
    "Target",
    "as_target",
    "chip_of_device",
    "cuda",
    "find_product",
    "product_of_device",
    "l2_gbps",
    "latency_ns",
    "level_gbps",
    "host_core",
    "host_features",
    "host_stand_in",
    "llvm",
    "machine_of_chip",
    "rocm",
]


__dir__ = listed(__name__)
