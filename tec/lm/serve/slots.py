"""An engine of slots: each holds one text's caches, and all that are busy go on in turn, a piece of a prompt or a token at a time.

It serves models whose states are no rows of keys and values; others go on together (`batches`). A new request takes the free slot whose text has the most in common with its
prompt, so that what both begin with is not read again (a conversation that goes on; a system prompt that many share). Long prompts are read in pieces between the tokens
of other texts. A request whose client left ends at its next turn.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from ..asked import common
from ..text.tokenizer import Stream
from .engine import Done, Listener, Request
from .jobs import PIECE, Job, TextEngine


class Slot(Protocol):
    """One text's caches."""

    ids: list[int]  # the tokens that they hold

    def read(self, tokens: Sequence[int]) -> Any:
        """The text goes on with these tokens. The logits [vocabulary] of what follows."""

    def cut(self, rows: int) -> int:
        """Forget all but the first tokens. How many are left: fewer where the model's states have no rows."""


@runtime_checkable
class GuessingSlot(Slot, Protocol):
    """One that guesses what a text goes on with, and reads several tokens at once."""

    def guess(self, ids: Sequence[int], room: int) -> list[int]:
        """Tokens that may follow a text, `room` at the most, or none."""

    def check(self, tokens: Sequence[int]) -> Any:
        """The text goes on with these tokens. The logits [tokens, vocabulary] behind each."""

    def learn(self, right: bool) -> None:
        """Whether all guesses of the last run were right."""


class Model(Protocol):
    """What gives logits."""

    context: int
    ends: Collection[int]  # tokens that end a text

    def slot(self) -> Slot:
        """New caches."""


@dataclass(eq=False)
class _Job(Job):
    slot: Slot | None = None
    left: list[int] = field(default_factory=list)  # tokens of the prompt that are still to be read


class SlotEngine(TextEngine[_Job]):
    """See the module and `TextEngine`."""

    def __init__(
        self,
        model: Model,
        token_bytes: Callable[[int], bytes],
        *,
        slots: int = 4,
        queue: int = 64,
        embed: Callable[[Sequence[int]], Any] | None = None,
    ):
        self.model = model
        self._slots: list[Slot] = []
        super().__init__(model, token_bytes, slots, queue, embed)

    def _job(self, request: Request, listener: Listener, stream: Stream, read: Stream) -> _Job:
        return _Job(request, listener, stream, read)

    def _round(self) -> None:
        for job in list(self._running):
            self._turn(job)
            self._flush()

    def _turn(self, job: _Job) -> None:
        try:
            if job.cancelled:
                self._finish(job, Done("cancelled", cached=job.cached))
                return
            if job.slot is None:
                self._begin(job)
            assert job.slot is not None
            if job.written and job.request.sampling.temperature == 0 and isinstance(job.slot, GuessingSlot):
                self._guess(job, job.slot)
                return
            if job.is_scoring:
                self._score(job, job.slot)
                return
            piece, job.left = job.left[:PIECE], job.left[PIECE:]
            with self._model_lock:
                logits = job.slot.read(piece)
            if not job.left:
                self._write(job, logits)
                job.left = job.written[-1:]
        except Exception as error:
            self._failed(job, error)

    def _score(self, job: _Job, slot: Slot) -> None:
        """Some tokens of the prompt, with the logits behind each: one at a time, where the model gives no more."""
        first = len(job.request.prompt) - len(job.left)
        count = PIECE if isinstance(slot, GuessingSlot) else 1
        piece, job.left = job.left[:count], job.left[count:]
        with self._model_lock:
            rows = slot.check(piece) if isinstance(slot, GuessingSlot) else [slot.read(piece)]
        self._scored(job, first, rows)
        if not job.left:
            self._write(job, rows[-1])
            job.left = job.written[-1:]

    def _guess(self, job: _Job, slot: GuessingSlot) -> None:
        """The tokens behind the last one, as far as the model chooses what was guessed, and one more."""
        request = job.request
        text = [*request.prompt, *job.written]
        room = min(request.most - len(job.written), self.context - len(text)) - 1
        with self._model_lock:
            guesses = slot.guess(text, room)
            rows = slot.check([text[-1], *guesses])
        held = len(slot.ids) - len(guesses)
        right = 0
        for k, row in enumerate(rows):
            self._write(job, row)
            if not job.is_running or k == len(guesses) or job.written[-1] != guesses[k]:
                break
            right += 1
        slot.cut(held + right)
        if guesses:
            slot.learn(right == len(guesses))
        job.left = job.written[-1:]

    def _begin(self, job: _Job) -> None:
        prompt = list(job.request.prompt)
        busy = {id(j.slot) for j in self._running if j.slot is not None}
        free = [s for s in self._slots if id(s) not in busy]
        best = max(free, key=lambda s: common(s.ids, prompt[:-1]), default=None)
        if (best is None or not common(best.ids, prompt[:-1])) and len(self._slots) < self._most:
            best = self.model.slot()
            self._slots.append(best)
        assert best is not None, "there are as many slots as jobs"
        # The last token is read always, since its logits are wanted.
        job.cached = best.cut(0 if job.is_scoring else common(best.ids, prompt[:-1]))
        job.slot, job.left = best, prompt[job.cached :]

    def _ended(self, job: _Job, broken: bool) -> None:
        if broken and job.slot is not None:
            self._slots.remove(job.slot)  # nobody knows what its caches hold
        job.slot = None
