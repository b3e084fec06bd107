"""Launches like one before: a kernel's code is found by what tells arguments apart, without their types being made again.

A launch from Python costs what the host does before the GPU has it. Of tensors it is asked the address, the type and how far they reach, of numbers what
kernels are specialised for. What is not plainly a tensor, a number or a constant goes the long way (`tiles.TileKernel.run`), which also says errors.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..runtime.arrays.dtypes import itemsize
from ..runtime.arrays.ndarray import NDArray
from ..runtime.devices.device import Device, cpu, cuda
from ..runtime.devices.storage import Storage
from .tile_arguments import flattened
from .tile_tellers import Told, descriptor, reach, teller_of

if TYPE_CHECKING:
    from ..runtime.modules.function import Function
    from ..runtime.modules.program import BoundProgram
    from .tile_code import Compiled
    from .tiles import TileKernel

_MAX_PLANS = 512  # grids that a launch remembers; more begin anew
_MAX_TELLERS = 64  # rows of argument types that a kernel remembers; more begin anew
_DTYPES = (
    "bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32", "float64",
)  # fmt: skip
_FLOAT8 = {
    "float8_e5m2": "float8_e5m2", "float8_e4m3fn": "float8_e4m3", "float8_e4m3fnuz": "float8_e4m3fnuz", "float8_e5m2fnuz": "float8_e5m2fnuz",
}  # fmt: skip


# Looked up in the environment as it lies behind `os.environ`, which encodes a name at each look.
_ENVIRONMENT: Any = getattr(os.environ, "_data", os.environ)
_SWITCHES = tuple(
    os.environ.encodekey(n) if hasattr(os.environ, "_data") else n
    for n in ("TEC_INTERPRET", "TEC_DEBUG", "TRITON_DEBUG")
)


def is_switched() -> bool:
    """Whether the environment makes launches another thing than those before."""
    interpret, debug, tritons = _SWITCHES
    return interpret in _ENVIRONMENT or debug in _ENVIRONMENT or tritons in _ENVIRONMENT


class Launch:
    """How a launch was done, so that one like it is done again: the code, its device, and arrays that stand behind the user's (`worlds`).

    A plan is a function of the module and its launches for one grid. The first launch with a grid goes through the function's own check and leaves the plan;
    the next ones hand addresses and numbers to it.
    """

    __slots__ = ("_apart", "_floats", "_plans", "_worlds", "aligned", "compiled", "device", "kernel", "types", "worlds")

    def __init__(
        self,
        kernel: TileKernel,
        compiled: Compiled,
        device: Device,
        types: dict[str, Any],
        aligned: dict[str, int],
        worlds: tuple[NDArray, ...],
    ):
        self.kernel, self.compiled, self.device = kernel, compiled, device
        self.types, self.aligned, self.worlds = types, aligned, worlds
        self._plans: dict[Any, tuple[Function, BoundProgram]] = {}
        # Addresses and sizes of the last launch, and whether they share memory.
        self._apart: tuple[Any, Any, bool] = (None, None, False)
        self._worlds = [w.address for w in worlds]
        scalars = compiled.call.checker.scalars
        self._floats = [(k, p.pack) for k, p in enumerate(scalars) if p.dtype == "float32"]

    def again(self, told: Told, extents: tuple[int, ...]) -> None:
        """Launch with other arguments of the same kinds. extents: of the grid."""
        device = self.device
        shared = device.driver is not None and self._share(told)
        plan = self._plans.get((extents, told.sizes, shared))
        if plan is None or device.capturing is not None:
            self._whole(told, extents, shared)
            return
        numbers = told.numbers
        for k, pack in self._floats:
            numbers[k] = pack(numbers[k])
        plan[0].launch(device, plan[1], [*told.addresses, *self._worlds, *numbers, *extents])

    def _share(self, told: Told) -> bool:
        """Whether what the kernel writes lies in another array's memory."""
        addresses, sizes, shared = self._apart
        if addresses == told.addresses and sizes == told.sizes:
            return shared
        function: Function = self.compiled.call
        at, bytes_of = told.addresses, [n * itemsize(p.dtype) for n, p in zip(told.sizes, function.checker.tensors)]
        shared = any(
            at[i] < at[j] + bytes_of[j] and at[j] < at[i] + bytes_of[i]
            for i, j in function.apart
            if i < len(at) and j < len(at)
        )
        self._apart = told.addresses, told.sizes, shared
        return shared

    def _whole(self, told: Told, extents: tuple[int, ...], shared: bool) -> None:
        """A launch by the function's own check of arrays and numbers."""
        arrays = arrays_of(told.values)
        assert arrays is not None  # those of the launch before, which had the same types on the same device, were not
        flat = [*arrays, *self.worlds]
        done: Function = self.kernel._call(self.compiled, flat, extents, self.types, self.aligned, ())
        found = done.plan_of([*flat, *extents], len(extents)) if done.program is not None else None
        if found is not None:
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            self._plans[extents, told.sizes, shared] = done, found


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
        n = reach(t)
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


def told_of(kernel: TileKernel, args: Sequence[Any], named: dict[str, Any]) -> Told | None:
    """What tells a launch from others; None where that takes the long way."""
    tellers = kernel.shape.tellers
    types = (*map(type, args), *named, *map(type, named.values()))
    tell = tellers.get(types)
    if tell is None:
        torch = torch_here()
        if len(tellers) >= _MAX_TELLERS:
            tellers.clear()
        kinds = [*map(type, args), *map(type, named.values())]
        tell = tellers[types] = teller_of(kernel.shape, kinds, [*named], torch.kinds if torch is not None else ())
    return tell(args, named)


def arrays_of(values: Sequence[Any]) -> list[Any] | None:
    """Run-time arguments as a compiled function takes them; None where an array is of none of its types or devices."""
    torch = torch_here()
    tensors = torch.kinds if torch is not None else ()
    flat: list[Any] = []
    for v in values:
        t = type(v)
        if t in tensors:
            flat.append(torch.array(v))  # type: ignore[union-attr]
        elif t is NDArray:
            flat.append(flattened(v))
        elif t in (float, bool) or (t is int and v != 1):
            flat.append(v)
        elif hasattr(v, "block_shape"):
            flat += [torch.array(v.base), *descriptor(v)[1]]  # type: ignore[union-attr]
    return None if any(v is None for v in flat) else flat


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


__all__ = ["Launch", "Told", "arrays_of", "in_stream_of_torch", "is_switched", "same", "told_of", "torch_here"]
