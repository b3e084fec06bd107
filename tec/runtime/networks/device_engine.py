"""Runs a plan on a GPU, in the executor's stream and memory: its launches are rows of a table (`launch_table`), which new sizes fill and one call queues.
A plan with loops has its functions called on arrays (`device_steps`).

Inputs are copied to memory of the executor's and outputs from there, on the device, so that addresses stay as they are: where the same sizes
come a second time, the steps are captured as a graph and from then on replayed by one call (NVIDIA).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import InternalError
from ..arrays.ndarray import NDArray
from ..devices.device import Device
from ..devices.storage import Storage
from ..devices.stream import Event, GraphCapture, Stream
from ..plans.layout import Binding
from ..plans.plan import Call, Exchange, Repeat
from ..plans.steps import burst_of
from .device_steps import Calls, DeviceSteps, copy, queued
from .exchanges import Collectives, bound
from .launch_table import LaunchTable

if TYPE_CHECKING:
    from .network import Network

# Calls in a graph, some kilobyte each: a loop of more trips takes so long that launches no longer matter.
_MOST_CAPTURED = 8192
_SCRATCH = "\0scratch"  # among the executor's memory: no value has this name
_KEPT = 8  # sets of sizes whose arrays and graphs are kept


@dataclass(slots=True)
class _Bound:
    """The arrays of a set of sizes, and the calls on them."""

    binding: Binding
    arrays: dict[str, NDArray]
    calls: Calls  # of a plan with loops all of them, else those that are no rows of the table, by their steps' numbers
    addresses: Any = None  # int64, of a plan without loops: what the table is filled with
    runs: int = 0
    graph: GraphCapture | None = None


class Settled:
    """A run whose arrays stay where they are. `arrays`: inputs and outputs that are no states, by name."""

    def __init__(self, engine: DeviceEngine, bound: _Bound):
        self.engine, self.bound = engine, bound
        self.arrays: Mapping[str, NDArray] = bound.arrays

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Settled) and self.bound is other.bound

    __hash__ = None  # type: ignore[assignment]

    def queue(self) -> None:
        """Queue a run in the thread's stream."""
        self.engine._calls(self.bound)


class DeviceEngine:
    """See the module."""

    def __init__(
        self,
        network: Network,
        device: Device,
        communicators: Mapping[str, Collectives] | None = None,
        stream: Stream | None = None,
    ):
        self._communicators = {} if communicators is None else communicators
        self.plan, self.layout = network.plan, network._layout
        self.module, self._signature = network.module, network.signature
        self.device = device
        self.stream = Stream(device) if stream is None else stream
        self._weights = network._weights_on(device)
        self._memory: dict[str, Storage] = {}  # by base; "" is the arena
        self._bound: OrderedDict[int, tuple[Binding, _Bound]] = OrderedDict()
        self._captures = device.kind == "cuda" and hasattr(device.driver, "capture_begin")
        holders = self.plan.holders  # found by a walk over all steps
        self._is_flat = not holders
        self._captures = self._captures and all(isinstance(s, Repeat) and s.is_fixed for s, _ in holders)
        self._resident = self.plan.in_place
        self._last: list[Any] = []
        self._table = LaunchTable(network._launches(), self.module, device) if self._is_flat else None
        # By their numbers: the steps that are called as functions.
        self._called_at = (
            [s for s in self._table.launches.sections if isinstance(s, int)]
            if self._table
            else range(len(self.plan.flat))
        )
        self._steps = self.plan.flat
        self._bursts = burst_of(self._steps) if self._is_flat else {}
        self._where: tuple[list[NDArray | Storage], Any] | None = None  # the memory of each base, and their addresses
        copies = (n for s in self.plan.flat if not isinstance(s, Call) for n in (s.target, s.source))
        # States that grow are neither copied in nor out.
        given = (n for n in self.plan.inputs if n not in self._resident)
        kept = self.plan.kept_values
        shown = (o.value for o in self.plan.outputs if o.value not in kept)
        self._copied = list(dict.fromkeys([*given, *shown, *copies]))
        self._ahead = Event(device)  # behind what the caller queued

    def start(self, binding: Binding, given: Sequence[NDArray], results: Sequence[NDArray | None]) -> None:
        self.stream.wait(self._ahead.record())  # what the caller queued comes first
        states = {n: a for n, a in zip(self.plan.inputs, given) if n in self._resident}
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
            graph = GraphCapture(self.device)
            with graph:
                self._calls(bound)
            bound.graph = graph
            graph.launch(self.stream)
            return
        self._calls(bound)

    def _is_short(self, bound: _Bound) -> bool:
        """Whether a graph of a run is worth its memory: a loop of many trips is queued as it goes."""
        return self._is_flat or queued(self.plan.steps, self.layout, bound.binding) <= _MOST_CAPTURED

    def _calls(self, bound: _Bound) -> None:
        table = self._table
        if table is None:
            DeviceSteps(self.plan, self.layout, self.stream, bound.calls, bound.arrays, bound.binding).run()
            return
        if self.device.capturing is not None:
            self.device.capturing.keep.append([*self._memory.values(), *self._weights.values()])
        table.fill(bound.binding, bound.addresses)
        own = iter(bound.calls)
        for section in table.launches.sections:
            if isinstance(section, tuple):
                table.run(*section)
                continue
            burst = self._bursts.get(section)
            if burst and section == burst[0]:
                step = self._steps[section]
                assert isinstance(step, Exchange)
                with self._communicators[step.axis].together():
                    for _ in burst:
                        function, args = next(own)
                        function(*args)
            elif not burst:
                function, args = next(own)
                function(*args)

    # ---- memory

    def _bind(self, binding: Binding, states: dict[str, NDArray]) -> _Bound:
        """Memory and launches for sizes, made when they are first seen; states may have grown since."""
        self._take(states)
        found = self._bound.get(id(binding))
        if found is not None:
            return found[1]
        layout = self.layout
        needs = {"": max(binding.arena_bytes, 1)}
        for name in layout.bases[1:]:
            if name not in self._weights and name not in states:
                needs[name] = max(layout.nbytes(binding, layout.names[name]), 1)
        if self._table is not None:
            scratch, needs[_SCRATCH] = self._table.launches.scratch(binding)
        if any(name not in self._memory or self._memory[name].nbytes < n for name, n in needs.items()):
            self._forget()
            for name, n in needs.items():
                if name not in self._memory or self._memory[name].nbytes < n:
                    self._memory.pop(name, None)
                    self._memory[name] = Storage(self.device, n)
        if self._where is None:
            memory = [self._weights[n] if n in self._weights else self._memory[n] for n in layout.bases]
            at = np.array([b.address for b in memory], np.int64)
            self._where = memory, at[layout.argument_bases]
        bases, starts = self._where
        arrays = self._arrays(binding, bases)
        bound = _Bound(binding, arrays, self._called(binding, bases, arrays))
        if self._table is not None:
            own = np.array(scratch, np.int64) + self._memory[_SCRATCH].address
            bound.addresses = np.concatenate([starts + binding.pointers, own])
        self._bound[id(binding)] = (binding, bound)
        if len(self._bound) > _KEPT:
            self._bound.popitem(last=False)
        return bound

    def settle(self, binding: Binding, given: Mapping[str, NDArray], lent: Mapping[str, NDArray]) -> Settled:
        """See `Executor.settle`."""
        strange = [n for n, a in lent.items() if n not in self.layout.bases or a.address != a.storage.address]
        if strange:
            raise InternalError(f"{strange[0]} has no memory of its own")
        self._take(lent)
        bound = self._bind(binding, {n: a for n, a in given.items() if n in self._resident})
        with self.stream:
            for name, a in given.items():
                if name not in self._resident and name not in lent:
                    bound.arrays[name].copyfrom(a)
        return Settled(self, bound)

    def _take(self, arrays: Mapping[str, NDArray]) -> None:
        """These values lie in the memory of these arrays from now on."""
        if any(self._memory.get(n) is not a.storage for n, a in arrays.items()):
            self._forget()
            self._memory.update((n, a.storage) for n, a in arrays.items())

    def _forget(self) -> None:
        """Addresses are gone."""
        self.wait()
        self._bound.clear()
        self._where = None
        if self._table is not None:
            self._table.forget()

    def _arrays(self, binding: Binding, bases: Sequence[NDArray | Storage]) -> dict[str, NDArray]:
        """Arrays of the values that are copied; of all where loops give the steps others at each trip."""
        return {n: self._array(binding, bases, n) for n in (self._copied if self._is_flat else self.plan.values)}

    def _array(self, binding: Binding, bases: Sequence[NDArray | Storage], name: str) -> NDArray:
        layout, k = self.layout, self.layout.names[name]
        base = bases[layout.base_of[k]]
        return NDArray(
            base.storage if isinstance(base, NDArray) else base,
            base.address + int(binding.offsets[k]),
            layout.shape(binding, name),
            self.plan.values[name].dtype,
            layout.strides_of(binding, name),
        )

    def _called(self, binding: Binding, bases: Sequence[NDArray | Storage], arrays: dict[str, NDArray]) -> Calls:
        """Functions and copies with the arrays and numbers that they are called on: all of a plan with loops, else those that are no rows of the table."""
        calls = Calls()
        for k in self._called_at:
            step = self._steps[k]
            for a in step.values:  # what is not copied has no array yet
                if a not in arrays:
                    arrays[a] = self._array(binding, bases, a)
            if isinstance(step, Exchange):
                calls.append((bound(step, self._communicators), [arrays[step.target], arrays[step.source]]))
                continue
            if not isinstance(step, Call):
                calls.append((copy, [arrays[step.target], arrays[step.source]]))
                continue
            calls.append((self.module[step.function], self._arguments(k, step, binding, arrays)))
        return calls

    def _arguments(self, k: int, step: Call, binding: Binding, arrays: Mapping[str, NDArray]) -> list[Any]:
        """What step k, a call, is called on. A parameter with strides of its own takes a view whose rows lie apart."""
        given, args = iter(binding.scalars[self.layout.calls[k][1] :].tolist()), []
        for p, name in zip(self._signature(step.function), step.args):
            if not isinstance(name, str):
                args.append(next(given))
                continue
            a, strides = arrays[name], p.strides
            if strides is not None and all(isinstance(e, int) for e in strides):
                a = NDArray(a.storage, a.address, a.shape, a.dtype, tuple(strides))
            args.append(a)
        return args

    def calls(self, binding: Binding) -> Calls:
        """The functions of a plan without loops in order, and what they are called on in a run that was bound: for who times one after another."""
        assert self._where is not None
        arrays = {n: self._array(binding, self._where[0], n) for n in self.plan.values}
        flat = enumerate(self.plan.flat)
        return [
            (self.module[s.function], self._arguments(k, s, binding, arrays)) for k, s in flat if isinstance(s, Call)
        ]

    def wait(self) -> None:
        with ExitStack() as limits:
            for communicator in self._communicators.values():
                limits.enter_context(communicator.limited())
            self.stream.sync()
        self._last = []

    def drop_graphs(self) -> None:
        """The next runs are captured anew."""
        for _, held in self._bound.values():
            held.graph = None

    def event(self) -> Event | None:
        return Event(self.device).record(self.stream)

    @property
    def nbytes(self) -> int:
        return sum(s.nbytes for n, s in self._memory.items() if n not in self._resident)

    def release(self) -> None:
        self.wait()
        self._bound.clear()
        self._memory.clear()
        self._where = None
