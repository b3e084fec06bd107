"""An engine of slots: each holds one text's caches, and all that are busy go on in turn, a piece of a prompt or a token at a time.

A new request takes the free slot whose text has the most in common with its prompt, so that what both begin with is not read again (a conversation that goes
on; a system prompt that many share). Long prompts are read in pieces between the tokens of other texts. A request whose client left ends at its next turn.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ...errors import ArgumentError, InternalError, TecError
from ..sampling import log_probabilities
from ..stream import Stops
from ..text.tokenizer import Stream
from .engine import Done, Event, Listener, Refused, Request, Token

PIECE = 256  # tokens of a prompt that are read in one turn: other texts wait for some tenths of a second at the most on a CPU


class Slot(Protocol):
    """One text's caches."""

    ids: list[int]  # the tokens that they hold

    def read(self, tokens: Sequence[int]) -> Any:
        """The text goes on with these tokens. The logits [vocabulary] of what follows."""

    def cut(self, rows: int) -> int:
        """Forget all but the first tokens. How many are left: fewer where the model's states have no rows."""


class Model(Protocol):
    """What gives logits."""

    context: int
    ends: Collection[int]  # tokens that end a text

    def slot(self) -> Slot:
        """New caches."""


@dataclass
class _Job:
    request: Request
    listener: Listener
    stream: Stream
    cancelled: bool = False
    slot: Slot | None = None
    left: list[int] = field(default_factory=list)  # tokens of the prompt that are still to be read
    written: list[int] = field(default_factory=list)
    cached: int = 0

    def __post_init__(self) -> None:
        self.stops = Stops(self.request.stop)
        self.picker = self.request.sampling.picker()

    def cancel(self) -> None:
        """See `Running.cancel`."""
        self.cancelled = True


class SlotEngine:
    """See the module. token_bytes: of the model's tokenizer. slots: texts that are under way at once. queue: requests that may wait. embed: a text's vector, where
    the model makes one."""

    def __init__(
        self,
        model: Model,
        token_bytes: Callable[[int], bytes],
        *,
        slots: int = 4,
        queue: int = 64,
        embed: Callable[[Sequence[int]], Any] | None = None,
    ):
        if slots < 1 or queue < 0:
            raise ArgumentError(f"{slots} slots and a queue of {queue}", hint="one slot at least")
        self.model, self.context = model, model.context
        self._bytes_of, self._most, self._queue, self._embed = token_bytes, slots, queue, embed
        self._slots: list[Slot] = []
        self._waiting: deque[_Job] = deque()
        self._running: list[_Job] = []
        self._change = threading.Condition()
        self._closed = False
        self._model_lock = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name="tec-engine", daemon=True)
        self._thread.start()

    # ---- any thread

    def submit(self, request: Request, listener: Listener) -> _Job:
        """See `Engine`."""
        if not request.prompt:
            raise ArgumentError("the prompt has no tokens", hint="one at least")
        if len(request.prompt) >= self.context or request.most < 1:
            raise ArgumentError(
                f"a prompt of {len(request.prompt)} tokens with an answer of {request.most}, and the context has {self.context}",
                hint="a shorter prompt; or a larger context when the server starts, if the model was made for one",
            )
        job = _Job(request, listener, Stream(self._bytes_of))
        with self._change:
            if self._closed:
                raise Refused("the server is stopping")
            if len(self._waiting) >= self._queue + self._most - len(self._running):
                raise Refused(f"{len(self._running)} texts are under way, and {len(self._waiting)} wait")
            self._waiting.append(job)
            self._change.notify()
        return job

    def embed(self, prompt: Sequence[int]) -> Any:
        """See `Engine`."""
        if self._embed is None:
            raise ArgumentError(
                "this model makes no embeddings", hint="a model for embeddings, such as Qwen3-Embedding or a BERT"
            )
        with self._model_lock:
            return self._embed(prompt)

    def state(self) -> dict[str, int]:
        """See `Engine`."""
        with self._change:
            return {"running": len(self._running), "waiting": len(self._waiting), "slots": self._most}

    def close(self) -> None:
        """See `Engine`."""
        with self._change:
            self._closed = True
            self._change.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=60)

    # ---- the engine's thread

    def _serve(self) -> None:
        while True:
            with self._change:
                while not (self._waiting or self._running or self._closed):
                    self._change.wait()
                if self._closed:
                    jobs, self._running = [*self._running, *self._waiting], []
                    self._waiting.clear()
                else:
                    jobs = []
                    self._admit()
            if self._closed:
                for job in jobs:
                    self._tell(job, Done("cancelled"))
                return
            for job in list(self._running):
                self._turn(job)

    def _admit(self) -> None:
        """Give free slots to those that wait, in their order."""
        while self._waiting and len(self._running) < self._most:
            job = self._waiting.popleft()
            self._running.append(job)

    def _turn(self, job: _Job) -> None:
        try:
            if job.cancelled:
                self._finish(job, Done("cancelled", cached=job.cached))
                return
            if job.slot is None:
                self._begin(job)
            assert job.slot is not None
            piece, job.left = job.left[:PIECE], job.left[PIECE:]
            with self._model_lock:
                logits = job.slot.read(piece)
            if not job.left:
                self._write(job, logits)
        except TecError as error:
            self._finish(job, Done("error", error=error), broken=True)
        except Exception as error:  # one request's fault must not end the server
            fault = InternalError(f"{type(error).__name__}: {error}")
            fault.__cause__ = error
            self._finish(job, Done("error", error=fault), broken=True)

    def _begin(self, job: _Job) -> None:
        prompt = list(job.request.prompt)
        busy = {id(j.slot) for j in self._running if j.slot is not None}
        free = [s for s in self._slots if id(s) not in busy]
        best = max(free, key=lambda s: _common(s.ids, prompt[:-1]), default=None)
        if (best is None or not _common(best.ids, prompt[:-1])) and len(self._slots) < self._most:
            best = self.model.slot()
            self._slots.append(best)
        assert best is not None, "there are as many slots as jobs"
        job.cached = best.cut(
            _common(best.ids, prompt[:-1])
        )  # the last token is read always, since its logits are wanted
        job.slot, job.left = best, prompt[job.cached :]

    def _write(self, job: _Job, logits: Any) -> None:
        """A token for logits, and what follows from it."""
        request = job.request
        seen = [*request.prompt, *job.written] if request.sampling.counts_written else ()
        token = job.picker.pick(logits, seen)
        if token in self.model.ends and not request.ignore_end:
            self._finish(job, Done("stop", job.stops.add(job.stream.rest(), final=True), cached=job.cached))
            return
        job.written.append(token)
        own, top = _probabilities(logits, token, request.logprobs)
        self._tell(job, Token(token, job.stops.add(job.stream.add(token)), own, top))
        if job.stops.stopped:
            self._finish(job, Done("stop", cached=job.cached))
        elif len(job.written) >= request.most or len(request.prompt) + len(job.written) >= self.context:
            rest = job.stops.add(job.stream.rest(), final=True)
            self._finish(job, Done("stop" if job.stops.stopped else "length", rest, cached=job.cached))
        else:
            job.left = [token]

    def _finish(self, job: _Job, done: Done, broken: bool = False) -> None:
        with self._change:
            self._running.remove(job)
        if broken and job.slot is not None:
            self._slots.remove(job.slot)  # nobody knows what its caches hold
        job.slot = None
        self._tell(job, done)

    @staticmethod
    def _tell(job: _Job, event: Event) -> None:
        try:
            job.listener(event)
        except Exception:  # who listened is gone
            job.cancelled = True


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    return next((k for k, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def _probabilities(logits: Any, token: int, count: int | None) -> tuple[float | None, list[tuple[int, float]]]:
    if count is None:
        return None, []
    top = log_probabilities(logits, max(count, 1))
    x = np.asarray(logits, np.float64)
    own = float(x[token] - x.max() - np.log(np.exp(x - x.max()).sum()))
    return own, top[:count]
