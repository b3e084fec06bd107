"""What the HIP and CUDA drivers have in common: a shared library behind ctypes, and calls of the same form in both.

`find_library` tries names in order and remembers why each failed. `Library` gives the functions their argument types and
turns a status other than 0 into a DeviceError with the driver's own words. `GpuDriver` is the part of the driver surface
where HIP and CUDA differ by the functions' names alone; `hip_driver.py` and `cuda_driver.py` add the rest.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from ctypes import Structure, byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_void_p
from enum import Enum, auto
from typing import Any

from ...errors import DeviceError
from .surface import DeviceAttributes, Dim3, NativeLaunch


def find_library(names: Iterable[str]) -> tuple[Any, str, list[str]]:
    """(library, its name, why the earlier ones failed); the library is None where none loads."""
    failures: list[str] = []
    for name in names:
        try:
            return ctypes.CDLL(name), name, failures
        except OSError as error:
            text = str(error).removeprefix(f"{name}: ")
            failures.append(f"{name} ({text.replace('cannot open shared object file: ', '')})")
    return None, "", failures


class _LinkMap(Structure):
    """The head of the dynamic linker's `struct link_map`: glibc's <link.h>, and musl's."""

    _fields_ = [("address", c_void_p), ("name", c_char_p)]


def path_of(cdll: Any, name: str) -> str:
    """The file of a library that was loaded by its name; the name where the system does not say."""
    found = ctypes.POINTER(_LinkMap)()
    try:
        if ctypes.CDLL(None).dlinfo(c_void_p(cdll._handle), _LINK_MAP, byref(found)) == 0 and found.contents.name:
            return os.fsdecode(found.contents.name)
    except (AttributeError, OSError, TypeError, ValueError):
        pass
    return name


def shadowed(path: str, variable: str) -> str | None:
    """A hint where a library was found because LD_LIBRARY_PATH names its folder: a toolkit's stub stands there as the driver's. variable: names another file."""
    folder = os.path.realpath(os.path.dirname(path)) if os.sep in path else ""
    for named in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep):
        if folder and named and os.path.realpath(named) == folder:
            return f"LD_LIBRARY_PATH names {named}, whose {os.path.basename(path)} is no driver of this machine: take it out, or name the driver's in {variable}"
    return None


class Library:
    """The functions of a driver library. `call(name, ...)` raises DeviceError unless the status is 0."""

    def __init__(
        self,
        cdll: Any,
        name: str,
        prototypes: Mapping[str, Sequence[Any]],
        describe: Callable[[int], str],
        variable: str = "",
    ):
        self.name = path_of(cdll, name)
        self.shadowed = shadowed(self.name, variable)
        self._cdll = cdll
        self._prototypes = prototypes
        self._describe = describe
        self._functions: dict[str, Any] = {}

    def function(self, name: str) -> Any:
        """The raw function, with its argument types; DeviceError where this version of the library lacks it."""
        found = self._functions.get(name)
        if found is None:
            try:
                found = getattr(self._cdll, name)
            except AttributeError:
                raise DeviceError(
                    f"{self.name} has no {name}: this version of the driver is too old for it",
                    hint=self.shadowed or "install a newer driver, or a newer ROCm",
                ) from None
            found.argtypes = list(self._prototypes[name])
            found.restype = c_int
            self._functions[name] = found
        return found

    def has(self, name: str) -> bool:
        try:
            self.function(name)
        except DeviceError:
            return False
        return True

    def call(self, name: str, *args: Any, hint: str | None = None) -> None:
        status = self.function(name)(*args)
        if status:
            raise self.failed(name, status, hint)

    def failed(self, name: str, status: int, hint: str | None = None) -> DeviceError:
        return DeviceError(f"{name} failed: {self._describe(status)}", hint=hint)


class Extra(Structure):
    """The `extra` array of a launch: a pointer to packed arguments and one to their size. Holds a reference to both."""

    _fields_ = [("key1", c_void_p), ("buffer", c_char_p), ("key2", c_void_p), ("size", c_void_p), ("end", c_void_p)]


class LoadedModule:
    """A module on one device."""

    __slots__ = ("handle", "ordinal")

    def __init__(self, handle: int, ordinal: int):
        self.handle = handle
        self.ordinal = ordinal


class LoadedFunction:
    """A kernel of a loaded module. `shared_limit` is the dynamic shared memory that needs nothing special, in bytes;
    `encode_tensor_map` makes what bulk copies name a tensor by, where the device has those (see CudaDriver). `offsets` of the
    arguments are known where a launch hands them over one by one: a tensor map within one block of arguments is not found by
    the copy engine ("illegal instruction", driver 580)."""

    __slots__ = ("encode_tensor_map", "handle", "module", "name", "offsets", "ordinal", "shared_limit")

    def __init__(self, module: LoadedModule, name: str, handle: int, shared_limit: int):
        self.module = module  # keeps it from being unloaded
        self.name = name
        self.handle = handle
        self.ordinal = module.ordinal
        self.shared_limit = shared_limit
        self.encode_tensor_map: Callable[..., bytes] | None = None
        self.offsets: tuple[int, ...] = ()


class _Current(threading.local):
    """The device that this thread's calls go to."""

    ordinal = -1


_LINK_MAP = 2  # RTLD_DI_LINKMAP
_NOT_READY = 600  # hipErrorNotReady, CUDA_ERROR_NOT_READY
# hipErrorPeerAccessAlreadyEnabled, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED: another library of this process asked for it.
_ALREADY_ENABLED = 704
LAUNCH_PROTOTYPE = (c_void_p, *(c_uint,) * 7, c_void_p, c_void_p, c_void_p)


class Way(Enum):
    """Which way a copy goes."""

    TO_DEVICE = auto()
    FROM_DEVICE = auto()
    ON_DEVICE = auto()


class GpuDriver:
    """Streams, events, launches and graphs of a HIP or CUDA library; `names` says what each function is called there."""

    kind = ""
    names: Mapping[str, str] = {}
    launch_end = 0  # the value that ends the `extra` array

    def __init__(self, library: Library):
        self.lib = library
        self.library = library.name
        self._current = _Current()
        self._one_device = False
        self._launch = library.function(self.names["launch"])
        self._sizes: dict[int, tuple[c_size_t, int]] = {}
        self._attributes: dict[int, DeviceAttributes] = {}
        self._peers: dict[tuple[int, int], bool] = {}

    # ---- what differs

    def _read_attributes(self, ordinal: int) -> DeviceAttributes:
        raise NotImplementedError

    def _copy(self, way: Way, ordinal: int, dst: int, src: int, nbytes: int, stream: Any) -> None:
        raise NotImplementedError

    def _copy_to_peer(self, ordinal: int, to: int, dst: int, src: int, nbytes: int, stream: Any) -> None:
        raise NotImplementedError

    def _enable_peer(self, ordinal: int, to: int) -> int:
        """Let a device, which is current, reach the memory of another; a status."""
        raise NotImplementedError

    def _activate(self, ordinal: int) -> None:
        raise NotImplementedError

    def _allow_shared(self, function: LoadedFunction, shared_bytes: int) -> None:
        """Ask for more dynamic shared memory than a launch may have by default."""
        raise NotImplementedError

    def _launch_failed(
        self, function: LoadedFunction, grid: Dim3, block: Dim3, shared_bytes: int, status: int
    ) -> DeviceError:
        raise NotImplementedError

    # ---- shared

    def attributes(self, ordinal: int) -> DeviceAttributes:
        found = self._attributes.get(ordinal)
        if found is None:
            found = self._attributes[ordinal] = self._read_attributes(ordinal)
        return found

    def copy_to_device(self, ordinal: int, dst: int, src_host: int, nbytes: int, stream: Any = None) -> None:
        self._copy(Way.TO_DEVICE, ordinal, dst, src_host, nbytes, stream)

    def copy_from_device(self, ordinal: int, dst_host: int, src: int, nbytes: int, stream: Any = None) -> None:
        self._copy(Way.FROM_DEVICE, ordinal, dst_host, src, nbytes, stream)

    def copy_on_device(self, ordinal: int, dst: int, src: int, nbytes: int, stream: Any = None) -> None:
        self._copy(Way.ON_DEVICE, ordinal, dst, src, nbytes, stream)

    def copy_to_peer(self, ordinal: int, to: int, dst: int, src: int, nbytes: int, stream: Any = None) -> None:
        """From a device to another one, queued in a stream of the first."""
        self._enter(ordinal)
        if (ordinal, to) not in self._peers:
            # A pair without a link between them is none to tell of: the driver then copies by way of the host.
            self._peers[ordinal, to] = self._enable_peer(ordinal, to) in (0, _ALREADY_ENABLED)
        self._copy_to_peer(ordinal, to, dst, src, nbytes, stream)

    def memset(self, ordinal: int, dst: int, byte: int, nbytes: int, stream: Any = None) -> None:
        if stream is None:
            self._do("memset", ordinal, dst, byte, nbytes)
        else:
            self._do("memset_later", ordinal, dst, byte, nbytes, stream)

    def _enter(self, ordinal: int) -> None:
        """Make the device current in this thread. With several devices, others in this process may change it meanwhile."""
        if self._current.ordinal != ordinal:
            self._activate(ordinal)
            if self._one_device:
                self._current.ordinal = ordinal

    def _do(self, what: str, ordinal: int, *args: Any) -> None:
        if self._current.ordinal != ordinal:
            self._enter(ordinal)
        self.lib.call(self.names[what], *args)

    def _new(self, what: str, ordinal: int, *args: Any) -> int:
        """A handle that the function writes through its first argument."""
        handle = c_void_p()
        self._do(what, ordinal, byref(handle), *args)
        return handle.value or 0

    def get_function(self, module: LoadedModule, name: str) -> LoadedFunction:
        handle = c_void_p()
        self._enter(module.ordinal)
        status = self.lib.function(self.names["get_function"])(byref(handle), module.handle, name.encode())
        if status:
            why = self.lib.failed(self.names["get_function"], status).message
            raise DeviceError(
                f"the code has no kernel {name!r}: {why}",
                hint=f"the code object must be for this device's chip, and its kernel named {name!r}: `tec emu FILE` lists the kernels of a code object",
            )
        return LoadedFunction(module, name, handle.value or 0, self._shared_limit(module.ordinal))

    def _shared_limit(self, ordinal: int) -> int:
        return 48 << 10

    def unload_module(self, module: LoadedModule) -> None:
        handle, module.handle = module.handle, 0
        if handle:
            self._do("unload_module", module.ordinal, handle)

    def alloc(self, ordinal: int, nbytes: int) -> int:
        return self._new("alloc", ordinal, nbytes)

    def free(self, ordinal: int, address: int) -> None:
        self._do("free", ordinal, address)

    def memory_info(self, ordinal: int) -> tuple[int, int]:
        free, total = c_size_t(), c_size_t()
        self._do("memory_info", ordinal, byref(free), byref(total))
        return free.value, total.value

    def launch(
        self, function: LoadedFunction, grid: Dim3, block: Dim3, shared_bytes: int, kernargs: bytes, stream: Any = None
    ) -> None:
        if self._current.ordinal != function.ordinal:
            self._enter(function.ordinal)
        if shared_bytes > function.shared_limit:
            self._allow_shared(function, shared_bytes)
        if function.offsets:
            held_args = ctypes.create_string_buffer(kernargs, len(kernargs))
            base = ctypes.addressof(held_args)
            each = (c_void_p * len(function.offsets))(*[base + at for at in function.offsets])
            status = self._launch(function.handle, *grid, *block, shared_bytes, stream, each, None)
            if status:
                raise self._launch_failed(function, grid, block, shared_bytes, status)
            return
        size = self._sizes.get(len(kernargs))
        if size is None:
            held = c_size_t(len(kernargs))
            size = self._sizes[len(kernargs)] = (held, ctypes.addressof(held))
        extra = byref(Extra(1, kernargs, 2, size[1], self.launch_end)) if kernargs else None
        status = self._launch(function.handle, *grid, *block, shared_bytes, stream, None, extra)
        if status:
            raise self._launch_failed(function, grid, block, shared_bytes, status)

    def native_launch(self) -> NativeLaunch | None:
        """The library's launch functions by their addresses; None where it is no library of machine code."""
        if not isinstance(self._launch, ctypes._CFuncPtr):  # type: ignore[attr-defined]
            return None
        return NativeLaunch(ctypes.cast(self._launch, c_void_p).value or 0, 0, False, self.launch_end)

    def synchronize(self, ordinal: int) -> None:
        self._do("synchronize", ordinal)

    def stream_create(self, ordinal: int) -> int:
        return self._new("stream_create", ordinal, 0)

    def stream_destroy(self, ordinal: int, stream: Any) -> None:
        self._do("stream_destroy", ordinal, stream)

    def stream_synchronize(self, ordinal: int, stream: Any) -> None:
        self._do("stream_synchronize", ordinal, stream)

    def stream_done(self, ordinal: int, stream: Any) -> bool:
        """Whether all work in the stream is done; errors of that work come out here."""
        self._enter(ordinal)
        name = self.names["stream_query"]
        status = self.lib.function(name)(stream)
        if status not in (0, _NOT_READY):
            raise self.lib.failed(name, status)
        return bool(status == 0)

    def stream_wait_event(self, ordinal: int, stream: Any, event: Any) -> None:
        self._do("stream_wait_event", ordinal, stream, event, 0)

    def event_create(self, ordinal: int) -> int:
        return self._new("event_create", ordinal, 0)

    def event_destroy(self, ordinal: int, event: Any) -> None:
        self._do("event_destroy", ordinal, event)

    def event_record(self, ordinal: int, event: Any, stream: Any = None) -> None:
        self._do("event_record", ordinal, event, stream)

    def event_synchronize(self, ordinal: int, event: Any) -> None:
        self._do("event_synchronize", ordinal, event)

    def event_elapsed_ms(self, ordinal: int, start: Any, stop: Any) -> float:
        ms = c_float()
        self._do("event_elapsed", ordinal, byref(ms), start, stop)
        return ms.value

    # Graphs. Relaxed mode: the allocator and module loading may go on meanwhile.

    def capture_stream(self, ordinal: int) -> int:
        """A stream that does not wait for the default stream: other threads may use that one during a capture."""
        return self._new("stream_create", ordinal, 1)

    def capture_begin(self, ordinal: int, stream: Any) -> None:
        self._do("capture_begin", ordinal, stream, 2)

    def capture_end(self, ordinal: int, stream: Any) -> int:
        graph = c_void_p()
        self._do("capture_end", ordinal, stream, byref(graph))
        try:
            return self._instantiate(ordinal, graph.value or 0)
        finally:
            self._do("graph_free", ordinal, graph.value)

    def _instantiate(self, ordinal: int, graph: int) -> int:
        return self._new("graph_instantiate", ordinal, graph, 0)

    def graph_launch(self, ordinal: int, graph: Any, stream: Any = None) -> None:
        self._do("graph_launch", ordinal, graph, stream)

    def graph_destroy(self, ordinal: int, graph: Any) -> None:
        self._do("graph_destroy", ordinal, graph)
