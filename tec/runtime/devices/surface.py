"""The driver surface: the few calls everything above a GPU driver is written against.

libamdhip64 (`hip_driver.py`), libcuda (`cuda_driver.py`) and the software GPU (`tec.emulator`) each implement `Driver`; module loading,
kernarg packing, NDArrays, streams, events and profiling above this line are the same code for all of them.
Addresses are plain integers; handles are opaque to the caller. Every method raises `DeviceError` (or a child of it)
on failure and leaves the device usable. Handles passed in belong to the same driver and ordinal.

A driver may have more, which the runtime uses where it is there: `exact_alloc = True` (no caching above it),
`stream_wait_event(ordinal, stream, event)`, `copy_to_peer(ordinal, to, dst, src, nbytes, stream)` to another of its devices, graphs (`capture_begin(ordinal, stream)`, `capture_end(ordinal, stream) ->
graph`, `graph_launch(ordinal, graph, stream)`, `graph_destroy(ordinal, graph)`), `native_launch() -> NativeLaunch | None`, and for profiles `set_counting(ordinal,
on)` and `last_counters(ordinal) -> dict` (numbers of the last launch by name; "time_ns" is the driver's own time).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any, Protocol

from ...records import dataclass

Dim3 = tuple[int, int, int]
# The assembly text that a kernel is in, by the kernel's name; it may be compiled on this call.
Assembly = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class DeviceAttributes:
    """What a device says of itself. Sizes are in bytes, clocks in kHz; 0 where a driver does not say."""

    name: str
    arch: str  # "gfx942", "sm_90", or the host CPU's name
    compute_units: int
    lds_bytes: int  # shared memory per work-group
    wavefront_size: int
    total_memory_bytes: int
    max_threads_per_block: int
    max_block_dim: Dim3 = (1024, 1024, 1024)
    max_grid_dim: Dim3 = (2**31 - 1, 65535, 65535)
    clock_khz: int = 0
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NativeLaunch:
    """A driver library's launch functions by their addresses, for machine code that calls them. `launch` takes what cuLaunchKernel takes; `launch_ex` what
    cuLaunchKernelEx takes, 0 where there is none. `by_pointers`: arguments are handed over one by one, else as one block in an `extra` array that `end` ends."""

    launch: int
    launch_ex: int
    by_pointers: bool
    end: int


class Driver(Protocol):
    """One driver, all its devices (`ordinal` counts from 0)."""

    kind: str  # "hip", "cuda", "emu"

    def device_count(self) -> int: ...
    def attributes(self, ordinal: int) -> DeviceAttributes: ...

    # Code. `image` is a linked code object (AMD) or PTX text (NVIDIA); `asm` is its assembly where it is kept, or what gives it.
    def load_module(self, ordinal: int, image: bytes, asm: str | Assembly | None = None) -> Any: ...
    def get_function(self, module: Any, name: str) -> Any: ...
    def unload_module(self, module: Any) -> None: ...

    # Memory.
    def alloc(self, ordinal: int, nbytes: int) -> int: ...
    def free(self, ordinal: int, address: int) -> None: ...
    def memory_info(self, ordinal: int) -> tuple[int, int]: ...  # (free, total) bytes
    def copy_to_device(self, ordinal: int, dst: int, src_host: int, nbytes: int, stream: Any = None) -> None: ...
    def copy_from_device(self, ordinal: int, dst_host: int, src: int, nbytes: int, stream: Any = None) -> None: ...
    def copy_on_device(self, ordinal: int, dst: int, src: int, nbytes: int, stream: Any = None) -> None: ...
    def memset(self, ordinal: int, dst: int, byte: int, nbytes: int, stream: Any = None) -> None: ...

    # Work. `kernargs` is the packed argument block (natural alignment, in parameter order; no hidden arguments).
    # `block` counts threads; `grid` counts work-groups. Launches are asynchronous until a synchronise.
    def launch(
        self, function: Any, grid: Dim3, block: Dim3, shared_bytes: int, kernargs: bytes, stream: Any = None
    ) -> None: ...
    def synchronize(self, ordinal: int) -> None: ...
    def stream_create(self, ordinal: int) -> Any: ...
    def stream_destroy(self, ordinal: int, stream: Any) -> None: ...
    def stream_synchronize(self, ordinal: int, stream: Any) -> None: ...
    def event_create(self, ordinal: int) -> Any: ...
    def event_destroy(self, ordinal: int, event: Any) -> None: ...
    def event_record(self, ordinal: int, event: Any, stream: Any = None) -> None: ...
    def event_synchronize(self, ordinal: int, event: Any) -> None: ...
    def event_elapsed_ms(self, ordinal: int, start: Any, stop: Any) -> float: ...
