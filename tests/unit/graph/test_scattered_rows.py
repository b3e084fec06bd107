"""Scatters of whole rows are found where their index is written once for each element, and make the same."""

import numpy as np
import pytest

import tec
from tec.graph import Graph
from tec.graph.passes.scattered_rows import scattered_rows

RNG = np.random.default_rng(3)


def _scatter(shape, rows, axis, reduction="add"):
    """A graph whose index, of so many lines along an axis, is copied across the others."""
    g = Graph("g")
    x = g.input("x", "float32", shape)
    lined = [rows if k == axis else 1 for k in range(len(shape))]
    at = g.input("at", "int64", tuple(lined))
    of = tuple(rows if k == axis else n for k, n in enumerate(shape))
    update = g.input("update", "float32", of)
    index = g.add("broadcast_to", [at], {"shape": of})[0]
    y = g.add("scatter_elements", [x, index, update], {"axis": axis, "reduction": reduction})[0]
    g.set_outputs([y], ["y"])
    return g, lined, of


@pytest.mark.parametrize("shape, rows, axis, reduction", [((9, 7), 30, 0, "add"), ((9, 3, 4), 5, 0, "max"), ((4, 9), 6, 1, "add")])  # fmt: skip
def test_rows_go_by_one_index_each(shape, rows, axis, reduction):
    g, lined, of = _scatter(shape, rows, axis, reduction)
    assert [n.op for n in scattered_rows(g).nodes if n.op.startswith("scatter")] == [
        "scatter_elements" if axis else "scatter_nd"
    ]
    x, update = (RNG.standard_normal(s).astype("float32") for s in (shape, of))
    at = RNG.integers(-shape[axis], shape[axis], lined)
    (y,) = tec.compile(g, "llvm", cache=False).run([x, at, update])
    want = np.moveaxis(x, axis, 0).copy()
    {"add": np.add, "max": np.maximum}[reduction].at(want, at.reshape(-1), np.moveaxis(update, axis, 0))
    np.testing.assert_allclose(y, np.moveaxis(want, 0, axis), rtol=1e-4, atol=1e-5)


def test_an_index_outside_is_told_once_a_row():
    g, lined, of = _scatter((9, 7), 30, 0)
    net = tec.compile(g, "llvm", cache=False)
    with pytest.raises(tec.TecError, match="outside"):
        net.run([np.zeros((9, 7), "float32"), np.full(lined, 9), np.zeros(of, "float32")])
