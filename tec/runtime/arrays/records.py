"""Arrays of structs: memory of bytes and NumPy's description of what lies in them.

    points = tec.nd.array(np.zeros(100, [("x", "f4"), ("id", "i4")]), dev)
    points["x"]        # an NDArray over the same memory
    points.numpy()     # a structured array

Kernels take them (docs/kernels.md); te functions and networks take their fields.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ArgumentError
from ..devices.device import Device, DeviceLike, as_device
from ..devices.storage import compact_strides
from .dtypes import dtype_name
from .ndarray import NDArray, empty, from_numpy


class Records:
    """An array of structs in a device's memory. dtype: a structured NumPy dtype. Elements lie in row-major order without gaps."""

    __slots__ = ("dtype", "memory", "shape")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, memory: NDArray, shape: tuple[int, ...], dtype: np.dtype[Any]):
        self.memory, self.shape, self.dtype = memory, shape, dtype

    @property
    def device(self) -> Device:
        """Where the memory is."""
        return self.memory.device

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Elements."""
        return int(np.prod(self.shape))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without dimensions")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<tec.Records {self.shape} {self.dtype} on {self.device}>"

    def __getitem__(self, name: str) -> Any:
        return self.field(name)

    def field(self, name: str, parts: bool = False) -> Any:
        """A field of all elements, over the same memory: an NDArray, whose last dimensions are those of the field; Records for a struct.
        parts: complex numbers as reals, with one dimension more. Raises ArgumentError for a field that does not lie at a multiple of its own size.
        """
        held: Any = self.dtype.fields or {}
        if name not in held:
            raise ArgumentError(f"no field {name!r}", hint=f"there are {', '.join(held)}")
        dtype, offset = held[name][0], held[name][1]
        strides = tuple(self.dtype.itemsize * s for s in compact_strides(self.shape))
        return _view(self.memory, self.shape, strides, dtype, offset, name, parts)

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy in NumPy. Waits for the work that is queued on the current stream."""
        return self.memory.numpy().view(self.dtype).reshape(self.shape)

    asnumpy = numpy

    def copyfrom(self, source: np.ndarray[Any, Any]) -> Records:
        """Fill from a structured array of the same shape."""
        self.memory.copyfrom(_bytes_of(np.broadcast_to(source, self.shape).astype(self.dtype)))
        return self


class _Within(Records):
    """Structs inside of structs: their memory is that of the outer ones, `strides` (bytes) and `offset` say where."""

    __slots__ = ("offset", "strides")

    def __init__(
        self, memory: NDArray, shape: tuple[int, ...], dtype: np.dtype[Any], strides: tuple[int, ...], offset: int
    ):
        super().__init__(memory, shape, dtype)
        self.strides, self.offset = strides, offset

    def field(self, name: str, parts: bool = False) -> Any:
        held: Any = self.dtype.fields or {}
        if name not in held:
            raise ArgumentError(f"no field {name!r}", hint=f"there are {', '.join(held)}")
        return _view(self.memory, self.shape, self.strides, held[name][0], self.offset + held[name][1], name, parts)

    def numpy(self) -> np.ndarray[Any, Any]:
        raw = self.memory.numpy()
        return np.ndarray(self.shape, self.dtype, raw, self.offset, self.strides).copy()

    def copyfrom(self, source: np.ndarray[Any, Any]) -> Records:
        raise ArgumentError("a struct inside of structs is not filled by itself", hint="fill its fields")


def _view(
    memory: NDArray,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: np.dtype[Any],
    offset: int,
    name: str,
    parts: bool,
) -> Any:
    inner, extra = dtype.subdtype if dtype.subdtype is not None else (dtype, ())
    if parts and inner.kind == "c":
        inner, extra = np.dtype(f"f{inner.itemsize // 2}"), (*extra, 2)
    shape, strides = (*shape, *extra), (*strides, *[inner.itemsize * s for s in compact_strides(extra)])
    if inner.names:
        return _Within(memory, shape, inner, strides, offset)
    size = inner.itemsize
    if offset % size or any(s % size for s in strides):
        raise ArgumentError(
            f"the field {name} of {size} bytes lies at byte {offset} of structs that are {strides[0] if strides else size} bytes apart",
            hint="np.dtype([...], align=True) puts fields where a device can read them",
        )
    at = tuple(s // size for s in strides)
    return NDArray(memory.storage, memory.address + offset, shape, dtype_name(inner), at, memory.writable)


def _bytes_of(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(x).reshape(-1).view(np.uint8)


def records(x: Any, device: DeviceLike = None, dtype: Any = None) -> Records:
    """A copy of a structured NumPy array on `device`."""
    held = np.asarray(x, dtype)
    if not held.dtype.names:
        raise ArgumentError(f"an array of {held.dtype}, no array of structs", hint="tec.nd.array takes it")
    memory = empty((held.size * held.dtype.itemsize,), "uint8", as_device(device))
    return Records(memory.copyfrom(_bytes_of(held)), held.shape, held.dtype)


def records_of(x: np.ndarray[Any, Any]) -> Records:
    """A structured NumPy array over its own memory. Raises ArgumentError where that has gaps."""
    if not x.flags.c_contiguous:
        raise ArgumentError("an array of structs that is not compact", hint="np.ascontiguousarray(x)")
    return Records(from_numpy(_bytes_of(x)), x.shape, x.dtype)
