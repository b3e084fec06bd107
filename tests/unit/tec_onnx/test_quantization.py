"""Quantizing after training: ranges, what is written, that integers compute it, how near it stays, what is refused, and the command."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tec_onnx import quantize
from tec_onnx.quantization.rewrite import fold_batch_norms
from tec_onnx.quantization.samples import samples_of
from tec_onnx.quantization.thresholds import Seen, threshold

import tec
from tec.errors import TecError
from tests.unit.cli.conftest import tec_cli  # noqa: F401

RNG = np.random.default_rng(11)


def f32(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("f")


def network(batch: Any = "n", opset: int = 17, bias: bool = True) -> onnx.ModelProto:
    """Two convolutions (one with a BatchNormalization behind it), a residual, a pooling and a Gemm."""
    weights = {
        "w1": f32(16, 3, 3, 3) * 0.3, "b1": f32(16), "w2": f32(16, 16, 3, 3) * 0.1, "scale": abs(f32(16)) + 0.5, "shift": f32(16), "mean": f32(16),
        "var": abs(f32(16)) + 0.5, "w3": f32(10, 16), "b3": f32(10),
    }  # fmt: skip
    pads = {"pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], "first", **pads),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], "second", **pads),
        helper.make_node("BatchNormalization", ["c2", "scale", "shift", "mean", "var"], ["n2"]),
        helper.make_node("Add", ["n2", "r1"], ["a2"]),
        helper.make_node("GlobalAveragePool", ["a2"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "w3", "b3"][: 2 + bias], ["y"], "head", transB=1),
    ]
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, 12, 12])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 10])],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


NET, X = network(), f32(6, 3, 12, 12)


@pytest.fixture(scope="module")
def made() -> Any:
    return quantize(NET, {"x": X})


def test_what_is_written(made: Any) -> None:
    onnx.checker.check_model(made.model, full_check=True)
    ops = [n.op_type for n in made.model.graph.node]
    assert ops.count("QuantizeLinear") == 3 and "BatchNormalization" not in ops
    stored = {t.name: numpy_helper.to_array(t) for t in made.model.graph.initializer}
    assert sum(a.dtype == np.int8 and a.ndim > 1 for a in stored.values()) == 3
    assert not any(a.dtype == np.float32 and a.ndim > 1 for a in stored.values())
    assert stored["w1/axis0/scale"].shape == (16,) and stored["c1/bias/quantized"].dtype == np.int32
    assert [x.name for x in made.layers] == ["first", "second", "head"] and all(
        x.signal_to_noise > 30 for x in made.layers
    )


def test_it_stays_near_and_others_read_it(made: Any) -> None:
    ort = pytest.importorskip("onnxruntime")
    assert made.signal_to_noise["y"] > 30 and made.agreement["y"] == 1.0 and made.samples == 6
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    want = ort.InferenceSession(made.model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(
        None, {"x": X}
    )[0]
    (got,) = tec.compile(made.model, shapes={"x": X.shape}).run({"x": X})
    np.testing.assert_allclose(got, want, 0, 0.02 * abs(want).max())


@pytest.mark.parametrize("target", ["llvm -mcpu=znver4", "rocm -mcpu=gfx942", "rocm -mcpu=gfx1100"])
def test_products_are_of_integers(made: Any, target: str) -> None:
    net = tec.compile(made.model, shapes={"x": (1, 3, 12, 12)}, target=target)
    words = {"llvm": "vpdpbusd", "gfx942": "v_mfma_i32", "gfx1100": "v_wmma_i32"}
    assert next(w for k, w in words.items() if k in target) in net.get_source("asm")


@pytest.mark.parametrize(("method", "activations"), [("percentile", "uint8"), ("entropy", "int8"), ("mse", "uint8")])
def test_methods(method: str, activations: str) -> None:
    x = X.copy()
    x[0, 0, 0, 0] = 60.0  # an outlier, which the steps of all others pay for if it is kept
    result = quantize(NET, {"x": x}, method=method, activations=activations, sensitivity=False)
    (first, *_) = result.layers
    assert first.high < 60 or method == "entropy"
    kept = quantize(NET, {"x": x}, activations=activations, sensitivity=False)
    assert kept.layers[0].high == 60
    assert np.isnan(first.signal_to_noise) and result.signal_to_noise["y"] > 10


def test_what_hurts_stays_in_float() -> None:
    named = quantize(NET, {"x": X}, keep=["second"], sensitivity=False)
    assert [x.is_quantized for x in named.layers] == [True, False, True]
    assert sum(n.op_type == "QuantizeLinear" for n in named.model.graph.node) == 2
    all_kept = quantize(NET, {"x": X}, min_signal_to_noise=200.0)
    assert not any(x.is_quantized for x in all_kept.layers) and all_kept.signal_to_noise["y"] > 100
    assert quantize(NET, {"x": X}, per_channel=False, sensitivity=False).signal_to_noise["y"] > 20


def test_a_lower_opset_is_converted() -> None:
    """Of a network whose last product has no bias: none is written."""
    made = quantize(network(opset=11, bias=False), {"x": X[:1]}, sensitivity=False)
    assert made.signal_to_noise["y"] > 30
    assert [len(n.input) for n in made.model.graph.node if n.op_type in ("Conv", "Gemm")] == [3, 3, 2]


def test_batch_norms_are_folded() -> None:
    folded = fold_batch_norms(NET)
    a, b = (tec.compile(m, shapes={"x": X.shape}).run({"x": X})[0] for m in (NET, folded))
    np.testing.assert_allclose(a, b, 1e-4, 1e-4)


# ---- thresholds


def seen(x: Any) -> Seen:
    s = Seen()
    s.widen(x)
    s.count(x)
    return s


@pytest.mark.parametrize("method", ["minmax", "percentile", "entropy", "mse"])
def test_thresholds_are_within_what_was_seen(method: str) -> None:
    x = np.concatenate([RNG.standard_normal(100_000), [25.0, -3.0]]).astype("f")
    low, high = threshold(seen(x), method)
    assert x.min() <= low < 0 < high <= x.max()
    if method != "minmax":
        step = (high - low) / 255
        q = lambda a, b, s: np.clip(np.round((x - a) / s), 0, 255) * s + a  # noqa: E731
        whole = np.mean((q(x.min(), x.max(), np.ptp(x) / 255) - x)[:-2] ** 2)
        assert np.mean((q(low, high, step) - x)[:-2] ** 2) < whole  # finer for all but the outlier


@pytest.mark.parametrize("method", ["minmax", "percentile", "entropy", "mse"])
@pytest.mark.parametrize(
    "x",
    [np.zeros(4, "f"), np.full(4, 3.0, "f"), np.array([np.nan, 1, 2], "f"), np.array([], "f"), np.array([np.inf], "f")],
)
def test_thresholds_of_few_values(method: str, x: Any) -> None:
    low, high = threshold(seen(x), method)
    assert np.isfinite(low) and np.isfinite(high) and low <= high


# ---- samples


def test_samples_from_files(tmp_path: Path) -> None:
    takes = {"x": ("float32", ["n", 3])}
    np.save(tmp_path / "a.npy", f32(4, 3))
    np.savez(tmp_path / "b.npz", x=f32(2, 3))
    assert [s["x"].shape for s in samples_of(tmp_path, takes)] == [(1, 3)] * 6
    assert len(samples_of(tmp_path / "b.npz", {"x": ("float32", [2, 3])})) == 1
    assert len(samples_of([{"x": f32(1, 3)}] * 2, takes)) == 2


MISTAKES: dict[str, tuple[Any, dict[str, Any], str]] = {
    "no such file": ("nowhere.npz", {}, "no such file"),
    "another shape": ({"x": f32(2, 4, 12, 12)}, {}, "has shape"),
    "another name": ({"z": X}, {}, "no array 'x'"),
    "nothing": ([], {}, "no samples"),
    "no mapping": ([X], {}, "sample 0 is a ndarray"),
    "a number": (3, {}, "samples are a int"),
    "an unknown method": ({"x": X}, {"method": "best"}, "unknown method 'best'"),
    "an unknown type": ({"x": X}, {"activations": "int4"}, "activations of 'int4'"),
    "an unknown node": ({"x": X}, {"keep": ["third"]}, "no node 'third' to keep"),
    "a bound without measures": ({"x": X}, {"min_signal_to_noise": 3, "sensitivity": False}, "without sensitivity"),
    "a percentile of nothing": ({"x": X}, {"percentile": 0}, "percentile=0"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str) -> None:
    samples, options, says = MISTAKES[name]
    with pytest.raises(tec.ImportModelError, match=says):
        quantize(NET, samples, **options)


def test_a_model_without_products() -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )  # fmt: skip
    with pytest.raises(tec.ImportModelError, match="nothing to quantize"):
        quantize(helper.make_model(graph), {"x": f32(2)})


# ---- the command


def test_the_command(tmp_path: Path, tec_cli: Any) -> None:  # noqa: F811
    onnx.save(NET, tmp_path / "net.onnx")
    np.savez(tmp_path / "s.npz", x=X[:2])
    out = tec_cli("quantize", tmp_path / "net.onnx", "-c", tmp_path / "s.npz", "--keep", "head")
    assert out.exit_code == 0 and "float32 (kept)" in out.output and "output y" in out.output
    assert re.search(r"net-int8.onnx: [\d.]+ KiB, was [\d.]+ KiB", out.output), "not 0.0 MB"
    assert (tmp_path / "net-int8.onnx").stat().st_size < (tmp_path / "net.onnx").stat().st_size
    out = tec_cli(
        "quantize",
        tmp_path / "net.onnx",
        "-c",
        tmp_path / "s.npz",
        "--json",
        "--no-sensitivity",
        "-o",
        tmp_path / "q.onnx",
    )
    data = json.loads(out.output)
    assert (
        len(data["layers"]) == 3 and data["layers"][0]["signal_to_noise"] is None and data["signal_to_noise"]["y"] > 20
    )
    out = tec_cli("quantize", tmp_path / "net.onnx", "-c", tmp_path / "s.npz", "-o", tmp_path / "net.onnx")
    assert out.exit_code == 2 and "is the model itself" in out.output


@pytest.mark.parametrize(
    "dtype, floats",
    [
        ({"head": "float32"}, {"head"}),
        ({"": "float32", "*d": "int8"}, {"first"}),
        ({"*": "float32", "second": "int8"}, {"first", "head"}),
        ("int8;first=float32", {"first"}),
    ],
)
def test_types_by_node(dtype: Any, floats: set[str]) -> None:
    result = quantize(NET, {"x": X[:2]}, dtype=dtype, sensitivity=False)
    assert {x.name for x in result.layers if not x.is_quantized} == floats
    inputs = {n.name: n.input[0] for n in result.model.graph.node if n.op_type in ("Conv", "Gemm")}
    made = {n.output[0] for n in result.model.graph.node if n.op_type == "DequantizeLinear"}
    assert {n for n, x in inputs.items() if x not in made} == floats


@pytest.mark.parametrize(
    "dtype, says",
    [
        ({"": "float16"}, "int8, float32, mxfp4"),
        ({"heat": "int8"}, "head"),
        ({"": "float32"}, "nothing is left to quantize"),
    ],
)
def test_types_that_do_not_fit(dtype: Any, says: str) -> None:
    with pytest.raises(tec.ImportModelError) as caught:
        quantize(NET, {"x": X[:2]}, dtype=dtype, sensitivity=False)
    assert says in str(caught.value)


@pytest.mark.parametrize("dtype, near", [("float16", 2e-2), ("bfloat16", 1e-1)])
def test_what_stays_float_computes_in_sixteen_bits(made: Any, dtype: str, near: float) -> None:
    """Mixed precision on a quantized model: its products stay those of bytes."""
    plain, mixed = (
        np.asarray(tec.compile(made.model, "llvm", dtype=t, cache=False).run({"x": X})[0], "f") for t in (None, dtype)
    )
    assert abs(mixed - plain).max() <= near * abs(plain).max()


def test_the_commands_types(tmp_path: Path, tec_cli: Any) -> None:  # noqa: F811
    onnx.save(NET, tmp_path / "net.onnx")
    np.savez(tmp_path / "x.npz", x=X)
    got = tec_cli("quantize", tmp_path / "net.onnx", "-c", tmp_path / "x.npz", "--dtype", "float32", "--dtype", "*nd=int8", "--no-sensitivity", "--json")  # fmt: skip
    assert got.exit_code == 0, got.output
    assert [x["name"] for x in json.loads(got.stdout)["layers"] if x["quantized"]] == ["second"]
    wrong = tec_cli("quantize", tmp_path / "net.onnx", "-c", tmp_path / "x.npz", "--dtype", "bfloat16")
    assert wrong.exit_code == 2 and "'int8', 'float32'" in wrong.output


@pytest.mark.parametrize("words", [(), ("--no-sensitivity",)])
def test_the_command_measures_layers_unless_told_not_to(
    tmp_path: Path,
    tec_cli: Any,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
) -> None:
    asked: list[Any] = []

    def stand_in(*args: Any, **options: Any) -> Any:
        asked.append(options["sensitivity"])
        raise TecError("no more is asked here")

    monkeypatch.setattr("tec.cli.quantizing.quantizer_of", lambda model: stand_in)
    onnx.save(NET, tmp_path / "net.onnx")
    np.savez(tmp_path / "s.npz", x=X[:2])
    tec_cli("quantize", tmp_path / "net.onnx", "-c", tmp_path / "s.npz", *words)
    assert asked == [not words]
