"""Rows of open length on a CPU: values at short and ragged lengths, and the loops that make them quick, read from their text."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec.graph import Graph
from tec.ops.dims import Dim
from tests.seeds import first

N, M = Dim("n"), Dim("m")
SIZES = [(1, 1), (3, 2), (2, 15), (17, 16), (5, 17), (4, 33), (2, 100)]


def _net(op, shapes, attrs):
    g = Graph("g")
    made = g.add(op, [g.input(f"x{k}", "float32", s) for k, s in enumerate(shapes)], attrs)
    g.set_outputs(made if isinstance(made, (list, tuple)) else [made], ["y"])
    net = tec.compile(g, target="llvm", cache=False)
    return net, net.get_source("ir")


def _rng(k):
    return np.random.default_rng(first(k))


@pytest.mark.parametrize(
    ("op", "wanted"),
    [
        ("reduce_max", lambda x: x.max(1)),
        ("reduce_sum", lambda x: x.sum(1)),
    ],
)
def test_the_last_step_of_a_row_stays_in_registers(op, wanted):
    net, text = _net(op, [(N, M)], {"axes": (1,), "keepdims": False})
    assert "store(" not in text  # under a mask
    for rows, length in SIZES:
        x = _rng(length).standard_normal((rows, length)).astype("float32")
        x[0, -1] = 9
        np.testing.assert_allclose(net.run({"x0": x})[0], wanted(x), rtol=1e-5, atol=1e-5)
        if op == "reduce_max":
            x[-1, 0] = np.nan
            np.testing.assert_array_equal(net.run({"x0": x})[0], wanted(x))


def test_rows_that_lie_together_are_one_loop():
    net, text = _net("add", [(N, 3, M), (N, 3, M)], {})
    assert "%" not in text and "// m" not in text  # no place is divided by a row's length
    for rows, length in SIZES:
        x, y = _rng(rows).standard_normal((2, rows, 3, length)).astype("float32")
        np.testing.assert_array_equal(net.run({"x0": x, "x1": y})[0], x + y)


def test_paddings_and_concatenations_are_cut_where_the_question_changes():
    pads = [1, 2, 3, 4]
    padded, text = _net("pad", [(N, M)], {"before": pads[:2], "after": pads[2:], "value": 0.5})
    assert "select(" not in text
    joined, text = _net("concat", [(N, M), (N, M)], {"axis": 1})
    assert "select(" not in text and "if_then_else" not in text
    for rows, length in SIZES:
        x, y = _rng(length).standard_normal((2, rows, length)).astype("float32")
        want = np.pad(x, [(pads[0], pads[2]), (pads[1], pads[3])], constant_values=0.5)
        np.testing.assert_array_equal(padded.run({"x0": x})[0], want)
        np.testing.assert_array_equal(joined.run({"x0": x, "x1": y})[0], np.concatenate([x, y], 1))
