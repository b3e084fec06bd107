"""Devices, versions, contexts, errors: the part of the HIP API that says what there is."""

from __future__ import annotations

import ctypes

from .base import Base, need, pointer, put_int, put_size
from .entry import ERRORS, INVALID_DEVICE, INVALID_VALUE, NOT_FOUND, SUCCESS, UNSUPPORTED_LIMIT, HipError, entry
from .properties import DevicePropR0000, DevicePropR0600, attribute, fill

_VERSION = 60443483  # of ROCm 6.4: its layouts and constants are the ones here


_NEWER = ("hipGetDeviceProperties", "hipChooseDevice")


# hipLimit_t by number, and the most bytes that each may be: a lane's scratch on gfx9, and a heap of the size of memory's addresses. Source: ROCm's CLR.
_LIMITS = ("stack size", "printf FIFO size", "malloc heap size")
_MOST = {"stack size": 131_056, "malloc heap size": 1 << 48}
_FIRST = {"stack size": 1024, "malloc heap size": 8 << 20}


class Devices(Base):
    """One device, number 0."""

    def __init__(self, chip: str, check: str):
        super().__init__(chip, check)
        self._limits = dict(_FIRST)
        self._flags = 0

    def _device(self, number: int) -> None:
        if number != 0:
            raise HipError(INVALID_DEVICE, f"device {number}; there is one, number 0")

    @entry("u")
    def hipInit(self, flags: int) -> None: ...

    @entry("p")
    def hipGetDeviceCount(self, count: int) -> None:
        put_int(count, 1)

    @entry("p", "hipGetDevice", "hipCtxGetDevice")
    def hipGetDevice(self, device: int) -> None:
        put_int(device, 0)

    @entry("i")
    def hipSetDevice(self, device: int) -> None:
        self._device(device)

    @entry("pi")
    def hipDeviceGet(self, device: int, ordinal: int) -> None:
        self._device(ordinal)
        put_int(device, 0)

    @entry("pi")
    def hipGetDevicePropertiesR0600(self, out: int, device: int) -> None:
        self._device(device)
        fill(need(out), DevicePropR0600, self.properties)

    @entry("pi", "hipGetDeviceProperties", "hipGetDevicePropertiesR0000")
    def hipGetDeviceProperties(self, out: int, device: int) -> None:
        self._device(device)
        fill(need(out), DevicePropR0000, self.properties)

    @entry("pii")
    def hipDeviceGetAttribute(self, out: int, number: int, device: int) -> None:
        self._device(device)
        put_int(out, attribute(number, self.properties))

    @entry("pii")
    def hipDeviceGetName(self, out: int, size: int, device: int) -> None:
        self._device(device)
        if size > 0:
            ctypes.memmove(need(out), self.properties["name"].ljust(size, b"\0"), size - 1)
            ctypes.c_char.from_address(out + size - 1).value = b"\0"

    @entry("pi")
    def hipDeviceTotalMem(self, out: int, device: int) -> None:
        self._device(device)
        put_size(out, self.driver.memory.total_bytes)

    @entry("ppi")
    def hipDeviceComputeCapability(self, major: int, minor: int, device: int) -> None:
        self._device(device)
        put_int(major, self.properties["major"])
        put_int(minor, self.properties["minor"])

    @entry("pi")
    def hipDeviceGetUuid(self, out: int, device: int) -> None:
        self._device(device)
        ctypes.memmove(need(out), self.properties["uuid"].ljust(16, b"\0"), 16)

    @entry("pii")
    def hipDeviceGetPCIBusId(self, out: int, size: int, device: int) -> None:
        self._device(device)
        ctypes.memmove(need(out), b"0000:00:00.0\0".ljust(max(size, 13), b"\0"), min(size, 13))

    @entry("p", "hipRuntimeGetVersion", "hipDriverGetVersion")
    def hipRuntimeGetVersion(self, out: int) -> None:
        put_int(out, _VERSION)

    @entry("pii")
    def hipDeviceCanAccessPeer(self, out: int, device: int, peer: int) -> None:
        put_int(out, 0)

    @entry("pi", "hipDeviceGetLimit")
    def hipDeviceGetLimit(self, out: int, which: int) -> None:
        put_size(out, self._limits[self._limit(which)])

    @entry("iz")
    def hipDeviceSetLimit(self, which: int, value: int) -> None:
        """Kept, and told by hipDeviceGetLimit. A kernel has the stack that its code object says, and no kernel here allocates from a heap."""
        limit = self._limit(which)
        if not 0 < value <= _MOST[limit]:
            raise HipError(INVALID_VALUE, f"the limit {limit} cannot be {value:,} bytes; {_MOST[limit]:,} is the most")
        self._limits[limit] = value

    def _limit(self, which: int) -> str:
        """What a hipLimit_t means."""
        if not 0 <= which < len(_LIMITS):
            raise HipError(INVALID_VALUE, f"{which} is no hipLimit_t")
        if _LIMITS[which] not in _MOST:
            raise HipError(
                UNSUPPORTED_LIMIT, f"the limit {_LIMITS[which]}, which the library for AMD GPUs does not have"
            )
        return _LIMITS[which]

    @entry("u", "hipSetDeviceFlags")
    def hipSetDeviceFlags(self, flags: int) -> None:
        self._flags = flags

    @entry("p", "hipGetDeviceFlags")
    def hipGetDeviceFlags(self, out: int) -> None:
        put_int(out, self._flags)

    @entry(
        "i",
        "hipDeviceSetCacheConfig",
        "hipDeviceSetSharedMemConfig",
        "hipCtxSetCacheConfig",
        "hipDevicePrimaryCtxRelease",
        "hipDevicePrimaryCtxReset",
    )
    def ignored_setting(self, value: int) -> None:
        """Hints that AMD GPUs take no notice of, as HIP's documentation says."""

    @entry("p", "hipDeviceGetCacheConfig", "hipDeviceGetSharedMemConfig")
    def zero_setting(self, out: int) -> None:
        put_int(out, 0)

    @entry("", "hipDeviceSynchronize", "hipCtxSynchronize")
    def hipDeviceSynchronize(self) -> int:
        return self.wait()

    @entry("", "hipDeviceReset")
    def hipDeviceReset(self) -> int:
        self._limits, self._flags = dict(_FIRST), 0
        return self.wait()

    @entry("", "hipProfilerStart", "hipProfilerStop")
    def hipProfilerStart(self) -> None: ...

    # Contexts: there is one.

    @entry("pui", "hipCtxCreate")
    def hipCtxCreate(self, out: int, flags: int, device: int) -> None:
        self._device(device)
        pointer(out).value = 1

    @entry("pi")
    def hipDevicePrimaryCtxRetain(self, out: int, device: int) -> None:
        self._device(device)
        pointer(out).value = 1

    @entry("p", "hipCtxGetCurrent", "hipCtxPopCurrent")
    def hipCtxGetCurrent(self, out: int) -> None:
        pointer(out).value = 1

    @entry("p", "hipCtxSetCurrent", "hipCtxPushCurrent", "hipCtxDestroy")
    def hipCtxSetCurrent(self, context: int) -> None: ...

    # Errors.

    # Their answer is no status of their own call: values.
    @entry("", "hipGetLastError", "hipExtGetLastError", value=True)
    def hipGetLastError(self) -> int:
        status, self.last_error = self.last_error, SUCCESS
        return status

    @entry("", value=True)
    def hipPeekAtLastError(self) -> int:
        return self.last_error

    @entry("i", value=True)
    def hipGetErrorName(self, status: int) -> int:
        return self.text(ERRORS.get(status, (f"hipError {status}", ""))[0])

    @entry("i", value=True)
    def hipGetErrorString(self, status: int) -> int:
        words = ERRORS.get(status, ("", f"error {status}"))[1]
        why, of = self.reason
        return self.text(f"{words}: {why}" if why and of == status else words)

    @entry("ip", "hipDrvGetErrorName")
    def hipDrvGetErrorName(self, status: int, out: int) -> None:
        pointer(out).value = self.hipGetErrorName(status)

    @entry("ip", "hipDrvGetErrorString")
    def hipDrvGetErrorString(self, status: int, out: int) -> None:
        pointer(out).value = self.hipGetErrorString(status)

    @entry("spizp")
    def hipGetProcAddress(self, name: bytes, out: int, version: int, flags: int, found: int) -> None:
        wanted = (name or b"").decode(errors="replace")
        # From HIP 6.0 on (versions count 100 a major one; programs give what hipDriverGetVersion said as well) these mean their newer forms.
        if wanted in _NEWER and version >= 600:
            wanted += "R0600"
        address = self.functions.get(wanted)
        if found:
            put_int(found, 0 if address else 1)
        if address is None:
            raise HipError(NOT_FOUND, f"the stand-in has no {name!r}")
        pointer(out).value = address

    @entry("spzp", "hipGetDriverEntryPoint", "hipGetDriverEntryPoint_spt")
    def hipGetDriverEntryPoint(self, name: bytes, out: int, flags: int, found: int) -> None:
        self.hipGetProcAddress(name, out, _VERSION, flags, found)

    @entry("pp", "hipChooseDevice", "hipChooseDeviceR0000", "hipChooseDeviceR0600")
    def hipChooseDevice(self, out: int, wanted: int) -> None:
        put_int(out, 0)

    # ---- what tools ask

    @entry("u", "hipApiName", "hipGetCmdName", value=True)
    def name_of_number(self, number: int) -> int:
        """The real library numbers its functions and commands anew from release to release."""
        return self.text("unknown")

    @entry("p", "hipGetStreamDeviceId", value=True)
    def device_of_stream(self, stream: int) -> int:
        return 0

    @entry("", "amd_dbgapi_get_build_name", "amd_dbgapi_get_git_hash", value=True)
    def build_name(self) -> int:
        return self.text("tec")

    @entry("", "amd_dbgapi_get_build_id", value=True)
    def build_id(self) -> int:
        return 0

    @entry("pp", "__hipGetPCH")
    def no_precompiled_header(self, out: int, size: int) -> None:
        pointer(out).value = None
        put_int(size, 0)
