"""tvm.nd: arrays. They are tec's: `nd.array(x, device)`, `.numpy()`, `.copyto(...)`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tec.errors import ArgumentError
from tec.ir.spelling import accept
from tec.runtime.arrays import ndarray as _ours
from tec.runtime.arrays.ndarray import NDArray, empty, from_dlpack, from_numpy

from .devices import Device, cpu, cuda, device, gpu, rocm
from .names import absent

__all__ = [
    "NDArray",
    "array",
    "cpu",
    "cuda",
    "device",
    "empty",
    "from_dlpack",
    "from_numpy",
    "gpu",
    "numpyasarray",
    "rocm",
]


def array(arr: Any, device: Any = None, mem_scope: str | None = None) -> NDArray:
    """A copy of `arr` in the memory of `device`. The 16-bit integers that stand for bfloat16 in TVM stay integers."""
    if isinstance(arr, NDArray):
        arr = arr.numpy()
    return _ours.array(np.asarray(arr) if not isinstance(arr, np.ndarray) else arr, device or cpu())


def numpyasarray(np_data: Any) -> NDArray:
    """An array that shares memory with NumPy's."""
    return from_numpy(np_data)


def _copyto(a: NDArray) -> Any:
    def copyto(target: NDArray | Device, mem_scope: str | None = None) -> NDArray:
        if isinstance(target, Device):
            return _ours.array(a.numpy(), target)
        if not isinstance(target, NDArray):
            raise ArgumentError(f"copyto of {target!r}", hint="give an array or a device")
        return target.copyfrom(a)

    return copyto


accept(
    NDArray,
    {"asnumpy": lambda a: a.numpy, "copyto": _copyto, "handle": lambda a: a, "same_as": lambda a: lambda b: a is b},
)

__getattr__ = absent(__name__)
