"""Drawn loops in drawn orders of a software pipeline: an order is taken exactly where it keeps every two accesses of one place in order, and what is taken computes
what the loop computes.

The reference for the first is an enumeration of all accesses of all steps; for the second the interpreter on the loop as it was. A failure prints its seed and its program.
"""

from __future__ import annotations

import itertools
import random
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tec
from tec.driver import run_passes
from tec.errors import LoweringError
from tec.ir import IRModule
from tec.ir.interp import run
from tec.ir.notes import SoftwarePipelineOrder
from tec.ir.passes.split_host_device import split_host_device
from tec.schedule import to_loops
from tests import seeds
from tests.fuzz import test_pass_schedules as schedules
from tests.unit.passes.pass_util import CPU, GPU, TO_BARRIERS, apply, check_same, parse_func

SEEDS = range(seeds.first(), seeds.first() + 80)
_CPU = ("pipeline", "flatten_buffers", "simplify", "vectorize", "unroll", "remove_noop", "plan_storage")


@dataclass
class Drawn:
    """A loop's body: for each statement the storage that it writes and what it reads; `lines` its text; `own` the names that the body allocates."""

    lines: list[str]
    writes: list[str]
    reads: list[set[str]]
    own: set[str]


def body(rng: random.Random, threads: bool) -> Drawn:
    """Statements that make storage of the body's own from inputs and from each other, and add to outputs; some write an output that others read."""
    out = Drawn([], [], [], set())
    made: list[str] = []
    for n in range(rng.randint(2, 5)):
        last = n and not made
        if n == 0 or (rng.random() < 0.6 and not last):
            name = f"x{n}"
            scope = rng.choice(("shared", "local", "local")) if threads else rng.choice(("global", "local"))
            sources = rng.sample(made, rng.randint(0, min(2, len(made)))) if made else []
            out.lines.append(f'{name} = alloc((8,), "float32", scope="{scope}")')
            out.own.add(name)
            made.append(name)
            terms = [f"A[k, {{t}}] * {n + 1}.0", *[_read(x, out.lines) for x in sources]]
        else:
            name = rng.choice(("C", "C", "D"))
            sources = [x for x in ("C", "D") if x != name and rng.random() < 0.2]
            sources += rng.sample(made, rng.randint(0, min(2, len(made))))
            terms = [f"{name}[{{t}}]", "1.0", *[_read(x, out.lines) for x in sources]]
            sources = [*sources, name]
        out.lines.append(f"{name}[{{t}}] = {' + '.join(terms)}")
        out.writes.append(name)
        out.reads.append(set(sources))
    return out


def _read(name: str, lines: list[str]) -> str:
    """A value that a thread reads: of shared memory its neighbour's."""
    shared = any(x.startswith(f"{name} = alloc") and '"shared"' in x for x in lines)
    return f"{name}[{{u}}]" if shared else f"{name}[{{t}}]"


def program(drawn: Drawn, extent: int | None, low: int, threads: bool, note: SoftwarePipelineOrder | None) -> str:
    """The text of a function: the body in a loop of `extent` steps (n, where that is None) from `low` on, under the note."""
    size = "n" if extent is None else str(extent)
    rows = f"n + {low}" if extent is None else str(extent + low)
    lines = [
        f'def f(A: Buffer(({rows}, 8), "float32"), C: Buffer((8,), "float32"), D: Buffer((8,), "float32"){", n: int32" if extent is None else ""}):'
    ]
    depth = 1
    if threads:
        lines += ['    for bx in thread("blockIdx.x", 1):', '        for t in thread("threadIdx.x", 8):']
        depth = 3
    if note is not None:
        lines.append("    " * depth + f"with {note.word}({note.stage!r}, {note.order!r}):")
        depth += 1
    lines.append("    " * depth + (f"for k in range({low}, extent={size})" if low else f"for k in range({size})") + ":")
    for x in drawn.lines:
        if "alloc" in x or threads:
            lines.append("    " * (depth + 1) + x.format(t="t", u="(t + 1) % 8"))
        else:
            lines.append("    " * (depth + 1) + "for t in range(8):")
            lines.append("    " * (depth + 2) + x.format(t="t", u="t"))
    return "\n".join(lines) + "\n"


def keeps_order(drawn: Drawn, note: SoftwarePipelineOrder, steps: int) -> bool:
    """Whether every two accesses of one place, one of them a write, come in the order of the loop, over so many steps."""
    count = len(drawn.writes)
    when = {(k, i): (k + note.stage[i], note.order[i]) for k in range(steps) for i in range(count)}
    for (k, i), (m, j) in itertools.combinations(sorted(when), 2):
        first, second = {drawn.writes[i]} | drawn.reads[i], {drawn.writes[j]} | drawn.reads[j]
        met = (first & second) & {drawn.writes[i], drawn.writes[j]}
        if (met - drawn.own or (k == m and met)) and when[k, i] > when[m, j]:
            return False
    return True


def note_for(rng: random.Random, count: int) -> SoftwarePipelineOrder:
    """Half of them any stages and places; else stages that do not fall, which are often legal."""
    stage = [rng.randint(0, 3) for _ in range(count)]
    order = list(range(count))
    if rng.random() < 0.7:
        stage.sort()
    rng.shuffle(order)
    return SoftwarePipelineOrder(tuple(stage), tuple(order))


@pytest.mark.parametrize("seed", SEEDS)
def test_an_order_is_taken_where_it_computes_the_same(seed: int) -> None:
    rng = random.Random(f"pipeline orders {seed}")
    threads = rng.random() < 0.5
    drawn = body(rng, threads)
    target, passes = (GPU, TO_BARRIERS) if threads else (CPU, _CPU)
    for _ in range(3):
        note = note_for(rng, len(drawn.writes))
        low = rng.choice((0, 0, 2))
        extent = None if rng.random() < 0.3 else rng.randint(1, 9)
        text = program(drawn, extent, low, threads, note)
        func = parse_func(text)
        legal = keeps_order(drawn, note, 6)
        try:
            out = apply(func, target, *passes)
        except LoweringError as e:
            assert "would change their order" in str(e) and not legal, f"seed {seed}: refused\n{text}\n{e}"
            continue
        assert legal, f"seed {seed}: taken\n{text}\n{out}"
        plain = parse_func(program(drawn, extent, low, threads, None))
        sizes = {} if extent is not None else {"n": rng.choice((0, 1, 2, 3, 7))}
        try:
            check_same(plain, out, split=GPU if threads else None, **sizes)
        except AssertionError as e:
            raise AssertionError(f"seed {seed}: {sizes}\n{text}\n{out}\n{e}") from None


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
@pytest.mark.parametrize("seed", seeds.some(16 if seeds.number() else 8))
def test_a_drawn_schedule_computes_the_same_in_a_drawn_order(seed: int, kind: str) -> None:
    """Schedules of the passes' own test, with an order for one of their loops: splits with rests, vectors, double buffers, threads, sizes that are not known."""
    target, draw = (CPU, schedules.cpu_schedule) if kind == "cpu" else (GPU, schedules.gpu_schedule)

    def lowered(stages: tuple[int, ...], order: tuple[int, ...] | None) -> tuple[Any, ...]:
        """A fresh computation with the seed's schedule, one loop of it in that order."""
        rng = random.Random(seed)
        args, out, sizes = schedules.program(rng, 3 if kind == "cpu" else 16)
        s = draw(rng, out)
        stage = next((x for x in s.stages if x.op.name == f"{out.op.name}_local"), s[out])
        free = [x for x in stage.leaf_iter_vars if stage.attr(x).thread is None]
        stage.software_pipeline(random.Random(f"loop {seed}").choice(free[:2]), stages, order)
        plain = to_loops(tec.create_schedule(out.op), [*args, out], name="plain")
        return plain, run_passes(to_loops(s, [*args, out], name="f"), target), sizes, s.trace, out.op.name

    told = None
    try:
        lowered((0,) * 60, None)
    except LoweringError as e:
        told = re.search(r"the loop's body (\d+) statements", str(e))
    if told is None or int(told[1]) < 2:
        return  # a loop of one step, a vector, a loop shared among threads; nothing to overlap
    for n in range(4):
        note = note_for(random.Random(f"order {seed} {n}"), int(told[1]))
        try:
            plain, func, sizes, trace, name = lowered(note.stage, note.order)
        except LoweringError as refused:
            assert "would change their order" in str(refused)
            continue
        want, got = schedules.arrays(plain, sizes, seed), schedules.arrays(plain, sizes, seed)
        run(plain, want, sizes)
        got[name][...] = -77.0
        flat = {k: v.reshape(-1) for k, v in got.items()}
        if kind == "cpu":
            run(func, flat, sizes, check=True)
        else:
            host, kernels = split_host_device(func, target)
            module = IRModule({f.name: f for f in (host, *kernels)})
            run(host, flat, sizes, check=True, wave=target.wavefront_size, module=module)
        np.testing.assert_allclose(got[name], want[name], rtol=1e-5, err_msg=f"seed {seed}\n{trace}\n{sizes}\n{func}")


def test_orders_are_taken_and_refused() -> None:
    """The draws hold both, so that neither half of the test is empty."""
    found = []
    for seed in range(80):
        rng = random.Random(f"pipeline orders {seed}")
        rng.random()
        drawn = body(rng, False)
        found.append(keeps_order(drawn, note_for(rng, len(drawn.writes)), 6))
    assert 15 < sum(found) < 65
