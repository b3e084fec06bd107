"""libamdhip64 and libcuda in Python for tests: every call is recorded, memory is the host's, kernels are Python functions.

They stand behind `HipDriver(library=...)` and `CudaDriver(library=...)`, so that the whole path runs without a GPU:
packing of arguments through `extra`, error codes, attributes, streams, events, graphs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

Kernel = Callable[[tuple[int, ...], tuple[int, ...], int, bytes], None]


def out(ref: Any, value: Any) -> None:
    """Write through an argument made by byref()."""
    ref._obj.value = value


class FakeLibrary:
    """What both libraries share. A call of function `f` goes to the method `do_f`; its status is 0 unless it says."""

    def __init__(self, kernels: dict[str, Kernel] | None = None, devices: int = 1, total: int = 1 << 30):
        self.kernels = kernels or {}
        self.devices = devices
        self.total = total
        self.calls: list[tuple[Any, ...]] = []
        self.fail: dict[str, int] = {}  # function -> status, once
        self.memory: dict[int, tuple[Any, int]] = {}
        self.handles: dict[int, Any] = {}
        self.clock = 0.0
        self.captured: list[Any] | None = None

    def __getattr__(self, name: str) -> Any:
        method = getattr(type(self), f"do_{name}", None)
        if method is None:
            raise AttributeError(name)

        def call(*args: Any) -> Any:
            self.calls.append((name, *args))
            if name in self.fail:
                return self.fail.pop(name)
            return method(self, *args) or 0

        self.__dict__[name] = call
        return call

    def named(self, name: str) -> list[tuple[Any, ...]]:
        return [c[1:] for c in self.calls if c[0] == name]

    def handle(self, what: Any) -> int:
        number = 0x1000 + len(self.handles)
        self.handles[number] = what
        return number

    def allocate(self, ref: Any, nbytes: int) -> int:
        if sum(n for _, n in self.memory.values()) + nbytes > self.total:
            return 2
        raw = np.zeros(nbytes + 256, np.uint8)
        address = (raw.ctypes.data + 255) & -256
        self.memory[address] = (raw, nbytes)
        out(ref, address)
        return 0

    def release(self, address: int) -> int:
        return 0 if self.memory.pop(address, None) else 1

    def info(self, free: Any, total: Any) -> None:
        out(free, self.total - sum(n for _, n in self.memory.values()))
        out(total, self.total)

    def launch(self, end: int, function: int, *rest: Any) -> int:
        gx, gy, gz, bx, by, bz, shared, stream, params, extra = rest
        assert params is None
        if bx * by * bz > 1024:
            return 1
        packed = b""
        if extra is not None:
            words = (ctypes.c_uint64 * 5).from_buffer(extra._obj)
            assert (words[0], words[2], words[4]) == (1, 2, end)
            packed = ctypes.string_at(words[1], ctypes.c_size_t.from_address(words[3]).value)
        run = lambda: self.kernels[self.handles[function]]((gx, gy, gz), (bx, by, bz), shared, packed)  # noqa: E731
        if self.captured is not None:
            self.captured.append(run)
        else:
            run()
        self.clock += 0.5
        return 0

    def make(self, ref: Any, *_: Any) -> None:
        out(ref, self.handle([0.0]))

    def nothing(self, *_: Any) -> None:
        return

    def record(self, event: int, stream: Any) -> None:
        self.handles[event][0] = self.clock

    def elapsed(self, ref: Any, start: int, stop: int) -> None:
        out(ref, self.handles[stop][0] - self.handles[start][0])

    def get_function(self, ref: Any, module: int, name: bytes) -> int:
        if name.decode() not in self.kernels:
            return 500
        out(ref, self.handle(name.decode()))
        return 0

    def begin(self, stream: int, mode: int) -> None:
        self.captured = []

    def end(self, stream: int, ref: Any) -> None:
        out(ref, self.handle(self.captured))
        self.captured = None

    def graph_launch(self, graph: int, stream: Any) -> None:
        for run in self.handles[graph]:
            run()


class FakeHip(FakeLibrary):
    """libamdhip64 6.x with gfx942 chips."""

    arch = b"gfx942:sramecc+:xnack-"
    attributes = {
        5: 2100000,
        26: 1024,
        27: 1024,
        28: 1024,
        29: 2**31 - 1,
        30: 65536,
        31: 65536,
        56: 1024,
        63: 304,
        74: 65536,
        87: 64,
    }

    def do_hipInit(self, flags: int) -> None: ...

    def do_hipGetErrorName(self, status: int) -> bytes:
        return {1: b"hipErrorInvalidValue", 2: b"hipErrorOutOfMemory", 209: b"hipErrorNoBinaryForGpu"}.get(
            status, b"hipErrorUnknown"
        )

    def do_hipGetErrorString(self, status: int) -> bytes:
        return b"what the library says"

    def do_hipGetDeviceCount(self, ref: Any) -> int:
        out(ref, self.devices)
        return 0 if self.devices else 100

    def do_hipSetDevice(self, ordinal: int) -> None: ...

    def do_hipDeviceGetAttribute(self, ref: Any, number: int, ordinal: int) -> int:
        if number not in self.attributes:
            return 1
        out(ref, self.attributes[number])
        return 0

    def do_hipDeviceGetName(self, buffer: Any, size: int, ordinal: int) -> None:
        buffer.value = b"AMD Instinct MI300X"

    def do_hipDeviceTotalMem(self, ref: Any, ordinal: int) -> None:
        out(ref, 192 << 30)

    def do_hipGetDevicePropertiesR0600(self, buffer: Any, ordinal: int) -> None:
        text = b"AMD Instinct MI300X\0"
        ctypes.memmove(buffer, text, len(text))
        ctypes.memmove(ctypes.addressof(buffer) + 1160, self.arch + b"\0", len(self.arch) + 1)

    def do_hipRuntimeGetVersion(self, ref: Any) -> None:
        out(ref, 60342131)

    def do_hipModuleLoadData(self, ref: Any, image: bytes) -> int:
        if not image.startswith(b"\x7fELF"):
            return 209
        out(ref, self.handle(image))
        return 0

    def do_hipModuleLaunchKernel(self, *args: Any) -> int:
        return self.launch(3, *args)

    def do_hipMemcpy(self, dst: int, src: int, nbytes: int, kind: int) -> None:
        ctypes.memmove(dst, src, nbytes)

    def do_hipMemcpyAsync(self, dst: int, src: int, nbytes: int, kind: int, stream: Any) -> None:
        ctypes.memmove(dst, src, nbytes)

    def do_hipMemcpyPeerAsync(self, dst: int, to: int, src: int, ordinal: int, nbytes: int, stream: Any) -> None:
        ctypes.memmove(dst, src, nbytes)

    def do_hipDeviceEnablePeerAccess(self, to: int, flags: int) -> None: ...

    def do_hipMemset(self, dst: int, byte: int, nbytes: int) -> None:
        ctypes.memset(dst, byte, nbytes)

    def do_hipMemsetAsync(self, dst: int, byte: int, nbytes: int, stream: Any) -> None:
        ctypes.memset(dst, byte, nbytes)

    def do_hipGraphInstantiate(self, ref: Any, graph: int, node: Any, log: Any, size: int) -> None:
        out(ref, self.handle(self.handles[graph]))

    do_hipModuleGetFunction = FakeLibrary.get_function
    do_hipMalloc = FakeLibrary.allocate
    do_hipFree = FakeLibrary.release
    do_hipMemGetInfo = FakeLibrary.info
    do_hipStreamCreateWithFlags = do_hipEventCreateWithFlags = FakeLibrary.make
    do_hipEventRecord = FakeLibrary.record
    do_hipEventElapsedTime = FakeLibrary.elapsed
    do_hipStreamBeginCapture = FakeLibrary.begin
    do_hipStreamEndCapture = FakeLibrary.end
    do_hipGraphLaunch = FakeLibrary.graph_launch
    do_hipModuleUnload = do_hipDeviceSynchronize = do_hipStreamDestroy = do_hipStreamSynchronize = FakeLibrary.nothing
    do_hipStreamWaitEvent = do_hipEventDestroy = do_hipEventSynchronize = FakeLibrary.nothing
    do_hipGraphExecDestroy = do_hipGraphDestroy = FakeLibrary.nothing


class FakeCuda(FakeLibrary):
    """libcuda of CUDA 12.2 with sm_90 chips."""

    attributes = {
        1: 1024,
        2: 1024,
        3: 1024,
        4: 64,
        5: 2**31 - 1,
        6: 65535,
        7: 65535,
        8: 49152,
        10: 32,
        16: 132,
        75: 9,
        76: 0,
        97: 232448,
    }
    newest_ptx = (8, 2)
    version = (12, 2)

    def do_cuInit(self, flags: int) -> int:
        return 0 if self.devices else 100

    def do_cuGetErrorName(self, status: int, ref: Any) -> None:
        out(ref, {2: b"CUDA_ERROR_OUT_OF_MEMORY", 218: b"CUDA_ERROR_INVALID_PTX"}.get(status, b"CUDA_ERROR_OTHER"))

    def do_cuGetErrorString(self, status: int, ref: Any) -> None:
        out(ref, b"what the driver says")

    def do_cuDriverGetVersion(self, ref: Any) -> None:
        out(ref, self.version[0] * 1000 + self.version[1] * 10)

    def do_cuDeviceGetCount(self, ref: Any) -> None:
        out(ref, self.devices)

    def do_cuDeviceGet(self, ref: Any, ordinal: int) -> None:
        out(ref, 70 + ordinal)

    def do_cuDeviceGetName(self, buffer: Any, size: int, device: int) -> None:
        buffer.value = b"NVIDIA H100"

    def do_cuDeviceTotalMem_v2(self, ref: Any, device: int) -> None:
        out(ref, 80 << 30)

    def do_cuDeviceGetAttribute(self, ref: Any, number: int, device: int) -> int:
        out(ref, self.attributes.get(number, 0))
        return 0

    def do_cuDevicePrimaryCtxRetain(self, ref: Any, device: int) -> None:
        out(ref, 0xC0 + device)

    def do_cuCtxSetCurrent(self, context: int) -> None: ...

    def do_cuModuleLoadDataEx(self, ref: Any, image: bytes, count: int, keys: Any, values: Any) -> int:
        assert list(keys) == [5, 6, 34][:count] and values[1] >= 1024
        text = image.decode()
        version = tuple(int(v) for v in text.split(".version", 1)[1].split(None, 1)[0].split("."))
        if version > self.newest_ptx:
            return 222
        if "nonsense" in text:
            said = b"ptxas fatal: Parsing error near 'nonsense'\0"
            ctypes.memmove(values[0], said, len(said))
            return 218
        out(ref, self.handle(image))
        return 0

    def do_cuFuncGetAttribute(self, ref: Any, number: int, function: int) -> None:
        out(ref, {0: 512, 1: 1024, 3: 0, 4: 128}[number])

    def do_cuFuncSetAttribute(self, function: int, number: int, value: int) -> None: ...

    def do_cuLaunchKernel(self, *args: Any) -> int:
        return self.launch(0, *args)

    def copy(self, dst: int, src: int, nbytes: int, stream: Any = None) -> None:
        ctypes.memmove(dst, src, nbytes)

    def do_cuMemcpyPeerAsync(self, dst: int, to: int, src: int, context: int, nbytes: int, stream: Any) -> None:
        ctypes.memmove(dst, src, nbytes)

    def do_cuCtxEnablePeerAccess(self, context: int, flags: int) -> None: ...

    def fill(self, dst: int, byte: int, nbytes: int, stream: Any = None) -> None:
        ctypes.memset(dst, byte, nbytes)

    def do_cuGraphInstantiateWithFlags(self, ref: Any, graph: int, flags: int) -> None:
        out(ref, self.handle(self.handles[graph]))

    do_cuModuleGetFunction = FakeLibrary.get_function
    do_cuMemAlloc_v2 = FakeLibrary.allocate
    do_cuMemFree_v2 = FakeLibrary.release
    do_cuMemGetInfo_v2 = FakeLibrary.info
    do_cuMemcpyHtoD_v2 = do_cuMemcpyDtoH_v2 = do_cuMemcpyDtoD_v2 = copy
    do_cuMemcpyHtoDAsync_v2 = do_cuMemcpyDtoHAsync_v2 = do_cuMemcpyDtoDAsync_v2 = copy
    do_cuMemsetD8_v2 = do_cuMemsetD8Async = fill
    do_cuStreamCreate = do_cuEventCreate = FakeLibrary.make
    do_cuEventRecord = FakeLibrary.record
    do_cuEventElapsedTime = FakeLibrary.elapsed
    do_cuStreamBeginCapture_v2 = FakeLibrary.begin
    do_cuStreamEndCapture = FakeLibrary.end
    do_cuGraphLaunch = FakeLibrary.graph_launch
    do_cuModuleUnload = do_cuCtxSynchronize = do_cuStreamDestroy_v2 = do_cuStreamSynchronize = FakeLibrary.nothing
    do_cuStreamWaitEvent = do_cuEventDestroy_v2 = do_cuEventSynchronize = FakeLibrary.nothing
    do_cuGraphExecDestroy = do_cuGraphDestroy = FakeLibrary.nothing
