"""A pass that the driver leaves out would have changed nothing (`driver.ACTS`)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import tec
import tec.tile as tl
from tec import choices, driver, te
from tec.choices.proof import alone
from tec.ir import Func
from tec.ir.features import features
from tec.ops.registry import TensorType, get_op
from tec.schedule import to_loops
from tec.target import Target
from tec.tile.lowering import lower
from tests.conformance.programs import PROGRAMS
from tests.thinned import thinned_rows

TARGETS = {"llvm -mcpu=x86-64-v3": "cpu", "rocm -mcpu=gfx942": "gpu", "cuda -arch=sm_90a": "gpu"}
EVERY = 5  # of the table's programs one in so many
OPERATORS: list[tuple[Any, ...]] = [
    ("matmul", {}, (256, 512), (512, 384)), ("matmul", {}, (1, 512), (512, 384)), ("softmax", {"axes": (1,)}, (64, 1000)),
    ("reduce_mean", {"axes": (1,), "keepdims": False}, (6, 3000)), ("add", {}, (5, 64), (64,)), ("cumsum", {"axis": 1}, (3, 300)),
    ("attention", {"scale": 0.125}, (1, 8, 256, 64), (1, 8, 256, 64), (1, 8, 256, 64)),
]  # fmt: skip


def _of_te(target: Target, kind: str) -> Iterator[Func]:
    """Programs of the table, with their schedules."""
    fitting = [c for c in PROGRAMS.values() if kind in c.kinds and c.needs(target)]
    for case in fitting[::EVERY]:
        with target:
            program = case.make()
            s = program.schedule or tec.create_schedule([t.op for t in program.outputs])
            apply = program.cpu if kind == "cpu" else program.gpu
            if apply is not None:
                apply(s, target)
            yield to_loops(s, program.args, on_cpu=not target.is_gpu)


def _of_choices(target: Target) -> Iterator[Func]:
    """Defaults of operators, whose loops have what templates alone write."""
    for name, attrs, *shapes in OPERATORS:
        xs = [te.placeholder(s, "float16", name=f"x{k}") for k, s in enumerate(shapes)]
        op = get_op(name)
        with target:
            outs = op.compute(attrs, list(xs), op.infer([TensorType("float16", s) for s in shapes], attrs))
            yield alone(choices.schedule(outs, target))


def _of_tiles(target: Target) -> Iterator[Func]:
    types, options, aligned = product._types_of(("*fp16:16",) * 3 + ("i32:16",) * 3, {"BM": 64, "BN": 64, "BK": 32})
    yield lower(product.program(types, options), target, options["num_warps"], 1, False, aligned).func


@tl.jit
def product(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # type: ignore[no-untyped-def]
    i, j = tl.program_id(0) // (N // BN), tl.program_id(0) % (N // BN)
    rows, columns, steps = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a + rows[:, None] * K + (k + steps)[None, :])
        total = tl.dot(x, tl.load(b + (k + steps)[:, None] * N + columns[None, :]), total)
    tl.store(c + rows[:, None] * N + columns[None, :], total.to(tl.float16))


@thinned_rows(1, "name", TARGETS)
def test_passes_that_are_left_out_change_nothing(name: str) -> None:
    target, left = Target(name), set[str]()
    for func in (*_of_te(target, TARGETS[name]), *_of_choices(target), *_of_tiles(target)):
        for step, _ in driver.PIPELINE:
            made = driver._find_pass(step)(func, target)
            acts = driver.ACTS.get(step)
            if acts is not None and not acts(func, target, partial(features, func.body)):
                left.add(step)
                assert made.body is func.body or str(made) == str(func), (step, func.name)
            func = made
    assert len(left) > len(driver.ACTS) // 2
