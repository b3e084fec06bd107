"""Memory pools: what is allocated and freed in the order of a stream. Work runs where it is given, so a pool is a count of what came out of it.

hipMallocAsync's memory counts as the current pool's; freed memory goes back to the device at once, whatever threshold is set.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field

from .base import need, pointer, put_int
from .entry import INVALID_VALUE, HipError, entry
from .memories import Memories

# hipMemPoolAttr: three switches of 32 bits, then a threshold and counters of 64.
_SWITCHES, _THRESHOLD, _RESERVED, _RESERVED_HIGH, _USED, _USED_HIGH = (1, 2, 3), 4, 5, 6, 7, 8


@dataclass(eq=False)
class Pool:
    """A pool. `attributes`: those that the program set."""

    used: int = 0
    high: int = 0
    attributes: dict[int, int] = field(default_factory=lambda: dict.fromkeys(_SWITCHES, 1))


class Pools(Memories):
    """hipMemPool*, hipMallocFromPoolAsync, and the pool that hipMallocAsync takes from."""

    def __init__(self, chip: str, check: str):
        super().__init__(chip, check)
        self._default = self._current = self.handle(Pool())
        self._sizes: dict[int, tuple[Pool, int]] = {}  # allocations of pools by address

    def _take(self, pool: Pool, out: int, nbytes: int) -> None:
        self._alloc(out, nbytes)
        address = pointer(out).value
        if address:
            self._sizes[address] = pool, nbytes
            pool.used += nbytes
            pool.high = max(pool.high, pool.used)

    @entry("pzp")
    def hipMallocAsync(self, out: int, nbytes: int, stream: int) -> None:
        self._take(self.held(self._current, Pool), out, nbytes)

    @entry("pzpp")
    def hipMallocFromPoolAsync(self, out: int, nbytes: int, pool: int, stream: int) -> None:
        self._take(self.held(pool, Pool), out, nbytes)

    @entry("p", "hipFree", "hipHostFree", "hipFreeHost")
    def hipFree(self, address: int) -> None:
        super().hipFree(address)
        pool, nbytes = self._sizes.pop(address, (None, 0))
        if pool is not None:
            pool.used -= nbytes

    @entry("pp")
    def hipMemPoolCreate(self, out: int, properties: int) -> None:
        pointer(out).value = self.handle(Pool())

    @entry("p")
    def hipMemPoolDestroy(self, pool: int) -> None:
        if pool == self._default:
            raise HipError(INVALID_VALUE, "the default pool stays")
        self.drop(pool, Pool)
        if pool == self._current:
            self._current = self._default

    @entry("pi")
    def hipDeviceGetDefaultMemPool(self, out: int, device: int) -> None:
        pointer(out).value = self._default

    @entry("pi")
    def hipDeviceGetMemPool(self, out: int, device: int) -> None:
        pointer(out).value = self._current

    @entry("ip")
    def hipDeviceSetMemPool(self, device: int, pool: int) -> None:
        self.held(pool, Pool)
        self._current = pool

    @entry("pz")
    def hipMemPoolTrimTo(self, pool: int, nbytes: int) -> None:
        self.held(pool, Pool)  # nothing is kept that could be given back

    @entry("pip")
    def hipMemPoolSetAttribute(self, pool: int, which: int, value: int) -> None:
        p = self.held(pool, Pool)
        if which in _SWITCHES:
            p.attributes[which] = ctypes.c_int.from_address(need(value, "the value")).value
        elif which == _THRESHOLD:
            p.attributes[which] = ctypes.c_uint64.from_address(need(value, "the value")).value
        elif which == _USED_HIGH:
            p.high = p.used
        elif which != _RESERVED_HIGH:
            raise HipError(INVALID_VALUE, f"attribute {which} of a pool cannot be set")

    @entry("pip")
    def hipMemPoolGetAttribute(self, pool: int, which: int, out: int) -> None:
        p = self.held(pool, Pool)
        if which in _SWITCHES:
            put_int(out, p.attributes[which])
            return
        known = {
            _THRESHOLD: p.attributes.get(_THRESHOLD, 0),
            _RESERVED: p.used,
            _RESERVED_HIGH: p.high,
            _USED: p.used,
            _USED_HIGH: p.high,
        }
        if which not in known:
            raise HipError(INVALID_VALUE, f"no attribute {which} of a pool")
        ctypes.c_uint64.from_address(need(out)).value = known[which]

    @entry("ppz")
    def hipMemPoolSetAccess(self, pool: int, descriptors: int, count: int) -> None:
        self.held(pool, Pool)  # there is one device, which has it

    @entry("ppp")
    def hipMemPoolGetAccess(self, flags: int, pool: int, location: int) -> None:
        self.held(pool, Pool)
        put_int(flags, 3)  # read and write
