"""Runs a plan on a GPU: its functions are called on arrays in the executor's memory, in the executor's stream.

Inputs are copied to memory of the executor's and outputs from there, on the device, so that addresses stay as they are: where the same sizes
come a second time, the steps are captured as a graph and from then on replayed by one call (NVIDIA).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .device import Device
from .device_steps import Calls, DeviceSteps, copy, queued
from .layout import Binding
from .ndarray import NDArray
from .plan import Call, Plain, Repeat
from .storage import Storage
from .stream import Event, GraphCapture, Stream

if TYPE_CHECKING:
    from .network import Network

_MOST_CAPTURED = (
    8192  # calls in a graph, some kilobyte each: a loop of more trips takes so long that launches no longer matter
)
_KEPT = 8  # sets of sizes whose arrays and graphs are kept
_CAPTURE = threading.Lock()  # one graph is captured at a time


@dataclass(slots=True)
class _Bound:
    """The arrays of a set of sizes, and the calls on them."""

    binding: Binding
    arrays: dict[str, NDArray]
    calls: Calls
    runs: int = 0
    graph: GraphCapture | None = None


class DeviceEngine:
    """See the module."""

    def __init__(self, network: Network, device: Device):
        self.plan, self.layout = network.plan, network._layout
        self.module = network.module
        self.device = device
        self.stream = Stream(device)
        self._weights = network._weights_on(device)
        self._memory: dict[str, Storage] = {}  # by base; "" is the arena
        self._bound: OrderedDict[int, tuple[Binding, _Bound]] = OrderedDict()
        self._captures = device.kind == "cuda" and hasattr(device.driver, "capture_begin")
        self._captures = self._captures and all(isinstance(s, Repeat) and s.is_fixed for s, _ in self.plan.holders)
        self._last: list[Any] = []

    def start(self, binding: Binding, given: Sequence[NDArray], results: Sequence[NDArray | None]) -> None:
        self.stream.wait(Event(self.device).record())  # what the caller queued comes first
        growing = self.plan.growing
        states = {n: a for n, a in zip(self.plan.inputs, given) if n in growing}
        bound = self._bind(binding, states)
        with self.stream:
            for name, a in zip(self.plan.inputs, given):
                if name not in states:
                    bound.arrays[name].copyfrom(a)
            self._run(bound)
            for o, r in zip(self.plan.outputs, results):
                if r is not None:
                    bound.arrays[o.value].copyto(r)
        self._last = [given, results]  # they stay until the work on them is done

    def _run(self, bound: _Bound) -> None:
        bound.runs += 1
        if bound.graph is not None and self.device.profile is None:
            bound.graph.launch(self.stream)
            return
        # The first run loads code and plans launches; what comes a second time is worth a graph (a profiled run is none).
        if self._captures and bound.runs >= 2 and self._is_short(bound) and self.device.profile is None:
            with _CAPTURE:
                graph = GraphCapture(self.device)
                with graph:
                    self._calls(bound)
            bound.graph = graph
            graph.launch(self.stream)
            return
        self._calls(bound)

    def _is_short(self, bound: _Bound) -> bool:
        """Whether a graph of a run is worth its memory: a loop of many trips is queued as it goes."""
        return not self.plan.holders or queued(self.plan.steps, self.layout, bound.binding) <= _MOST_CAPTURED

    def _calls(self, bound: _Bound) -> None:
        if not self.plan.holders:
            for function, args in bound.calls:
                function(*args)
            return
        DeviceSteps(self.plan, self.layout, self.stream, bound.calls, bound.arrays, bound.binding).run()

    # ---- memory

    def _bind(self, binding: Binding, states: dict[str, NDArray]) -> _Bound:
        if any(self._memory.get(n) is not a.storage for n, a in states.items()):
            self.wait()
            self._bound.clear()
            self._memory.update((n, a.storage) for n, a in states.items())
        found = self._bound.get(id(binding))
        if found is not None:
            return found[1]
        layout = self.layout
        needs = {"": max(binding.arena_bytes, 1)}
        for name in layout.bases[1:]:
            if name not in self._weights and name not in states:
                needs[name] = max(layout.nbytes(binding, layout.names[name]), 1)
        if any(name not in self._memory or self._memory[name].nbytes < n for name, n in needs.items()):
            self.wait()
            self._bound.clear()  # their addresses are gone
            for name, n in needs.items():
                if name not in self._memory or self._memory[name].nbytes < n:
                    self._memory.pop(name, None)
                    self._memory[name] = Storage(self.device, n)
        arrays: dict[str, NDArray] = {}
        for k, (name, v) in enumerate(self.plan.values.items()):
            base = layout.bases[layout.base_of[k]]
            storage = self._weights[base].storage if base in self._weights else self._memory[base]
            begin = self._weights[base].address if base in self._weights else storage.address
            arrays[name] = NDArray(
                storage,
                begin + int(binding.offsets[k]),
                layout.shape(binding, name),
                v.dtype,
                layout.strides_of(binding, name),
            )
        calls = [self._call(k, step, binding, arrays) for k, step in enumerate(self.plan.flat)]
        bound = _Bound(binding, arrays, calls)
        self._bound[id(binding)] = (binding, bound)
        if len(self._bound) > _KEPT:
            self._bound.popitem(last=False)
        return bound

    def _call(self, k: int, step: Plain, binding: Binding, arrays: dict[str, NDArray]) -> tuple[Any, list[Any]]:
        """A step as a function and its arguments."""
        if not isinstance(step, Call):
            return copy, [arrays[step.target], arrays[step.source]]
        numbers = iter(binding.scalars[self.layout.calls[k][1] :].tolist())
        return self.module[step.function], [arrays[a] if isinstance(a, str) else next(numbers) for a in step.args]

    def wait(self) -> None:
        self.stream.sync()
        self._last = []

    def event(self) -> Event | None:
        return Event(self.device).record(self.stream)

    @property
    def nbytes(self) -> int:
        return sum(s.nbytes for n, s in self._memory.items() if n not in self.plan.growing)

    def release(self) -> None:
        self.wait()
        self._bound.clear()
        self._memory.clear()
