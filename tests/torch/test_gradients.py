"""The gradient of every operator against torch's autograd, on compiled code."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tests.unit.graph.operator_gradients import ROWS, numbers
from tests.unit.graph.test_gradient import network

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("name", [n for n, (_, _, f) in ROWS.items() if f is not None])
def test_against_torch(name: str) -> None:
    build, feeds, f = ROWS[name]
    g = network(build, feeds)
    wrt = [k for k, v in feeds.items() if v.dtype == np.float64]
    out = g.outputs[0]
    weights = numbers(*out.shape, seed=9).astype(out.dtype)
    got = tec.compile(tec.grad(g, wrt, head="weights"), cache=False).run({**feeds, "weights": weights})
    leaves = {k: torch.tensor(v, requires_grad=v.dtype == np.float64) for k, v in feeds.items()}
    value = f(torch, *leaves.values())
    want = torch.autograd.grad(
        value, [leaves[k] for k in wrt], torch.tensor(weights).to(value.dtype), allow_unused=True
    )
    tolerance = 1e-6 if out.dtype == "float32" else 1e-10
    np.testing.assert_allclose(got[0], value.detach().numpy(), rtol=tolerance, atol=tolerance)
    for found, w, k in zip(got[1:], want, wrt):
        expected = np.zeros(feeds[k].shape) if w is None else w.numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7 * max(1.0, np.abs(expected).max()))
