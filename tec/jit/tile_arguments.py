"""Arguments of kernels over tiles: arrays as the runtime takes them, grids, waves, and what tells types from others."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import DeviceError, KernelError
from ..runtime.arrays.dtypes import dtype_name, itemsize
from ..runtime.arrays.ndarray import NDArray, from_dlpack, from_numpy
from ..runtime.devices.device import Device, as_device
from ..runtime.devices.storage import Storage, span
from ..target import Target
from ..tile import grammar as G
from ..tile.frontend import Described
from ..tile.grammar import TileType, pointer_type


class WideError(KernelError, OverflowError):
    """An integer that no integer type holds."""


def element_of(a: NDArray, name: str) -> G.dtype:
    """The type of an array's elements. Raises KernelError for one that tiles do not have."""
    found = G.OF_TEC.get(a.dtype)
    if found is None:
        raise KernelError(
            f"the argument {name} holds {a.dtype}, which tiles do not have", hint=f"they have {', '.join(G.OF_TEC)}"
        )
    return found


def described_type(text: str) -> TileType | None:
    """The type that a text stands for: "*fp16", "i32", "fp32"; None where it is none."""
    pointer, name = text.startswith("*"), text.lstrip("*")
    name = {
        "i1": "int1",
        "i8": "int8",
        "i16": "int16",
        "i32": "int32",
        "i64": "int64",
        "u8": "uint8",
        "u16": "uint16",
        "u32": "uint32",
        "u64": "uint64",
    }.get(name, name)
    t = G.OF_NAME.get(name) or G.OF_TEC.get(name)
    return None if t is None else TileType((), pointer_type(t) if pointer else t)


def warps_of(name: str, n: Any, target: Target) -> int:
    """Waves a program. Raises KernelError."""
    if not isinstance(n, int) or n < 1 or n & (n - 1):
        raise KernelError(f"{name}: num_warps={n!r}", hint="a power of two: 1, 2, 4, 8, 16")
    # A program's result does not depend on how many waves share it: kernels written for waves of 32 ask for 32 of them.
    return min(n, target.max_threads // target.wavefront_size) if target.is_gpu else n


def of_code(options: Mapping[str, Any], target: Target) -> tuple[tuple[str, Any], ...]:
    """The options that code follows from. On a CPU a program is one thread, and its loops have no stages."""
    return tuple(sorted((k, v) for k, v in options.items() if target.is_gpu or k not in ("num_warps", "num_stages")))


def grid_of(name: str, grid: Any) -> tuple[int, int, int]:
    """Three numbers of a grid. Raises KernelError."""
    if type(grid) is tuple and 0 < len(grid) <= 3:  # nearly always plain numbers: a launch from Python waits for this
        x, y, z = (*grid, 1, 1)[:3]
        if type(x) is type(y) is type(z) is int and -1 < x < _MOST and -1 < y < _MOST and -1 < z < _MOST:
            return x, y, z
    parts = tuple(grid) if isinstance(grid, (tuple, list)) else (grid,)
    while len(parts) > 3 and parts[-1] == 1:  # Triton looks at three, and programs pass more
        parts = parts[:-1]
    if not 1 <= len(parts) <= 3:
        raise KernelError(f"{name}: the grid has {len(parts)} dimensions", hint="one to three: kernel[(n,)](...)")
    for p in parts:
        if isinstance(p, (bool, float)) or not hasattr(p, "__index__"):
            raise KernelError(f"{name}: the grid is {grid!r}", hint="whole numbers: (triton.cdiv(n, BLOCK),)")
        if p < 0 or p >= _MOST:
            raise KernelError(
                f"{name}: a grid of {int(p):,} programs along one axis", hint="less than 2**31 along each of three axes"
            )
    x, y, z = (*[int(p) for p in parts], 1, 1)[:3]
    return x, y, z


def there(flat: list[Any], device: Device) -> list[Any]:
    """Arguments with their arrays on a device; arrays that lie in one another stay so."""
    held: dict[tuple[int, int], NDArray] = {}
    out: list[Any] = []
    for a in flat:
        if type(a) is not NDArray:
            out.append(a)
            continue
        whole = _whole(a)
        key = (whole.address, whole.nbytes)
        if key not in held:
            held[key] = whole.to(device)
        made = held[key]
        if whole is not a:
            made = NDArray(made.storage, made.address + a.address - whole.address, a.shape, a.dtype)
        out.append(made)
    return out


def back(home: Sequence[Any], flat: Sequence[Any]) -> None:
    """What a launch with arguments that `there` made has written, into those that it was given."""
    for a, b in zip(home, flat):
        if a is b or type(a) is not NDArray or not a.writable:
            continue
        whole = _whole(a)
        if whole is a:
            a.copyfrom(b)
        else:
            whole.copyfrom(NDArray(b.storage, b.address - (a.address - whole.address), whole.shape, whole.dtype))


class _Pointed:
    """The owner of memory that an argument names by an address within it."""

    def __init__(self, owner: Any):
        self.owner = owner


def _whole(a: NDArray) -> NDArray:
    """All memory that a kernel may reach from an argument's address: of a view by a tensor's own words the view, of an address within some memory all of it."""
    s = a.storage
    return NDArray(s, s.address, (s.nbytes,), "uint8") if isinstance(s.owner, _Pointed) else a


def reached(v: Any, name: str) -> NDArray | None:
    """`array_of` for a launch elsewhere, which copies what a kernel may reach: of a tensor of torch that is a view with gaps or repeats all memory that it is a view
    of, since libraries restride tensors to have a kernel go further than the view. Of one without, what it has: more is out of bounds."""
    if hasattr(v, "untyped_storage") and hasattr(v, "is_contiguous") and hasattr(v, "detach") and not v.is_contiguous():
        return _pointed(v)
    return array_of(v, name)


def _pointed(v: Any) -> NDArray | None:
    """What is no tensor, but says where its memory is as one does: `data_ptr`, `dtype`, `device` and `untyped_storage`. None for anything else."""
    memory = getattr(v, "untyped_storage", None)
    if not hasattr(v, "data_ptr") or not hasattr(v, "dtype") or not hasattr(v, "device") or memory is None:
        return None
    memory = memory()
    if not hasattr(memory, "nbytes") or not hasattr(memory, "data_ptr"):
        return None
    dtype = dtype_name(str(v.dtype).rpartition(".")[2])
    kind, _, number = str(v.device).partition(":")
    torch = sys.modules.get("torch")
    if kind == "cuda" and torch is not None and torch.version.hip is not None:  # PyTorch for AMD calls its GPUs so
        kind = "rocm"
    device = as_device(kind, int(number or 0))
    address, first, nbytes = v.data_ptr(), memory.data_ptr(), memory.nbytes()
    held = Storage(device, nbytes, first, _Pointed(v))
    return NDArray(held, address, (max(0, (first + nbytes - address) // itemsize(dtype)),), dtype)


def array_of(v: Any, name: str) -> NDArray | None:
    """An argument as an array of tec's; None where it is none."""
    if isinstance(v, NDArray):
        return v
    if isinstance(v, np.ndarray):
        return from_numpy(v)
    if hasattr(v, "data_ptr") and hasattr(v, "detach"):
        return from_dlpack(v.detach(), in_order=True)  # launches go to torch's stream
    if hasattr(v, "__dlpack__"):
        return from_dlpack(v)
    inner = getattr(v, "__tec_array__", None)
    return array_of(inner(), name) if inner is not None else _pointed(v)


def flattened(a: NDArray) -> NDArray:
    """All memory that an array reaches, as one row: what a pointer to its first element is."""
    dtype = "int8" if a.dtype == "bool" else a.dtype
    if a.is_contiguous and a.ndim == 1 and dtype == a.dtype:
        return a
    if a.size and any(s < 0 for s in a.strides):
        raise DeviceError("an array that runs backwards, as a kernel's argument", hint="np.ascontiguousarray(x)")
    n = a.size if a.is_contiguous else span(a.shape, a.strides)[1] + 1 if a.size else 0
    return NDArray(a.storage, a.address, (n,), dtype, None, a.writable)


def run_time_names(types: dict[str, Any]) -> list[str]:
    """Names of what is passed at run time, in order."""
    out: list[str] = []

    def add(name: str, t: Any) -> None:
        if isinstance(t, TileType):
            out.append(name)
        elif isinstance(t, tuple):
            for k, x in enumerate(t):
                add(f"{name}_{k}", x)
        elif isinstance(t, Described):
            out.extend(
                [
                    f"{name}_base",
                    *[f"{name}_size_{k}" for k in range(len(t.block))],
                    *[f"{name}_stride_{k}" for k in range(len(t.block))],
                ]
            )

    for n, t in types.items():
        add(n, t)
    return out


KNOWN = 16  # what is asked of addresses (bytes) and numbers, as Triton does: the bytes of the widest access
_MOST = 2**31  # programs along an axis


def known_of(names: list[str], values: list[Any]) -> dict[str, int]:
    """What kernels are specialised for: of each array the bytes that divide its address, of each integer KNOWN or 1, negative where it is below 0."""
    out: dict[str, int] = {}
    for n, v in zip(names, values):
        if type(v) is NDArray:
            out[n] = min(v.alignment, KNOWN)
        elif isinstance(v, int) and not isinstance(v, bool):
            out[n] = (1 if v % KNOWN else KNOWN) * (1 if v >= 0 else -1)
    return out


def told(t: Any) -> Any:
    """What tells a type or constant from others."""
    if isinstance(t, tuple):
        return (type(t).__name__, *map(told, t))
    if isinstance(t, (TileType, Described)) or t is None:
        return t
    if isinstance(t, (bool, int, float, str)):
        return (type(t).__name__, repr(t))
    try:
        hash(t)
    except TypeError:
        return id(t)
    return t
