"""Loads CPU code: an ELF object becomes callable functions `int32 f(void** buffers, int64_t* scalars)`.

`objfile` maps and relocates the object. The helpers that compiled code calls (`tec_parallel_for`, `tec_alloc`,
`tec_free`) come from support objects that travel with the module, loaded once a process by content, else from
`hostpool`; on a machine without a pool plain stand-ins on libc are used (a serial loop, aligned allocation).
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import DeviceError
from . import hostpool

HELPERS = ("tec_parallel_for", "tec_alloc", "tec_free")
_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p, ctypes.c_char_p)
_BODY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_LOCK = threading.Lock()
_SUPPORT: dict[bytes, tuple[Any, dict[str, int]]] = {}
_STAND_INS: dict[str, Any] = {}


class CpuCode:
    """One loaded object. `function(name)` gives a ctypes callable that takes the two argument blocks as bytes."""

    def __init__(self, image: bytes, support: Sequence[bytes] = ()):
        from .objfile import load_object

        symbols: dict[str, int] = {}
        for obj in support:
            symbols.update(_support(obj))
        for name, address in (hostpool.symbols() or stand_ins()).items():
            symbols.setdefault(name, address)
        self._object = load_object(image, symbols)

    def function(self, name: str) -> Callable[[bytes, bytes], int]:
        address = self._object.address(name)
        function: Any = _ENTRY(address)
        function.keep = self._object  # the code stays mapped as long as the function is there
        return function  # type: ignore[no-any-return]


def _support(obj: bytes) -> dict[str, int]:
    """The helpers in a support object, loaded once: the thread pool is one a process."""
    from .objfile import load_object

    key = hashlib.sha256(obj).digest()
    with _LOCK:
        if key not in _SUPPORT:
            loaded = load_object(obj, {})
            found = {}
            for name in HELPERS:
                try:
                    found[name] = int(loaded.address(name))
                except (KeyError, LookupError, DeviceError):
                    continue
            _SUPPORT[key] = (loaded, found)
        return _SUPPORT[key][1]


def stand_ins() -> dict[str, int]:
    """Addresses of the plain helpers."""
    if not _STAND_INS:

        @ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
        def parallel_for(body: int, closure: int, n: int) -> int:
            return int(_BODY(body)(closure, 0, n))

        libc = ctypes.CDLL(None)
        libc.posix_memalign.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
        posix_memalign = libc.posix_memalign

        @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)
        def alloc(nbytes: int) -> int | None:
            out = ctypes.c_void_p()
            return out.value if posix_memalign(ctypes.byref(out), 64, max(nbytes, 1)) == 0 else None

        _STAND_INS.update(tec_parallel_for=parallel_for, tec_alloc=alloc, tec_free=libc.free)
    return {name: ctypes.cast(f, ctypes.c_void_p).value or 0 for name, f in _STAND_INS.items()}
