"""What a server needs of a model: requests go in, and events come out as tokens are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from ...errors import TecError
from ..forms.form import Begin
from ..sampling import Sampling


@dataclass(frozen=True)
class Request:
    """One text to write. prompt: tokens. most: tokens that may be written. stop: texts that end it. logprobs: of how many tokens probabilities are told, at each
    token; None for no probabilities. form: what the text must be. scores_prompt: tell the probabilities of the prompt's tokens, too; then `most` may be 0, as it may
    where nothing is to be written."""

    prompt: Sequence[int]
    most: int
    sampling: Sampling = field(default_factory=Sampling)
    stop: Sequence[str] = ()
    logprobs: int | None = None
    ignore_end: bool = False
    form: Begin | None = None
    scores_prompt: bool = False


class Token(NamedTuple):
    """A token that was written. text: what it makes certain of the text, "" while a character or a stop is not decided. logprob, top: logarithms of
    probabilities, of the token and of the likeliest ones."""

    id: int
    text: str
    logprob: float | None = None
    top: Sequence[tuple[int, float]] = ()


class Read(NamedTuple):
    """Tokens of the prompt that were read, where their probabilities are asked for. Nothing comes before the first one, so that it has none."""

    tokens: Sequence[Token]


class Done(NamedTuple):
    """The end of a text. reason: "stop" (a token that ends, or a text in `stop`), "length", "cancelled", or "error". rest: text that was held back."""

    reason: str
    rest: str = ""
    error: TecError | None = None
    cached: int = 0  # tokens of the prompt that were there already


Event = Token | Read | Done
Listener = Callable[[Event], None]


class Refused(TecError):
    """There is no room for another request. `seconds`: after which to try again."""

    def __init__(self, message: str, seconds: int = 1):
        super().__init__(message, locate=False, hint="try again later, or start the server with a longer queue")
        self.seconds = seconds


class Running(Protocol):
    """A request that is under way."""

    def cancel(self) -> None:
        """Its text is not wanted any more. Returns at once; a `Done` follows."""


class Engine(Protocol):
    """Serves requests; all methods may be called from any thread."""

    context: int  # tokens of a prompt and its answer

    def submit(self, request: Request, listener: Listener) -> Running:
        """Queue a request. listener: is called with each event, from the engine's thread, and must return at once. Where it has a `wake`, that is called when the events
        of all texts were told, once for those that have the same. Raises Refused where the queue is full, ArgumentError for a prompt that has no room."""

    def embed(self, prompt: Sequence[int]) -> Any:
        """A text's vector, float32 [size]. Raises ArgumentError where the model makes none."""

    def state(self) -> dict[str, int]:
        """ "running", "waiting", "slots"."""

    def close(self) -> None:
        """End all requests, and the engine's thread."""
