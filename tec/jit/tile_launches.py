"""Launches like one before: a kernel's code is found by what tells arguments apart, without their types being made again.

A launch from Python costs what the host does before the GPU has it. Tensors of torch become arrays by their address alone; of numbers it is asked what
kernels are specialised for. What is not plainly a tensor, a number or a constant goes the long way (`tiles.TileKernel.run`), which also says errors.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any

from ..runtime.arrays.ndarray import NDArray
from ..runtime.devices.device import Device, cpu, cuda
from ..runtime.devices.storage import Storage
from ..target import Target
from ..tile.grammar import dtype
from .tile_arguments import KNOWN, flattened

if TYPE_CHECKING:
    from .tile_code import Compiled
    from .tiles import TileKernel

_CONSTANTS = (bool, int, float, str, type(None), dtype, FunctionType)  # whose equality and hash say all
_DTYPES = (
    "bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32", "float64",
)  # fmt: skip
_FLOAT8 = {
    "float8_e5m2": "float8_e5m2", "float8_e4m3fn": "float8_e4m3", "float8_e4m3fnuz": "float8_e4m3fnuz", "float8_e5m2fnuz": "float8_e5m2fnuz",
}  # fmt: skip


@dataclass(slots=True)
class Launch:
    """How a launch was done: the code, its device, and arguments that stand behind the user's."""

    compiled: Compiled
    device: Device
    types: dict[str, Any]
    aligned: dict[str, int]
    worlds: tuple[NDArray, ...]


class Torch:
    """What is asked of torch, if it is loaded: names of types, devices, the current stream."""

    def __init__(self, torch: Any):
        self.kinds = (torch.Tensor, torch.nn.Parameter)
        self.is_cuda = torch.version.hip is None
        names = {n: "int8" if n == "bool" else n for n in _DTYPES} | _FLOAT8
        self.dtypes = {
            getattr(torch, n): (t, getattr(torch, n).itemsize) for n, t in names.items() if hasattr(torch, n)
        }
        self.devices: dict[Any, Device] = {}
        self.raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)

    def device(self, of: Any) -> Device | None:
        """The device of a tensor; None for one that is asked the long way."""
        found = self.devices.get(of)
        if found is None:
            if of.type == "cpu":
                found = cpu()
            elif of.type == "cuda" and self.is_cuda:
                found = cuda(of.index or 0)
            else:
                return None
            self.devices[of] = found
        return found

    def array(self, t: Any) -> NDArray | None:
        """All memory that a tensor reaches from its first element, as one row; None where it is no plain tensor."""
        kind, device = self.dtypes.get(t.dtype), self.device(t.device)
        if kind is None or device is None or t.is_neg() or t.is_sparse:
            return None
        n = t.numel()
        if n and not t.is_contiguous():
            n = sum((size - 1) * step for size, step in zip(t.shape, t.stride())) + 1
        address = t.data_ptr()
        return NDArray(Storage(device, n * kind[1], address, t), address, (n,), kind[0])


_TORCH: list[Torch] = []


def torch_here() -> Torch | None:
    """torch, if the program has loaded it."""
    if not _TORCH:
        module = sys.modules.get("torch")
        if module is None or not hasattr(module, "nn"):
            return None
        _TORCH.append(Torch(module))
    return _TORCH[0]


def _class_of(v: int) -> int:
    """What kernels are specialised for of an integer: its type, its sign, whether KNOWN divides it."""
    width = 0 if -(2**31) <= v < 2**31 else 8 if -(2**63) <= v < 2**63 else 16
    return width | (0 if v % KNOWN else 1) | (0 if v >= 0 else 2)


def _descriptor(torch: Torch, v: Any) -> tuple[Any, list[Any]] | None:
    """As `described`, of a host-made tensor descriptor."""
    a = torch.array(v.base)
    if a is None:
        return None
    numbers = [*map(int, v.shape), *map(int, v.strides)]
    about = (a.dtype, a.device, a.layout[5] if a.layout[5] < KNOWN else KNOWN)
    return (about, tuple(v.block_shape), v.padding, *map(_class_of, numbers)), [a, *numbers]


def described(kernel: TileKernel, args: Sequence[Any], named: dict[str, Any]) -> tuple[Any, list[Any]] | None:
    """What tells a launch from others, and its run-time arguments in order; None where that takes the long way."""
    torch, shape = torch_here(), kernel.shape
    tensors = torch.kinds if torch is not None else ()
    constant = shape.constant
    if len(args) > len(constant):
        return None
    key: list[Any] = [Target.current(), len(args), *named]
    flat: list[Any] = []
    late: list[tuple[int, int, int]] = []  # arguments by name: their place in the signature, and their part of `flat`
    places = list(zip(constant, args))
    for n, v in named.items():
        at = shape.place.get(n)
        places.append((at is None or constant[at], v))
    for k, (is_constant, v) in enumerate(places):
        t, start = type(v), len(flat)
        if is_constant:
            if t not in _CONSTANTS:
                return None
            key.append((t, v))
            continue
        if t in tensors:
            a = torch.array(v)  # type: ignore[union-attr]
            if a is None:
                return None
            flat.append(a)
            key.append((a.dtype, a.device, a.layout[5] if a.layout[5] < KNOWN else KNOWN))
        elif t is int:
            if v != 1:
                flat.append(v)
                key.append(_class_of(v))
            else:
                key.append("1")
        elif t is float:
            flat.append(v)
            key.append("f")
        elif t is bool:
            flat.append(v)
            key.append("b")
        elif v is None or t is dtype:
            key.append((t, v))
        elif t is NDArray:
            a = flattened(v)
            flat.append(a)
            key.append((a.dtype, a.device, a.layout[5] if a.layout[5] < KNOWN else KNOWN))
        elif hasattr(v, "block_shape") and type(v.base) in tensors:
            made = _descriptor(torch, v)  # type: ignore[arg-type]
            if made is None:
                return None
            key.append(made[0])
            flat += made[1]
        else:
            return None
        if k >= len(args):
            late.append((shape.place[list(named)[k - len(args)]], start, len(flat)))
    if late and late != sorted(late):
        first = late[0][1]
        flat = flat[:first] + [x for _, a, b in sorted(late) for x in flat[a:b]]
    return tuple(key), flat


def same(flat: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether two rows of run-time arguments are the same."""
    return len(flat) == len(other) and all(
        a.address == b.address and a.shape == b.shape and a.dtype == b.dtype
        if type(a) is NDArray and type(b) is NDArray
        else type(a) is type(b) and (a == b or a != a)
        for a, b in zip(flat, other)
    )


@contextmanager
def in_stream_of_torch(values: Iterable[Any], device: Device | None) -> Iterator[None]:
    """Launches with tensors of torch go to torch's current stream, as torch's own do."""
    torch = sys.modules.get("torch")
    if device is None or device.kind != "cuda" or torch is None or device.local.stream is not None:
        yield
        return
    if not any(isinstance(v, torch.Tensor) for v in values):
        yield
        return
    device.local.stream = torch.cuda.current_stream(device.index).cuda_stream or None
    try:
        yield
    finally:
        device.local.stream = None


__all__ = ["Launch", "described", "in_stream_of_torch", "same", "torch_here"]
