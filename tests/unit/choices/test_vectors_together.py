"""Vectors of an elementwise stage on a CPU: several at a time where it computes, as far as rows are filled by them."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec import choices, te
from tec.choices.parts.pointwise import _together
from tests import seeds


def test_stages_that_compute_take_four_and_copies_one() -> None:
    x = te.placeholder((64, 64), name="x")
    k = te.reduce_axis((0, 64), "k")
    tanh = te.compute(x.shape, lambda i, j: te.tanh(x(i, j)), name="tanh")
    moved = te.compute(x.shape, lambda i, j: x(63 - i, j), name="moved")
    total = te.compute((64,), lambda i: te.sum(te.exp(x(i, k)), axis=k), name="total")
    found = [choices.spaces([y], "llvm")[0].default["vectors"] for y in (tanh, moved, total)]
    assert found == [4, 1, 1]


def test_rows_that_several_vectors_would_not_fill_take_fewer() -> None:
    """Else a third of the row of 78 or a half of that of 20 would be computed twice."""
    assert [_together(4, n, 8) for n in (1024, 78, 20, 32, 41, 8)] == [4, 2, 1, 4, 2, 1]
    assert _together(4, None, 8) == 4


@pytest.mark.parametrize("seed", seeds.some(6))
def test_values(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 70, 2))
    x, w = te.placeholder(shape, name="x"), te.placeholder((shape[0], 1), name="w")
    y = te.compute(shape, lambda i, j: te.exp(x(i, j) * w(i, 0)) - x(i, j), name="y")
    values = [rng.standard_normal(s).astype("float32") for s in (shape, (shape[0], 1))]
    space = choices.spaces([y], "llvm")[0]
    for vectors in (1, 2, 4):
        made = space.apply({**space.default, "vectors": vectors})
        out = tec.nd.empty(shape, "float32")
        tec.build(made.schedule, [x, w, *made.outputs], "llvm")(*map(tec.nd.array, values), out)
        np.testing.assert_allclose(out.numpy(), np.exp(values[0] * values[1]) - values[0], rtol=2e-6, atol=1e-6)
