"""Arrays and others' memory: NumPy, DLPack, the CUDA array interface.

Nothing leaves a device in silence. NumPy's functions on arrays are this namespace's where there is one of the name, and an error with what to write
otherwise; `np.asarray(x)` shows a CPU's memory, without a copy and read-only, and refuses a device's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import kind_of, shown
from ..runtime.arrays import dlpack as protocol
from ..runtime.arrays.dtypes import numpy_dtype
from ..runtime.arrays.ndarray import NDArray, array, empty, from_dlpack, from_numpy
from ..runtime.devices.device import DeviceLike, as_device
from . import inspection
from .computing import in_memory
from .errors import ArrayBufferError, ArrayTypeError, ArrayValueError
from .node import Node, leaf, look_at
from .numbers import NUMBERS

if TYPE_CHECKING:
    from .array import Array


def no_array(x: Any, what: str = "the operand") -> ArrayTypeError:
    """The error for what is no array."""
    if isinstance(x, np.ndarray):
        return ArrayTypeError(f"{what} is a NumPy array", hint="tec.array.asarray(x, device=dev) copies it to a device")
    if isinstance(x, NDArray):
        return ArrayTypeError(f"{what} is a tec.NDArray", hint="tec.array.from_dlpack(x) is an array on its memory")
    if hasattr(x, "__dlpack__"):
        return ArrayTypeError(
            f"{what} is a {type(x).__module__}.{type(x).__name__}",
            hint="tec.array.from_dlpack(x) is an array on its memory",
        )
    if isinstance(x, NUMBERS):
        return ArrayTypeError(
            f"{what} is a number, and an array is needed: {x!r}", hint="tec.array.asarray(x) makes one"
        )
    return ArrayTypeError(
        f"{what} is neither an array nor a number: {shown(x)}", hint="tec.array.asarray(x) makes an array"
    )


# ---- NumPy


def to_numpy(self: Array, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
    """What NumPy sees of an array on the CPU: its memory, read-only. ArrayTypeError for an array on another device."""
    if self.device.driver is not None:
        raise ArrayTypeError(f"NumPy asks for an array on {self.device}", hint="x.numpy() copies it to the host")
    look_at(self._node)
    a = in_memory(self._node)
    if copy or (dtype is not None and np.dtype(dtype) != numpy_dtype(a.dtype)):
        if copy is False:
            raise ArrayValueError(
                f"{a.dtype} as {np.dtype(dtype)} needs a copy",
                hint="np.array(x) copies, and x.astype(dtype) converts before",
            )
        return a.numpy() if dtype is None else a.numpy().astype(dtype)
    self._node.held().lent = True
    return np.asarray(a.read_only())


# NumPy's namespaces whose functions have namesakes.
_PARTS = {"": np, "linalg": np.linalg, "fft": np.fft}


def _namesake(name: str) -> Any:
    return getattr(inspection.namespace(None), name, None)


def array_ufunc(self: Array, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """NumPy's ufunc on arrays: the function of this namespace, where there is one and no NumPy array is among its operands."""
    name = ufunc.__name__
    found = _namesake(name) if method == "__call__" and not kwargs else None
    if any(isinstance(x, np.ndarray) for x in inputs):
        raise ArrayTypeError(
            f"np.{name} of a NumPy array and an array on {self.device}",
            hint="tec.array.asarray(a, device=x.device) copies the NumPy array there; x.numpy() copies the other to the host",
        )
    if found is None:
        call = f"np.{name}" if method == "__call__" else f"np.{name}.{method}"
        raise ArrayTypeError(
            f"{call} on an array on {self.device}", hint=f"x.numpy() copies it to the host: {call}(x.numpy())"
        )
    return found(*inputs)


def array_function(self: Array, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """The same for NumPy's other functions."""
    own = function.__name__
    part = next((k for k, m in _PARTS.items() if getattr(m, own, None) is function), None)
    name = f"{part}.{own}" if part else own
    found = None
    if part is not None:
        space = _namesake(part) if part else inspection.namespace(None)
        found = getattr(space, own, None)
    if found is None or not callable(found):
        raise ArrayTypeError(
            f"np.{name} on an array on {self.device}", hint=f"x.numpy() copies it to the host: np.{name}(x.numpy())"
        )
    try:
        return found(*args, **kwargs)
    except TypeError as e:
        if isinstance(e, ArrayTypeError):
            raise
        raise ArrayTypeError(
            f"np.{name} on an array is tec.array.{name}: {e}",
            hint="write tec.array's own arguments, or np's on x.numpy()",
        ) from None


# ---- DLPack


def dlpack_device(self: Array) -> tuple[int, int]:
    kinds = {"cpu": protocol.CPU, "cuda": protocol.CUDA, "rocm": protocol.ROCM}
    return kinds[self.device.kind], 0 if self.device.kind == "cpu" else self.device.index


def dlpack(
    self: Array,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """A capsule over its memory. What the array is assigned later goes to other memory. BufferError where it cannot be."""
    look_at(self._node)
    a = in_memory(self._node) if copy else self._lent_out()
    return a.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)


def taken(x: Any, device: DeviceLike, copy: bool | None) -> Node:
    """The node of `from_dlpack`: on the memory of `x` where that is compact and the device is the same, on a copy else."""
    wanted = None if device is None else as_device(device)
    try:
        held = from_dlpack(x)
    except BufferError:
        if copy is False or not _is_emulated(x):
            raise
        held = array(x.numpy(), wanted)
        return leaf(held)
    except AttributeError:
        raise ArrayTypeError(f"{kind_of(x)} has no __dlpack__", hint="tec.array.asarray(x)") from None
    wanted = wanted or held.device
    if wanted is held.device and held.is_contiguous and not copy:
        return leaf(held, foreign=True)
    if copy is False:
        why = "is not compact" if wanted is held.device else f"is on {held.device}"
        raise ArrayBufferError(f"from_dlpack(copy=False): the memory {why}", hint="leave copy out, or copy=True")
    return leaf(held.copyto(empty(held.shape, held.dtype, wanted)))


def _is_emulated(x: Any) -> bool:
    return bool(getattr(getattr(x, "device", None), "is_emulated", False)) and hasattr(x, "numpy")


def cuda_interface(self: Array) -> dict[str, Any]:
    """Version 3 of the CUDA array interface, of an array on an NVIDIA GPU. The work on it is waited for."""
    if self.device.kind != "cuda":
        raise AttributeError(f"__cuda_array_interface__ of an array on {self.device}")
    a = self._lent_out()
    self.device.sync()
    return {
        "shape": a.shape, "typestr": numpy_dtype(a.dtype).str, "data": (a.address if a.size else 0, False), "strides": None, "version": 3,
    }  # fmt: skip


def shared(x: np.ndarray[Any, Any]) -> Node:
    """A node on a NumPy array's memory. Raises ArrayValueError where it does not lie in order."""
    if not x.flags.c_contiguous:
        raise ArrayValueError(
            "asarray(copy=False) of a NumPy array that is not compact",
            hint="np.ascontiguousarray(a), or leave copy out",
        )
    return leaf(from_numpy(x), foreign=True)
