"""Memory: allocations of the device and the host, copies, fills, symbols of modules are in `modules`.

An address of the software GPU is an address of the process, so that memory of the host which is allocated here serves both, and copies are the
driver's, which checks that ranges lie within live allocations.
"""

from __future__ import annotations

import ctypes
from typing import Any

from ...errors import DeviceError
from ..device_memory import Allocation
from .base import Base, need, pointer, put_int, put_size
from .entry import INVALID_DEVICE, INVALID_DIRECTION, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY, HipError, entry

_HOST_TO_HOST, _TO_DEVICE, _TO_HOST, _ON_DEVICE, _DEFAULT = range(5)
_HOST_LABEL = "host memory"

# hipPointer_attribute -> what it is written as: kind of memory, device and host address, order of copies, number of the buffer, managed, device,
# first address and bytes of the allocation, mapped.
_POINTER_ATTRIBUTES: dict[int, Any] = {
    2: ctypes.c_uint32, 3: ctypes.c_uint64, 4: ctypes.c_uint64, 6: ctypes.c_bool, 7: ctypes.c_uint64, 8: ctypes.c_bool, 9: ctypes.c_int,
    11: ctypes.c_uint64, 12: ctypes.c_uint64, 13: ctypes.c_bool,
}  # fmt: skip


class Memories(Base):
    """hipMalloc and its kin, hipMemcpy and its kin."""

    def _alloc(self, out: int, nbytes: int, label: str = "") -> None:
        need(out)
        if nbytes == 0:
            pointer(out).value = None
            return
        try:
            address = self.driver.memory.alloc(nbytes, label)
        except DeviceError as e:
            raise HipError(OUT_OF_MEMORY, str(e)) from None
        pointer(out).value = address

    def _alloc_host(self, out: int, nbytes: int) -> None:
        self._alloc(out, nbytes, f"{_HOST_LABEL} of {nbytes} bytes")
        if nbytes:  # the host writes it without a call
            self.driver.memory.mark_written(pointer(out).value or 0, nbytes)

    @entry("pz")
    def hipMalloc(self, out: int, nbytes: int) -> None:
        self._alloc(out, nbytes)

    @entry("pzu")
    def hipExtMallocWithFlags(self, out: int, nbytes: int, flags: int) -> None:
        self._alloc(out, nbytes)

    @entry("pzu", "hipHostMalloc", "hipHostAlloc", "hipExtHostAlloc", "hipMallocManaged")
    def hipHostMalloc(self, out: int, nbytes: int, flags: int) -> None:
        self._alloc_host(out, nbytes)

    @entry("pz", "hipMallocHost", "hipMemAllocHost")
    def hipMallocHost(self, out: int, nbytes: int) -> None:
        self._alloc_host(out, nbytes)

    @entry("ppzz")
    def hipMallocPitch(self, out: int, pitch: int, width: int, height: int) -> None:
        row = (width + 255) // 256 * 256
        put_size(pitch, row)
        self._alloc(out, row * height)

    @entry("p", "hipFree", "hipHostFree", "hipFreeHost")
    def hipFree(self, address: int) -> None:
        if address:
            self.driver.memory.free(address)

    @entry("pp")
    def hipFreeAsync(self, address: int, stream: int) -> None:
        self.hipFree(address)

    @entry("ppu")
    def hipHostGetDevicePointer(self, out: int, address: int, flags: int) -> None:
        pointer(out).value = address

    @entry("pp")
    def hipHostGetFlags(self, out: int, address: int) -> None:
        put_int(out, 0)

    @entry("pzu")
    def hipHostRegister(self, address: int, nbytes: int, flags: int) -> None:
        self.driver.memory.adopt(address, nbytes, f"registered host memory of {nbytes} bytes")

    @entry("p")
    def hipHostUnregister(self, address: int) -> None:
        self.driver.memory.disown(address)

    @entry("pp")
    def hipMemGetInfo(self, free: int, total: int) -> None:
        available, all_ = self.driver.memory_info(0)
        put_size(free, available)
        put_size(total, all_)

    @entry("ppp")
    def hipMemGetAddressRange(self, base: int, size: int, address: int) -> None:
        found = self.driver.memory.find(address)
        if found is None:
            raise HipError(INVALID_VALUE, self.driver.memory.describe(address))
        if base:
            pointer(base).value = found.base
        if size:
            put_size(size, found.size)

    @entry("pp")
    def hipPointerGetAttributes(self, out: int, address: int) -> None:
        """struct { int type, device; void *on_device, *on_host; int managed; unsigned flags; }: 0 unregistered, 1 host, 2 device."""
        found = self.driver.memory.find(address)
        host = found is not None and _HOST_LABEL in found.label
        ctypes.memset(need(out), 0, 32)
        put_int(out, 0 if found is None else 1 if host else 2)
        if found is not None:
            pointer(out + 8).value = address
            pointer(out + 16).value = address if host else None

    @entry("pip")
    def hipPointerGetAttribute(self, out: int, which: int, address: int) -> None:
        found = self.driver.memory.find(address)
        if found is None:
            raise HipError(INVALID_VALUE)  # asked of host memory by those who want to know just that
        value = self._attribute_of(which, address, found)
        if value is None:
            raise HipError(NOT_SUPPORTED, f"attribute {which} of a pointer is not part of the stand-in for libamdhip64")
        kind = _POINTER_ATTRIBUTES[which]
        kind.from_address(need(out)).value = value

    @entry("uppp")
    def hipDrvPointerGetAttributes(self, count: int, which: int, out: int, address: int) -> None:
        """Of an address that is not the device's, zeros."""
        found = self.driver.memory.find(address)
        for k in range(count):
            n, at = ctypes.c_int.from_address(which + 4 * k).value, pointer(out + 8 * k).value
            value = None if found is None else self._attribute_of(n, address, found)
            if at and n in _POINTER_ATTRIBUTES:
                _POINTER_ATTRIBUTES[n].from_address(at).value = value or 0

    def _attribute_of(self, which: int, address: int, found: Allocation) -> int | None:
        host = _HOST_LABEL in found.label
        values = {
            2: 1 if host else 2, 3: address, 4: address if host else 0, 6: 1, 7: found.base, 8: 0, 9: 0, 11: found.base,
            12: found.size, 13: 1,
        }  # fmt: skip
        return values.get(which)

    # ---- copies

    def _copy(self, dst: int, src: int, nbytes: int, kind: int) -> None:
        if nbytes == 0:
            return
        memory, driver = self.driver.memory, self.driver
        if kind == _DEFAULT:
            there, here = memory.find(dst) is not None, memory.find(src) is not None
            kind = (_ON_DEVICE if here else _TO_DEVICE) if there else _TO_HOST if here else _HOST_TO_HOST
        if kind == _TO_DEVICE:
            driver.copy_to_device(0, dst, need(src, "the source"), nbytes)
        elif kind == _TO_HOST:
            driver.copy_from_device(0, need(dst, "the destination"), src, nbytes)
        elif kind == _ON_DEVICE:
            driver.copy_on_device(0, dst, src, nbytes)
            self.clock_us += 2 * nbytes / (driver.chip.machine.memory_gbps * 1e3)
        elif kind == _HOST_TO_HOST:
            ctypes.memmove(need(dst, "the destination"), need(src, "the source"), nbytes)
        else:
            raise HipError(INVALID_DIRECTION, f"copy kind {kind}")

    @entry("ppzi")
    def hipMemcpy(self, dst: int, src: int, nbytes: int, kind: int) -> int:
        self._copy(dst, src, nbytes, kind)
        return self.wait()

    @entry("ppzip", "hipMemcpyAsync", "hipMemcpyWithStream")
    def hipMemcpyAsync(self, dst: int, src: int, nbytes: int, kind: int, stream: int) -> None:
        self.submit(stream, lambda: self._copy(dst, src, nbytes, kind))

    @entry("ppz")
    def hipMemcpyHtoD(self, dst: int, src: int, nbytes: int) -> int:
        return self.hipMemcpy(dst, src, nbytes, _TO_DEVICE)

    @entry("ppz")
    def hipMemcpyDtoH(self, dst: int, src: int, nbytes: int) -> int:
        return self.hipMemcpy(dst, src, nbytes, _TO_HOST)

    @entry("ppz")
    def hipMemcpyDtoD(self, dst: int, src: int, nbytes: int) -> int:
        return self.hipMemcpy(dst, src, nbytes, _ON_DEVICE)

    @entry("ppzp")
    def hipMemcpyHtoDAsync(self, dst: int, src: int, nbytes: int, stream: int) -> None:
        self.hipMemcpyAsync(dst, src, nbytes, _TO_DEVICE, stream)

    @entry("ppzp")
    def hipMemcpyDtoHAsync(self, dst: int, src: int, nbytes: int, stream: int) -> None:
        self.hipMemcpyAsync(dst, src, nbytes, _TO_HOST, stream)

    @entry("ppzp")
    def hipMemcpyDtoDAsync(self, dst: int, src: int, nbytes: int, stream: int) -> None:
        self.hipMemcpyAsync(dst, src, nbytes, _ON_DEVICE, stream)

    def _copy_rows(self, dst: int, dpitch: int, src: int, spitch: int, width: int, height: int, kind: int) -> None:
        if width > min(dpitch, spitch):
            raise HipError(INVALID_VALUE, f"rows of {width} bytes, pitches of {dpitch} and {spitch}")
        for row in range(height):
            self._copy(dst + row * dpitch, src + row * spitch, width, kind)

    @entry("pzpzzzi")
    def hipMemcpy2D(self, dst: int, dpitch: int, src: int, spitch: int, width: int, height: int, kind: int) -> int:
        self._copy_rows(dst, dpitch, src, spitch, width, height, kind)
        return self.wait()

    @entry("pzpzzzip")
    def hipMemcpy2DAsync(
        self, dst: int, dpitch: int, src: int, spitch: int, width: int, height: int, kind: int, stream: int
    ) -> None:
        self.submit(stream, lambda: self._copy_rows(dst, dpitch, src, spitch, width, height, kind))

    @entry("pipiz")
    def hipMemcpyPeer(self, dst: int, to: int, src: int, of: int, nbytes: int) -> int:
        if to or of:
            raise HipError(INVALID_DEVICE, f"devices {to} and {of}; there is one, number 0")
        return self.hipMemcpy(dst, src, nbytes, _ON_DEVICE)

    @entry("pipizp")
    def hipMemcpyPeerAsync(self, dst: int, to: int, src: int, of: int, nbytes: int, stream: int) -> None:
        if to or of:
            raise HipError(INVALID_DEVICE, f"devices {to} and {of}; there is one, number 0")
        self.hipMemcpyAsync(dst, src, nbytes, _ON_DEVICE, stream)

    # ---- managed memory lies where it lies

    @entry("pzip")
    def hipMemPrefetchAsync(self, address: int, nbytes: int, device: int, stream: int) -> None:
        self.driver.memory.check_range(address, nbytes, "prefetch")

    @entry("pzii")
    def hipMemAdvise(self, address: int, nbytes: int, advice: int, device: int) -> None:
        self.driver.memory.check_range(address, nbytes, "advice")

    # ---- fills

    def _fill(self, dst: int, value: int, size: int, count: int) -> None:
        if size == 1:
            self.driver.memset(0, dst, value, count)
            return
        self.driver.memory.check_range(dst, size * count, "memset")
        data = (value & (1 << 8 * size) - 1).to_bytes(size, "little") * count
        ctypes.memmove(dst, data, len(data))
        self.driver.memory.mark_written(dst, len(data))

    @entry("piz", "hipMemset", "hipMemsetD8")
    def hipMemset(self, dst: int, value: int, count: int) -> None:
        self._fill(dst, value, 1, count)

    @entry("pizp", "hipMemsetAsync", "hipMemsetD8Async")
    def hipMemsetAsync(self, dst: int, value: int, count: int, stream: int) -> None:
        self.submit(stream, lambda: self._fill(dst, value, 1, count))

    @entry("piz")
    def hipMemsetD16(self, dst: int, value: int, count: int) -> None:
        self._fill(dst, value, 2, count)

    @entry("pizp")
    def hipMemsetD16Async(self, dst: int, value: int, count: int, stream: int) -> None:
        self.submit(stream, lambda: self._fill(dst, value, 2, count))

    @entry("piz")
    def hipMemsetD32(self, dst: int, value: int, count: int) -> None:
        self._fill(dst, value, 4, count)

    @entry("pizp")
    def hipMemsetD32Async(self, dst: int, value: int, count: int, stream: int) -> None:
        self.submit(stream, lambda: self._fill(dst, value, 4, count))

    def _fill_rows(self, dst: int, pitch: int, value: int, size: int, width: int, height: int) -> None:
        if width * size > pitch:
            raise HipError(INVALID_VALUE, f"rows of {width * size} bytes, a pitch of {pitch}")
        for row in range(height):
            self._fill(dst + row * pitch, value, size, width)

    @entry("pzizz")
    def hipMemset2D(self, dst: int, pitch: int, value: int, width: int, height: int) -> None:
        self._fill_rows(dst, pitch, value, 1, width, height)

    @entry("pzizzp")
    def hipMemset2DAsync(self, dst: int, pitch: int, value: int, width: int, height: int, stream: int) -> None:
        self.submit(stream, lambda: self._fill_rows(dst, pitch, value, 1, width, height))

    @entry("pzuzz")
    def hipMemsetD2D32(self, dst: int, pitch: int, value: int, width: int, height: int) -> None:
        self._fill_rows(dst, pitch, value, 4, width, height)
