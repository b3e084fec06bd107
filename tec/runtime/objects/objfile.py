"""Loads compiled CPU code without LLVM: maps an ELF relocatable object, links it, makes its text executable.

In: the object's bytes and the addresses of helper symbols. Out: a `LoadedObject` that gives the address of each function it
defines. Outside names come from the given addresses, then from libc, libm and the compiler's support library. One path
serves code compiled in this process, the disk cache and saved packages. Memory is never writable and executable at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import platform
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from ...errors import DeviceError, PackageError
from .elfobject import MACHINES, PAGE, link_object, parse_object

HOST = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())


class LoadedObject:
    """Code in memory. It stays mapped while this object lives; keep it as long as a function of it may run."""

    def __init__(self, mapping: Any, base: int, size: int, exports: dict[str, int]):
        self._mapping = mapping
        self.base = base
        self.size = size
        self.exports = exports

    def address(self, name: str) -> int:
        """The address of a function or variable; KeyError for a name that the object does not define."""
        return self.exports[name]

    def function(self, name: str, restype: Any = ctypes.c_int32, *argtypes: Any) -> Any:
        """The function as a ctypes callable; by default `int32 f(void**, int64*)` with both as plain addresses."""
        made: Any = ctypes.CFUNCTYPE(restype, *(argtypes or (ctypes.c_void_p, ctypes.c_void_p)))(self.address(name))
        made.owner = self
        return made


def load_object(
    image: bytes, symbols: Mapping[str, int] | None = None, resolve: Callable[[str], int | None] | None = None
) -> LoadedObject:
    """Map and link an object for this machine.

    Parameters: `image`, the ELF object; `symbols`, addresses of outside names (they come before libc's); `resolve`, asked for names not among them.
    Raises PackageError for a damaged or foreign object, or a name that nobody defines.
    """
    obj = parse_object(bytes(image))
    if MACHINES[obj.machine] != HOST:
        raise PackageError(
            f"this code is for {MACHINES[obj.machine]}, this machine is {HOST}",
            hint="build it with the matching -mtriple, or without",
            locate=False,
        )
    given = symbols or {}
    size = len(link_object(obj, 0, lambda name: 0).data)  # a dry run: the layout does not depend on addresses
    try:
        # Private: by default a forked child would share the writable data, the pool's lists of free blocks among it.
        mapping = mmap.mmap(-1, size + PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, ValueError) as e:
        raise DeviceError(
            f"no memory for {size} bytes of code: {e}",
            hint="free memory, or raise the limit of the process (ulimit -v)",
            locate=False,
        ) from None
    start = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
    base = (start + PAGE - 1) & -PAGE

    def address(name: str) -> int | None:
        found = given.get(name)
        if found is None and resolve is not None:
            found = resolve(name)
        return outside_symbol(name) if found is None else found

    linked = link_object(obj, base, address)
    at = base - start
    mapping[at : at + size] = bytes(linked.data)
    _protect(base, linked.text_end, mmap.PROT_READ | mmap.PROT_EXEC)
    _protect(base + linked.text_end, linked.rodata_end - linked.text_end, mmap.PROT_READ)
    _flush_instructions(base, linked.text_end)
    return LoadedObject(mapping, base, size, linked.exports)


def _protect(address: int, size: int, prot: int) -> None:
    if not size:
        return
    if sys.platform == "win32":
        raise DeviceError("compiled CPU code is not loaded on Windows yet", hint="run under WSL or Linux", locate=False)
    libc = _libraries()[0]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    if libc.mprotect(address, size, prot) != 0:
        raise DeviceError(
            "the system does not let memory be made executable",
            hint="a security policy (SELinux execmem, a hardened kernel) forbids run-time code",
            locate=False,
        )


def _flush_instructions(address: int, size: int) -> None:
    """AArch64 keeps instruction and data caches apart. Linux cleans pages that turn executable; others have a call for it."""
    if HOST == "aarch64" and size:
        for name in ("__clear_cache", "sys_icache_invalidate"):
            flush = outside_symbol(name)
            if flush:
                second = address + size if name == "__clear_cache" else size
                ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t)(flush)(address, second)
                return


@lru_cache(maxsize=1)
def _libraries() -> list[Any]:
    out = [ctypes.CDLL(None)]
    for name in ("libm.so.6", "libgcc_s.so.1", "libm.dylib", "libSystem.dylib"):
        with contextlib.suppress(OSError):
            out.append(ctypes.CDLL(name))
    return out


@lru_cache(maxsize=1024)
def outside_symbol(name: str) -> int | None:
    """The address of a C function of libc, libm or the compiler's support library; None where there is none."""
    for library in _libraries():
        with contextlib.suppress(AttributeError, ValueError):
            return ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    return None
