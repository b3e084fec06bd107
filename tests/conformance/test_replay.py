"""Every schedule of the table, written to JSON and to text, read and replayed on the computation built anew: the same loops."""

from __future__ import annotations

import json

import tec
from tec.schedule import Schedule, Trace, create_schedule, to_loops
from tests.conformance.harness import Program
from tests.conformance.programs import PROGRAMS
from tests.thinned import thinned_rows

TARGETS = {"cpu": "llvm -mcpu=x86-64-v3", "gpu": "rocm -mcpu=gfx942"}


def scheduled(name: str, kind: str) -> tuple[Program, Schedule]:
    with tec.Target(TARGETS[kind]) as target:
        program = PROGRAMS[name].make()
        s = create_schedule([t.op for t in program.outputs])
        apply = program.cpu if kind == "cpu" else program.gpu
        if apply is not None:
            apply(s, target)
    return program, s


def rows() -> list[tuple[str, str]]:
    return [(n, k) for n, c in PROGRAMS.items() for k in c.kinds if c.needs(tec.Target(TARGETS[k]))]


@thinned_rows(120, ("name", "kind"), rows())  # neighbours by name differ in a type or a size
def test_replayed_schedules_give_the_same_loops(name: str, kind: str) -> None:
    program, s = scheduled(name, kind)
    want = str(to_loops(s, program.args, name="f"))
    data = json.loads(json.dumps(s.trace.to_json()))
    read = Trace.from_json(data, s.trace.intrins)
    assert read == s.trace
    for trace in (s.trace, read, str(s.trace)):
        with tec.Target(TARGETS[kind]):
            again = PROGRAMS[name].make()
        fresh = create_schedule([t.op for t in again.outputs]).replay(trace, s.trace.intrins)
        assert str(to_loops(fresh, again.args, name="f")) == want
        assert fresh.trace == s.trace
