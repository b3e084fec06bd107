"""Gathers through shared memory, on the software GPU with every check: whole lines read, indices that count from the end or lie outside, sizes that divide nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec
from tec import te
from tec.choices import schedule, spaces
from tec.emulator.profile import emulator_profile
from tec.ops.registry import TensorType, get_op
from tests.thinned import thinned

GATHER = {"template": "gpu gather"}
# operator, axis, shape of the table, shape of the index
CASES = {
    "columns by an index": ("gather", 1, (6, 500), (333,)),
    "columns by an index of two dimensions": ("gather", 2, (2, 3, 128), (4, 32)),
    "pairs by an index": ("gather", 1, (3, 100, 2), (70,)),
    "along rows": ("gather_elements", 1, (5, 300), (5, 300)),
    "along the rows of some": ("gather_elements", 2, (2, 3, 64), (2, 3, 20)),
    "along columns": ("gather_elements", 0, (150, 64), (150, 64)),
    "along columns of odd length": ("gather_elements", 1, (2, 77, 21), (2, 50, 21)),
    "along columns, the last strip of which begins earlier": ("gather_elements", 1, (2, 40, 77), (2, 150, 77)),
}


def computed(
    op: str, axis: int, shapes: list[tuple[int, ...]], types: list[str]
) -> tuple[list[te.Tensor], list[te.Tensor]]:
    xs = [te.placeholder(s, t, name=f"x{k}") for k, (s, t) in enumerate(zip(shapes, types))]
    known = get_op(op)
    return xs, known.compute(
        {"axis": axis}, list(xs), known.infer([TensorType(t, s) for s, t in zip(shapes, types)], {"axis": axis})
    )


@thinned(
    1, ("chip", ["gfx942", "gfx1100"]), ("dtype, index", [("float32", "int64"), ("float16", "int32")]), ("name", CASES)
)
def test_elements_are_right(name: str, dtype: str, index: str, chip: str) -> None:
    op, axis, *shapes = CASES[name]
    target = f"rocm -mcpu={chip}"
    xs, outs = computed(op, axis, shapes, [dtype, index])
    chosen = schedule(outs, target, GATHER)
    rng = np.random.default_rng(5)
    n = shapes[0][axis]
    values: list[Any] = [rng.standard_normal(shapes[0]).astype(dtype), rng.integers(-n, n, shapes[1]).astype(index)]
    want = np.take(values[0], values[1], axis) if op == "gather" else _along(values[0], values[1], axis)
    values[1].reshape(-1)[:4] = [n, -n - 1, 2**31 - 1, -(2**31)]  # the nearest end
    inside = np.clip(values[1], -n, n - 1)
    want = np.take(values[0], inside, axis) if op == "gather" else _along(values[0], inside, axis)
    np.testing.assert_array_equal(te.evaluate(outs, dict(zip(xs, values)))[0], want)
    f = tec.build(chosen.schedule, [*xs, *chosen.outputs], target, name="kernel")
    checked = tec.rocm_emu(chip, check={"bounds", "race", "init", "wait"})
    got = tec.nd.array(np.zeros(want.shape, want.dtype), checked)
    f(*[tec.nd.array(v, checked) for v in values], got)
    np.testing.assert_array_equal(got.numpy(), want)


def _along(x: Any, index: Any, axis: int) -> Any:
    cut = tuple(slice(0, n) if k != axis else slice(None) for k, n in enumerate(index.shape))
    return np.take_along_axis(x[cut], index, axis)


@pytest.mark.parametrize("axis", [0, 1])
def test_lines_are_read_whole_once(axis: int) -> None:
    """512 x 512 elements by indices all over: an element of its own line each is 32 times the bytes."""
    shapes, target = [(512, 512), (512, 512)], "rocm -mcpu=gfx942"
    xs, outs = computed("gather_elements", axis, shapes, ["float32", "int64"])
    chosen = schedule(outs, target, GATHER)
    f = tec.build(chosen.schedule, [*xs, *chosen.outputs], target, name="kernel")
    dev = tec.rocm_emu("gfx942")
    rng = np.random.default_rng(6)
    values = [np.zeros(shapes[0], np.float32), rng.integers(0, 512, shapes[1]), np.zeros(shapes[1], np.float32)]
    with emulator_profile(dev.driver, run=False) as p:
        f(*[tec.nd.array(v, dev) for v in values])
    assert p.launches[0].counts.global_line_bytes <= (1.05 if axis else 4.05) * sum(v.nbytes for v in values)


@pytest.mark.parametrize(
    ("op", "axis", "shapes", "why"),
    [
        ("gather", 0, [(512, 256), (512,)], "rows of a table are whole pieces"),
        ("gather", 1, [(64, 4096), (8,)], "a table far greater than what is picked"),
        ("gather_elements", 1, [(2, 80000), (2, 80000)], "longer than shared memory"),
        ("gather", 0, [(300,), (200,)], "one line, which no work-groups have parts of"),
        ("gather", 0, [(300,), (20, 10)], "one line, which no work-groups have parts of"),
    ],
)
def test_others_stay_elementwise(op: str, axis: int, shapes: list[tuple[int, ...]], why: str) -> None:
    for target in ("rocm -mcpu=gfx942", "cuda -arch=sm_90", "llvm"):
        outs = computed(op, axis, shapes, ["float32", "int64"])[1]
        assert all(s.template != "gpu gather" for s in spaces(outs, target)), why


def test_small_tables_are_read_where_they_lie() -> None:
    for n, template in ((1024, "gpu gather"), (256, "gpu stages")):
        outs = computed("gather_elements", 0, [(n, 1024), (n, 1024)], ["float32", "int64"])[1]
        assert schedule(outs, "rocm -mcpu=gfx942").choice["template"] == template


def test_choices_that_are_not_legal() -> None:
    outs = computed("gather_elements", 0, [(1024, 64), (1024, 64)], ["float32", "int64"])[1]
    space = next(s for s in spaces(outs, "rocm -mcpu=gfx942") if s.template == "gpu gather")
    for wrong in ({"across": 64}, {"rows": 2}, {"across": 2, "piece": 4}):
        with pytest.raises(tec.TecError):
            space.check({**space.default, **wrong})


@pytest.mark.parametrize(
    "shape, axis, picked", [((8, 727, 1200), 0, 3), ((2256, 1, 512), 1, 1), ((200_000, 40), 1, 12)]
)
def test_threads_have_something_to_pick(shape: tuple[int, ...], axis: int, picked: int) -> None:
    """Short lines: a work-group of one of them, or of a strip, had 512 threads for 48 picks, and an MI355X took 131 us for what takes 20 by the time model."""
    index = tuple(picked if k == axis else n for k, n in enumerate(shape))
    xs, outs = computed("gather_elements", axis, [shape, index], ["float16", "int64"])
    space = next(s for s in spaces(outs, "rocm -mcpu=gfx950") if s.template == "gpu gather")
    choice = space.default
    a_group = choice["rows"] * choice["across"] * picked
    assert 2 * a_group >= choice["threads"]


def test_strips_need_not_divide_the_columns() -> None:
    """Of 3,851 columns a work-group had one, whose elements are a line each: 566 us by the time model of an MI355X for 272 of 72 places each, 72 by strips."""
    _, outs = computed("gather_elements", 1, [(32, 72, 3851), (32, 272, 3851)], ["float16", "int64"])
    space = next(s for s in spaces(outs, "rocm -mcpu=gfx950") if s.template == "gpu gather")
    assert space.default["across"] == 16
