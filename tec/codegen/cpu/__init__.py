"""CPUs: the emitter for x86-64 and AArch64, and the objects that LLVM makes of its text."""

from .build import (
    DEFAULT_SPEED,
    HostCode,
    assembly_of,
    begin_cpu,
    build_cpu,
    emit_cpu,
    emitter_for,
    machine_of,
)
from .emitter import CpuEmitter

__all__ = [
    "DEFAULT_SPEED", "CpuEmitter", "HostCode", "assembly_of", "begin_cpu", "build_cpu", "emit_cpu", "emitter_for", "machine_of",
]  # fmt: skip
