"""QDQ networks: float products between DequantizeLinear and QuantizeLinear are products of the integers where the target has a unit for bytes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

import tec
from tec.graph import Graph, run_graph
from tec.graph.frontends import graph_of
from tec.graph.optimize import optimize
from tec.graph.passes.byte_products import byte_products
from tec.graph.passes.dead_code import dead_code
from tec.graph.passes.quantized_products import quantized_products
from tec.graph.passes.requantize import requantize
from tests.thinned import thinned

VNNI = tec.Target("llvm -mcpu=znver4")
OUT_SCALE = 0.05


def model(
    op: str = "Conv",
    channels: int = 32,
    kind: Any = np.uint8,
    zero: int = 7,
    w_zero: int = 0,
    each: bool = True,
    side: int = 7,
    n: int = 48,
) -> Any:
    """Quantize, dequantize, a product with dequantized weights (a scale for `each` output channel, or one), Relu, quantize, dequantize."""
    rng = np.random.default_rng(0)
    values: list[Any] = []

    def const(x: Any, name: str) -> str:
        values.append(numpy_helper.from_array(np.asarray(x), name))
        return name

    is_conv = op == "Conv"
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
    shape = (1, channels, side, side) if is_conv else (4 * side, channels)
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


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("is_turned", [False, True])
def test_rows_of_several_dimensions(is_turned: bool, kind: Any) -> None:
    """Rows of a batch, and heads that are turned behind their quantization: a view stands between the bytes and the product."""
    m = model("MatMul", 32, kind, 4)
    graph = m.graph
    graph.input[0].CopyFrom(helper.make_tensor_value_info("x", T.FLOAT, [2, 4, 6, 8] if is_turned else [2, 6, 32]))
    if is_turned:
        product = next(k for k, n in enumerate(graph.node) if n.op_type == "MatMul")
        graph.node.insert(product, helper.make_node("Transpose", ["xd"], ["xt"], perm=[0, 2, 1, 3]))
        graph.node.insert(product + 1, helper.make_node("Reshape", ["xt", "shape"], ["xr"]))
        graph.node[product + 2].input[0] = "xr"
        graph.initializer.append(numpy_helper.from_array(np.array([2, 6, 32]), "shape"))
    made = optimize(graph_of(m), VNNI)
    (product,) = [n for n in made.nodes if n.op == "matmul"]
    assert [v.dtype for v in product.inputs] == ["uint8", "int8"]
    (want,) = ort.InferenceSession(m.SerializeToString()).run(None, inputs(m))
    (got,) = tec.compile(m, target="llvm", cache=False).run(inputs(m))
    assert (np.abs(got - want) > 1e-6).mean() < 0.01
    np.testing.assert_allclose(got, want, atol=1.01 * OUT_SCALE)


def test_volumes_stay_in_floats() -> None:
    """Convolutions of bytes take images alone; as one of 32-bit integers it took longer than of floats."""
    m = model(channels=8)
    weights = next(t for t in m.graph.initializer if t.name == "wq")
    data = np.repeat(numpy_helper.to_array(weights)[:, :, None], 3, axis=2)
    weights.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(data), "wq"))
    m.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", T.FLOAT, [1, 8, 4, 7, 7]))
    conv = next(n for n in m.graph.node if n.op_type == "Conv")
    conv.attribute[0].CopyFrom(helper.make_attribute("pads", [1] * 6))
    assert {n.inputs[0].dtype for n in optimize(graph_of(m), VNNI).nodes if n.op == "conv"} == {"float32"}
    (want,) = ort.InferenceSession(m.SerializeToString()).run(None, inputs(m))
    (got,) = tec.compile(m, target="llvm", cache=False).run(inputs(m))
    np.testing.assert_allclose(got, want, atol=1.01 * OUT_SCALE)


def test_what_stays_in_floats() -> None:
    """Weights that are no bytes once their zero point is off; a target without a unit for bytes."""
    g = graph_of(model(w_zero=3))
    assert {n.inputs[0].dtype for n in quantized_products(g, VNNI).nodes if n.op == "conv"} == {"float32"}
    g = graph_of(model())
    assert quantized_products(g, tec.Target("llvm -mcpu=x86-64-v2")) is g
    haswell = tec.Target("llvm -mcpu=haswell")
    assert {n.inputs[0].dtype for n in quantized_products(g, haswell).nodes if n.op == "conv"} == {"int32"}
    assert "vpmaddwd" in tec.compile(model(), haswell, cache=False).module.get_source("asm")


# ---- between the products


def block(kind: Any = np.uint8) -> Any:
    """Convolution, pooling, a residual sum of two quantized branches, a flattened product: each quantized and dequantized, as exporters write it."""
    rng = np.random.default_rng(0)
    values: list[Any] = []
    nodes: list[Any] = []
    zero = 5 if kind is np.uint8 else -3

    def const(x: Any, name: str) -> str:
        values.append(numpy_helper.from_array(np.asarray(x), name))
        return name

    def quantized(x: str, scale: float, zero_point: int = zero) -> str:
        s, z = const(np.float32(scale), f"{x}_s"), const(kind(zero_point), f"{x}_z")
        nodes.append(helper.make_node("QuantizeLinear", [x, s, z], [f"{x}_q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{x}_q", s, z], [f"{x}_d"]))
        return f"{x}_d"

    def weights(name: str, *shape: int) -> str:
        const(rng.integers(-127, 128, shape).astype(np.int8), f"{name}_q")
        const(rng.uniform(0.001, 0.003, shape[0]).astype(np.float32), f"{name}_s")
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", f"{name}_s"], [name], axis=0))
        return name

    def conv(x: str, name: str, channels: int, of: int) -> str:
        bias = const(rng.standard_normal(channels).astype(np.float32), f"{name}_b")
        nodes.append(
            helper.make_node("Conv", [x, weights(f"{name}_w", channels, of, 3, 3), bias], [name], pads=[1] * 4)
        )
        return name

    x = quantized("x", 0.02)
    a = quantized(conv(x, "a", 32, 16), 0.0527)
    nodes.append(helper.make_node("MaxPool", [a], ["p"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4))
    p = quantized("p", 0.0527)
    c = quantized(conv(p, "c", 32, 32), 0.0613)
    nodes.append(helper.make_node("Add", [c, p], ["s"]))
    s = quantized("s", 0.0811)
    nodes.append(helper.make_node("Relu", [conv(s, "e", 16, 32)], ["r"]))
    r = quantized("r", 0.07, int(np.iinfo(kind).min))
    nodes.append(helper.make_node("Flatten", [r], ["f"]))
    nodes.append(
        helper.make_node(
            "Gemm", [quantized("f", 0.07, int(np.iinfo(kind).min)), weights("w", 10, 16 * 5 * 4)], ["g"], transB=1
        )
    )
    y = quantized("g", 0.1)
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", T.FLOAT, (1, 16, 9, 8))], [helper.make_tensor_value_info(v, T.FLOAT, None) for v in (y, s)], values
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("kind", [np.uint8, np.int8], ids=["uint8", "int8"])
def test_what_stands_between_products_is_multiplications_and_additions(kind: Any) -> None:
    m = block(kind)
    before = graph_of(m)
    made = optimize(before, VNNI)
    after = requantize(quantized_products(before, VNNI), VNNI)
    after.check()
    # What the first input is quantized by stays; a pool works on bytes; all products of bytes are dot products, the flattened one too.
    assert sum(n.op == "divide" for n in after.nodes) <= 1
    assert [n.inputs[0].dtype for n in after.nodes if n.op == "max_pool"] == [np.dtype(kind).name]
    products = [n for n in made.nodes if n.op in ("conv", "matmul")]
    assert len(products) == 4 and all([v.dtype for v in n.inputs] == ["uint8", "int8"] for n in products)
    feeds = inputs(m)
    want = run_graph(before, feeds)
    compiled = tec.compile(m, target="llvm", cache=False).run(feeds)
    for got in (run_graph(after, feeds), compiled):
        # A sum between two steps falls to either: of the residual sum one in some hundreds, and on through the network to the ten last ones.
        assert (np.abs(got[1] - want[1]) > 1e-6).mean() < 0.01
        np.testing.assert_allclose(got[1], want[1], atol=1.01 * 0.0811)
        np.testing.assert_allclose(got[0], want[0], atol=2.01 * 0.1)


def test_bytes_between_two_quantizations_are_exact() -> None:
    """Whole numbers that are clipped, stored as bytes and widened again are the clipped numbers: nothing is stored, no number changes."""
    g = Graph()
    x = g.input("x", "float32", (64,))
    q = g.input("q", "uint8", (1, 8))
    two = g.constant(np.float32(0.5))  # a power of two: no rounding but the one that is meant

    def step(v: Any, zero: float) -> Any:
        (v,) = g.add("divide", [v, two])
        (v,) = g.add("round_even", [v])
        (v,) = g.add("add", [v, g.constant(np.float32(zero))])
        (v,) = g.add("clip", [v], {"low": 0.0, "high": 255.0})
        (v,) = g.add("cast", [v], {"dtype": "uint8"})
        (v,) = g.add("cast", [v], {"dtype": "float32"})
        return g.add("subtract", [v, g.constant(np.float32(zero))])[0]

    (wide,) = g.add("cast", [q], {"dtype": "int32"})
    (product,) = g.add("matmul", [wide, g.constant(np.ones((8, 4), np.int32))], {"out_dtype": "int32"})
    g.set_outputs([step(step(x, 128.0), 3.0), product])
    after = dead_code(requantize(g, VNNI))
    assert sum(n.op == "cast" and n.outputs[0].dtype == "uint8" for n in after.nodes) == 1
    feeds = {"x": np.random.default_rng(0).uniform(-200, 200, 64).astype(np.float32), "q": np.ones((1, 8), np.uint8)}
    for got, want in zip(run_graph(after, feeds), run_graph(g, feeds)):
        np.testing.assert_array_equal(got, want)


# Of fewer results sums by themselves are quicker in the time model.
LARGE = [
    {"channels": 64, "side": 28},
    {"op": "MatMul", "channels": 256, "kind": np.int8, "zero": 4, "side": 32, "n": 96},
]


@thinned(1, ("mcpu, unit", [("gfx942", "v_mfma_i32_"), ("gfx1100", "v_wmma_i32_")]), ("case", LARGE))
def test_amd_multiplies_them_on_its_matrix_units(mcpu: str, unit: str, case: dict[str, Any]) -> None:
    m = model(**case)
    net = tec.compile(m, f"rocm -mcpu={mcpu}")
    assert {x[: len(unit)] for x in re.findall(r"\bv_(?:mfma|wmma|dot)\w+", net.get_source("asm"))} == {unit}
    (want,) = ort.InferenceSession(m.SerializeToString()).run(None, inputs(m))
    (got,) = net.run(inputs(m), device=tec.rocm_emu(mcpu))
    np.testing.assert_array_equal(got, want)
