"""Dimensions that are expressions of others, as exporters name them and as callers give them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import tec
from tec.errors import ArgumentError


def model(third: Any) -> Any:
    """y = concat(a, b) + m, with m of `third` rows."""
    nodes = [helper.make_node("Concat", ["a", "b"], ["c"], axis=0), helper.make_node("Add", ["c", "m"], ["y"])]
    rows = {"a": "p", "b": "q", "m": third}
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [d, 4]) for n, d in rows.items()]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 4])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def ones(*rows: int) -> list[Any]:
    return [np.ones((n, 4), np.float32) for n in rows]


@pytest.mark.parametrize("third", ["p + q", "q+p", "(2*p + 2*q) // 2"])
def test_of_a_model(third):
    net = tec.compile(model(third), target="llvm")
    assert net.open_sizes == ["p", "q"]
    np.testing.assert_array_equal(net.run(ones(2, 3, 5))[0], np.full((5, 4), 2, np.float32))
    with pytest.raises(ArgumentError, match="input m has shape"):
        net.run(ones(2, 3, 6))


def test_given_and_bound():
    net = tec.compile(model("total"), target="llvm", shapes={"m": ("p + q", 4)})
    assert net.run(ones(1, 1, 2))[0].shape == (2, 4)
    net = tec.compile(model("p + q"), target="llvm", shapes={"p": 2})
    assert net.open_sizes == ["q"]
    assert net.run(ones(2, 5, 7))[0].shape == (7, 4)


def test_a_name_of_its_own():
    """A text whose names no input has is a name, as it stands: it stands for what it meets."""
    net = tec.compile(model("p + r"), target="llvm")
    assert net.open_sizes == ["p", "q"]
    assert net.run(ones(2, 3, 5))[0].shape == (5, 4)
