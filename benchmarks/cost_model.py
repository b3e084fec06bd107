"""Is the price of a choice right? The drafts that `regret` timed, each beside what `cost` says of its sketch and of the loops that it lowers to.

    python -m benchmarks.regret cuda --seed 7 > timed.jsonl        # on the GPU
    python -m benchmarks.cost_model cuda timed.jsonl --seed 7      # anywhere; llvm where the rows are of a CPU, on that CPU

Per template: the median of price over time, the share of drafts within 25 %, and how much slower than the best of its drafts a group would be if the cheapest by price were its
default, beside the default of today. `--worst` lists drafts whose price is furthest off.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks.cliff_cases import KINDS, draw
from benchmarks.regret import TARGETS, costliest

CLOSE = 0.25  # of the time: what counts as near


def priced(row: dict[str, Any], case: Any, target: Any) -> list[dict[str, Any]]:
    """Of each draft that was timed: template, microseconds measured, by its sketch, and by its loops (None where there is none)."""
    from tec.choices import footprint
    from tec.choices.cost import price
    from tec.choices.proof import Made, alone, prove

    task = costliest(case.model(), target)
    if task is None:
        return []
    spaces, found = {s.template: s for s in task.spaces}, []
    for k, draft in enumerate(row["drafts"]):
        choice = draft["choice"] or task.spaces[0].default
        space = spaces.get(choice["template"])
        if space is None or draft["us"] is None or "wrong" in draft:
            continue
        made = prove(space, choice, alone)
        found.append({
            "template": space.template, "default": k == 0, "us": draft["us"], "sketch": space.cost(choice).seconds * 1e6,
            "loops": price(footprint.read(made), target).seconds * 1e6 if isinstance(made, Made) else None, "choice": choice,
        })  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=list(TARGETS))
    parser.add_argument("rows", type=Path)
    parser.add_argument("--seed", type=int, required=True, help="that the rows were drawn with")
    parser.add_argument("--kinds", default=",".join(KINDS), help="that the rows were drawn from")
    parser.add_argument("--worst", type=int, default=0)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    import tec

    (name, bounds), lines = TARGETS[args.target], args.rows.read_text().splitlines()
    target = tec.Target(name)
    rows = {r["name"]: r for r in map(json.loads, [x for x in lines if x.startswith("{")]) if r.get("drafts")}
    kinds, rng, left = args.kinds.split(","), random.Random(args.seed), len(rows)
    by_template, groups = defaultdict[str, list[dict[str, Any]]](list), []
    for i in range(100 * len(rows)):
        kind, again = kinds[i % len(kinds)], random.Random()
        again.setstate(rng.getstate())
        case = draw(kind, rng, bounds, sizes_alone=True)
        if case.name not in rows or not left:
            continue
        left -= 1
        drafts = priced(rows[case.name], draw(kind, again, bounds), target)
        for d in drafts:
            by_template[d["template"]].append({**d, "case": case.name})
        if len(drafts) > 1:
            groups.append((case.name, drafts))
        if not left:
            break
    told = [(name, d) for name in sorted(by_template) for d in [by_template[name]]]
    for name, drafts in [*told, ("all", [d for _, ds in told for d in ds])]:
        for way in ("sketch", "loops"):
            factors = [d[way] / d["us"] for d in drafts if d[way]]
            if not factors:
                continue
            near = statistics.fmean(abs(f - 1) <= CLOSE for f in factors)
            print(json.dumps({"template": name, "by": way, "drafts": len(factors), "median": round(statistics.median(factors), 3), "near": round(near, 3)}))  # fmt: skip
    for way in ("default", "sketch", "loops"):
        regrets = []
        for _, drafts in groups:
            best = min(d["us"] for d in drafts)
            picked = next((d for d in drafts if d["default"]), None) if way == "default" else min((d for d in drafts if d[way]), key=lambda d: d[way], default=None)  # fmt: skip
            if picked is not None:
                regrets.append(picked["us"] / best)
        regrets.sort()
        print(json.dumps({"picked by": way, "groups": len(regrets), "within 1.1": sum(r <= 1.1 for r in regrets), "median": round(statistics.median(regrets), 3), "90 %": round(regrets[int(0.9 * (len(regrets) - 1))], 3), "worst": round(regrets[-1], 3)}))  # fmt: skip
    every = [d for _, drafts in groups for d in drafts if d["loops"]]
    for d in sorted(every, key=lambda d: -abs(math.log((d["loops"] or 1) / d["us"])))[: args.worst]:
        print(json.dumps(d))


if __name__ == "__main__":
    sys.exit(main())
