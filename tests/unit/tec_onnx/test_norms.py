"""Norms that have an ONNX operator are taken whole, not by the standard's body."""

import numpy as np
import onnx
import pytest
import tec_onnx
from onnx import TensorProto as T
from onnx import helper as h

from tec.graph import run_graph


def run(op, opset, x, inputs, **attrs):
    names = ["x", *inputs]
    node = h.make_node(op, names, ["y"], **attrs)
    graph = h.make_graph(
        [node],
        "norm",
        [h.make_tensor_value_info("x", T.FLOAT, x.shape)],
        [h.make_tensor_value_info("y", T.FLOAT, x.shape)],
        [onnx.numpy_helper.from_array(v, n) for n, v in inputs.items()],
    )
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", opset)])
    made = tec_onnx.load(model)
    return [n.op for n in made.nodes], run_graph(made, {"x": x})[0]


@pytest.mark.parametrize("opset, count", [(18, 2), (21, 6)])
def test_group_norm(opset, count):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 6, 3, 4)).astype(np.float32) * 2 + 1
    scale, bias = (rng.standard_normal(count).astype(np.float32) for _ in range(2))
    ops, got = run("GroupNormalization", opset, x, {"scale": scale, "bias": bias}, num_groups=2, epsilon=1e-3)
    rows = x.reshape(2, 2, -1).astype(np.float64)
    y = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + 1e-3)
    by, plus = (np.repeat(v, 6 // count).reshape(6, 1, 1) for v in (scale, bias))
    np.testing.assert_allclose(got, y.reshape(x.shape) * by + plus, rtol=1e-4, atol=1e-5)
    assert "layer_norm" in ops


def test_root_mean_square_norm():
    rng = np.random.default_rng(0)
    x, scale = rng.standard_normal((2, 3, 8)).astype(np.float32), rng.standard_normal(8).astype(np.float32)
    ops, got = run("RMSNormalization", 23, x, {"scale": scale}, epsilon=1e-3)
    want = x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-3) * scale
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert "divide" not in ops


def test_scales_of_one_are_left_out():
    x = np.random.default_rng(0).standard_normal((1, 2, 6)).astype(np.float32)
    ops, _ = run("InstanceNormalization", 17, x, {"s": np.ones(2, np.float32), "b": np.zeros(2, np.float32)})
    assert "multiply" not in ops and "add" not in ops
