"""A language-model server's speed, in JSON lines: texts in turn, texts in one batch, and the same batch behind the server.

    python -m benchmarks.serving model.gguf --texts 1 8 32 --tokens 48

    turn     each text has caches of its own, and the texts take turns: what a server without batches does
    batch    one run for a token of every text, without an engine
    engine   the same through the engine: scheduling, sampling, text, events
    server   the same through HTTP: clients with a thread each stream completions from a server of another process

`tokens_per_second` is of written tokens by the wall clock, behind the prompts; `cpu_ms` is processor time a token of this process, which a busy machine does not
change, where nothing else runs in it. Medians of `--rounds`, whose kinds take turns. Tokens are greedy.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tec.lm import load
from tec.lm.joint import PagedModel, Piece
from tec.lm.serve.batches import BatchEngine
from tec.lm.serve.compiled import CompiledModel
from tec.lm.serve.engine import Done, Request, Token

Found = tuple[float, float]  # seconds of the wall clock and of the processor


def clocks() -> Found:
    return time.perf_counter(), time.process_time()


def since(start: Found) -> Found:
    now = clocks()
    return now[0] - start[0], now[1] - start[1]


def in_turn(lm: Any, prompts: Sequence[list[int]], tokens: int) -> Found:
    """Each text a token after another."""
    model = CompiledModel(lm)
    slots = [model.slot() for _ in prompts]
    written = [int(s.read(p).argmax()) for s, p in zip(slots, prompts)]
    start = clocks()
    for _ in range(tokens - 1):
        written = [int(s.read([t]).argmax()) for s, t in zip(slots, written)]
    return since(start)


def batched(model: PagedModel, prompts: Sequence[list[int]], tokens: int) -> Found:
    """All texts by one run a token."""
    each = -(-(len(prompts[0]) + tokens) // model.block)
    tables = [list(range(k * each, (k + 1) * each)) for k in range(len(prompts))]
    written = [int(model.step([Piece(p, 0, t)])[0].argmax()) for p, t in zip(prompts, tables)]
    start, length = clocks(), len(prompts[0])
    for n in range(tokens - 1):
        logits = model.step([Piece([w], length + n, t) for w, t in zip(written, tables)])
        written = logits.argmax(1).tolist()
    return since(start)


def through_engine(lm: Any, model: PagedModel, prompts: Sequence[list[int]], tokens: int) -> Found:
    """The same by the engine, from the time when all texts have their first token."""
    engine = BatchEngine(model, lm.checkpoint.tokenizer.token_bytes, slots=len(prompts))
    ends, begun, started = [threading.Event() for _ in prompts], [False] * len(prompts), threading.Event()

    def listener(k: int) -> Callable[[Any], None]:
        def hear(event: Any) -> None:
            if isinstance(event, Token):
                begun[k] = True
                if all(begun):
                    started.set()
            elif isinstance(event, Done):
                ends[k].set()

        return hear

    try:
        for k, p in enumerate(prompts):
            engine.submit(Request(p, tokens, ignore_end=True), listener(k))
        started.wait()
        start = clocks()
        for e in ends:
            e.wait()
        return since(start)
    finally:
        engine.close()


def serve(path: str, context: int, slots: int, blocks: int, port: Any) -> None:
    """A server in a process of its own."""
    from tec.lm.serve.app import run
    from tec.lm.serve.compiled import served_of
    from tec.serve.sockets import socket_at

    listening = socket_at("127.0.0.1", 0)
    served = served_of(load(path, context=context), "model", slots=slots, blocks=blocks)
    port.put(listening.getsockname()[1])
    run(served, listening)


def through_server(port: int, prompts: Sequence[list[int]], tokens: int) -> Found:
    """The same by clients that stream: from the last client's first token to the end of all."""
    import http.client

    firsts, lasts = [0.0] * len(prompts), [0.0] * len(prompts)

    def client(k: int) -> None:
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        body = {"prompt": prompts[k], "max_tokens": tokens, "temperature": 0, "stream": True, "ignore_eos": True}
        link.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
        answer = link.getresponse()
        while line := answer.readline():
            if line.startswith(b"data: {"):
                firsts[k] = firsts[k] or time.perf_counter()
                lasts[k] = time.perf_counter()

    threads = [threading.Thread(target=client, args=(k,)) for k in range(len(prompts))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return max(lasts) - max(firsts), 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--texts", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--prompt", type=int, default=32, help="tokens of a prompt")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", nargs="+", default=["turn", "batch", "engine", "server"])
    a = parser.parse_args()
    context, most = a.prompt + a.tokens + 8, max(a.texts)
    lm = load(a.model, context=context)
    blocks = most * -(-context // 32) + most
    model = PagedModel(lm, blocks=blocks)
    port = None
    if "server" in a.kinds:
        own = multiprocessing.get_context("spawn")
        said = own.Queue()
        server = own.Process(target=serve, args=(a.model, context, most, blocks, said), daemon=True)
        server.start()
        port = said.get()
    rng = np.random.default_rng(0)
    for texts in a.texts:
        found: dict[str, list[Found]] = {}
        for _ in range(a.rounds):
            prompts = rng.integers(10, 1000, (texts, a.prompt)).tolist()
            runs: dict[str, Callable[[], Found]] = {
                "turn": lambda p=prompts: in_turn(lm, p, a.tokens), "batch": lambda p=prompts: batched(model, p, a.tokens),
                "engine": lambda p=prompts: through_engine(lm, model, p, a.tokens), "server": lambda p=prompts: through_server(port or 0, p, a.tokens),
            }  # type: ignore[misc] # fmt: skip
            for kind in a.kinds:
                found.setdefault(kind, []).append(runs[kind]())
        for kind, both in found.items():
            wall, cpu = (statistics.median(x) for x in zip(*both))
            count = texts * (a.tokens - 1)
            row = {"model": a.model, "texts": texts, "kind": kind, "tokens_per_second": round(count / wall, 1)}
            print(json.dumps(row | ({"cpu_ms": round(1e3 * cpu / count, 3)} if cpu else {})), flush=True)
    if port is not None:
        server.terminate()


if __name__ == "__main__":
    main()
