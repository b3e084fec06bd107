"""The default choice of every group of drawn layers on a range of machines, kept as text, so that a change that should not alter choices can show that it did not.

    python -m tools.default_choices take FILE [draws]      a line a group: draw, target, group, its first space's default
    python -m tools.default_choices compare BEFORE AFTER   names what differs; exit code 1 where something does

Take one at the commit before, one after (PYTHONPATH chooses the checkout). Nothing is lowered: milliseconds a group.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import tec_onnx

import tec
from tec.choices import spaces
from tec.graph.optimize import optimize
from tec.graph.parts import part_of
from tec.graph.programs import program_of
from tec.graph.sizes import sizes_of_group
from tec.ir.visit import deep_recursion
from tests.unit.choices.draws import KINDS, Case, draw

TARGETS = (
    "llvm -mcpu=znver4", "llvm -mcpu=x86-64-v3", "llvm -mcpu=sapphirerapids", "h200", "cuda -arch=sm_90a", "a100", "mi300x", "mi355x", "7900xtx",
    "9070xt", "mi210",
)  # fmt: skip
DRAWS = 300


def lines(case: Case, number: int, text: str) -> Iterator[str]:
    """The defaults of one drawn model on one target."""
    target = tec.Target(text)
    with target, deep_recursion():
        graph, *_ = tec_onnx.from_onnx(case.model)
        graph = optimize(graph, target, None)
        for k, group in enumerate(part_of(graph, (), ()).groups):
            if not group.is_alias:
                program = program_of(group, k, sizes_of_group(group), list(graph.guards))
                found = spaces(program.outputs, target)[0]
                yield f"{number} {case.kind} | {text} | {k} | {json.dumps(found.default, sort_keys=True)} | {case.words}"


def take(path: Path, draws: int) -> None:
    """Kinds in turn, so that each has as many draws."""
    with path.open("w") as out:
        for number in range(draws):
            case = draw(random.Random(f"defaults {number}"), list(KINDS)[number % len(KINDS)])
            for text in TARGETS:
                try:
                    out.writelines(line + "\n" for line in lines(case, number, text))
                except Exception as error:  # a draw that no choice serves is a line too
                    out.write(f"{number} {case.kind} | {text} | - | {type(error).__name__}: {error!s:.80} | {case.words}\n")  # fmt: skip


def compare(before: Path, after: Path) -> int:
    """Name what differs."""
    old, new = before.read_text().splitlines(), after.read_text().splitlines()
    differing = [(a, b) for a, b in zip(old, new) if a != b]
    for a, b in differing:
        print(f"- {a}\n+ {b}")
    print(f"{len(differing)} of {len(old)} lines differ, {len(new)} after")
    return int(bool(differing) or len(old) != len(new))


def main(words: list[str]) -> int:
    if len(words) in (2, 3) and words[0] == "take":
        take(Path(words[1]), int(words[2]) if len(words) == 3 else DRAWS)
        return 0
    if len(words) == 3 and words[0] == "compare":
        return compare(Path(words[1]), Path(words[2]))
    print(__doc__)
    return 64


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
