"""Memory planning: offsets in one arena for values with lifetimes, as close to the lower bound as a greedy plan comes.

In: `Lifetime`s (bytes, first and last step, both inclusive). Out: offsets and the arena's size. Each goes to the
smallest gap between those that live at the same time, largest first (the greedy-by-size of Pisarchyk and Lee, 2020, "Efficient
Memory Management for Deep Neural Net Inference"). What then ends above the lower bound is placed first in another round (the
squeaky wheel of Joslin and Clements, 1999); the smallest plan of some rounds is taken.

`place` does it for a network's plan whose sizes are symbolic, once they are bound: a plan without offsets gets them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from . import exprs
from .dtypes import itemsize

ALIGN = 256


@dataclass(frozen=True)
class Lifetime:
    name: str
    nbytes: int
    first: int
    last: int


_ROUNDS = 16


def plan(lifetimes: list[Lifetime]) -> tuple[dict[str, int], int]:
    """(offset by name, bytes of the arena)."""
    if not lifetimes:
        return {}, 0
    bound = lower_bound(lifetimes)
    order = np.array(sorted(range(len(lifetimes)), key=lambda k: (-lifetimes[k].nbytes, lifetimes[k].first)))
    sizes, first, last = (
        np.array(a, np.int64)
        for a in zip(*((-(-max(x.nbytes, 1) // ALIGN) * ALIGN, x.first, x.last) for x in lifetimes))
    )
    best: tuple[int, Any, Any] | None = None
    for _ in range(_ROUNDS):
        start = _greedy(sizes[order], first[order], last[order])
        end = start + sizes[order]
        total = int(end.max())
        if best is None or total < best[0]:
            best = total, order, start
        if total <= bound:
            break
        over = end > bound
        order = np.concatenate([order[over], order[~over]])
    assert best is not None
    total, order, start = best
    return {lifetimes[k].name: int(at) for k, at in zip(order, start)}, total


def _greedy(sizes: Any, first: Any, last: Any) -> Any:
    """Offsets, in the order given."""
    start, end = np.zeros(len(sizes), np.int64), np.zeros(len(sizes), np.int64)
    for k, size in enumerate(sizes):
        busy = np.nonzero((first[:k] <= last[k]) & (last[:k] >= first[k]))[0]
        at = 0
        if len(busy):
            busy = busy[np.argsort(start[busy], kind="stable")]
            reach = np.maximum.accumulate(end[busy])
            below = np.concatenate([[0], reach[:-1]])  # where the gap under each begins
            gap = start[busy] - below
            fits = np.nonzero(gap >= size)[0]
            at = below[fits[np.argmin(gap[fits])]] if len(fits) else reach[-1]
        start[k], end[k] = at, at + size
    return start


def lower_bound(lifetimes: list[Lifetime]) -> int:
    """The largest number of bytes that live at one step: no plan can do with less."""
    steps = {x.first for x in lifetimes}
    return max(
        (sum(-(-max(x.nbytes, 1) // ALIGN) * ALIGN for x in lifetimes if x.first <= s <= x.last) for s in steps),
        default=0,
    )


def place(network: Mapping[str, Any], env: Mapping[str, int], root: Mapping[str, str]) -> dict[str, Any]:
    """The plan of a network (see `network`) with the offsets of its arena for the sizes `env`. `root`: the value whose memory
    each value shows. A value lives from the first step that takes it to the last; the plan's outputs to the end."""
    values = network["values"]
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for k, step in enumerate(network["steps"]):
        for a in step["args"]:
            if isinstance(a, str) and values[root[a]]["place"] == "arena":
                first.setdefault(root[a], k)
                last[root[a]] = k
    for io in network["outputs"]:
        name = root[io.get("value", io["name"])]
        if name in last:
            last[name] = len(network["steps"])

    def nbytes(v: Mapping[str, Any]) -> int:
        sizes = [int(exprs.evaluate(exprs.compile_expr(d), env)) for d in v["shape"]]
        return prod(sizes) * itemsize(v["dtype"])

    lifetimes = [Lifetime(n, nbytes(values[n]), first[n], last[n]) for n in first]
    offsets, total = plan(lifetimes)
    placed = {n: {**v, "offset": offsets.get(n, 0)} if v["place"] == "arena" else v for n, v in values.items()}
    return {**network, "values": placed, "arena_bytes": total}


def bound(e: Any, env: Mapping[str, int]) -> Any:
    """The number of an expression, or a table of them."""
    if isinstance(e, dict):
        return {k: bound(v, env) for k, v in e.items()}
    return exprs.evaluate(exprs.compile_expr(e), env) if e is not None else None


def bound_plan(network: Mapping[str, Any], env: Mapping[str, int]) -> dict[str, Any]:
    """A network's plan with its expressions worked out for the sizes `env`, and without conditions."""

    def shaped(v: Mapping[str, Any]) -> dict[str, Any]:
        out = {**v, "shape": [bound(d, env) for d in v["shape"]]}
        if "offset" in v:
            out["offset"] = bound(v["offset"], env)
        return out

    steps = [
        {**s, "args": [a if isinstance(a, str) else {"scalar": bound(a["scalar"], env)} for a in s["args"]]}
        for s in network["steps"]
    ]
    return {
        **{k: v for k, v in network.items() if k != "guards"},
        "inputs": list(map(shaped, network["inputs"])),
        "outputs": list(map(shaped, network["outputs"])),
        "values": {n: shaped(v) for n, v in network["values"].items()},
        "steps": steps,
        "arena_bytes": bound(network["arena_bytes"], env),
    }
