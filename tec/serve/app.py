"""The application: routes, keys, errors as JSON, a log of requests. Any ASGI server runs it; `serve` runs it on uvicorn."""

from __future__ import annotations

import hmac
import json
import logging
import socket
import sys
import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .errors import Refusal
from .inference import Inference
from .repository import Repository

# Of a request: a batch of 32 images in float32 has 19 MB; a client rarely waits for longer than a minute.
BODY_BYTES, TIME_S = (64 << 20, 60.0)
# A thread that has run a batch waits so long for the interpreter, where the one that reads requests is busy. Python's own 5 ms are a quarter of a batch of 32 rows
# of 0.67 ms.
_SWITCH_S = 5e-4
_OPEN = ("/v2/health/live", "/v2/health/ready")  # probes bring no keys
_LOG = logging.getLogger("tec.serve")


def create_app(
    repository: Repository,
    *,
    routes: Sequence[BaseRoute] = (),
    keys: Collection[str] = (),
    body_bytes: int = BODY_BYTES,
    time_s: float = TIME_S,
    log: bool = False,
) -> ASGIApp:
    """The application over a repository of models.

    routes: further ones, of other protocols. keys: of which a request must bring one (`Authorization: Bearer KEY`), none for an open server.
    body_bytes: of a request, the most. time_s: after which a request is given up. log: a line of JSON for each request, to logger "tec.serve".
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        repository.close()

    inference = Inference(repository, body_bytes, time_s)
    handlers: dict[Any, Any] = {Refusal: _refused, HTTPException: _not_found, Exception: _fault}
    app: ASGIApp = Starlette(routes=[*inference.routes(), *routes], exception_handlers=handlers, lifespan=lifespan)
    if keys:
        app = _Keys(app, keys)
    return _Log(app) if log else app


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    headers = {} if error.retry_s is None else {"Retry-After": str(error.retry_s)}
    return JSONResponse({"error": error.text}, error.status, headers)


async def _not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse(
        {"error": f"{request.method} {request.url.path}: {error.detail}"}, error.status_code, error.headers
    )


async def _fault(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": f"a fault of the server: {type(error).__name__}"}, 500)


class _Keys:
    """Lets through what brings a key, and probes."""

    def __init__(self, app: ASGIApp, keys: Collection[str]):
        self.app, self.keys = app, [k.encode() for k in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] == "http"
            and scope["path"] not in _OPEN
            and not self._has(dict(scope["headers"]).get(b"authorization", b""))
        ):
            await JSONResponse(
                {"error": "a key is wanted: Authorization: Bearer KEY"}, 401, {"WWW-Authenticate": "Bearer"}
            )(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _has(self, header: bytes) -> bool:
        kind, _, key = header.partition(b" ")
        return kind.lower() == b"bearer" and any(hmac.compare_digest(key.strip(), k) for k in self.keys)


class _Log:
    """Writes a line of JSON for each request."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begin, status = time.perf_counter(), 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, sending)
        finally:
            row = {
                "method": scope["method"],
                "path": scope["path"],
                "status": status,
                "ms": round((time.perf_counter() - begin) * 1e3, 3),
            }
            _LOG.info(json.dumps(row))


def serve(app: ASGIApp, listening: socket.socket, **options: Any) -> None:
    """Run the application on uvicorn until it is told to stop; requests that are under way are answered first. listening: of `sockets.socket_at`.
    options: uvicorn's (ssl_keyfile ...)."""
    sys.setswitchinterval(_SWITCH_S)
    config = uvicorn.Config(app, log_level=options.pop("log_level", "warning"), **options)
    with suppress(KeyboardInterrupt):  # uvicorn raises the signal again that ended it
        uvicorn.Server(config).run(sockets=[listening])
