"""How much code the passes make of the table's schedules, as counts of which less is better. `python -m tests.conformance.sizes` writes sizes.json.

Values are held in other files. A pass that no longer finds what it looks for leaves right values, and more loads, divisions, conditions or steps; these counts tell.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import tec
from tec.driver import lowered
from tec.errors import LoweringError
from tec.ir import expr as E
from tec.ir import stmt as S
from tec.ir.visit import visit
from tec.schedule import create_schedule, to_loops
from tests.conformance.harness import CASES
from tests.conformance.programs import PROGRAMS

FILE = Path(__file__).with_name("sizes.json")
TARGETS = ("llvm -mcpu=x86-64-v3", "rocm -mcpu=gfx942", "cuda -arch=sm_80")
COUNTED = ("loads", "stores", "divisions", "choices", "loops", "calls", "arithmetic")
_KIND: dict[type, str] = {
    E.BufferLoad: "loads", S.BufferStore: "stores", E.FloorDiv: "divisions", E.FloorMod: "divisions", E.Div: "divisions", E.Mod: "divisions",
    E.Select: "choices", S.IfThenElse: "choices", S.For: "loops", E.Call: "calls", E.Add: "arithmetic", E.Sub: "arithmetic", E.Mul: "arithmetic",
}  # fmt: skip


def counts(name: str, target: str) -> list[int]:
    """Of a case's schedule for a target, in the order of COUNTED; nothing where it is refused."""
    with tec.Target(target) as t:
        program = CASES[name].make()
        s = create_schedule([x.op for x in program.outputs])
        apply = program.gpu if t.is_gpu else program.cpu
        if apply is not None:
            apply(s, t)
        found: Counter[str] = Counter()

        def count(x: Any) -> None:
            if type(x) in _KIND:
                found[_KIND[type(x)]] += 1

        try:
            parts = lowered(to_loops(s, program.args, name="f"), t).parts
        except LoweringError:  # a schedule for AMD's matrix instructions
            return []
        for part in parts:
            visit(part.body, count, count)
    return [found[c] for c in COUNTED]


def rows(names: list[str]) -> list[tuple[str, str]]:
    """Each case for one of the targets that it is made for, in turn."""
    out = []
    for n, name in enumerate(sorted(names)):
        case = CASES[name]
        fit = [
            t for t in TARGETS if ("gpu" if tec.Target(t).is_gpu else "cpu") in case.kinds and case.needs(tec.Target(t))
        ]
        if fit:
            out.append((name, fit[n % len(fit)]))
    return out


def all_rows() -> list[tuple[str, str]]:
    """Of the cases that are tensor expressions."""
    return rows([*PROGRAMS])


def main() -> None:
    lines = [f"{json.dumps(f'{name} {target}')}: {counts(name, target)}" for name, target in all_rows()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


if __name__ == "__main__":
    main()
