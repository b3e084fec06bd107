"""The gradient of every operator, of its te definition or a rule, against finite differences of the reference."""

from __future__ import annotations

import numpy as np

import tec
import tec.graph.regions  # two operators stand there
from tec.graph import run_graph
from tec.ops import OPS
from tests.thinned import thinned_rows

from .operator_gradients import NONE, ROWS, numbers
from .test_gradient import differences, network


def test_every_operator_has_a_row() -> None:
    known = set(ROWS) | set(NONE)
    ours = {name for name, op in OPS.items() if op.compute.__module__.startswith("tec.")}
    assert not ours - known, "a new operator has a row, or a reason why it has none"
    assert not {name for name in ROWS if name not in OPS}
    assert not set(ROWS) & set(NONE)


@thinned_rows(38, "name", ROWS)
def test_against_finite_differences(name: str) -> None:
    build, feeds, _ = ROWS[name]
    g = network(build, feeds)
    wrt = [k for k, v in feeds.items() if v.dtype == np.float64]
    out = g.outputs[0]
    weights = numbers(*out.shape, seed=9).astype(out.dtype)
    got = run_graph(tec.grad(g, wrt, head="weights"), {**feeds, "weights": weights})
    # float32 in between: steps that it tells apart, and differences as exact as that allows
    step, tolerance = (1e-3, 1e-3) if out.dtype == "float32" else (1e-6, 1e-5)
    for k, found in zip(wrt, got[1:]):
        want = differences(g, feeds, k, weights, step)
        np.testing.assert_allclose(found, want, rtol=tolerance, atol=tolerance * max(1.0, np.abs(want).max()))
