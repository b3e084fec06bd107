"""Gradients through scans, against finite differences: one state and two, products and functions of the row before, what is computed around the scan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tec
from tec import te

T, N = 5, 3
F64 = "float64"


def inputs() -> tuple[Any, Any, Any]:
    return (
        te.placeholder((T, N), F64, name="X"),
        te.placeholder((N, N), F64, name="W"),
        te.placeholder((T, N), F64, name="H"),
    )


def elementwise(X: Any, W: Any, H: Any) -> Any:
    S = te.placeholder((T, N), F64, name="S")
    first = te.compute((1, N), lambda _, i: X[0, i] * 2.0, name="first")
    step = te.compute((T, N), lambda t, i: te.tanh(S[t - 1, i] * W[i, i] + X[t, i]), name="step")
    return te.scan(first, step, S, inputs=[X, W], name="R")


def product(X: Any, W: Any, H: Any) -> Any:
    S = te.placeholder((T, N), F64, name="S")
    k = te.reduce_axis((0, N), "k")
    first = te.compute((1, N), lambda _, i: X[0, i], name="first")
    Z = te.compute((T, N), lambda t, i: te.sum(S[t - 1, k] * W[k, i], axis=k), name="Z")
    step = te.compute((T, N), lambda t, i: te.tanh(Z[t, i] + X[t, i]), name="step")
    return te.scan(first, step, S, inputs=[X, W], name="R")


def two_states(X: Any, W: Any, H: Any) -> Any:
    """A cell with a memory; what comes out is a function of both."""
    S, C = te.placeholder((T, N), F64, name="S"), te.placeholder((T, N), F64, name="C")
    firsts = [te.compute((1, N), lambda _, i: X[0, i], name="s0"), te.compute((1, N), lambda _, i: W[0, i], name="c0")]
    gate = te.compute((T, N), lambda t, i: te.sigmoid(S[t - 1, i] + W[i, 0] * X[t, i]), name="gate")
    memory = te.compute((T, N), lambda t, i: gate[t, i] * C[t - 1, i] + X[t, i], name="memory")
    out = te.compute((T, N), lambda t, i: te.sin(memory[t, i]) * gate[t, i], name="out")
    R, M = te.scan(firsts, [out, memory], [S, C], inputs=[X, W], name="R")
    return te.compute((T, N), lambda t, i: R[t, i] * M[t, i] + R[t, 0], name="both")


def around(X: Any, W: Any, H: Any) -> Any:
    """The scan's input is computed, and of its output the last row alone is taken."""
    Y = te.compute((T, N), lambda t, i: X[t, i] * X[t, i], name="Y")
    R = elementwise(Y, W, H)
    return te.compute((T, N), lambda t, i: R[T - 1, i] * X[t, i], name="last")


def slopes(f: Callable[[Any], float], x: Any) -> Any:
    out = np.zeros_like(x)
    for at in np.ndindex(*x.shape):
        for sign in (1, -1):
            moved = x.copy()
            moved[at] += sign * 1e-6
            out[at] += sign * f(moved) / 2e-6
    return out


@pytest.mark.parametrize("network", [elementwise, product, two_states, around])
def test_against_finite_differences(network: Callable[..., Any]) -> None:
    X, W, H = inputs()
    out = network(X, W, H)
    forward = tec.build(te.create_schedule(out.op), [X, W, out], "llvm")
    gradients = te.gradient(out, [X, W], H)
    backward = tec.build(te.create_schedule([g.op for g in gradients]), [X, W, H, *gradients], "llvm")
    rng = np.random.default_rng(0)
    x, w, h = rng.standard_normal((T, N)), rng.standard_normal((N, N)), rng.standard_normal((T, N))

    def value(x: Any, w: Any) -> float:
        made = np.zeros((T, N))
        forward(x, w, made)
        return float((made * h).sum())

    found = np.zeros((T, N)), np.zeros((N, N))
    backward(x, w, h, *found)
    for got, want in zip(found, (slopes(lambda v: value(v, w), x), slopes(lambda v: value(x, v), w))):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-8)


def test_mistakes() -> None:
    X, W, H = inputs()
    S = te.placeholder((T, N), F64, name="S")
    two = te.compute((2, N), lambda t, i: X[t, i], name="two")
    far = te.compute((T, N), lambda t, i: S[t - 2, i] + X[t, i], name="far")
    with pytest.raises(tec.ExprError, match="begins with 2 rows"):
        te.gradient(te.scan(two, far, S, inputs=[X], name="R"), [X], H)
    one = te.compute((1, N), lambda _, i: X[0, i], name="one")
    late = te.compute((T, N), lambda t, i: te.if_then_else(t > 1, S[t - 2, i], 0.0) + X[t, i], name="late")
    with pytest.raises(tec.ExprError, match="late reads S"):
        te.gradient(te.scan(one, late, S, inputs=[X], name="R"), [X], H)
    with pytest.raises(tec.ExprError, match="no gradient through R without a head"):
        te.gradient(elementwise(X, W, H), [X])
