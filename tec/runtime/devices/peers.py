"""Copies from the memory of one GPU to that of another of the same driver, without a way through the host.

The copy is queued in the source's current stream. It waits for what is queued in the target's current stream, since the memory there may still be in use, and what is queued
there from then on waits for it.
"""

from __future__ import annotations

from .device import Device
from .stream import Event


def can_copy(source: Device, target: Device) -> bool:
    """Whether the driver copies between the two."""
    driver = source.driver
    return driver is not None and driver is target.driver and source is not target and hasattr(driver, "copy_to_peer")


def copy(source: Device, target: Device, dst: int, src: int, nbytes: int) -> None:
    """Queue the copy of `nbytes` at `src` on one device to `dst` on another."""
    _behind(target, source)
    source.driver.copy_to_peer(source.index, target.index, dst, src, nbytes, source.local.stream)  # type: ignore[union-attr]
    _behind(source, target)


def _behind(first: Device, second: Device) -> None:
    """What is queued from now on in the current stream of `second` waits for what is in that of `first`."""
    mark = Event(first).record()
    second.driver.stream_wait_event(second.index, second.local.stream, mark.handle)  # type: ignore[union-attr]
