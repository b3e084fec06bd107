"""Kernels from code objects that other compilers made: `dev.load(path)["name"][grid, block](arguments...)`.

What a kernel takes is in the code object's metadata: pointers, values, structs by value, LDS whose size the launch says. Hidden arguments
(grid and block sizes) are the driver's to fill. Types are not in the metadata, sizes are: a Python int fills 1, 2, 4 or 8 bytes, a float is a float of
the argument's size, and a NumPy scalar, a `ctypes` structure or bytes say it all themselves.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import ArgumentError, DeviceError, kind_of, one_line
from ..arrays.images import Image
from ..arrays.ndarray import NDArray, array
from ..devices.drivers import link_object
from ..devices.surface import Dim3
from ..objects import bundle
from ..objects.codeobject import CodeObject, KernelArg, KernelInfo, read_code_object

if TYPE_CHECKING:
    from ..devices.device import Device

_FLOATS = {2: "<e", 4: "<f", 8: "<d"}


def load(device: Device, source: str | os.PathLike[str] | bytes, asm: str | None = None) -> LoadedCode:
    """See `Device.load`."""
    if device.kind != "rocm":
        raise DeviceError(
            f"{device} cannot load a code object for AMD GPUs", hint='tec.rocm(0), or tec.rocm_emu("gfx942")'
        )
    if isinstance(source, (bytes, bytearray, memoryview)):
        data, path = bytes(source), None
    else:
        path = Path(source)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise DeviceError(
                f"{path}: {error.strerror or error}",
                hint="the path of a .hsaco file, a bundle or a fat binary that this process may read",
            ) from None
    entry = bundle.choose(bundle.code_objects(data), device.arch)
    image = link_object(entry.image) if entry.relocatable else entry.image
    if asm is None and path is not None and device.is_emulated:
        asm = bundle.assembly_beside(path)
    return LoadedCode(device, image, asm)


class LoadedCode:
    """A code object on a device: its kernels by name."""

    def __init__(self, device: Device, image: bytes, asm: str | None):
        self.device = device
        self.code: CodeObject = read_code_object(image)
        assert device.driver is not None
        self._module = device.driver.load_module(device.index, image, asm)
        self._kernels: dict[str, ForeignKernel] = {}

    @property
    def names(self) -> list[str]:
        """The kernels' names."""
        return list(self.code.kernels)

    def __iter__(self) -> Iterator[str]:
        return iter(self.code.kernels)

    def __len__(self) -> int:
        return len(self.code.kernels)

    def __getitem__(self, name: str) -> ForeignKernel:
        found = self._kernels.get(name)
        if found is None:
            info = self.code.kernels.get(name)
            if info is None:
                raise DeviceError(
                    f"no kernel {name!r} in this code object", hint=f"it has: {', '.join(self.names) or 'none'}"
                )
            assert self.device.driver is not None
            found = self._kernels[name] = ForeignKernel(self, info, self.device.driver.get_function(self._module, name))
        return found

    def __repr__(self) -> str:
        return f"<code object for {self.code.target_id or self.code.chip} on {self.device}: {', '.join(map(one_line, self.names))}>"


@dataclass(frozen=True)
class ForeignKernel:
    """A kernel of a loaded code object: `kernel[grid, block](...)`, or `kernel[grid, block, lds_bytes](...)`.

    `grid` counts work-groups and `block` work-items, each a number or up to three. `block` may be left out (`kernel[grid]`) where the kernel
    says what it requires.
    """

    code: LoadedCode
    info: KernelInfo
    handle: Any = field(repr=False)

    @property
    def prototype(self) -> str:
        """The kernel's parameters as its metadata has them."""
        return f"{one_line(self.info.name)}({', '.join(_describe(a) for a in self.info.explicit_args)})"

    def __getitem__(self, launch: Any) -> ForeignLaunch:
        parts = launch if isinstance(launch, tuple) and any(isinstance(p, (tuple, list)) for p in launch) else None
        if parts is None:
            parts = launch if isinstance(launch, tuple) and len(launch) in (2, 3) else (launch,)
        if not 1 <= len(parts) <= 3:
            raise self._error(f"{len(parts)} launch sizes", "kernel[grid, block] or kernel[grid, block, lds_bytes]")
        if len(parts) == 1:
            block = self.info.required_workgroup_size
            if block is None:
                raise self._error("no work-group size is given, and the kernel requires none", "kernel[grid, block]")
        else:
            block = self._dims(parts[1], "block")
        shared = parts[2] if len(parts) == 3 else 0
        if isinstance(shared, bool) or not hasattr(shared, "__index__") or shared.__index__() < 0:
            raise self._error(f"{shared!r} bytes of LDS")
        return ForeignLaunch(self, self._dims(parts[0], "grid"), block, int(shared.__index__()))

    def _dims(self, value: Any, what: str) -> Dim3:
        items = tuple(value) if isinstance(value, (tuple, list)) else (value,)
        if not 1 <= len(items) <= 3 or any(
            isinstance(i, bool) or not hasattr(i, "__index__") or i.__index__() < 1 for i in items
        ):
            raise self._error(f"{what} {value!r}", "one to three positive numbers")
        x, y, z = (*(int(i.__index__()) for i in items), 1, 1)[:3]
        return x, y, z

    def _error(self, message: str, hint: str | None = None) -> ArgumentError:
        return ArgumentError(f"{self.info.name}: {message}", hint=hint)


@dataclass(frozen=True)
class ForeignLaunch:
    """A kernel with its sizes: call it with the arguments."""

    kernel: ForeignKernel
    grid: Dim3
    block: Dim3
    shared_bytes: int = 0

    def __call__(self, *args: Any) -> None:
        """Run the kernel. A pointer is an array on the device, a NumPy array (copied there, and back when the kernel is done), an
        address, or None; dynamic LDS is its size in bytes. Raises ArgumentError for what does not fit."""
        kernel, device = self.kernel, self.kernel.code.device
        wanted = kernel.info.explicit_args
        if len(args) != len(wanted):
            raise kernel._error(
                f"{len(args)} argument{'s' * (len(args) != 1)} given, {len(wanted)} wanted", kernel.prototype
            )
        data = bytearray(kernel.info.explicit_bytes)
        shared = self.shared_bytes
        back: list[tuple[NDArray, np.ndarray[Any, Any]]] = []
        held: dict[int, NDArray] = {}  # one NumPy array given twice is one array there
        for position, (arg, value) in enumerate(zip(wanted, args), 1):
            if arg.kind == "dynamic_shared_pointer":
                at = -(-(kernel.info.lds_bytes + shared) // 16) * 16  # 16: the widest LDS access
                shared = at - kernel.info.lds_bytes + self._size(arg, position, value)
                word = at.to_bytes(arg.size, "little")
            elif arg.kind == "by_value":
                word = self._value(arg, position, value)
            else:
                if isinstance(value, np.ndarray):
                    if not value.flags.c_contiguous or not value.flags.writeable:
                        raise self._wrong(
                            arg,
                            position,
                            "a NumPy array that is not contiguous, or read-only",
                            "np.ascontiguousarray(x)",
                        )
                    there = held.get(id(value))
                    if there is None:
                        there = held[id(value)] = array(value, device)
                        back.append((there, value))
                    value = there
                word = self._pointer(arg, position, value)
            data[arg.offset : arg.offset + arg.size] = word
        assert device.driver is not None
        device.driver.launch(kernel.handle, self.grid, self.block, shared, bytes(data), device.local.stream)
        for there, here in back:
            here[...] = there.numpy()

    def _wrong(self, arg: KernelArg, position: int, what: str, hint: str | None = None) -> ArgumentError:
        return self.kernel._error(f"argument {position} ({_describe(arg)}) is {what}", hint)

    def _size(self, arg: KernelArg, position: int, value: Any) -> int:
        if isinstance(value, bool) or not hasattr(value, "__index__") or value.__index__() < 0:
            raise self._wrong(arg, position, f"{value!r}", "LDS of dynamic size: how many bytes")
        return int(value.__index__())

    def _pointer(self, arg: KernelArg, position: int, value: Any) -> bytes:
        device = self.kernel.code.device
        if value is None:
            return bytes(arg.size)
        if isinstance(value, NDArray):
            if value.device is not device:
                raise self._wrong(arg, position, f"on {value.device}, the kernel on {device}", f"x.to({device})")
            return value.address.to_bytes(arg.size, "little")
        if hasattr(value, "__index__") and not isinstance(value, bool):
            return int(value.__index__()).to_bytes(arg.size, "little")
        raise self._wrong(arg, position, _kind(value), "an array on the device, a NumPy array, an address, or None")

    def _value(self, arg: KernelArg, position: int, value: Any) -> bytes:
        if isinstance(value, Image):  # the object's address, the image resource alone, or all of the object
            raw = int(value).to_bytes(8, "little") if arg.size == 8 else bytes(value)[: arg.size]
        elif isinstance(value, np.generic):
            raw = value.tobytes()
        elif isinstance(value, ctypes.Structure) or isinstance(value, (bytes, bytearray)):
            raw = bytes(value)
        elif isinstance(value, bool):
            raw = int(value).to_bytes(arg.size, "little")
        elif isinstance(value, int):
            if arg.size > 8 or not -(1 << (8 * arg.size - 1)) <= value < 1 << (8 * arg.size):
                raise self._wrong(arg, position, f"{value}, which {arg.size} bytes do not hold")
            raw = (value & ((1 << 8 * arg.size) - 1)).to_bytes(arg.size, "little")
        elif isinstance(value, float) and arg.size in _FLOATS:
            try:
                raw = struct.pack(_FLOATS[arg.size], value)
            except OverflowError:
                raise self._wrong(arg, position, f"{value}, which a float of {arg.size} bytes does not hold") from None
        else:
            raise self._wrong(arg, position, _kind(value), "a number, a NumPy scalar, a ctypes structure, or bytes")
        if len(raw) != arg.size:
            raise self._wrong(arg, position, f"{len(raw)} bytes, and takes {arg.size}")
        return raw


def _kind(value: Any) -> str:
    return "an array" if isinstance(value, (np.ndarray, NDArray)) else f"{kind_of(value)}"


def _describe(arg: KernelArg) -> str:
    what = {"global_buffer": "pointer", "dynamic_shared_pointer": "LDS bytes", "by_value": f"{arg.size} bytes"}.get(
        arg.kind, arg.kind
    )
    return f"{one_line(arg.name)}: {what}" if arg.name else what
