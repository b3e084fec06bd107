"""Arrays: expressions at the memory's rate, the cost of a cached call, sorting; one JSON object a line.

    python benchmarks/arrays.py [--device cpu] [--log2 24] [--runs 15]

Peers are interleaved in one process: NumPy on the CPU; on "cuda" CuPy and PyTorch where they are installed. "kernel" is the same computation as one
`@tec.kernel` or te program written by hand. Milliseconds are medians; `gbps` counts what must be read and written.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import tec
from tec import te

xp = tec.array


def fused(v: Any) -> Any:
    return v[0] * v[1] + v[2]


def fused_sum(v: Any) -> Any:
    return fused(v).sum()


def medians(calls: dict[str, Callable[[], Any]], sync: Callable[[], None], runs: int) -> dict[str, float]:
    """Seconds of each, in turn."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for k in range(runs + 3):
        for name, call in calls.items():
            sync()
            start = time.perf_counter()
            call()
            sync()
            if k >= 3:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(t) for name, t in times.items()}


def peers(device: Any, arrays: list[Any]) -> dict[str, Any]:
    """Other libraries' arrays of the same values."""
    if device.kind == "cpu":
        return {"numpy": (np, arrays)}
    found: dict[str, Any] = {}
    try:
        import cupy

        found["cupy"] = (cupy, [cupy.asarray(a) for a in arrays])
    except ImportError:
        pass
    try:
        import torch

        found["torch"] = (torch, [torch.from_numpy(a).cuda() for a in arrays])
    except ImportError:
        pass
    return found


def by_hand(n: int, device: Any) -> Callable[..., Any]:
    """(a * b + c).sum() as one te program, scheduled by the template for reductions that networks have."""
    from tec.choices import schedule
    from tec.jit.specialise import target_of

    target = target_of(device)
    a, b, c = (te.placeholder((n,), name=x) for x in "abc")
    k = te.reduce_axis((0, n), name="k")
    out = te.compute((), lambda: te.sum(a[k] * b[k] + c[k], axis=k), name="out")
    with target:
        s = schedule([out], target)
    f = tec.build(s.schedule, [a, b, c, *s.outputs], target)
    result = tec.nd.empty((), "float32", device)
    return lambda x, y, z: f(x, y, z, result)


def report(what: str, device: Any, seconds: dict[str, float], nbytes: int, **more: Any) -> None:
    row: dict[str, Any] = {"benchmark": "arrays", "what": what, "device": str(device), "name": device.name, **more}
    row |= {f"{name}_ms": round(t * 1e3, 4) for name, t in seconds.items()}
    row["gbps"] = round(nbytes / seconds["tec"] / 1e9, 1)
    row["tec_over_others"] = {name: round(seconds["tec"] / t, 3) for name, t in seconds.items() if name != "tec"}
    print(json.dumps(row), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--log2", type=int, default=24)
    parser.add_argument("--runs", type=int, default=15)
    options = parser.parse_args()
    device = tec.device(options.device)
    n = 1 << options.log2
    rng = np.random.default_rng(0)
    host = [rng.random(n, np.float32) for _ in range(3)]
    a, b, c = (xp.asarray(x, device=device) for x in host)
    others = peers(device, host)

    def sync() -> None:
        device.sync()
        for name, (module, _) in others.items():
            if name == "cupy":
                module.cuda.Device().synchronize()
            elif name == "torch":
                module.cuda.synchronize()

    hand = by_hand(n, device)
    held = [x.nd for x in (a, b, c)]
    calls: dict[str, Callable[[], Any]] = {"tec": lambda: ((a * b + c).sum()).block(), "kernel": lambda: hand(*held)}
    calls |= {name: partial(fused_sum, v) for name, (_, v) in others.items()}
    report("(a * b + c).sum()", device, medians(calls, sync, options.runs), 3 * 4 * n, elements=n)

    def chain(v: Any) -> Any:
        x, y, z = v
        return ((x - y) * (x + y) + z * 0.5 - x * z) / (y * y + 1.0)

    calls = {"tec": lambda: chain((a, b, c)).block()}
    calls |= {name: partial(chain, v) for name, (_, v) in others.items()}
    report("ten operations", device, medians(calls, sync, options.runs), 4 * 4 * n, elements=n)

    small = [x[:1000].copy() for x in host]
    d, e, f = (xp.asarray(x, device=device) for x in small)
    d.block()
    calls = {"tec": lambda: (d * e + f).block()}
    for name, (_, v) in others.items():
        few = [x[:1000] for x in v]
        calls[name] = partial(fused, few)
    report("a cached call of 1000 elements", device, medians(calls, sync, 200), 4 * 4 * 1000, elements=1000)

    m = min(n, 1 << 20)
    g = xp.asarray(host[0][:m], device=device)
    calls = {"tec": lambda: xp.sort(g).block()}
    for name, (module, v) in others.items():
        calls[name] = partial(module.sort, v[0][:m])
    report("sort", device, medians(calls, sync, 5), 2 * 4 * m, elements=m)


if __name__ == "__main__":
    main()
