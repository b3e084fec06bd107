"""Weights of 4 and 8 bits: MatMulNBits and dequantized constants against ONNX Runtime, in memory and in packages no larger than they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tec
from tests.networks.genai import MS, quantized

ort = pytest.importorskip("onnxruntime")

FLOAT = TensorProto.FLOAT
KINDS = {"uint4": TensorProto.UINT4, "int4": TensorProto.INT4, "uint8": TensorProto.UINT8, "int8": TensorProto.INT8}


def model(nodes: list[Any], inputs: dict[str, Any], weights: dict[str, Any], out: Any = ("m", "n")) -> Any:
    """One output y; weights are arrays or TensorProtos."""
    given = [w if not isinstance(w, np.ndarray) else numpy_helper.from_array(w, k) for k, w in weights.items()]
    ins = [helper.make_tensor_value_info(k, t, list(s)) for k, (t, s) in inputs.items()]
    outs = [helper.make_tensor_value_info("y", FLOAT, list(out))]
    graph = helper.make_graph(nodes, "g", ins, outs, given)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def held(proto: Any, feeds: list[dict[str, Any]], target: str = "llvm", tol: float = 1e-5) -> Any:
    """The network, whose results are as ONNX Runtime's for each of `feeds`."""
    options = ort.SessionOptions()
    options.graph_optimization_level = (
        ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    )  # else it rounds x to bytes before such products
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    net = tec.compile(proto, target=target, cache=False)
    device = tec.rocm_emu("gfx942") if target.startswith("rocm") else tec.cpu()
    for f in feeds:
        want, got = session.run(None, f)[0], net.run(f, device=device)[0]
        np.testing.assert_allclose(got, want, rtol=0, atol=tol * np.abs(want).max())
    return net


def assembly(net: Any) -> str:
    return "".join(m.get_source("asm") for m in net.module.imported_modules)


def n_bits(k: int, n: int, bits: int, block: int, zeros: str = "", m: Any = "m", bias: bool = False, order: Any = None) -> Any:  # fmt: skip
    rng = np.random.default_rng(k + n + bits)
    q, s, z = quantized(rng.standard_normal((k, n)).astype(np.float32), bits, block, zeros == "packed")
    weights: dict[str, Any] = {"q": q, "s": s}
    if zeros:
        weights["z"] = z if zeros == "packed" else (7.5 + rng.standard_normal(s.shape)).astype(np.float32)
    if order is not None:
        weights["g"] = order.astype(np.int32)
    if bias:
        weights["b"] = rng.standard_normal(n).astype(np.float32)
    ins = ["x", "q", "s", *(name if name in weights else "" for name in "zgb")]
    while not ins[-1]:
        ins.pop()
    node = helper.make_node("MatMulNBits", ins, ["y"], domain=MS, K=k, N=n, bits=bits, block_size=block)
    return model([node], {"x": (FLOAT, (m, k))}, weights)


def rows(k: int, *counts: int) -> list[dict[str, Any]]:
    return [{"x": np.random.default_rng(m).standard_normal((m, k)).astype(np.float32)} for m in counts]


@pytest.mark.parametrize(
    ("k", "n", "bits", "block", "zeros"),
    [
        (64, 64, 4, 16, ""), (64, 70, 4, 32, "packed"), (100, 33, 4, 32, "packed"), (512, 40, 4, 256, "float"), (96, 33, 8, 32, "packed"),
        (256, 32, 8, 64, ""), (384, 48, 4, 128, "packed"),
    ],
)  # fmt: skip
def test_matmul_of_few_bits(k: int, n: int, bits: int, block: int, zeros: str) -> None:
    net = held(n_bits(k, n, bits, block, zeros), rows(k, 1, 2, 5, 77))
    assert any("packed_matmul" in ops for ops in net.report.functions.values())


def test_bias_and_residual_follow_in_the_same_function() -> None:
    net = held(n_bits(64, 48, 4, 32, bias=True), rows(64, 1, 9))
    assert len(net.plan.steps) == 1


@pytest.mark.parametrize("m", [1, 2, 20])
@pytest.mark.parametrize(("bits", "block", "zeros"), [(4, 32, ""), (4, 64, "packed"), (8, 32, "packed")])
def test_on_a_gpu(m: int, bits: int, block: int, zeros: str) -> None:
    net = held(n_bits(128, 40, bits, block, zeros, m), rows(128, m), "rocm -mcpu=gfx942")
    assert "global_load_ubyte" not in assembly(net) or zeros  # codes come as words


def test_half_precision_feeds_the_matrix_units_of_a_gpu() -> None:
    net = tec.compile(n_bits(128, 64, 4, 32, m=64), target="rocm -mcpu=gfx942", dtype="float16", cache=False)
    x = rows(128, 64)[0]
    want = tec.compile(n_bits(128, 64, 4, 32, m=64), target="llvm", cache=False).run(x)[0]
    got = net.run(x, device=tec.rocm_emu("gfx942"))[0]
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-3 * np.abs(want).max())
    assert "v_mfma_f32_16x16x16_f16" in assembly(net)


def test_two_bits() -> None:
    held(n_bits(64, 24, 2, 32, m="m"), rows(64, 1, 6))


def test_g_idx_puts_rows_in_the_order_of_their_blocks() -> None:
    rng = np.random.default_rng(3)
    order = rng.permutation(np.arange(64) // 16)
    proto = n_bits(64, 24, 4, 16, order=order)
    q, s = (numpy_helper.to_array(t) for t in proto.graph.initializer[:2])
    codes = np.stack([q & 15, q >> 4], -1).reshape(24, 64).astype(np.float32) - 8
    x = rows(64, 3)[0]
    (got,) = tec.compile(proto, target="llvm", cache=False).run(x)
    rank = np.argsort(order, kind="stable")
    want = x["x"][:, rank] @ (codes[:, rank] * s[:, np.arange(64) // 16]).T
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-4)


def test_g_idx_that_no_order_of_rows_serves_is_refused() -> None:
    order = np.zeros(64, int)
    with pytest.raises(tec.ImportModelError, match="g_idx"):
        tec.compile(n_bits(64, 24, 4, 16, order=order), target="llvm", cache=False)


# ---- dequantized constants


def dequantized(kind: str, shape: tuple[int, int], how: str, axis: int, zero: bool) -> tuple[list[Any], dict[str, Any]]:
    """Nodes that make w of a constant, and the constants."""
    rng = np.random.default_rng(7)
    low, high = {"uint4": (0, 15), "int4": (-8, 7), "uint8": (0, 255), "int8": (-128, 127)}[kind]
    block = 32 if how == "block" else 0
    dims: tuple[int, ...] = {"tensor": (), "axis": (shape[axis],)}.get(how, tuple(-(-n // block) if k == axis else n for k, n in enumerate(shape)) if block else ())  # fmt: skip
    weights = {
        "q": helper.make_tensor("q", KINDS[kind], shape, rng.integers(low, high + 1, shape).reshape(-1).tolist()),
        "s": numpy_helper.from_array((0.01 + 0.1 * rng.random(dims)).astype(np.float32), "s"),
    }
    if zero:
        z = np.asarray(rng.integers(low, high + 1, dims))
        weights["z"] = helper.make_tensor("z", KINDS[kind], dims, z.reshape(-1).tolist())
    attrs = {"block_size": block} if block else {}
    return [helper.make_node("DequantizeLinear", list(weights), ["w"], axis=axis, **attrs)], weights


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("how", "axis"), [("tensor", 0), ("axis", 1), ("block", 0)])
def test_dequantized_weights_of_a_product(kind: str, how: str, axis: int) -> None:
    nodes, weights = dequantized(kind, (64, 48), how, axis, kind != "int4")
    nodes.append(helper.make_node("MatMul", ["x", "w"], ["y"]))
    net = held(model(nodes, {"x": (FLOAT, ("m", 64))}, weights), rows(64, 1, 11))
    assert any("packed_matmul" in ops for ops in net.report.functions.values())


@pytest.mark.parametrize("kind", ["uint4", "int8"])
@pytest.mark.parametrize(("how", "axis"), [("axis", 0), ("block", 1)])
def test_dequantized_weights_of_a_gemm(kind: str, how: str, axis: int) -> None:
    nodes, weights = dequantized(kind, (48, 64), how, axis, True)
    weights["c"] = np.random.default_rng(1).standard_normal(48).astype(np.float32)
    nodes.append(helper.make_node("Gemm", ["x", "w", "c"], ["y"], transB=1))
    net = held(model(nodes, {"x": (FLOAT, ("m", 64))}, weights), rows(64, 1, 11))
    assert len(net.plan.steps) == 1


def test_dequantized_weights_behind_a_transpose_and_of_two_readers() -> None:
    nodes, weights = dequantized("int8", (48, 64), "axis", 0, False)
    nodes += [
        helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]), helper.make_node("MatMul", ["x", "t"], ["a"]),
        helper.make_node("MatMul", ["a", "w"], ["b"]), helper.make_node("MatMul", ["b", "t"], ["y"]),
    ]  # fmt: skip
    held(model(nodes, {"x": (FLOAT, ("m", 64))}, weights), rows(64, 1, 9))


@pytest.mark.parametrize("target", ["llvm", "rocm -mcpu=gfx942"])
@pytest.mark.parametrize("kind", ["uint4", "int8"])
def test_a_gather_makes_the_rows_that_it_takes(kind: str, target: str) -> None:
    nodes, weights = dequantized(kind, (96, 64), "block", 1, True)
    nodes.append(helper.make_node("Gather", ["w", "i"], ["y"], axis=0))
    proto = model(nodes, {"i": (TensorProto.INT64, (2, 5))}, weights, (2, 5, 64))
    net = held(proto, [{"i": np.arange(10).reshape(2, 5) * 9}], target)
    assert max(v.nbytes for v in net.params.values()) <= 96 * 64


def test_gather_of_a_packed_table() -> None:
    rng = np.random.default_rng(2)
    q, s, z = quantized(rng.standard_normal((64, 96)).astype(np.float32), 4, 32, True)
    assert z is not None
    weights = {"q": q.reshape(96, 32), "s": s, "z": z}
    node = helper.make_node("GatherBlockQuantized", ["q", "i", "s", "z"], ["y"], domain=MS, bits=4, block_size=32, gather_axis=0, quantize_axis=1)  # fmt: skip
    held(model([node], {"i": (TensorProto.INT64, (3,))}, weights, (3, 64)), [{"i": np.array([0, 95, 7])}])


def test_what_is_no_product_becomes_numbers_once() -> None:
    nodes, weights = dequantized("int8", (48, 64), "axis", 0, False)
    nodes.append(helper.make_node("Add", ["x", "w"], ["y"]))
    net = held(model(nodes, {"x": (FLOAT, (48, 64))}, weights, (48, 64)), rows(64, 48))
    assert [n for ops in net.report.functions.values() for n in ops] == ["add"]


def test_packages_and_memory_hold_codes(tmp_path: Path) -> None:
    k, n = 512, 768
    net = tec.compile(n_bits(k, n, 4, 32), target="llvm", cache=False)
    net.save(tmp_path / "net.tecnet")
    assert sum(v.nbytes for v in net.params.values()) <= k * n * 5 // 8  # half a byte and a 32nd of a scale each
    assert (tmp_path / "net.tecnet").stat().st_size < k * n * 4 // 5
    again = tec.load(tmp_path / "net.tecnet")
    x = rows(k, 1)[0]
    np.testing.assert_array_equal(again.run(x)[0], net.run(x)[0])
