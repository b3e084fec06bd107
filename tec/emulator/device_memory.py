"""Device memory of an emulated GPU: host memory, with a registry of what is allocated.

Addresses are real host addresses, so that translated code loads through them; every allocation stands between guard zones,
and the registry (a table of base and size, sorted) is what each access is held against. Freed ranges are remembered for
the messages alone.
"""

from __future__ import annotations

import bisect
import ctypes
from dataclasses import dataclass

import numpy as np

from tec.errors import DeviceError

from ..locks import fork_safe_lock
from .arena import Arena, Reservation
from .errors import OutOfMemory

GUARD_BYTES = 256
_ALIGN = 256
_PAGE = 4096


@dataclass(slots=True)
class Allocation:
    base: int
    size: int
    label: str
    keep: object  # what holds the host memory


class DeviceMemory:
    """The allocations of one device. Where the checks want shadows of them, they lie in an `Arena`."""

    def __init__(self, total_bytes: int, checks: frozenset[str] = frozenset()):
        self.total_bytes = total_bytes
        self.recorded = bool(checks & {"race", "init"})
        self.follows = "init" in checks  # which bits are undefined is kept
        self.record_lock = np.zeros(16, np.uint32)  # taken by the threads of a launch to change a record
        self._arena: Arena | None = None
        self._launches = self._screens = 0
        self._saved_pages: np.ndarray | None = None
        self._defined_pages: np.ndarray | None = None
        self._room: Reservation | None = None
        # Held by a launch that may put memory back as it was, and by all else that writes memory; `running` are the launches that may not.
        self.quiet = fork_safe_lock()
        self.running = 0
        self.used_bytes = 0
        self.live: dict[int, Allocation] = {}
        self.bases: list[int] = []
        self.freed: list[tuple[int, int, str]] = []
        self.lock = fork_safe_lock()
        self._table: np.ndarray | None = None
        self._serial = 0

    def alloc(self, nbytes: int, label: str = "", apart: bool = False) -> int:
        """A fresh range of `nbytes`, filled with 0xff (NaN as a float) so that a read before a write shows; `apart` from what races are looked for in."""
        if nbytes < 0:
            raise DeviceError(
                f"cannot allocate {nbytes} bytes",
                hint="free arrays (del), or take smaller ones: the memory is the host's",
            )
        with self.quiet, self.lock:
            if self.used_bytes + nbytes > self.total_bytes:
                raise OutOfMemory(
                    f"out of device memory: {nbytes} bytes wanted, {self.total_bytes - self.used_bytes} of {self.total_bytes} free"
                )
            buffer: object = None
            if self.recorded:
                base = self._from_arena(nbytes, apart)
            else:
                try:
                    room = np.empty(max(1, nbytes) + 2 * GUARD_BYTES + _ALIGN, np.uint8)
                except MemoryError:
                    raise OutOfMemory(f"the host has no memory for {nbytes} bytes") from None
                buffer, base = room, (room.ctypes.data + GUARD_BYTES + _ALIGN - 1) // _ALIGN * _ALIGN
            if nbytes <= 1 << 24:
                ctypes.memset(base, 0xFF, nbytes)
            ctypes.memset(base + nbytes, 0xFF, GUARD_BYTES)
            self._serial += 1
            self._insert(Allocation(base, nbytes, label or f"allocation {self._serial}", buffer))
            self.used_bytes += nbytes
            return base

    def _from_arena(self, nbytes: int, apart: bool = False) -> int:
        take = self.arena.alloc_apart if apart else self.arena.alloc
        found = take(max(1, nbytes) + 2 * GUARD_BYTES)
        if found is None:
            raise OutOfMemory(f"the host has no memory for {nbytes} bytes")
        if self.follows:
            self.arena.set_undefined(found, nbytes + 2 * GUARD_BYTES, 255)
            self._undefine(found, nbytes + 2 * GUARD_BYTES)
            if nbytes < 4:
                # A number of 2 bytes alone: its word is exchanged, of which nobody writes the rest. Behind longer arrays what is read past the end stays undefined.
                self.arena.set_undefined(found + GUARD_BYTES + nbytes, 4 - nbytes, 0)
        return found + GUARD_BYTES

    def place(self, data: bytes, room: int, label: str) -> int:
        """Data that a launch needs on the device, in `room` bytes; `displace` takes them away."""
        with self.quiet, self.lock:
            buffer: object = None
            if self.recorded:
                base = self._from_arena(room)
            else:
                array = np.empty(room + 64, np.uint8)
                buffer, base = array, (array.ctypes.data + 63) & ~63
            ctypes.memset(base, 0, room)
            ctypes.memmove(base, data, len(data))
            self._insert(Allocation(base, room, label, buffer))
            self.mark_written(base, len(data))
            return base

    def displace(self, base: int) -> None:
        with self.lock:
            size = self.live[base].size
            self._remove(base)
            if self.recorded:
                self.arena.free(base - GUARD_BYTES, max(1, size) + 2 * GUARD_BYTES)

    def adopt(self, address: int, nbytes: int, label: str) -> None:
        """Let kernels use memory of the host that stands at `address`. Raises DeviceError where what is recorded of memory lies beside it, or an
        allocation is there."""
        if self.recorded:
            raise DeviceError(
                "memory of the host cannot be used by kernels under the checks race and init, which keep records beside the device's memory",
                hint="allocate it through the library (hipHostMalloc), or check bounds alone",
            )
        with self.lock:
            i = bisect.bisect_left(self.bases, address + max(1, nbytes)) - 1
            if nbytes < 1 or (i >= 0 and self.bases[i] + self.live[self.bases[i]].size > address):
                raise DeviceError(
                    f"cannot use {nbytes} bytes at {address:#x}: they are empty, or known already",
                    hint="give memory of at least a byte, once",
                )
            self._insert(Allocation(address, nbytes, label, None))

    def disown(self, address: int) -> None:
        """Kernels may use the memory at `address` no more, which `adopt` gave them."""
        with self.lock:
            found = self.live.get(address)
            if found is None or found.keep is not None or self.recorded:
                raise DeviceError(f"no memory of the host was given at {address:#x}", hint="register it before")
            self._remove(address)

    @property
    def arena(self) -> Arena:
        if self._arena is None:
            self._arena = Arena(self.total_bytes + (1 << 24))
        return self._arena

    def next_launch(self) -> int:
        """A number from 1 to 255 that no record in the shadows has."""
        with self.lock:
            self._launches += 1
            if self._launches % 255 == 0:
                for name in ("stores", "loads", "lines"):
                    self.arena.clear(name)
            return self._launches % 255 + 1

    def next_screen(self) -> int:
        """The same for a screened launch and its own records."""
        with self.lock:
            self._screens += 1
            if self._screens % 255 == 0:
                for name in ("screen_w", "screen_r"):
                    self.arena.clear(name)
            return self._screens % 255 + 1

    @property
    def saved_pages(self) -> np.ndarray:
        """A byte for each page of the arena: whether a screened launch put it by."""
        if self._saved_pages is None:
            self._saved_pages = np.zeros(self.arena.size // _PAGE + 2, np.uint8)
        return self._saved_pages

    @property
    def defined_pages(self) -> np.ndarray:
        """A byte for each page of the arena: 1 where a screened launch found all of it defined."""
        if self._defined_pages is None:
            self._defined_pages = np.zeros(self.arena.size // _PAGE + 2, np.uint8)
        return self._defined_pages

    def room_for_pages(self, nbytes: int) -> int:
        """The address of `nbytes` for pages that a screened launch puts by, until the next one asks."""
        if self._room is None or self._room.nbytes < nbytes:
            self._room = Reservation(nbytes)
        return self._room.address

    def _undefine(self, address: int, nbytes: int) -> None:
        """Not all of a range may be defined any more."""
        if self._defined_pages is not None:
            at = address - self.arena.base
            self._defined_pages[at // _PAGE : (at + nbytes) // _PAGE + 1] = 0

    def free(self, base: int) -> None:
        with self.lock:
            allocation = self.live.get(base)
            if allocation is None:
                known = next((f"; {label} was freed before" for b, _, label in self.freed if b == base), "")
                raise DeviceError(
                    f"cannot free {base:#x}: no allocation starts there{known}",
                    hint="free the address that the allocation gave, once",
                )
            self._remove(base)
            if self.recorded:
                self.arena.free(base - GUARD_BYTES, max(1, allocation.size) + 2 * GUARD_BYTES)
            self.used_bytes -= allocation.size
            self.freed.append((base, allocation.size, allocation.label))
            del self.freed[:-64]

    def _insert(self, allocation: Allocation) -> None:
        self.live[allocation.base] = allocation
        bisect.insort(self.bases, allocation.base)
        self._table = None

    def _remove(self, base: int) -> None:
        del self.live[base]
        self.bases.remove(base)
        self._table = None

    def table(self) -> np.ndarray:
        """(base, size) rows, sorted by base: what translated code searches."""
        with self.lock:
            if self._table is None:
                rows = [(b, self.live[b].size) for b in self.bases]
                self._table = np.array(rows, np.uint64).reshape(-1, 2)
            return self._table

    def mark_written(self, address: int, nbytes: int) -> None:
        """The host wrote this range."""
        if self.follows and nbytes:
            self.arena.set_undefined(address, nbytes, 0)

    def copy_undefined(self, dst: int, src: int, nbytes: int) -> None:
        """A range was copied, with what in it is undefined."""
        if self.follows and nbytes:
            offset = self.arena.shadow["undefined"] - self.arena.base
            ctypes.memmove(dst + offset, src + offset, nbytes)
            self._undefine(dst, nbytes)

    def find(self, address: int) -> Allocation | None:
        with self.lock:
            i = bisect.bisect_right(self.bases, address) - 1
            if i >= 0:
                allocation = self.live[self.bases[i]]
                if address < allocation.base + max(1, allocation.size):
                    return allocation
            return None

    def check_range(self, address: int, nbytes: int, what: str) -> None:
        """Raise unless the whole range lies in one allocation."""
        if nbytes == 0:
            return
        allocation = self.find(address)
        if allocation is None or address + nbytes > allocation.base + allocation.size:
            raise DeviceError(
                f"{what}: {nbytes} bytes at {address:#x} are not within one allocation; " + self.describe(address),
                hint="copy within one array, from its own address on",
            )

    def _ends_before(self, address: int) -> Allocation | None:
        """The allocation that ends at most a page before an address: memory is given out anew, so that what lies behind an array may have been another's."""
        with self.lock:
            i = bisect.bisect_right(self.bases, address) - 1
            found = self.live[self.bases[i]] if i >= 0 else None
        return found if found is not None and 0 <= address - found.base - found.size <= _PAGE else None

    def describe(self, address: int) -> str:
        """Where an address lies, for a message."""
        if address == 0:
            return "a null pointer"
        allocation = self.find(address)
        if allocation is not None:
            return f"{address - allocation.base} bytes into {allocation.label} ({allocation.size} bytes at {allocation.base:#x})"
        for base, size, label in reversed(self.freed):
            if base <= address < base + size:
                freed = f"{address - base} bytes into {label}, which was freed"
                before = self._ends_before(address)
                if before is None:
                    return freed
                past = address - before.base - before.size
                return f"{past} bytes past the end of {before.label} ({before.size} bytes at {before.base:#x}), and {freed}"
        if address < 4096:
            return "a null pointer plus a small offset"
        with self.lock:
            near = [self.live[b] for b in self.bases]
        if not near:
            return "the device has no allocation"
        best = min(near, key=lambda a: min(abs(address - a.base), abs(address - (a.base + a.size))))
        if address >= best.base:
            return f"{address - best.base - best.size} bytes past the end of {best.label} ({best.size} bytes at {best.base:#x})"
        return f"{best.base - address} bytes before {best.label} ({best.size} bytes at {best.base:#x})"
