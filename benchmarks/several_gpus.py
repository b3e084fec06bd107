"""Two NVIDIA GPUs in one process: copies between them, and all-reduces whose calls one thread makes, beside PyTorch.

    NCCL_NVLS_ENABLE=0 python -m benchmarks.several_gpus [--largest 30]

Needs two GPUs that reach each other and PyTorch. Blocks of calls of one side, then of the other; a row's value is the median over blocks. What was copied and added is
compared before anything is timed. `benchmarks.collectives`, `benchmarks.shard` and `benchmarks.train_step` are those of a process a rank.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import tec
from tec.runtime import cuda_exists

ROUNDS = 9
BLOCK_SECONDS = 0.02  # of a block's calls: long beside what the clock and the wait at its end take
MOST_CALLS = 200
COPIED_POWERS = (2, 10, 16, 20, 24, 28, 30)  # arrays of 2 to this power bytes
REDUCED_POWERS = (2, 16, 20, 24, 28)


def _timed(call: Callable[[], Any], wait: Callable[[], Any], calls: int) -> float:
    """Microseconds of a call."""
    wait()
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    wait()
    return (time.perf_counter() - begin) / calls * 1e6


def in_turn(sides: dict[str, Callable[[], Any]], wait: Callable[[], Any]) -> dict[str, float]:
    """Each side's median over blocks, which take turns."""
    counts = {}
    for name, call in sides.items():
        call()  # connects, and makes memory reachable
        one = _timed(call, wait, 3)
        counts[name] = max(3, min(MOST_CALLS, int(BLOCK_SECONDS * 1e6 / one)))
    found: dict[str, list[float]] = {n: [] for n in sides}
    for _ in range(ROUNDS):
        for name, call in sides.items():
            found[name].append(_timed(call, wait, counts[name]))
    return {n: statistics.median(t) for n, t in found.items()}


def _row(name: str, found: dict[str, float], nbytes: int) -> None:
    row = {
        "name": name, "value": round(found["tec"], 2), "unit": "us", "peer": "torch", "peer_value": round(found["torch"], 2),
        "ratio": round(found["tec"] / found["torch"], 3), "gb_per_s": round(nbytes / found["tec"] / 1e3, 1),
    }  # fmt: skip
    print(json.dumps(row), flush=True)


def copies(torch: Any, wait: Callable[[], None], largest: int) -> None:
    """One way, and both ways at the same time."""
    for power in (p for p in COPIED_POWERS if p <= largest):
        n = 1 << power
        theirs = [torch.randint(0, 255, (n,), dtype=torch.uint8, device=f"cuda:{k}") for k in range(2)]
        into = [torch.zeros_like(t) for t in theirs]
        torch.cuda.synchronize(0)
        torch.cuda.synchronize(1)
        ours = [tec.nd.from_dlpack(t.clone()) for t in theirs]
        made = [tec.nd.zeros((n,), "uint8", tec.cuda(k)) for k in range(2)]
        ours[0].copyto(made[1])
        ours[1].copyto(made[0])
        for k in range(2):
            if not torch.equal(torch.from_dlpack(made[k]).cpu(), theirs[1 - k].cpu()):
                raise AssertionError(f"a copy of {n} bytes to cuda:{k} is wrong")
        way = [(0, 1)]
        _row(f"copy of {n} B to the other GPU", in_turn(_copying(ours, made, theirs, into, way), wait), n)
        if power >= COPIED_POWERS[-3]:
            ways = [(0, 1), (1, 0)]
            _row(f"copies of {n} B both ways", in_turn(_copying(ours, made, theirs, into, ways), wait), 2 * n)


def _copying(ours: Any, made: Any, theirs: Any, into: Any, ways: list[tuple[int, int]]) -> dict[str, Callable[[], Any]]:
    def of_tec() -> None:
        for a, b in ways:
            ours[a].copyto(made[b])

    def of_torch() -> None:
        for a, b in ways:
            into[b].copy_(theirs[a], non_blocking=True)

    return {"tec": of_tec, "torch": of_torch}


def reductions(torch: Any, wait: Callable[[], None], largest: int) -> None:
    """All-reduces of one thread, as one group of calls."""
    with tec.collectives.local([tec.cuda(0), tec.cuda(1)]) as group:
        for power in (p for p in REDUCED_POWERS if p <= largest):
            n = max(1, (1 << power) // 4)
            theirs = [torch.full((n,), k + 1.0, device=f"cuda:{k}") for k in range(2)]
            into = [torch.zeros_like(t) for t in theirs]
            torch.cuda.synchronize(0)
            torch.cuda.synchronize(1)
            ours = [tec.nd.from_dlpack(t.clone()) for t in theirs]
            made = [tec.nd.zeros((n,), "float32", tec.cuda(k)) for k in range(2)]

            def reduce(ours: Any = ours, made: Any = made) -> None:
                with group.together():
                    for comm, x, y in zip(group, ours, made):
                        comm.all_reduce(x, out=y)

            reduce()
            wait()
            for k in range(2):
                if not bool((torch.from_dlpack(made[k]) == 3).all()):
                    raise AssertionError(f"an all-reduce of {4 * n} bytes on cuda:{k} is wrong")
            sides = {"tec": reduce, "torch": lambda a=theirs, b=into: torch.cuda.nccl.all_reduce(a, b)}
            _row(f"all-reduce of {4 * n} B by one thread", in_turn(sides, wait), 4 * n)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    options.add_argument("--largest", type=int, default=30)
    args = options.parse_args()
    if not cuda_exists(1):
        print("two NVIDIA GPUs are needed: nothing was measured")
        return
    import torch

    def wait() -> None:
        for k in range(2):
            tec.cuda(k).sync()  # waits for all work of the device, PyTorch's too

    copies(torch, wait, args.largest)
    reductions(torch, wait, args.largest)


if __name__ == "__main__":
    main()
