"""All parts of the HIP API as one object, and the C functions that call it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .devices import Devices
from .entry import ENTRIES, NOT_SUPPORTED, TYPES, Entry, HipError, refused_names
from .programs import Programs
from .rtc import Rtc
from .streams import Streams
from .textures import Textures

# What clang calls with -fgpu-default-stream=per-thread: the default stream is one stream here.
for _name in (
    "hipMemcpy", "hipMemcpyAsync", "hipMemcpy2D", "hipMemcpy2DAsync", "hipMemcpyToSymbol", "hipMemcpyFromSymbol", "hipMemcpyToSymbolAsync",
    "hipMemcpyFromSymbolAsync", "hipMemset", "hipMemsetAsync", "hipStreamSynchronize", "hipStreamQuery", "hipStreamWaitEvent", "hipStreamGetFlags",
    "hipStreamGetPriority", "hipStreamAddCallback", "hipEventRecord", "hipLaunchKernel", "hipLaunchHostFunc", "hipGraphLaunch", "hipStreamBeginCapture",
    "hipStreamEndCapture", "hipStreamIsCapturing", "hipMemset2D", "hipMemset2DAsync", "hipMemset3D", "hipMemset3DAsync", "hipMemcpy2DToArray",
    "hipMemcpy2DToArrayAsync", "hipMemcpy2DFromArray", "hipMemcpy2DFromArrayAsync", "hipMemcpyFromArray", "hipMemcpy3D", "hipMemcpy3DAsync", "hipLaunchCooperativeKernel",
):  # fmt: skip
    ENTRIES[_name + "_spt"] = replace(ENTRIES[_name], name=_name + "_spt")


def entry_names() -> list[str]:
    """All functions, in the order of the library's table: those that the parts declare, and those that are refused."""
    return [*ENTRIES, *(n for n in refused_names() if n not in ENTRIES)]


class Runtime(Devices, Streams, Programs, Textures, Rtc):
    """The HIP API over one software GPU. `table` fills an array of function pointers in the order of `entry_names`."""

    def __init__(self, chip: str = "gfx942", check: str = "bounds"):
        super().__init__(chip, check)
        self._keep = [self._function_of(name) for name in entry_names()]
        self.functions = {n: ctypes.cast(f, ctypes.c_void_p).value or 0 for n, f in zip(entry_names(), self._keep)}

    def fill(self, table: int) -> None:
        """Write the addresses of all functions at `table`."""
        addresses = list(self.functions.values())
        ctypes.memmove(table, (ctypes.c_uint64 * len(addresses))(*addresses), 8 * len(addresses))

    def _function_of(self, name: str) -> Any:
        e = ENTRIES.get(name)
        if e is None:
            return ctypes.CFUNCTYPE(ctypes.c_int)(lambda: self._locked(name, lambda: _refuse(name)))
        types = [TYPES[t] for t in e.types]
        if e.value:
            return ctypes.CFUNCTYPE(ctypes.c_void_p, *types)(self._giving(e))
        return ctypes.CFUNCTYPE(ctypes.c_int, *types)(self._answering(e))

    def _locked(self, name: str, call: Callable[[], Any]) -> int:
        with self.lock:
            return self.answer(name, call)

    def _answering(self, e: Entry) -> Callable[..., int]:
        method, name = getattr(self, e.method), e.name
        # ctypes gives None for null pointers
        return lambda *args: self._locked(name, lambda: method(*[0 if a is None else a for a in args]))

    def _giving(self, e: Entry) -> Callable[..., int]:
        method, name = getattr(self, e.method), e.name

        def call(*args: Any) -> int:
            given: list[int] = []
            self._locked(name, lambda: given.append(method(*[0 if a is None else a for a in args])))
            return given[0] if given else 0

        return call


def _refuse(name: str) -> None:
    raise HipError(NOT_SUPPORTED, f"{name} is not part of the stand-in for libamdhip64")
