"""Runs the entries of a bound host program: launches, scratch memory, and calls of registered functions, in the thread's stream."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import partial
from math import prod
from typing import Any

from ...errors import DeviceError
from ..arrays.dtypes import itemsize
from ..arrays.ndarray import NDArray
from ..devices.device import Device
from ..devices.storage import Storage
from .callbacks import call
from .program import ALLOC, CALL, LAUNCH, Entry


class _Theirs:
    """Memory that the caller of a function keeps."""


def _borrowed(device: Device, address: int, shape: tuple[int, ...], dtype: str, written: bool) -> NDArray:
    storage = Storage(device, prod(shape) * itemsize(dtype), address, _Theirs())
    return NDArray(storage, address, shape, dtype, None, written)


def execute(device: Device, entries: Iterable[Entry], values: list[Any]) -> None:
    """Run a plan's entries: `values` holds addresses and scalars by slot. Scratch is freed even after an error."""
    driver, allocator = device.driver, device.allocator
    assert driver is not None and allocator is not None
    stream = device.local.stream
    profile = device.profile
    held: dict[int, int] = {}
    try:
        for entry in entries:
            kind = entry[0]
            if kind == LAUNCH:
                if profile is None:
                    driver.launch(entry[1], entry[2], entry[3], entry[4], entry[5](*entry[6](values)), stream)
                else:
                    profile.launch(device, entry[7], entry[1], entry[5](*entry[6](values)), stream)
            elif kind == CALL:
                _, name, arguments, some = entry
                given = [n if slot < 0 else values[slot] + n for slot, n in some]
                if profile is None:
                    call(name, arguments, given, partial(_borrowed, device))
                else:
                    profile.call(device, name, partial(call, name, arguments, given, partial(_borrowed, device)))
            elif kind == ALLOC:
                slot = entry[1]
                if slot in held:
                    allocator.free(held.pop(slot))
                values[slot] = held[slot] = allocator.alloc(entry[2])
            else:
                address = held.pop(entry[1], None)
                if address is not None:
                    allocator.free(address)
    except struct.error as error:
        raise DeviceError(
            f"kernel arguments do not fit their types: {error}", hint="numbers in the range of the parameter's type"
        ) from None
    finally:
        for address in held.values():
            allocator.free(address)
