"""Running sums and the largest of a line by a work-group, on the software GPU with every check, bit for bit NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec
from tec import te
from tec.choices import schedule, spaces
from tec.ir.interp import run as interpret
from tec.ops.registry import TensorType, get_op
from tests.thinned import thinned


def run(
    op: str, attrs: dict[str, Any], a: np.ndarray, chip: str
) -> tuple[dict[str, Any], list[np.ndarray], list[np.ndarray]]:
    """The choice, what came, what was wanted."""
    known, types = get_op(op), [TensorType(str(a.dtype), a.shape)]
    out_types = known.infer(types, attrs)
    x = te.placeholder(a.shape, str(a.dtype), name="x")
    chosen = schedule(known.compute(attrs, [x], out_types), f"rocm -mcpu={chip}")
    f = tec.build(chosen.schedule, [x, *chosen.outputs], f"rocm -mcpu={chip}")
    dev = tec.rocm_emu(chip, check="all")
    outs = [tec.nd.array(np.full([int(d) for d in t.shape], 7, t.dtype), dev) for t in out_types]
    f(tec.nd.array(a, dev), *outs)
    assert known.host is not None
    return chosen.choice, [o.numpy() for o in outs], known.host(attrs, [a], out_types)


@thinned(
    1,
    ("chip", ["gfx942", "gfx1100"]),
    (
        "shape, axis, dtype, exclusive, reverse",
        [
            ((3, 300), 1, "float32", False, False),
            ((2, 5001), 1, "float16", True, False),
            pytest.param((2, 9000), 1, "int32", True, True, marks=pytest.mark.slow),
            ((70, 45), 0, "float32", False, True),
            ((2, 1500, 40), 1, "float32", True, False),
            ((130, 128), 0, "float16", False, False),  # lines of 16 beside each other on MI300X, whose dies share them
            pytest.param((70, 3200), 0, "float32", False, False, marks=pytest.mark.slow),  # of 64, two wavefronts of 32
        ],
    ),
)
def test_running_sums(shape: tuple[int, ...], axis: int, dtype: str, exclusive: bool, reverse: bool, chip: str) -> None:
    a = np.random.default_rng(1).integers(-2, 3, shape).astype(dtype)
    choice, got, want = run("cumsum", {"axis": axis, "exclusive": exclusive, "reverse": reverse}, a, chip)
    assert choice["wave"]
    np.testing.assert_array_equal(got[0], want[0])


@thinned(
    2,
    ("chip", ["gfx942", "gfx1100"]),
    (
        "shape, axis, dtype, reverse, parts",
        [
            ((3, 1031), 1, "float16", True, 4),  # lines that begin between words
            ((2, 1203), 1, "int8", False, 4),
            ((2, 777), 1, "float32", False, 2),
            ((1031, 35), 0, "float16", True, 4),
        ],
    ),
)
def test_work_groups_share_a_line(
    shape: tuple[int, ...], axis: int, dtype: str, reverse: bool, parts: int, chip: str
) -> None:
    a = np.random.default_rng(parts).integers(-2, 3, shape).astype(dtype)
    known, types = get_op("cumsum"), [TensorType(dtype, shape)]
    attrs = {"axis": axis, "exclusive": reverse, "reverse": reverse}
    out_types = known.infer(types, attrs)
    x = te.placeholder(shape, dtype, name="x")
    space = spaces(known.compute(attrs, [x], out_types), f"rocm -mcpu={chip}")[0]
    chosen = space.apply({"chunk": 0, "wave": 64, "parts": parts})  # as records of before say it
    dev = tec.rocm_emu(chip, check="all")
    y = tec.nd.array(np.full(shape, 7, dtype), dev)
    tec.build(chosen.schedule, [x, *chosen.outputs], f"rocm -mcpu={chip}")(tec.nd.array(a, dev), y)
    assert known.host is not None
    np.testing.assert_array_equal(y.numpy(), known.host(attrs, [a], out_types)[0])


def test_running_sums_of_eight_lines_beside_each_other() -> None:
    """MI250X in 4-byte types: one L2 joins the parts of lines."""
    a = np.random.default_rng(1).integers(-2, 3, (65, 3584)).astype("float32")
    _, got, want = run("cumsum", {"axis": 0, "exclusive": False, "reverse": False}, a, "gfx90a")
    np.testing.assert_array_equal(got[0], want[0])


@pytest.mark.parametrize("equal", [60, 100, 200])
def test_equal_elements_of_a_line_that_a_wavefront_has(equal: int) -> None:
    """Of 293 so many are the largest: one a lane, two, and more."""
    a = np.zeros((1, 293), "float16")
    a[0, -equal:] = 1
    choice, got, want = run("topk", {"axis": 1, "k": 5, "largest": True, "sorted": True}, a, "gfx942")
    assert choice["by_wave"]
    for x, y in zip(got, want):
        np.testing.assert_array_equal(x, y)


@thinned(
    1,
    ("chip", ["gfx942", "gfx1100"]),
    (
        "shape, axis, dtype, k, largest, ties",
        [
            ((3, 700), 1, "float32", 5, True, False),
            ((2, 2048), 1, "float16", 64, False, True),
            ((2, 1001), 1, "int32", 100, True, True),
            ((2, 600, 2), 1, "float32", 1, True, False),
            ((1, 600), 1, "float32", 200, False, False),  # of 50 numbers
            pytest.param((1, 9000), 1, "float32", 256, False, True, marks=pytest.mark.slow),
        ],
    ),
)
def test_the_largest_by_selection(
    shape: tuple[int, ...], axis: int, dtype: str, k: int, largest: bool, ties: bool, chip: str
) -> None:
    """NaN is above all numbers, whatever its sign; of equals the first places are taken, in order."""
    rng = np.random.default_rng(2)
    a = (rng.integers(-2, 3, shape) if ties else rng.standard_normal(shape)).astype(dtype)
    if dtype != "int32":
        if k == 200:
            a[:, 50:] = np.nan
        a.reshape(-1)[[5, 8, 9, 60, 61, 100]] = [-np.inf, np.inf, -np.nan, np.nan, 0.0, -0.0]
    choice, got, want = run("topk", {"axis": axis, "k": k, "largest": largest}, a, chip)
    assert choice["algorithm"] == "selection"
    np.testing.assert_array_equal(got[1], want[1])
    np.testing.assert_array_equal(got[0], want[0])


@thinned(
    1,
    ("exclusive, reverse", [(False, False), (True, True), (True, False)]),
    (
        "shape, axis, dtype",
        [
            ((9, 17), 0, "float32"),
            ((3, 5, 2, 40), 1, "float64"),
            ((7, 300), 0, "int32"),
            ((6, 5), 0, "float32"),
            ((5, 33), 0, "float16"),
        ],
    ),
)
def test_lines_side_by_side_go_by_strips_on_a_cpu(
    shape: tuple[int, ...], axis: int, dtype: str, exclusive: bool, reverse: bool
) -> None:
    """Strips that vectors fill or not, of lines behind other axes, of types that are summed in a wider one."""
    a = np.random.default_rng(1).integers(-2, 3, shape).astype(dtype)
    known, types = get_op("cumsum"), [TensorType(dtype, shape)]
    attrs = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
    out_types = known.infer(types, attrs)
    assert known.host is not None
    (want,) = known.host(attrs, [a], out_types)
    for target in ("llvm", "llvm -mcpu=haswell"):
        x = te.placeholder(shape, dtype, name="x")
        chosen = schedule(known.compute(attrs, [x], out_types), target)
        assert chosen.choice["template"] == "running sum"
        y = tec.nd.array(np.full(shape, 7, dtype))
        tec.build(chosen.schedule, [x, *chosen.outputs], target)(tec.nd.array(a), y)
        np.testing.assert_array_equal(y.numpy(), want)


def test_a_line_from_its_end_on_reads_nothing_behind_the_array() -> None:
    """131 of float16: the first piece begins between two words, with the element that would come next in memory."""
    a = np.arange(131, dtype="float16") % 3
    known, kind = get_op("cumsum"), TensorType("float16", a.shape)
    attrs = {"axis": 0, "exclusive": False, "reverse": True}
    x, target = te.placeholder(a.shape, "float16", name="x"), "cuda -arch=sm_80"
    chosen = schedule(known.compute(attrs, [x], known.infer([kind], attrs)), target)
    got = np.zeros_like(a)
    interpret(next(iter(tec.lower(chosen.schedule, [x, *chosen.outputs], target=target))), [a, got], wave=32)
    np.testing.assert_array_equal(got, a[::-1].cumsum()[::-1])


def test_few_short_lines_have_a_wavefront_each() -> None:
    """A thread would wait for each element of its line; of many lines threads hide each other's waiting."""

    def wave(lines: int, n: int) -> int:
        x = te.placeholder((lines, n), "float32", name="x")
        attrs = {"axis": 1, "exclusive": False, "reverse": False}
        op = get_op("cumsum")
        return int(
            schedule(
                op.compute(attrs, [x], op.infer([TensorType("float32", (lines, n))], attrs)), "cuda -arch=sm_90a"
            ).choice["wave"]
        )

    assert wave(528, 56) == 64
    assert wave(100_000, 16) == 0
