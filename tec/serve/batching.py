"""Requests to one network: a queue with a limit, threads that run what waits, and batches of requests that wait together.

A network is batched where the first size of all its inputs and outputs is one symbolic size. A thread that is free takes the oldest request and those behind
it whose other sizes are the same, up to `max_batch` rows; `delay_s` is how long it waits for more. Each client gets its rows of the results.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import ArgumentError, TecError
from ..runtime.networks.network import Network
from .errors import Refusal

_HERE_S = (
    200e-6  # of a run: handing a request to a thread and back takes as long (300 us in an ASGI application, Zen 3)
)
MOST_SEQUENCES = 64  # of a model: each holds its states; the one that rested longest gives its place to a new one
Array = np.ndarray[Any, Any]
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
    sequence: Sequence | None = None
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


class Batcher:
    """See the module. `submit(inputs)` gives a future of the outputs; `ran` is told (requests, rows, seconds) of each run."""

    def __init__(
        self,
        network: Network,
        *,
        max_batch: int = 32,
        delay_s: float = 0.0,
        queue: int = 256,
        threads: int = 1,
        ran: Callable[[int, int, float], None] = lambda requests, rows, seconds: None,
    ):
        self.network, self.max_batch, self.delay_s, self.limit, self._ran = (
            network,
            max(1, max_batch),
            delay_s,
            queue,
            ran,
        )
        self.has_states = bool(network.plan.states)
        self.batched = batch_size(network) is not None and max_batch > 1 and not self.has_states
        self._sequences: OrderedDict[int | str, Any] = (
            OrderedDict()
        )  # executors, by sequence; the one that rested longest first
        self._sequence_lock = threading.Lock()
        self._waiting: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._seconds = float("inf")  # of the last run
        self._threads = [
            threading.Thread(target=self._work, name="tec-serve", daemon=True) for _ in range(max(1, threads))
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
        request.sequence = sequence
        if self.has_states and sequence is None:
            raise Refusal(400, "the model remembers states: a request names its sequence (sequence_id)")
        with self._changed:
            if self._closing:
                raise Refusal(503, "the model is being unloaded")
            if len(self._waiting) >= self.limit:
                raise Refusal(503, f"{self.limit} requests wait already", retry_s=1)
            self._waiting.append(request)
            self._changed.notify()
        return request.future

    def run_here(self, inputs: Inputs) -> list[Array] | None:
        """Run a request in the calling thread, where nothing waits and runs are quicker than handing one over; None where it is to be queued.

        Raises Refusal as `submit`, and as a run does.
        """
        if self.has_states or self._seconds > _HERE_S or self.delay_s or self._waiting or self._closing:
            return None
        request = self._checked(inputs)
        begin = time.perf_counter()
        made = self._outputs([request])
        self._seconds = time.perf_counter() - begin
        self._ran(1, request.rows, self._seconds)
        return made

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
        ports = shown(self.network, self.network.inputs)
        names = [p["name"] for p in ports]
        missing, unknown = [n for n in names if n not in inputs], [n for n in inputs if n not in names]
        if missing or unknown:
            raise Refusal(
                400,
                f"the model's inputs are {', '.join(names)}; {'missing' if missing else 'unknown'}: {', '.join(missing or unknown)}",
            )
        sizes: dict[str, int] = {}
        key: list[Any] = []
        for p in ports:
            a = inputs[p["name"]]
            if len(a.shape) != len(p["shape"]):
                raise Refusal(400, f"input {p['name']!r} has shape {list(a.shape)}, the model takes {p['shape']}")
            for d, (e, n) in enumerate(zip(p["shape"], a.shape)):
                if isinstance(e, str) and sizes.setdefault(e, n) != n:
                    raise Refusal(
                        400, f"size {e} is {sizes[e]} elsewhere and {n} in dimension {d} of input {p['name']!r}"
                    )
                if isinstance(e, int) and e != n:
                    raise Refusal(400, f"input {p['name']!r} has shape {list(a.shape)}, the model takes {p['shape']}")
            key.append((a.dtype, a.shape[1:]))
        rows = int(inputs[names[0]].shape[0]) if self.batched else 1
        return _Waiting({n: inputs[n] for n in names}, rows, tuple(key))

    # ---- threads

    def _work(self) -> None:
        while (batch := self._take()) is not None:
            going = [w for w in batch if w.future.set_running_or_notify_cancel()]
            if going:
                self._run(going)

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
            first = self._waiting.popleft()
            batch, rows = [first], first.rows
            while (
                self.batched
                and self._waiting
                and self._waiting[0].key == first.key
                and rows + self._waiting[0].rows <= self.max_batch
            ):
                batch.append(self._waiting.popleft())
                rows += batch[-1].rows
            return batch

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
        self._seconds = time.perf_counter() - begin
        self._ran(len(batch), sum(w.rows for w in batch), self._seconds)
        at = 0
        for w in batch:
            w.future.set_result([m[at : at + w.rows] for m in made] if len(batch) > 1 else made)
            at += w.rows

    def _outputs(self, batch: list[_Waiting]) -> list[Array]:
        if len(batch) == 1:
            inputs: Inputs = batch[0].inputs
        else:
            inputs = {n: np.concatenate([w.inputs[n] for w in batch]) for n in batch[0].inputs}
        try:
            if batch[0].sequence is not None and self.has_states:
                return self._step(inputs, batch[0].sequence)
            return self.network.run(inputs)
        except ArgumentError as error:
            raise Refusal(400, error.message) from None
        except TecError as error:
            raise Refusal(500, error.message) from None

    def _step(self, inputs: Inputs, sequence: Sequence) -> list[Array]:
        """A run on what the network remembers of a sequence. One at a time: an executor belongs to its sequence's run."""
        with self._sequence_lock:
            executor = self._sequences.pop(sequence.id, None)
            if executor is None and not sequence.start:
                raise Refusal(
                    400,
                    f"sequence {sequence.id} is not known: it ended, gave its place to others, or was not started (sequence_start)",
                )
            if executor is None:
                if len(self._sequences) >= MOST_SEQUENCES:
                    self._sequences.popitem(last=False)
                executor = self.network.executor()
            elif sequence.start:
                executor.reset()
            if not sequence.end:
                self._sequences[sequence.id] = executor
            return [a.numpy() for a in executor.run(inputs)]
