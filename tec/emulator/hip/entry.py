"""How a function of the HIP API is declared: `@entry` gives a method its C types, `Status` what it answers.

A letter is one argument: p a pointer (0 for NULL), s a string, i and u 32 bits, z 64 bits; D a dim3, E a hipExtent, Q a hipPitchedPtr by value.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar


class Dim3(ctypes.Structure):
    """HIP's dim3."""

    _fields_ = [("x", ctypes.c_uint32), ("y", ctypes.c_uint32), ("z", ctypes.c_uint32)]

    def dims(self) -> tuple[int, int, int]:
        return self.x, self.y, self.z


class Extent(ctypes.Structure):
    """hipExtent; hipPos is like it."""

    _fields_ = [(n, ctypes.c_size_t) for n in ("width", "height", "depth")]


class PitchedPointer(ctypes.Structure):
    """hipPitchedPtr."""

    _fields_ = [(n, ctypes.c_size_t) for n in ("ptr", "pitch", "xsize", "ysize")]


TYPES: dict[str, Any] = {
    "p": ctypes.c_void_p, "s": ctypes.c_char_p, "i": ctypes.c_int, "u": ctypes.c_uint32, "z": ctypes.c_uint64, "D": Dim3, "E": Extent, "Q": PitchedPointer,
}  # fmt: skip

# hipError_t: number -> (name, what hipGetErrorString says). Source: HIP's runtime API reference.
ERRORS = {
    0: ("hipSuccess", "no error"), 1: ("hipErrorInvalidValue", "invalid argument"), 2: ("hipErrorOutOfMemory", "out of memory"),
    3: ("hipErrorNotInitialized", "initialization error"), 4: ("hipErrorDeinitialized", "driver shutting down"),
    9: ("hipErrorInvalidConfiguration", "invalid configuration argument"), 13: ("hipErrorInvalidSymbol", "invalid device symbol"),
    17: ("hipErrorInvalidDevicePointer", "invalid device pointer"), 21: ("hipErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"),
    98: ("hipErrorInvalidDeviceFunction", "invalid device function"), 100: ("hipErrorNoDevice", "no ROCm-capable device is detected"),
    101: ("hipErrorInvalidDevice", "invalid device ordinal"), 200: ("hipErrorInvalidImage", "device kernel image is invalid"),
    201: ("hipErrorInvalidContext", "invalid device context"), 209: ("hipErrorNoBinaryForGpu", "no kernel image is available for execution on the device"),
    215: ("hipErrorUnsupportedLimit", "limit is not supported on this architecture"),
    301: ("hipErrorFileNotFound", "file not found"), 400: ("hipErrorInvalidHandle", "invalid resource handle"), 401: ("hipErrorIllegalState", "the operation cannot be performed in the present state"),
    500: ("hipErrorNotFound", "named symbol not found"), 600: ("hipErrorNotReady", "device not ready"), 700: ("hipErrorIllegalAddress", "an illegal memory access was encountered"),
    701: ("hipErrorLaunchOutOfResources", "out of resources"), 704: ("hipErrorPeerAccessAlreadyEnabled", "peer access is already enabled"),
    719: ("hipErrorLaunchFailure", "unspecified launch failure"),
    720: ("hipErrorCooperativeLaunchTooLarge", "too many blocks in cooperative launch"), 801: ("hipErrorNotSupported", "operation not supported"),
    900: ("hipErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"), 999: ("hipErrorUnknown", "unknown error"),
}  # fmt: skip
SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED, DEINITIALIZED = 0, 1, 2, 3, 4
INVALID_CONFIGURATION, INVALID_SYMBOL, INVALID_DIRECTION, INVALID_FUNCTION, INVALID_DEVICE = 9, 13, 21, 98, 101
INVALID_IMAGE, NO_BINARY, UNSUPPORTED_LIMIT, FILE_NOT_FOUND, INVALID_HANDLE, ILLEGAL_STATE, NOT_FOUND = (
    200,
    209,
    215,
    301,
    400,
    401,
    500,
)
ILLEGAL_ADDRESS, LAUNCH_FAILURE, TOO_LARGE, NOT_SUPPORTED, CAPTURE_UNSUPPORTED, UNKNOWN = 700, 719, 720, 801, 900, 999


class HipError(Exception):
    """What a function answers instead of success; `message` is told to the user, where there is one."""

    def __init__(self, status: int, message: str = ""):
        self.status, self.message = status, message
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Entry:
    """One function of the API: the method that answers it, and its C types."""

    name: str
    method: str
    types: str
    value: bool = False  # what it returns is not its status: an address, an earlier status


ENTRIES: dict[str, Entry] = {}
F = TypeVar("F", bound=Callable[..., Any])


def entry(types: str, *names: str, value: bool = False) -> Callable[[F], F]:
    """Declares a method as a function of the HIP API; `names` where it is not the method's own, or stands under several."""

    def declare(function: F) -> F:
        for name in names or (function.__name__,):
            ENTRIES[name] = Entry(name, function.__name__, types, value)
        return function

    return declare


@cache
def refused_names() -> tuple[str, ...]:
    """Functions of the API that answer "not supported"."""
    text = files("tec.emulator.hip").joinpath("refused.txt").read_text()
    return tuple(w for line in text.splitlines() for w in line.partition("#")[0].split())
