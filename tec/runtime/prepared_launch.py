"""Launches made ready once: the arguments' block, the pointers into it and the launch's geometry stay, and a call costs one call of four pointers.

A `PreparedLaunch` keeps such blocks, one for each call under way at a time: ctypes gives the interpreter's lock away during a call, so a block belongs to its
call until that returns. A block that has the values of the last call with it is not written again, tensor maps included.
A kernel that waits for what is ahead of it by itself (`LaunchInfo.early`) is launched so that it may begin early: its launch and its first steps then
run beside the last work-groups of the kernel ahead.
Source: CUDA driver API, "cuLaunchKernelEx", CUlaunchConfig, CUlaunchAttribute; CUDA C++ Programming Guide, "Programmatic Dependent Launch".
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from ctypes import Structure, c_uint, c_void_p
from typing import Any

from .program import LaunchInfo

Arguments = Callable[[Sequence[Any]], Sequence[Any]]


class LaunchConfig(Structure):
    """CUlaunchConfig: geometry, shared memory, stream, attributes."""

    _fields_ = [
        ("grid_x", c_uint), ("grid_y", c_uint), ("grid_z", c_uint), ("block_x", c_uint), ("block_y", c_uint), ("block_z", c_uint),
        ("shared_bytes", c_uint), ("stream", c_void_p), ("attributes", c_void_p), ("attribute_count", c_uint),
    ]  # fmt: skip


class LaunchAttribute(Structure):
    """CUlaunchAttribute: a word that says which, its value in 64 bytes from the eighth on."""

    _fields_ = [("which", c_uint), ("padding", c_uint), ("value", c_uint), ("rest", c_uint * 15)]


PROGRAMMATIC_STREAM_SERIALIZATION = 6
EARLY = (LaunchAttribute * 1)(LaunchAttribute(PROGRAMMATIC_STREAM_SERIALIZATION, 0, 1))


class _Block:
    """One set of arguments. `at` and `pointers` are the addresses of the geometry and of the pointers to the arguments."""

    __slots__ = ("at", "buffer", "config", "each", "pointers", "stream", "values")

    def __init__(self, info: LaunchInfo, size: int):
        offsets = info.offsets
        early = (ctypes.addressof(EARLY), 1) if info.early else (None, 0)
        self.config = LaunchConfig(*info.grid, *info.block, info.shared_bytes, None, *early)
        self.buffer = ctypes.create_string_buffer(max(size, 1))
        base = ctypes.addressof(self.buffer)
        self.each = (c_void_p * max(len(offsets), 1))(*[base + at for at in offsets])
        self.at = c_void_p(ctypes.addressof(self.config))
        self.pointers = c_void_p(ctypes.addressof(self.each))
        self.stream: Any = None
        self.values: Any = None


class PreparedLaunch:
    """A launch of one kernel with one geometry: `launch(values, stream)`. Raises what a launch raises.

    getter: from the slots' values to the arguments.
    """

    __slots__ = (
        "_call",
        "_current",
        "_driver",
        "_free",
        "_function",
        "_getter",
        "_handle",
        "_info",
        "_pack_into",
        "_size",
    )

    def __init__(self, driver: Any, function: Any, info: LaunchInfo, getter: Arguments):
        packer = struct.Struct(info.layout)
        self._driver, self._function, self._info, self._getter = driver, function, info, getter
        self._call = driver.lib.function("cuLaunchKernelEx")
        self._current = driver._current
        self._handle = c_void_p(function.handle)
        self._pack_into, self._size = packer.pack_into, packer.size
        self._free: list[_Block] = []

    def __call__(self, values: list[Any], stream: Any) -> None:
        if self._current.ordinal != self._function.ordinal:
            self._driver._enter(self._function.ordinal)
        free = self._free
        try:
            block = free.pop()
        except IndexError:
            block = _Block(self._info, self._size)
        if block.values != values:
            block.values = None
            self._pack_into(block.buffer, 0, *self._getter(values))
            block.values = values
        if block.stream != stream:
            block.config.stream = block.stream = stream
        status = self._call(block.at, self._handle, block.pointers, None)
        free.append(block)
        if status:
            info = self._info
            raise self._driver._launch_failed(self._function, info.grid, info.block, info.shared_bytes, status)


__all__ = [
    "EARLY",
    "PROGRAMMATIC_STREAM_SERIALIZATION",
    "Arguments",
    "LaunchAttribute",
    "LaunchConfig",
    "PreparedLaunch",
]
