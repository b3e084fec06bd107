"""CPUs: the emitter for x86-64 and AArch64, and the objects that LLVM makes of its text."""

from .emitter import (
    DEFAULT_SPEED,
    CpuEmitter,
    HostCode,
    assembly_of,
    begin_cpu,
    build_cpu,
    emit_cpu,
    emitter_for,
    machine_of,
)

__all__ = [
    "DEFAULT_SPEED", "CpuEmitter", "HostCode", "assembly_of", "begin_cpu", "build_cpu", "emit_cpu", "emitter_for", "machine_of",
]  # fmt: skip
