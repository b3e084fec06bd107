"""Events as answers of OpenAI's API: whole ones, and chunks of streams."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from .calls import calls_of, held_back
from .engine import Event, Read, Token
from .served import Served, Ticket
from .wanted import Wanted

_REASONS = {"cancelled": "stop", "error": "stop"}


_MARK = "\0"  # where a piece of text goes in an event


class Piece(NamedTuple):
    """A piece of one text, of which nothing else is told."""

    number: int
    text: str


_Part = Piece | dict[str, Any]  # of a stream: a piece of text, or a whole chunk
# Of texts as JSON has them. What stands in answers is no circle.
encode = json.JSONEncoder(ensure_ascii=False, check_circular=False).encode


class Answer:
    """What is common to the chunks of one answer. chat: as of chat completions; otherwise of completions."""

    def __init__(
        self, served: Served, wanted: Wanted, tickets: Sequence[Ticket], chat: bool, echoed: Sequence[str] = ()
    ):
        self.served, self.wanted, self.tickets, self.chat, self.echoed = served, wanted, tickets, chat, echoed
        kind = "chatcmpl" if chat else "cmpl"
        self.head = {"id": f"{kind}-{secrets.token_hex(12)}", "created": served.created, "model": served.name}
        self.names = {t["function"]["name"] for t in wanted.tools}
        # By a text's index, what stands before and behind a piece of it.
        self._around: dict[int, tuple[bytes, bytes]] = {}
        self._told = [0] * len(tickets)  # characters of each text whose tokens were told with probabilities

    # ---- whole answers

    async def whole(self) -> dict[str, Any]:
        """The answer when all texts are written."""
        choices = await asyncio.gather(*(self._choice(k, t) for k, t in enumerate(self.tickets)))
        kind = "chat.completion" if self.chat else "text_completion"
        return {**self.head, "object": kind, "choices": choices, "usage": self.usage()}

    async def _choice(self, index: int, ticket: Ticket) -> dict[str, Any]:
        text, tokens = "", []
        async for some in ticket.events():
            text += _text(some)
            tokens += _tokens(some)
        reason = _reason(ticket)
        probabilities = self._probabilities(index, tokens)
        if not self.chat:
            whole = self.echoed[index] + text if self.echoed else text
            return {"index": index, "text": whole, "finish_reason": reason, "logprobs": probabilities}
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if self.names:
            message["content"], calls = calls_of(text, self.names)
            if calls:
                message |= {"tool_calls": calls, "content": message["content"] or None}
                reason = "tool_calls"
        return {"index": index, "message": message, "finish_reason": reason, "logprobs": probabilities}

    def usage(self) -> dict[str, Any]:
        """Tokens that were read and written. Texts of one prompt count it once."""
        prompts = sum(t.prompt_tokens for t in self.tickets[:: self.wanted.choices])
        written = sum(t.tokens for t in self.tickets)
        cached = sum(t.done.cached for t in self.tickets[:: self.wanted.choices] if t.done is not None)
        return {
            "prompt_tokens": prompts, "completion_tokens": written, "total_tokens": prompts + written,
            "prompt_tokens_details": {"cached_tokens": cached},
        }  # fmt: skip

    # ---- streams

    async def lines(self) -> AsyncIterator[bytes]:
        """The chunks of a stream as server-sent events."""
        async for part in self._all():
            yield self._line(part) if isinstance(part, Piece) else line(part)

    async def chunks(self) -> AsyncIterator[dict[str, Any]]:
        """The chunks of a stream as they come, of all texts in turn."""
        async for part in self._all():
            yield self._piece(part) if isinstance(part, Piece) else part

    async def _all(self) -> AsyncIterator[_Part]:
        if len(self.tickets) == 1:
            async for part in self._parts(0, self.tickets[0]):
                yield part
        else:
            async for part in self._side_by_side():
                yield part
        if self.wanted.usage_at_end:
            yield {**self._chunk_head(), "choices": [], "usage": self.usage()}

    async def _side_by_side(self) -> AsyncIterator[_Part]:
        arrivals: asyncio.Queue[_Part | BaseException | None] = asyncio.Queue()

        async def pump(index: int, ticket: Ticket) -> None:
            try:
                async for part in self._parts(index, ticket):
                    await arrivals.put(part)
                await arrivals.put(None)
            except Exception as error:
                await arrivals.put(error)

        tasks = [asyncio.create_task(pump(k, t)) for k, t in enumerate(self.tickets)]
        try:
            left = len(tasks)
            while left:
                arrived = await arrivals.get()
                if arrived is None:
                    left -= 1
                elif isinstance(arrived, BaseException):
                    raise arrived
                else:
                    yield arrived
        finally:
            for t in tasks:
                t.cancel()

    async def _parts(self, index: int, ticket: Ticket) -> AsyncIterator[_Part]:
        if self.chat:
            yield self._chunk(index, {"role": "assistant", "content": ""})
        elif self.echoed:
            yield self._chunk(index, self.echoed[index])
        text, shown = "", 0
        async for some in ticket.events():
            piece = _text(some)
            if self.names:  # what may be a call is held back
                text += piece
                until = max(held_back(text), shown)
                piece, shown = text[shown:until], until
            if self.wanted.logprobs is None:
                if piece:
                    yield Piece(index, piece)
            elif piece or _tokens(some):
                told = self._probabilities(index, _tokens(some))
                yield self._chunk(index, {"content": piece} if self.chat else piece, told)
        reason = _reason(ticket)
        if self.names:
            rest, calls = calls_of(text[shown:], self.names)
            if calls:
                reason = "tool_calls"
                yield self._chunk(index, {"tool_calls": [{"index": k, **c} for k, c in enumerate(calls)]})
            elif rest:
                yield self._chunk(index, {"content": rest})
        yield self._chunk(index, {} if self.chat else "", reason=reason)

    def _piece(self, piece: Piece) -> dict[str, Any]:
        return self._chunk(piece.number, {"content": piece.text} if self.chat else piece.text)

    def _line(self, piece: Piece) -> bytes:
        """The event of a piece of text: but for the text those of a stream are alike."""
        around = self._around.get(piece.number)
        if around is None:
            head, _, tail = line(self._piece(Piece(piece.number, _MARK))).partition(encode(_MARK).encode())
            around = self._around[piece.number] = head, tail
        return around[0] + encode(piece.text).encode() + around[1]

    def _chunk_head(self) -> dict[str, Any]:
        return {**self.head, "object": "chat.completion.chunk" if self.chat else "text_completion"}

    def _chunk(self, index: int, what: Any, probabilities: Any = None, reason: str | None = None) -> dict[str, Any]:
        choice = {
            "index": index,
            "delta" if self.chat else "text": what,
            "finish_reason": reason,
            "logprobs": probabilities,
        }
        chunk = {**self._chunk_head(), "choices": [choice]}
        return {**chunk, "usage": None} if self.wanted.usage_at_end else chunk

    # ---- probabilities

    def _probabilities(self, index: int, tokens: Sequence[Token]) -> dict[str, Any] | None:
        if self.wanted.logprobs is None or not tokens:
            return None
        if self.chat:
            listed = [
                {**self._one(t.id, t.logprob), "top_logprobs": [self._one(k, p) for k, p in t.top]} for t in tokens
            ]
            return {"content": listed, "refusal": None}
        ends = list(accumulate((len(t.text) for t in tokens), initial=self._told[index]))
        self._told[index] = ends.pop()
        return {
            "tokens": [self._token(t.id) for t in tokens], "token_logprobs": [t.logprob for t in tokens],
            "top_logprobs": [None if t.logprob is None else {self._token(k): p for k, p in t.top} for t in tokens], "text_offset": ends,
        }  # fmt: skip

    def _one(self, token: int, logprob: float | None) -> dict[str, Any]:
        raw = self.served.tokenizer.token_bytes(token)
        return {"token": self._token(token), "logprob": logprob, "bytes": list(raw)}

    def _token(self, token: int) -> str:
        return self.served.tokenizer.token_bytes(token).decode("utf-8", "replace")


def _text(some: Sequence[Event]) -> str:
    """What was written."""
    return "".join([e.text if isinstance(e, Token) else e.rest for e in some if not isinstance(e, Read)])


def _tokens(some: Sequence[Event]) -> list[Token]:
    """What was written, and what was read of a prompt that is told."""
    return [t for e in some for t in ([e] if isinstance(e, Token) else e.tokens if isinstance(e, Read) else ())]


def _reason(ticket: Ticket) -> str:
    reason = ticket.done.reason if ticket.done is not None else "stop"
    return _REASONS.get(reason, reason)


def line(chunk: Any) -> bytes:
    """A server-sent event."""
    return b"data: " + (chunk if isinstance(chunk, bytes) else encode(chunk).encode()) + b"\n\n"
