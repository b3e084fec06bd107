"""How much slower is the default than the best of a group's drafts? Random operators (`cliff_cases`) on the NVIDIA GPU at hand, PyTorch beside them, or on the CPU, ONNX Runtime beside them.

    python -m benchmarks.regret [cuda|llvm] [--seed 1] [--count 32] [--kinds matmul,conv] [--drafts 8] [--seconds 300]

Of the group of a case that costs most, the default, the defaults of the other templates, the cheapest drafts and some legal choices by chance are compiled on the host's cores and
timed in turn: as captured graphs of some calls on a GPU, by processor time on one thread on a CPU. A row's value is the default's time, its peer the fastest draft; `drafts` lists all of them with
their times, and `library` is the time of PyTorch or ONNX Runtime. The last lines are the distributions.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import os
import random
import sys
import tempfile
import time
import warnings
from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cliff_cases import KINDS, Case, draw
from benchmarks.cliffs import (
    CUDA_BOUNDS,
    HALF_TOLERANCE,
    HOST_BOUNDS,
    SHORT_US,
    TOLERANCE,
    distance,
    graph_of_calls,
    peer_session,
    processor_us,
    quantiles,
)
from benchmarks.records import ROOT

TARGETS = {"cuda": ("cuda -arch=sm_90a", CUDA_BOUNDS), "llvm": ("llvm", HOST_BOUNDS)}
SOME = 400  # drafts of a template that are priced, or drawn from
Found = list[tuple[dict[str, Any], str, str]]  # a choice, the file of its network, what went wrong


def costliest(model: Any, target: Any) -> Any:
    """The group of a model that costs most by its default's price, as a tuning task; None where no template has a choice."""
    from tec.graph.compiler import as_graph
    from tec.tuning.tasks import tasks_of_graph

    tasks, _ = tasks_of_graph(as_graph(model, None, None), target)
    return max(tasks, key=lambda t: t.spaces[0].cost(t.spaces[0].default).seconds, default=None)


def compiled(kind: str, state: Any, count: int, folder: str, on: str) -> Found:
    """The networks of a case's candidates, the default's first, saved in `folder`. For a process of its own."""
    import tec

    warnings.simplefilter("ignore")
    rng = random.Random()
    rng.setstate(state)
    name, bounds = TARGETS[on]
    model, target = draw(kind, rng, bounds).model(), tec.Target(name)
    task = costliest(model, target)
    choices: list[dict[str, Any]] = [{}]
    signature = ""
    if task is not None:
        signature = task.key.signature
        choices = [s.default for s in task.spaces]
        for space in task.spaces[:2]:
            some = [c for c in itertools.islice(space.drafts(), SOME) if space.why_not(c) is None]
            best = heapq.nsmallest(max(2, count // 2), some, key=lambda c: space.cost(c).seconds)
            drawn = itertools.islice(space.drawn(rng), count // 2)
            choices += [*best, *drawn]
    found: Found = []
    seen = set()
    for k, choice in enumerate(choices):
        key = json.dumps(choice, sort_keys=True, default=str)
        if key in seen or len(found) > count:
            continue
        seen.add(key)
        path = f"{folder}/{k}.tecnet"
        try:
            net = tec.compile(
                model, target, cache=False, progress=lambda *a: None, choices={signature: choice} if k else None
            )
            taken = {t["signature"]: t["choice"] for t in net.report.choices.values()}.get(signature, choice)
            if k == 0:
                choice = taken  # a rival of the default, where its loops are cheaper
            elif taken != choice:
                raise ValueError("the choice was not taken")
            net.save(path)
            found.append((choice, path, ""))
        except Exception as e:  # what fails is a result
            found.append((choice, "", f"{type(e).__name__}: {str(e).splitlines()[0][:120]}"))
    return found


def check(case: Case, got: Any, want: Any) -> None:
    """Raise ValueError where a result of floats is not the peer's."""
    if np.asarray(want).dtype.kind == "f" and not distance(got, want) <= (
        HALF_TOLERANCE if case.dtype == "float16" else TOLERANCE
    ):
        raise ValueError(f"differs by {distance(got, want):.1e}")


def cuda_sides(case: Case, found: Found, wrong: dict[int, str]) -> dict[str, float]:
    """Microseconds of each network that runs, by its number, and the library's; what went wrong with the others is put into `wrong`."""
    import torch

    import tec
    from benchmarks import cliff_torch
    from benchmarks.gpu import calls_of_graphs, in_graph, race

    dev, sides, kept = tec.cuda(0), {}, []
    with torch.inference_mode():
        peer, want = cliff_torch.function(torch, case), cliff_torch.reference(torch, case)
        times = calls_of_graphs(torch, peer)
        for k, (_, path, _) in enumerate(found):
            if k in wrong:
                continue
            try:
                net = tec.load(path)
                executor, xs = net.executor(dev), [tec.nd.array(case.inputs[i["name"]], dev) for i in net.inputs]
                for _ in range(3):
                    outs = executor.run(xs)
                for got, w in zip(outs, want):
                    check(case, got.numpy(), w)
                kept.append((net, executor, xs))
                sides[str(k)] = graph_of_calls(dev, executor, times).launch
            except Exception as e:  # what fails is a result
                wrong[k] = f"{type(e).__name__}: {str(e).splitlines()[0][:120]}"
        sides["library"] = in_graph(torch, peer, times, False)
        ms, _ = race(torch, sides)
    return {k: v / times * 1e3 for k, v in ms.items()}


def host_sides(case: Case, found: Found, wrong: dict[int, str]) -> dict[str, float]:
    """As `cuda_sides`, on the CPU."""
    import tec

    peer, sides = partial(peer_session(case.model()).run, None, case.inputs), {}
    want = peer()
    for k, (_, path, _) in enumerate(found):
        if k in wrong:
            continue
        try:
            run = partial(tec.load(path).run, case.inputs)
            for got, w in zip(run(), want):
                check(case, got, w)
            sides[str(k)] = run
        except Exception as e:  # what fails is a result
            wrong[k] = f"{type(e).__name__}: {str(e).splitlines()[0][:120]}"
    return dict(zip([*sides, "library"], processor_us(*sides.values(), peer)))


def timed(on: str, case: Case, found: Found) -> dict[str, Any]:
    """The row of a case whose networks are compiled."""
    wrong = {k: why for k, (_, _, why) in enumerate(found) if why}
    us = {k: round(v, 3) for k, v in (cuda_sides if on == "cuda" else host_sides)(case, found, wrong).items()}
    drafts = [
        {"us": us.get(str(k)), "choice": c, **({"wrong": wrong[k]} if k in wrong else {})}
        for k, (c, _, _) in enumerate(found)
    ]
    default, best = us.get("0"), min((v for k, v in us.items() if k != "library"), default=None)
    return {
        "name": case.name, "value": default, "unit": "us", "peer": "the best of its drafts", "peer_value": best,
        "ratio": round(default / best, 3) if default and best else None, "library": us["library"], "drafts": drafts,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", nargs="?", choices=list(TARGETS), default="cuda")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=32)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--drafts", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=300)
    args = parser.parse_args()
    if args.target == "cuda":
        import torch

        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    bounds = TARGETS[args.target][1]
    kinds, rng, stop = args.kinds.split(","), random.Random(args.seed), time.monotonic() + args.seconds
    ratios: list[tuple[float, float]] = []  # of a group, and the best draft's microseconds
    # On a CPU one core is left to what is timed.
    workers = max(1, len(os.sched_getaffinity(0)) - (args.target == "llvm"))
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        waiting: deque[tuple[str, Any, Future[Found]]] = deque()
        for i in range(args.count):
            kind, state = kinds[i % len(kinds)], rng.getstate()
            path = Path(folder) / str(i)
            path.mkdir()
            given = kind, state, args.drafts, str(path), args.target
            waiting.append((kind, state, pool.submit(compiled, *given)))
            draw(kind, rng, bounds, sizes_alone=True)
        while waiting:
            if time.monotonic() > stop:
                print(f"{len(waiting)} of {args.count} cases are left after {args.seconds:g} s", file=sys.stderr)
                pool.shutdown(wait=False, cancel_futures=True)
                break
            ready = next((w for w in waiting if w[2].done()), None)
            if ready is None:
                time.sleep(0.05)
                continue
            waiting.remove(ready)
            kind, state, future = ready
            again = random.Random()
            again.setstate(state)
            case = draw(kind, again, bounds)
            try:
                row = timed(args.target, case, future.result())
                if len(row["drafts"]) > 1 and row["ratio"]:
                    ratios.append((row["ratio"], row["peer_value"]))
            except Exception as e:  # what fails is a result
                row = {"name": case.name, "error": f"{type(e).__name__}: {str(e).splitlines()[0][:200]}"}
            print(json.dumps(row, default=str), flush=True)
    for what, some in (
        ("groups", [r for r, us in ratios if us >= SHORT_US]),
        (f"groups below {SHORT_US:g} us", [r for r, us in ratios if us < SHORT_US]),
    ):
        near = sum(r <= 1.1 for r in some)
        print(f"{len(some)} {what} of several drafts, the default within 1.1 of the best in {near}; {quantiles(some)}")


if __name__ == "__main__":
    os.environ.setdefault("TEC_NUM_THREADS", "1")
    sys.path[:0] = [str(ROOT / "frontends"), str(ROOT / "benchmarks")]
    main()
