"""Devices by TVM's names. A device that is not there is an object with `exist` False, as in TVM, and raises tec's error where it is used.

Where TEC_EMULATE names an AMD chip, `rocm(0)` is that chip in software; `cuda(0)` is too, on a machine without an NVIDIA GPU: a program written for
CUDA then runs without its target changed.
"""

from __future__ import annotations

import os
from functools import lru_cache
from operator import attrgetter
from typing import Any

from tec import runtime
from tec.errors import DeviceError
from tec.runtime import Device, elsewhere

__all__ = ["Absent", "Device", "cpu", "cuda", "device", "emulated_chip", "gpu", "rocm", "stands_for_cuda"]


# What TVM calls attributes of a device.
elsewhere.accept(
    "device",
    {
        "max_shared_memory_per_block": attrgetter("lds_bytes"),
        "max_threads_per_block": attrgetter("max_threads"),
        "warp_size": attrgetter("wavefront_size"),
        "multi_processor_count": attrgetter("compute_units"),
        "device_name": attrgetter("name"),
        "max_clock_rate": attrgetter("attributes.clock_khz"),
        "max_thread_dimensions": lambda device: list(device.attributes.max_block_dim),
        "total_global_memory": attrgetter("total_memory_bytes"),
    },
)


class Absent:
    """A device that this machine has not: `exist` is False, and all else raises the reason."""

    exist = False
    device_type = 0

    def __init__(self, kind: str, index: int, reason: DeviceError):
        self.kind, self.index, self.device_id, self._reason = kind, index, index, reason

    def __repr__(self) -> str:
        return f"{self.kind}({self.index})"

    def existing(self) -> Device:
        """The device where it is used as one: it raises why it is not there."""
        raise DeviceError(f"{self!r} is not there: {self._reason.message}", hint=self._reason.hint)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self._reason


def emulated_chip() -> str:
    """The AMD chip that TEC_EMULATE names, "" where it names none."""
    return os.environ.get("TEC_EMULATE", "").strip()


@lru_cache(maxsize=1)
def _has_cuda() -> bool:
    return runtime.cuda_exists()


def stands_for_cuda() -> str:
    """The chip whose software model runs what is written for CUDA; "" on a machine with an NVIDIA GPU, or where TEC_EMULATE is not set."""
    return "" if _has_cuda() else emulated_chip()


def cpu(dev_id: int = 0) -> Device:
    """The host."""
    return runtime.cpu(dev_id)


def cuda(dev_id: int = 0) -> Any:
    """An NVIDIA GPU, or what stands for it."""
    make = runtime.rocm if stands_for_cuda() else runtime.cuda
    try:
        return make(dev_id)
    except DeviceError as error:
        return Absent("cuda", dev_id, error)


gpu = cuda  # as it was called before TVM 0.8


def rocm(dev_id: int = 0) -> Any:
    """An AMD GPU, or the one in software that TEC_EMULATE names."""
    try:
        return runtime.rocm(dev_id)
    except DeviceError as error:
        return Absent("rocm", dev_id, error)


_KINDS = {
    "llvm": cpu, "cpu": cpu, "c": cpu, "stackvm": cpu, "cuda": cuda, "nvptx": cuda, "gpu": cuda, "rocm": rocm, "hip": rocm,
}  # fmt: skip


def device(dev_type: Any, dev_id: int = 0) -> Any:
    """A device from a target or its text: `device("cuda", 0)`, `device(tvm.target.Target("llvm"))`."""
    if isinstance(dev_type, (Device, Absent)):
        return dev_type
    kind = str(dev_type).split()[0]
    kind, _, index = kind.partition(":")
    make = _KINDS.get(kind)
    if make is None:
        reason = DeviceError(f"tec has no device {kind!r}", hint="llvm, rocm and cuda are its targets")
        return Absent(kind, dev_id, reason)
    return make(int(index or dev_id))
