"""DLPack both ways through ctypes: capsules out of arrays and arrays out of capsules, versioned (1.x) and not.

Producer: `make_capsule` describes memory in a managed tensor that lives in `_EXPORTED` together with the Python object
that owns the memory, until the consumer calls the deleter (or the capsule dies unused). Consumer: `open_capsule` checks
the tensor, marks the capsule used and gives a description with an owner whose end calls the producer's deleter.
Source: the DLPack C header and its Python specification (github.com/dmlc/dlpack).
"""

from __future__ import annotations

import ctypes
import sys
from ctypes import (
    POINTER,
    byref,
    c_char_p,
    c_int32,
    c_int64,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
    cast,
    py_object,
)
from typing import Any

from ...records import dataclass
from .dtypes import dlpack_type, from_dlpack_type

CPU, CUDA, CUDA_HOST, ROCM, ROCM_HOST, CUDA_MANAGED = 1, 2, 3, 10, 11, 13
VERSION = (1, 0)
FLAG_READ_ONLY, FLAG_COPIED = 1, 2
_MAX_NDIM = 64


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


_DELETER = ctypes.CFUNCTYPE(None, c_void_p)


class DLManagedTensor(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("manager_ctx", c_void_p), ("deleter", _DELETER)]


class DLManagedTensorVersioned(ctypes.Structure):
    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("manager_ctx", c_void_p),
        ("deleter", _DELETER),
        ("flags", c_uint64),
        ("tensor", DLTensor),
    ]


_api = ctypes.pythonapi
_new = ctypes.PYFUNCTYPE(py_object, c_void_p, c_char_p, c_void_p)(("PyCapsule_New", _api))
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, c_void_p, c_char_p)(("PyCapsule_IsValid", _api))
_get_pointer = ctypes.PYFUNCTYPE(c_void_p, c_void_p, c_char_p)(("PyCapsule_GetPointer", _api))
_set_name = ctypes.PYFUNCTYPE(ctypes.c_int, c_void_p, c_char_p)(("PyCapsule_SetName", _api))
_fetch = ctypes.PYFUNCTYPE(None, c_void_p, c_void_p, c_void_p)(("PyErr_Fetch", _api))
_restore = ctypes.PYFUNCTYPE(None, c_void_p, c_void_p, c_void_p)(("PyErr_Restore", _api))

# Names are kept alive here: a capsule stores the pointer alone.
_NAMES = {False: (b"dltensor", b"used_dltensor"), True: (b"dltensor_versioned", b"used_dltensor_versioned")}

# Address of a managed tensor -> (the structure, its shape and strides, the object that owns the memory).
_EXPORTED: dict[int, tuple[Any, Any, Any]] = {}


def _release(address: int, pop: Any = _EXPORTED.pop) -> None:
    pop(address, None)


_delete = _DELETER(_release)


def _destroy(
    capsule: int,
    # Bound here: a lookup that falls through to the builtins would trip over a pending exception.
    is_valid: Any = _is_valid,
    get_pointer: Any = _get_pointer,
    fetch: Any = _fetch,
    restore: Any = _restore,
    pointers: Any = c_void_p * 3,
    byref: Any = byref,
    names: Any = (b"dltensor", b"dltensor_versioned"),
    pop: Any = _EXPORTED.pop,
) -> None:
    """Runs when a capsule dies. A frame that ends in an exception drops its capsule while the exception is set: put
    it aside first, or the first call here would raise it."""
    e = pointers()
    fetch(byref(e, 0), byref(e, 8), byref(e, 16))
    for name in names:
        if is_valid(capsule, name):  # not taken over by a consumer, which renames it
            pop(get_pointer(capsule, name), None)
    restore(e[0], e[1], e[2])


_destroy_capsule = ctypes.PYFUNCTYPE(None, c_void_p)(_destroy)


def make_capsule(
    *,
    address: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: str,
    device: tuple[int, int],
    owner: Any,
    versioned: bool,
    read_only: bool = False,
    copied: bool = False,
) -> Any:
    """A capsule over memory at `address`; `owner` is kept alive as long as the consumer has it. Strides in elements."""
    ndim = len(shape)
    extents = (c_int64 * (2 * ndim))(*shape, *strides)
    managed: Any = DLManagedTensorVersioned() if versioned else DLManagedTensor()
    tensor = managed.tensor
    tensor.data = address or None
    tensor.device_type, tensor.device_id = device
    tensor.ndim = ndim
    tensor.code, tensor.bits = dlpack_type(dtype)
    tensor.lanes = 1
    if ndim:
        tensor.shape = cast(extents, POINTER(c_int64))
        tensor.strides = cast(byref(extents, 8 * ndim), POINTER(c_int64))
    managed.deleter = _delete
    if versioned:
        managed.major, managed.minor = VERSION
        managed.flags = (FLAG_READ_ONLY if read_only else 0) | (FLAG_COPIED if copied else 0)
    where = ctypes.addressof(managed)
    _EXPORTED[where] = (managed, extents, owner)
    return _new(where, _NAMES[versioned][0], cast(_destroy_capsule, c_void_p))


class _Imported:
    """Holds a producer's managed tensor; its end calls the producer's deleter, once."""

    __slots__ = ("managed",)

    def __init__(self, managed: Any):
        self.managed = managed

    def __del__(self) -> None:
        managed, self.managed = self.managed, None
        if managed is not None and managed.deleter:
            managed.deleter(ctypes.addressof(managed))


@dataclass(frozen=True, slots=True)
class Imported:
    """A tensor out of a capsule. `address` includes the byte offset; strides are in elements, None when compact."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: str
    device: tuple[int, int]
    read_only: bool
    owner: Any


def capsule_of(x: Any, stream: dict[str, Any]) -> Any:
    """The capsule that a producer makes."""
    try:
        return _asked(x, stream)
    except BufferError:
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(x, torch.Tensor) or not x.is_cuda:
            raise
        with torch.cuda.device(x.device):  # PyTorch exports what lies on its current GPU alone
            return _asked(x, stream)


def _asked(x: Any, stream: dict[str, Any]) -> Any:
    try:
        return x.__dlpack__(max_version=VERSION, **stream)
    except TypeError:  # of before version 1
        return x.__dlpack__(**stream)


def open_capsule(capsule: Any) -> Imported:
    """Take a capsule over. BufferError (and the capsule unused) for what is no DLPack capsule, or of another version."""
    if type(capsule).__name__ != "PyCapsule":
        raise BufferError(f"__dlpack__ gave {type(capsule).__name__}, not a capsule")
    this = id(capsule)
    versioned = bool(_is_valid(this, _NAMES[True][0]))
    if not versioned and not _is_valid(this, _NAMES[False][0]):
        raise BufferError("not a DLPack capsule, or one that was used already")
    pointer = _get_pointer(this, _NAMES[versioned][0])
    managed: Any = (DLManagedTensorVersioned if versioned else DLManagedTensor).from_address(pointer)
    if versioned and managed.major > VERSION[0]:
        raise BufferError(f"DLPack version {managed.major}.{managed.minor} is newer than {VERSION[0]}.x")
    t = managed.tensor
    if not 0 <= t.ndim <= _MAX_NDIM:
        raise BufferError(f"a DLPack tensor of {t.ndim} dimensions")
    dtype = from_dlpack_type(t.code, t.bits, t.lanes)
    shape = tuple(t.shape[: t.ndim]) if t.ndim else ()
    if any(n < 0 for n in shape):
        raise BufferError(f"a DLPack tensor of shape {shape}")
    strides = tuple(t.strides[: t.ndim]) if t.ndim and t.strides else None
    _set_name(this, _NAMES[versioned][1])
    return Imported(
        (t.data or 0) + t.byte_offset,
        shape,
        strides,
        dtype,
        (t.device_type, t.device_id),
        versioned and bool(managed.flags & FLAG_READ_ONLY),
        _Imported(managed),
    )


def device_of(device: Any) -> tuple[int, int]:
    """DLPack's (device type, index) of a tec Device."""
    kinds = {"cpu": CPU, "cuda": CUDA, "rocm": ROCM}
    return kinds[device.kind], 0 if device.kind == "cpu" else device.index


def export(
    array: Any, stream: Any, max_version: tuple[int, int] | None, dl_device: tuple[int, int] | None, copy: bool | None
) -> Any:
    """A capsule over an NDArray's memory, as `__dlpack__` is asked for it. Raises BufferError where it cannot be."""
    versioned = max_version is not None and max_version[0] >= 1
    here = device_of(array.device)
    copied = False
    if dl_device is not None and tuple(dl_device) != here:
        if tuple(dl_device) != (CPU, 0):
            raise BufferError(f"an array on {array.device} cannot be exported to DLPack device {tuple(dl_device)}")
        if copy is False:
            raise BufferError(f"an array on {array.device} cannot be exported to the CPU without a copy")
        array, copied = array.copyto("cpu"), True
    elif copy:
        array, copied = array.copyto(array.device), True
    if not array.writable and not versioned:
        raise BufferError("a read-only array needs a versioned capsule: __dlpack__(max_version=(1, 0))")
    if array.device.driver is None:
        if stream is not None and dl_device is None:
            raise BufferError("stream must be None for an array on the CPU")
    elif array.device.is_emulated:
        raise BufferError(
            f"{array.device} is no device that others know; take a copy with dl_device=({CPU}, 0) or .numpy()"
        )
    elif stream != -1:
        # The consumer's stream may be any; waiting here orders our work before its first use.
        array.device.driver.stream_synchronize(array.device.index, array.device.local.stream)
    return make_capsule(
        address=array.address,
        shape=array.shape,
        strides=array.strides,
        dtype=array.dtype,
        device=device_of(array.device),
        owner=array.storage,
        versioned=versioned,
        read_only=not array.writable,
        copied=copied,
    )
