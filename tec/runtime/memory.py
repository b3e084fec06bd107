"""Memory planning: offsets in one arena for values with lifetimes, as close to the lower bound as a greedy plan comes.

In: `Lifetime`s (bytes, first and last step, both inclusive). Out: offsets and the arena's size. Largest first, each at the lowest
offset where nothing that lives at the same time is in the way (the greedy-by-size of Pisarchyk and Lee, 2020, "Efficient
Memory Management for Deep Neural Net Inference").

`place` does it for a network's plan whose sizes are symbolic, once they are bound: a plan without offsets gets them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from . import exprs
from .dtypes import itemsize

ALIGN = 256


@dataclass(frozen=True)
class Lifetime:
    name: str
    nbytes: int
    first: int
    last: int


def plan(lifetimes: list[Lifetime]) -> tuple[dict[str, int], int]:
    """(offset by name, bytes of the arena)."""
    offsets: dict[str, int] = {}
    placed: list[tuple[Lifetime, int, int]] = []
    total = 0
    for item in sorted(lifetimes, key=lambda x: (-x.nbytes, x.first)):
        size = -(-max(item.nbytes, 1) // ALIGN) * ALIGN
        busy = sorted(
            (start, end) for other, start, end in placed if other.first <= item.last and item.first <= other.last
        )
        at = 0
        best: int | None = None
        gap = None
        for start, end in busy:
            if start - at >= size and (gap is None or start - at < gap):
                best, gap = at, start - at
            at = max(at, end)
        where = at if best is None else best
        offsets[item.name] = where
        placed.append((item, where, where + size))
        total = max(total, where + size)
    return offsets, total


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
