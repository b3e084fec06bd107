"""Launches made ready once: the arguments' block, the pointers into it and the launch's geometry stay, and a call costs one call of four pointers.

A prepared launch keeps such blocks, one for each call under way at a time: ctypes gives the interpreter's lock away during a call, so a block belongs to its
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


PreparedLaunch = Callable[[Sequence[Any], Any], None]  # of the slots' values and the stream


def prepared_launch(driver: Any, function: Any, info: LaunchInfo, getter: Arguments) -> PreparedLaunch:
    """The launch of one kernel with one geometry, as a function of the slots' values and a stream, which raises what a launch raises.

    getter: from the slots' values to the arguments.
    """
    packer = struct.Struct(info.layout)
    pack_into, size = packer.pack_into, packer.size
    call, current, ordinal = driver.lib.function("cuLaunchKernelEx"), driver._current, function.ordinal
    handle = c_void_p(function.handle)
    free: list[_Block] = []

    # A closure: an object's attributes and its `__call__` take a twelfth of a call's time.
    def launch(values: Sequence[Any], stream: Any) -> None:
        if current.ordinal != ordinal:
            driver._enter(ordinal)
        try:
            block = free.pop()
        except IndexError:
            block = _Block(info, size)
        if block.values is not values and block.values != values:
            block.values = None
            pack_into(block.buffer, 0, *getter(values))
            block.values = values
        if block.stream != stream:
            block.config.stream = block.stream = stream
        status = call(block.at, handle, block.pointers, None)
        free.append(block)
        if status:
            raise driver._launch_failed(function, info.grid, info.block, info.shared_bytes, status)

    return launch
