"""What a request to `tec serve` costs beside its run: processor time over an empty endpoint of the same application, without a network between.

    python -m benchmarks.server_cost

A network of two small operators, tensors of 48 bytes. Kinds take turns, medians of rounds.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import tec
from tec.graph import Graph
from tec.graph.builders import Builder
from tec.ops.dims import Dim
from tec.serve.app import create_app
from tec.serve.repository import Repository

PATH, EMPTY = "/v2/models/scaled/infer", "/empty"
ROUNDS, NUMBER = 9, 1000


def network() -> Any:
    g = Graph("scaled")
    x = g.input("x", "float32", (Dim("batch"), 3))
    b = Builder(g, "l")
    y = b.op("multiply", x, b.const(np.array(2, "float32")))
    g.set_outputs([y, b.op("reduce_sum", x, axes=(1,), keepdims=False)], ["y", "total"])
    return tec.compile(g, "llvm")


async def empty(request: Request) -> Response:
    await request.body()
    return Response(b"{}", media_type="application/json")


def bodies() -> dict[str, tuple[str, bytes, list[tuple[bytes, bytes]]]]:
    """Path, body and headers of each kind of request."""
    x = np.arange(12, dtype="float32").reshape(4, 3)
    about = {"name": "x", "datatype": "FP32", "shape": [4, 3]}
    text = json.dumps({"inputs": [{**about, "data": x.tolist()}]}).encode()
    head = json.dumps({
        "inputs": [{**about, "parameters": {"binary_data_size": 48}}], "parameters": {"binary_data_output": True}
    }).encode()  # fmt: skip
    length = [(b"inference-header-content-length", str(len(head)).encode())]
    return {"empty": (EMPTY, text, []), "JSON": (PATH, text, []), "binary": (PATH, head + x.tobytes(), length)}


async def ask(app: Any, path: str, body: bytes, headers: list[tuple[bytes, bytes]]) -> int:
    """The answer's status."""
    status, given = 0, False

    async def receive() -> Any:
        nonlocal given
        if given:
            await asyncio.sleep(3600)
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        nonlocal status
        status = message.get("status", status)

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http", "path": path, "raw_path": path.encode(),
        "query_string": b"", "root_path": "", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2), "state": {},
        "headers": [(b"host", b"127.0.0.1"), (b"content-length", str(len(body)).encode()), *headers],
    }  # fmt: skip
    await app(scope, receive, send)
    return status


async def measure(app: Any) -> dict[str, float]:
    kinds, found = bodies(), dict[str, list[float]]()
    for _ in range(ROUNDS):
        for kind, words in kinds.items():
            assert await ask(app, *words) == 200
            begin = time.process_time()
            for _ in range(NUMBER):
                await ask(app, *words)
            found.setdefault(kind, []).append((time.process_time() - begin) / NUMBER * 1e6)
    return {kind: statistics.median(v) for kind, v in found.items()}


def main() -> None:
    repository = Repository()
    repository.add("scaled", network())
    app = create_app(repository, routes=[Route(EMPTY, empty, methods=["POST"])])
    found = asyncio.run(measure(app))
    for kind in ("JSON", "binary"):
        row = {"what": f"a request with {kind} tensors over an empty one", "us": round(found[kind] - found["empty"], 1)}
        print(json.dumps({**row, "empty_us": round(found["empty"], 1)}))
    repository.close()


if __name__ == "__main__":
    main()
