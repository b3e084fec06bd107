"""The paths of the open inference protocol, version 2: health, metadata, inference, the repository.

Source: KServe's "Open Inference Protocol (V2)", Triton's "Model Repository Extension" and "Binary Tensor Data Extension".
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from .batching import Batcher, Sequence
from .errors import Refusal
from .repository import Model, Repository
from .tensors import TYPES, Array, read_request, unpacked, write_answer
from .tracing import span

VERSION = "2"
# Before it is watched whether the client is still there, which costs a task: most answers are quicker.
_UNWATCHED_S = 0.02
EXTENSIONS = ["model_repository", "binary_tensor_data", "model_configuration"]
_LENGTH, _ENCODING, _JSON_LENGTH = b"content-length", b"content-encoding", b"inference-header-content-length"
_READ = (_LENGTH, _ENCODING, _JSON_LENGTH)
Handler = Callable[[Request], Awaitable[Response]]


@dataclass
class Answered:
    """A request for an inference while it is answered. status: of its answer; 500 until there is one."""

    repository: Repository
    name: str
    version: str
    status: int = 500

    def model(self) -> Model:
        """The model that answers. Refusal (503) where it cannot run yet."""
        return self.repository.ready(self.name, self.version)


@contextmanager
def answering(
    repository: Repository, name: str, version: str, over: str, headers: Mapping[str, Any]
) -> Iterator[Answered]:
    """Count and trace a request for an inference, with the status of its answer or of its refusal."""
    begin = time.perf_counter()
    model = repository.get(name, version)
    answered = Answered(repository, name, version)
    with repository.active, span("infer", model.name, model.version, over, headers) as told:
        try:
            yield answered
        except Refusal as error:
            answered.status = error.status
            raise
        finally:
            told("status", answered.status)
            repository.metrics.answered(model.name, model.version, answered.status, time.perf_counter() - begin)


class Inference:
    """See the module. body_bytes: of a request, the most; time_s: how long an answer may take."""

    def __init__(self, repository: Repository, body_bytes: int, time_s: float):
        self.repository, self.body_bytes, self.time_s = repository, body_bytes, time_s
        self._results: _Results | None = None  # of the event loop that asked last

    def routes(self) -> list[Route]:
        """The protocol's routes."""
        model = "/v2/models/{model}"
        versions = f"{model}/versions/{{version}}"
        out = [  # the routes are tried in order
            *(Route(f"{path}/infer", self.infer, methods=["POST"]) for path in (model, versions)),
            Route("/v2", self.server), Route("/v2/health/live", self.live), Route("/v2/health/ready", self.ready),
            Route("/metrics", self.metrics),
            Route("/v2/repository/index", self.index, methods=["POST"]),
            Route("/v2/repository/models/{model}/load", self.load, methods=["POST"]),
            Route("/v2/repository/models/{model}/unload", self.unload, methods=["POST"]),
        ]  # fmt: skip
        for path in (model, versions):
            out += [
                Route(path, self.metadata), Route(f"{path}/ready", self.model_ready), Route(f"{path}/config", self.config),
            ]  # fmt: skip
        return out

    # ---- health and metadata

    async def server(self, request: Request) -> Response:
        return JSONResponse({"name": "tec", "version": VERSION, "extensions": EXTENSIONS})

    async def live(self, request: Request) -> Response:
        return JSONResponse({"live": True})

    async def ready(self, request: Request) -> Response:
        is_ready = self.repository.is_ready
        return JSONResponse({"ready": is_ready}, 200 if is_ready else 503)

    async def model_ready(self, request: Request) -> Response:
        model = self._model(request)
        return JSONResponse(
            {"name": model.name, "ready": model.state == "READY"}, 200 if model.state == "READY" else 503
        )

    async def metadata(self, request: Request) -> Response:
        model = self.repository.ready(**self._path(request))
        return JSONResponse({
            "name": model.name, "versions": [m.version for m in self.repository.index() if m.name == model.name], "platform": "tec",
            "inputs": [port_row(p) for p in model.inputs], "outputs": [port_row(p) for p in model.outputs],
        })  # fmt: skip

    async def config(self, request: Request) -> Response:
        model = self.repository.ready(**self._path(request))
        batcher = model.current()
        most = batcher.max_batch if batcher.batched else 0
        ports = [
            [
                {"name": p["name"], "data_type": f"TYPE_{TYPES[p['dtype']]}", "dims": _dims(p)[bool(most) :]}
                for p in some
            ]
            for some in (model.inputs, model.outputs)
        ]
        return JSONResponse({
            "name": model.name, "platform": "tec", "max_batch_size": most, "input": ports[0], "output": ports[1],
            "dynamic_batching": {"max_queue_delay_microseconds": round(batcher.delay_s * 1e6)} if most else None,
        })  # fmt: skip

    async def metrics(self, request: Request) -> Response:
        for m in self.repository.index():
            self.repository.metrics.waiting.labels(m.name, m.version).set(
                m.batcher.waiting if m.batcher is not None else 0
            )
        return Response(self.repository.metrics.text(), media_type="text/plain; version=0.0.4")

    # ---- the repository

    async def index(self, request: Request) -> Response:
        rows = [
            {"name": m.name, "version": m.version, "state": m.state, "reason": m.reason}
            for m in self.repository.index()
        ]
        return JSONResponse(rows)

    async def load(self, request: Request) -> Response:
        await asyncio.to_thread(self.repository.reload, request.path_params["model"])
        return JSONResponse({})

    async def unload(self, request: Request) -> Response:
        await asyncio.to_thread(self.repository.unload, request.path_params["model"])
        return JSONResponse({})

    # ---- inference

    async def infer(self, request: Request) -> Response:
        with answering(self.repository, **self._path(request), over="http", headers=request.headers) as answered:
            response = await self._infer(request, answered.model())
            answered.status = response.status_code
            return response

    async def _infer(self, request: Request, model: Model) -> Response:
        headers = {k: v for k, v in request.scope["headers"] if k in _READ}
        body = await self._body(request, headers.get(_LENGTH))
        body = unpacked(body, _text(headers.get(_ENCODING)), self.body_bytes)
        asked = read_request(body, _text(headers.get(_JSON_LENGTH)))
        begun = model.start(asked.inputs, sequence_of(asked.parameters), self.repository.active.now == 1)
        made = begun.made
        if begun.future is not None:
            made = await self._wait(request, begun.batcher, begun.future)
        elif begun.batcher.is_slow:
            for _ in range(2):  # what came meanwhile is read, and its task begins
                await asyncio.sleep(0)
            if self.repository.active.now > 1:
                begun.batcher.crowd()
        assert made is not None
        rows = [(p["name"], p["dtype"], a) for p, a in zip(begun.batcher.outputs, made)]
        pieces, head = write_answer(model.name, model.version, asked, rows)
        if head is None:
            return Response(pieces[0], media_type="application/json")
        more = {"Inference-Header-Content-Length": str(head)}
        return Response(b"".join(pieces), media_type="application/octet-stream", headers=more)

    async def _wait(self, request: Request, batcher: Batcher, future: Future[list[Array]]) -> list[Array]:
        """The results, unless the client leaves or time is over first."""
        loop = asyncio.get_running_loop()
        if self._results is None or self._results.loop is not loop:
            self._results = _Results(loop)
        result = self._results.follow(future)
        if not result.done():
            timer = result.get_loop().call_later(min(_UNWATCHED_S, self.time_s), _wake, waiting := _waiter(result))
            await waiting
            timer.cancel()
        if result.done():
            return result.result()
        gone = asyncio.ensure_future(_gone(request))
        both: set[asyncio.Future[Any]] = {result, gone}
        try:
            done, _ = await asyncio.wait(
                both, timeout=max(0.0, self.time_s - _UNWATCHED_S), return_when=asyncio.FIRST_COMPLETED
            )
            if result in done:
                return result.result()
            batcher.leave(future)
            if gone in done:
                raise Refusal(499, "the client left")
            raise Refusal(504, f"no answer within {self.time_s:g} seconds")
        finally:
            gone.cancel()
            if not result.done():
                result.cancel()

    async def _body(self, request: Request, said: bytes | None) -> bytes:
        if said is not None and said.isdigit() and int(said) > self.body_bytes:
            raise Refusal(413, f"the body has {int(said)} bytes, {self.body_bytes} are taken")
        pieces, total, more = list[bytes](), 0, True
        while more:
            message = await request.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            pieces.append(message.get("body", b""))
            total += len(pieces[-1])
            more = message.get("more_body", False)
            if total > self.body_bytes:
                raise Refusal(413, f"the body is larger than {self.body_bytes} bytes")
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _path(self, request: Request) -> dict[str, str]:
        return {"name": request.path_params["model"], "version": request.path_params.get("version", "")}

    def _model(self, request: Request) -> Model:
        return self.repository.get(**self._path(request))


class _Results:
    """Futures of threads, followed in an event loop.

    The loop is woken once for all that is done by then. Waking writes into a socket, for which a thread gives up the interpreter: a thread that answers a batch
    would wait for it again behind each of its answers, and run nothing meanwhile.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self.loop = loop
        self._done: deque[Callable[[], None]] = deque()
        self._woken = False  # the loop will look, and has not begun to

    def follow(self, future: Future[list[Array]]) -> asyncio.Future[list[Array]]:
        """A thread's future in the event loop. `asyncio.wrap_future` does more, and takes longer."""
        result: asyncio.Future[list[Array]] = self.loop.create_future()

        def take() -> None:
            if result.done():
                return
            if future.cancelled():
                result.cancel()
            elif (error := future.exception()) is not None:
                result.set_exception(error)
            else:
                result.set_result(future.result())

        future.add_done_callback(lambda _: self._tell(take))
        return result

    def _tell(self, take: Callable[[], None]) -> None:
        self._done.append(take)
        if not self._woken:
            self._woken = True
            with suppress(RuntimeError):  # the loop has ended
                self.loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        self._woken = False  # first: what is told from here on wakes the loop again
        while self._done:
            self._done.popleft()()


def _waiter(result: asyncio.Future[list[Array]]) -> asyncio.Future[None]:
    """Done when the result is, or when it is woken."""
    waiting: asyncio.Future[None] = result.get_loop().create_future()
    result.add_done_callback(lambda _: _wake(waiting))
    return waiting


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


async def _gone(request: Request) -> None:
    """Until the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _text(header: bytes | None) -> str | None:
    return None if header is None else header.decode("latin-1")


def _dims(port: dict[str, Any]) -> list[int]:
    return [d if isinstance(d, int) else -1 for d in port["shape"]]


def sequence_of(parameters: Mapping[str, Any]) -> Sequence | None:
    """The sequence that a request's parameters name (Triton's sequence extension)."""
    name = parameters.get("sequence_id")
    if not isinstance(name, (int, str)) or isinstance(name, bool) or name in (0, ""):
        return None
    return Sequence(name, bool(parameters.get("sequence_start")), bool(parameters.get("sequence_end")))


def port_row(port: dict[str, Any]) -> dict[str, Any]:
    return {"name": port["name"], "datatype": TYPES[port["dtype"]], "shape": _dims(port)}
