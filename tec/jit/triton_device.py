"""The device that programs written for Triton ask about, and what of Triton's compiled parts they name."""

from __future__ import annotations

import functools
import importlib
from types import SimpleNamespace
from typing import Any

from ..runtime.devices.device import cuda
from ..target import Target
from .specialise import target_of
from .tiles import device_elsewhere
from .triton_testing import do_bench, has_gpu


def _target() -> Target:
    """What programs run on: the device of `tec.tile.on_device`, else torch's GPU, else the current target."""
    if device_elsewhere() is None and has_gpu():
        return target_of(cuda(0))
    return target_of(device_elsewhere())


@functools.lru_cache(maxsize=16)
def _told(t: Target) -> Any:
    arch: Any = t.mcpu
    if t.kind == "cuda":  # a number there: 90 of sm_90a
        arch = int("".join(c for c in t.mcpu if c.isdigit()) or 0)
    return SimpleNamespace(
        backend={"cuda": "cuda", "rocm": "hip"}.get(t.kind, "cpu"),
        arch=arch,
        warp_size=t.wavefront_size if t.is_gpu else 1,
    )


class _Active:
    """The device that programs ask about."""

    utils = SimpleNamespace(get_device_properties=lambda i: _properties())

    def get_active_torch_device(self) -> Any:
        torch = importlib.import_module("torch")
        return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")

    def get_current_target(self) -> Any:
        return _told(_target())

    def get_current_device(self) -> int:
        return 0

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return divmod(int(self.get_current_target().arch), 10) if _target().kind == "cuda" else (0, 0)

    def get_benchmarker(self) -> Any:
        return do_bench


_REGISTERS = 65536  # of a multiprocessor or compute unit, of 32 bits


def _properties() -> dict[str, int]:
    """What a kernel's launch is sized by. Registers and shared memory of a unit, how many units."""
    t = _target()
    units = int(getattr(t.machine, "units", 0) or getattr(t.machine, "cores", 1) or 1)
    shared, wave = (t.lds_bytes, t.wavefront_size) if t.is_gpu else (65536, 32)
    return {"multiprocessor_count": units, "max_num_regs": _REGISTERS, "max_shared_mem": shared, "warpSize": wave}


class Driver:
    @functools.cached_property
    def active(self) -> _Active:
        return _Active()


class CublasLt:
    """The vendor's products, which Triton's tutorials compare with: torch's here."""

    def __init__(self, workspace: Any):
        self.workspace = workspace

    def matmul(self, a: Any, b: Any, c: Any) -> None:
        """c = a @ b.T."""
        c.copy_((a.float() @ b.float().T) if a.element_size() == 1 else a @ b.T)
