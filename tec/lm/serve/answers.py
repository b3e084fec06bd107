"""Events as answers of OpenAI's API: whole ones, and chunks of streams."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Sequence
from typing import Any

from .calls import calls_of, held_back
from .engine import Done, Event, Token
from .served import Served, Ticket
from .wanted import Wanted

_REASONS = {"cancelled": "stop", "error": "stop"}


class Answer:
    """What is common to the chunks of one answer. chat: as of chat completions; otherwise of completions."""

    def __init__(
        self, served: Served, wanted: Wanted, tickets: Sequence[Ticket], chat: bool, echoed: Sequence[str] = ()
    ):
        self.served, self.wanted, self.tickets, self.chat, self.echoed = served, wanted, tickets, chat, echoed
        kind = "chatcmpl" if chat else "cmpl"
        self.head = {"id": f"{kind}-{secrets.token_hex(12)}", "created": served.created, "model": served.name}
        self.names = {t["function"]["name"] for t in wanted.tools}

    # ---- whole answers

    async def whole(self) -> dict[str, Any]:
        """The answer when all texts are written."""
        choices = await asyncio.gather(*(self._choice(k, t) for k, t in enumerate(self.tickets)))
        kind = "chat.completion" if self.chat else "text_completion"
        return {**self.head, "object": kind, "choices": choices, "usage": self.usage()}

    async def _choice(self, index: int, ticket: Ticket) -> dict[str, Any]:
        text, tokens = "", []
        async for event in ticket.events():
            text += _text(event)
            if isinstance(event, Token):
                tokens.append(event)
        reason = _reason(ticket)
        probabilities = self._probabilities(tokens)
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

    async def chunks(self) -> AsyncIterator[dict[str, Any]]:
        """The chunks of a stream as they come, of all texts in turn."""
        arrivals: asyncio.Queue[dict[str, Any] | BaseException | None] = asyncio.Queue()

        async def pump(index: int, ticket: Ticket) -> None:
            try:
                async for chunk in self._parts(index, ticket):
                    await arrivals.put(chunk)
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
            if self.wanted.usage_at_end:
                yield {**self._chunk_head(), "choices": [], "usage": self.usage()}
        finally:
            for t in tasks:
                t.cancel()

    async def _parts(self, index: int, ticket: Ticket) -> AsyncIterator[dict[str, Any]]:
        if self.chat:
            yield self._chunk(index, {"role": "assistant", "content": ""})
        elif self.echoed:
            yield self._chunk(index, self.echoed[index])
        text, shown = "", 0
        async for event in ticket.events():
            text += _text(event)
            until = held_back(text) if self.names else len(text)
            tokens = [event] if isinstance(event, Token) else []
            piece, shown = text[shown : max(until, shown)], max(until, shown)
            if piece or (tokens and self.wanted.logprobs is not None):
                yield self._chunk(index, {"content": piece} if self.chat else piece, self._probabilities(tokens))
        reason = _reason(ticket)
        if self.names:
            rest, calls = calls_of(text[shown:], self.names)
            if calls:
                reason = "tool_calls"
                yield self._chunk(index, {"tool_calls": [{"index": k, **c} for k, c in enumerate(calls)]})
            elif rest:
                yield self._chunk(index, {"content": rest})
        yield self._chunk(index, {} if self.chat else "", reason=reason)

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

    def _probabilities(self, tokens: Sequence[Token]) -> dict[str, Any] | None:
        if self.wanted.logprobs is None or not tokens:
            return None
        if self.chat:
            listed = [
                {**self._one(t.id, t.logprob), "top_logprobs": [self._one(k, p) for k, p in t.top]} for t in tokens
            ]
            return {"content": listed, "refusal": None}
        return {
            "tokens": [self._token(t.id) for t in tokens], "token_logprobs": [t.logprob for t in tokens],
            "top_logprobs": [{self._token(k): p for k, p in t.top} for t in tokens], "text_offset": _offsets(tokens),
        }  # fmt: skip

    def _one(self, token: int, logprob: float | None) -> dict[str, Any]:
        raw = self.served.tokenizer.token_bytes(token)
        return {"token": self._token(token), "logprob": logprob, "bytes": list(raw)}

    def _token(self, token: int) -> str:
        return self.served.tokenizer.token_bytes(token).decode("utf-8", "replace")


def _offsets(tokens: Sequence[Token]) -> list[int]:
    found, at = [], 0
    for t in tokens:
        found.append(at)
        at += len(t.text)
    return found


def _text(event: Event) -> str:
    return event.rest if isinstance(event, Done) else event.text


def _reason(ticket: Ticket) -> str:
    reason = ticket.done.reason if ticket.done is not None else "stop"
    return _REASONS.get(reason, reason)


def line(chunk: Any) -> bytes:
    """A server-sent event."""
    return b"data: " + (chunk if isinstance(chunk, bytes) else json.dumps(chunk, ensure_ascii=False).encode()) + b"\n\n"
