"""What each template is worth: drawn groups and those of networks, computed by the default of every template that is offered, and by the chain without the template that serves.

    python -m benchmarks.choice_ablation take FILE [--seed 1] [--draws 400] [--seconds 900] [--targets "llvm;rocm -mcpu=gfx942"] [--part 0/4] [--timed] [--kinds pool,transpose] [--models A.onnx ...]
    python -m benchmarks.choice_ablation show FILE...
    python -m benchmarks.choice_ablation compare BEFORE AFTER

`take` writes a line of JSON a group and target: what serves, the price of each template's default by its sketch and by the loops that it lowers to, and what the chain
takes where the serving template is gone. `--timed` has times too: by the software GPU's model on AMD chips, by processor time on one thread on the host's CPU.
`show` says of each template how often it is offered and serves, and how many times longer its groups take without it. A template without which nothing takes longer
is a candidate for removal. `compare` takes two files of one draw, from before and after a change: the price of what serves, group by group.
"""

from __future__ import annotations

import argparse
import collections
import json
import math
import statistics
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import onnx

import tec
from benchmarks import cliff_cases
from benchmarks.choice_use import programs
from benchmarks.cliff_wide import WIDE
from benchmarks.cliffs import processor_us
from tec.choices import Made, Space, spaces
from tec.choices.candidates import Chain
from tec.choices.cost import price
from tec.choices.footprint import read
from tec.choices.proof import lower
from tec.ir.visit import deep_recursion
from tests.unit.choices import draws

TARGETS = (
    "llvm -mcpu=haswell", "llvm -mcpu=x86-64-v4", "llvm -mcpu=znver4", "llvm -mcpu=sapphirerapids", "cuda -arch=sm_80", "cuda -arch=sm_90a",
    "rocm -mcpu=gfx942", "rocm -mcpu=gfx950", "rocm -mcpu=gfx1030", "rocm -mcpu=gfx1100", "rocm -mcpu=gfx1201",
)  # fmt: skip
BOUNDS = cliff_cases.Bounds(10**10, 2**22, ("float32", "float16"))
EACH = 2  # targets that a drawn model meets: more draws say more than more chips of one draw
OFFERED = 6  # templates of a group that are lowered
SLOWER = 1.05  # times, from which on a group counts as slower without a template


def case(number: int, seed: int, given: str = "") -> tuple[str, Any, dict[str, Any]]:
    """A draw in words, its model, and inputs: of the tests' small layers and of larger operators, common and rare, in turn, or of given kinds of these."""
    rng, kinds = Random(f"{seed} ablation {number}"), given.split(",") if given else [*cliff_cases.KINDS, *WIDE]
    if number % 3 == 0 and not given:
        small = draws.draw(rng, list(draws.KINDS)[number // 3 % len(draws.KINDS)])
        return f"{small.kind} {small.words}", small.model, {}
    drawn = cliff_cases.draw(kinds[(number - number // 3) % len(kinds)], rng, BOUNDS)
    return drawn.name, drawn.model(), drawn.inputs


def rows(words: str, model: Any, inputs: dict[str, Any], text: str, is_timed: bool) -> Iterator[dict[str, Any]]:
    """A row for each group of a model on a target that two templates at least can compute."""
    target = tec.Target(text)
    with target, deep_recursion():
        for k, program in enumerate(programs(model, target)):
            found = spaces(program.outputs, target)
            row: dict[str, Any] = {"case": words, "target": text, "group": k, "offered": [s.template for s in found]}
            served = Chain(found, program.loops).first()
            without = [s for s in found if s.template != served.space.template]
            row |= {"serves": served.space.template, "choice": served.choice, "seconds": _seconds(served)}
            if without:
                second = Chain(without, program.loops).first()
                row |= {"next": second.space.template, "next seconds": _seconds(second)}
            row["prices"] = {s.template: _prices(s, program.loops) for s in found[:OFFERED]} if without else {}
            if without and is_timed and inputs:
                choices = {s.template: s.default for s in found[:OFFERED] if s.template in row["prices"]}
                row["us"] = _times(model, inputs, target, served.space.group.signature, choices)
            yield row


def _seconds(made: Made) -> float | None:
    """The price of the loops; None where a count in them is a guess."""
    asked = read(made)
    return None if any(k.guessed for k in asked.kernels) else price(asked, made.space.target).seconds


def _prices(space: Space, loops: Any) -> dict[str, float | None]:
    """Of a template's default: what its sketch and its loops say."""
    try:
        sketch: float | None = space.cost(space.default).seconds
    except NotImplementedError:  # plain stages have no sketch
        sketch = None
    made = lower(space, space.default, loops)
    return {"sketch": sketch, "loops": _seconds(made) if isinstance(made, Made) else math.inf}


def _times(
    model: Any, inputs: dict[str, Any], target: tec.Target, signature: str, choices: dict[str, Any]
) -> dict[str, float]:
    """Microseconds of the whole model by each choice of one group."""
    from tec.report.measure import kernel_times

    nets = {}
    for template, choice in choices.items():
        try:
            nets[template] = tec.compile(
                model, target, cache=False, choices={signature: choice}, progress=lambda *a: None
            )
        except Exception:  # what cannot be made has no time
            continue
    if target.is_gpu:
        dev = tec.rocm_emu(target.mcpu)
        return {t: sum(k.us for k in kernel_times(net, inputs, dev, run=False)) for t, net in nets.items()}
    return dict(zip(nets, processor_us(*(lambda net=net: net.run(inputs) for net in nets.values()))))


def models(paths: list[Path]) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    for path in paths:
        yield path.stem, onnx.load(path), {}


def take(said: argparse.Namespace) -> None:
    stop, (part, parts) = time.monotonic() + said.seconds, map(int, said.part.split("/"))
    wanted = said.targets.split(";")
    with said.files[0].open("w") as out:
        given = list(models(said.models))
        for number in range(part, len(given) + said.draws, parts):
            if time.monotonic() > stop:
                break
            try:
                words, model, inputs = (
                    given[number] if number < len(given) else case(number - len(given), said.seed, said.kinds)
                )
            except Exception as error:
                out.write(json.dumps({"undrawn": number, "why": f"{error!s:.100}"}) + "\n")
                continue
            for text in (
                wanted
                if number < len(given)
                else Random(f"{said.seed} {number}").sample(wanted, min(said.each, len(wanted)))
            ):
                is_timed = said.timed and (text.startswith("rocm") or text == "llvm")
                try:
                    out.writelines(
                        json.dumps(row, default=str) + "\n" for row in rows(words, model, inputs, text, is_timed)
                    )
                except Exception as error:
                    at = traceback.extract_tb(error.__traceback__)[-1]
                    out.write(
                        json.dumps(
                            {
                                "case": words,
                                "target": text,
                                "died": f"{type(error).__name__}: {error!s:.200} {at.filename}:{at.lineno}",
                            }
                        )
                        + "\n"
                    )
                out.flush()


def loaded(paths: list[Path]) -> list[dict[str, Any]]:
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def show(paths: list[Path]) -> Iterator[str]:
    """A line a template and kind of target: the more its groups lose without it, the higher."""
    found = loaded(paths)
    groups = [r for r in found if "serves" in r]
    yield f"{len(groups)} groups, {sum('died' in r for r in found)} deaths"
    by: dict[tuple[str, str], list[dict[str, Any]]] = collections.defaultdict(list)
    offered: collections.Counter[tuple[str, str]] = collections.Counter()
    for r in groups:
        kind = r["target"].split()[0]
        by[r["serves"], kind].append(r)
        offered.update((t, kind) for t in set(r["offered"]))
    yield f"{'template':28s} {'on':5s} {'offered':>7s} {'serves':>6s} {'alone':>5s} | without it by loops: slower, median, worst, whole | by time: median, worst | next"
    for (template, kind), n in sorted(offered.items()):
        yield _line(template, kind, n, by[template, kind])


def _line(template: str, kind: str, offered: int, some: list[dict[str, Any]]) -> str:
    pairs = [(r["seconds"], r["next seconds"]) for r in some if r["seconds"] and r.get("next seconds")]
    ratios = [b / a for a, b in pairs]
    timed = [
        min(v for t, v in r["us"].items() if t != template) / r["us"][template]
        for r in some
        if template in r.get("us", ()) and len(r["us"]) > 1
    ]
    head = f"{template:28s} {kind:5s} {offered:7d} {len(some):6d} {sum('next' not in r for r in some):5d} | "
    loops = (
        f"{sum(x >= SLOWER for x in ratios):4d} of {len(ratios):4d} {statistics.median(ratios):6.2f} {max(ratios):7.1f} {sum(b for _, b in pairs) / sum(a for a, _ in pairs):6.2f}"
        if ratios
        else f"{'':33s}"
    )
    clock = f"{len(timed):3d}: {statistics.median(timed):5.2f} {max(timed):6.1f}" if timed else f"{'':17s}"
    behind = collections.Counter(r["next"] for r in some if "next" in r).most_common(2)
    return f"{head}{loops} | {clock} | {', '.join(f'{t} {n}' for t, n in behind)}"


def compare(before: Path, after: Path) -> Iterator[str]:
    """What groups cost more or less, by target and in all."""
    old, new = (
        {(r["case"], r["target"], r["group"]): r for r in loaded([p]) if "serves" in r} for p in (before, after)
    )
    both = [(k, old[k], new[k]) for k in old if k in new and old[k]["seconds"] and new[k]["seconds"]]
    ratios = sorted((b["seconds"] / a["seconds"], k, a["serves"], b["serves"]) for k, a, b in both)
    yield f"{len(both)} groups in both, {len(old)} before, {len(new)} after; another template serves {sum(a['serves'] != b['serves'] for _, a, b in both)}"
    for target in ("", *sorted({k[1] for _, k, *_ in ratios})):
        some = [r for r, k, *_ in ratios if target in k[1]]
        yield f"{target or 'all':24s} {len(some):5d} groups: least {some[0]:.3f}, median {statistics.median(some):.3f}, worst {some[-1]:.3f}, above 1.02: {sum(r > 1.02 for r in some)}"
    for ratio, (words, target, k), was, now in ratios[::-1]:
        if ratio > 1.02:
            yield f"{ratio:.3f} {was} -> {now}: {target}, {words}, group {k}"


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("what", choices=("take", "show", "compare"))
    words.add_argument("files", type=Path, nargs="+")
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--draws", type=int, default=400)
    words.add_argument("--seconds", type=float, default=900.0)
    words.add_argument("--targets", default=";".join(TARGETS), help="separated by semicolons; llvm is the host")
    words.add_argument("--each", type=int, default=EACH, help="targets that a draw meets")
    words.add_argument("--part", default="0/1", help="which of so many processes this one is")
    words.add_argument("--kinds", default="", help="of cliff_cases and cliff_wide alone, separated by commas")
    words.add_argument("--timed", action="store_true")
    words.add_argument("--models", type=Path, nargs="*", default=[])
    said = words.parse_args()
    warnings.simplefilter("ignore")
    if said.what == "take":
        take(said)
    else:
        print(*(show(said.files) if said.what == "show" else compare(*said.files)), sep="\n")


if __name__ == "__main__":
    main()
