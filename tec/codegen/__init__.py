"""Code generation: lowered functions to LLVM IR text, assembly, objects. Everything is imported at its first use."""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "Emitter": "emit.emitter", "build_cpu": "cpu", "begin_cpu": "cpu", "emit_cpu": "cpu", "HostCode": "cpu",
    "build_kernels": "device", "begin_kernels": "device", "join_kernels": "device", "DeviceCode": "device",
    "merge_objects": "objects.merging",
}  # fmt: skip


def assembly_of(llvm: str, target: Any, name: str) -> str:
    """The assembly (PTX for NVIDIA) of a function's or kernel's LLVM IR, as a module keeps it. Raises CodegenError."""
    home = importlib.import_module(".device" if target.is_gpu else ".cpu", __name__)
    return str(home.assembly_of(llvm, target, name))


__all__ = [
    "DeviceCode", "Emitter", "HostCode", "assembly_of", "begin_cpu", "begin_kernels", "build_cpu", "build_kernels", "emit_cpu", "join_kernels", "merge_objects",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{home}", __name__), name)
