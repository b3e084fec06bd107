"""A GPU behind any driver, as the checks use it: arrays, kernels of LLVM IR, launches, times by events."""

from __future__ import annotations

import statistics
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..codegen import cache
from ..codegen.llvm_util import LLVMMachine, begin, llvm_version
from ..codegen.objects.linking import link
from ..runtime.devices.surface import Dim3, Driver

_TAIL = '\n!llvm.module.flags = !{!9000}\n!9000 = !{i32 1, !"amdhsa_code_object_version", i32 500}\n'


def code_object(chip: str, ir: str, what: str) -> bytes:
    """Kernels of LLVM IR as a linked code object, from the disk cache where they are known. Raises CodegenError where LLVM refuses them."""
    text = 'target triple = "amdgcn-amd-amdhsa"\n' + ir + _TAIL
    key = cache.key_of(text, chip, "bringup", llvm_version())
    found = cache.load(key)
    if found is None:
        found = link(
            begin(text, LLVMMachine("amdgcn-amd-amdhsa", chip), ("object",), 3, what).result()["object"], "own"
        )
        cache.store(key, found)
    return found


class Gpu:
    """One device of a driver. Arrays made within `scope` are freed at its end. `quick`: checks take small work, as for a stand-in that runs in software."""

    def __init__(self, driver: Driver, ordinal: int = 0, quick: bool = False):
        self.driver, self.ordinal, self.quick = driver, ordinal, quick
        self.attributes = driver.attributes(ordinal)
        self.chip = self.attributes.arch.split(":")[0]
        self._held: list[int] = []
        self._modules: dict[bytes, Any] = {}

    def function(self, image: bytes, name: str) -> Any:
        if image not in self._modules:
            self._modules[image] = self.driver.load_module(self.ordinal, image)
        return self.driver.get_function(self._modules[image], name)

    @contextmanager
    def scope(self) -> Iterator[None]:
        before = len(self._held)
        try:
            yield
        finally:
            while len(self._held) > before:
                self.driver.free(self.ordinal, self._held.pop())

    def empty(self, nbytes: int) -> int:
        self._held.append(self.driver.alloc(self.ordinal, max(nbytes, 4)))
        return self._held[-1]

    def array(self, values: np.ndarray) -> int:
        values = np.ascontiguousarray(values)
        address = self.empty(values.nbytes)
        self.driver.copy_to_device(self.ordinal, address, values.ctypes.data, values.nbytes)
        return address

    def read(self, address: int, like: np.ndarray) -> np.ndarray:
        out: np.ndarray = np.empty_like(like)
        self.driver.copy_from_device(self.ordinal, out.ctypes.data, address, out.nbytes)
        return out

    def launch(self, function: Any, groups: int | Dim3, threads: int | Dim3, form: str, *args: Any, lds: int = 0, stream: Any = None) -> None:  # fmt: skip
        """`form`: of the arguments, as `struct` has it, with natural alignment."""
        grid, block = ((n, 1, 1) if isinstance(n, int) else n for n in (groups, threads))
        self.driver.launch(function, grid, block, lds, struct.pack("@" + form, *args), stream)

    def synchronize(self) -> None:
        self.driver.synchronize(self.ordinal)

    def microseconds(self, work: Callable[[], None], repeats: int, before: Callable[[], None] | None = None) -> float:
        """The median of `repeats` times of `work` between two events of the default stream, after one that is not timed. `before` runs ahead of each, not timed."""
        times = []
        d, o = self.driver, self.ordinal
        start, stop = d.event_create(o), d.event_create(o)
        try:
            for k in range(repeats + (repeats > 1)):
                if before is not None:
                    before()
                d.event_record(o, start)
                work()
                d.event_record(o, stop)
                d.event_synchronize(o, stop)
                if k or repeats == 1:
                    times.append(1e3 * d.event_elapsed_ms(o, start, stop))
        finally:
            d.event_destroy(o, start)
            d.event_destroy(o, stop)
        return statistics.median(times)


def kernels(bodies: Sequence[str], declarations: Sequence[str] = (), threads: int = 1024, more: str = "") -> str:
    """A module of kernels: `bodies` are `define amdgpu_kernel void @name(...) #0 {...}`; `more`: further attributes of functions."""
    declared = "\n".join(dict.fromkeys(declarations))
    return (
        "\n".join(bodies) + f'\n{declared}\nattributes #0 = {{ "amdgpu-flat-work-group-size"="1,{threads}" {more} }}\n'
    )
