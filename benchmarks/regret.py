"""How much slower is the default than the best of a group's drafts? Random operators (`cliff_cases`) on the NVIDIA GPU at hand, PyTorch beside them.

    python -m benchmarks.regret [--seed 1] [--count 32] [--kinds matmul,conv] [--drafts 8] [--seconds 300]

Of the group of a case that costs most, the default, the defaults of the other templates, the cheapest drafts and some legal choices by chance are compiled on the host's cores and
timed as captured graphs in turn. A row's value is the default's time, its peer the fastest draft; `drafts` lists all of them with their times, and PyTorch's.
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
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cliff_cases import KINDS, draw
from benchmarks.cliffs import CUDA_BOUNDS, HALF_TOLERANCE, TOLERANCE
from benchmarks.records import ROOT

TARGET = "cuda -arch=sm_90a"
SOME = 400  # drafts of a template that are priced, or drawn from
Found = list[tuple[dict[str, Any], str, str]]  # a choice, the file of its network, what went wrong


def costliest(model: Any, target: Any) -> Any:
    """The group of a model that costs most by its default's price, as a tuning task; None where no template has a choice."""
    from tec.graph.compiler import as_graph
    from tec.tuning.tasks import tasks_of_graph

    tasks, _ = tasks_of_graph(as_graph(model, None, None), target)
    return max(tasks, key=lambda t: t.spaces[0].cost(t.spaces[0].default).seconds, default=None)


def compiled(kind: str, state: Any, count: int, folder: str) -> Found:
    """The networks of a case's candidates, the default's first, saved in `folder`. For a process of its own."""
    import tec

    warnings.simplefilter("ignore")
    rng = random.Random()
    rng.setstate(state)
    model = draw(kind, rng, CUDA_BOUNDS).model()
    target = tec.Target(TARGET)
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


def timed(torch: Any, case: Any, found: Found) -> dict[str, Any]:
    """The row of a case whose networks are compiled."""
    import tec
    from benchmarks import cliff_torch
    from benchmarks.gpu import in_graph, race

    dev, sides, kept, wrong = tec.cuda(0), {}, [], {}
    peer = cliff_torch.function(torch, case)
    want = cliff_torch.reference(torch, case)
    for k, (_, path, why) in enumerate(found):
        if why:
            wrong[k] = why
            continue
        try:
            net = tec.load(path)
            executor, xs = net.executor(dev), [tec.nd.array(case.inputs[i["name"]], dev) for i in net.inputs]
            for _ in range(3):
                outs = executor.run(xs)
            for got, w in zip(outs, want):
                if not got.dtype.startswith("float"):
                    continue
                apart = float(np.abs(got.numpy().astype("f4") - w).max(initial=0)) / max(
                    1e-3, float(np.abs(w).max(initial=0))
                )
                if not apart <= (HALF_TOLERANCE if case.dtype == "float16" else TOLERANCE):
                    wrong[k] = f"differs by {apart:.1e}"
            graphs = [b.graph for _, b in executor._engine._bound.values() if getattr(b, "graph", None)]
            kept.append((net, executor, xs))
            sides[str(k)] = graphs[-1].launch
        except Exception as e:  # what fails is a result
            wrong[k] = f"{type(e).__name__}: {str(e).splitlines()[0][:120]}"
    sides["PyTorch"] = in_graph(torch, peer, 1, False)
    ms, _ = race(torch, sides)
    us = {k: round(v * 1e3, 3) for k, v in ms.items()}
    drafts = [
        {"us": us.get(str(k)), "choice": c, **({"wrong": wrong[k]} if k in wrong else {})}
        for k, (c, _, _) in enumerate(found)
    ]
    right = [d["us"] for k, d in enumerate(drafts) if d["us"] is not None and k not in wrong]
    default, best = us.get("0"), min(right, default=None)
    return {
        "name": case.name, "value": default, "unit": "us", "peer": "the best of its drafts", "peer_value": best,
        "ratio": round(default / best, 3) if default and best else None, "pytorch": us["PyTorch"], "drafts": drafts,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=32)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--drafts", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=300)
    args = parser.parse_args()
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    kinds, rng, stop = args.kinds.split(","), random.Random(args.seed), time.monotonic() + args.seconds
    workers = os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        waiting: deque[tuple[str, Any, Future[Found]]] = deque()
        for i in range(args.count):
            kind, state = kinds[i % len(kinds)], rng.getstate()
            path = Path(folder) / str(i)
            path.mkdir()
            waiting.append((kind, state, pool.submit(compiled, kind, state, args.drafts, str(path))))
            draw(kind, rng, CUDA_BOUNDS, sizes_alone=True)
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
            case = draw(kind, again, CUDA_BOUNDS)
            try:
                with torch.inference_mode():
                    row = timed(torch, case, future.result())
            except Exception as e:  # what fails is a result
                row = {"name": case.name, "error": f"{type(e).__name__}: {str(e).splitlines()[0][:200]}"}
            print(json.dumps(row, default=str), flush=True)


if __name__ == "__main__":
    os.environ.setdefault("TEC_NUM_THREADS", "1")
    sys.path[:0] = [str(ROOT / "frontends"), str(ROOT / "benchmarks")]
    main()
