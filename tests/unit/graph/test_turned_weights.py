"""Constant weights in the direction in which a GPU's templates read them most quickly, by their prices."""

import numpy as np

import tec
from tec.graph import Graph
from tec.graph.passes.weights import order_weights
from tests.unit.graph.test_pixels import const, product


def turned_products(target, readers=1, dtype="float32", rows=512):
    """Products of 512 x 768 with one weight of 1024 x 768 whose rows are along the sum."""
    g = Graph()
    w = const(g, (1024, 768), dtype)
    g.set_outputs(
        [g.add("matmul", [g.input(n, dtype, (rows, 768)), w], {"transpose_b": True})[0] for n in "xyz"[:readers]]
    )
    return g, order_weights(g, tec.Target(target))


def test_a_weight_lies_as_the_quickest_template_reads_it():
    """On a Hopper registers are filled ahead where float32's B lies along its rows, and not where along the sum."""
    g, after = turned_products("cuda -arch=sm_90a", readers=2, rows=2048)
    assert not any(n.attrs.get("transpose_b") for n in after.nodes)
    assert [v.shape for v in after.constants()] == [(768, 1024)], "turned once"
    (turned,), (given,) = after.constants(), g.constants()
    np.testing.assert_array_equal(turned.data, given.data.T)
    for target, dtype, rows in (("cuda -arch=sm_80", "float32", 512), ("cuda -arch=sm_90a", "float16", 512), ("cuda -arch=sm_90a", "float32", 1)):  # fmt: skip
        _, after = turned_products(target, dtype=dtype, rows=rows)
        assert [v.shape for v in after.constants()] == [(1024, 768)]


def test_a_weight_that_others_read_as_it_is_is_not_held_twice():
    g, _ = turned_products("cuda -arch=sm_80")
    (w,) = g.constants()
    (rows,) = g.add("gather", [w, g.input("at", "int64", (4,))], {"axis": 0})
    g.set_outputs([*g.outputs, rows])
    after = order_weights(g, tec.Target("cuda -arch=sm_90a"))
    assert [v.shape for v in after.constants()] == [(1024, 768)]


def test_a_weight_that_is_an_input_is_not_moved():
    g = product("float32", 128, 256, 512, const_b=False, transpose_b=True)
    assert order_weights(g, tec.Target("cuda -arch=sm_90a")).nodes[0].attrs == {"transpose_b": True}
