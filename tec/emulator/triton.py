"""Triton's kernels on the software GPU: a driver for Triton, so that `kernel[grid](...)` runs on arrays of NumPy and tensors of torch on the CPU.

    import tec.emulator.triton
    tec.emulator.triton.install("gfx942", check="race,init")
    add[(grid,)](x, y, out, n, BLOCK=1024)          # x, y, out: torch CPU tensors or NumPy arrays

`install` makes the driver Triton's active one; `uninstall` takes it away again. What a launch reads and writes is copied to the device before it and back
after it, whole storages, so that views and strides are right. A fault is a `KernelFault` that names the line of the Triton function. Autotuning and
`triton.testing.do_bench` take the time that the time model gives the chip. Tried with Triton 3.9, which compiles for AMD's chips without their hardware.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from tec.errors import ArgumentError

from ..runtime.arrays.dtypes import to_bfloat16
from ..target import CHIPS
from . import get_driver
from .driver import EmuDriver
from .modules import EmuFunction, EmuModule

_SCALARS: dict[str, Any] = {
    "i1": np.int8, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "u1": np.uint8, "u8": np.uint8, "u16": np.uint16,
    "u32": np.uint32, "u64": np.uint64, "fp32": np.float32, "f32": np.float32, "fp64": np.float64, "fp16": np.float16,
}  # fmt: skip


class ElementType:
    """A NumPy dtype that is told apart from others by its name, everywhere.

    Triton keeps the type that it made of a dtype by the dtype's hash alone, and NumPy's hash is of kind, size and alignment: all
    8-bit floats but one, and the 4-bit integers, have the same.
    """

    def __init__(self, dtype: np.dtype[Any]):
        self.dtype = dtype

    def __getattr__(self, name: str) -> Any:
        if name == "dtype":  # of an object that is being copied
            raise AttributeError(name)
        return getattr(self.dtype, name)

    def __str__(self) -> str:
        return str(self.dtype)

    __repr__ = __str__

    def __hash__(self) -> int:
        return hash(("element type", str(self.dtype)))

    def __eq__(self, other: object) -> bool:
        return self.dtype == (other.dtype if isinstance(other, ElementType) else other)


class NumpyTensor:
    """A NumPy array with what Triton asks of a tensor."""

    def __init__(self, value: np.ndarray[Any, Any]):
        self.value, self.dtype = value, ElementType(value.dtype)

    def data_ptr(self) -> int:
        return int(self.value.ctypes.data)


class _Storage:
    """The memory that one or more arguments lie in: on the host, and its copy on the device while a kernel runs."""

    def __init__(self, driver: EmuDriver, low: int, count: int):
        self.driver, self.low, self.count = driver, low, count
        self.address = driver.alloc(0, max(1, count))
        driver.copy_to_device(0, self.address, low, count)

    def copy_back(self) -> None:
        self.driver.copy_from_device(0, self.low, self.address, self.count)

    def free(self) -> None:
        self.driver.free(0, self.address)


def _span(value: Any) -> tuple[int, int]:
    """Address and bytes of the storage that a tensor or an array lies in."""
    if isinstance(value, NumpyTensor):
        owner = value.value
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        low, high = np.lib.array_utils.byte_bounds(owner)
        return low, high - low
    if value.device.type != "cpu":
        raise ArgumentError(f"a tensor on {value.device}, and the kernel runs on the software GPU", hint="x.cpu()")
    storage = value.untyped_storage()
    return storage.data_ptr(), storage.nbytes()


class _Launcher:
    """What Triton calls to launch a compiled kernel (`launcher_cls`)."""

    def __init__(self, driver: TritonDriver, src: Any, metadata: Any):
        self.driver, self.metadata = driver, metadata
        self.signature = list(src.signature.values())
        if getattr(metadata, "tensordesc_meta", None):
            raise ArgumentError(
                "descriptors that the copy engine reads are not modelled", hint="make them in the kernel"
            )

    def __call__(
        self, grid_x: int, grid_y: int, grid_z: int, stream: int, function: EmuFunction, packed: Any, launch_metadata: Any,
        enter: Callable[..., None] | None, leave: Callable[..., None] | None, *args: Any,
    ) -> None:  # fmt: skip
        """What Triton's generated launcher does: pack the arguments and launch. Tensors of the host are copied to the device and back where they are none of
        its memory."""
        if not grid_x * grid_y * grid_z:
            return
        if enter is not None:
            enter(launch_metadata)
        driver, meta = self.driver.emulated, self.metadata
        held: dict[tuple[int, int], _Storage] = {}
        scratch: list[int] = []
        try:
            values: list[bytes] = []
            for kind, value in _flat(self.signature, args):
                if kind[0] == "*":
                    values.append(self._pointer(value, held).to_bytes(8, "little"))
                else:
                    values.append(_scalar(kind, value))
            wanted = function.info.explicit_args
            for size in (getattr(meta, "global_scratch_size", 0), getattr(meta, "profile_scratch_size", 0)):
                if len(values) < len(wanted):
                    if size:
                        scratch.append(driver.alloc(0, size * grid_x * grid_y * grid_z))
                    values.append((scratch[-1] if size else 0).to_bytes(8, "little"))
            data = bytearray(function.info.explicit_bytes)
            for arg, word in zip(wanted, values, strict=True):
                data[arg.offset : arg.offset + arg.size] = word[: arg.size]
            block = meta.num_warps * meta.warp_size
            driver.launch(function, (grid_x, grid_y, grid_z), (block, 1, 1), meta.shared, bytes(data))
            for storage in held.values():
                storage.copy_back()
        finally:
            for storage in held.values():
                storage.free()
            for address in scratch:
                driver.free(0, address)
        if leave is not None:
            leave(launch_metadata)

    def _pointer(self, value: Any, held: dict[tuple[int, int], _Storage]) -> int:
        if value is None or isinstance(value, int):
            return int(value or 0)
        if hasattr(value, "base") and not isinstance(value, NumpyTensor) and hasattr(value.base, "untyped_storage"):
            value = value.base  # triton.reinterpret(tensor, dtype)
        low, count = _span(value)
        storage = held.get((low, count))
        if storage is None:
            storage = held[low, count] = _Storage(self.driver.emulated, low, count)
        return storage.address + int(value.data_ptr()) - low


def _flat(kinds: Iterable[Any], values: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """The kernel's parameters with their types: the elements of tuples, the parts of tensor descriptors, no compile-time values."""
    for kind, value in zip(kinds, values, strict=True):
        if isinstance(kind, tuple):
            yield from _flat(kind, value)
        elif kind.startswith("tensordesc"):
            yield "*", value.base
            sizes = [("i64", n) for n in (*value.shape, *value.strides)]
            yield from sizes
            yield "i1", value.padding == "nan"
            if hasattr(value, "round_f32_to_tf32"):  # releases before 3.9 have no such parameter
                yield "i1", value.round_f32_to_tf32
            yield from (("i32", n) for n in value.shape)  # once more, for what is not lowered with the descriptor
            yield from sizes[len(value.shape) :]
        elif kind != "constexpr":
            yield kind, value


def _scalar(kind: str, value: Any) -> bytes:
    """A number as the bytes of an argument of Triton's type."""
    if kind == "bf16":
        return to_bfloat16(float(value)).to_bytes(2, "little")
    if kind not in _SCALARS:
        raise ArgumentError(
            f"an argument of type {kind} is not taken on the software GPU",
            hint="tensors of torch, arrays of NumPy and tec, and numbers",
        )
    return bytes(np.asarray(value).astype(_SCALARS[kind]).tobytes())


class TritonDriver:
    """Triton's driver interface (`triton.backends.driver.DriverBase`) over one software GPU. `utils` is itself."""

    def __init__(self, chip: str = "gfx942", check: str | Iterable[str] = "bounds"):
        self.emulated = get_driver(chip, check=check)
        self.chip = chip
        self.text: str | None = None  # the assembly of what is loaded next
        self.utils = self

    @staticmethod
    def is_active() -> bool:
        return True

    def launcher_cls(self, src: Any, metadata: Any) -> _Launcher:
        return _Launcher(self, src, metadata)

    # Devices and streams. Triton keeps what it compiled by the device's number, so every software GPU has one of its own.
    def get_current_device(self) -> int:
        return _numbers.setdefault(self.emulated, len(_numbers))

    def set_current_device(self, device: int) -> None:
        if device != self.get_current_device():
            raise ArgumentError(
                f"no emulated device {device}: there is one, number {self.get_current_device()}", hint="device 0 alone"
            )

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("hip", self.chip, CHIPS[self.chip].wavefront_sizes[0])

    def get_active_torch_device(self) -> Any:
        return sys.modules["torch"].device("cpu")  # who asks has tensors

    def get_device_interface(self) -> Any:
        return sys.modules["torch"].cpu

    def map_python_to_cpp_type(self, ty: str) -> str:
        raise NotImplementedError("nothing is compiled for the host here")

    def get_benchmarker(self) -> Callable[..., Any]:
        """What autotuning times configurations with: `self.milliseconds`."""
        return self.milliseconds

    def milliseconds(
        self, call: Callable[[], Any], warmup: Any = None, rep: Any = None, grad_to_none: Any = None,
        quantiles: list[float] | None = None, return_mode: str = "mean", **_: Any,
    ) -> Any:  # fmt: skip
        """The time that the launches of one `call` take on the chip, by the time model: in the place of `triton.testing.do_bench`."""
        times: list[float] = []
        driver, before = self.emulated, self.emulated.observer

        def observe(*launch: Any) -> None:
            times.append(launch[4].microseconds)
            if before is not None:
                before(*launch)

        driver.observer = observe
        try:
            call()
        finally:
            driver.observer = before
        ms = sum(times) / 1e3
        return [ms] * len(quantiles) if quantiles else [ms] if return_mode == "all" else ms

    def get_empty_cache_for_benchmark(self) -> Any:
        return np.zeros(1, np.int32)

    def clear_cache(self, cache: Any) -> None:
        cache.fill(0)

    # Triton's `utils`.
    def get_device_properties(self, device: int = 0) -> dict[str, Any]:
        found = self.emulated.attributes(0)
        return {
            "arch": found.arch, "warpSize": found.wavefront_size, "max_shared_mem": found.lds_bytes,
            "multiprocessor_count": found.compute_units, "sm_clock_rate": found.clock_khz, "max_num_regs": 65536,
            "mem_clock_rate": found.clock_khz, "mem_bus_width": 1024, "cooperativeLaunch": False,
        }  # fmt: skip

    def load_binary(self, name: str, image: bytes, shared: int, device: int) -> tuple[Any, Any, int, int, int]:
        """Module, function, registers, spills, most threads of a group."""
        module = self.emulated.load_module(0, image, self.text)
        function = self.emulated.get_function(module, name)
        return module, function, function.info.vgprs, function.info.vgpr_spills, 1024

    def unload_module(self, module: EmuModule) -> None:
        self.emulated.unload_module(module)


_numbers: dict[EmuDriver, int] = {}
_before: list[tuple[Any, str, Any]] = []  # what `install` replaced: object, attribute, value


def install(chip: str = "gfx942", check: str | Iterable[str] = "bounds") -> TritonDriver:
    """Make a software GPU the device of all of Triton's kernels from here on; returns the driver. Raises ImportError without Triton."""
    import triton
    import triton.testing
    from triton.compiler.compiler import CompiledKernel
    from triton.runtime.jit import JITFunction

    uninstall()
    driver = TritonDriver(chip, check)
    run, load = JITFunction.run, CompiledKernel._init_handles

    def run_with_arrays(self: Any, *args: Any, **kwargs: Any) -> Any:
        return run(self, *map(_as_tensor, args), **{k: _as_tensor(v) for k, v in kwargs.items()})

    def load_with_text(self: Any) -> Any:
        driver.text = self.asm["amdgcn"] if "amdgcn" in self.asm else None
        try:
            return load(self)
        finally:
            driver.text = None

    for target, attribute, value in (
        (JITFunction, "run", run_with_arrays),
        (CompiledKernel, "_init_handles", load_with_text),
        (triton.runtime.driver, "_active", driver),
        (triton.testing, "do_bench", driver.milliseconds),
    ):
        _before.append((target, attribute, getattr(target, attribute, None)))
        setattr(target, attribute, value)
    return driver


def uninstall() -> None:
    """Give Triton back the driver that it had. Kernels that were launched keep what was compiled for the software GPU."""
    while _before:
        target, attribute, value = _before.pop()
        setattr(target, attribute, value)


def _as_tensor(value: Any) -> Any:
    return NumpyTensor(value) if isinstance(value, np.ndarray) else value
