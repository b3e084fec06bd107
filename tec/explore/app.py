"""The server of `tec explore`: one page, and one address that runs a program.

What a request must have, since whoever reaches it runs programs as the user who started it:

- it comes to the loopback: the server binds 127.0.0.1 alone
- its `Host` is the server's own name: a name of elsewhere that was made to lead here (DNS rebinding) is refused
- its `Origin`, where a browser says one, is the server's own
- it carries the token that was drawn at the start: the page has it in its address, a program on this machine that did not see it has not. It stands in a header that
  a page of another origin may not send unasked, and is never allowed to

Answers allow no other page to hold them in a frame, to load anything from elsewhere, or to learn the page's address.
"""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Callable

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from .page import live_page
from .worker import Worker

_MOST_BYTES = 200_000  # of a question
HEADER = "x-tec-token"
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
_HEADERS = {
    "Content-Security-Policy": _POLICY, "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
}  # fmt: skip


def application(worker: Worker, port: Callable[[], int], token: str, code: str, target: str) -> Starlette:
    """The application. port: the one that the server listens at; code, target: what the page shows first."""

    def refusal(request: Request, given: str) -> Response | None:
        hosts = {f"127.0.0.1:{port()}", f"localhost:{port()}"}
        if request.headers.get("host", "") not in hosts:
            return _refused(403, "this host is not the server's name")
        origin = request.headers.get("origin")
        if origin is not None and origin not in {f"http://{h}" for h in hosts}:
            return _refused(403, "pages of another origin may not ask")
        if not secrets.compare_digest(given.encode(), token.encode()):
            return _refused(403, "the token is wrong: open the address that tec explore printed")
        return None

    async def page(request: Request) -> Response:
        return refusal(request, request.query_params.get("token", "")) or HTMLResponse(
            live_page(code, target), headers=_HEADERS
        )

    async def explain(request: Request) -> Response:
        no = refusal(request, request.headers.get(HEADER, ""))
        if no is not None:
            return no
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            return _refused(415, "a question is application/json")
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > _MOST_BYTES:
                return _refused(413, f"a question has at most {_MOST_BYTES} bytes")
        try:
            asked = json.loads(body)
            text, wanted = asked["code"], asked["target"]
        except (ValueError, KeyError, TypeError):
            text = wanted = None
        if not isinstance(text, str) or not isinstance(wanted, str):
            return _refused(400, 'a question is {"code": text, "target": text}')
        said = await anyio.to_thread.run_sync(worker.ask, text, wanted)
        return JSONResponse(said, headers=_HEADERS)

    return Starlette(routes=[Route("/", page), Route("/explain", explain, methods=["POST"])])


def _refused(status: int, why: str) -> Response:
    return JSONResponse({"error": {"message": why, "hint": "", "line": 0}}, status, headers=_HEADERS)


def listening(port: int) -> socket.socket:
    """A socket at that port of 127.0.0.1, 0 for any that is free. OSError where it is taken."""
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        s.bind(("127.0.0.1", port))
        s.listen(16)
    except OSError:
        s.close()
        raise
    return s


def server(worker: Worker, at: socket.socket, token: str, code: str, target: str) -> uvicorn.Server:
    """The server at a socket; `run(sockets=[at])` runs it until it is told to stop."""
    app = application(worker, lambda: int(at.getsockname()[1]), token, code, target)
    return uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=1))


def address(at: socket.socket, token: str) -> str:
    """Where the page is."""
    return f"http://127.0.0.1:{at.getsockname()[1]}/?token={token}"
