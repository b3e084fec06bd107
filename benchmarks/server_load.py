"""`tec serve` under load: rows a second that clients get over what the network alone does in full batches, in JSON lines.

    python -m benchmarks.server_load                          # 64 clients, rows of some 0.5 ms
    python -m benchmarks.server_load --widths 256 1024 64 --clients 16 --threads 2
    python -m benchmarks.server_load --onnx resnet50.onnx --target cuda

A perceptron with an open batch size, or an ONNX network of one float32 input, whose first dimension is left open. The peer is the same package run by this process in full batches, by as many threads as the server has; it has the machine
for itself. Then the server, a process of its own, is asked by clients that each send one row and wait for it. The clients are a few processes of plain sockets on
the cores that the server leaves free; where there are none, they take part of the server's time, and the row says so.
`ratio` is the peer's rows a second over the server's. Blocks take turns; medians.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import multiprocessing
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import tec
from tec.graph import Graph
from tec.graph.builders import Builder
from tec.ops.dims import Dim

BLOCKS = 3
READY_S = 120  # within which a network is to be loaded
NAME = "network"


def perceptron(widths: list[int], target: str) -> Any:
    rng, g = np.random.default_rng(1), Graph(NAME)
    b = Builder(g, "l")
    x = g.input("x", "float32", (Dim("batch"), widths[0]))
    for m, n in itertools.pairwise(widths):
        x = b.op("relu", b.op("matmul", x, b.const(rng.normal(size=(m, n)).astype("float32") / m**0.5)))
    g.set_outputs([x], ["y"])
    return tec.compile(g, target)


def of_file(path: str, target: str) -> Any:
    """The network of an ONNX file, for any number of rows."""
    model = onnx.load(path)
    initial = {t.name for t in model.graph.initializer}
    for value in (*model.graph.input, *model.graph.output):
        if value.name not in initial:
            value.type.tensor_type.shape.dim[0].dim_param = "batch"
    del model.graph.value_info[:]  # they hold the file's own batch size
    return tec.compile(model, target)


def request(name: str, shape: tuple[int, ...]) -> bytes:
    """One row as a client sends it: a header of JSON with the tensor's bytes behind it."""
    row = np.random.default_rng(2).normal(size=shape).astype("float32").tobytes()
    about = {"name": name, "datatype": "FP32", "shape": [1, *shape], "parameters": {"binary_data_size": len(row)}}
    head = json.dumps({"inputs": [about], "parameters": {"binary_data_output": True}}).encode()
    lines = [
        f"POST /v2/models/{NAME}/infer HTTP/1.1",
        "host: 127.0.0.1",
        f"inference-header-content-length: {len(head)}",
        f"content-length: {len(head) + len(row)}",
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + head + row


async def client(port: int, asked: bytes, until: float, times: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while (begin := time.perf_counter()) < until:
        writer.write(asked)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode(errors="replace"))
        length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
        assert length is not None
        await reader.readexactly(int(length[1]))
        times.append(time.perf_counter() - begin)
    writer.close()


def clients(port: int, number: int, asked: bytes, seconds: float, cores: set[int]) -> list[float]:
    """A process of clients: the seconds of each answered request."""
    os.sched_setaffinity(0, cores)
    times: list[float] = []

    async def all_of_them() -> None:
        until = time.perf_counter() + seconds
        await asyncio.gather(*(client(port, asked, until, times) for _ in range(number)))

    asyncio.run(all_of_them())
    return times


def in_full_batches(path: str, name: str, shape: tuple[int, ...], batch: int, threads: int, seconds: float) -> float:
    """Rows a second of the network alone, by threads with an executor each."""
    net = tec.load(path)
    done = [0] * threads

    def run(k: int) -> None:
        x, executor = np.random.default_rng(k).normal(size=(batch, *shape)).astype("float32"), net.executor()
        executor.run({name: x})
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            executor.run({name: x})
            done[k] += batch

    begin = time.perf_counter()
    workers = [threading.Thread(target=run, args=(k,)) for k in range(threads)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    return sum(done) / (time.perf_counter() - begin)


class Server:
    def __init__(self, path: str, batch: int, threads: int, cores: set[int]) -> None:
        words = ["serve", path, "--port", "0", "--max-batch", str(batch), "--threads", str(threads), "--queue", "1024"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tec.cli", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        os.sched_setaffinity(self.process.pid, cores)
        assert self.process.stdout is not None
        said = []
        for line in self.process.stdout:
            said.append(line)
            if found := re.search(r"127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
                break
        else:
            raise RuntimeError("the server ended: " + "".join(said))
        # What it says later must not fill the pipe.
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        self._until_ready()

    def _until_ready(self) -> None:
        """Compiled, and loaded on its device."""
        for _ in range(READY_S * 10):
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v2/models/{NAME}/ready"),
            ):
                return
            time.sleep(0.1)
        raise RuntimeError(f"the network was not ready within {READY_S} s")

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(30)


def under_load(port: int, number: int, asked: bytes, seconds: float, cores: set[int]) -> tuple[float, list[float]]:
    """Rows a second of the server, and the seconds of each request."""
    processes = min(number, len(cores), 4)
    shares = [number // processes + (k < number % processes) for k in range(processes)]
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        parts = [pool.submit(clients, port, n, asked, seconds, cores) for n in shares]
        times = [t for part in parts for t in part.result()]
    return len(times) / seconds, times


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    # 11.5 million weights, 23 MFLOP a row: about 0.5 ms on a core that holds 50 GFLOP/s.
    p.add_argument("--widths", type=int, nargs="+", default=[512, 3072, 3072, 128])
    p.add_argument("--onnx", help="a network's file, in place of a perceptron")
    p.add_argument("--target", default="llvm")
    p.add_argument("--clients", type=int, default=64)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--threads", type=int, default=1, help="batches that run at the same time")
    p.add_argument("--seconds", type=float, default=5.0, help="of each block")
    args = p.parse_args()
    # Loops of one batch run in its thread alone, so that HTTP has the core that is counted for it; the peer's as well.
    os.environ.setdefault("TEC_NUM_THREADS", "1")
    every = sorted(os.sched_getaffinity(0))
    # The server: a core for each thread that runs batches, and one for HTTP.
    ours = args.threads + 1
    apart = len(every) > ours
    serving, asking = set(every[:ours]), set(every[ours:] if apart else every)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / f"{NAME}.tec")
        net = of_file(args.onnx, args.target) if args.onnx else perceptron(args.widths, args.target)
        net.save(path)
        (fed,) = net.inputs
        name, shape = fed["name"], tuple(fed["shape"][1:])
        asked = request(name, shape)
        limits, found, times = [], [], []
        for _ in range(BLOCKS):
            os.sched_setaffinity(0, serving)
            limits.append(in_full_batches(path, name, shape, args.batch, args.threads, args.seconds))
            os.sched_setaffinity(0, every)
            server = Server(path, args.batch, args.threads, serving)
            try:
                under_load(server.port, args.clients, asked, 1.0, asking)
                rate, seconds = under_load(server.port, args.clients, asked, args.seconds, asking)
            finally:
                server.close()
            found.append(rate)
            times += seconds
    limit, rate = statistics.median(limits), statistics.median(found)
    row = {
        "name": f"server on {args.target}, {args.clients} clients, rows of {1e3 * args.threads / limit:.2f} ms",
        "value": round(rate), "unit": "rows/s", "peer": "full batches without a server", "peer_value": round(limit), "ratio": round(limit / rate, 3),
        "ms_median": round(1e3 * statistics.median(times), 2), "ms_99": round(1e3 * sorted(times)[int(0.99 * len(times))], 2),
        "clients_have_cores_of_their_own": apart,
    }  # fmt: skip
    print(json.dumps(row))


if __name__ == "__main__":
    main()
