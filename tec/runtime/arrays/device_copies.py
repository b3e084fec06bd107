"""Copies between arrays on GPUs without a way through the host: on one device, or from one to another of the same driver.

A copy to another device is queued in the source's current stream. It waits for what is queued in the target's current stream, since the memory there may still be in use, and
what is queued there from then on waits for it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from ..devices.device import Device
from ..devices.stream import Event

if TYPE_CHECKING:
    from .ndarray import NDArray


class _Marks(threading.local):
    """A thread's mark on each device: a wait is for where it was when it was asked for, so that one does, and making one takes as long as a small copy."""

    def __init__(self) -> None:
        self.of: dict[Device, Event] = {}


_MARKS = _Marks()


def copied(source: NDArray, target: NDArray) -> bool:
    """Queue a copy of `source` into `target`, of one shape; False where the host must do it. DeviceError within a capture that could not hold the copy."""
    device, other = source.device, target.device
    if device.driver is None or device.driver is not other.driver or source.dtype != target.dtype:
        return False
    if source._strides is not None or target._strides is not None:
        return False
    driver: Any = device.driver
    if device is not other and not hasattr(driver, "copy_to_peer"):
        return False
    if not source.size:
        return True
    if device is not other:
        source._forbid_capture()
        target._forbid_capture()
        _behind(other, device)
        driver.copy_to_peer(
            device.index, other.index, target.address, source.address, source.nbytes, device.local.stream
        )
        _behind(device, other)
        return True
    if device.capturing is not None:
        device.capturing.keep.append((source.storage, target.storage))
    driver.copy_on_device(device.index, target.address, source.address, source.nbytes, device.local.stream)
    return True


def _behind(first: Device, second: Device) -> None:
    """What is queued from now on in the current stream of `second` waits for what is in that of `first`."""
    driver: Any = second.driver
    mark = _MARKS.of.get(first)
    if mark is None:
        mark = _MARKS.of[first] = Event(first)
    driver.stream_wait_event(second.index, second.local.stream, mark.record().handle)
