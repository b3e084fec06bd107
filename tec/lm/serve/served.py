"""A model as a server sees it: its engine, its tokenizer and template, its name, and the limits of the server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import TecError
from ..checkpoint import Tokenizer
from ..text.template import ChatTemplate
from .engine import Done, Engine, Event, Request, Running


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


class Ticket:
    """One text under way: an asynchronous iterator over its events. Closing it cancels the text."""

    def __init__(self, engine: Engine, request: Request):
        loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self.done: Done | None = None
        self.tokens = 0
        self.on_first: Callable[[], None] | None = None  # is called when the first token is there
        self.prompt_tokens = len(request.prompt)

        def listener(event: Event) -> None:
            loop.call_soon_threadsafe(self._events.put_nowait, event)

        self._running: Running = engine.submit(request, listener)

    async def events(self) -> AsyncIterator[Event]:
        """The events, `Done` the last of them. Raises the error that ended the text."""
        while self.done is None:
            event = await self._events.get()
            if isinstance(event, Done):
                self.done = event
                if event.error is not None:
                    raise event.error
            else:
                if not self.tokens and self.on_first is not None:
                    self.on_first()
                self.tokens += 1
            yield event

    def cancel(self) -> None:
        """The text is not wanted any more."""
        if self.done is None:
            self._running.cancel()


def submit_all(served: Served, requests: Sequence[Request]) -> list[Ticket]:
    """Queue requests that belong together: all, or none where one is refused."""
    tickets: list[Ticket] = []
    try:
        for request in requests:
            tickets.append(Ticket(served.engine, request))
    except TecError:
        for t in tickets:
            t.cancel()
        raise
    return tickets
