"""Requests to one network: a queue with a limit, threads that run what waits, and batches of requests that wait together.

Requests to a network that remembers states name a sequence. Those of one sequence run one after the other in the order in which they came; those of several
run side by side.

A network is batched where the first size of all its inputs and outputs is one symbolic size. A thread that is free takes the oldest request and those behind
it whose other sizes are the same, up to `max_batch` rows; `delay_s` is how long it waits for more. Each client gets its rows of the results.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import ArgumentError, TecError
from ..runtime.arrays.dtypes import numpy_dtype
from ..runtime.networks.network import Network
from .budget import Budget
from .errors import Refusal
from .tensors import TYPES, Array

# Of a run: handing a request to a thread and back takes as long (300 us in an ASGI application, Zen 3).
_HERE_S = 200e-6
_SEQUENCES_AT_ONCE = 4  # threads of a network with states: a step alone rarely fills a processor's cores
# As long as a caller that is alone may run a request itself: what comes meanwhile waits at most for this.
_ALONE_S = 2e-3
_CROWDED = 256  # requests that are queued, so that batches form, before a caller looks again whether it is alone
MOST_SEQUENCES = 64  # of a model: each holds its states; the one that rested longest gives its place to a new one
Inputs = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Sequence:
    """Which sequence of requests one belongs to: they share what a network remembers. `start` forgets what was there, `end` gives it up after the run."""

    id: int | str
    start: bool = False
    end: bool = False


@dataclass(slots=True)
class _Waiting:
    inputs: Inputs
    rows: int
    key: tuple[Any, ...]  # what requests of one batch have in common
    future: Future[list[Array]] = field(default_factory=Future)
    sequence: Sequence | None = None  # of a network with states
    sizes: dict[str, int] = field(default_factory=dict)
    since: float = field(default_factory=time.perf_counter)


def batch_size(network: Network) -> str | None:
    """The symbolic size that is the first of all inputs and outputs; None where there is none."""
    firsts = {p["shape"][0] if p["shape"] else None for p in (*network.inputs, *network.outputs)}
    first = firsts.pop() if len(firsts) == 1 else None
    return first if isinstance(first, str) else None


def shown(network: Network, ports: Any) -> list[dict[str, Any]]:
    """The inputs or outputs that callers see: all but states."""
    states = {n for s in network.plan.states for n in (s.input, s.output)}
    return [p for p in ports if p["name"] not in states]


class Closing(Refusal):
    """The batcher takes no more requests."""


class Batcher:
    """See the module. `submit(inputs)` gives a future of the outputs; `ran` is told (requests, rows, seconds) of each run. `inputs` and `outputs`: what callers
    give and get, without states. budget: of memory, which refuses requests and bounds batches. threads: runs at the same time; of a network with states at least as many as there are cores, up to four."""

    def __init__(
        self,
        network: Network,
        *,
        max_batch: int = 32,
        delay_s: float = 0.0,
        queue: int = 256,
        threads: int = 1,
        ran: Callable[[int, int, float], None] = lambda requests, rows, seconds: None,
        budget: Budget | None = None,
    ):
        self.network, self.max_batch, self.delay_s, self.limit, self._ran = (
            network,
            max(1, max_batch),
            delay_s,
            queue,
            ran,
        )
        self.has_states = bool(network.plan.states)
        self.inputs, self.outputs = shown(network, network.inputs), shown(network, network.outputs)
        self._ports = [(p["name"], p["shape"], numpy_dtype(p["dtype"]), p["dtype"]) for p in self.inputs]
        self._names = [p["name"] for p in self.inputs]
        self.batched = batch_size(network) is not None and max_batch > 1 and not self.has_states
        self._first = batch_size(network)
        self._budget = budget
        # Executors, by sequence; the one that rested longest first.
        self._sequences: OrderedDict[int | str, Any] = OrderedDict()
        self._going: set[int | str] = set()  # sequences of which a request runs
        self._waiting: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._seconds = float("inf")  # of the last run
        self._crowded = 0  # requests that will still be queued
        least = min(_SEQUENCES_AT_ONCE, len(os.sched_getaffinity(0))) if self.has_states else 1
        self._threads = [
            threading.Thread(target=self._work, name="tec-serve", daemon=True) for _ in range(max(least, threads))
        ]
        for t in self._threads:
            t.start()

    @property
    def waiting(self) -> int:
        """Requests that no thread has taken yet."""
        return len(self._waiting)

    def submit(self, inputs: Inputs, sequence: Sequence | None = None) -> Future[list[Array]]:
        """Queue a request. Raises Refusal for what does not fit the network, and where the queue is full."""
        request = self._checked(inputs)
        request.sequence = sequence if self.has_states else None
        if self.has_states and sequence is None:
            raise Refusal(400, "the model remembers states: a request names its sequence (sequence_id)")
        with self._changed:
            if self._closing:
                raise Closing(503, "the model is being unloaded")
            if len(self._waiting) >= self.limit:
                raise Refusal(503, f"{self.limit} requests wait already", retry_s=1)
            self._waiting.append(request)
            self._changed.notify()
        return request.future

    def run_here(self, inputs: Inputs, alone: bool = False) -> list[Array] | None:
        """Run a request in the calling thread, where nothing waits and runs are quicker than handing one over; None where it is to be queued. alone: there is no
        other request to the server, so that a run may take longer. The caller then says `crowd` where others have come meanwhile.

        Raises Refusal as `submit`, and as a run does.
        """
        if self.has_states or self.delay_s or self._waiting or self._closing:
            return None
        if self._seconds > _HERE_S:
            if self._crowded or not alone or self._seconds > _ALONE_S:
                self._crowded = max(0, self._crowded - 1)
                return None
        request = self._checked(inputs)
        begin = time.perf_counter()
        made = self._outputs([request])
        self._seconds = time.perf_counter() - begin
        self._ran(1, request.rows, self._seconds)
        return made

    @property
    def is_slow(self) -> bool:
        """Whether handing a run over would have been the smaller part of it."""
        return self._seconds > _HERE_S

    def crowd(self) -> None:
        """Requests came while another one was run by its caller: the next ones are queued, and form batches."""
        self._crowded = _CROWDED

    def leave(self, future: Future[list[Array]]) -> None:
        """A client went away: its request gives its place in the queue free."""
        if future.cancel():
            with self._changed:
                self._waiting = deque(w for w in self._waiting if w.future is not future)

    def close(self, wait: bool = True) -> None:
        """Run what waits, take nothing more, end the threads."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for t in self._threads if wait else ():
            t.join()

    # ---- requests

    def _checked(self, inputs: Inputs) -> _Waiting:
        if len(inputs) != len(self._names) or not all(n in inputs for n in self._names):
            missing = [n for n in self._names if n not in inputs]
            unknown = [n for n in inputs if n not in self._names]
            raise Refusal(
                400,
                f"the model's inputs are {', '.join(self._names)}; {'missing' if missing else 'unknown'}: {', '.join(missing or unknown)}",
            )
        sizes: dict[str, int] = {}
        key: list[Any] = []
        for name, wanted, dtype, named in self._ports:
            a = inputs[name]
            shape = a.shape
            if a.dtype != dtype:
                raise Refusal(400, f"input {name!r} is of another type than the model's {TYPES.get(named, named)}")
            if len(shape) != len(wanted):
                raise Refusal(400, f"input {name!r} has shape {list(shape)}, the model takes {wanted}")
            for d, (e, n) in enumerate(zip(wanted, shape)):
                if isinstance(e, str) and sizes.setdefault(e, n) != n:
                    raise Refusal(400, f"size {e} is {sizes[e]} elsewhere and {n} in dimension {d} of input {name!r}")
                if isinstance(e, int) and e != n:
                    raise Refusal(400, f"input {name!r} has shape {list(shape)}, the model takes {wanted}")
            key.append(shape[1:])
        rows = int(inputs[self._names[0]].shape[0]) if self.batched else 1
        if self._budget is not None:
            self._budget.check(sizes)
        return _Waiting(inputs, rows, tuple(key), sizes=sizes)

    # ---- threads

    def _work(self) -> None:
        while (batch := self._take()) is not None:
            going = [w for w in batch if w.future.set_running_or_notify_cancel()]
            if going:
                self._run(going)
            if batch and (sequence := batch[0].sequence) is not None:
                with self._changed:
                    self._going.discard(sequence.id)
                    self._changed.notify_all()

    def _take_step(self) -> _Waiting | None:
        """The oldest request whose sequence has none that runs; None where each waits for one."""
        for at, w in enumerate(self._waiting):
            assert w.sequence is not None
            if w.sequence.id not in self._going:
                del self._waiting[at]
                self._going.add(w.sequence.id)
                return w
        return None

    def _take(self) -> list[_Waiting] | None:
        """The oldest requests that can run together; None once there will be none."""
        with self._changed:
            while not self._waiting:
                if self._closing:
                    return None
                self._changed.wait()
            if self.batched and self.delay_s:
                until = self._waiting[0].since + self.delay_s
                while not self._closing and self._waiting and sum(w.rows for w in self._waiting) < self.max_batch:
                    left = until - time.perf_counter()
                    if left <= 0:
                        break
                    self._changed.wait(left)
                if not self._waiting:  # another thread took them
                    return []
            if self.has_states:
                step = self._take_step()
                if step is None:
                    self._changed.wait()
                    return []
                return [step]
            first = self._waiting.popleft()
            batch, rows = [first], first.rows
            while (
                self.batched
                and self._waiting
                and self._waiting[0].key == first.key
                and rows + self._waiting[0].rows <= self.max_batch
                and self._has_memory(first, rows + self._waiting[0].rows)
            ):
                batch.append(self._waiting.popleft())
                rows += batch[-1].rows
            return batch

    def _has_memory(self, first: _Waiting, rows: int) -> bool:
        """Whether a batch of so many rows may run."""
        if self._budget is None or self._first is None:
            return True
        return self._budget.fits({**first.sizes, self._first: rows})

    def _run(self, batch: list[_Waiting]) -> None:
        begin = time.perf_counter()
        try:
            made = self._outputs(batch)
        except Refusal as error:
            if len(batch) == 1:
                batch[0].future.set_exception(error)
            else:  # one of them is wrong: the others get their answers
                for w in batch:
                    self._run([w])
            return
        except BaseException as error:
            for w in batch:
                w.future.set_exception(error)
            return
        self._seconds = seconds = time.perf_counter() - begin
        at = 0
        for w in batch:
            w.future.set_result([m[at : at + w.rows] for m in made] if len(batch) > 1 else made)
            at += w.rows
        self._ran(len(batch), at, seconds)  # behind the answers, which nobody should wait for

    def _outputs(self, batch: list[_Waiting]) -> list[Array]:
        if len(batch) == 1:
            inputs: Inputs = batch[0].inputs
        else:
            inputs = {n: np.concatenate([w.inputs[n] for w in batch]) for n in batch[0].inputs}
        try:
            if batch[0].sequence is not None:
                return self._step(inputs, batch[0].sequence)
            return self.network.run(inputs)
        except ArgumentError as error:
            raise Refusal(400, error.summary) from None
        except TecError as error:
            raise Refusal(500, error.summary) from None

    def _step(self, inputs: Inputs, sequence: Sequence) -> list[Array]:
        """A run on what the network remembers of a sequence, of which no other request runs meanwhile."""
        with self._changed:
            executor = self._sequences.pop(sequence.id, None)
            if executor is None and not sequence.start:
                raise Refusal(
                    400,
                    f"sequence {sequence.id} is not known: it ended, gave its place to others, or was not started (sequence_start)",
                )
            if executor is None and len(self._sequences) >= MOST_SEQUENCES:
                resting = next((k for k in self._sequences if k not in self._going), None)
                if resting is not None:
                    del self._sequences[resting]
        if executor is None:
            executor = self.network.executor()
        elif sequence.start:
            executor.reset()
        try:
            return [a.numpy() for a in executor.run(inputs)]
        finally:
            if not sequence.end:
                with self._changed:
                    self._sequences[sequence.id] = executor
