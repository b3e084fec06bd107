"""NDArray: an array in a device's memory, and the functions of `tec.nd` that make one.

`nd.array(x, dev)` copies; `nd.from_numpy(x)` and `nd.from_dlpack(x)` share memory. On the CPU `np.asarray(a)` shares
memory too, `a.numpy()` copies. Strides count elements, as DLPack's do. Memory belongs to a `Storage`, which arrays,
their views, NumPy views of them and DLPack capsules keep alive; it goes when the last of them goes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from ...errors import ArgumentError, DeviceError
from ..devices.device import Device, DeviceLike, as_device, cpu, cuda, rocm
from ..devices.storage import ALIGN, PAGED_BYTES, Storage, compact_strides, is_compact, runs, span
from ..elsewhere import Memory
from . import device_copies, dlpack
from .addresses import address_of
from .dtypes import (
    NUMPY_NAMES,
    DTypeLike,
    ShapeLike,
    check_fits,
    check_number,
    dtype_name,
    itemsize,
    lanes,
    numpy_dtype,
)

__all__ = ["NDArray", "Storage", "array", "empty", "from_dlpack", "from_numpy"]

_WRITABLE = "tec.nd.empty(shape, dtype, dev) may be written; memory of NumPy or DLPack that is read-only may not"


class NDArray(Memory):
    """An array in a device's memory, which compiled functions, kernels and executors take. `tec.nd.array` makes one.

    >>> a = tec.nd.array(np.arange(6, dtype="float32").reshape(2, 3), tec.cpu())
    >>> a.shape, a.dtype, a[1].numpy().tolist()
    ((2, 3), 'float32', [3.0, 4.0, 5.0])

    `address` is that of element 0. `layout` is what a compiled function's argument check depends on, as one hashable
    tuple: dtype, shape, strides (None when compact), device, writable, alignment in bytes up to 64; `place` is both, as one object to compare. An array of vectors ("float32x4") has
    their lanes as one more dimension, the last, in NumPy, in DLPack and for compiled functions (`elements`).
    """

    __slots__ = ("__weakref__", "_strides", "address", "device", "dtype", "layout", "place", "shape", "storage")
    __array_priority__ = 0
    __hash__ = object.__hash__

    def __init__(
        self,
        storage: Storage,
        address: int,
        shape: tuple[int, ...],
        dtype: str,
        strides: tuple[int, ...] | None = None,
        writable: bool = True,
    ):
        if strides is not None and is_compact(shape, strides):
            strides = None
        self.storage = storage
        self.address = address
        self.shape = shape
        self.dtype = dtype
        self.device = storage.device
        self._strides = strides
        low = address | ALIGN
        self.layout = (dtype, shape, strides, storage.device, writable, low & -low)
        self.place = (address, self.layout)

    # ---- what it is

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of its elements, without gaps between them."""
        return prod(self.shape) * itemsize(self.dtype)

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements from one index to the next, a dimension each."""
        return compact_strides(self.shape) if self._strides is None else self._strides

    @property
    def is_contiguous(self) -> bool:
        """Whether elements follow one another in row-major order."""
        return self._strides is None

    @property
    def writable(self) -> bool:
        """Whether copies and compiled functions may write to it."""
        return self.layout[4]

    @property
    def alignment(self) -> int:
        """Bytes that divide its address: a power of two, up to 64."""
        return self.layout[5]

    @property
    def ctx(self) -> Device:
        """The device, under the name that te programs use."""
        return self.device

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without dimensions")
        return self.shape[0]

    def __repr__(self) -> str:
        text = np.array2string(self._host_view_or_copy(), threshold=50, separator=", ")
        return f"<tec.NDArray {self.shape} {self.dtype} on {self.device}>\n{text}"

    def __bool__(self) -> bool:
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def item(self) -> Any:
        """The one element, as a Python scalar."""
        if self.size != 1:
            raise ArgumentError(
                f"item() of an array of {self.size} elements",
                hint="x.numpy() gives all elements; x[0].item() gives one of a row",
            )
        return self.numpy().item()

    def elements(self) -> NDArray:
        """This memory as an array of scalars: of vectors with their lanes as the last dimension; itself where it has no vectors."""
        element, count = lanes(self.dtype)
        if count == 1:
            return self
        strides = None if self._strides is None else (*[s * count for s in self._strides], 1)
        return NDArray(self.storage, self.address, (*self.shape, count), element, strides, self.writable)

    # ---- to and from NumPy

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy in NumPy. Waits for the work that is queued on the current stream."""
        here = self.elements()
        return here._copy_to_host() if self.device.driver is not None else here._cpu_view().copy()

    asnumpy = numpy

    def handed_over(self) -> np.ndarray[Any, Any]:
        """Return the elements as a NumPy array, for an array that nobody else holds. A large one in host memory is not copied; a copy of a small one is quicker than a view."""
        return self._cpu_view() if self.device.driver is None and self.nbytes >= PAGED_BYTES else self.numpy()

    def _host_view_or_copy(self) -> np.ndarray[Any, Any]:
        here = self.elements()
        return here._cpu_view() if self.device.driver is None else here._copy_to_host()

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if self.device.driver is None:
            array = self.elements()._cpu_view()
            if dtype is not None and array.dtype != dtype:
                if copy is False:
                    raise ValueError(f"{self.dtype} as {np.dtype(dtype)} needs a copy")
                return array.astype(dtype)
            return array.copy() if copy else array
        if copy is False:
            raise ValueError(f"an array on {self.device} cannot be seen by NumPy without a copy")
        array = self.elements()._copy_to_host()
        return array if dtype is None else array.astype(dtype, copy=False)

    def _cpu_view(self) -> np.ndarray[Any, Any]:
        held = numpy_dtype(self.dtype)
        if self.size == 0:
            return np.empty(self.shape, held)
        size = itemsize(self.dtype)
        if self._strides is None:
            raw: Any = (ctypes.c_char * (prod(self.shape) * size)).from_address(self.address)
            raw._storage = self.storage  # NumPy keeps `raw`, and `raw` the memory
            whole: np.ndarray[Any, Any] = np.ndarray(self.shape, held, raw)
            if not self.writable:
                whole.flags.writeable = False
            return whole
        low, high = span(self.shape, self.strides)
        raw = (ctypes.c_char * ((high - low + 1) * size)).from_address(self.address + low * size)
        raw._storage = self.storage
        strides = tuple(s * size for s in self.strides)
        view: np.ndarray[Any, Any] = np.ndarray(self.shape, held, raw, -low * size, strides)
        if not self.writable:
            view.flags.writeable = False
        return view

    def _copy_to_host(self) -> np.ndarray[Any, Any]:
        device = self.device
        held = numpy_dtype(self.dtype)
        if self.size == 0:
            return np.empty(self.shape, held)
        self._forbid_capture()
        size = itemsize(self.dtype)
        low, high = (0, self.size - 1) if self._strides is None else span(self.shape, self._strides)
        host = np.empty(high - low + 1, held)
        stream = device.local.stream
        device.driver.copy_from_device(  # type: ignore[union-attr]
            device.index, host.__array_interface__["data"][0], self.address + low * size, host.nbytes, stream
        )
        if stream is not None:
            device.driver.stream_synchronize(device.index, stream)  # type: ignore[union-attr]
        if self._strides is None:
            return host.reshape(self.shape)
        strides = tuple(s * size for s in self._strides)
        return np.ndarray(self.shape, held, host, -low * size, strides).copy()

    def copyfrom(self, source: Any) -> NDArray:
        """Fill from an NDArray, NumPy array, DLPack object or nested sequence of the same shape (behind it the lanes of vectors); dtypes are cast."""
        here = self.elements()
        if here is not self:
            here.copyfrom(source.elements() if isinstance(source, NDArray) else source)
            return self
        if not isinstance(source, (NDArray, np.ndarray)):
            source = from_dlpack(source) if hasattr(source, "__dlpack__") else np.asarray(source)
        source = source.elements() if isinstance(source, NDArray) else source
        if tuple(source.shape) != self.shape:
            raise ArgumentError(
                f"copy of shape {tuple(source.shape)} into an array of shape {self.shape}",
                hint="tec.nd.array(source, dev) makes an array of the source's shape; source.reshape(...) gives it another",
            )
        if not self.writable:
            raise ArgumentError("copy into a read-only array", hint=_WRITABLE)
        if isinstance(source, NDArray):
            return source.copyto(self)
        self._copy_from_host(source)
        return self

    def _copy_from_host(self, source: np.ndarray[Any, Any]) -> None:
        if self.size == 0:
            return
        held = numpy_dtype(self.dtype)
        if self.device.driver is None:
            np.copyto(self._cpu_view(), source, casting="unsafe")
            return
        self._forbid_capture()
        device = self.device
        host = np.ascontiguousarray(source, held)
        base = host.__array_interface__["data"][0]
        stream = device.local.stream
        size = itemsize(self.dtype)
        for offset, start, count in runs(self.shape, self.strides):
            device.driver.copy_to_device(  # type: ignore[union-attr]
                device.index, self.address + offset * size, base + start * size, count * size, stream
            )
        if stream is not None:
            device.driver.stream_synchronize(device.index, stream)  # type: ignore[union-attr]

    def copyto(self, target: Any) -> NDArray:
        """Copy into an NDArray of the same shape, or onto a device as a new array. Returns the target."""
        if not isinstance(target, NDArray):
            made = empty(self.shape, self.dtype, target)
            return self.copyto(made)
        if self.elements() is not self or target.elements() is not target:
            self.elements().copyto(target.elements())
            return target
        if target.shape != self.shape:
            raise ArgumentError(
                f"copy of shape {self.shape} into an array of shape {target.shape}",
                hint=f"x.copyto(dev) makes an array of this shape; or tec.nd.empty({self.shape}, {self.dtype!r}, dev)",
            )
        if not target.writable:
            raise ArgumentError("copy into a read-only array", hint=_WRITABLE)
        if not device_copies.copied(self, target):
            target._copy_from_host(self._host_view_or_copy())
        return target

    def to(self, device: DeviceLike) -> NDArray:
        """This array if it is on `device`, else a copy there."""
        target = as_device(device)
        return self if target is self.device else self.copyto(target)

    def astype(self, dtype: DTypeLike) -> NDArray:
        """A copy of another dtype, made on the host."""
        return empty(self.shape, dtype, self.device).copyfrom(self._host_view_or_copy())

    def _forbid_capture(self) -> None:
        if self.device.capturing is not None:
            raise DeviceError(
                "a copy from or to the host or another device inside dev.capture()",
                hint="copy before or after the block",
            )

    # ---- views

    def reshape(self, *shape: ShapeLike) -> NDArray:
        """A view of another shape; the array must be compact. One extent may be -1."""
        new: Any = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        extents = [int(n) for n in new]
        if extents.count(-1) == 1:
            rest = prod(n for n in extents if n != -1)
            extents[extents.index(-1)] = self.size // rest if rest else 0
        if any(n < 0 for n in extents) or prod(extents) != self.size:
            raise ArgumentError(
                f"shape {self.shape} ({self.size} elements) cannot become {tuple(new)}",
                hint=f"the sizes must multiply to {self.size}; a -1 stands for the size that is left over",
            )
        if self._strides is not None:
            raise ArgumentError("reshape of an array that is not compact", hint="a.copyto(a.device).reshape(...)")
        return NDArray(self.storage, self.address, tuple(extents), self.dtype, None, self.writable)

    def read_only(self) -> NDArray:
        """A view that compiled functions and copies may not write to."""
        return NDArray(self.storage, self.address, self.shape, self.dtype, self._strides, False)

    def __getitem__(self, key: Any) -> NDArray:
        """A view: integers, slices, `...` and None."""
        keys = list(key) if isinstance(key, tuple) else [key]
        given = sum(k is not None and k is not Ellipsis for k in keys)
        if given > self.ndim:
            raise IndexError(f"{given} indices for {self.ndim} dimensions")
        if sum(k is Ellipsis for k in keys) > 1:
            raise IndexError("more than one ... in an index")
        if Ellipsis not in keys:
            keys.append(Ellipsis)
        at = next(i for i, k in enumerate(keys) if k is Ellipsis)
        keys[at : at + 1] = [slice(None)] * (self.ndim - given)
        shape: list[int] = []
        strides: list[int] = []
        offset = dim = 0
        for k in keys:
            if k is None:
                shape.append(1)
                strides.append(0)
                continue
            extent, stride = self.shape[dim], self.strides[dim]
            if isinstance(k, slice):
                start, stop, step = k.indices(extent)
                count = len(range(start, stop, step))
                offset += start * stride if count else 0
                shape.append(count)
                strides.append(stride * step)
            elif hasattr(k, "__index__") and not isinstance(k, bool):
                i = k.__index__()
                if not -extent <= i < extent:
                    raise IndexError(f"index {i} of dimension {dim}, which has extent {extent}")
                offset += (i % extent) * stride
            else:
                raise IndexError(f"an index of type {type(k).__name__}: views take integers, slices, ... and None")
            dim += 1
        address = self.address + offset * itemsize(self.dtype)
        return NDArray(self.storage, address, tuple(shape), self.dtype, tuple(strides), self.writable)

    def __setitem__(self, key: Any, value: Any) -> None:
        view = self[key].elements()
        if isinstance(value, (int, float, complex)):
            value = check_number(value, view.dtype, f"it is assigned to elements of {view.dtype}")
        if not isinstance(value, NDArray) or value.shape != view.shape:
            value = np.broadcast_to(np.asarray(value), view.shape)
        view.copyfrom(value)

    def __iter__(self) -> Iterator[NDArray]:
        return (self[i] for i in range(len(self)))

    # ---- DLPack

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.device_of(self.device)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule over this array's memory, as the DLPack protocol has it. Raises BufferError where it cannot be."""
        return dlpack.export(self.elements(), stream, max_version, dl_device, copy)


# ---- tec.nd

_CPU = cpu()


def _check_shape(shape: Any) -> tuple[int, ...]:
    extents = (shape,) if hasattr(shape, "__index__") else tuple(shape)
    try:
        result = tuple(n.__index__() for n in extents)
    except AttributeError:
        raise ArgumentError(f"not a shape: {shape!r}", hint="a shape is a tuple of integers") from None
    if any(n < 0 for n in result):
        raise ArgumentError(f"negative extent in shape {result}", hint="sizes are 0 or more")
    return result


def empty(shape: ShapeLike, dtype: DTypeLike = "float32", device: DeviceLike = None) -> NDArray:
    """A new array on `device` (the CPU when left out), not initialised."""
    extents = _check_shape(shape)
    name = dtype_name(dtype)
    storage = Storage(as_device(device), prod(extents) * itemsize(name))
    return NDArray(storage, storage.address, extents, name)


def array(x: Any, device: DeviceLike = None, dtype: DTypeLike | None = None) -> NDArray:
    """A copy of `x` (array, NDArray, DLPack object, nested sequence) on `device`.

    A structured array gives `Records`. The dtype is that of `x` (NumPy's for a sequence) unless given; of vectors ("float32x2") x's last dimension is the lanes.
    """
    if isinstance(x, NDArray):
        device = x.device if device is None else as_device(device)
        if dtype is None or dtype_name(dtype) == x.dtype:
            return x.copyto(device)
        return array(x._host_view_or_copy(), device, dtype)
    if not isinstance(x, np.ndarray):
        if hasattr(x, "__dlpack__"):
            try:
                return array(from_dlpack(x), device if device is not None else cpu(), dtype)
            except BufferError:
                pass  # NumPy may know another way to it
        try:
            x = np.asarray(x)
        except (ValueError, TypeError, RuntimeError) as error:
            raise ArgumentError(
                f"nd.array cannot take this: {error}",
                hint="pass a NumPy array, numbers in nested lists of equal lengths, or an array with DLPack",
            ) from None
        if dtype is not None:
            check_fits(x, lanes(dtype_name(dtype))[0])
    if x.dtype.names and dtype is None:
        from .records import records

        return records(x, device)  # type: ignore[return-value]  # an array of structs, which has the part of the surface that makes sense
    name = dtype_name(x.dtype.newbyteorder("=") if dtype is None else dtype)
    count = lanes(name)[1]
    if count > 1 and x.shape[-1:] != (count,):
        raise ArgumentError(
            f"an array of {name} of one of shape {x.shape}", hint=f"its last dimension is the {count} lanes"
        )
    made = empty(x.shape if count == 1 else x.shape[:-1], name, device)
    made.elements()._copy_from_host(x)
    return made


def from_numpy(x: np.ndarray[Any, Any]) -> NDArray:
    """A CPU array that shares `x`'s memory; read-only when `x` is."""
    if not isinstance(x, np.ndarray):
        raise ArgumentError(
            f"nd.from_numpy takes a NumPy array, not {type(x).__name__}", hint="nd.array(x) takes anything"
        )
    name = NUMPY_NAMES.get(x.dtype)
    if name is None:
        name = NUMPY_NAMES[x.dtype] = dtype_name(x.dtype)
    flags = x.flags
    strides = None
    if not flags.c_contiguous:
        size = x.itemsize
        if any(s % size for s in x.strides):
            raise ArgumentError(
                f"strides of {x.strides} bytes are no multiples of the {size}-byte element",
                hint="np.ascontiguousarray(x)",
            )
        strides = tuple(s // size for s in x.strides)
    address = address_of(x)
    return NDArray(Storage(_CPU, x.nbytes, address, x), address, x.shape, name, strides, flags.writeable)


def from_dlpack(x: Any, in_order: bool = False) -> NDArray:
    """An array that shares the memory of `x`, which has `__dlpack__` (PyTorch, CuPy, JAX, NumPy, ...) or is a capsule. in_order: it is used in x's own stream."""
    capsule = x
    if hasattr(x, "__tec_nd__"):  # an array of `tec.array`, also on a GPU in software, for which DLPack has no number
        return x.__tec_nd__()  # type: ignore[no-any-return]
    if hasattr(x, "__dlpack__"):
        kind = x.__dlpack_device__()[0] if hasattr(x, "__dlpack_device__") else dlpack.CPU
        # CUDA numbers its default stream 1 in DLPack, HIP 0; producers order their work before it.
        stream = {dlpack.CUDA: 1, dlpack.CUDA_MANAGED: 1, dlpack.ROCM: 0}.get(int(kind))
        if in_order and stream is not None:
            stream = -1
        kwargs: dict[str, Any] = {} if stream is None else {"stream": stream}
        capsule = dlpack.capsule_of(x, kwargs)
    t = dlpack.open_capsule(capsule)
    kind, index = t.device
    if kind in (dlpack.CPU, dlpack.CUDA_HOST, dlpack.ROCM_HOST):
        device = cpu()
    elif kind in (dlpack.CUDA, dlpack.CUDA_MANAGED):
        device = cuda(index)
    elif kind == dlpack.ROCM:
        device = rocm(index)
    else:
        raise BufferError(f"no tec device for DLPack device type {kind}")
    storage = Storage(device, prod(t.shape) * itemsize(t.dtype), t.address, t.owner)
    return NDArray(storage, t.address, t.shape, t.dtype, t.strides, not t.read_only)
