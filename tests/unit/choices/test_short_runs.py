"""Sums whose elements lie in short runs between others', [n, m, 3] -> [m], on the software GPU: right, and no line is read for each element of a run by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec
from tec import te
from tec.choices import Scheduled, spaces
from tec.emulator.profile import emulator_profile
from tec.ops.registry import TensorType, get_op


def scheduled(
    op: str, shape: tuple[int, ...], dtype: str, target: str, **choice: object
) -> tuple[te.Tensor, Scheduled]:
    known, attrs = get_op(op), {"axes": (0, len(shape) - 1), "keepdims": False}
    x = te.placeholder(shape, dtype, name="x")
    outs = known.compute(attrs, [x], known.infer([TensorType(dtype, shape)], attrs))
    space = next(s for s in spaces(outs, tec.Target(target)) if s.template == "gpu reduction")
    return x, space.build({**space.default, **choice})


# On dies that get as many work-groups each, and on others; sums in one piece, in parts, and a wavefront each.
@pytest.mark.parametrize("columns", [16, 21])
@pytest.mark.parametrize("choice", [{"threads": 64}, {"threads": 64, "parts": 8}, {"threads": 64, "rows": 4}])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_values(columns: int, choice: dict[str, int], dtype: str) -> None:
    x, made = scheduled("reduce_sum", (112, columns, 3), dtype, "rocm -mcpu=gfx942", shared=True, **{"parts": 1, "rows": 1, **choice})  # fmt: skip
    f = tec.build(made.schedule, [x, *made.outputs], "rocm -mcpu=gfx942", name="f")
    dev, value = tec.rocm_emu("gfx942", check="all"), np.random.default_rng(5).standard_normal((112, columns, 3))
    got = tec.nd.empty((columns,), dtype, dev)
    f(tec.nd.array(value.astype(dtype), dev), got)
    np.testing.assert_allclose(got.numpy().astype("f8"), value.sum((0, 2)), rtol=1e-2, atol=5e-2)


@pytest.mark.parametrize(("chip", "shape", "dtype"), [("gfx1030", (27, 301, 5), "float32"), ("gfx1201", (46, 301, 3), "float16")])  # fmt: skip
def test_pieces_of_a_thread_do_not_cross_runs(chip: str, shape: tuple[int, ...], dtype: str) -> None:
    """Four neighbours of a thread were asked for one after another, lines apart. 27 x 6,547 x 5 took 18.5 us by the time model of an RX 6800 XT, and takes 9.3."""
    runs = shape[0] * shape[1]
    touched = sum(r.counts.global_line_bytes for r in launches(chip, shape, dtype))
    assert touched <= 1.7 * 128 * runs  # some runs lie in two lines, and some wavefronts end within one


def test_neighbours_read_their_lines_on_one_die() -> None:
    """A line is eight work-groups'. Each of eight dies brought all of them: 763 x 5,456 x 4 took 93 us by the time model of an MI355X, and takes 33."""
    shape = (64, 2048, 4)
    moved = sum(r.estimate.traffic.get("MALL", 0.0) for r in launches("gfx950", shape, "float32"))
    assert moved <= 1.5 * 4 * np.prod(shape)


def launches(chip: str, shape: tuple[int, ...], dtype: str) -> list[Any]:
    x, made = scheduled("reduce_sum", shape, dtype, f"rocm -mcpu={chip}")
    f, dev = tec.build(made.schedule, [x, *made.outputs], f"rocm -mcpu={chip}", name="f"), tec.rocm_emu(chip)
    on = [tec.nd.array(np.ones(shape, dtype), dev), tec.nd.empty(shape[1:-1], dtype, dev)]
    with emulator_profile(dev.driver) as p:
        f(*on)
    return p.launches
