"""A network's steps as the page draws them: who reads whom, and stretches of steps that repeat.

In: a `Network` with sizes that are numbers. Out: plain data.
"""

from __future__ import annotations

from typing import Any

from .listing import Step

_LONGEST = 64  # steps of a layer that is looked for
_TWICE = 24  # steps of one that comes twice: a longer stretch is no layer
_OFTEN = 6  # repeats: those of more come often enough


def graph_of(net: Any, steps: list[Step]) -> dict[str, Any]:
    """{"nodes": [{"kind", "title", "under", "step"?}], "edges": [[from, to]], "repeats": [{"first", "period", "count"}]}.

    Nodes stand in the order in which they run, inputs first; edges and repeats count nodes.
    """
    inputs = net.inputs
    nodes: list[dict[str, Any]] = [
        {"kind": "input", "title": i["name"], "under": _type(i["dtype"], i["shape"])} for i in inputs
    ]
    first = len(nodes)
    makers: dict[int, int] = {}
    given = {i["name"]: k for k, i in enumerate(inputs)}
    edges: set[tuple[int, int]] = set()
    plan = net.plan
    for s in steps:
        for name in s.reads:
            for at in plan.made_of(name):
                source = makers.get(at, given.get(at))
                if source is not None:
                    edges.add((source, first + s.number))
        for name in s.writes:
            makers[plan.root(name)] = first + s.number
        made = plan.values[s.writes[-1]] if s.writes else None
        nodes.append(
            {
                "kind": "step", "step": s.number, "title": " → ".join(s.ops) or s.function,
                "under": f"{s.origin}  {_type(made.dtype, made.shape) if made is not None else ''}".strip(),
            }
        )  # fmt: skip
    for o in plan.outputs:
        if o.check is None:
            v = plan.values[o.value]
            edges |= {(makers[at], len(nodes)) for at in plan.made_of(o.value) if at in makers}
            nodes.append({"kind": "output", "title": o.name, "under": _type(v.dtype, v.shape)})
    found = repeats([tuple(s.ops) or (s.function,) for s in steps])
    return {
        "nodes": nodes,
        "edges": sorted(edges),
        "repeats": [{"first": first + at, "period": p, "count": n} for at, p, n in found],
    }


def _type(dtype: str, shape: Any) -> str:
    return f"{dtype} {'x'.join(map(str, shape))}"


def repeats(keys: list[Any]) -> list[tuple[int, int, int]]:
    """(first, period, count) of stretches that follow each other with equal keys, which do not overlap.

    Those that save most come first, and those that come often before long ones that come twice (a whole block of layers beside the next); a step
    by itself must come three times.
    """
    ids: dict[Any, int] = {}
    row = [ids.setdefault(k, len(ids)) for k in keys]
    n = len(row)
    found = []
    for p in range(1, min(_LONGEST, n // 2) + 1):
        run = 0  # steps up to here that equal the one a period before
        for end in range(p, n + 1):
            if end < n and row[end] == row[end - p]:
                run += 1
                continue
            # A start at each step of the first period, since the run's own beginning may be another's end.
            begin = end - run - p
            for first in range(begin, min(begin + p, end - 2 * p + 1)):
                count = (end - first) // p
                if count >= (3 if p == 1 or p > _TWICE else 2):
                    found.append((-p * (count - 1) * (min(count, _OFTEN) - 1), p, first, count))
            run = 0
    out: list[tuple[int, int, int]] = []
    taken = [False] * n
    for weight, p, first, count in sorted(found):
        if -weight >= 2 and not any(taken[first : first + p * count]):
            out.append((first, p, count))
            taken[first : first + p * count] = [True] * (p * count)
    return sorted(out)
