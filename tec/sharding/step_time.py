"""The modelled time of a step over n devices: each function by the machine's rates, each collective by those of the links between devices.

A function takes what its arithmetic or its bytes take, whichever is longer, and at least a launch. This is a roofline: kernels that reach less of it take longer. It
is good for what more devices bring, and for which collectives count; a kernel's own model is `tec.time_model`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import ArgumentError
from ..runtime.modules import exprs
from ..runtime.networks.network import Network
from ..runtime.plans.plan import Call, Exchange, number
from ..runtime.plans.steps import burst_of
from ..target import Target, level_gbps
from ..target.links import LINKS, links_of


@dataclass(frozen=True, slots=True)
class StepTime:
    """Microseconds of one run. rows: (step, microseconds, what it is reckoned by), a row a step. machine, links: what the rates are of; assumed: what no source gives."""

    machine: str
    links: str
    compute_us: float
    collectives_us: float
    rows: tuple[tuple[str, float, str], ...]
    assumed: str = ""

    @property
    def total_us(self) -> float:
        """Of all steps one after the other."""
        return self.compute_us + self.collectives_us

    def __str__(self) -> str:
        made = f"{self.total_us:.1f} us a run on {self.machine}: {self.compute_us:.1f} in functions, {self.collectives_us:.1f} in collectives over {self.links}"
        return f"{made} (assumed: {self.assumed})" if self.assumed else made


def step_time(net: Network, links: str | None, sizes: Mapping[str, int]) -> StepTime:
    """See `ShardedNetwork.report`. ArgumentError for a target without a machine or links that are known."""
    target = Target(net.module.target)
    if not target.is_gpu:
        raise ArgumentError("no rates of links are known between CPUs", hint="the time of a step is modelled for GPUs")
    machine = target.machine
    found = LINKS.get(links) if links is not None else links_of(machine)
    if found is None:
        what = f"no links {links!r}" if links is not None else f"no rates of links between {machine.name}s are known"
        raise ArgumentError(what, hint=f"report(links=...): {', '.join(LINKS)}")
    env = dict.fromkeys(net.open_sizes, 1) | dict(sizes)
    for state in net.plan.states:
        env.setdefault(state.capacity or "", max(env.values(), default=1))
    rows = []
    compute = moved = 0.0
    gbps = level_gbps(machine, "memory") if machine.chip.startswith("gfx") else machine.reached_gbps
    joined = burst_of(net.plan.flat)
    for k, step in enumerate(net.plan.flat):
        if isinstance(step, Exchange):
            # Calls of one group are as one call of all their bytes.
            group = [
                s for m in joined.get(k, (k,)) if isinstance(s := net.plan.flat[m], Exchange) and s.kind == step.kind
            ]
            size = sum(net.plan.values[s.source].nbytes(env) for s in group)
            us = found.collective_us(step.kind, size, step.size) if group[0] is step else 0.0
            moved += us
            rows.append((f"{step.kind} {step.axis}", us, found.name))
            continue
        size = sum(net.plan.values[v].nbytes(env) for v in dict.fromkeys(step.values))
        name, flops, dtype = step.label, 0.0, "float32"
        if isinstance(step, Call):
            own = {p.name: a.value for p, a in zip(net.signature(name), step.args) if not isinstance(a, str)}
            flops = _flops(net.report.function_flops.get(name, 0), env | {k: number(v, env) for k, v in own.items()})
            dtype = next((net.plan.values[v].dtype for v in step.values), dtype)
        bytes_us = size / gbps * 1e-3
        flops_us = flops / (machine.peak_tflops(dtype if dtype in machine.matrix_macs else "float32") * 1e6)
        us = max(bytes_us, flops_us, machine.launch_us)
        compute += us
        rows.append((name, us, "bytes" if us == bytes_us else "arithmetic" if us == flops_us else "launch"))
    return StepTime(
        machine.name,
        found.name,
        compute,
        moved,
        tuple(rows),
        "; ".join(x for x in (found.assumed, machine.assumed) if x),
    )


def _flops(e: Any, env: Mapping[str, int]) -> float:
    """A function's arithmetic, in whose sizes names are those of the function; 0 where one is not known."""
    if isinstance(e, (int, float)):
        return float(e)
    return float(number(e, env)) if all(n in env for n in exprs.names(e)) else math.nan
