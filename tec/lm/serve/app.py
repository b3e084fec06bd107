"""The ASGI application: OpenAI's paths over an engine, with keys, limits, streams, and cancellation when a client leaves.

    POST /v1/chat/completions   POST /v1/responses   POST /v1/completions   POST /v1/embeddings
    GET /v1/models[/NAME]   GET /health   GET /metrics

starlette routes; uvicorn serves. Errors have the API's form: {"error": {"message", "type", "param", "code"}}.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import logging
import secrets
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import numpy as np

from ...errors import ArgumentError, MissingPackageError, TecError, install
from ..forms.form import Begin, Forms
from ..text.guard import Guard
from ..text.template import TemplateFault
from .answers import Answer, line
from .calls import form_of_call
from .engine import Refused, Request
from .metrics import Metrics
from .responses import Response
from .served import Served, Ticket, submit_all
from .wanted import Values, Wanted, Wrong, chat_of, completion_of, prompts_of, seeds_of

_LOG = logging.getLogger("tec.serve")
_POLL_SECONDS = 0.2  # between looks at whether a client that waits for a whole answer is still there


def application(served: Served) -> Any:
    """The application of one model. Raises MissingPackageError."""
    try:
        from starlette.applications import Starlette
        from starlette.routing import Route
    except ImportError:
        raise MissingPackageError("a server", "starlette", install("serve")) from None
    api = _Api(served)
    return Starlette(
        routes=[
            Route("/v1/chat/completions", api.guarded(api.chat), methods=["POST"]),
            Route("/v1/responses", api.guarded(api.respond), methods=["POST"]),
            Route("/v1/completions", api.guarded(api.complete), methods=["POST"]),
            Route("/v1/embeddings", api.guarded(api.embeddings), methods=["POST"]),
            Route("/v1/models", api.guarded(api.models)),
            Route("/v1/models/{name:path}", api.guarded(api.model)),
            Route("/metrics", api.guarded(api.metrics_text)),
            Route("/health", api.health),
        ],
        exception_handlers={404: _not_found, 405: _not_found},
    )


def run(served: Served, listening: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM. Streams that are under way have some seconds to end. Raises MissingPackageError."""
    try:
        import uvicorn
    except ImportError:
        raise MissingPackageError("a server", "uvicorn", install("serve")) from None
    config = uvicorn.Config(application(served), log_level="warning", lifespan="off", timeout_graceful_shutdown=10)
    try:
        uvicorn.Server(config).run(sockets=[listening])
    finally:
        served.engine.close()


def error_body(message: str, kind: str, parameter: str | None = None, code: str | None = None) -> dict[str, Any]:
    """An error as the API has it."""
    return {"error": {"message": message, "type": kind, "param": parameter, "code": code}}


async def _not_found(request: Any, error: Any) -> Any:
    from starlette.responses import JSONResponse

    text = f"{request.method} {request.url.path} is no part of this API"
    return JSONResponse(error_body(text, "invalid_request_error", code="not_found"), error.status_code)


class _Api:
    def __init__(self, served: Served):
        from starlette import responses

        self.served, self.metrics, self.responses = served, Metrics(served.engine), responses
        self.forms = Forms(served.tokenizer)
        self.guard = Guard(getattr(served.tokenizer, "special_texts", ()))

    # ---- what all requests share

    def guarded(self, handler: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
        """A handler behind the check of keys, with errors as answers."""

        async def handle(request: Any) -> Any:
            path = request.url.path if not request.url.path.startswith("/v1/models/") else "/v1/models/{name}"
            try:
                self._check_key(request)
                answer = await handler(request)
            except Exception as error:
                answer = self._error(error)
            self.metrics.requests.labels(path, str(answer.status_code)).inc()
            return answer

        return handle

    def _check_key(self, request: Any) -> None:
        keys = self.served.limits.keys
        if not keys:
            return
        given = request.headers.get("authorization", "")
        scheme, _, key = given.partition(" ")
        # All are compared, in time that does not tell how much of a key was right.
        right = [hmac.compare_digest(key.strip().encode(), k.encode()) for k in keys]
        if scheme.lower() != "bearer" or not any(right):
            raise Wrong("the API key is missing or wrong", code="invalid_api_key", status=401)

    def _error(self, error: BaseException) -> Any:
        status, body, headers = describe(error)
        if status >= 500:
            _LOG.error("a request failed: %s", error, exc_info=error.__cause__ or error)
        return self.responses.JSONResponse(body, status, headers)

    async def _body(self, request: Any) -> Values:
        """The body, unless it is longer than allowed: then it is not read on."""
        most = self.served.limits.body_bytes
        said = request.headers.get("content-length", "0")
        parts: list[bytes] = []
        size = int(said) if said.isdigit() and len(said) < 20 else 0
        if size <= most:
            size = 0
            async for part in request.stream():
                size += len(part)
                if size > most:
                    break
                parts.append(part)
        if size > most:
            raise Wrong(f"the request has more than {most} bytes", code="request_too_large", status=413)
        values = Values(b"".join(parts))
        name = values.of.get("model")
        if name is not None and name != self.served.name:
            raise Wrong(
                f"the model {str(name)[:200]!r} is not served here, {self.served.name!r} is",
                "model",
                code="model_not_found",
                status=404,
            )
        return values

    # ---- paths

    async def health(self, request: Any) -> Any:
        return self.responses.JSONResponse({"status": "ok", **self.served.engine.state()})

    async def metrics_text(self, request: Any) -> Any:
        text, kind = self.metrics.text()
        return self.responses.Response(text, headers={"content-type": kind})

    def _card(self) -> dict[str, Any]:
        return {"id": self.served.name, "object": "model", "created": self.served.created, "owned_by": "tec"}

    async def models(self, request: Any) -> Any:
        return self.responses.JSONResponse({"object": "list", "data": [self._card()]})

    async def model(self, request: Any) -> Any:
        name = request.path_params["name"]
        if name != self.served.name:
            raise Wrong(f"the model {name[:200]!r} is not served here", "model", code="model_not_found", status=404)
        return self.responses.JSONResponse(self._card())

    async def chat(self, request: Any) -> Any:
        return await self._chat(request, await self._body(request), None)

    async def respond(self, request: Any) -> Any:
        values = await self._body(request)
        response = Response(values, self.served.name)
        return await self._chat(request, response.chat, response)

    async def _chat(self, request: Any, values: Values, response: Response | None) -> Any:
        s = self.served
        wanted, messages = chat_of(values, s.usual, s.tokenizer.size)
        if s.template is None:
            raise Wrong("the model has no chat template; it serves /v1/completions", "messages")
        template = s.template

        def prompt_of() -> list[int]:
            tools = self.guard.all(wanted.tools) or None
            text = template.render(self.guard.all(messages), tools=tools, **wanted.more)
            return s.tokenizer.encode(text, add_special=False)

        prompt = await asyncio.to_thread(prompt_of)
        return await self._answer(request, values, wanted, [prompt], chat=True, response=response)

    async def complete(self, request: Any) -> Any:
        s = self.served
        values = await self._body(request)
        wanted, given = completion_of(values, s.usual, s.tokenizer.size)

        def tokens_of(one: str | list[int]) -> list[int]:
            return s.tokenizer.encode(one, special=False) if isinstance(one, str) else one

        prompts = await asyncio.to_thread(lambda: [tokens_of(p) for p in given])
        return await self._answer(request, values, wanted, prompts, chat=False)

    async def embeddings(self, request: Any) -> Any:
        s = self.served
        values = await self._body(request)
        given = prompts_of(values.of.get("input"), "input", s.tokenizer.size)
        form = values.of.get("encoding_format", "float")
        if form not in ("float", "base64"):
            raise Wrong("encoding_format is float or base64", "encoding_format")
        size = values.whole("dimensions", None, 1)
        data, count = [], 0
        for k, one in enumerate(given):
            tokens = s.tokenizer.encode(one, special=False) if isinstance(one, str) else one
            count += len(tokens)
            vector = np.asarray(await asyncio.to_thread(s.engine.embed, tokens), np.float32)
            if size is not None:
                vector = vector[:size] / max(float(np.linalg.norm(vector[:size])), 1e-12)
            shown = vector.tolist() if form == "float" else base64.b64encode(vector.tobytes()).decode()
            data.append({"object": "embedding", "index": k, "embedding": shown})
        usage = {"prompt_tokens": count, "total_tokens": count}
        return self.responses.JSONResponse({"object": "list", "data": data, "model": s.name, "usage": usage})

    # ---- texts

    async def _answer(
        self, request: Any, values: Values, wanted: Wanted, prompts: Sequence[list[int]], *, chat: bool, response: Response | None = None
    ) -> Any:  # fmt: skip
        """The answer to a request: its texts as they come, or all of them at the end. response: in whose form a chat's answer is told."""
        s = self.served
        form = await asyncio.to_thread(self._form, wanted)
        wanted.usage_at_end = wanted.usage_at_end or response is not None
        said = values.of.get("seed") is not None
        requests = []
        for prompt in prompts:
            room = s.engine.context - len(prompt)
            if room < min(wanted.most or 1, 1) or (wanted.most is not None and wanted.most > room and not chat):
                asked = f" and an answer of {wanted.most}" if wanted.most is not None else ""
                raise Wrong(
                    f"the context has {s.engine.context} tokens, and the request a prompt of {len(prompt)}{asked}",
                    "messages" if chat else "prompt", code="context_length_exceeded",
                )  # fmt: skip
            for sampling in seeds_of(wanted, said, secrets.randbits, wanted.choices):
                requests.append(
                    Request(
                        prompt, room if wanted.most is None else min(wanted.most, room), sampling, wanted.stop, wanted.logprobs, wanted.ignore_end, form,
                        wanted.echo and wanted.logprobs is not None,
                    )
                )  # fmt: skip
        echoed = [s.tokenizer.decode(p) for p in prompts for _ in range(wanted.choices)] if wanted.echo else ()
        tickets = submit_all(s, requests)
        answer = Answer(s, wanted, tickets, chat, echoed)
        started = time.perf_counter()
        self._measure_first(tickets, started)
        if wanted.stream:
            return self.responses.StreamingResponse(
                self._stream(answer, started, response),
                media_type="text/event-stream",
                headers={"cache-control": "no-cache", "x-accel-buffering": "no"},
            )
        whole = await self._whole(request, answer, started)
        return self.responses.JSONResponse(whole if response is None else response.whole(whole))

    def _form(self, wanted: Wanted) -> Begin | None:
        """What an answer must be: JSON, or a call of a tool as the model's template has it. Raises Wrong."""
        try:
            if wanted.forced:
                template = self.served.template
                schema, before, behind = form_of_call(wanted.tools, "" if template is None else template.tool_source)
                return self.forms.of(schema, before, behind)
            return None if wanted.schema is None else self.forms.of(wanted.schema)
        except ArgumentError as error:
            raise Wrong(error.summary, "tools" if wanted.forced else "response_format") from None

    def _measure_first(self, tickets: Sequence[Ticket], started: float) -> None:
        for ticket in tickets:
            ticket.on_first = lambda: self.metrics.first.observe(time.perf_counter() - started)

    async def _whole(self, request: Any, answer: Answer, started: float) -> dict[str, Any]:
        work = asyncio.ensure_future(answer.whole())
        try:
            while not work.done():
                await asyncio.wait([work], timeout=_POLL_SECONDS)
                if not work.done() and await request.is_disconnected():
                    raise Wrong("the client left", status=499)
                if time.perf_counter() - started > self.served.limits.seconds:
                    raise Wrong(
                        f"the request took more than {self.served.limits.seconds:g} s", code="timeout", status=504
                    )
            return work.result()
        finally:
            self._end(answer, started)
            if not work.done():
                work.cancel()

    async def _stream(self, answer: Answer, started: float, response: Response | None) -> AsyncIterator[bytes]:
        """Ends of connections end this generator, which cancels what is under way."""
        try:
            async with asyncio.timeout(self.served.limits.seconds):
                if response is None:
                    async for event in answer.lines():
                        yield event
                    yield line(b"[DONE]")
                else:
                    async for chunk in response.events(answer.chunks()):
                        yield line(chunk)
        except TimeoutError:
            yield line(
                error_body(
                    f"the request took more than {self.served.limits.seconds:g} s", "server_error", code="timeout"
                )
            )
        except TecError as error:  # the status was sent long ago: the error is an event
            yield line(describe(error)[1])
        finally:
            self._end(answer, started)

    def _end(self, answer: Answer, started: float) -> None:
        for ticket in answer.tickets:
            if ticket.done is None:
                self.metrics.cancelled.inc()
                ticket.cancel()
        usage = answer.usage()
        self.metrics.prompt_tokens.inc(usage["prompt_tokens"])
        self.metrics.cached_tokens.inc(usage["prompt_tokens_details"]["cached_tokens"])
        self.metrics.tokens.inc(usage["completion_tokens"])
        self.metrics.whole.observe(time.perf_counter() - started)


def describe(error: BaseException) -> tuple[int, dict[str, Any], dict[str, str]]:
    """An error as a status, a body, and headers. What is no fault of the request tells nothing of the server's inside."""
    if isinstance(error, Wrong):
        kind = {401: "authentication_error", 429: "rate_limit_error"}.get(
            error.status, "invalid_request_error" if error.status < 500 else "server_error"
        )
        headers = {"www-authenticate": "Bearer"} if error.status == 401 else {}
        return error.status, error_body(error.summary, kind, error.parameter, error.code), headers
    if isinstance(error, Refused):
        return (
            429,
            error_body(error.summary, "rate_limit_error", code="rate_limit_exceeded"),
            {"retry-after": str(error.seconds)},
        )
    if isinstance(error, (ArgumentError, TemplateFault)):
        return 400, error_body(error.summary, "invalid_request_error"), {}
    return 500, error_body("the server failed at this request; its log says why", "server_error"), {}
