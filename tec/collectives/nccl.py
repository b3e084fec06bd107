"""Calls by NVIDIA's libnccl or AMD's librccl, whose interface is the same: on the current stream, inside of captured graphs too.

A communicator's first call connects it, so a rank that never comes is found when the group is made. A thread of the communicator ends calls whose host side takes longer than the time limit
(`ncclCommAbort`), and waits that do (`limited`); what is queued is waited for by `finish`, with the same limit. Source: the NCCL 2 user guide; nccl.h.

The library gives a communicator back when all graphs that hold calls of it are destroyed, and waits for that. A thread waits there, so that neither the end of a group nor
an error hangs.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char, c_char_p, c_int, c_size_t, c_void_p
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..errors import ArgumentError, DeviceError
from ..runtime.arrays.ndarray import NDArray
from ..runtime.devices.device import Device
from ..runtime.devices.dynlib import find_library
from .transport import Call, Doing

_DTYPES = {
    "int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5, "float16": 6, "float32": 7, "float64": 8, "bfloat16": 9,
}  # fmt: skip
_BYTES = 1  # the type under which what has no other is moved
_OPS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}
_ID_BYTES = 128
# That is waited for a communicator to be given back: it takes some milliseconds where no graph holds it.
_END_SECONDS = 1.0


class _Id(ctypes.Structure):
    _fields_ = [("internal", c_char * _ID_BYTES)]


_P = c_void_p
_PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "ncclGetVersion": (POINTER(c_int),),
    "ncclGetUniqueId": (POINTER(_Id),),
    "ncclCommInitRank": (POINTER(_P), c_int, _Id, c_int),
    "ncclCommDestroy": (_P,),
    "ncclCommAbort": (_P,),
    "ncclCommGetAsyncError": (_P, POINTER(c_int)),
    "ncclAllReduce": (_P, _P, c_size_t, c_int, c_int, _P, _P),
    "ncclReduceScatter": (_P, _P, c_size_t, c_int, c_int, _P, _P),
    "ncclAllGather": (_P, _P, c_size_t, c_int, _P, _P),
    "ncclBroadcast": (_P, _P, c_size_t, c_int, c_int, _P, _P),
    "ncclSend": (_P, c_size_t, c_int, c_int, _P, _P),
    "ncclRecv": (_P, c_size_t, c_int, c_int, _P, _P),
    "ncclGroupStart": (),
    "ncclGroupEnd": (),
}


class NcclLibrary:
    """The functions of libnccl or librccl; `call` raises DeviceError unless the status is 0."""

    def __init__(self, library: Any, name: str):
        self.name = name
        self.functions: dict[str, Any] = {}
        for function, arguments in _PROTOTYPES.items():
            found = getattr(library, function)
            found.argtypes, found.restype = list(arguments), c_int
            self.functions[function] = found
        self._text = library.ncclGetErrorString
        self._text.argtypes, self._text.restype = [c_int], c_char_p

    def call(self, name: str, *args: Any) -> None:
        status = self.functions[name](*args)
        if status:
            raise DeviceError(f"{name} failed: {self.text(status)}", hint="NCCL_DEBUG=INFO prints what the library did")

    def text(self, status: int) -> str:
        return str(self._text(status).decode(errors="replace"))

    @property
    def version(self) -> str:
        n = c_int()
        self.call("ncclGetVersion", byref(n))
        return f"{n.value // 10000}.{n.value // 100 % 100}.{n.value % 100}"

    def unique_id(self) -> str:
        """What all ranks of a new communicator must share, as hexadecimal digits."""
        made = _Id()
        self.call("ncclGetUniqueId", byref(made))
        return ctypes.string_at(byref(made), _ID_BYTES).hex()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Calls of several ranks, or to several ranks, that one thread makes: they begin together at the end of the block."""
        self.call("ncclGroupStart")
        try:
            yield
        finally:
            self.call("ncclGroupEnd")


def _names(kind: str) -> Iterator[str]:
    own, wheel, library = (
        ("TEC_RCCL", "", "librccl.so") if kind == "rocm" else ("TEC_NCCL", "nvidia/nccl/lib", "libnccl.so")
    )
    if os.environ.get(own):
        yield os.environ[own]
    yield library + (".1" if kind == "rocm" else ".2")
    yield library
    root = os.environ.get("ROCM_PATH", "/opt/rocm")
    places = [Path(p) / wheel for p in sys.path if p] if wheel else [Path(root) / "lib"]
    for place in places:
        for name in (library + ".2", library + ".1", library):
            if (place / name).exists():
                yield str(place / name)


@lru_cache(maxsize=2)
def library(kind: str) -> NcclLibrary:
    """libnccl for "cuda", librccl for "rocm". Raises DeviceError, which says what was looked for."""
    found, name, failures = find_library(_names(kind))
    if found is None:
        what, variable = ("librccl", "TEC_RCCL") if kind == "rocm" else ("libnccl", "TEC_NCCL")
        raise DeviceError(
            f"collectives of {kind} devices need {what}, which could not be loaded"
            + "".join(f"\n  looked for {f}" for f in failures),
            hint=f"{variable}=/path/to/{what}.so names it; "
            + ("it comes with ROCm" if kind == "rocm" else "pip install nvidia-nccl-cu13 has it"),
        )
    return NcclLibrary(found, name)


class _Entered(threading.local):
    """Whether a thread has made a device current."""

    done = False


class NcclTransport:
    """One rank of an NCCL communicator."""

    def __init__(self, device: Device, rank: int, size: int, unique_id: str, timeout_s: float):
        self.device, self.rank, self.size = device, rank, size
        self.lib = library(device.kind)
        self._driver: Any = device.driver
        self._comm = c_void_p()
        self._timeout_s = timeout_s
        self._since: float | None = None  # when the host side of a call began
        self._waits: float | None = None  # when a wait for the device began
        self._over: str | None = None
        self._entered = _Entered()
        self._stop = threading.Event()
        self._connect(bytes.fromhex(unique_id))
        threading.Thread(target=self._watch, daemon=True, name=f"collectives of rank {rank}").start()

    def _connect(self, unique_id: bytes) -> None:
        """Make the communicator and connect it, in a thread of its own so that a rank which never comes is no hang."""
        made = _Id()
        ctypes.memmove(byref(made), unique_id, _ID_BYTES)
        failed: list[Exception] = []

        def run() -> None:
            try:
                self._driver._enter(self.device.index)
                self.lib.call("ncclCommInitRank", byref(self._comm), self.size, made, self.rank)
                one = self._driver.alloc(self.device.index, 256)
                stream = self._driver.stream_create(self.device.index)
                try:
                    self.lib.call("ncclAllReduce", one, one, 1, _DTYPES["int32"], 0, self._comm, stream)
                    self._driver.stream_synchronize(self.device.index, stream)
                finally:
                    self._driver.stream_destroy(self.device.index, stream)
                    self._driver.free(self.device.index, one)
            except Exception as error:
                failed.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(self._timeout_s)
        if thread.is_alive():
            if self._comm.value:
                self._end("ncclCommAbort")
            raise DeviceError(
                f"rank {self.rank} of {self.size}: the other ranks did not come within {self._timeout_s:g} s",
                hint="the same calls on all ranks, or a longer timeout_s=",
            )
        if failed:
            raise failed[0]

    # ---- calls

    def _do(self, name: str, x: NDArray, out: NDArray, *args: Any) -> None:
        """One call behind what is queued on the current stream. Arrays are kept alive where a graph is captured."""
        self._begin(x, out)
        self._since = time.monotonic()
        status = self.lib.functions[name](*args, self._comm, self.device.local.stream)
        self._since = None
        if status:
            raise self._error(name, status)

    def _begin(self, x: NDArray, out: NDArray) -> None:
        if self._over is not None:
            self._check()
        if not self._entered.done:  # once a thread: the library makes the communicator's device current by itself
            self._driver._enter(self.device.index)
            self._entered.done = True
        if self.device.capturing is not None:
            self.device.capturing.keep.extend((x, out))

    def _doing(self, name: str, *last: int) -> Doing:
        """`_do` of two arrays, whose other arguments are these."""
        function, comm, device, entered, clock = (
            self.lib.functions[name],
            self._comm,
            self.device,
            self._entered,
            time.monotonic,
        )

        def run(x: NDArray, out: NDArray) -> None:
            if self._over is not None or not entered.done or device.capturing is not None:
                self._begin(x, out)
            self._since = clock()
            status = function(x.address, out.address, *last, comm, device.local.stream)
            self._since = None
            if status:
                raise self._error(name, status)

        return run

    @contextmanager
    def together(self) -> Iterator[None]:
        self._check()
        self.lib.call("ncclGroupStart")
        try:
            yield
        finally:
            self._since = time.monotonic()
            status = self.lib.functions["ncclGroupEnd"]()
            self._since = None
        if status:
            raise self._error("a group of calls", status)

    def ready(self, call: Call) -> Doing:
        if call.name == "all_to_all":
            return self._all_to_all
        if call.name == "all_gather":
            kind = _DTYPES.get(call.dtype)
            if kind is None:
                return lambda x, out: self._do("ncclAllGather", x, out, x.address, out.address, *_moved(x))
            return self._doing("ncclAllGather", call.count, kind)
        name = {"all_reduce": "ncclAllReduce", "reduce_scatter": "ncclReduceScatter"}[call.name]
        return self._doing(name, call.count, _summed(call), _OPS[call.reduction])

    def broadcast(self, call: Call, x: NDArray) -> None:
        self._do("ncclBroadcast", x, x, x.address, x.address, *_moved(x), call.root)

    def send(self, call: Call, x: NDArray, to: int) -> None:
        self._do("ncclSend", x, x, x.address, *_moved(x), to)

    def receive(self, call: Call, out: NDArray, source: int) -> None:
        self._do("ncclRecv", out, out, out.address, *_moved(out), source)

    def _all_to_all(self, x: NDArray, out: NDArray) -> None:
        part = x.nbytes // self.size
        with self.together():
            for r in range(self.size):
                self._do("ncclSend", x, x, x.address + r * part, part, _BYTES, r)
                self._do("ncclRecv", out, out, out.address + r * part, part, _BYTES, r)

    # ---- time limits

    def finish(self, timeout_s: float) -> None:
        """Wait for the current stream, and look for errors of the network meanwhile."""
        driver, device = self._driver, self.device
        end, pause = time.monotonic() + timeout_s, 0.0
        while not driver.stream_done(device.index, device.local.stream):
            self._check()
            state = c_int()
            self.lib.call("ncclCommGetAsyncError", self._comm, byref(state))
            if state.value:
                self.abort(self.lib.text(state.value))
                raise self._error("a collective", state.value)
            if time.monotonic() > end:
                why = f"rank {self.rank} of {self.size}: the other ranks did not come within {timeout_s:g} s"
                self.abort(why)
                raise DeviceError(
                    why, hint="all ranks of a group make the same calls in the same order, with equal types and sizes"
                )
            time.sleep(pause)
            pause = min(1e-3, pause + 1e-6)
        self._check()

    @contextmanager
    def limited(self) -> Iterator[None]:
        """A block that waits for the device: it ends when the other ranks do not come within the limit, and raises."""
        self._waits = time.monotonic()
        try:
            yield
        finally:
            self._waits = None
        self._check()

    def abort(self, why: str) -> None:
        if self._over is None:
            self._over = why
            self._stop.set()
            self._end("ncclCommAbort")

    def close(self) -> None:
        if self._over is None:
            self._over = "it is closed"
            self._stop.set()
            self._end("ncclCommDestroy")

    def _end(self, function: str) -> None:
        """Give the communicator back, in a thread: the library waits there for graphs that hold its calls. Calls that are under way are ended at once."""

        def run() -> None:
            self._driver._enter(self.device.index)
            self.lib.functions[function](self._comm)

        thread = threading.Thread(target=run, daemon=True, name=f"end of rank {self.rank}")
        thread.start()
        thread.join(_END_SECONDS)

    def _watch(self) -> None:
        """End a call whose host side hangs, since it connects to a rank that does not come, and what a wait waits for in vain."""
        while not self._stop.wait(min(1.0, self._timeout_s / 4)):
            now = time.monotonic()
            if any(since is not None and now - since > self._timeout_s for since in (self._since, self._waits)):
                self.abort(f"the other ranks did not come within {self._timeout_s:g} s")

    def _check(self) -> None:
        if self._over is not None:
            raise DeviceError(
                f"the group has failed: {self._over}",
                hint="make a new group: one that was closed or has failed takes no calls",
            )

    def _error(self, name: str, status: int) -> DeviceError:
        if self._over is not None:
            return DeviceError(f"the group has failed: {self._over}")
        return DeviceError(
            f"{name} of rank {self.rank} failed: {self.lib.text(status)}",
            hint="NCCL_DEBUG=WARN in the environment makes the library say more",
        )


def _summed(call: Call) -> int:
    found = _DTYPES.get(call.dtype)
    if found is None:
        raise ArgumentError(
            f"{call.name}: the library has no reduction of {call.dtype}", hint="there are: " + ", ".join(_DTYPES)
        )
    return found


def _moved(x: NDArray) -> tuple[int, int]:
    """Count and type of what is only moved."""
    return x.nbytes, _BYTES


def connected(
    devices: Sequence[Device], ranks: Sequence[int], size: int, unique_id: str, timeout_s: float
) -> list[NcclTransport]:
    """Transports of several ranks of one process, which connect side by side."""
    made: list[NcclTransport | Exception | None] = [None] * len(devices)

    def one(k: int) -> Callable[[], None]:
        def run() -> None:
            try:
                made[k] = NcclTransport(devices[k], ranks[k], size, unique_id, timeout_s)
            except Exception as error:
                made[k] = error

        return run

    threads = [threading.Thread(target=one(k), daemon=True) for k in range(len(devices))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for found in made:
        if isinstance(found, Exception):
            raise found
    return [m for m in made if isinstance(m, NcclTransport)]
