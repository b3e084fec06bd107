"""`Stage.software_pipeline`: loops in an order of one's own, built and run, and what is refused. tests/fuzz/test_pipeline_orders.py draws loops and orders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pass_util import ALL, GPU, apply, check_same, parse_func

import tec
from tec import te
from tec.errors import LoweringError, ScheduleError
from tec.ir.notes import MOST_STAGES

SHAPE = (16, 8)


def program() -> tuple[list[Any], Any, Any]:
    """C = (2 A) (2 A + B), the factors made in the loop over C's rows."""
    x, y = te.placeholder(SHAPE, name="A"), te.placeholder(SHAPE, name="B")
    a = te.compute(SHAPE, lambda i, j: x[i, j] * 2.0, name="a")
    b = te.compute(SHAPE, lambda i, j: a[i, j] + y[i, j], name="b")
    c = te.compute(SHAPE, lambda i, j: a[i, j] * b[i, j], name="C")
    s = tec.create_schedule(c.op)
    for stage in (a, b):
        s[stage].compute_at(s[c], c.op.axis[0])
    return [x, y, c], s, s[c]


@pytest.mark.parametrize(("stages", "order"), [((0, 0, 1), None), ((0, 1, 2), (2, 1, 0)), ((0, 2, 5), (1, 2, 0)), ((3, 3, 3), None)])  # fmt: skip
def test_an_order_computes_the_same(stages: tuple[int, ...], order: tuple[int, ...] | None) -> None:
    args, s, stage = program()
    stage.software_pipeline(stage.op.axis[0], stages, order)
    f = tec.build(s, args, "llvm")
    rng = np.random.default_rng(1)
    x, y = (rng.random(SHAPE, dtype="f4") for _ in range(2))
    out = np.zeros(SHAPE, "f4")
    arrays = [tec.nd.array(v) for v in (x, y, out)]
    f(*arrays)
    np.testing.assert_allclose(arrays[2].numpy(), 2 * x * (2 * x + y), rtol=1e-6)


def test_slots_are_as_many_as_steps_are_alive() -> None:
    """What is read before the next step's comes needs no second slot; what is read two turns later needs three, or two where it is read first."""
    text = {}
    for order in ((0, 1, 2), (2, 1, 0)):
        args, s, stage = program()
        stage.software_pipeline(stage.op.axis[0], (0, 1, 2), order)
        text[order] = str(tec.lower(s, args, target="llvm"))
    assert "a = alloc((24,)" in text[0, 1, 2] and "b = alloc((16,)" in text[0, 1, 2]
    assert "a = alloc((16,)" in text[2, 1, 0] and "b = alloc((8,)" in text[2, 1, 0]


def test_registers_of_a_thread_keep_constant_places() -> None:
    """The slots of local storage are written out, so that each is a register."""
    args, s, stage = program()
    i, j = stage.op.axis
    stage.bind(j, te.thread_axis("threadIdx.x"))
    stage.reorder(j, i)
    for name in ("a", "b"):
        inner = next(x for x in s.stages if x.name == name)
        inner.compute_at(stage, i)
        inner.set_scope("local")
    stage.software_pipeline(i, (0, 0, 1))
    text = str(tec.lower(s, args, target="cuda -arch=sm_90"))
    assert "for i in range(7" in text  # 15 turns, two a trip
    assert all("i" not in line.split("[")[1].split("]")[0] for line in text.splitlines() if line.strip().startswith(("a[", "b[")))  # fmt: skip


@pytest.mark.parametrize(
    ("stages", "order", "error", "says"),
    [
        (3, None, ScheduleError, "stage is a tuple of integers"),
        ((), None, ScheduleError, "stage is empty"),
        ((0, 0, -1), None, ScheduleError, r"stage\[2\] is an integer of at least 0, not -1"),
        ((0, 0, MOST_STAGES), None, ScheduleError, f"{MOST_STAGES} are the most"),
        ((0, 0, 1), (0, 1, 1), ScheduleError, "each place from 0 to 2 once"),
        ((0, 0, 1), (0, 1), ScheduleError, "each place from 0 to 2 once"),
        ((0, 1), None, LoweringError, "2 stages, and the loop's body 3 statements:\n    0: writes a from A"),
        ((1, 0, 1), None, LoweringError, "statements 0 and 1 both touch a, "),
        ((0, 0, 0), (0, 2, 1), LoweringError, "statements 1 and 2 both touch b, "),
    ],
)
def test_what_is_no_order_is_refused(stages: Any, order: Any, error: type[Exception], says: str) -> None:
    args, s, stage = program()
    with pytest.raises(error, match=says) as e:
        stage.software_pipeline(stage.op.axis[0], stages, order)
        tec.lower(s, args, target="llvm")
    assert e.value.where is not None and e.value.where.file == __file__


def _bound(stage: Any, axis: Any) -> None:
    stage.bind(axis, te.thread_axis("blockIdx.x"))


def _parallel(stage: Any, axis: Any) -> None:
    stage.parallel(axis)


@pytest.mark.parametrize(("change", "kind", "target"), [(_bound, "thread", "cuda -arch=sm_90"), (_parallel, "parallel", "llvm")])  # fmt: skip
def test_steps_that_do_not_follow_each_other(change: Callable[[Any, Any], None], kind: str, target: str) -> None:
    args, s, stage = program()
    stage.software_pipeline(stage.op.axis[0], (0, 0, 1))
    change(stage, stage.op.axis[0])
    with pytest.raises(LoweringError, match=f"its loop is {kind}"):
        tec.lower(s, args, target=target)


_OVER_THREADS = """
def f(A: Buffer((4, 64), "float32"), C: Buffer((4,), "float32")):
    for bx in thread("blockIdx.x", 1):
        for t in thread("threadIdx.x", 64):
            with software_pipeline_order((0, {stage})):
                for i in range(4):
                    total = alloc((1,), "float32", scope="local")
                    allreduce(combiner(lambda x, y: (x + y,), (0.0,), 'sum'), (A[i, t],), True, dests=[total], threads=[t])
                    C[i] = total[0] * 2.0
"""


def test_a_sum_over_threads_has_no_slots() -> None:
    with pytest.raises(LoweringError, match="statement 0 reduces over threads into total, which would need slots"):
        apply(parse_func(_OVER_THREADS.format(stage=1)), GPU, "pipeline")
    func = parse_func(_OVER_THREADS.format(stage=0))
    check_same(func, apply(func, GPU, *ALL), split=GPU)


def test_an_output_that_a_later_step_reads_keeps_its_order() -> None:
    """Two statements on one output: what the second does for a step comes before what the first does for the next."""
    x = te.placeholder(SHAPE, name="A")
    k = te.reduce_axis(SHAPE[0], "k")
    c = te.compute((8,), lambda j: te.sum(x[k, j], axis=k), name="C")
    s = tec.create_schedule(c.op)
    s[c].reorder(k, c.op.axis[0])
    s[c].software_pipeline(k, (5,))  # one statement alone has nothing to overlap with
    f = tec.build(s, [x, c], "llvm")
    v = np.random.default_rng(2).random(SHAPE, dtype="f4")
    arrays = [tec.nd.array(v), tec.nd.array(np.zeros(8, "f4"))]
    f(*arrays)
    np.testing.assert_allclose(arrays[1].numpy(), v.sum(0), rtol=1e-5)


def test_a_kernel_of_one_thread_with_shared_memory() -> None:
    """blockIdx alone and a sum in shared memory: no thread to wait for, and no barrier."""
    x = te.placeholder(SHAPE, name="A")
    k = te.reduce_axis(SHAPE[1], "k")
    c = te.compute((SHAPE[0],), lambda i: te.sum(x[i, k], axis=k), name="C")
    s = tec.create_schedule(c.op)
    tile = s.cache_read(x, "shared", c)
    s[c].bind(c.op.axis[0], te.thread_axis("blockIdx.x"))
    s[tile].compute_at(s[c], c.op.axis[0])
    for target in ("cuda -arch=sm_90", "rocm -mcpu=gfx942"):
        assert "barrier" not in str(tec.lower(s, [x, c], target=target))
