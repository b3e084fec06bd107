"""Code generation: lowered functions to LLVM IR text, assembly, objects. Everything is imported at its first use."""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "Emitter": "emitter", "build_cpu": "cpu", "emit_cpu": "cpu", "HostCode": "cpu",
    "build_kernels": "device", "DeviceCode": "device",
}  # fmt: skip

__all__ = ["DeviceCode", "Emitter", "HostCode", "build_cpu", "build_kernels", "emit_cpu"]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{home}", __name__), name)
