"""Runs a plan on the CPU: one table of addresses and one of numbers, which the functions' machine code reads.

A function is `int32 f(void** buffers, int64_t* scalars)`. The arguments of all calls lie behind one another in two arrays; a run
with other sizes or other inputs fills them anew, by one addition, and then only calls.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .cpu_code import POINTERS
from .device import Device, cpu
from .layout import Binding
from .ndarray import NDArray
from .plan import Call, Copy
from .storage import ALIGN, Storage
from .stream import Event

if TYPE_CHECKING:
    from .function import Function
    from .network import Network

Step = tuple[Callable[[int, int], int], int, int]  # code, and the addresses of its arguments


class HostEngine:
    """See the module."""

    def __init__(self, network: Network, device: Device):
        self.plan, self.layout = network.plan, network._layout
        self.device = device
        layout = self.layout
        self._bases = np.zeros(len(layout.bases), np.int64)
        self._pointers = np.zeros(len(layout.argument_bases) + 1, np.int64)
        self._scalars = np.zeros(layout.n_scalars + 1, np.int64)
        self._functions: list[Function | None] = []
        self._keep: list[Any] = list(network._weights_on(device).values())
        self._arena: Storage | None = None
        self._staged: dict[int, Storage] = {}  # inputs that could not be read where they were, by their base
        self._binding: Binding | None = None
        number = {name: k for k, name in enumerate(layout.bases)}
        for name, array in network._weights_on(device).items():
            if name in number:
                self._bases[number[name]] = array.address
        self._inputs = [number.get(n) for n in self.plan.inputs]
        values = self.plan.values
        self._outputs = [number.get(o.value) if values[o.value].place == "output" else None for o in self.plan.outputs]
        made = set(self._outputs)
        # Outputs in name only: nobody is given them.
        self._own = [k for n, k in number.items() if k and values[n].place == "output" and k not in made]
        self._steps = [self._step(k, network) for k in range(len(self.plan.steps))]

    def _step(self, k: int, network: Network) -> Step:
        step = self.plan.steps[k]
        pointer, scalar = self.layout.calls[k]
        p = self._pointers.ctypes.data + 8 * pointer
        s = self._scalars.ctypes.data + 8 * scalar
        if isinstance(step, Copy):
            self._functions.append(None)
            return self._copy(step), p, s
        assert isinstance(step, Call)
        function = network.module[step.function]
        self._functions.append(function)
        code = network.module.cpu_function(step.function)
        self._keep.append(code)
        return POINTERS(ctypes.cast(code, ctypes.c_void_p).value), p, s  # type: ignore[arg-type]

    def _copy(self, step: Copy) -> Callable[[int, int], int]:
        source, target = self.layout.names[step.source], self.layout.names[step.target]

        def copy(_: int, __: int) -> int:
            assert self._binding is not None
            nbytes = self.layout.nbytes(self._binding, target)
            ctypes.memmove(self._address(target), self._address(source), nbytes)
            return 0

        return copy

    def _address(self, value: int) -> int:
        assert self._binding is not None
        return int(self._binding.offsets[value] + self._bases[self.layout.base_of[value]])

    # ---- a run

    def start(self, binding: Binding, given: Sequence[NDArray], results: Sequence[NDArray | None]) -> None:
        bases = self._bases
        if self._arena is None or self._arena.nbytes < binding.arena_bytes:
            self._arena = None  # before the new one is taken
            self._arena = Storage(self.device, max(binding.arena_bytes, 1))
            bases[0] = self._arena.address
        for base, a in zip(self._inputs, given):
            if base is not None:
                bases[base] = self._input(base, a)
        for base, r in zip(self._outputs, results):
            if base is not None and r is not None:
                bases[base] = r.address
        for base in self._own:
            nbytes = self.layout.nbytes(binding, self.layout.names[self.layout.bases[base]])
            bases[base] = self._stage(base, nbytes).address
        n = len(binding.pointers)
        np.add(binding.pointers, bases[self.layout.argument_bases], out=self._pointers[:n])
        if binding is not self._binding:
            self._scalars[: len(binding.scalars)] = binding.scalars
            self._binding = binding
        profile = cpu().profile
        if profile is None:
            for code, p, s in self._steps:
                if code(p, s):
                    self._again(code, p, s)
        else:
            for (code, p, s), function in zip(self._steps, self._functions):
                name = function.name if function is not None else "copy"
                if profile.call(cpu(), name, lambda code=code, p=p, s=s: code(p, s)):  # type: ignore[misc]
                    self._again(code, p, s)
        for o, base, r in zip(self.plan.outputs, self._outputs, results):
            if base is None and r is not None and r.size:
                ctypes.memmove(r.address, self._address(self.layout.names[o.value]), r.nbytes)

    def _again(self, code: Any, p: int, s: int) -> None:
        """A step failed: say what. A failed function has no effect beyond its outputs, so it may be asked once more for its status."""
        at = next(k for k, step in enumerate(self._steps) if step[1:] == (p, s) and step[0] is code)
        function, status = self._functions[at], code(p, s)
        assert function is not None
        if status:
            function._fail(status)

    def _input(self, base: int, a: NDArray) -> int:
        if a.device.driver is None and a.is_contiguous and a.address % ALIGN == 0:
            return a.address
        storage = self._stage(base, a.nbytes)
        NDArray(storage, storage.address, a.shape, a.dtype).copyfrom(a)
        return storage.address

    def _stage(self, base: int, nbytes: int) -> Storage:
        storage = self._staged.get(base)
        if storage is None or storage.nbytes < nbytes:
            storage = self._staged[base] = Storage(self.device, max(nbytes, 1))
        return storage

    def wait(self) -> None:
        return

    def event(self) -> Event | None:
        return None

    @property
    def nbytes(self) -> int:
        held = sum(s.nbytes for s in self._staged.values())
        return held + (self._arena.nbytes if self._arena is not None else 0)

    def release(self) -> None:
        self._arena = None
        self._staged.clear()
