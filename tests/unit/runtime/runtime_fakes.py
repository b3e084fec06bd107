"""A driver in Python for tests: real host memory, kernels as Python functions, everything recorded."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from tec.errors import DeviceError
from tec.runtime.devices import device as devices
from tec.runtime.devices.surface import DeviceAttributes

Kernel = Callable[["FakeDriver", tuple[int, int, int], tuple[int, int, int], bytes], None]


class FakeDriver:
    """Implements the driver surface. `kernels` maps names to Python functions; `calls` records what was asked."""

    def __init__(
        self,
        kernels: dict[str, Kernel] | None = None,
        *,
        total: int = 1 << 30,
        arch: str = "gfx942",
        kind: str = "fake",
    ):
        self.kind = kind
        self.kernels = kernels or {}
        self.total = total
        self.arch = arch
        self.calls: list[tuple[Any, ...]] = []
        self.memory: dict[int, Any] = {}
        self.used = 0
        self.clock = 0.0

    def device_count(self) -> int:
        return 1

    def attributes(self, ordinal: int) -> DeviceAttributes:
        return DeviceAttributes("Fake", self.arch, 4, 65536, 64, self.total, 1024)

    def load_module(self, ordinal: int, image: bytes, asm: Any = None) -> Any:
        self.calls.append(("load", image, asm))
        return image

    def get_function(self, module: Any, name: str) -> Any:
        if name not in self.kernels:
            raise DeviceError(f"no kernel {name}")
        return name

    def unload_module(self, module: Any) -> None:
        self.calls.append(("unload", module))

    def alloc(self, ordinal: int, nbytes: int) -> int:
        if self.used + nbytes > self.total:
            raise DeviceError("fake: out of memory")
        raw = np.zeros(nbytes + 256, np.uint8)
        address = (raw.ctypes.data + 255) & -256
        self.memory[address] = (raw, nbytes)
        self.used += nbytes
        self.calls.append(("alloc", nbytes))
        return address

    def free(self, ordinal: int, address: int) -> None:
        self.used -= self.memory.pop(address)[1]
        self.calls.append(("free", address))

    def memory_info(self, ordinal: int) -> tuple[int, int]:
        return self.total - self.used, self.total

    def _inside(self, address: int, nbytes: int) -> None:
        assert any(a <= address and address + nbytes <= a + n for a, (_, n) in self.memory.items()), "not device memory"

    def copy_to_device(self, ordinal: int, dst: int, src_host: int, nbytes: int, stream: Any = None) -> None:
        self._inside(dst, nbytes)
        self.calls.append(("h2d", nbytes, stream))
        ctypes.memmove(dst, src_host, nbytes)

    def copy_from_device(self, ordinal: int, dst_host: int, src: int, nbytes: int, stream: Any = None) -> None:
        self._inside(src, nbytes)
        self.calls.append(("d2h", nbytes, stream))
        ctypes.memmove(dst_host, src, nbytes)

    def copy_on_device(self, ordinal: int, dst: int, src: int, nbytes: int, stream: Any = None) -> None:
        self._inside(src, nbytes)
        self._inside(dst, nbytes)
        self.calls.append(("d2d", nbytes, stream))
        ctypes.memmove(dst, src, nbytes)

    def memset(self, ordinal: int, dst: int, byte: int, nbytes: int, stream: Any = None) -> None:
        self._inside(dst, nbytes)
        ctypes.memset(dst, byte, nbytes)

    def launch(
        self, function: Any, grid: Any, block: Any, shared_bytes: int, kernargs: bytes, stream: Any = None
    ) -> None:
        self.calls.append(("launch", function, grid, block, shared_bytes, kernargs, stream))
        self.kernels[function](self, grid, block, kernargs)
        self.clock += 1.0

    def synchronize(self, ordinal: int) -> None:
        self.calls.append(("sync",))

    def stream_create(self, ordinal: int) -> Any:
        return object()

    def stream_destroy(self, ordinal: int, stream: Any) -> None:
        self.calls.append(("stream_destroy",))

    def stream_synchronize(self, ordinal: int, stream: Any) -> None:
        self.calls.append(("stream_sync", stream))

    def event_create(self, ordinal: int) -> Any:
        return [0.0]

    def event_destroy(self, ordinal: int, event: Any) -> None:
        self.calls.append(("event_destroy",))

    def event_record(self, ordinal: int, event: Any, stream: Any = None) -> None:
        event[0] = self.clock

    def event_synchronize(self, ordinal: int, event: Any) -> None:
        self.calls.append(("event_sync",))

    def event_elapsed_ms(self, ordinal: int, start: Any, stop: Any) -> float:
        return float(stop[0] - start[0])

    def of(self, what: str) -> list[tuple[Any, ...]]:
        """The recorded calls of one name."""
        return [c for c in self.calls if c[0] == what]


def floats(address: int, count: int) -> np.ndarray:
    """Device memory as a float32 array."""
    return np.ctypeslib.as_array((ctypes.c_float * count).from_address(address))


def vadd(driver: FakeDriver, grid: Any, block: Any, kernargs: bytes) -> None:
    """C = A + B over n float32: kernargs are A, B, C, int32 n."""
    a, b, c, n = struct.unpack("<QQQi", kernargs)
    assert grid[0] * block[0] >= n
    floats(c, n)[:] = floats(a, n) + floats(b, n)


def scale(driver: FakeDriver, grid: Any, block: Any, kernargs: bytes) -> None:
    """B = A * f: kernargs are A, B, float32 f, int32 n."""
    a, b, f, n = struct.unpack("<QQfi", kernargs)
    floats(b, n)[:] = floats(a, n) * np.float32(f)


def fake_device(kernels: dict[str, Kernel] | None = None, kind: str = "rocm", **options: Any) -> devices.Device:
    """A fresh device over a fresh fake driver."""
    return devices.custom(FakeDriver(kernels, **options), kind)


def tensor(name: str, shape: list[Any], dtype: str = "float32", writes: bool = False, **extra: Any) -> dict[str, Any]:
    """A tensor parameter of a signature."""
    return {
        "name": name,
        "kind": "tensor",
        "dtype": dtype,
        "shape": shape,
        "strides": None,
        "writes": writes,
        "align": 4,
        **extra,
    }


def scalar(name: str, dtype: str) -> dict[str, Any]:
    return {"name": name, "kind": "scalar", "dtype": dtype}


VADD_SIGNATURE = {
    "params": [tensor("A", ["n"]), tensor("B", ["n"]), tensor("C", ["n"], writes=True)],
    "implicit": [{"name": "n", "dtype": "int32"}],
}
VADD_PROGRAM = [
    {
        "op": "launch",
        "kernel": "vadd",
        "grid": [["floordiv", ["add", "n", 63], 64], 1, 1],
        "block": [64, 1, 1],
        "dyn_shared": 0,
        "args": [{"buffer": "A"}, {"buffer": "B"}, {"buffer": "C"}, {"scalar": "n", "dtype": "int32"}],
    }
]
