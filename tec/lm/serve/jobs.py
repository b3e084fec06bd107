"""What engines share: requests that wait and requests that run, the thread that serves them, and what becomes of logits."""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from ...errors import ArgumentError, InternalError, TecError
from ..forms.form import Form
from ..sampling import log_probabilities, no_numbers
from ..stream import Stops
from ..text.tokenizer import Stream
from .engine import Done, Event, Listener, Read, Refused, Request, Token

_LOG = logging.getLogger("tec.serve")

PIECE = 256  # tokens of prompts that are read in one round: other texts wait for some tenths of a second at the most on a CPU


_KNOWN = 1 << 16  # tokens whose bytes are kept: some 100 bytes each


class HasContext(Protocol):
    """What an engine asks of every model."""

    context: int
    ends: Collection[int]  # tokens that end a text


@dataclass(eq=False)
class Job:
    """A request that waits or runs. is_running: whether it has a slot."""

    request: Request
    listener: Listener
    stream: Stream
    read: Stream  # of the prompt
    cancelled: bool = False
    written: list[int] = field(default_factory=list)
    cached: int = 0  # tokens of the prompt that were there already
    is_running: bool = False
    is_deaf: bool = False  # its end was told
    scored: int = 0  # tokens of the prompt whose probabilities were told

    def __post_init__(self) -> None:
        request, sampling = self.request, self.request.sampling
        self.stops = Stops(request.stop)
        self.picker = sampling.picker()
        self.form: Form | None = None
        self.wake: Callable[[], None] | None = getattr(self.listener, "wake", None)
        greedy = sampling.temperature == 0 and not sampling.counts_written and not sampling.logit_bias
        # Whether the likeliest token is all that is asked for, so that nobody reads the logits.
        self.takes_likeliest = greedy and request.form is None and request.logprobs is None
        # Whether what is written says when the text ends: then it must be known before the next token.
        self.ends_by_text = bool(self.stops.stops) or request.form is not None

    @property
    def is_scoring(self) -> bool:
        """Whether probabilities of the prompt's tokens are still to be told."""
        return self.request.scores_prompt and self.scored < len(self.request.prompt)

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
        self._bytes_of, self._most, self._queue, self._embed = lru_cache(_KNOWN)(token_bytes), slots, queue, embed
        self._waiting: deque[J] = deque()
        self._running: list[J] = []
        self._told: list[tuple[J, Event]] = []  # what listeners have not heard yet
        self._change = threading.Condition()
        self._closed = False
        self._model_lock = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name="tec-engine", daemon=True)
        self._thread.start()

    # ---- what a subclass says

    def _job(self, request: Request, listener: Listener, stream: Stream, read: Stream) -> J:
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
        if request.most < 0 or len(request.prompt) + min(request.most, 1) > self.context:
            raise ArgumentError(
                f"a prompt of {len(request.prompt)} tokens with an answer of {request.most}, and the context has {self.context}",
                hint="a shorter prompt; or a larger context when the server starts, if the model was made for one",
            )
        job = self._job(request, listener, Stream(self._bytes_of), Stream(self._bytes_of))
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
            self._end(jobs, Done("error", error=_as_told(error)))

    def _rounds(self) -> None:
        while True:
            if not self._running:
                self._flush()
            with self._change:
                while not (self._waiting or self._running or self._closed):
                    self._change.wait()
                jobs = self._let_go() if self._closed else []
                self._admit()
            if self._closed:
                self._end(jobs, Done("cancelled"))
                return
            self._round()

    def _end(self, jobs: Sequence[J], done: Done) -> None:
        """Tell all of these that no more comes."""
        for job in jobs:
            self._told.append((job, done))
        self._flush()

    def _let_go(self) -> list[J]:
        """All jobs, of which there are none from here on."""
        jobs, self._running = [*self._running, *self._waiting], []
        self._waiting.clear()
        for job in jobs:
            job.is_running = False
        return jobs

    def _admit(self) -> None:
        """Give free slots to those that wait, in their order."""
        while self._waiting and len(self._running) < self._most:
            job = self._waiting.popleft()
            job.is_running = True
            self._running.append(job)

    def _write(self, job: J, logits: Any) -> None:
        """A token for logits, and what follows from it; nothing where none is wanted."""
        request = job.request
        if not request.most:
            self._finish(job, Done("length", cached=job.cached))
            return
        seen = [*request.prompt, *job.written] if request.sampling.counts_written else ()
        token = job.picker.pick(logits, seen)
        if job.form is not None:
            token = job.form.chosen(token, logits, lambda x: job.picker.pick(x, seen))
        self._wrote(job, token, *_probabilities(logits, token, request.logprobs))

    def _scored(self, job: J, first: int, rows: Iterable[Any]) -> None:
        """Tell the probabilities of tokens of the prompt. rows: logits behind token `first` of the prompt and those that follow it."""
        prompt, found = job.request.prompt, list[Token]()
        if not job.scored:
            found.append(Token(prompt[0], job.read.add(prompt[0])))
        for at, logits in enumerate(rows, first + 1):
            if job.scored + len(found) <= at < len(prompt):  # what gave its blocks back is read twice
                logprob, top = _probabilities(logits, prompt[at], job.request.logprobs or 0)
                if logprob is None or math.isnan(logprob):
                    raise no_numbers()
                found.append(Token(prompt[at], job.read.add(prompt[at]), logprob, top))
        job.scored += len(found)
        self._told.append((job, Read(found)))

    def _wrote(self, job: J, token: int, logprob: float | None = None, top: Sequence[tuple[int, float]] = ()) -> None:
        """What follows from a token. Its text is made when it is told, unless the text says whether the text goes on."""
        request = job.request
        if token in self._ends and not request.ignore_end:
            self._finish(job, self._last(job, "stop"))
            return
        job.written.append(token)
        text = job.stops.add(job.stream.add(token)) if job.ends_by_text else ""
        self._told.append((job, Token(token, text, logprob, top)))
        if job.stops.stopped:
            self._finish(job, Done("stop", cached=job.cached))
        elif job.form is not None and job.form.is_over:
            self._finish(job, self._last(job, "stop"))
        elif len(job.written) >= request.most or len(request.prompt) + len(job.written) >= self.context:
            self._finish(job, self._last(job, "length"))

    @staticmethod
    def _last(job: J, reason: str) -> Done:
        """The end of a text, with what was held back of it."""
        rest = job.stops.add(job.stream.rest(), final=True) if job.ends_by_text else ""
        return Done("stop" if job.stops.stopped else reason, rest, cached=job.cached)

    def _failed(self, job: J, error: Exception) -> None:
        """One request's fault must not end the server, nor another request."""
        self._finish(job, Done("error", error=_as_told(error)), broken=True)

    def _finish(self, job: J, done: Done, broken: bool = False) -> None:
        with self._change:
            self._running.remove(job)
        job.is_running = False
        self._ended(job, broken)
        self._told.append((job, done))

    # ---- what listeners hear

    def _flush(self) -> None:
        """Tell what happened since the last time. Listeners are woken when all of it was told: what they wake takes the interpreter."""
        wakes: dict[Callable[[], None], None] = {}
        while self._told:
            told, self._told = self._told, []
            for job, event in told:
                if job.is_deaf:
                    continue
                try:
                    job.listener(event if job.ends_by_text else _with_text(job, event))
                except TecError as error:  # a token that is none of the tokenizer's
                    job.is_deaf = True
                    self._refuse(job, Done("error", error=error))
                except Exception:  # who listened is gone
                    job.cancelled = True
                if job.wake is not None:
                    wakes[job.wake] = None
        for wake in wakes:
            with suppress(Exception):  # who listened is gone
                wake()

    def _refuse(self, job: J, done: Done) -> None:
        if job.is_running:
            self._finish(job, done)
        with suppress(Exception):
            job.listener(done)


def _with_text(job: Job, event: Event) -> Event:
    """An event of a job whose text was not made yet, with it."""
    if isinstance(event, Token):
        return event._replace(text=job.stream.add(event.id))
    if isinstance(event, Read):
        return event
    return event._replace(rest=job.stream.rest()) if event.reason in ("stop", "length") else event


def _as_told(error: Exception) -> TecError:
    """What is told of an error of any kind."""
    if isinstance(error, TecError):
        return error
    fault = InternalError(f"{type(error).__name__}: {error}")
    fault.__cause__ = error
    return fault


def _probabilities(logits: Any, token: int, count: int | None) -> tuple[float | None, list[tuple[int, float]]]:
    if count is None:
        return None, []
    top = log_probabilities(logits, max(count, 1))
    x = np.asarray(logits, np.float64)
    own = float(x[token] - x.max() - np.log(np.exp(x - x.max()).sum()))
    return own, top[:count]
