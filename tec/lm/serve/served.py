"""A model as a server sees it: its engine, its tokenizer and template, its name, and the limits of the server."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ...errors import TecError
from ..checkpoint import Tokenizer
from ..text.template import ChatTemplate
from .engine import Done, Engine, Event, Request, Running, Token


@dataclass(frozen=True)
class Limits:
    """keys: one of them must come with each request, where there are some. body_bytes: of a request. seconds: that one request may take."""

    keys: tuple[str, ...] = ()
    body_bytes: int = 4 << 20
    seconds: float = 600.0


@dataclass
class Served:
    """One model behind the API."""

    name: str
    engine: Engine
    tokenizer: Tokenizer
    template: ChatTemplate | None = None
    usual: Mapping[str, Any] = field(default_factory=dict)  # the model's own values of sampling
    limits: Limits = field(default_factory=Limits)
    created: int = field(default_factory=lambda: int(time.time()))
    _mail: tuple[asyncio.AbstractEventLoop, Mail] | None = None

    def mail_of(self, loop: asyncio.AbstractEventLoop) -> Mail:
        """That of the loop which serves."""
        if self._mail is None or self._mail[0] is not loop:
            self._mail = loop, Mail(loop)
        return self._mail[1]


class Mail:
    """What an engine's thread tells texts of an event loop. The loop is woken once for all that was told by then: waking writes into a socket, for which a thread gives
    up the interpreter."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._loop = loop
        self._told: deque[tuple[Callable[[Event], None], Event]] = deque()

    def tell(self, hear: Callable[[Event], None], event: Event) -> None:
        """Keep an event for one that hears it in the loop."""
        self._told.append((hear, event))

    def wake(self) -> None:
        """Have all that was told heard. Raises nothing where the loop has ended."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        while self._told:
            hear, event = self._told.popleft()
            hear(event)


class _Listener:
    """See `engine.Engine.submit`."""

    def __init__(self, mail: Mail, hear: Callable[[Event], None]):
        self._tell, self._hear, self.wake = mail.tell, hear, mail.wake

    def __call__(self, event: Event) -> None:
        self._tell(self._hear, event)


class Ticket:
    """One text under way: an asynchronous iterator over its events. Cancelling it ends the text. mail: of the event loop."""

    def __init__(self, engine: Engine, request: Request, mail: Mail):
        self._events: list[Event] = []
        self._waiting: asyncio.Future[None] | None = None
        self.done: Done | None = None
        self.tokens = 0
        self.on_first: Callable[[], None] | None = None  # is called when the first token is there
        self.prompt_tokens = len(request.prompt)
        self._running: Running = engine.submit(request, _Listener(mail, self._hear))

    def _hear(self, event: Event) -> None:
        self._events.append(event)
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def events(self) -> AsyncIterator[list[Event]]:
        """The events, all that there are each time, `Done` the last of them. Raises the error that ended the text."""
        while self.done is None:
            if not self._events:
                self._waiting = asyncio.get_running_loop().create_future()
                await self._waiting
            some, self._events = self._events, []
            last = some[-1]
            if isinstance(last, Done):
                self.done = last
            count = sum(isinstance(e, Token) for e in some)
            if count and not self.tokens and self.on_first is not None:
                self.on_first()
            self.tokens += count
            yield some
            if self.done is not None and self.done.error is not None:
                raise self.done.error

    def cancel(self) -> None:
        """The text is not wanted any more."""
        if self.done is None:
            self._running.cancel()


def submit_all(served: Served, requests: Sequence[Request]) -> list[Ticket]:
    """Queue requests that belong together: all, or none where one is refused."""
    tickets: list[Ticket] = []
    mail = served.mail_of(asyncio.get_running_loop())
    try:
        for request in requests:
            tickets.append(Ticket(served.engine, request, mail))
    except TecError:
        for t in tickets:
            t.cancel()
        raise
    return tickets
