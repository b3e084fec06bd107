"""Networks on an AMD GPU by the software GPU's time model, beside what the chip's rates allow. One JSON object a line.

    python benchmarks/amd_networks.py ["ResNet-50 f16 b1" ...] [-mcpu mi300x] [--slowest 12]

"limit": the sum over a network's steps of the larger of its multiply-adds at the peak clock and of the bytes of its operands and results, once each, at the
rate at which memory can be read; launches left out. "ratio": kernels' time over the limit. The clock that a chip holds under matrix work is lower than
its peak (on MI300X to half), which the limit does not grant; "held_us", "held_ratio": by that clock. "graph": the launches' cost, as in a captured graph.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import tec
from benchmarks.gpu_networks import NAMES, model
from tec.report.measure import kernel_times
from tec.runtime.plans.steps import Call
from tec.target import level_gbps

DEFAULT = tuple(n for n in NAMES if n in ("ResNet-50 f16 b1", "ResNet-50 f16 b32", "BERT-base s128 f16 b32"))


def limits(net: Any, target: tec.Target, dtype: str, mhz: int) -> dict[str, float]:
    """Microseconds that each function's calls take at the chip's rates, at a clock."""
    machine = target.machine
    macs_a_us = machine.units * machine.macs(dtype) * mhz
    gbps = level_gbps(machine, "memory")
    out: dict[str, float] = {}
    for step in net.plan.steps:
        if isinstance(step, Call):
            moved = sum(net.plan.values[v].nbytes({}) for v in dict.fromkeys(step.values))
            work = net.report.function_flops.get(step.function, 0) / 2 / macs_a_us
            out[step.function] = out.get(step.function, 0.0) + max(work, moved / gbps / 1e3)
    return out


def measure(name: str, mcpu: str, slowest: int) -> None:
    target = tec.Target(f"rocm -mcpu={mcpu}")
    dtype = "float16" if " f16 " in name else "float32"
    net = tec.compile(model(name), target, dtype=dtype if dtype != "float32" else None)
    inputs = {i["name"]: np.zeros(i["shape"], i["dtype"]) for i in net.inputs}
    kernels = kernel_times(net, inputs, tec.rocm_emu(target.mcpu), run=False, product=target.machine.name)
    launch = target.machine.launch_us
    calls = sum(k.calls for k in kernels)
    spent = sum(k.us for k in kernels) - calls * launch
    own = limits(net, target, dtype, target.machine.clock_mhz)
    held = limits(net, target, dtype, target.machine.matrix_clock(dtype) or target.machine.clock_mhz)
    limit, at_held = sum(own.values()), sum(held.values())
    print(
        json.dumps({
            "network": name, "product": target.machine.name, "kernels_us": round(spent, 1), "limit_us": round(limit, 1), "ratio": round(spent / limit, 2),
            "held_us": round(at_held, 1), "held_ratio": round(spent / at_held, 2),
            "launches": calls, "graph_us": round(calls * launch, 1), "whole_us": round(spent + calls * launch, 1),
        }), flush=True,
    )  # fmt: skip
    of: dict[str, list[Any]] = {}
    for k in kernels:
        of.setdefault(k.name.rpartition("_kernel")[0] or k.name, []).append(k)

    def beyond(f: str) -> float:
        return float(sum(k.us - k.calls * launch for k in of[f]) - held.get(f, 0.0))

    for f in sorted(of, key=beyond, reverse=True)[:slowest]:
        us = sum(k.us - k.calls * launch for k in of[f])
        top = max(of[f], key=lambda k: k.us)
        print(
            json.dumps({
                "function": f, "calls": top.calls, "us": round(us, 1), "limit_us": round(own.get(f, 0.0), 1), "held_us": round(held.get(f, 0.0), 1), "bound": top.limit,
                "waits": {w: round(x, 2) for w, x in list(top.waits.items())[:3]},
                "choice": net.report.choices.get(f, {}).get("choice"),
            }), flush=True,
        )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", help=f"of {', '.join(NAMES)}")
    parser.add_argument("-mcpu", default="mi300x")
    parser.add_argument("--slowest", type=int, default=12)
    args = parser.parse_args()
    for name in args.networks or DEFAULT:
        measure(name, args.mcpu, args.slowest)


if __name__ == "__main__":
    main()
