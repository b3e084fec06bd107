"""The CUDA driver: libcuda through ctypes, behind the driver surface. No CUDA toolkit is needed.

PTX is compiled by the driver; what it says of bad PTX is part of the error. When the driver is older than the PTX, the
PTX's version line is lowered to what the driver knows and tried again. A device's primary context is used, so PyTorch
and CuPy in the same process share memory with tec. Source: the CUDA driver API reference.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator
from ctypes import byref, c_char_p, c_int, c_size_t, c_ubyte, c_uint, c_ulonglong, c_void_p
from dataclasses import replace
from typing import Any

from ...errors import ArgumentError, DeviceError
from ..modules.prepared_launch import Arguments, PreparedLaunch, prepared_launch
from ..modules.program import LaunchInfo
from .dynlib import LAUNCH_PROTOTYPE, GpuDriver, Library, LoadedFunction, LoadedModule, Way, find_library
from .hip_driver import launch_error
from .surface import Assembly, DeviceAttributes, Dim3, NativeLaunch

_P = c_void_p
_D = c_ulonglong  # CUdeviceptr
_PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (_P,),
    "cuDeviceGetCount": (_P,),
    "cuDeviceGet": (_P, c_int),
    "cuDeviceGetName": (_P, c_int, c_int),
    "cuDeviceTotalMem_v2": (_P, c_int),
    "cuDeviceGetAttribute": (_P, c_int, c_int),
    "cuDevicePrimaryCtxRetain": (_P, c_int),
    "cuCtxSetCurrent": (_P,),
    "cuCtxSynchronize": (),
    "cuMemAlloc_v2": (_P, c_size_t),
    "cuMemFree_v2": (_D,),
    "cuMemGetInfo_v2": (_P, _P),
    "cuMemcpyHtoD_v2": (_D, _P, c_size_t),
    "cuMemcpyDtoH_v2": (_P, _D, c_size_t),
    "cuMemcpyDtoD_v2": (_D, _D, c_size_t),
    "cuMemcpyHtoDAsync_v2": (_D, _P, c_size_t, _P),
    "cuMemcpyDtoHAsync_v2": (_P, _D, c_size_t, _P),
    "cuMemcpyDtoDAsync_v2": (_D, _D, c_size_t, _P),
    "cuMemsetD8_v2": (_D, c_ubyte, c_size_t),
    "cuMemsetD8Async": (_D, c_ubyte, c_size_t, _P),
    "cuModuleLoadDataEx": (_P, c_char_p, c_uint, _P, _P),
    "cuModuleGetFunction": (_P, _P, c_char_p),
    "cuModuleUnload": (_P,),
    "cuFuncGetAttribute": (_P, c_int, _P),
    "cuFuncSetAttribute": (_P, c_int, c_int),
    "cuLaunchKernel": LAUNCH_PROTOTYPE,
    "cuLaunchKernelEx": (_P, _P, _P, _P),
    "cuStreamCreate": (_P, c_uint),
    "cuStreamDestroy_v2": (_P,),
    "cuStreamSynchronize": (_P,),
    "cuStreamQuery": (_P,),
    "cuMemcpyPeerAsync": (_D, _P, _D, _P, c_size_t, _P),
    "cuCtxEnablePeerAccess": (_P, c_uint),
    "cuStreamWaitEvent": (_P, _P, c_uint),
    "cuEventCreate": (_P, c_uint),
    "cuEventDestroy_v2": (_P,),
    "cuEventRecord": (_P, _P),
    "cuEventSynchronize": (_P,),
    "cuEventElapsedTime": (_P, _P, _P),
    "cuStreamBeginCapture_v2": (_P, c_int),
    "cuStreamEndCapture": (_P, _P),
    "cuGraphInstantiateWithFlags": (_P, _P, c_ulonglong),
    "cuGraphLaunch": (_P, _P),
    "cuGraphExecDestroy": (_P,),
    "cuGraphDestroy": (_P,),
    "cuTensorMapEncodeTiled": (_P, c_int, c_uint, _D, _P, _P, _P, _P, c_int, c_int, c_int, c_int),
    "cuLinkCreate_v2": (c_uint, _P, _P, _P),
    "cuLinkAddData_v2": (_P, c_int, c_char_p, c_size_t, c_char_p, c_uint, _P, _P),
    "cuLinkComplete": (_P, _P, _P),
    "cuLinkDestroy": (_P,),
}
_ATTRIBUTES = {
    "max_threads": 1, "block_x": 2, "block_y": 3, "block_z": 4, "grid_x": 5, "grid_y": 6, "grid_z": 7, "shared_bytes": 8,
    "warp": 10, "clock_khz": 13, "multiprocessors": 16, "memory_clock_khz": 36, "memory_bus_bits": 37, "l2_bytes": 38,
    "threads_per_multiprocessor": 39, "major": 75, "minor": 76, "shared_bytes_optin": 97,
}  # fmt: skip
# CUtensorMapDataType, CUtensorMapSwizzle, CUtensorMapL2promotion
MAP_TYPES = {
    "uint8": 0, "int8": 0, "uint16": 1, "int16": 1, "uint32": 2, "int32": 3, "uint64": 4, "int64": 5, "float16": 6, "float32": 7,
    "float64": 8, "bfloat16": 9, "float8_e4m3": 0, "float8_e5m2": 0,  # bytes to the copy engine
}  # fmt: skip
_SWIZZLE_128B, _L2_PROMOTION_128B = 3, 2
_JIT_ERROR_LOG, _JIT_ERROR_SIZE, _JIT_SPLIT_COMPILE = 5, 6, 34
# Since CUDA 13 the driver compiles the kernels of one text side by side. ResNet-50 of 32 images (1.4 MB, 34 kernels) loads in 0.6 s on 8 cores, 2.0 s without.
_SPLITS_FROM, _SPLIT_BYTES, _SPLIT_THREADS = (13, 0), 100 << 10, 16
_FUNC_STATIC_SHARED, _FUNC_MAX_DYNAMIC_SHARED, _FUNC_MAX_THREADS, _FUNC_REGISTERS, _FUNC_LOCAL_BYTES = 1, 8, 0, 4, 3
_LOG_BYTES = 16 << 10
_COPIES = {Way.TO_DEVICE: "HtoD", Way.FROM_DEVICE: "DtoH", Way.ON_DEVICE: "DtoD"}
_NO_DEVICE, _NO_BINARY, _UNSUPPORTED_PTX = 100, 209, 222
_STICKY = {700, 702, 710, 714, 715, 716, 717, 718, 719}  # the context is lost: illegal address and its kin
_VERSION_LINE = re.compile(rb"^(\s*\.version\s+)(\d+)\.(\d+)", re.M)


def library_names() -> Iterator[str]:
    """Where libcuda may be."""
    chosen = os.environ.get("TEC_CUDA_LIBRARY")
    if chosen:
        yield chosen
        return
    yield "libcuda.so.1"
    yield "libcuda.so"
    yield "/usr/lib/wsl/lib/libcuda.so.1"


class CudaDriver(GpuDriver):
    """The NVIDIA GPUs of this machine. `library` stands in for libcuda in tests."""

    kind = "cuda"
    launch_end = 0
    names = {
        "launch": "cuLaunchKernel", "get_function": "cuModuleGetFunction", "unload_module": "cuModuleUnload",
        "alloc": "cuMemAlloc_v2", "free": "cuMemFree_v2", "memory_info": "cuMemGetInfo_v2",
        "memset": "cuMemsetD8_v2", "memset_later": "cuMemsetD8Async",
        "synchronize": "cuCtxSynchronize",
        "stream_create": "cuStreamCreate", "stream_destroy": "cuStreamDestroy_v2",
        "stream_synchronize": "cuStreamSynchronize", "stream_wait_event": "cuStreamWaitEvent", "stream_query": "cuStreamQuery",
        "event_create": "cuEventCreate", "event_destroy": "cuEventDestroy_v2", "event_record": "cuEventRecord",
        "event_synchronize": "cuEventSynchronize", "event_elapsed": "cuEventElapsedTime",
        "capture_begin": "cuStreamBeginCapture_v2", "capture_end": "cuStreamEndCapture",
        "graph_instantiate": "cuGraphInstantiateWithFlags", "graph_launch": "cuGraphLaunch",
        "graph_destroy": "cuGraphExecDestroy", "graph_free": "cuGraphDestroy",
    }  # fmt: skip

    def __init__(self, library: Any = None):
        name = "libcuda"
        if library is None:
            library, name, failures = find_library(library_names())
            if library is None:
                tried = "".join(f"\n  looked for {f}" for f in failures)
                raise DeviceError(
                    f"no NVIDIA GPU was found: libcuda could not be loaded{tried}",
                    hint='it comes with the NVIDIA driver; build for "llvm" to run on the CPU',
                )
        self._cdll = library
        super().__init__(Library(library, name, _PROTOTYPES, self._describe, "TEC_CUDA_LIBRARY"))
        self._contexts: dict[int, int] = {}
        self._devices: dict[int, int] = {}
        status = self.lib.function("cuInit")(0)
        self._none = status == _NO_DEVICE
        if status and not self._none:
            raise DeviceError(
                f"no NVIDIA GPU was found: cuInit failed: {self._describe(status)}",
                hint=self.lib.shadowed
                or "nvidia-smi tells whether the driver and its kernel module are of one version; in a container, give it the GPU (--gpus all)",
            )
        self._one_device = self.device_count() == 1

    def _describe(self, status: int) -> str:
        texts = []
        for name in ("cuGetErrorName", "cuGetErrorString"):
            function = getattr(self._cdll, name, None)
            if function is None:  # a library that is no driver's
                texts.append("?")
                continue
            function.argtypes, function.restype = [c_int, c_void_p], c_int
            text = c_char_p()
            texts.append("?" if function(status, byref(text)) else (text.value or b"?").decode(errors="replace"))
        lost = "; the process must be started again to use the device" if status in _STICKY else ""
        return f"{texts[0]} ({status}): {texts[1]}{lost}"

    def device_count(self) -> int:
        if self._none:
            return 0
        count = c_int(0)
        status = self.lib.function("cuDeviceGetCount")(byref(count))
        if status == _NO_DEVICE:
            return 0
        if status:
            raise self.lib.failed("cuDeviceGetCount", status)
        return count.value

    def _device(self, ordinal: int) -> int:
        if ordinal not in self._devices:
            device = c_int()
            self.lib.call("cuDeviceGet", byref(device), ordinal)
            self._devices[ordinal] = device.value
        return self._devices[ordinal]

    def _context(self, ordinal: int) -> int:
        context = self._contexts.get(ordinal)
        if context is None:
            handle = c_void_p()
            self.lib.call("cuDevicePrimaryCtxRetain", byref(handle), self._device(ordinal))
            context = self._contexts[ordinal] = handle.value or 0
        return context

    def _activate(self, ordinal: int) -> None:
        self.lib.call("cuCtxSetCurrent", self._context(ordinal))

    # ---- what the device is

    def driver_version(self) -> tuple[int, int]:
        """The CUDA version the driver is made for: (12, 8)."""
        version = c_int(0)
        self.lib.call("cuDriverGetVersion", byref(version))
        return version.value // 1000, version.value % 1000 // 10

    def _read_attributes(self, ordinal: int) -> DeviceAttributes:
        device = self._device(ordinal)
        name = ctypes.create_string_buffer(256)
        self.lib.call("cuDeviceGetName", name, 256, device)
        total = c_size_t()
        self.lib.call("cuDeviceTotalMem_v2", byref(total), device)
        v = {}
        for key, number in _ATTRIBUTES.items():
            value = c_int(0)
            status = self.lib.function("cuDeviceGetAttribute")(byref(value), number, device)
            v[key] = 0 if status else value.value
        major, minor = self.driver_version()
        return DeviceAttributes(
            name=name.value.decode(errors="replace"),
            arch=f"sm_{v['major']}{v['minor']}",
            compute_units=v["multiprocessors"],
            lds_bytes=v["shared_bytes_optin"] or v["shared_bytes"],
            wavefront_size=v["warp"],
            total_memory_bytes=total.value,
            max_threads_per_block=v["max_threads"],
            max_block_dim=(v["block_x"], v["block_y"], v["block_z"]),
            max_grid_dim=(v["grid_x"], v["grid_y"], v["grid_z"]),
            clock_khz=v["clock_khz"],
            extra={
                "l2_bytes": v["l2_bytes"], "memory_clock_khz": v["memory_clock_khz"],
                "memory_bus_bits": v["memory_bus_bits"], "static_shared_bytes": v["shared_bytes"],
                "threads_per_multiprocessor": v["threads_per_multiprocessor"], "driver_version": f"{major}.{minor}",
            },
        )  # fmt: skip

    # ---- code

    def load_module(self, ordinal: int, image: bytes, asm: str | Assembly | None = None) -> LoadedModule:
        self._enter(ordinal)
        status, handle, log = self._load(image)
        asked = _VERSION_LINE.search(image)
        if status == _UNSUPPORTED_PTX and asked is not None:
            for version in self._older_versions(int(asked[2]), int(asked[3])):
                status, handle, log = self._load(_VERSION_LINE.sub(rb"\g<1>%d.%d" % version, image, count=1))
                if status != _UNSUPPORTED_PTX:
                    break
        if status:
            raise self._load_error(ordinal, status, log, asked)
        return LoadedModule(handle, ordinal)

    def _load(self, image: bytes) -> tuple[int, int, str]:
        """(status, handle, error log)"""
        handle = c_void_p()
        log = ctypes.create_string_buffer(_LOG_BYTES)
        options = {_JIT_ERROR_LOG: ctypes.addressof(log), _JIT_ERROR_SIZE: _LOG_BYTES}
        if len(image) >= _SPLIT_BYTES and self.driver_version() >= _SPLITS_FROM:
            options[_JIT_SPLIT_COMPILE] = _SPLIT_THREADS
        keys, values = (c_int * len(options))(*options), (c_void_p * len(options))(*options.values())
        status = self.lib.function("cuModuleLoadDataEx")(byref(handle), image, len(options), keys, values)
        return status, handle.value or 0, log.value.decode(errors="replace").strip()

    def _older_versions(self, major: int, minor: int) -> Iterator[tuple[int, int]]:
        """PTX versions to try, newest first. CUDA 11.x brought PTX 7.x, 12.x 8.x, 13.x 9.x, about one a minor release."""
        cuda_major, cuda_minor = self.driver_version()
        best = (cuda_major - 4, cuda_minor)
        for m, n in ((m, n) for m in range(best[0], 5, -1) for n in range(9, -1, -1)):
            if (m, n) <= best and (m, n) < (major, minor):
                yield m, n

    def _load_error(self, ordinal: int, status: int, log: str, asked: re.Match[bytes] | None) -> DeviceError:
        hint = None
        arch = self.attributes(ordinal).arch
        if status == _NO_BINARY or "is not supported" in log or ("sm_" in log and "later" in log):
            hint = f'the device is {arch}: build with tec.Target("cuda -arch={arch}")'
        if status == _UNSUPPORTED_PTX:
            major, minor = self.driver_version()
            version = f"{asked[2].decode()}.{asked[3].decode()}" if asked else "?"
            hint = f"the PTX is version {version}, the driver is made for CUDA {major}.{minor}: update the driver or build with -ptx="
        message = f"the driver could not load the code: {self._describe(status)}"
        if log:
            message += "\n  " + "\n  ".join(log.splitlines()[:20])
        return DeviceError(message, hint=hint)

    def link(self, ordinal: int, image: bytes) -> bytes:
        """PTX to machine code (cubin), by the driver's own compiler."""
        self._enter(ordinal)
        state = c_void_p()
        log = ctypes.create_string_buffer(_LOG_BYTES)
        keys = (c_int * 2)(_JIT_ERROR_LOG, _JIT_ERROR_SIZE)
        values = (c_void_p * 2)(ctypes.addressof(log), _LOG_BYTES)
        self.lib.call("cuLinkCreate_v2", 2, keys, values, byref(state))
        try:
            status = self.lib.function("cuLinkAddData_v2")(state, 1, image, len(image) + 1, b"tec", 0, None, None)
            if status:
                raise self._load_error(ordinal, status, log.value.decode(errors="replace").strip(), None)
            out, size = c_void_p(), c_size_t()
            self.lib.call("cuLinkComplete", state, byref(out), byref(size))
            return ctypes.string_at(out.value or 0, size.value)
        finally:
            self.lib.call("cuLinkDestroy", state)

    def function_resources(self, function: LoadedFunction) -> dict[str, int]:
        """Registers a thread, local (spill) bytes a thread, static shared bytes and most threads a block of a kernel."""
        out = {}
        for name, number in (
            ("registers", _FUNC_REGISTERS), ("local_bytes", _FUNC_LOCAL_BYTES),
            ("static_shared_bytes", _FUNC_STATIC_SHARED), ("max_threads", _FUNC_MAX_THREADS),
        ):  # fmt: skip
            value = c_int(0)
            self._enter(function.ordinal)
            self.lib.call("cuFuncGetAttribute", byref(value), number, function.handle)
            out[name] = value.value
        return out

    def get_function(self, module: LoadedModule, name: str) -> LoadedFunction:
        function = super().get_function(module, name)
        static = self.function_resources(function)["static_shared_bytes"]
        function.shared_limit = max(0, (48 << 10) - static)
        if hasattr(self._cdll, "cuTensorMapEncodeTiled"):
            function.encode_tensor_map = self._encode_tensor_map
        return function

    def prepare_launch(self, function: LoadedFunction, info: LaunchInfo, getter: Arguments) -> PreparedLaunch | None:
        """A launch made ready; None where this driver has no such call."""
        if not self._one_device or not self.lib.has("cuLaunchKernelEx"):
            return None
        self._enter(function.ordinal)
        if info.shared_bytes > function.shared_limit:
            self._allow_shared(function, info.shared_bytes)
        return prepared_launch(self, function, info, getter)

    def native_launch(self) -> NativeLaunch | None:
        native = super().native_launch()
        if native is None:
            return None
        extended = self.lib.function("cuLaunchKernelEx") if self.lib.has("cuLaunchKernelEx") else None
        # A tensor map within one block of arguments is not found by the copy engine (see LoadedFunction).
        return replace(native, launch_ex=ctypes.cast(extended, _P).value or 0 if extended else 0, by_pointers=True)

    def _encode_tensor_map(
        self,
        address: int,
        dtype: str,
        sizes: tuple[int, ...],
        strides: tuple[int, ...],
        box: tuple[int, ...],
        swizzle: bool = True,
    ) -> bytes:
        """A CUtensorMap for bulk copies of boxes with the 128-byte swizzle, or none: sizes in elements and strides in bytes, innermost
        dimension first. Of a size of 0 there is no copy, but the engine takes no such map. Raises ArgumentError where the tensor's place in memory is not what the copy engine takes."""
        rank = len(sizes)
        if dtype not in MAP_TYPES:
            raise ArgumentError(
                f"bulk copies of {dtype} are not possible", hint=f"types with tensor maps: {', '.join(MAP_TYPES)}"
            )
        if address % 16 or any(n % 16 or n <= 0 for n in strides):
            raise ArgumentError(
                f"a bulk copy needs a tensor at a multiple of 16 bytes whose rows start at such multiples; it is at {address:#x}, with strides {list(strides)} bytes",
                hint="pad the last dimension, or use a schedule without bulk copies",
            )
        raw = (c_ubyte * (128 + 64))()  # room to start at a multiple of 64
        at = -(-ctypes.addressof(raw) // 64) * 64
        u64, u32 = c_ulonglong * 5, c_uint * 5
        self.lib.call(
            "cuTensorMapEncodeTiled", at, MAP_TYPES[dtype], rank, address, u64(*(max(n, 1) for n in sizes)), u64(*(strides or (0,))), u32(*box),
            u32(*(1,) * rank), 0, _SWIZZLE_128B if swizzle else 0, _L2_PROMOTION_128B, 0,
        )  # fmt: skip
        return ctypes.string_at(at, 128)

    def _allow_shared(self, function: LoadedFunction, shared_bytes: int) -> None:
        """More than 48 KB of shared memory a block must be asked for, once a kernel."""
        limit = self.attributes(function.ordinal).lds_bytes
        static = self.function_resources(function)["static_shared_bytes"]
        if shared_bytes + static > limit:
            raise DeviceError(
                f"kernel {function.name!r} asks for {shared_bytes + static} bytes of shared memory, this device allows {limit} a block",
                hint="take smaller tiles, fewer stages of a pipeline, or a narrower type in shared memory",
            )
        self.lib.call("cuFuncSetAttribute", function.handle, _FUNC_MAX_DYNAMIC_SHARED, shared_bytes)
        function.shared_limit = shared_bytes

    def _launch_failed(
        self, function: LoadedFunction, grid: Dim3, block: Dim3, shared_bytes: int, status: int
    ) -> DeviceError:
        error = launch_error(
            self.lib, self.attributes(function.ordinal), function.name, grid, block, shared_bytes, status
        )
        if error.hint is None and status not in _STICKY:
            used = self.function_resources(function)
            threads = block[0] * block[1] * block[2]
            if threads > used["max_threads"]:
                hint = f"the kernel uses {used['registers']} registers per thread: at most {used['max_threads']} threads fit, {threads} were asked for"
                return DeviceError(error.message, hint=hint)
        return error

    # ---- copies

    def _copy(self, way: Way, ordinal: int, dst: int, src: int, nbytes: int, stream: Any) -> None:
        self._enter(ordinal)
        name = _COPIES[way]
        if stream is None:
            self.lib.call(f"cuMemcpy{name}_v2", dst, src, nbytes)
        else:
            self.lib.call(f"cuMemcpy{name}Async_v2", dst, src, nbytes, stream)

    def _enable_peer(self, ordinal: int, to: int) -> int:
        return int(self.lib.function("cuCtxEnablePeerAccess")(self._context(to), 0))

    def _copy_to_peer(self, ordinal: int, to: int, dst: int, src: int, nbytes: int, stream: Any) -> None:
        self.lib.call("cuMemcpyPeerAsync", dst, self._context(to), src, self._context(ordinal), nbytes, stream)
