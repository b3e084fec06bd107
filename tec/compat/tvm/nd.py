"""tvm.nd: arrays. They are tec's: `nd.array(x, device)`, `.numpy()`, `.copyto(...)`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tec.runtime.arrays import ndarray as _ours
from tec.runtime.arrays.ndarray import NDArray, empty, from_dlpack, from_numpy

from .devices import cpu, cuda, device, gpu, rocm
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


def array(arr: Any, device: Any = None, mem_scope: str | None = None, ctx: Any = None) -> NDArray:
    """A copy of `arr` in the memory of `device`. `ctx` is the device as it was called before TVM 0.8. The 16-bit integers that stand for bfloat16 in TVM stay integers."""
    if isinstance(arr, NDArray):
        arr = arr.numpy()
    return _ours.array(np.asarray(arr) if not isinstance(arr, np.ndarray) else arr, device or ctx or cpu())


def numpyasarray(np_data: Any) -> NDArray:
    """An array that shares memory with NumPy's."""
    return from_numpy(np_data)


__getattr__ = absent(__name__)
