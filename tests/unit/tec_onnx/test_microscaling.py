"""Weights of microscaling formats in networks: DequantizeLinear with powers of two for scales, and `tec quantize` that makes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tec_onnx.quantization import quantize as quantize_model

import tec
from tec.ir.microscaling import dequantize, format_of, pack, quantize, unpack
from tec.ops.packed import packed
from tec.ops.registry import TensorType, get_op
from tests.thinned import thinned, thinned_rows

TYPES = {
    "mxfp8_e4m3": TensorProto.FLOAT8E4M3FN, "mxfp8_e5m2": TensorProto.FLOAT8E5M2, "mxfp4_e2m1": TensorProto.FLOAT4E2M1,
    "mxfp6_e3m2": getattr(TensorProto, "FLOAT6E3M2", 0), "mxfp6_e2m3": getattr(TensorProto, "FLOAT6E2M3", 0),
}  # fmt: skip
M, K, N = 24, 96, 80


def product(w: Any, name: str, transposed: bool) -> tuple[Any, Any]:
    """x times weights [n, k] of a format, stored as [n, k] or [k, n]; and what the weights are."""
    f, (elements, scales) = format_of(name), quantize(w, name)
    codes = unpack(elements, f)
    codes, scales_as = (codes, scales) if transposed else (codes.T, scales.T)
    given = [
        TensorProto(name="q", data_type=TYPES[name], dims=codes.shape, raw_data=pack(codes.reshape(-1), f).tobytes()),
        TensorProto(name="s", data_type=TensorProto.FLOAT8E8M0, dims=scales_as.shape, raw_data=scales_as.tobytes()),
    ]
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=int(transposed), block_size=32, output_dtype=1),
        helper.make_node("Gemm", ["x", "w"], ["y"], transB=int(transposed)),
    ]
    ins, outs = (helper.make_tensor_value_info(n, 1, s) for n, s in (("x", [M, K]), ("y", [M, N])))
    graph = helper.make_graph(nodes, "g", [ins], [outs], given)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=12)
    return model, dequantize(elements, scales, name)


@thinned(1, ("chip", ["", "gfx942", "gfx950", "gfx1100"]), (
    "name, transposed", [("mxfp4_e2m1", True), ("mxfp4_e2m1", False), ("mxfp8_e4m3", True), ("mxfp8_e5m2", False), ("mxfp6_e3m2", True), ("mxfp6_e2m3", False)],
))  # fmt: skip
def test_products_with_weights_as_stored(chip: str, name: str, transposed: bool) -> None:
    rng = np.random.default_rng(7)
    x = rng.standard_normal((M, K)).astype(np.float32)
    model, w = product(rng.standard_normal((N, K)).astype(np.float32), name, transposed)
    net = tec.compile(model, target=f"rocm -mcpu={chip}" if chip else "llvm", cache=False)
    (got,) = net.run({"x": x}, device=tec.rocm_emu(chip, check="all") if chip else tec.cpu())
    want = x.astype("f8") @ w.astype("f8").T
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-6 * np.abs(want).max())
    bits = 8 if format_of(name).bits == 6 and not chip else format_of(name).bits  # panels have six one a byte
    most = w.size * bits // 8 + w.size // 32
    assert sum(v.nbytes for v in net.params.values()) <= most * 96 // 80  # on a CPU columns are filled up to a panel


def network() -> Any:
    """A convolution, two products, the second one without whole blocks."""
    rng = np.random.default_rng(9)
    weights = {"c": (8, 3, 3, 3), "a": (8 * 36, 64), "b": (40, 64)}
    given = [
        numpy_helper.from_array((rng.standard_normal(s) / 8).astype(np.float32), n) for n, s in weights.items()
    ] + [numpy_helper.from_array(rng.standard_normal((40, 10)).astype(np.float32), "d")]
    nodes = [
        helper.make_node("Conv", ["x", "c"], ["t"], name="conv"), helper.make_node("Flatten", ["t"], ["f"]),
        helper.make_node("MatMul", ["f", "a"], ["g"], name="first"), helper.make_node("Relu", ["g"], ["r"]),
        helper.make_node("Gemm", ["r", "b"], ["h"], name="second", transB=1), helper.make_node("MatMul", ["h", "d"], ["y"], name="head"),
    ]  # fmt: skip
    ins, outs = (helper.make_tensor_value_info(n, 1, s) for n, s in (("x", [1, 3, 8, 8]), ("y", [1, 10])))
    return helper.make_model(
        helper.make_graph(nodes, "g", [ins], [outs], given), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )


def test_quantizing_weights_alone() -> None:
    proto = network()
    x = np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)
    plain = quantize_model(proto, dtype={"": "mxfp4", "head": "float32"})
    assert {layer.name: layer.is_quantized for layer in plain.layers} == {
        "conv": False, "first": True, "second": True, "head": False
    }  # fmt: skip
    types = {t.name: t.data_type for t in plain.model.graph.initializer}
    assert types["a/axis1/quantized"] == TensorProto.FLOAT4E2M1 and types["a/axis1/scale"] == TensorProto.FLOAT8E8M0
    onnx.checker.check_model(plain.model)
    judged = quantize_model(proto, {"x": x}, dtype={"": "mxfp8", "second": "int8"})
    assert judged.signal_to_noise["y"] > 25 and all(layer.signal_to_noise > 25 for layer in judged.layers[1:])
    want = tec.compile(proto, cache=False).run({"x": x})[0]
    got = tec.compile(plain.model, cache=False).run({"x": x})[0]
    assert 0.01 < np.linalg.norm(got - want) / np.linalg.norm(want) < 0.25
    with pytest.raises(tec.ImportModelError, match="need samples"):
        quantize_model(proto, dtype={"": "mxfp8", "second": "int8"})


@pytest.mark.skipif(not TYPES["mxfp6_e2m3"], reason="this onnx has no floats of six bits")
def test_six_bits() -> None:
    made = quantize_model(
        network(), dtype={"": "mxfp6", "second": "mxfp6_e3m2", "head": "float32"}, activations="mxfp6_e3m2"
    ).model
    onnx.checker.check_model(made)
    net = tec.compile(made, target="rocm -mcpu=gfx950", cache=False)
    x = np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)
    want = tec.compile(network(), cache=False).run({"x": x})[0]
    (got,), (same,) = net.run({"x": x}, device=tec.rocm_emu("gfx950")), tec.compile(made, cache=False).run({"x": x})
    # 0.18: two mantissa bits on one side of both products.
    assert 0.01 < np.linalg.norm(got - want) / np.linalg.norm(want) < 0.25
    # A value may round otherwise after sums in another order.
    np.testing.assert_allclose(got, same, rtol=0, atol=2e-2 * np.abs(want).max())
    codes = np.random.default_rng(2).integers(0, 64, (5, 70)).astype(np.uint8)
    attrs = {"bits": 6, "shape": (5, 70), "axis": 1, "block": 32, "dtype": "float32", "format": "mxfp6_e2m3"}
    arrays = [packed(codes, 6), np.full((5, 3), 128, np.uint8)]
    types, op = [TensorType("uint8", a.shape) for a in arrays], get_op("dequantize")
    ins = [tec.te.placeholder(t.shape, "uint8", name=f"x{k}") for k, t in enumerate(types)]
    outs = op.infer(types, attrs)
    (numbers,) = tec.te.evaluate(op.compute(attrs, ins, outs), dict(zip(ins, arrays)))
    np.testing.assert_array_equal(numbers, 2 * format_of("mxfp6").numbers[codes])
    np.testing.assert_array_equal(op.host(attrs, arrays, outs)[0], numbers)


def test_the_command_line_needs_no_samples(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from tec.cli.quantizing import command

    onnx.save(network(), tmp_path / "net.onnx")
    done = CliRunner().invoke(command, [str(tmp_path / "net.onnx"), "--dtype", "mxfp4"])
    assert done.exit_code == 0 and "first" in done.output, done.output
    assert (tmp_path / "net-mxfp4.onnx").stat().st_size < (tmp_path / "net.onnx").stat().st_size / 3


def mx_product(k: int, kind: str = "fp8_e4m3", **attrs: Any) -> tuple[Any, Any, Any]:
    """relu(x w + b), x rounded when it is known, w constant numbers that are rounded likewise (as AMD Quark writes them); w, b."""
    rng = np.random.default_rng(3)
    w, b = rng.standard_normal((k, N)).astype(np.float32), rng.standard_normal(N).astype(np.float32)
    attrs = {"element_dtype": kind, "axis": -1, "block_size": 32, "rounding_mode": 2, **attrs}
    nodes = [
        helper.make_node("MXQuantizeDequantize", ["x"], ["xq"], domain="com.amd.quark", **attrs),
        helper.make_node("MXQuantizeDequantize", ["w"], ["wq"], domain="com.amd.quark", **{**attrs, "axis": 0, "element_dtype": "fp4_e2m1"}),
        helper.make_node("MatMul", ["xq", "wq"], ["t"]), helper.make_node("Add", ["t", "b"], ["u"]), helper.make_node("Relu", ["u"], ["y"]),
    ]  # fmt: skip
    ins, outs = (helper.make_tensor_value_info(n, 1, s) for n, s in (("x", [2, 12, k]), ("y", [2, 12, N])))
    graph = helper.make_graph(
        nodes, "g", [ins], [outs], [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")]
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.amd.quark", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), w, b


@thinned_rows(3, ("chip", "k"), [("", 128), ("gfx950", 128), ("gfx950", 96), ("gfx942", 128), ("", 100)])
def test_both_sides_rounded(chip: str, k: int) -> None:
    model, w, b = mx_product(k)
    x = np.random.default_rng(4).standard_normal((2, 12, k)).astype(np.float32)
    net = tec.compile(model, target=f"rocm -mcpu={chip}" if chip else "llvm", cache=False)
    (got,) = net.run({"x": x}, device=tec.rocm_emu(chip, check="all") if chip else tec.cpu())

    def rounded(v: Any, name: str) -> Any:
        wide = np.pad(v, [(0, 0)] * (v.ndim - 1) + [(0, -k % 32)])
        return dequantize(*quantize(wide, name), name)[..., :k].astype("f8")

    want = np.maximum(rounded(x, "mxfp8") @ rounded(w.T, "mxfp4").T + b, 0)
    np.testing.assert_allclose(got, want, rtol=0, atol=5e-6 * np.abs(want).max())
    assert sum(v.nbytes for v in net.params.values() if v.nbytes > b.nbytes) < w.nbytes / 4  # the weights stay packed
    asm = net.get_source("asm")
    assert ("mfma_scale" in asm) == (chip == "gfx950" and k == 128)


def test_what_is_no_microscaling_format() -> None:
    for wrong, text in (
        ({"kind": "int8"}, "element_dtype"),
        ({"block_size": 16}, "block_size 16"),
        ({"rounding_mode": 0}, "rounding_mode 0"),
    ):
        with pytest.raises(tec.ImportModelError, match=text):
            tec.compile(mx_product(128, **wrong)[0], cache=False)


def test_quantizing_activations_too() -> None:
    proto, x = network(), np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)
    made = quantize_model(proto, {"x": x}, dtype={"": "mxfp8", "head": "float32"}, activations="mxfp8")
    assert [n.op_type for n in made.model.graph.node].count("MXQuantizeDequantize") == 2 and made.signal_to_noise[
        "y"
    ] > 20
    with pytest.raises(tec.ImportModelError, match="activations of 'mxfp5'"):
        quantize_model(proto, dtype="mxfp8", activations="mxfp5")
