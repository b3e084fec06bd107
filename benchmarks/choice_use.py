"""What choices are used: drawn operators on many chips, the default of each group and the templates behind it, as rows of kind "choices".

    python -m benchmarks.choice_use FILE... [--draws 2000] [--lowered 20] [--seed 1] [--seconds 900] [--append]

Two generators take turns: the layers in small and odd sizes of the tests (`tests.unit.choices.draws`), and the operators in sizes up to large ones of
`cliff_cases`. Each group of each draw is matched on a CPU, an NVIDIA and an AMD chip, and its default chosen and scheduled: milliseconds. Of each `lowered`th draw
the default is lowered through all passes, and so are the cheapest drafts and the defaults of the templates behind it: how many are made says how good `why_not` and
sketches are. FILE gets a line of JSON a group; a summary is printed, and with --append goes to the results. Several FILEs, without --draws, are summed up again.

Which statements of templates and passes the draws run, coverage.py says:

    python -m coverage run --include='tec/choices/*,tec/ir/passes/pipeline/*' -m benchmarks.choice_use FILE --draws 6000 --lowered 8
    python -m coverage report -m
"""

from __future__ import annotations

import argparse
import collections
import json
import random
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import tec_onnx

import tec
from benchmarks import cliff_cases
from benchmarks.records import Maker, Record, append
from tec.choices import Made, chain, spaces
from tec.choices.candidates import in_order
from tec.choices.proof import MOST_STATEMENTS, lower
from tec.graph.optimize import optimize
from tec.graph.parts import part_of
from tec.graph.programs import program_of
from tec.graph.sizes import sizes_of_group
from tec.ir.visit import deep_recursion
from tests.unit.choices import draws

TARGETS = (
    "llvm -mcpu=haswell", "llvm -mcpu=x86-64-v4", "llvm -mcpu=znver4", "llvm -mcpu=sapphirerapids", "cuda -arch=sm_70", "cuda -arch=sm_80", "cuda -arch=sm_90a",
    "cuda -arch=sm_100a", "rocm -mcpu=gfx906", "rocm -mcpu=gfx90a", "rocm -mcpu=gfx942", "rocm -mcpu=gfx950", "rocm -mcpu=gfx1030", "rocm -mcpu=gfx1100",
    "rocm -mcpu=gfx1201",
)  # fmt: skip
BOUNDS = cliff_cases.Bounds(10**11, 2**22, ("float32", "float16"))
DRAFTS = 6  # candidates of a group that are lowered


def case(number: int, seed: int) -> tuple[str, Any]:
    """The kind of a draw in words, and its model."""
    rng = random.Random(f"{seed} use {number}")
    if number % 2:
        kinds = list(cliff_cases.KINDS)
        drawn = cliff_cases.draw(kinds[number // 2 % len(kinds)], rng, BOUNDS)
        return drawn.name, drawn.model()
    kinds = list(draws.KINDS)
    small = draws.draw(rng, kinds[number // 2 % len(kinds)])
    return f"{small.kind} {small.words}", small.model


def targets_of(number: int, seed: int) -> list[str]:
    """A target of each kind, so that a draw's time goes into many draws and not into many targets of one."""
    rng = random.Random(f"{seed} targets {number}")
    return [rng.choice([t for t in TARGETS if t.startswith(kind)]) for kind in ("llvm", "cuda", "rocm")]


def programs(model: Any, target: tec.Target) -> Iterator[Any]:
    """The groups of a model as programs; inside of `with target`."""
    graph, *_ = tec_onnx.from_onnx(model)
    graph = optimize(graph, target, None)
    for k, group in enumerate(part_of(graph, (), ()).groups):
        if not group.is_alias:
            yield program_of(group, k, sizes_of_group(group), list(graph.guards))


def told(words: str, text: str, what: str, error: Exception) -> dict[str, Any]:
    place = " < ".join(f"{f.filename.rpartition('tec/')[2]}:{f.lineno}" for f in reversed(traceback.extract_tb(error.__traceback__)[-3:]))  # fmt: skip
    return {"target": text, "case": words, what: f"{type(error).__name__}: {error!s:.200}", "place": place}


def use(words: str, model: Any, text: str, is_lowered: bool) -> Iterator[dict[str, Any]]:
    """A row a group of a model on a target."""
    target = tec.Target(text)
    try:
        with target, deep_recursion():
            for program in programs(model, target):
                found = spaces(program.outputs, target)
                default = found[0].default
                row = {"target": text, "case": words, "spaces": [s.template for s in found], "default": default}
                found[0].build(default)
                if is_lowered:
                    row |= _lowered(program, found, target)
                yield row
    except Exception as error:
        yield told(words, text, "died", error)


def _lowered(program: Any, found: list[Any], target: tec.Target) -> dict[str, Any]:
    """Which candidates are made, and what the chain takes."""
    refused = []
    tried = 0
    for rank, space, choice in in_order(found):
        if tried == DRAFTS:
            break
        tried += 1
        made = lower(space, space.default if choice is None else choice, program.loops, False, MOST_STATEMENTS if rank != "default" else None)  # fmt: skip
        if not isinstance(made, Made):
            refused.append({"rank": rank, "template": made.template, "stage": made.stage, "reason": made.reason[:160], "choice": made.choice})  # fmt: skip
    tries = chain(program.outputs, target, program.loops)
    return {"tried": tried, "refused": refused, "made": tries.first().choice}


def run(out: TextIO, count: int, each: int, seed: int, seconds: float) -> tuple[int, int]:
    """Draws until their count or the time is reached; how many draws and groups."""
    stop, groups, number = time.monotonic() + seconds, 0, 0
    for number in range(count):
        if time.monotonic() > stop:
            break
        try:
            words, model = case(number, seed)
        except Exception as error:
            out.write(json.dumps({"case": str(number), "undrawn": f"{error!s:.100}"}) + "\n")
            continue
        for text in targets_of(number, seed):
            for row in use(words, model, text, number % each == 0):
                out.write(json.dumps(row, default=str) + "\n")
                groups += 1
        out.flush()
    return number, groups


def summary(paths: list[Path], make: Maker) -> Iterator[Record]:
    """Rows of results."""
    rows = [json.loads(x) for path in paths for x in path.read_text().splitlines()]
    groups = [r for r in rows if "default" in r]
    lowered = [r for r in groups if "tried" in r]
    bad = [x for r in lowered for x in r["refused"]]
    defaults = sum(x["rank"] == "default" for x in bad)
    others = sum(r["tried"] for r in lowered) - len(lowered)
    what = "drawn groups"
    yield make.counted(what, "defaults", len(groups), "groups", band=None)
    yield make.counted(what, "deaths", sum("died" in r for r in rows), "groups", band=1.0)
    yield make.counted(what, "lowered", len(lowered), "groups", band=None)
    yield make.counted(what, "refused defaults", defaults, "groups", band=1.0)
    yield make.counted(what, "other candidates lowered", others, "candidates", band=None)
    yield make.counted(what, "refused others", len(bad) - defaults, "candidates", band=None)
    offered = collections.Counter(t for r in groups for t in r["spaces"])
    won = collections.Counter(r["default"]["template"] for r in groups)
    for template, n in offered.most_common():
        share = round(100 * won[template] / n, 1)
        yield make.counted(
            template, "default where offered", share, "percent", band=None, note=f"{won[template]} of {n} groups"
        )


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("files", type=Path, nargs="+")
    words.add_argument("--draws", type=int)
    words.add_argument("--lowered", type=int, default=20)
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--seconds", type=float, default=900.0)
    words.add_argument("--append", action="store_true")
    said = words.parse_args()
    warnings.simplefilter("ignore")
    if said.draws is not None:
        with said.files[0].open("w") as out:
            number, groups = run(out, said.draws, said.lowered, said.seed, said.seconds)
        print(f"{number} draws, {groups} rows")
    rows = list(summary(said.files, Maker("choices", "python -m benchmarks.choice_use")))
    for row in rows:
        print(f"{row.what:30s} {row.measure:24s} {row.value:>10} {row.unit} {row.note}")
    if said.append:
        print(f"{append(rows)} rows added")


if __name__ == "__main__":
    sys.exit(main())
