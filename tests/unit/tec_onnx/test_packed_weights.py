"""Weights of 4 and 8 bits: MatMulNBits and dequantized constants against ONNX Runtime, in memory and in packages no larger than they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tec
from tec import te
from tec.choices import layouts
from tec.ops.packed import Weights
from tec.ops.registry import TensorType, get_op
from tests.networks.genai import MS, quantized
from tests.thinned import thinned, thinned_rows

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
    # Else it rounds x to bytes before such products.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
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


@thinned_rows(
    2,
    ("k", "n", "bits", "block", "zeros"),
    [
        (64, 64, 4, 16, ""), (64, 70, 4, 32, "packed"), (100, 33, 4, 32, "packed"), (512, 40, 4, 256, "float"), (96, 33, 8, 32, "packed"),
        (256, 32, 8, 64, ""), (384, 48, 4, 128, "packed"),
    ],
)  # fmt: skip
def test_matmul_of_few_bits(k: int, n: int, bits: int, block: int, zeros: str) -> None:
    net = held(n_bits(k, n, bits, block, zeros), rows(k, 1, 2, 3, 5, 8, 11, 77))
    assert any("packed_matmul" in ops for ops in net.report.functions.values())


def test_bias_and_residual_follow_in_the_same_function() -> None:
    net = held(n_bits(64, 48, 4, 32, bias=True), rows(64, 1, 9))
    assert len(net.plan.steps) == 1


@thinned(1, ("m", [1, 2, 20]), ("bits, block, zeros", [(4, 32, ""), (4, 64, "packed"), (8, 32, "packed")]))
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


@thinned(1, ("kind", KINDS), ("how, axis", [("tensor", 0), ("axis", 1), ("block", 0)]))
def test_dequantized_weights_of_a_product(kind: str, how: str, axis: int) -> None:
    nodes, weights = dequantized(kind, (64, 48), how, axis, kind != "int4")
    nodes.append(helper.make_node("MatMul", ["x", "w"], ["y"]))
    net = held(model(nodes, {"x": (FLOAT, ("m", 64))}, weights), rows(64, 1, 11))
    assert any("packed_matmul" in ops for ops in net.report.functions.values())


@pytest.mark.parametrize(("m", "is_packed"), [(256, False), (40, True)])
def test_small_weights_of_many_rows_are_numbers(m: int, is_packed: bool) -> None:
    """Codes would be decoded again for each block of rows, to save what fits a cache."""
    nodes, weights = dequantized("int8", (64, 48), "axis", 1, True)
    nodes.append(helper.make_node("MatMul", ["x", "w"], ["y"]))
    net = held(model(nodes, {"x": (FLOAT, (m, 64))}, weights, (m, 48)), rows(64, m))
    assert any("packed_matmul" in ops for ops in net.report.functions.values()) == is_packed


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


@thinned(1, ("target", ["llvm", "rocm -mcpu=gfx942"]), ("kind", ["uint4", "int8"]))
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


def at_level_4(k: int, n: int, bits: int, block: int, zeros: str) -> Any:
    """The product whose model lets x be rounded to bytes."""
    proto = n_bits(k, n, bits, block, zeros)
    proto.graph.node[0].attribute.append(helper.make_attribute("accuracy_level", 4))
    return proto


@thinned_rows(  # of each width of a number one, with and without zeros
    3,
    ("k", "n", "bits", "block", "zeros"),
    [(64, 64, 4, 16, ""), (100, 33, 4, 32, "packed"), (512, 70, 4, 128, ""), (96, 33, 8, 32, "packed"), (256, 32, 8, 64, "")],
)  # fmt: skip
def test_level_4_rounds_x_as_onnx_runtime_does(k: int, n: int, bits: int, block: int, zeros: str) -> None:
    proto, exact = at_level_4(k, n, bits, block, zeros), n_bits(k, n, bits, block, zeros)
    if layouts.packed_group(tec.Target("llvm")) == 1:
        held(exact, rows(k, 1, 5))
        np.testing.assert_array_equal(*(tec.compile(p, cache=False).run(rows(k, 5)[0])[0] for p in (proto, exact)))
        return
    net = tec.compile(proto, cache=False)
    for f in rows(k, 1, 2, 7, 18, 131):
        (got,) = net.run(f)
        (want,) = (s.run(None, f)[0] for s in [ort.InferenceSession(exact.SerializeToString())])
        q = f["x"].reshape(len(f["x"]), -1, block) if k % block == 0 else None
        error = np.abs(got - want).max() / np.abs(want).max()
        assert 1e-4 < error < 2e-2, error  # bytes of x, some half of a per cent
        if q is not None:  # ONNX Runtime's own rounding, or this: x as its bytes mean it
            scale = np.abs(q).max(-1, keepdims=True) / np.float32(127)
            meant = (np.rint(q * (np.float32(1) / scale)) * scale).reshape(f["x"].shape)
            (same,) = tec.compile(exact, cache=False).run({"x": meant})
            np.testing.assert_allclose(got, same, rtol=0, atol=2e-6 * np.abs(want).max())
    (zero,) = net.run({"x": np.zeros((3, k), np.float32)})
    assert not zero.any()
    broken = rows(k, 3)[0]["x"]
    broken[1, 3] = np.nan
    (spread,) = net.run({"x": broken})
    assert np.isnan(spread[1]).all() and np.isfinite(spread[[0, 2]]).all()


def test_level_4_on_other_processors() -> None:
    """A core without such products keeps x as it is; bytes are multiplied by vpdpbusd, once a word of x for all columns, or by way of 16 bits."""
    proto = at_level_4(64, 64, 4, 32, "")
    plain = tec.compile(proto, target="llvm -mcpu=x86-64-v2", cache=False)
    assert "round_blocks" not in str(plain.report.functions)
    narrow = tec.compile(proto, target="llvm -mcpu=haswell", cache=False)
    assert "vpmaddubsw" in narrow.get_source("asm")
    with_dots = tec.compile(proto, target="llvm -mcpu=icelake-server", cache=False)
    assert "vpdpbusd" in with_dots.get_source("asm")
    assert str(with_dots.report.choices).count("cpu packed product of bytes") == 1
    gpu = tec.compile(proto, target="rocm -mcpu=gfx942", cache=False)
    assert "round_blocks" not in str(gpu.report.functions)


def test_products_share_the_bytes_of_x() -> None:
    one = at_level_4(64, 32, 4, 32, "")
    node = helper.make_node("MatMulNBits", ["x", "q2", "s2"], ["y2"], domain=MS, K=64, N=40, bits=4, block_size=32, accuracy_level=4)  # fmt: skip
    other = n_bits(64, 40, 4, 32)
    for t in other.graph.initializer:
        one.graph.initializer.add().CopyFrom(t)
        one.graph.initializer[-1].name += "2"
    one.graph.node.append(node)
    one.graph.output.append(helper.make_tensor_value_info("y2", FLOAT, ["m", 40]))
    net = tec.compile(one, target="llvm -mcpu=icelake-server", cache=False)
    assert sum("round_blocks" in ops for ops in net.report.functions.values()) == 1
    assert len(net.plan.steps) == 3


@pytest.mark.parametrize("bits", [4, 8])
def test_codes_in_fours_mean_what_they_are(bits: int) -> None:
    """The order of codes for products of bytes, by the definition and by the reference on the host."""
    w = Weights(bits, 16, 16, 32, 24, 8.0, 4)
    rng = np.random.default_rng(bits)
    codes = rng.integers(0, 1 << bits, (24, 32)).astype(np.uint8)
    scales, x = rng.standard_normal((24, 2)).astype(np.float32), rng.integers(-127, 128, (3, 32)).astype(np.int8)
    x_scale = np.abs(rng.standard_normal((3, 2))).astype(np.float32)
    want = (x * np.repeat(x_scale, 16, 1)) @ ((codes - np.float32(8)) * np.repeat(scales, 16, 1)).T
    attrs = {"bits": bits, "block": 16, "panel": 16, "depth": 32, "columns": 24, "zero": 8.0, "group": 4}
    arrays = [x, w.store(codes), w.store_blocks(scales), x_scale]
    ins = [te.placeholder(a.shape, str(a.dtype), name=f"a{k}") for k, a in enumerate(arrays)]
    definition, types = get_op("packed_matmul"), [TensorType(str(a.dtype), a.shape) for a in arrays]
    outs = definition.infer(types, attrs)
    (meant,) = te.evaluate(definition.compute(attrs, ins, outs), dict(zip(ins, arrays)))
    np.testing.assert_allclose(meant, want, rtol=0, atol=1e-6 * np.abs(want).max())
    (host,) = definition.host(attrs, arrays, outs)
    np.testing.assert_allclose(host, want, rtol=0, atol=1e-6 * np.abs(want).max())
