"""Collectives of `tec.collectives` on the NVIDIA GPUs of this host beside torch.distributed: right values, times by size, the cost of a call, captured graphs, and a rank that dies.

    NCCL_NVLS_ENABLE=0 python -m benchmarks.collectives [--largest 30]

Needs two GPUs and PyTorch. A process a rank, the same libnccl on both sides, tec and PyTorch in turn in each process; a row's value is the median of the slowest
rank's times. `--largest`: the largest array is of 2 to this power bytes.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

ADDRESS, TORCH_ADDRESS = "127.0.0.1:29611", "tcp://127.0.0.1:29612"
ROUNDS, CALLS = 9, 20  # blocks of each side in turn, and calls in a block
LIMIT_SECONDS = 20.0
RIGHT_SIZES = (4, 1000, 1 << 16, 1 << 22)  # bytes of an array whose values are compared


def _values(comm: Any, device: Any, tec: Any) -> int:
    """Calls whose values are right, of drawn arrays of small integers, which every order adds exactly. Raises AssertionError for one that is not."""
    right, size, rank = 0, comm.size, comm.rank
    for dtype in ("float32", "float16", "bfloat16", "int32"):
        for nbytes in RIGHT_SIZES:
            n = size * max(1, nbytes // (4 * size))
            parts = [np.random.default_rng((nbytes, r)).integers(-3, 4, n).astype("float32") for r in range(size)]
            x = tec.nd.array(parts[rank], device).astype(dtype)

            def same(got: Any, expected: Any) -> None:
                nonlocal right
                np.testing.assert_array_equal(got.astype("float32").numpy(), expected)
                right += 1

            each = n // size
            mine = slice(rank * each, (rank + 1) * each)
            for op, of in (("sum", np.sum), ("max", np.max), ("min", np.min)):
                same(comm.all_reduce(x, op), of(parts, axis=0))
            same(comm.reduce_scatter(x), np.sum(parts, axis=0)[mine])
            same(comm.all_gather(x), np.concatenate(parts))
            same(comm.all_to_all(x), np.concatenate([p[mine] for p in parts]))
            same(comm.broadcast(tec.nd.array(parts[rank], device).astype(dtype), root=size - 1), parts[-1])
            if rank == 0:
                comm.send(x, to=1)
            elif rank == 1:
                same(comm.receive(tec.nd.empty((n,), dtype, device), source=0), parts[0])
    return right


def _timed(call: Callable[[], Any], wait: Callable[[], Any]) -> tuple[float, float]:
    """Microseconds of a call till its end, and of its host side alone."""
    wait()
    begin = time.perf_counter()
    for _ in range(CALLS):
        call()
    queued = time.perf_counter()
    wait()
    return (time.perf_counter() - begin) / CALLS * 1e6, (queued - begin) / CALLS * 1e6


def _in_turn(
    sides: dict[str, Callable[[], Any]], waits: dict[str, Callable[[], Any]], meet: Callable[[], Any]
) -> dict[str, tuple[float, float]]:
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for name, call in sides.items():  # connected, and warm
        _timed(call, waits[name])
    for _ in range(ROUNDS):
        for name, call in sides.items():
            meet()
            found[name].append(_timed(call, waits[name]))
    return {n: (statistics.median(t for t, _ in f), statistics.median(h for _, h in f)) for n, f in found.items()}


def _rank(rank: int, size: int, largest: int, results: Any, dies: bool) -> None:
    import torch
    import torch.distributed as dist

    import tec

    torch.cuda.set_device(rank)
    device = tec.cuda(rank)
    comm = tec.collectives.connect(rank, size, ADDRESS, device=device, timeout_s=LIMIT_SECONDS)
    if dies:
        _die(comm, device, tec, results)
        return
    dist.init_process_group("nccl", init_method=TORCH_ADDRESS, rank=rank, world_size=size)
    rows: list[tuple[str, dict[str, tuple[float, float]]]] = []
    right = _values(comm, device, tec)
    powers = [p for p in (2, 10, 16, 20, 24, 28, 30) if p <= largest]
    waits = {"tec": device.sync, "torch": torch.cuda.synchronize}
    for power in powers:
        for name, sides in _cases(comm, device, max(size, (1 << power) // 4), tec, torch, dist).items():
            rows.append((f"{name} {1 << power} B", _in_turn(sides, waits, comm.barrier)))
    rows.append(("all_reduce 65536 B in a graph", _graphs(comm, device, tec, torch, dist)))
    results.put((rank, right, rows))
    comm.barrier()
    dist.destroy_process_group()
    comm.close()


def _cases(comm: Any, device: Any, n: int, tec: Any, torch: Any, dist: Any) -> dict[str, dict[str, Callable[[], Any]]]:
    """Calls of both sides on arrays of `n` float32."""
    each = n // comm.size
    x, y = tec.nd.zeros((n,), "float32", device), torch.zeros(n, device="cuda")
    part, their_part = tec.nd.zeros((each,), "float32", device), torch.zeros(each, device="cuda")
    return {
        "all_reduce": {"tec": lambda: comm.all_reduce(x, out=x), "torch": lambda: dist.all_reduce(y)},
        "all_gather": {"tec": lambda: comm.all_gather(part, out=x), "torch": lambda: dist.all_gather_into_tensor(y, their_part)},
        "reduce_scatter": {"tec": lambda: comm.reduce_scatter(x, out=part), "torch": lambda: dist.reduce_scatter_tensor(their_part, y)},
    }  # fmt: skip


def _graphs(comm: Any, device: Any, tec: Any, torch: Any, dist: Any) -> dict[str, tuple[float, float]]:
    """Ten all-reduces as one captured graph; a time is of one of them."""
    ours, theirs = tec.nd.zeros((1 << 14,), "float32", device), torch.zeros(1 << 14, device="cuda")
    with device.capture() as graph:
        for _ in range(10):
            comm.all_reduce(ours, out=ours)
    their_graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(their_graph):
        for _ in range(10):
            dist.all_reduce(theirs)
    waits = {"tec": device.sync, "torch": torch.cuda.synchronize}
    found = _in_turn({"tec": graph.launch, "torch": their_graph.replay}, waits, comm.barrier)
    return {name: (t / 10, h / 10) for name, (t, h) in found.items()}


def _die(comm: Any, device: Any, tec: Any, results: Any) -> None:
    """The last rank ends without a word; the others must raise within their limit."""
    x = tec.nd.zeros((1 << 20,), "float32", device)
    comm.all_reduce(x, out=x)
    comm.sync()
    if comm.rank == comm.size - 1:
        os._exit(9)
    begin = time.perf_counter()
    try:
        comm.all_reduce(x, out=x)
        comm.sync(3.0)
        results.put((comm.rank, "no error", time.perf_counter() - begin))
    except tec.TecError as error:
        results.put((comm.rank, str(error).splitlines()[0], time.perf_counter() - begin))


def _run(size: int, largest: int, dies: bool, answers: int) -> list[Any]:
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    ranks = [context.Process(target=_rank, args=(r, size, largest, results, dies)) for r in range(size)]
    for p in ranks:
        p.start()
    try:
        return [results.get(timeout=300) for _ in range(answers)]
    finally:
        for p in ranks:
            p.join(10)
            p.kill()


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--largest", type=int, default=30)
    options.add_argument("--ranks", type=int, default=2)
    args = options.parse_args()
    found = sorted(_run(args.ranks, args.largest, False, args.ranks))
    print(
        json.dumps(
            {
                "name": f"collectives with right values, {args.ranks} GPUs",
                "value": min(f[1] for f in found),
                "unit": "calls",
            }
        )
    )
    for k, (name, _) in enumerate(found[0][2]):
        ours, theirs = (max(f[2][k][1][side][0] for f in found) for side in ("tec", "torch"))
        row = {
            "name": f"{name}, {args.ranks} GPUs",
            "value": round(ours, 2),
            "unit": "us",
            "peer": "torch.distributed",
            "peer_value": round(theirs, 2),
        }
        hosts = {side: round(max(f[2][k][1][side][1] for f in found), 2) for side in ("tec", "torch")}
        print(
            json.dumps(
                row | {"ratio": round(ours / theirs, 3), "call_us": hosts["tec"], "peer_call_us": hosts["torch"]}
            ),
            flush=True,
        )
    for rank, said, seconds in _run(args.ranks, args.largest, True, args.ranks - 1):
        print(
            json.dumps(
                {"name": f"rank {rank} after another died", "value": round(seconds, 2), "unit": "s", "said": said}
            )
        )


if __name__ == "__main__":
    main()
