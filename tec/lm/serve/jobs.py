"""What engines share: requests that wait and requests that run, the thread that serves them, and what becomes of logits."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from ...errors import ArgumentError, InternalError, TecError
from ..forms.form import Form
from ..sampling import log_probabilities
from ..stream import Stops
from ..text.tokenizer import Stream
from .engine import Done, Event, Listener, Refused, Request, Token

_LOG = logging.getLogger("tec.serve")

PIECE = 256  # tokens of prompts that are read in one round: other texts wait for some tenths of a second at the most on a CPU


class HasContext(Protocol):
    """What an engine asks of every model."""

    context: int
    ends: Collection[int]  # tokens that end a text


@dataclass
class Job:
    """A request that waits or runs."""

    request: Request
    listener: Listener
    stream: Stream
    cancelled: bool = False
    written: list[int] = field(default_factory=list)
    cached: int = 0  # tokens of the prompt that were there already

    def __post_init__(self) -> None:
        self.stops = Stops(self.request.stop)
        self.picker = self.request.sampling.picker()
        self.form: Form | None = None

    def cancel(self) -> None:
        """See `Running.cancel`."""
        self.cancelled = True


J = TypeVar("J", bound=Job)


class TextEngine(Generic[J]):
    """An `Engine` whose texts go on in rounds; a subclass says what a round is. token_bytes: of the model's tokenizer. slots: texts that are under way at once. queue:
    requests that may wait. embed: a text's vector, where the model makes one."""

    def __init__(
        self, model: HasContext, token_bytes: Callable[[int], bytes], slots: int, queue: int, embed: Callable[[Sequence[int]], Any] | None
    ):  # fmt: skip
        if slots < 1 or queue < 0:
            raise ArgumentError(f"{slots} slots and a queue of {queue}", hint="one slot at least")
        self.context, self._ends = model.context, model.ends
        self._bytes_of, self._most, self._queue, self._embed = token_bytes, slots, queue, embed
        self._waiting: deque[J] = deque()
        self._running: list[J] = []
        self._change = threading.Condition()
        self._closed = False
        self._model_lock = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name="tec-engine", daemon=True)
        self._thread.start()

    # ---- what a subclass says

    def _job(self, request: Request, listener: Listener, stream: Stream) -> J:
        """A job of its kind."""
        raise NotImplementedError

    def _round(self) -> None:
        """All that run go on, each by a piece of its prompt or by a token at the most."""
        raise NotImplementedError

    def _ended(self, job: J, broken: bool) -> None:
        """A job runs no more: its memory is free. broken: nobody knows what is in it."""
        raise NotImplementedError

    # ---- any thread

    def submit(self, request: Request, listener: Listener) -> J:
        """See `Engine`."""
        if not request.prompt:
            raise ArgumentError("the prompt has no tokens", hint="one at least")
        if len(request.prompt) >= self.context or request.most < 1:
            raise ArgumentError(
                f"a prompt of {len(request.prompt)} tokens with an answer of {request.most}, and the context has {self.context}",
                hint="a shorter prompt; or a larger context when the server starts, if the model was made for one",
            )
        job = self._job(request, listener, Stream(self._bytes_of))
        job.form = None if request.form is None else request.form(self._ends)
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
        try:
            self._rounds()
        except Exception as error:  # not of one request: the model itself, such as a device that is lost
            _LOG.exception("the engine has ended")
            with self._change:
                self._closed = True
                jobs = self._let_go()
            for job in jobs:
                self._tell(job, Done("error", error=_as_told(error)))

    def _rounds(self) -> None:
        while True:
            with self._change:
                while not (self._waiting or self._running or self._closed):
                    self._change.wait()
                jobs = self._let_go() if self._closed else []
                self._admit()
            if self._closed:
                for job in jobs:
                    self._tell(job, Done("cancelled"))
                return
            self._round()

    def _let_go(self) -> list[J]:
        """All jobs, of which there are none from here on."""
        jobs, self._running = [*self._running, *self._waiting], []
        self._waiting.clear()
        return jobs

    def _admit(self) -> None:
        """Give free slots to those that wait, in their order."""
        while self._waiting and len(self._running) < self._most:
            self._running.append(self._waiting.popleft())

    def _write(self, job: J, logits: Any) -> None:
        """A token for logits, and what follows from it."""
        request = job.request
        seen = [*request.prompt, *job.written] if request.sampling.counts_written else ()
        token = job.picker.pick(logits, seen)
        if job.form is not None:
            token = job.form.chosen(token, logits, lambda x: job.picker.pick(x, seen))
        if token in self._ends and not request.ignore_end:
            self._finish(job, Done("stop", job.stops.add(job.stream.rest(), final=True), cached=job.cached))
            return
        job.written.append(token)
        own, top = _probabilities(logits, token, request.logprobs)
        self._tell(job, Token(token, job.stops.add(job.stream.add(token)), own, top))
        if job.stops.stopped:
            self._finish(job, Done("stop", cached=job.cached))
        elif job.form is not None and job.form.is_over:
            self._finish(job, Done("stop", job.stops.add(job.stream.rest(), final=True), cached=job.cached))
        elif len(job.written) >= request.most or len(request.prompt) + len(job.written) >= self.context:
            rest = job.stops.add(job.stream.rest(), final=True)
            self._finish(job, Done("stop" if job.stops.stopped else "length", rest, cached=job.cached))

    def _failed(self, job: J, error: Exception) -> None:
        """One request's fault must not end the server, nor another request."""
        self._finish(job, Done("error", error=_as_told(error)), broken=True)

    def _finish(self, job: J, done: Done, broken: bool = False) -> None:
        with self._change:
            self._running.remove(job)
        self._ended(job, broken)
        self._tell(job, done)

    @staticmethod
    def _tell(job: Job, event: Event) -> None:
        try:
            job.listener(event)
        except Exception:  # who listened is gone
            job.cancelled = True


def _as_told(error: Exception) -> TecError:
    """What is told of an error of any kind."""
    if isinstance(error, TecError):
        return error
    fault = InternalError(f"{type(error).__name__}: {error}")
    fault.__cause__ = error
    return fault


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two texts have in common from the start."""
    return next((k for k, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def _probabilities(logits: Any, token: int, count: int | None) -> tuple[float | None, list[tuple[int, float]]]:
    if count is None:
        return None, []
    top = log_probabilities(logits, max(count, 1))
    x = np.asarray(logits, np.float64)
    own = float(x[token] - x.max() - np.log(np.exp(x - x.max()).sum()))
    return own, top[:count]
