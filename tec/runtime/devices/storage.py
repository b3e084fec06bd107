"""Storage: a piece of a device's memory with its owner; and the arithmetic of shapes and strides.

A `Storage` frees what it allocated when the last array, view or capsule over it goes; for memory that somebody else owns it
keeps the owner alive. Strides count elements.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ...errors import DeviceError
from .allocator import human
from .device import Device
from .host_memory import MOST_NOTES, CpuCount, KeptBlocks, cpu_memory, host_memory

ALIGN = 64
# Large blocks of the host begin at a page. One behind the other in the heap they would begin a few lines apart within their pages, and a load some
# lines ahead of a store that is still under way, equal in the low 12 bits, waits for it: tanh of 2**20 elements took a quarter longer.
PAGE, PAGED_BYTES = 4096, 1 << 16


# Small blocks of the host are kept for the next of their size, a few of each: finding where one of NumPy's begins takes longer than a small kernel.
_KEPT_BYTES, _KEPT_STEP, _KEPT_BLOCKS = 1 << 14, 512, 8
_KEPT: dict[int, list[tuple[Any, int]]] = {n: [] for n in range(_KEPT_STEP, _KEPT_BYTES + 1, _KEPT_STEP)}
_KEPT_FOR: dict[int, list[tuple[Any, int]]] = {}  # the same by the bytes that are asked for
_NOTES = CpuCount.notes

_CHECKED_BYTES = 1 << 30  # smaller blocks are not worth a look at what the host has


def _host_align(nbytes: int) -> int:
    return PAGE if nbytes >= PAGED_BYTES else ALIGN


def _host_block(device: Device, nbytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Host memory; asked for once more after arrays that only cycles still hold are gone."""
    for attempt in range(2):
        try:
            # A host that hands out more than it has gives any amount, and ends the process when it is touched.
            if nbytes < _CHECKED_BYTES or nbytes <= (host_memory()[1] or nbytes):
                return np.empty(nbytes + _host_align(nbytes), np.uint8)
        except (MemoryError, ValueError):
            pass
        if attempt == 0:
            gc.collect()
            KeptBlocks.empty()
    stats = cpu_memory()
    raise DeviceError(
        f"out of memory on {device}: {human(nbytes)} asked for\n"
        f"  held here: {human(stats.used)} in {stats.blocks} blocks; the host has {human(stats.free)} of {human(stats.total)} free",
        hint="drop arrays that are no longer needed (del), or work in smaller pieces",
    )


def _kept_size(nbytes: int) -> int:
    return (max(nbytes, 1) + _KEPT_STEP - 1) & -_KEPT_STEP


def _whole_pages(nbytes: int) -> int:
    return (nbytes + PAGE - 1) & -PAGE


def _kept_for(nbytes: int) -> list[tuple[Any, int]] | None:
    """Where blocks for so many bytes are kept; None for large ones."""
    if nbytes > _KEPT_BYTES:
        return None
    kept = _KEPT_FOR[nbytes] = _KEPT[_kept_size(nbytes)]
    return kept


def _host_memory(device: Device, nbytes: int, kept: list[tuple[Any, int]] | None) -> tuple[Any, int]:
    """A block of the host, and the address in it that is aligned."""
    nbytes = _kept_size(nbytes) if kept is not None else _whole_pages(nbytes)
    raw = _host_block(device, nbytes)
    start = ctypes.addressof(ctypes.c_char.from_buffer(raw))  # type: ignore[arg-type]  # a third of what NumPy's own ways to it cost
    return raw, (start + _host_align(nbytes) - 1) & -_host_align(nbytes)


class Storage:
    """A piece of a device's memory: allocated here, or somebody else's, kept alive through `owner`."""

    __slots__ = ("__weakref__", "_block", "address", "device", "nbytes", "owner")

    def __init__(self, device: Device, nbytes: int, address: int | None = None, owner: Any = None):
        self._block: Any = None  # what is given back: the host's block, or True for the allocator's
        self.device = device
        self.nbytes = nbytes
        if address is not None:
            self.owner = owner
            self.address = address
        elif device.allocator is None:
            kept = _KEPT_FOR.get(nbytes) or _kept_for(nbytes)
            try:
                self._block = block = kept.pop()  # type: ignore[union-attr]  # in one step: other threads take blocks too
            except (IndexError, AttributeError):
                found = KeptBlocks.take(_whole_pages(nbytes)) if kept is None else None
                self._block = block = found or _host_memory(device, nbytes, kept)
            self.owner, self.address = block
            _NOTES.append(nbytes)
        else:
            self.owner = owner
            self.address = device.allocator.alloc(nbytes)
            self._block = True

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        block = self._block
        if block is None or ending():  # at the end of the process modules are taken apart, and the memory goes with it
            return
        self._block = None
        if block is True:
            self.device.allocator.free(self.address)  # type: ignore[union-attr]
            return
        _NOTES.append(~self.nbytes)
        kept = _KEPT_FOR.get(self.nbytes)
        if kept is None:
            KeptBlocks.keep(_whole_pages(self.nbytes), block)
        elif len(kept) < _KEPT_BLOCKS:  # appending is one step, on whatever thread this runs
            kept.append(block)
        if len(_NOTES) > MOST_NOTES:
            CpuCount.settle()


def compact_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    strides = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def is_compact(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the strides are row-major's; those of extents 0 and 1 do not count."""
    if 0 in shape:
        return True
    step = 1
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent != 1:
            if stride != step:
                return False
            step *= extent
    return True


def span(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
    """The lowest and highest element offset that an array touches; it must not be empty."""
    ends = [(n - 1) * s for n, s in zip(shape, strides)]
    return sum(min(e, 0) for e in ends), sum(max(e, 0) for e in ends)


def runs(shape: tuple[int, ...], strides: tuple[int, ...]) -> Iterator[tuple[int, int, int]]:
    """(element offset, row-major index, count) of each contiguous run."""
    count, inner = 1, len(shape)
    while inner and (shape[inner - 1] == 1 or strides[inner - 1] == count):
        count *= shape[inner - 1]
        inner -= 1
    for number, index in enumerate(np.ndindex(*shape[:inner])):
        yield sum(i * s for i, s in zip(index, strides)), number * count, count
