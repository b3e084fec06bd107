"""Sums under the pragma "in_runs": by runs where they are longer, with every bit as it was where they are not."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec import te

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


def test_steps_are_a_count() -> None:
    x, k = te.placeholder((8,), name="x"), te.reduce_axis((0, 8), name="k")
    y = te.compute((1,), lambda i: te.sum(x[k], axis=k), name="y")
    s = te.create_schedule(y.op)
    with pytest.raises(tec.TecError, match="in_runs: steps is an integer of at least 1, not 0"):
        s[y].pragma(y.op.reduce_axis[0], "in_runs", 0)
