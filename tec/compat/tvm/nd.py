"""tvm.nd: arrays. They are tec's: `nd.array(x, device)`, `.numpy()`, `.copyto(...)`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tec.runtime.arrays import ndarray as _ours
from tec.runtime.arrays.dtypes import numpy_dtype
from tec.runtime.arrays.ndarray import NDArray, from_dlpack, from_numpy

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


class Bits(NDArray):
    """An array of bfloat16. In NumPy it is 16-bit integers, TVM's form of them; integers that are copied to it are such bits."""

    __slots__ = ()

    @staticmethod
    def of(made: NDArray) -> NDArray:
        """An array that was made, in this form where its elements are bfloat16."""
        if type(made) is NDArray and made.dtype.startswith("bfloat16"):
            made.__class__ = Bits
        return made

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy of the bits."""
        return super().numpy().view(np.uint16)

    asnumpy = numpy

    def elements(self) -> NDArray:
        """The array with the lanes of vectors as its last dimension."""
        return Bits.of(super().elements())

    def copyto(self, target: Any, mem_scope: str | None = None) -> NDArray:
        """A copy in another array, or on another device."""
        if isinstance(target, NDArray) and target.dtype == "uint16":
            return target.copyfrom(self.numpy())
        return Bits.of(super().copyto(target))

    def copyfrom(self, source: Any) -> NDArray:
        """Fill from an array of bits, or of numbers."""
        given = source if isinstance(source, NDArray) else np.asarray(source)
        if isinstance(given, np.ndarray) and given.dtype == np.uint16:
            given = given.view(numpy_dtype("bfloat16"))
        return super().copyfrom(given)


def empty(shape: Any, dtype: Any = "float32", device: Any = None, mem_scope: str | None = None) -> NDArray:
    """A new array, not initialised."""
    return Bits.of(_ours.empty(shape, dtype, device))


def array(arr: Any, device: Any = None, mem_scope: str | None = None, ctx: Any = None) -> NDArray:
    """A copy of `arr` in the memory of `device`. `ctx` is the device as it was called before TVM 0.8. The 16-bit integers that stand for bfloat16 in TVM stay integers."""
    given = arr if isinstance(arr, (NDArray, np.ndarray)) else np.asarray(arr)
    return Bits.of(_ours.array(given, device or ctx or cpu()))


def numpyasarray(np_data: Any) -> NDArray:
    """An array that shares memory with NumPy's."""
    return from_numpy(np_data)


__getattr__ = absent(__name__)
