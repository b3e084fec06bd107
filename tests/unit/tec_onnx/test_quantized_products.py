"""QDQ networks: float products between DequantizeLinear and QuantizeLinear are products of the integers where the target has a unit for bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

import tec
from tec.graph import run_graph
from tec.graph.frontends import graph_of
from tec.graph.passes.byte_products import byte_products
from tec.graph.passes.quantized_products import quantized_products

VNNI = tec.Target("llvm -mcpu=znver4")
OUT_SCALE = 0.05


def model(
    op: str = "Conv", channels: int = 32, kind: Any = np.uint8, zero: int = 7, w_zero: int = 0, each: bool = True
) -> Any:
    """Quantize, dequantize, a product with dequantized weights (a scale for `each` output channel, or one), Relu, quantize, dequantize."""
    rng = np.random.default_rng(0)
    values: list[Any] = []

    def const(x: Any, name: str) -> str:
        values.append(numpy_helper.from_array(np.asarray(x), name))
        return name

    n, is_conv = 48, op == "Conv"
    const(rng.integers(-127, 128, (n, channels, 3, 3) if is_conv else (channels, n)).astype(np.int8), "wq")
    scale = (rng.uniform(0.001, 0.003, n) if each else np.array(0.002)).astype(np.float32)
    const(scale, "ws"), const(np.full(scale.shape, w_zero, np.int8), "wz")
    const(np.float32(0.02), "xs"), const(kind(zero), "xz"), const(np.float32(OUT_SCALE), "ys"), const(np.uint8(3), "yz")
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        helper.make_node("DequantizeLinear", ["wq", "ws", "wz"], ["wd"], axis=0 if is_conv else 1),
        helper.make_node(op, ["xd", "wd"], ["y0"], **({"pads": [1] * 4} if is_conv else {})),
        helper.make_node("Relu", ["y0"], ["y1"]),
        helper.make_node("QuantizeLinear", ["y1", "ys", "yz"], ["yq"]),
        helper.make_node("DequantizeLinear", ["yq", "ys", "yz"], ["y"]),
    ]
    shape = (1, channels, 7, 7) if is_conv else (24, channels)
    x = helper.make_tensor_value_info("x", T.FLOAT, shape)
    graph = helper.make_graph(nodes, "g", [x], [helper.make_tensor_value_info("y", T.FLOAT, None)], values)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def inputs(m: Any) -> dict[str, Any]:
    shape = [d.dim_value for d in m.graph.input[0].type.tensor_type.shape.dim]
    return {"x": np.random.default_rng(1).uniform(-2, 2, shape).astype(np.float32)}


CASES = [
    {}, {"each": False}, {"channels": 3}, {"channels": 24, "kind": np.int8, "zero": -5}, {"zero": 0},
    {"op": "MatMul", "channels": 256}, {"op": "MatMul", "channels": 256, "each": False, "kind": np.int8, "zero": 4},
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_products_of_integers(case: dict[str, Any]) -> None:
    m = model(**case)
    before = graph_of(m)
    after = byte_products(quantized_products(before, VNNI), VNNI)
    after.check()
    (product,) = [n for n in after.nodes if n.op in ("conv", "matmul")]
    assert [v.dtype for v in product.inputs] == ["uint8", "int8"] and product.outputs[0].dtype == "int32"
    feeds = inputs(m)
    (want,), (got,) = run_graph(before, feeds), run_graph(after, feeds)
    assert (np.abs(got - want) > 1e-6).mean() < 0.01  # a sum that lies between two steps may fall to either
    np.testing.assert_allclose(got, want, atol=1.01 * OUT_SCALE)


@pytest.mark.parametrize("case", CASES[::2], ids=str)
def test_as_onnx_runtime(case: dict[str, Any]) -> None:
    m = model(**case)
    (want,) = ort.InferenceSession(m.SerializeToString()).run(None, inputs(m))
    (got,) = tec.compile(m, target="llvm", cache=False).run(inputs(m))
    assert (np.abs(got - want) > 1e-6).mean() < 0.01
    np.testing.assert_allclose(got, want, atol=1.01 * OUT_SCALE)


def test_what_stays_in_floats() -> None:
    """Weights that are no bytes once their zero point is off; a target without a unit for bytes."""
    g = graph_of(model(w_zero=3))
    assert {n.inputs[0].dtype for n in quantized_products(g, VNNI).nodes if n.op == "conv"} == {"float32"}
    g = graph_of(model())
    assert quantized_products(g, tec.Target("llvm -mcpu=haswell")) is g
