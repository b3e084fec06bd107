"""The caching allocator: one a GPU device; freed memory is kept for the next request of its size.

A driver's allocation costs from microseconds to a millisecond and often synchronises the device, so freed blocks go to
free lists by rounded size (eight size steps an octave: at most one eighth is wasted). When the driver has no memory
left, the cache is emptied and the request tried once more; then `DeviceError` says what is held.

Work on a stream is in order, so a block freed after its last launch may be handed out again at once as long as all work
is on one stream. Once a device has a second stream, freed blocks wait until the device was synchronised.

Frees come from the garbage collector, on any thread and in the middle of anything: `free` only appends to a deque (one
atomic operation) and the lists are changed under the lock alone.

A thread that captures a graph has lists of its own meanwhile; the others go on as ever, but nobody waits for the whole
device before the capture's end.

A driver that checks accesses against the live allocations (the software GPU) sets `exact_alloc`: blocks then have the
requested size and are given back at once.
"""

from __future__ import annotations

import threading
from collections import deque
from threading import get_ident
from typing import TYPE_CHECKING

from ...errors import DeviceError
from ...locks import fork_safe_lock
from ...records import dataclass

if TYPE_CHECKING:
    from .surface import Driver

_MIN_BLOCK = 512
_PENDING_LIMIT = 256 << 20


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """What a device's allocator holds, in bytes. `free` and `total` are the driver's figures for the whole device."""

    used: int  # held by arrays and running work
    cached: int  # kept for reuse; `empty_cache()` gives it back
    peak: int  # the most that was used at one time
    blocks: int  # live allocations
    driver_allocs: int  # how often the driver was asked
    cache_hits: int
    free: int
    total: int

    def __str__(self) -> str:
        return (
            f"{human(self.used)} in {self.blocks} blocks used, {human(self.cached)} cached, peak {human(self.peak)}; "
            f"device: {human(self.free)} of {human(self.total)} free"
        )


def human(nbytes: float) -> str:
    """1536 -> "1.5 KiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.1f} TiB"


def round_size(nbytes: int) -> int:
    """The block size for a request: a multiple of 512, with eight steps an octave."""
    if nbytes <= _MIN_BLOCK * 8:
        return max(_MIN_BLOCK, -(-nbytes // _MIN_BLOCK) * _MIN_BLOCK)
    step = 1 << ((nbytes - 1).bit_length() - 4)
    return -(-nbytes // step) * step


class CachingAllocator:
    """Allocations of one device. `alloc(nbytes) -> address`, `free(address)`, `stats()`, `empty_cache()`."""

    def __init__(self, driver: Driver, ordinal: int, label: str):
        self.driver = driver
        self.ordinal = ordinal
        self.label = label
        self.exact = bool(getattr(driver, "exact_alloc", driver.kind == "emu"))
        self.multi_stream = False  # set when the device gets a second stream
        self._lock = fork_safe_lock()
        self._free: dict[int, list[int]] = {}
        self._live: dict[int, int] = {}  # address -> block bytes
        self._returned: deque[tuple[int, bool]] = deque()  # an address, and whether a graph being captured owns it now
        self._pending: dict[int, int] = {}  # freed, but perhaps still used by another stream
        self._pending_bytes = 0
        # Held by the thread that captures a graph, one at a time, and by whoever waits for the whole device: a driver refuses that during a capture.
        self.captures = threading.RLock()
        self._captured: dict[int, list[int]] | None = None  # free lists of a graph capture in progress
        self._captor: int | None = None  # the thread that captures
        self._used = self._cached = self._peak = 0
        self._driver_allocs = self._hits = 0

    def alloc(self, nbytes: int) -> int:
        """Device memory for `nbytes`; raises DeviceError when there is none left."""
        if nbytes < 0:
            raise DeviceError(
                f"cannot allocate {nbytes} bytes on {self.label}",
                hint="sizes are 0 or more: check the one that the shape is computed from",
            )
        with self._lock:
            self._take_returned()
            size = max(nbytes, 1) if self.exact else round_size(nbytes)
            blocks = self._captured.get(size) if self._captured and self._captor == get_ident() else None
            if not blocks:
                blocks = self._free.get(size)
            if blocks:
                address = blocks.pop()
                self._cached -= size
                self._hits += 1
            else:
                address, size = self._from_driver(size, nbytes)
            self._live[address] = size
            self._used += size
            if self._used > self._peak:
                self._peak = self._used
            return address

    def free(self, address: int) -> None:
        """Give memory back. Safe from `__del__`, on any thread."""
        self._returned.append((address, self._captor == get_ident()))
        if self.exact and self._lock.acquire(blocking=False):
            try:
                self._take_returned()
            finally:
                self._lock.release()

    def _from_driver(self, size: int, nbytes: int) -> tuple[int, int]:
        """(address, block bytes). After a failure: once more without the cache, once more without the rounding."""
        least = size if self.exact else max(_MIN_BLOCK, -(-nbytes // _MIN_BLOCK) * _MIN_BLOCK)
        tries = [size, size, *([least] if least < size else [])]
        for number, block in enumerate(tries):
            try:
                address = self.driver.alloc(self.ordinal, block)
            except DeviceError as error:
                if number == len(tries) - 1 or not (self._cached or self._pending or block > least):
                    raise self._out_of_memory(nbytes, error) from None
                self._release_pending()
                self._empty()
            else:
                self._driver_allocs += 1
                return address, block
        raise AssertionError("unreachable")

    def _out_of_memory(self, nbytes: int, cause: DeviceError) -> DeviceError:
        try:
            free, total = self.driver.memory_info(self.ordinal)
            device = f"; the device has {human(free)} of {human(total)} free"
        except DeviceError:
            device = ""
        largest = ", ".join(human(b) for b in sorted(self._live.values(), reverse=True)[:5])
        return DeviceError(
            f"out of memory on {self.label}: {human(nbytes)} asked for\n"
            f"  held here: {human(self._used)} in {len(self._live)} blocks"
            + (f" (largest: {largest})" if largest else "")
            + f", cache empty{device}\n  driver: {cause.message}",
            hint="drop arrays that are no longer needed (del), work in smaller pieces, or look who else uses the device",
        )

    def _take_returned(self) -> None:
        while self._returned:
            address, of_capture = self._returned.popleft()
            size = self._live.pop(address, None)
            if size is None:
                continue  # not ours: nothing to give back
            self._used -= size
            if self.exact:
                self.driver.free(self.ordinal, address)
                continue
            self._cached += size
            if of_capture and self._captured is not None:
                self._captured.setdefault(size, []).append(address)
            elif self.multi_stream:
                self._pending[address] = size
                self._pending_bytes += size
            else:
                self._free.setdefault(size, []).append(address)
        if self._pending_bytes > _PENDING_LIMIT:
            self._release_pending()

    def _release_pending(self) -> None:
        """Wait for the device, then let the freed blocks be used again; nothing during a capture, which a wait for the device would end."""
        if self._pending and self._captured is None:
            self.driver.synchronize(self.ordinal)
            self._promote()

    def _promote(self) -> None:
        for address, size in self._pending.items():
            self._free.setdefault(size, []).append(address)
        self._pending.clear()
        self._pending_bytes = 0

    def synchronize(self) -> None:
        """Wait for the device; blocks freed before that are then free for all streams."""
        with self._lock:
            self._take_returned()
            waiting = list(self._pending)
        with self.captures:
            self.driver.synchronize(self.ordinal)
        if waiting:
            with self._lock:
                for address in waiting:
                    size = self._pending.pop(address, None)
                    if size is not None:
                        self._pending_bytes -= size
                        self._free.setdefault(size, []).append(address)

    def begin_capture(self) -> None:
        """From now on blocks that this thread frees belong to the graph that it captures: each replay writes to them again. Waits for another thread's capture."""
        self.captures.acquire()
        with self._lock:
            self._take_returned()
            self._captured, self._captor = {}, get_ident()

    def end_capture(self) -> list[int]:
        """The blocks that the graph must own, and `free` when it goes."""
        with self._lock:
            self._take_returned()
            captured, self._captured, self._captor = self._captured or {}, None, None
            owned = [address for blocks in captured.values() for address in blocks]
            for size, blocks in captured.items():
                for address in blocks:
                    self._live[address] = size
                    self._used += size
                    self._cached -= size
        self.captures.release()
        return owned

    def _empty(self) -> None:
        for size, blocks in self._free.items():
            while blocks:
                self.driver.free(self.ordinal, blocks.pop())
                self._cached -= size
        self._free.clear()

    def empty_cache(self) -> None:
        """Give all cached memory back to the driver."""
        with self.captures, self._lock:
            self._take_returned()
            if self._captured is not None:
                return  # this thread captures a graph, during which nobody may wait for the device
            self._release_pending()
            if self._cached:
                self.driver.synchronize(self.ordinal)
            self._empty()

    def stats(self) -> MemoryStats:
        """What is held now."""
        with self._lock:
            self._take_returned()
            free, total = self.driver.memory_info(self.ordinal)
            return MemoryStats(
                self._used, self._cached, self._peak, len(self._live), self._driver_allocs, self._hits, free, total
            )

    def reset_peak(self) -> None:
        """Count the peak from here on."""
        with self._lock:
            self._take_returned()
            self._peak = self._used
