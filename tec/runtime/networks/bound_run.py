"""Runs of a network over arrays that stay where they are: `run = net.bind(inputs, outputs)`, then `run()`.

All that depends on the arrays is worked out when they are bound: names, types and shapes are checked, sizes known, memory taken, every address and number written into the tables that
the network's machine code reads. On a CPU a run is then one call, of the loop over the steps. Inputs are read, and outputs written, where they lie: the caller writes
new numbers into the arrays that it bound.

On a GPU a run is queued in the thread's stream, as a function of arrays is, and not waited for; what reads an output there waits. Networks with states, with loops or
branches in their plans go by an executor of their own in each run, over the same arrays; so do arrays that a GPU cannot read or write where they lie.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import ArgumentError, one_line
from ..arrays.dtypes import itemsize
from ..arrays.ndarray import NDArray
from ..devices.device import Device, cpu
from ..modules.cpu_code import answer_of, run_steps
from .executor import Executor, failed_check
from .host_engine import HostEngine
from .placed_runs import PlacedRuns

if TYPE_CHECKING:
    from .network import Network


def takes_arrays(first: Any) -> bool:
    """Whether what `Network.bind` is given first are arrays, and not sizes by their names."""
    if isinstance(first, Mapping):
        return any(hasattr(v, "__dlpack__") or isinstance(v, (list, tuple)) for v in first.values())
    return first is not None


class BoundRun:
    """A run that is ready. `run()` gives `outputs`: always the same arrays, which it has written.

    inputs, outputs: the arrays, in order. A run belongs to one thread at a time; others wait. Each has working memory of its own, of `nbytes` bytes.
    """

    def __init__(self, network: Network, device: Device, inputs: Any, outputs: Any):
        self._executor = executor = Executor(network, device)
        self._lock = threading.Lock()
        self._placed: PlacedRuns | None = None
        feeds = executor._feeds
        for name, x in _named(feeds.names, inputs):
            _check_place(name, x)
        given = feeds.arrange(inputs)
        for name, a in zip(feeds.names, given):
            if device.driver is None and (not a.is_contiguous or a.address % itemsize(a.dtype)):
                raise _elsewhere(
                    name, "does not lie in one piece, from a place that is a multiple of its elements' size"
                )
        self.inputs = list(given)
        if executor._states is not None:
            self._outputs, self._targets = [], outputs
            self._run = self._by_executor
            return
        binding = executor._binding(feeds.sizes(given, None))
        results = executor._results(binding, outputs, given)
        plan = network.plan
        ends = list(zip(plan.outputs, results))
        targets = [made if asked is None else asked for o, (made, asked) in ends if o.check is None]
        self._targets = targets
        engine = executor._engine
        self._outputs_checked = [(o, r) for o, (r, _) in ends if o.check is not None and r is not None]
        names = [o.name for o in plan.outputs if o.check is None]
        asked_for = _by_name(names, outputs)
        self._outputs = [_as_given(n, t, asked_for, device) for n, t in zip(names, targets) if t is not None]
        is_copied = any(asked is not None for _, (_, asked) in ends)
        if device.driver is not None and not is_copied and self._place([*given, *(made for _, (made, _) in ends)]):
            return
        if not isinstance(engine, HostEngine) or engine.steps is None:
            self._run = self._by_executor
            return
        engine.place(binding, given, [r for r, _ in results])
        self._engine, (self._table, self._count) = engine, engine.steps
        # Outputs that the caller's memory is not aligned enough for are written beside it, and copied.
        beside = [(made, asked) for _, (made, asked) in ends if asked is not None and made is not None]
        self._copies = [(made, asked) for made, asked in beside if not asked.is_contiguous]
        self._moves = engine.moves([r for r, _ in results])
        self._moves += [
            (asked.address, made.address, made.nbytes) for made, asked in beside if asked.is_contiguous and made.size
        ]
        self._checks = [(o, np.asarray(r)) for o, (r, _) in ends if o.check is not None and r is not None]
        self._is_plain = not (self._moves or self._copies or self._checks)
        self._steps, self._cpu = run_steps(), cpu()
        self._run = self._directly

    _run: Callable[[], list[Any]]

    def __call__(self) -> list[Any]:
        """Run the network; the outputs. Raises ArgumentError where an index that was worked out from an input is outside of what it counts in."""
        with self._lock:
            return self._run()

    def __repr__(self) -> str:
        return f"<tec.BoundRun of {self._executor.network!r} on {self._executor.device}>"

    @property
    def outputs(self) -> list[Any]:
        """The arrays that runs write: those that were given, others where none was. Empty before the first run of a network with states."""
        return list(self._outputs)

    @property
    def nbytes(self) -> int:
        """Bytes of working memory that it holds."""
        return self._executor.nbytes + (self._placed.nbytes if self._placed is not None else 0)

    def _place(self, arrays: list[NDArray | None]) -> bool:
        """Whether a GPU reads and writes the arrays where they lie; then runs are queued over them."""
        placed = self._executor.network.placed_runs(self._executor.device)
        if placed is None or not all(a is not None and placed.takes(a) for a in arrays):
            return False
        self._placed, self._binding = placed, placed.binding(self.inputs)
        self._places = tuple(a.address for a in arrays if a is not None)
        self._held = arrays
        placed.prepare(self._binding, self._places)
        self._run = self._queue
        return True

    def _queue(self) -> list[Any]:
        assert self._placed is not None
        self._placed.run(self._binding, self._places)
        for o, flags in self._outputs_checked:
            if not flags.numpy().all():
                raise failed_check(o)
        return self._outputs

    def _directly(self) -> list[Any]:
        if self._cpu.profile is not None:
            self._engine.run_steps(0, self._count)
        elif answer := self._steps(self._table, self._count):
            self._engine.fail(*answer_of(answer))
        if not self._is_plain:
            self._finish()
        return self._outputs

    def _finish(self) -> None:
        for to, source, nbytes in self._moves:
            ctypes.memmove(to, source, nbytes)
        for made, asked in self._copies:
            made.copyto(asked)
        for o, flags in self._checks:
            if not flags.all():
                raise failed_check(o)

    def _by_executor(self) -> list[Any]:
        made = self._executor.run(self.inputs, self._targets)
        if self._executor._states is not None:
            on_host = self._executor.device.driver is None
            self._outputs = [np.asarray(r) for r in made] if on_host else made
        return self._outputs


def _named(names: Sequence[str], inputs: Any) -> list[tuple[str, Any]]:
    """The inputs beside their names, as far as they are there; `Feeds.arrange` says what is missing."""
    if isinstance(inputs, Mapping):
        return [(n, inputs[n]) for n in names if n in inputs]
    return list(zip(names, inputs if isinstance(inputs, Sequence) else [inputs]))


def _check_place(name: str, x: Any) -> None:
    """ArgumentError for what has no memory that could be read in place."""
    if isinstance(x, np.ndarray):
        if not x.flags.c_contiguous or not x.flags.aligned or not x.dtype.isnative:
            raise _elsewhere(name, "does not lie in one piece, in this machine's order of bytes")
    elif not isinstance(x, NDArray) and not hasattr(x, "__dlpack__"):
        raise _elsewhere(name, f"is {type(x).__name__}, and no array")


def _elsewhere(name: str, what: str) -> ArgumentError:
    return ArgumentError(
        f"input {one_line(name)} {what}: a bound run reads its inputs where they lie",
        hint="bind a copy of it, made by np.ascontiguousarray or tec.nd.array",
    )


def _by_name(names: Sequence[str], outputs: Any) -> dict[str, Any]:
    if outputs is None:
        return {}
    return dict(outputs) if isinstance(outputs, Mapping) else dict(zip(names, outputs))


def _as_given(name: str, target: NDArray, given: Mapping[str, Any], device: Device) -> Any:
    """An output as the caller sees it: what was given; else on a CPU a NumPy array, of the memory that is written."""
    asked = given.get(name)
    if asked is not None:
        return asked
    return np.asarray(target) if device.driver is None else target
