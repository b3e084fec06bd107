"""One range of addresses for all memory of a device whose accesses are recorded, with its shadows at fixed distances.

Out of the operating system comes one reservation; pages of it take memory when they are touched. The first part holds the
allocations; an array of `n` bytes for each of their bytes follows for every entry of `SHADOWS`. So what is recorded of an
address is found by arithmetic, whichever allocation it lies in.
"""

from __future__ import annotations

import bisect
import ctypes
import mmap
import os

from tec.errors import DeviceError

from .checks.race_record import LINE, RECORDS

# name -> bytes of shadow a byte of memory. "screen_w" has a number a dword, "screen_r" one a line: see `checks.screening`.
SHADOWS = {"undefined": 1, **RECORDS, "screen_w": 1, "screen_r": 1}
_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if os.name == "posix" and os.uname().sysname == "Linux" else 0)
_PAGE = mmap.PAGESIZE
_APART = 1 << 19  # of the memory, at its end: the requests to the host lie there
# Of the free addresses that a device takes at most: 1/32 of 128 TiB is 150 GiB of memory with all shadows. Devices live as long as the process, and each is smaller than the one
# before, so that the hundredth has 6 GiB and libraries still find room; whole shares of a host with 256 GiB were used up by 25.
_SHARE = 32
_SLACK = 1 << 16  # accesses of a wave may read shadows a little past the last allocation


def _host_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 1 << 32


def _free_addresses() -> int:
    """Bytes of address space that this process has not taken, of the 47 bits that x86-64 and AArch64 give to programs that ask for no more."""
    try:
        with open("/proc/self/statm", encoding="ascii") as f:
            return (1 << 47) - int(f.read().split()[0]) * _PAGE
    except OSError:
        return 1 << 47


class Arena:
    """`base` and `size` of the memory; `shadow[name]`, the address of a shadow's first byte. Of what lies behind `watched` bytes no race is recorded."""

    def __init__(self, wanted: int):
        per_byte = 1 + sum(SHADOWS.values())
        size = min(wanted, 2 * _host_bytes(), _free_addresses() // _SHARE // per_byte)
        size = max(1 << 24, (size + _PAGE - 1) // _PAGE * _PAGE)
        while True:
            try:
                self._held = Reservation(per_byte * (size + _SLACK) + (size + _SLACK) // LINE)
                break
            except (OSError, ValueError, OverflowError) as e:
                if size <= 1 << 24:
                    raise DeviceError(
                        f"cannot reserve {per_byte * size} bytes of address space for checks",
                        hint='fewer checks (check="bounds"), or a higher limit of address space (ulimit -v)',
                    ) from e
                size = size // 2 // _PAGE * _PAGE
        self._map, self.base = self._held.map, self._held.address
        self.size = size
        self.watched = size - _APART
        self.shadow: dict[str, int] = {}
        at = self.base + size + _SLACK
        for name, n in SHADOWS.items():
            self.shadow[name] = at
            at += n * (size + _SLACK)
        self.lines = at  # a byte for each line of memory: see `support.race`
        self._high = 0
        self._free: list[tuple[int, int]] = [(0, self.watched)]  # (offset, bytes), by offset, none beside each other

    def alloc(self, nbytes: int) -> int | None:
        """The address of a fresh range at a multiple of 256, or None where none is free."""
        nbytes = (nbytes + 255) & ~255
        for i, (at, room) in enumerate(self._free):
            if room >= nbytes:
                if room == nbytes:
                    del self._free[i]
                else:
                    self._free[i] = (at + nbytes, room - nbytes)
                self._high = max(self._high, at + nbytes)
                return self.base + at
        return None

    def alloc_apart(self, nbytes: int) -> int | None:
        """A range where kernels and the host talk by rules of their own, with races that are meant; once."""
        return self.base + self.watched if nbytes <= _APART else None

    def free(self, address: int, nbytes: int) -> None:
        """Give a range back; the pages that it filled go back to the system."""
        nbytes = (nbytes + 255) & ~255
        at = address - self.base
        if nbytes >= 1 << 20:
            self._drop(at, nbytes)
            for name, n in SHADOWS.items():
                self._drop(self.shadow[name] - self.base + n * at, n * nbytes)
        i = bisect.bisect_left(self._free, (at, 0))
        if i < len(self._free) and self._free[i][0] == at + nbytes:
            nbytes += self._free.pop(i)[1]
        if i and sum(self._free[i - 1]) == at:
            at, before = self._free[i - 1]
            self._free[i - 1] = (at, before + nbytes)
        else:
            self._free.insert(i, (at, nbytes))

    def clear(self, name: str) -> None:
        """Zero a shadow, or the "lines", as far as memory was ever handed out."""
        if name == "lines":
            ctypes.memset(self.lines, 0, (self._high + LINE - 1) // LINE)
        else:
            ctypes.memset(self.shadow[name], 0, SHADOWS[name] * self._high)

    def _drop(self, at: int, nbytes: int) -> None:
        """The whole pages of a range back to the system."""
        first, last = (at + _PAGE - 1) // _PAGE * _PAGE, (at + nbytes) // _PAGE * _PAGE
        if first < last and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED, first, last - first)

    def set_undefined(self, address: int, nbytes: int, byte: int) -> None:
        """Every bit of a range undefined (255) or defined (0)."""
        ctypes.memset(self.shadow["undefined"] + address - self.base, byte, nbytes)


class Reservation:
    """A range of addresses whose pages take memory when they are touched."""

    def __init__(self, nbytes: int):
        self.nbytes = nbytes
        if os.name == "posix":
            self.map = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE)
        else:
            self.map = mmap.mmap(-1, nbytes)
        self._hold = ctypes.c_char.from_buffer(self.map)
        self.address = ctypes.addressof(self._hold)
