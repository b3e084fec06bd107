"""Sizes of different names that an operation ties together: each run is held to what the graph took for granted."""

import numpy as np
import pytest

import tec
from tec import ImportModelError
from tec.graph import Graph
from tec.graph.builders import Builder
from tec.graph.builders.slices import fitted
from tec.ops.dims import Dim


def test_a_run_is_held_to_sizes_that_were_taken_for_equal():
    g = Graph("sum")
    b = Builder(g)
    x, y = g.input("x", "float32", (Dim("n"), 3)), g.input("y", "float32", (Dim("m"), 1))
    g.set_outputs([b.op("add", x, fitted(b, y, x.shape))], ["sum"])
    network = tec.compile(g, "llvm")
    left, right = np.arange(12, dtype="float32").reshape(4, 3), np.arange(4, dtype="float32").reshape(4, 1)
    np.testing.assert_array_equal(network.run([left, right])[0], left + right)
    for rows in (3, 5):
        with pytest.raises(tec.TecError, match="takes the place"):
            network.run([left, np.zeros((rows, 1), "float32")])


def test_numbers_that_differ_do_not_fit():
    g = Graph("sum")
    with pytest.raises(ImportModelError, match="takes the place"):
        fitted(Builder(g), g.input("x", "float32", (Dim("n"), 2)), (Dim("n"), 3))


def test_a_slice_of_none_of_what_is_open():
    g = Graph("none")
    x = g.input("x", "float32", (Dim("n"), 3))
    g.set_outputs([Builder(g).slice(x, 0, 0, 0)], ["none"])
    assert tec.compile(g, "llvm").run([np.zeros((4, 3), "float32")])[0].shape == (0, 3)


def test_fewer_updates_than_rows_that_are_open():
    """Whether the other sizes of the index are less than the data's is not known: what lies outside is left out."""
    g = Graph("scatter")
    x = g.input("x", "float32", (Dim("n"), Dim("m")))
    at, y = g.input("at", "int64", (Dim("k"), Dim("l"))), g.input("y", "float32", (Dim("k"), Dim("l")))
    g.set_outputs([Builder(g).op("scatter_elements", x, at, y, axis=0, reduction="add")], ["sum"])
    network = tec.compile(g, "llvm")
    for columns in (2, 5):
        data, place = np.ones((4, 5), "float32"), np.array([[3] * columns, [0] * columns, [3] * columns])
        want = data.copy()
        want[3, :columns] += 2
        want[0, :columns] += 1
        np.testing.assert_array_equal(network.run([data, place, np.ones((3, columns), "float32")])[0], want)
