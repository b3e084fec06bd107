"""A text while it is written: token after token from what gives logits, text in pieces from what decodes tokens."""

from __future__ import annotations

import time
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import nullcontext
from numbers import Integral
from typing import Any, Protocol

import numpy as np

from ..errors import ArgumentError
from .forms.form import Form
from .sampling import Sampling, log_probabilities
from .stream import Decodes, Stops, Stream
from .text.tokenizer import Stream as ByteStream


class Decoder(Protocol):
    """Gives logits [vocabulary] of what follows."""

    def begin(self, prompt: Sequence[int]) -> Any:
        """A new text."""

    def next(self, *tokens: int) -> Any:
        """The text goes on with these tokens."""

    @property
    def room(self) -> int | None:
        """Tokens that the text may still have; None where nothing says."""


def stops_of(stop: Any) -> list[str]:
    """The texts that end a text. Raises ArgumentError."""
    listed: list[Any] = [stop] if isinstance(stop, str) else list(stop) if isinstance(stop, Collection) else [None]
    if not all(isinstance(t, str) for t in listed):
        raise ArgumentError(f"stop is {stop!r}", hint="a text, or a list of texts")
    return listed


def check_most(most: Any) -> None:
    """ArgumentError unless this is how many tokens a text may have."""
    if isinstance(most, bool) or not isinstance(most, Integral) or most < 1:
        raise ArgumentError(f"max_tokens is {most!r}", hint="a number of tokens, 1 at least")


def _stream_of(tokenizer: Decodes | None) -> Stream | ByteStream:
    """What makes text of tokens: none without a tokenizer, by their bytes where those do not depend on where a text begins."""
    if tokenizer is None:
        return ByteStream(lambda token: b"")
    bytes_of = getattr(tokenizer, "token_bytes", None)
    return Stream(tokenizer) if bytes_of is None else ByteStream(bytes_of)


class Generation:
    """An iterator over pieces of text. `ids`: its tokens so far; `text`: what was given; `reason`: why it ended ("end", "length", "stop"), None before;
    `prompt_tokens`, `prompt_seconds` (to the first token), `seconds` (of the tokens behind the first), `tokens_per_second`; `logprobs`: for each token the
    likeliest ones with the logarithms of their probabilities, where they were asked for.

    >>> run = tec.lm.load(checkpoint).generate("Once", max_tokens=5)      # checkpoint: or the path of a GGUF file
    >>> text = "".join(run)
    >>> run.reason, len(run.ids), run.text == text
    ('length', 5, True)
    """

    def __init__(
        self, decoder: Decoder, tokenizer: Decodes | None, prompt: Sequence[int], max_tokens: int, sampling: Sampling, stop: Sequence[str] = (),
        ends: Collection[int] = (), logprobs: int = 0, form: Form | None = None,
    ):  # fmt: skip
        check_most(max_tokens)
        self._decoder, self._tokenizer, self._picker = decoder, tokenizer, sampling.picker()
        self._prompt, self._most, self._ends, self._logprobs = list(prompt), max_tokens, ends, logprobs
        self._form = form
        kept: Any = logprobs
        if isinstance(kept, bool) or not isinstance(kept, Integral) or kept < 0:
            raise ArgumentError(f"logprobs is {kept!r}", hint="how many of the likeliest tokens are kept; 0 for none")
        self._stops = Stops(stops_of(stop))
        self.ids: list[int] = []
        self.reason: str | None = None
        self.prompt_tokens = len(self._prompt)
        self.prompt_seconds = self.seconds = 0.0
        self.logprobs: list[list[tuple[int, float]]] = []
        self._pieces = self._write()

    def __iter__(self) -> Iterator[str]:
        return self

    def __repr__(self) -> str:
        state = "iterate over it, or join it" if self.reason is None else f"ended by {self.reason}"
        return f"<tec.lm.Generation of {len(self.ids)} tokens: {state}>"

    def __next__(self) -> str:
        return next(self._pieces)

    @property
    def text(self) -> str:
        """The text so far, up to what ended it."""
        return self._stops.text

    @property
    def tokens_per_second(self) -> float:
        """The rate of generation, without the first token, whose time is that of the prompt."""
        return (len(self.ids) - 1) / self.seconds if len(self.ids) > 1 and self.seconds else 0.0

    def _write(self) -> Iterator[str]:
        """Pieces of the text as tokens come; `reason` says in the end why no more do."""
        stream = _stream_of(self._tokenizer)
        start = time.perf_counter()
        turn = getattr(self._decoder, "turn", nullcontext())  # of models that several threads may ask for texts
        with turn:
            logits = self._decoder.begin(self._prompt)
            begun = self._begun()
        self.prompt_seconds = time.perf_counter() - start
        token, ahead = self._picked(logits), None
        try:
            while True:
                if token in self._ends:
                    self.reason = "end"
                    break
                if self._logprobs:
                    self.logprobs.append(self._likely(logits, token))
                self.ids.append(token)
                if piece := self._stops.add(stream.add(token)):
                    yield piece
                if self._stops.stopped:
                    self.reason = "stop"
                    break
                if self._form is not None and self._form.is_over:
                    self.reason = "end"
                    break
                if len(self.ids) == self._most:
                    self.reason = "length"
                    break
                start = time.perf_counter()
                with turn:
                    if self._begun() != begun:  # the caches are another text's
                        self.reason = "stop"
                        break
                    room = self._decoder.room
                    if room is not None and room < 1:
                        self.reason = "length"
                        break
                    if len(self.ids) == 1:
                        ahead = self._ahead(token, self._most - 1 if room is None else min(self._most - 1, room))
                    if ahead is None:
                        logits = self._decoder.next(token)
                    elif (found := next(ahead, None)) is None:  # another text was begun
                        self.reason = "stop"
                        break
                    else:
                        token = found
                if ahead is None:
                    token = self._picked(logits)
                self.seconds += time.perf_counter() - start
        finally:
            if ahead is not None:
                with turn:
                    ahead.close()
        if self.reason != "stop" and (piece := self._stops.add(stream.rest(), final=True)):
            yield piece
            if self._stops.stopped:
                self.reason = "stop"

    def _begun(self) -> int:
        """How many texts the decoder has begun."""
        found: int = getattr(self._decoder, "begun", 0)
        return found

    def _picked(self, logits: Any) -> int:
        written = [*self._prompt, *self.ids] if self._picker.sampling.counts_written else ()
        token = self._picker.pick(logits, written)
        if self._form is None:
            return token
        return self._form.chosen(token, logits, lambda x: self._picker.pick(x, written))

    def _ahead(self, token: int, most: int) -> Generator[int, None, None] | None:
        """The tokens behind the first, as the device chooses them; None where the host does."""
        made = getattr(self._decoder, "ahead", None)
        if made is None or self._logprobs or self._form is not None:
            return None
        sampling = self._picker.sampling
        rng = self._picker.rng if sampling.temperature else None
        found: Generator[int, None, None] | None = made(token, sampling, rng, most)
        return found

    def _likely(self, logits: Any, token: int) -> list[tuple[int, float]]:
        """The likeliest tokens, and the one that was taken first."""
        found = log_probabilities(logits, self._logprobs)
        own = next((e for e in found if e[0] == token), None)
        if own is None:
            x = np.asarray(logits, np.float64)
            own = token, float(x[token] - x.max() - np.log(np.exp(x - x.max()).sum()))
        return [own, *(e for e in found if e[0] != token)]
