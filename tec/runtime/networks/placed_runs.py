"""Runs on a GPU that read inputs and write outputs where they lie, queued in a stream and not waited for.

The launches of a plan are a table (`launch_table`); a run writes the addresses of its arrays into it and queues it by one call. Addresses that come again, as those of
an allocator that keeps its blocks do, find the table as they left it, or a captured graph where there are many launches. Working memory is kept
from run to run: runs of one object follow one another, in whatever stream they are queued.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays.ndarray import NDArray
from ..devices.device import Device
from ..devices.storage import ALIGN, Storage
from ..devices.stream import Event, GraphCapture
from ..plans.layout import Binding
from ..plans.plan import Plan
from .launch_table import LaunchTable

if TYPE_CHECKING:
    from .network import Network

_KEPT = 16  # sets of addresses whose graphs are kept
# A launch from the table takes the host some 2 us, and a graph some 5 to 10 (H200): fewer launches are quicker queued as they are.
_FEW_LAUNCHES = 4

Key = tuple[int, tuple[int, ...]]  # a binding's number, and addresses


def serves(plan: Plan, network: Network) -> bool:
    """Whether a plan's runs can be placed: launches alone, no states, and outputs that are memory of their own."""
    outputs = [o.value for o in plan.outputs]
    own = len(set(outputs)) == len(outputs) and all(
        n in network._layout.bases and n not in plan.inputs for n in outputs
    )
    if plan.states or plan.holders or plan.exchanges or not own or set(outputs) & set(network.params):
        return False
    return all(isinstance(s, tuple) for s in network._launches().sections)


class PlacedRuns:
    """See the module. Made by `network.placed_runs(device)`; threads may share it."""

    def __init__(self, network: Network, device: Device):
        self.network, self.device = network, device
        self._layout = layout = network._layout
        launches = network._launches()
        self._table = LaunchTable(launches, network.module, device)
        self._sections: list[tuple[int, int]] = [s for s in launches.sections if isinstance(s, tuple)]
        self._count = len(launches.rows)
        number = {n: k for k, n in enumerate(layout.bases)}
        plan = network.plan
        self._ends = [number.get(n, -1) for n in (*plan.inputs, *(o.value for o in plan.outputs))]
        self._weights = network._weights_on(device)
        # Bases that are memory of this object's: the arena, and what is no weight and nobody gives.
        self._own = [k for n, k in number.items() if k not in self._ends and n not in self._weights]
        self._bases = np.zeros(len(layout.bases) + 1, np.int64)  # the last: an input that nothing reads
        for n, a in self._weights.items():
            if n in number:
                self._bases[number[n]] = a.address
        self._memory: dict[int, Storage] = {}  # by base; -1: scratch
        self._bindings: dict[tuple[tuple[str, int], ...], Binding] = {}
        self._graphs: OrderedDict[Key, GraphCapture | None] = OrderedDict()  # None: seen once
        self._filled: Key | None = None
        self._lock = threading.Lock()
        self._stream: int | None = None  # that of the last run, as a handle; None before the first
        self._behind = Event(device)
        # Few launches are queued as they are, whether their addresses come again or not.
        is_short = self._count <= _FEW_LAUNCHES
        self._captures = not is_short and device.kind == "cuda" and hasattr(device.driver, "capture_begin")
        bases, end_of = layout.argument_bases.tolist(), {base: k for k, base in enumerate(self._ends) if base >= 0}
        ends = [end_of.get(base) for base in bases]
        # Of the arguments that are addresses of inputs and outputs: the word, the place, which address.
        self._moving = [
            (w, ends[a], a) for w, a in zip(*launches.pointers.tolist()) if a < len(ends) and ends[a] is not None
        ]
        self._maps_move = any(m.address < len(ends) and ends[m.address] is not None for m in launches.maps)
        self._moves: dict[int, list[tuple[int, int, int]]] = {}  # by binding: the word, the place, the bytes behind it

    def binding(self, given: Sequence[Any]) -> Binding:
        """The numbers for the shapes of some inputs. Raises ArgumentError as `Network.run` does."""
        feeds = self.network._feeds
        env = feeds.sizes(feeds.arrange(list(given)))
        key = tuple(sorted(env.items()))
        found = self._bindings.get(key)
        if found is None:  # kept for good: a run knows its sizes by the binding's number
            found = self._bindings.setdefault(key, self._layout.bind(env))
        return found

    def takes(self, a: NDArray) -> bool:
        """Whether an array can be read or written where it lies."""
        return a.device is self.device and a.is_contiguous and a.address % ALIGN == 0

    def prepare(self, binding: Binding, places: tuple[int, ...]) -> None:
        """Take the memory of a run, and write all that it needs."""
        with self._lock:
            self._fill(binding, (id(binding), places))

    def run(self, binding: Binding, places: tuple[int, ...], is_replayed: bool = True) -> None:
        """Queue a run in this thread's stream. places: addresses of the inputs in order, and of all the plan's outputs; multiples of ALIGN. is_replayed: false
        where the stream is being captured, which takes no graphs and waits for no run outside: whoever launches what is captured sees to the order."""
        key = id(binding), places
        device = self.device
        is_replayed = is_replayed and device.capturing is None
        with self._lock:
            stream = device.local.stream or 0
            if stream != self._stream and is_replayed:
                self._follow(stream)
            graph = self._graphs.get(key) if self._graphs else None
            if graph is not None and is_replayed and device.profile is None:
                self._graphs.move_to_end(key)
                graph.launch()
                return
            if key != self._filled:
                self._fill(binding, key)
            if self._captures and is_replayed and device.profile is None and self._comes_again(key):
                graph = self._graphs[key] = self._captured()
                graph.launch()
                return
            for first, count in self._sections:
                self._table.run(first, count)

    def _follow(self, stream: int) -> None:
        """A run in another stream than the last one waits for that: they share working memory."""
        if self._stream is not None:
            driver: Any = self.device.driver
            index = self.device.index
            wait = getattr(driver, "stream_wait_event", None)
            driver.event_record(index, self._behind.handle, self._stream or None)
            if wait is not None:
                wait(index, stream or None, self._behind.handle)
            else:
                driver.event_synchronize(index, self._behind.handle)
        self._stream = stream

    def _fill(self, binding: Binding, key: Key) -> None:
        if key == self._filled:
            return
        if self._filled is not None and self._filled[0] == key[0] and not self._maps_move:
            words, places = self._table.words, key[1]
            for word, end, behind in self._moves_of(binding):
                words[word] = places[end] + behind
            self._filled = key
            return
        scratch = self._reserve(binding)
        bases = self._bases
        bases[self._ends] = key[1]
        addresses = np.concatenate([bases[self._layout.argument_bases] + binding.pointers, scratch])
        self._table.forget()
        self._filled = None
        self._table.fill(binding, addresses)
        self._filled = key

    def _moves_of(self, binding: Binding) -> list[tuple[int, int, int]]:
        found = self._moves.get(id(binding))
        if found is None:
            behind = binding.pointers.tolist()
            found = self._moves[id(binding)] = [(word, end, behind[a]) for word, end, a in self._moving]
        return found

    def _reserve(self, binding: Binding) -> Any:
        """Working memory for some sizes; the addresses of the scratch memory in it."""
        layout, number = self._layout, self._layout.names
        needs = {k: layout.nbytes(binding, number[layout.bases[k]]) if k else binding.arena_bytes for k in self._own}
        begins, needs[-1] = self._table.launches.scratch(binding)
        short = [k for k, n in needs.items() if k not in self._memory or self._memory[k].nbytes < n]
        if short:
            driver: Any = self.device.driver
            driver.stream_synchronize(self.device.index, self.device.local.stream)  # a run may still be under way
            self._graphs.clear()  # they hold addresses of what goes
            for k in short:
                self._memory.pop(k, None)
                self._memory[k] = Storage(self.device, max(needs[k], 1))
                if k >= 0:
                    self._bases[k] = self._memory[k].address
        return np.array(begins, np.int64) + self._memory[-1].address

    def _comes_again(self, key: Key) -> bool:
        """Whether addresses are worth a graph: those of many launches, the second time."""
        if key in self._graphs:
            return True
        self._graphs[key] = None
        if len(self._graphs) > _KEPT:
            self._graphs.popitem(last=False)
        return False

    def _captured(self) -> GraphCapture:
        graph = GraphCapture(self.device)
        with graph:
            graph.keep.append([*self._memory.values(), *self._weights.values()])
            for first, count in self._sections:
                self._table.run(first, count)
        return graph

    @property
    def nbytes(self) -> int:
        """Bytes of working memory that are held."""
        return sum(s.nbytes for s in self._memory.values())
