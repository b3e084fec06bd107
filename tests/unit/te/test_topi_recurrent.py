"""`topi.nn.lstm` against the recurrence written in NumPy: orders of gates, both directions, biases, peepholes, projections, first states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec
from tec import te, topi

STEPS, BATCH, INPUTS, HIDDEN, ROWS = 4, 2, 3, 5, 4
RNG = np.random.default_rng(34)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def recurrence(a: dict[str, Any], order: str, reverse: bool) -> tuple[Any, Any]:
    h, c = a.get("h_init", np.zeros((BATCH, a["Wh"].shape[1]))), a.get("c_init", np.zeros((BATCH, HIDDEN)))
    hidden, cells = [], []
    for x in a["Xs"][::-1] if reverse else a["Xs"]:
        z = x @ a["Wi"].T + h @ a["Wh"].T + a.get("Bi", 0) + a.get("Bh", 0)
        i, f, g, o = (z[:, order.index(v) * HIDDEN :][:, :HIDDEN] for v in "IFGO")
        c = sigmoid(f + a.get("p_f", 0) * c) * c + sigmoid(i + a.get("p_i", 0) * c) * np.tanh(g)
        h = sigmoid(o + a.get("p_o", 0) * c) * np.tanh(c)
        h = h @ a["proj"].T if "proj" in a else h
        hidden.append(h)
        cells.append(c)
    return np.stack(hidden), np.stack(cells)


SHAPES = {
    "Xs": (STEPS, BATCH, INPUTS), "Wi": (4 * HIDDEN, INPUTS), "Wh": (4 * HIDDEN, HIDDEN), "Bi": (4 * HIDDEN,), "Bh": (4 * HIDDEN,),
    "h_init": (BATCH, HIDDEN), "c_init": (BATCH, HIDDEN), "p_i": (BATCH, HIDDEN), "p_f": (BATCH, HIDDEN), "p_o": (BATCH, HIDDEN),
}  # fmt: skip
PROJECTED = {**SHAPES, "Wh": (4 * HIDDEN, ROWS), "proj": (ROWS, HIDDEN), "h_init": (BATCH, ROWS)}


@pytest.mark.parametrize(
    ("shapes", "order", "reverse"),
    [
        ({k: SHAPES[k] for k in ("Xs", "Wi", "Wh")}, "IFGO", False),
        (SHAPES, "GOIF", True),
        (PROJECTED, "IFGO", False),
    ],
)
def test_lstm_is_the_recurrence(shapes: dict[str, Any], order: str, reverse: bool) -> None:
    arrays = {k: RNG.standard_normal(s).astype("float32") for k, s in shapes.items()}
    tensors = {k: te.placeholder(s, name=k) for k, s in shapes.items()}
    outs = topi.nn.lstm(**tensors, reverse=reverse, weight_layout=order)
    s = te.create_schedule([t.op for t in outs])
    made = [np.zeros([int(n) for n in t.shape], "float32") for t in outs]
    tec.build(s, [*tensors.values(), *outs], "llvm")(*arrays.values(), *made)
    for got, want in zip(made, recurrence(arrays, order, reverse)):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_an_order_of_other_gates_is_refused() -> None:
    tensors = {k: te.placeholder(SHAPES[k], name=k) for k in ("Xs", "Wi", "Wh")}
    with pytest.raises(tec.ExprError, match="weight layout 'IFCO'"):
        topi.nn.lstm(**tensors, weight_layout="IFCO")
