"""Sums under the pragma "in_runs": by runs where they are longer, with every bit as it was where they are not."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec import te
from tec.ir import expr as E
from tec.ir import stmt as S
from tec.ir.buffer import Buffer
from tec.ir.passes.lane_forms import neighbours

rng = np.random.default_rng(8)


def built(steps: int | None):
    """The sum of each row of a matrix of any size, one element after another."""
    n, m = te.var("n"), te.var("m")
    x, k = te.placeholder((n, m), name="x"), te.reduce_axis((0, m), name="k")
    y = te.compute((n,), lambda i: te.sum(x[i, k], axis=k), name="y")
    s = te.create_schedule(y.op)
    if steps is not None:
        s[y].pragma(y.op.reduce_axis[0], "in_runs", steps)
    return tec.build(s, [x, y], "llvm", name="rows"), tec.lower(s, [x, y], "llvm")


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 64, 1003])
def test_a_long_sum_is_made_by_runs(length: int) -> None:
    f, loops = built(8)
    assert "k_run in range((m + 7) // 8" in str(loops)
    value = rng.standard_normal((3, length)).astype("float32")
    got = tec.nd.empty((3,), "float32")
    f(tec.nd.array(value), got)
    np.testing.assert_allclose(got.numpy(), value.sum(1), rtol=1e-5, atol=1e-5)
    if 0 < length <= 8:  # one run: the bits of one chain
        alone = tec.nd.empty((3,), "float32")
        built(None)[0](tec.nd.array(value), alone)
        assert (got.numpy() == alone.numpy()).all()


@pytest.mark.parametrize("shape", [(3, 5), (40, 1), (1, 40), (23, 3), (3, 23), (23, 29), (0, 4), (4, 0)], ids=str)
@pytest.mark.parametrize("known", [(), (0,), (1,), (0, 1)], ids=str)
def test_loops_within_each_other_are_one_sum(shape: tuple[int, int], known: tuple[int, ...]) -> None:
    is_known = [d in known and shape[d] > 0 for d in range(2)]
    n, m = (shape[d] if is_known[d] else te.var("nm"[d]) for d in range(2))
    x = te.placeholder((n, m, 4), name="x")
    axes = te.reduce_axis((0, n), name="i"), te.reduce_axis((0, m), name="j")
    y = te.compute((4,), lambda c: te.sum(x[axes[0], axes[1], c], axis=axes), name="y")
    s = te.create_schedule(y.op)
    s[y].reorder(*y.op.reduce_axis, y.op.axis[0])
    s[y].vectorize(y.op.axis[0])
    s[y].pragma(y.op.reduce_axis[0], "in_runs", 8)
    assert ("_run in range" in str(tec.lower(s, [x, y], "llvm"))) == (not all(is_known) or shape[0] * shape[1] > 8)
    value = rng.integers(-99, 99, (*shape, 4)).astype("float32")
    got = tec.nd.empty((4,), "float32")
    tec.build(s, [x, y], "llvm", name="nested")(tec.nd.array(value), got)
    assert (got.numpy() == value.sum((0, 1))).all()


def test_steps_are_a_count() -> None:
    x, k = te.placeholder((8,), name="x"), te.reduce_axis((0, 8), name="k")
    y = te.compute((1,), lambda i: te.sum(x[k], axis=k), name="y")
    s = te.create_schedule(y.op)
    with pytest.raises(tec.TecError, match="in_runs: steps is an integer of at least 1, not 0"):
        s[y].pragma(y.op.reduce_axis[0], "in_runs", 0)


@pytest.mark.parametrize("base, found", [(0, (0, 8)), (4, (4, 12)), (5, None), (-1, None)])
def test_lanes_that_a_mask_leaves_out_lie_within_the_buffer_too(base: int, found: tuple[int, int] | None) -> None:
    """Parts of sums begin and end without masks."""
    index = E.Ramp(E.IntImm(base), E.IntImm(1), 8)
    buffer = Buffer("sums", "float32", (E.IntImm(12),), scope="local")
    assert neighbours(S.BufferStore(buffer, E.Broadcast(E.FloatImm(0.0, "float32"), 8), (index,), None)) == found
