"""Runs a plan on the CPU: one table of addresses and one of numbers, which the functions' machine code reads.

A function is `int32 f(void** buffers, int64_t* scalars)`. The arguments of all steps lie behind one another in two arrays; a run
with other sizes or other inputs fills them anew, by one addition. Then one call runs all steps: machine code walks a table of them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays.dtypes import itemsize
from ..arrays.ndarray import NDArray
from ..devices.device import Device, cpu
from ..devices.storage import Storage
from ..devices.stream import Event, Stream
from ..modules.cpu_code import STEP_WORDS, helpers, step_loop
from ..plans.layout import Binding
from ..plans.plan import Call, Copy, Exchange
from .direct_run import DirectRuns
from .exchanges import Collectives, bound
from .host_steps import HostSteps

if TYPE_CHECKING:
    from ..modules.function import Function
    from .network import Network


class HostEngine:
    """See the module."""

    stream: Stream | None = None

    def __init__(self, network: Network, device: Device, communicators: Mapping[str, Collectives] | None = None):
        self._communicators = {} if communicators is None else communicators
        self.plan, self.layout = network.plan, network._layout
        self.device = device
        layout = self.layout
        self._bases = np.zeros(len(layout.bases), np.int64)
        self.pointers = np.zeros(len(layout.argument_bases) + 1, np.int64)
        self._scalars = np.zeros(layout.n_scalars + 1, np.int64)
        self._functions: list[Function | None] = []
        self._keep: list[Any] = list(network._weights_on(device).values())
        self._arena: Storage | None = None
        self._staged: dict[int, Storage] = {}  # inputs that could not be read where they were, by their base
        self.binding: Binding | None = None
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
        self._reports: list[Callable[[], None]] = []
        self._run_steps = step_loop()
        self._flat = self.plan.flat
        self._addresses: dict[str, int] = {}  # of functions' code: many steps call one
        self._arguments = self.pointers.ctypes.data, self._scalars.ctypes.data
        self._steps = np.array([self._step(k, network) for k in range(len(self._flat))], np.int64)
        self._table = self._steps.ctypes.data
        self._holders = HostSteps(self, self.plan.steps) if self.plan.holders or self.plan.exchanges else None
        self.direct = DirectRuns(self)

    def _step(self, k: int, network: Network) -> tuple[int, int, int]:
        """A row of the table of steps: the addresses of the code and of its arguments."""
        step = self._flat[k]
        pointer, scalar = self.layout.calls[k]
        arguments = self._arguments[0] + 8 * pointer, self._arguments[1] + 8 * scalar
        if isinstance(step, Exchange):  # `exchange` does it; its row is never walked
            self._functions.append(None)
            return 0, *arguments
        if isinstance(step, Copy):
            self._functions.append(None)
            return helpers()["tec_copy_bytes"], *arguments
        assert isinstance(step, Call)
        self._functions.append(network.module[step.function])
        if step.function not in self._addresses:
            self._addresses[step.function] = self._code(step.function, network)
        return self._addresses[step.function], *arguments

    def _code(self, function: str, network: Network) -> int:
        """The address of a function's machine code, which the engine keeps."""
        code = network.module.cpu_function(function)
        self._keep.append(code)
        if hasattr(code, "report"):  # it calls functions of Python, and what these raise is kept for it
            self._reports.append(code.report)
        code = getattr(code, "machine_code", code)
        address = ctypes.cast(code, ctypes.c_void_p).value  # type: ignore[arg-type]
        assert address is not None
        return address

    def address(self, value: int) -> int:
        """Where a value lies in this run; of one that a loop moves, where it is at first."""
        assert self.binding is not None
        return int(self.binding.offsets[value] + self._bases[self.layout.base_of[value]])

    # ---- a run

    def start(self, binding: Binding, given: Sequence[NDArray], results: Sequence[NDArray | None]) -> None:
        self.place(binding, given, results)
        if self._holders is None:
            self.run_steps(0, len(self._steps))
        else:
            self._holders.run()
        for to, source, nbytes in self.moves(results):
            ctypes.memmove(to, source, nbytes)
        for report in self._reports:
            report()
        if not self._reports:
            self.direct.learn(binding, tuple(a.shape for a in given))

    def place(self, binding: Binding, given: Sequence[NDArray], results: Sequence[NDArray | None]) -> None:
        """Fill the tables of addresses and numbers for a run, and take its memory."""
        bases = self._bases
        self.direct.forget()
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
        bases.take(self.layout.argument_bases, out=self.pointers[:n])
        self.pointers[:n] += binding.pointers
        if binding is not self.binding:
            self._scalars[: len(binding.scalars)] = binding.scalars
            self.binding = binding

    def moves(self, results: Sequence[NDArray | None]) -> list[tuple[int, int, int]]:
        """What is copied behind the steps: outputs that are no memory of their own, each as (to, from, bytes)."""
        return [
            (r.address, self.address(self.layout.names[o.value]), r.nbytes)
            for o, base, r in zip(self.plan.outputs, self._outputs, results)
            if base is None and r is not None and r.size
        ]

    @property
    def steps(self) -> tuple[int, int] | None:
        """The address of the table of steps and their number; None where some of them stand in loops or branches."""
        return (self._table, len(self._steps)) if self._holders is None and not self._reports else None

    def run_steps(self, first: int, n: int) -> None:
        """Run calls and copies, by their numbers."""
        profile = cpu().profile
        if profile is None:
            self._run(first, n)
            return
        for k in range(first, first + n):
            function = self._functions[k]
            name = function.name if function is not None else "copy"
            profile.call(cpu(), name, lambda k=k: self._run(k, 1))  # type: ignore[misc]

    def _run(self, first: int, n: int) -> int:
        """Run steps; what failed in one of them is raised. Returns 0."""
        at, status = self._run_steps(self.table_at(first), n)
        if status:
            self.fail(first + at, status)
        return 0

    def exchange(self, step: Exchange) -> None:
        """A collective, on the values where they lie."""
        assert self.binding is not None
        arrays = []
        for name in (step.target, step.source):
            value = self.layout.names[name]
            address = self.address(value)
            storage = Storage(self.device, self.layout.nbytes(self.binding, value), address, self)
            arrays.append(
                NDArray(storage, address, self.layout.shape(self.binding, name), self.plan.values[name].dtype)
            )
        bound(step, self._communicators)(*arrays)

    def table_at(self, k: int) -> int:
        """The address of a call's or a copy's row in the table of steps."""
        return self._table + 8 * STEP_WORDS * k

    def fail(self, k: int, status: int) -> None:
        """Raise what a step's status means."""
        function = self._functions[k]
        assert function is not None
        function.failed(status)

    def _input(self, base: int, a: NDArray) -> int:
        """Where the functions read an input: where it lies, if it lies in one piece; of the caller's arrays they ask no more than whole elements."""
        if a.device.driver is None and a.is_contiguous and a.address % itemsize(a.dtype) == 0:
            return a.address
        storage = self._stage(base, a.nbytes)
        if a.device.driver is None and a.is_contiguous:
            ctypes.memmove(storage.address, a.address, a.nbytes)
        else:
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

    def drop_graphs(self) -> None:
        """A CPU has none."""

    def release(self) -> None:
        self.direct.forget()
        self._arena = None
        self._staged.clear()
