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
from datetime import timedelta
from typing import Any

from tec.runtime.plans.steps import COLLECTIVES
from tec.target import Target
from tec.target.links import links_of

ADDRESS, TORCH_ADDRESS = "127.0.0.1:29611", "tcp://127.0.0.1:29612"
ROUNDS, CALLS = 9, 20  # blocks of each side in turn, and calls in a block
LIMIT_SECONDS = 20.0
DEATH_SECONDS = 3.0  # after which a rank that waits for a dead one must raise
RIGHT_POWERS = (2, 10, 16, 22, 26, 30)  # arrays of 2 to this power bytes whose values are compared
GRAPH_POWERS = (2, 16, 24)  # of all-reduces in captured graphs


def _values(comm: Any, device: Any, tec: Any, torch: Any, largest: int) -> int:
    """Calls whose values are right, of drawn arrays of small integers, which every order adds exactly. Raises AssertionError for one that is not."""
    right = 0
    for dtype in ("float32", "float16", "bfloat16", "int32"):
        for power in RIGHT_POWERS:
            if power <= largest:
                right += _right(comm, device, tec, torch, dtype, 1 << power)
    return right


def _right(comm: Any, device: Any, tec: Any, torch: Any, dtype: str, nbytes: int) -> int:
    """Every collective of arrays of about `nbytes` of a type; how many calls of this rank were right."""
    right, size, rank = 0, comm.size, comm.rank
    kind = getattr(torch, dtype)
    each = max(1, nbytes // (kind.itemsize * size))

    def part(r: int) -> Any:
        """What rank `r` has: the same numbers wherever they are drawn."""
        generator = torch.Generator("cuda").manual_seed(1000 * nbytes % 2**31 + r)
        return torch.randint(-3, 4, (each * size,), generator=generator, device="cuda", dtype=torch.int8).to(kind)

    def same(got: Any, expected: Any, what: str) -> None:
        nonlocal right
        comm.sync()
        if not torch.equal(torch.from_dlpack(got), expected):
            raise AssertionError(f"{what} of {nbytes} bytes of {dtype} on rank {rank} of {size}")
        right += 1

    def over_ranks(op: Any) -> Any:
        made = part(0)
        for r in range(1, size):
            made = op(made, part(r))
        return made

    torch.cuda.synchronize()
    x = tec.nd.from_dlpack(own := part(rank))
    torch.cuda.synchronize()
    mine = slice(rank * each, (rank + 1) * each)
    total = over_ranks(torch.add)
    same(comm.all_reduce(x), total, "all_reduce")
    same(comm.reduce_scatter(x), total[mine], "reduce_scatter")
    del total
    same(comm.all_reduce(x, "max"), over_ranks(torch.maximum), "all_reduce by max")
    same(comm.all_reduce(x, "min"), over_ranks(torch.minimum), "all_reduce by min")
    few = tec.nd.from_dlpack(own[:each].clone())
    torch.cuda.synchronize()
    same(comm.all_gather(few), torch.cat([part(r)[:each] for r in range(size)]), "all_gather")
    same(comm.all_to_all(x), torch.cat([part(r)[mine] for r in range(size)]), "all_to_all")
    received = tec.nd.empty((each * size,), dtype, device)
    if rank == 0:
        comm.send(x, to=1)
        comm.sync()
    elif rank == 1:
        same(comm.receive(received, source=0), part(0), "receive")
    same(comm.broadcast(x, root=size - 1), part(size - 1), "broadcast")
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


def _rank(rank: int, size: int, largest: int, results: Any, dies: str) -> None:
    import torch
    import torch.distributed as dist

    import tec

    torch.cuda.set_device(rank)
    device = tec.cuda(rank)
    if dies == "torch":
        _die_in_torch(rank, size, torch, dist, results)
        return
    comm = tec.collectives.connect(rank, size, ADDRESS, device=device, timeout_s=LIMIT_SECONDS)
    if dies:
        _die(comm, device, tec, results)
        return
    dist.init_process_group("nccl", init_method=TORCH_ADDRESS, rank=rank, world_size=size)
    rows: list[tuple[str, dict[str, tuple[float, float]]]] = []
    right = _values(comm, device, tec, torch, largest)
    torch.cuda.empty_cache()
    powers = [p for p in (2, 10, 16, 20, 24, 28, 30) if p <= largest]
    waits = {"tec": device.sync, "torch": torch.cuda.synchronize, "library": device.sync}
    for power in powers:
        for name, sides in _cases(comm, device, max(size, (1 << power) // 4), tec, torch, dist).items():
            rows.append((f"{name} {1 << power} B", _in_turn(sides, waits, comm.barrier)))
    for power in [p for p in GRAPH_POWERS if p <= largest]:
        rows.append(
            (f"all_reduce {1 << power} B in a graph", _graphs(comm, device, (1 << power) // 4, tec, torch, dist))
        )
    results.put((rank, right, rows))
    comm.barrier()
    dist.destroy_process_group()
    comm.close()


def _cases(comm: Any, device: Any, n: int, tec: Any, torch: Any, dist: Any) -> dict[str, dict[str, Callable[[], Any]]]:
    """Calls of both sides on arrays of `n` float32; of an all-reduce the library's own function too, whose arguments are ready."""
    n = n // comm.size * comm.size
    each = n // comm.size
    x, y = tec.nd.zeros((n,), "float32", device), torch.zeros(n, device="cuda")
    x2, y2 = tec.nd.zeros((n,), "float32", device), torch.zeros(n, device="cuda")
    part, their_part = tec.nd.zeros((each,), "float32", device), torch.zeros(each, device="cuda")
    held = comm._transport
    alone, at = held.lib.functions["ncclAllReduce"], x.address
    arguments = (at, at, n, 7, 0, held._comm, device.local.stream)  # 7: float32, 0: sum
    other = comm.rank ^ 1
    sends = comm.rank % 2 == 0
    return {
        "all_reduce": {"tec": lambda: comm.all_reduce(x, out=x), "torch": lambda: dist.all_reduce(y), "library": lambda: alone(*arguments)},
        "all_gather": {"tec": lambda: comm.all_gather(part, out=x), "torch": lambda: dist.all_gather_into_tensor(y, their_part)},
        "reduce_scatter": {"tec": lambda: comm.reduce_scatter(x, out=part), "torch": lambda: dist.reduce_scatter_tensor(their_part, y)},
        "broadcast": {"tec": lambda: comm.broadcast(x), "torch": lambda: dist.broadcast(y, 0)},
        "all_to_all": {"tec": lambda: comm.all_to_all(x, out=x2), "torch": lambda: dist.all_to_all_single(y2, y)},
        "send and receive": {
            "tec": (lambda: comm.send(x, to=other)) if sends else (lambda: comm.receive(x, source=other)),
            "torch": (lambda: dist.send(y, other)) if sends else (lambda: dist.recv(y, other)),
        },
    }  # fmt: skip


def _graphs(comm: Any, device: Any, n: int, tec: Any, torch: Any, dist: Any) -> dict[str, tuple[float, float]]:
    """Ten all-reduces as one captured graph; a time is of one of them."""
    ours, theirs = tec.nd.zeros((n,), "float32", device), torch.zeros(n, device="cuda")
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
        comm.sync(DEATH_SECONDS)
        results.put((comm.rank, "no error", time.perf_counter() - begin))
    except tec.TecError as error:
        results.put((comm.rank, str(error).splitlines()[0], time.perf_counter() - begin))


def _die_in_torch(rank: int, size: int, torch: Any, dist: Any, results: Any) -> None:
    """The same with torch.distributed, which waits for each call on the host, as its limit needs."""
    os.environ["TORCH_NCCL_BLOCKING_WAIT"] = "1"
    limit = timedelta(seconds=DEATH_SECONDS)
    dist.init_process_group("nccl", init_method=TORCH_ADDRESS, rank=rank, world_size=size, timeout=limit)
    x = torch.zeros(1 << 20, device="cuda")
    dist.all_reduce(x)
    torch.cuda.synchronize()
    if rank == size - 1:
        os._exit(9)
    begin = time.perf_counter()
    try:
        dist.all_reduce(x, async_op=True).wait()
        results.put((rank, "no error", time.perf_counter() - begin))
    except RuntimeError as error:
        results.put((rank, str(error).splitlines()[0][:160], time.perf_counter() - begin))
    results.close()
    results.join_thread()
    os._exit(0)  # its end would wait for the other rank


def _run(size: int, largest: int, dies: str, answers: int) -> list[Any]:
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
    found = sorted(_run(args.ranks, args.largest, "", args.ranks))
    print(
        json.dumps(
            {
                "name": f"collectives with right values, {args.ranks} GPUs",
                "value": min(f[1] for f in found),
                "unit": "calls",
            }
        )
    )
    links = links_of(Target("cuda -arch=sm_90a").machine)
    for k, (name, sides) in enumerate(found[0][2]):
        took, host = ({side: max(f[2][k][1][side][i] for f in found) for side in sides} for i in (0, 1))
        row = {
            "name": f"{name}, {args.ranks} GPUs", "value": round(took["tec"], 2), "unit": "us", "peer": "torch.distributed", "peer_value": round(took["torch"], 2),
            "ratio": round(took["tec"] / took["torch"], 3), "call_us": round(host["tec"], 2), "peer_call_us": round(host["torch"], 2),
        }  # fmt: skip
        if "library" in sides:
            row |= {"library_us": round(took["library"], 2), "library_call_us": round(host["library"], 2)}
        kind, nbytes = name.split(" ")[0], int(name.split(" B")[0].split(" ")[-1])
        if links is not None and kind in COLLECTIVES:
            operand = nbytes // args.ranks if kind == "all_gather" else nbytes
            row["modelled_us"] = round(links.collective_us(kind, operand, args.ranks), 1)
        print(json.dumps(row), flush=True)
    for library in ("tec", "torch"):
        for rank, said, seconds in sorted(_run(args.ranks, args.largest, library, args.ranks - 1)):
            row = {
                "name": f"rank {rank} after another died, {library}",
                "value": round(seconds, 2),
                "unit": "s",
                "said": said,
            }
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
