"""`vmap` against a loop over the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tec
from tests import seeds

xp = tec.array
PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "elements": lambda x, y: xp.sum((x - y) ** 2, axis=0) + y * 2.0,
    "products": lambda x, y: xp.tanh(x @ y) @ x,
    "shapes": lambda x, y: xp.concat([xp.reshape(x.T, (4, 3))[1:, ::2], xp.stack([y[:2], y[1:]])], axis=0),
    "softmax": lambda x, y: xp.nn.softmax(x, axis=0) * xp.max(x) + xp.cumulative_sum(y)[0],
    "places": lambda x, y: x[:, xp.argmax(y)] + xp.take(x, xp.asarray([1, 0, 2]), axis=1)[0],
    "gradient": lambda x, y: tec.grad(lambda z: xp.sum(xp.sin(x @ z) ** 2))(y),
    "order": lambda x, y: xp.sort(x, axis=0) * y[0],
    "assigned": lambda x, y: _assigned(x, y),
    "factors": lambda x, y: xp.linalg.solve(x @ x.T + 9.0 * xp.eye(3), x[:, :2]) * xp.linalg.det(x @ x.T),
    "waves": lambda x, y: xp.abs(xp.fft.rfft(x, axis=0)) + xp.real(xp.exp(1j * x))[:2] + xp.searchsorted(TABLE, x[:2]),
    "order's gradient": lambda x, y: tec.grad(
        lambda z: xp.sum(xp.take_along_axis(x, xp.argsort(x, axis=1), axis=1) @ xp.sort(z))
    )(y),
    "wide": lambda x, y: xp.mean(x) * xp.ones((2, 2)) + xp.where(y > 0, y, 0.0)[0],
}
QUICK = ["elements", "shapes", "order", "assigned"]
TABLE = xp.asarray([-1.0, 0.0, 1.0])


def _assigned(x: Any, y: Any) -> Any:
    """Assignment to a row, to rows backwards, and to rows by an array; elements by two arrays."""
    z = x * 1.0
    z[0] = 0.0
    z[::-2, 1:] = y[:3]
    z[xp.asarray([2, 1])] = x[:2] + z[0]
    return z + x[xp.asarray([0, 1]), xp.asarray([2, -1])][0]


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in PROGRAMS])
def test_against_a_loop(name: str) -> None:
    rng = np.random.default_rng(seeds.first(4))
    a, b = rng.standard_normal((5, 3, 4)).astype("float32"), rng.standard_normal((4, 5)).astype("float32")
    if name == "shapes":
        b = rng.standard_normal((3, 5)).astype("float32")
    f = PROGRAMS[name]
    x, y = xp.asarray(a), xp.asarray(b)
    want = np.stack([f(x[k], y[:, k]).numpy() for k in range(5)])
    got = tec.vmap(f, in_axes=(0, 1))(x, y)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-5)


def test_what_is_alike_for_all_and_where_results_go() -> None:
    x, w = xp.asarray(np.arange(6.0).reshape(3, 2)), xp.asarray([1.0, 2.0], dtype="float64")
    got = tec.vmap(lambda p, q: {"dot": p * q, "w": q}, in_axes=(0, None), out_axes=1)(x, w)
    assert got["dot"].tolist() == (np.arange(6.0).reshape(3, 2) * [1, 2]).T.tolist()
    assert got["w"].tolist() == [[1.0] * 3, [2.0] * 3]


@pytest.mark.parametrize(
    ("f", "words"),
    [
        (lambda x: x if float(xp.sum(x)) > 0 else -x, "looks at a value"),
        (lambda x: xp.asarray(x.numpy()) * x, "takes it out"),
        (lambda x: xp.unique_values(x), "looks at a value"),
        (lambda x: xp.searchsorted(x, x), "vmap through searchsorted"),
    ],
)
def test_what_depends_on_values_is_told(f: Any, words: str) -> None:
    with pytest.raises(tec.TecError, match=words):
        tec.vmap(f)(xp.asarray([[1.0, 0, 0, 1], [2, 0, 0, 2]]))
