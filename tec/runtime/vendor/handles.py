"""Handles of libraries and plans by device, workspaces by stream: made at the first call, kept until the process ends. One lock is held around each call, since few
libraries let two threads share a handle."""

from __future__ import annotations

import threading
from collections.abc import Callable
from ctypes import byref, c_void_p
from typing import Any

from ...errors import DeviceError
from ..devices.device import Device
from ..devices.storage import Storage
from .finding import require

LOCK = threading.RLock()
_HANDLES: dict[tuple[str, int], c_void_p] = {}
_KEPT: dict[Any, Any] = {}
_WORKSPACES: dict[tuple[str, int, int | None], Storage] = {}


def call(library: Any, function: str, *args: Any) -> None:
    """A function of a library whose status is 0 where all went well. Raises DeviceError."""
    status = getattr(library, function)(*args)
    if status:
        raise DeviceError(
            f"{function} failed: status {status}",
            hint="the library's manual lists its statuses; most often its version does not fit the driver's, or the device has no memory left",
        )


def enter(device: Device) -> None:
    """Make a device the thread's: libraries work on that."""
    go = getattr(device.driver, "_enter", None)  # the software GPU has none
    if go is not None:
        go(device.index)


def handle(name: str, device: Device, create: str) -> tuple[Any, c_void_p]:
    """(the library, its handle on a device)."""
    library = require(name)
    enter(device)
    found = _HANDLES.get((name, device.index))
    if found is None:
        made = c_void_p()
        call(library, create, byref(made))
        found = _HANDLES[name, device.index] = made
    return library, found


def stream(device: Device) -> c_void_p:
    """The thread's stream."""
    handle = device.local.stream
    return c_void_p(handle if isinstance(handle, int) else None)  # the software GPU's is an object


def kept(key: Any, make: Callable[[], Any]) -> Any:
    """What is made once for a key: descriptors, plans."""
    found = _KEPT.get(key)
    if found is None:
        found = _KEPT[key] = make()
    return found


def workspace(name: str, device: Device, nbytes: int) -> c_void_p:
    """Memory of at least so many bytes, shared by all calls of a library in the thread's stream of a device: they follow one another."""
    if not nbytes:
        return c_void_p()
    key = name, device.index, stream(device).value
    held = _WORKSPACES.get(key)
    if held is None or held.nbytes < nbytes:
        held = _WORKSPACES[key] = Storage(device, nbytes)
    return c_void_p(held.address)


def forget() -> None:
    """Drop all handles without destroying them: for tests that put a library in another's place."""
    _HANDLES.clear()
    _KEPT.clear()
    _WORKSPACES.clear()
