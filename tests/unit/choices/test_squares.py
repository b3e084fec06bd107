"""Axes of equal extents are told apart by what reads them: templates that looked at shapes alone took columns of a square for its rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tec
from tec import te, topi
from tec.choices import schedule
from tests.thinned import thinned

DEVICES = {"llvm": "cpu", "rocm -mcpu=gfx942": "rocm_emu:gfx942", "rocm -mcpu=gfx1100": "rocm_emu:gfx1100"}
N = 8


def _less(x: te.Tensor, axis: int) -> te.Tensor:
    """x less its sums over an axis."""
    k = te.reduce_axis((0, N), "k")
    sums = te.compute((N,), lambda j: te.sum(x[k, j] if axis == 0 else x[j, k], axis=k), name="sums")
    return te.compute((N, N), lambda i, j: x[i, j] - sums[j if axis == 0 else i], name="less")


def _scaled(x: te.Tensor) -> te.Tensor:
    """x over the sums of its own row and its own column."""
    k, m = te.reduce_axis((0, N), "k"), te.reduce_axis((0, N), "m")
    rows = te.compute((N,), lambda i: te.sum(x[i, k], axis=k), name="rows")
    columns = te.compute((N,), lambda j: te.sum(x[m, j], axis=m), name="columns")
    return te.compute((N, N), lambda i, j: x[i, j] / rows[i] / columns[j], name="scaled")


def _turned(x: te.Tensor) -> te.Tensor:
    """A product by itself, read turned, and x."""
    k = te.reduce_axis((0, N), "k")
    product = te.compute((N, N), lambda i, j: te.sum(x[i, k] * x[k, j], axis=k), name="product")
    return te.compute((N, N), lambda i, j: product[j, i] + x[i, j], name="turned")


CASES: dict[str, tuple[tuple[int, ...], Callable[[Any], te.Tensor]]] = {
    "softmax of columns": ((N, N), lambda x: topi.nn.softmax(x, axis=0)),
    "softmax of columns, many": ((3, N, N), lambda x: topi.nn.softmax(x, axis=1)),
    "softmax of the first": ((N, N, N), lambda x: topi.nn.softmax(x, axis=0)),
    "softmax of rows": ((N, N), lambda x: topi.nn.softmax(x, axis=1)),
    "less columns": ((N, N), lambda x: _less(x, 0)),
    "less rows": ((N, N), lambda x: _less(x, 1)),
    "rows and columns": ((N, N), _scaled),
    "a product turned": ((N, N), _turned),
}


@thinned(1, ("target", DEVICES), ("name", CASES))
def test_of_a_square(name: str, target: str) -> None:
    shape, make = CASES[name]
    x = te.placeholder(shape, "float32", name="x")
    y = make(x)
    given = np.random.default_rng(3).uniform(0.5, 2, shape).astype("f")
    (want,) = te.evaluate([y], {x: given})
    made = schedule([y], target)
    f = tec.build(made.schedule, [x, *made.outputs], target)
    dev = tec.device(DEVICES[target])
    out = tec.nd.array(np.full(shape, np.nan, "f"), dev)
    f(tec.nd.array(given, dev), out)
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-5)
