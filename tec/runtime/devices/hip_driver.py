"""The HIP driver: libamdhip64 through ctypes, behind the driver surface.

About 30 functions whose signatures are the same from HIP 5 to HIP 7; no struct of the library is read by its layout:

- numbers come from `hipDeviceGetAttribute` (the enumeration kept its values since HIP 5.0; a value that cannot be is
  replaced by what `tec.target` knows of the chip);
- the chip's name is `gcnArchName` in the properties, whose offset moved between versions: the call fills a buffer that is
  larger than any version's struct, and the name is found there as the last text that begins with "gfx".

In a launch, arguments go as one packed buffer through `extra`. Source: the HIP runtime API reference.
"""

from __future__ import annotations

import ctypes
import glob
import importlib.util
import os
import re
from collections.abc import Iterator
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_void_p
from typing import Any

from ...errors import DeviceError
from ...target import CHIPS
from .dynlib import LAUNCH_PROTOTYPE, GpuDriver, Library, LoadedFunction, LoadedModule, Way, find_library
from .surface import Assembly, DeviceAttributes, Dim3

_P = c_void_p
_PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "hipInit": (c_uint,),
    "hipGetDeviceCount": (_P,),
    "hipSetDevice": (c_int,),
    "hipDeviceGetAttribute": (_P, c_int, c_int),
    "hipDeviceGetName": (_P, c_int, c_int),
    "hipDeviceTotalMem": (_P, c_int),
    "hipGetDevicePropertiesR0600": (_P, c_int),
    "hipGetDeviceProperties": (_P, c_int),
    "hipRuntimeGetVersion": (_P,),
    "hipMalloc": (_P, c_size_t),
    "hipFree": (_P,),
    "hipMemGetInfo": (_P, _P),
    "hipMemcpy": (_P, _P, c_size_t, c_int),
    "hipMemcpyAsync": (_P, _P, c_size_t, c_int, _P),
    "hipMemset": (_P, c_int, c_size_t),
    "hipMemsetAsync": (_P, c_int, c_size_t, _P),
    "hipModuleLoadData": (_P, c_char_p),
    "hipModuleGetFunction": (_P, _P, c_char_p),
    "hipModuleUnload": (_P,),
    "hipModuleLaunchKernel": LAUNCH_PROTOTYPE,
    "hipDeviceSynchronize": (),
    "hipStreamCreateWithFlags": (_P, c_uint),
    "hipStreamDestroy": (_P,),
    "hipStreamSynchronize": (_P,),
    "hipStreamQuery": (_P,),
    "hipStreamWaitEvent": (_P, _P, c_uint),
    "hipEventCreateWithFlags": (_P, c_uint),
    "hipEventDestroy": (_P,),
    "hipEventRecord": (_P, _P),
    "hipMemcpyPeerAsync": (_P, c_int, _P, c_int, c_size_t, _P),
    "hipDeviceEnablePeerAccess": (c_int, c_uint),
    "hipEventSynchronize": (_P,),
    "hipEventElapsedTime": (_P, _P, _P),
    "hipStreamBeginCapture": (_P, c_int),
    "hipStreamEndCapture": (_P, _P),
    "hipGraphInstantiate": (_P, _P, _P, _P, c_size_t),
    "hipGraphLaunch": (_P, _P),
    "hipGraphExecDestroy": (_P,),
    "hipGraphDestroy": (_P,),
}
_ATTRIBUTES = {
    "clock_khz": 5, "l2_bytes": 19, "block_x": 26, "block_y": 27, "block_z": 28, "grid_x": 29, "grid_y": 30, "grid_z": 31,
    "max_threads": 56, "memory_bus_bits": 59, "memory_clock_khz": 60, "compute_units": 63, "lds_bytes": 74,
    "wavefront_size": 87,
}  # fmt: skip
_SONAMES = ("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so")
_COPIES = {Way.TO_DEVICE: 1, Way.FROM_DEVICE: 2, Way.ON_DEVICE: 3}
_PROPERTIES_BYTES = 16 << 10
_NO_DEVICE, _INVALID_DEVICE, _NO_BINARY = 100, 101, 209


def library_names() -> Iterator[str]:
    """Where libamdhip64 may be: the loader's paths, $ROCM_PATH and $HIP_PATH, /opt/rocm, PyTorch's own copy."""
    chosen = os.environ.get("TEC_HIP_LIBRARY")
    if chosen:
        yield chosen
        return
    yield from _SONAMES
    folders = [os.path.join(os.environ[v], "lib") for v in ("ROCM_PATH", "HIP_PATH") if os.environ.get(v)]
    folders += ["/opt/rocm/lib"]
    torch = importlib.util.find_spec("torch")
    if torch is not None and torch.origin is not None:
        folders.append(os.path.join(os.path.dirname(torch.origin), "lib"))
    for folder in dict.fromkeys(folders):
        yield from sorted(glob.glob(os.path.join(folder, "libamdhip64.so*")), key=len)


class HipDriver(GpuDriver):
    """The AMD GPUs of this machine. `library` stands in for libamdhip64 in tests."""

    kind = "hip"
    launch_end = 3
    names = {
        "launch": "hipModuleLaunchKernel", "get_function": "hipModuleGetFunction", "unload_module": "hipModuleUnload",
        "alloc": "hipMalloc", "free": "hipFree", "memory_info": "hipMemGetInfo",
        "memset": "hipMemset", "memset_later": "hipMemsetAsync",
        "synchronize": "hipDeviceSynchronize",
        "stream_create": "hipStreamCreateWithFlags", "stream_destroy": "hipStreamDestroy",
        "stream_synchronize": "hipStreamSynchronize", "stream_wait_event": "hipStreamWaitEvent", "stream_query": "hipStreamQuery",
        "event_create": "hipEventCreateWithFlags", "event_destroy": "hipEventDestroy", "event_record": "hipEventRecord",
        "event_synchronize": "hipEventSynchronize", "event_elapsed": "hipEventElapsedTime",
        "capture_begin": "hipStreamBeginCapture", "capture_end": "hipStreamEndCapture",
        "graph_launch": "hipGraphLaunch", "graph_destroy": "hipGraphExecDestroy", "graph_free": "hipGraphDestroy",
    }  # fmt: skip

    def __init__(self, library: Any = None):
        name = "libamdhip64"
        if library is None:
            library, name, failures = find_library(library_names())
            if library is None:
                tried = "".join(f"\n  looked for {f}" for f in failures)
                variables = ", ".join(f"{v}={os.environ.get(v, '(not set)')}" for v in ("ROCM_PATH", "HIP_PATH"))
                raise DeviceError(
                    f"no AMD GPU was found: libamdhip64 could not be loaded{tried}\n  {variables}",
                    hint="install ROCm's HIP runtime, or name its library in TEC_HIP_LIBRARY",
                )
        self._cdll = library
        super().__init__(Library(library, name, _PROTOTYPES, self._describe, "TEC_HIP_LIBRARY"))
        status = self.lib.function("hipInit")(0)
        # Without a GPU, versions answer hipInit with "no device" or "invalid device"; the count then says 0.
        if status not in (0, _NO_DEVICE, _INVALID_DEVICE):
            raise DeviceError(
                f"no AMD GPU was found: {self.lib.failed('hipInit', status).message}",
                hint=self.lib.shadowed
                or "rocminfo tells whether the driver sees the GPU; in a container, give it /dev/kfd and /dev/dri",
            )
        self._one_device = self.device_count() == 1

    def _describe(self, status: int) -> str:
        texts = []
        for name in ("hipGetErrorName", "hipGetErrorString"):
            function = getattr(self._cdll, name, None)
            if function is None:  # a library that is no driver's
                texts.append("?")
                continue
            function.argtypes, function.restype = [c_int], c_char_p
            texts.append((function(status) or b"?").decode(errors="replace"))
        return f"{texts[0]} ({status}): {texts[1]}"

    def device_count(self) -> int:
        count = c_int(0)
        status = self.lib.function("hipGetDeviceCount")(byref(count))
        if status in (_NO_DEVICE, _INVALID_DEVICE):
            return 0
        if status:
            raise self.lib.failed("hipGetDeviceCount", status)
        return count.value

    def _activate(self, ordinal: int) -> None:
        self.lib.call("hipSetDevice", ordinal)

    # ---- what the device is

    def _attribute(self, ordinal: int, number: int) -> int:
        value = c_int(0)
        status = self.lib.function("hipDeviceGetAttribute")(byref(value), number, ordinal)
        return 0 if status else value.value

    def _read_attributes(self, ordinal: int) -> DeviceAttributes:
        name = ctypes.create_string_buffer(256)
        self.lib.call("hipDeviceGetName", name, 256, ordinal)
        total = c_size_t()
        self.lib.call("hipDeviceTotalMem", byref(total), ordinal)
        v = {key: self._attribute(ordinal, number) for key, number in _ATTRIBUTES.items()}
        arch = self._arch(ordinal)
        chip = CHIPS.get(arch.split(":")[0])
        wave = v["wavefront_size"]
        if wave not in (32, 64):
            wave = chip.wavefront_sizes[0] if chip else 64
        lds = v["lds_bytes"] if 16 << 10 <= v["lds_bytes"] <= 1 << 20 else (chip.lds_bytes if chip else 64 << 10)
        return DeviceAttributes(
            name=name.value.decode(errors="replace") or arch,
            arch=arch,
            compute_units=max(v["compute_units"], 1),
            lds_bytes=lds,
            wavefront_size=wave,
            total_memory_bytes=total.value,
            max_threads_per_block=v["max_threads"] if 64 <= v["max_threads"] <= 4096 else 1024,
            max_block_dim=(v["block_x"] or 1024, v["block_y"] or 1024, v["block_z"] or 1024),
            max_grid_dim=(v["grid_x"] or 2**31 - 1, v["grid_y"] or 65535, v["grid_z"] or 65535),
            clock_khz=v["clock_khz"],
            extra={
                "l2_bytes": v["l2_bytes"], "memory_clock_khz": v["memory_clock_khz"],
                "memory_bus_bits": v["memory_bus_bits"], "runtime_version": self.runtime_version(),
            },
        )  # fmt: skip

    def _arch(self, ordinal: int) -> str:
        name = next(n for n in ("hipGetDevicePropertiesR0600", "hipGetDeviceProperties") if self.lib.has(n))
        buffer = ctypes.create_string_buffer(_PROPERTIES_BYTES)
        self.lib.call(name, buffer, ordinal)
        found = re.findall(rb"gfx[0-9a-f]{3,5}(?::[a-z]+[+-])*(?=\0)", buffer.raw)
        if not found:
            raise DeviceError(
                f"{self.library} does not say which chip device {ordinal} is",
                hint=f"rocminfo names the chip; {self.library} may be of a version that keeps it elsewhere: TEC_HIP_LIBRARY names another",
            )
        return str(found[-1].decode())

    def runtime_version(self) -> int:
        """HIP's version, as in 60342131; 0 where it does not say."""
        version = c_int(0)
        return 0 if self.lib.function("hipRuntimeGetVersion")(byref(version)) else version.value

    # ---- code

    def load_module(self, ordinal: int, image: bytes, asm: str | Assembly | None = None) -> LoadedModule:
        self._enter(ordinal)
        handle = c_void_p()
        status = self.lib.function("hipModuleLoadData")(byref(handle), image)
        if status:
            arch = self.attributes(ordinal).arch
            hint = (
                f'the device is a {arch}: build with tec.Target("rocm -mcpu={arch.split(":")[0]}")'
                if status == _NO_BINARY
                else None
            )
            raise self.lib.failed("hipModuleLoadData", status, hint)
        return LoadedModule(handle.value or 0, ordinal)

    def _shared_limit(self, ordinal: int) -> int:
        return self.attributes(ordinal).lds_bytes

    def _allow_shared(self, function: LoadedFunction, shared_bytes: int) -> None:
        limit = self.attributes(function.ordinal).lds_bytes
        raise DeviceError(
            f"kernel {function.name!r} asks for {shared_bytes} bytes of LDS, a work-group has {limit}",
            hint="take smaller tiles, fewer stages of a pipeline, or a narrower type in shared memory",
        )

    def _launch_failed(
        self, function: LoadedFunction, grid: Dim3, block: Dim3, shared_bytes: int, status: int
    ) -> DeviceError:
        return launch_error(
            self.lib, self.attributes(function.ordinal), function.name, grid, block, shared_bytes, status
        )

    # ---- copies

    def _copy(self, way: Way, ordinal: int, dst: int, src: int, nbytes: int, stream: Any) -> None:
        self._enter(ordinal)
        kind = _COPIES[way]
        if stream is None:
            self.lib.call("hipMemcpy", dst, src, nbytes, kind)
        else:
            self.lib.call("hipMemcpyAsync", dst, src, nbytes, kind, stream)

    def _enable_peer(self, ordinal: int, to: int) -> int:
        return int(self.lib.function("hipDeviceEnablePeerAccess")(to, 0))

    def _copy_to_peer(self, ordinal: int, to: int, dst: int, src: int, nbytes: int, stream: Any) -> None:
        self.lib.call("hipMemcpyPeerAsync", dst, to, src, ordinal, nbytes, stream)

    def _instantiate(self, ordinal: int, graph: int) -> int:
        handle = c_void_p()
        self._enter(ordinal)
        self.lib.call("hipGraphInstantiate", byref(handle), graph, None, None, 0)
        return handle.value or 0


def launch_error(
    lib: Library, limits: DeviceAttributes, name: str, grid: Dim3, block: Dim3, shared_bytes: int, status: int
) -> DeviceError:
    """Why a launch was refused, in the user's terms where a limit explains it."""
    threads = block[0] * block[1] * block[2]
    hint = None
    if threads > limits.max_threads_per_block:
        hint = f"{threads} threads in a block; this device allows {limits.max_threads_per_block}"
    elif any(n > most for n, most in zip(block, limits.max_block_dim)):
        hint = f"a block of {block}; this device allows {limits.max_block_dim}"
    elif any(n > most for n, most in zip(grid, limits.max_grid_dim)):
        hint = f"a grid of {grid}; this device allows {limits.max_grid_dim}"
    elif shared_bytes > limits.lds_bytes:
        hint = f"{shared_bytes} bytes of shared memory; this device allows {limits.lds_bytes}"
    why = lib.failed("launch", status).message.removeprefix("launch failed: ")
    return DeviceError(
        f"kernel {name!r} could not be launched (grid {grid}, block {block}, {shared_bytes} bytes shared): {why}",
        hint=hint,
    )
