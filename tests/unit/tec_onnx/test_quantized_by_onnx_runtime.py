"""Drawn networks that ONNX Runtime's quantizer has quantized, against ONNX Runtime unoptimised, each layer for itself.

Rounding decides between two neighbouring steps where a sum lies between them, and layers carry such a step on, so that networks of many layers differ
although each of their layers is right. Here every layer is given what ONNX Runtime's layer before it made, and may differ by one step in few places.
ONNX Runtime optimised is no judge: where processors have AVX2 and no VNNI, it adds two products of a uint8 and an int8 in 16 bits, which saturate.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, ValueInfoProto, helper, load, numpy_helper

import tec
from tec.graph import run_graph
from tec.graph.frontends import graph_of
from tec.graph.passes.quantized_products import quantized_products
from tec.graph.passes.requantize import requantize
from tests import seeds
from tests.thinned import thinned

ort = pytest.importorskip("onnxruntime")
quantization = pytest.importorskip("onnxruntime.quantization")

VNNI = tec.Target("llvm -mcpu=znver4")
# Weights of seven bits (`reduce_range`) where ONNX Runtime's own kernel for uint8 and int8 would saturate, which is in its operators, not in QDQ's floats.
WAYS = {
    "QDQ u8/s8": ("QDQ", "QUInt8", "QInt8", True, False, {}),
    "QDQ s8/s8": ("QDQ", "QInt8", "QInt8", True, False, {"ActivationSymmetric": True}),
    "QDQ u8/u8": ("QDQ", "QUInt8", "QUInt8", False, False, {}),
    "QOperator u8/u8": ("QOperator", "QUInt8", "QUInt8", False, False, {}),
    "QOperator u8/s8": ("QOperator", "QUInt8", "QInt8", True, True, {}),
    "QOperator s8/s8": ("QOperator", "QInt8", "QInt8", True, False, {}),
}
# At the gate: compiling takes seconds, and its products are of integers on every processor.
COMPILED = "QOperator u8/s8"


class Network:
    """Nodes and constants of a network that is drawn layer by layer; every method takes a tensor of `shapes` and gives the name of the next."""

    def __init__(self, text: str):
        self.r = random.Random(seeds.stream(text))
        self.n = np.random.default_rng(self.r.getrandbits(32))
        self.nodes: list[Any] = []
        self.values: list[Any] = []
        self.shapes: dict[str, tuple[int, ...]] = {"x": (1, 3, self.r.randint(9, 14), self.r.randint(9, 14))}

    def const(self, a: Any) -> str:
        name = f"c{len(self.values)}"
        self.values.append(numpy_helper.from_array(np.asarray(a), name))
        return name

    def floats(self, *shape: int) -> str:
        values: Any = self.n.standard_normal(shape)
        return self.const((values / np.sqrt(np.prod(shape[1:]))).astype(np.float32))

    def op(self, kind: str, inputs: list[str], shape: tuple[int, ...], **attrs: Any) -> str:
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attrs))
        self.shapes[name] = tuple(shape)
        return name

    def same(self, kind: str, *inputs: str, **attrs: Any) -> str:
        return self.op(kind, list(inputs), self.shapes[inputs[0]], **attrs)

    # ---- of images

    def conv(self, x: str, out: int = 0, stride: int = 1) -> str:
        n, c, h, w = self.shapes[x]
        each = out == 0 and self.r.random() < 0.4  # depthwise
        out, k, group = out or c, self.r.choice([1, 3]), c if each else 1
        size = [(d - 1) // stride + 1 for d in (h, w)]
        return self.op(
            "Conv", [x, self.floats(out, c // group, k, k), self.floats(out)], (n, out, *size), kernel_shape=[k, k],
            strides=[stride] * 2, pads=[k // 2] * 4, group=group,
        )  # fmt: skip

    def active(self, x: str) -> str:
        kind = self.r.choice(["Relu", "LeakyRelu", "Sigmoid", "Clip", "HardSigmoid"])
        limits = [self.const(np.float32(v)) for v in (0, 6)] if kind == "Clip" else []
        return self.same(kind, x, *limits)

    def narrowed(self, x: str) -> str:
        return self.active(self.conv(x, self.r.randint(4, 12), self.r.randint(1, 2)))

    def residual(self, x: str) -> str:
        return self.same("Add", self.conv(self.active(self.conv(x))), x)

    def gated(self, x: str) -> str:
        n, c, _, _ = self.shapes[x]
        mean = self.op("GlobalAveragePool", [x], (n, c, 1, 1))
        return self.same("Mul", x, self.same("Sigmoid", self.conv(mean)))

    def joined(self, x: str) -> str:
        n, c, h, w = self.shapes[x]
        return self.op("Concat", [x, self.active(self.conv(x))], (n, 2 * c, h, w), axis=1)

    def pooled(self, x: str) -> str:
        n, c, h, w = self.shapes[x]
        kind = self.r.choice(["MaxPool", "AveragePool"])
        return self.op(kind, [x], (n, c, h // 2, w // 2), kernel_shape=[2, 2], strides=[2, 2])

    # ---- of tokens

    def tokens(self, x: str) -> str:
        n, c, h, w = self.shapes[x]
        rows = self.op("Reshape", [x, self.const(np.array([n, c, h * w]))], (n, c, h * w))
        return self.op("Transpose", [rows], (n, h * w, c), perm=[0, 2, 1])

    def linear(self, x: str, out: int) -> str:
        shape = (*self.shapes[x][:-1], out)
        return self.same(
            "Add", self.op("MatMul", [x, self.const(self.weights(self.shapes[x][-1], out))], shape), self.floats(out)
        )

    def weights(self, k: int, n: int) -> Any:
        return (self.n.standard_normal((k, n)) / np.sqrt(k)).astype(np.float32)

    def attended(self, x: str) -> str:
        n, m, c = self.shapes[x]
        h = self.same("LayerNormalization", x, self.floats(c), self.floats(c))
        turned = self.op("Transpose", [self.linear(h, c)], (n, c, m), perm=[0, 2, 1])
        share = self.same("Softmax", self.op("MatMul", [self.linear(h, c), turned], (n, m, m)), axis=-1)
        return self.same("Add", self.op("MatMul", [share, self.linear(h, c)], (n, m, c)), x)

    def widened(self, x: str) -> str:
        c = self.shapes[x][-1]
        h = self.linear(x, 2 * c)
        erf = self.same("Erf", self.same("Div", h, self.const(np.float32(1.4142135))))
        half = self.same(
            "Mul", self.same("Mul", h, self.same("Add", erf, self.const(np.float32(1)))), self.const(np.float32(0.5))
        )
        return self.same("Add", self.linear(half, c), x)

    def model(self) -> Any:
        y = self.narrowed("x")
        for layer in self.r.sample([self.residual, self.gated, self.joined, self.pooled, self.narrowed], 2):
            y = layer(y)
        if self.r.random() < 0.5:
            y = self.widened(self.attended(self.tokens(y)))
            y = self.op("ReduceMean", [y], self.shapes[y][::2], axes=[1], keepdims=0)
        else:
            n, c, _, _ = self.shapes[y]
            y = self.op("Flatten", [self.op("GlobalAveragePool", [y], (n, c, 1, 1))], (n, c), axis=1)
        y = self.op("Gemm", [y, self.floats(10, self.shapes[y][-1]), self.floats(10)], (1, 10), transB=1)
        ends = [helper.make_tensor_value_info(v, TensorProto.FLOAT, self.shapes[v]) for v in ("x", y)]
        graph = helper.make_graph(self.nodes, "g", ends[:1], ends[1:], self.values)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


class Given(quantization.CalibrationDataReader):  # type: ignore[misc, name-defined]
    def __init__(self, feeds: list[dict[str, Any]]):
        self.feeds = feeds

    def get_next(self) -> dict[str, Any] | None:
        return self.feeds.pop() if self.feeds else None


def quantized(net: Network, way: str, path: Path) -> tuple[Any, dict[str, Any]]:
    """The network quantized by ONNX Runtime, and an input that it was not calibrated by."""
    form, of, weights, each, fewer, more = WAYS[way]
    seen, unseen = ({"x": net.n.standard_normal(net.shapes["x"]).astype(np.float32)} for _ in range(2))
    quantization.quantize_static(
        net.model(), path, Given([seen]), quant_format=quantization.QuantFormat[form], per_channel=each, reduce_range=fewer,
        activation_type=quantization.QuantType[of], weight_type=quantization.QuantType[weights], extra_options=more,
    )  # fmt: skip
    return load(path), unseen


def unoptimised(m: ModelProto, feeds: dict[str, Any]) -> dict[str, Any]:
    options = ort.SessionOptions()
    options.graph_optimization_level, options.intra_op_num_threads = ort.GraphOptimizationLevel.ORT_DISABLE_ALL, 1
    session = ort.InferenceSession(m.SerializeToString(), options)
    return dict(zip((o.name for o in session.get_outputs()), session.run(None, feeds)))


def copied(m: ModelProto) -> ModelProto:
    other = ModelProto()
    other.CopyFrom(m)
    return other


def steps(m: ModelProto) -> list[str]:
    """What is quantized at run time."""
    fixed = {v.name for v in m.graph.initializer}
    return [n.output[0] for n in m.graph.node if n.op_type.startswith("Q") and not set(n.input) - {""} <= fixed]


def layer_by_layer(m: ModelProto, feeds: dict[str, Any]) -> tuple[ModelProto, dict[str, Any], dict[str, Any]]:
    """The network whose layers read inputs where they read each other's bytes; what ONNX Runtime gives them to read, and what it makes of it."""
    seen = copied(m)
    seen.graph.output.extend(ValueInfoProto(name=t) for t in steps(m))
    made = unoptimised(seen, feeds)
    cut = copied(m)
    for n in cut.graph.node:
        for k, name in enumerate(n.input):
            if name in steps(m):
                n.input[k] = f"{name}__given"
    read = {name for n in cut.graph.node for name in n.input}
    names = [o.name for o in m.graph.output]
    for t in steps(m):
        kind = helper.np_dtype_to_tensor_dtype(made[t].dtype)
        if f"{t}__given" in read:
            cut.graph.input.append(helper.make_tensor_value_info(f"{t}__given", kind, made[t].shape))
        if t not in names:
            cut.graph.output.append(helper.make_tensor_value_info(t, kind, made[t].shape))
    given = {f"{t}__given": made[t] for t in steps(m) if f"{t}__given" in read}
    return cut, {**feeds, **given}, made


def between(got: Any, want: Any) -> Any:
    return np.abs(np.asarray(got).astype(np.int64) - np.asarray(want).astype(np.int64))


@thinned(1, ("way", list(WAYS)), ("number", range(2)))
def test_each_layer_is_within_a_step(way: str, number: int, tmp_path: Path) -> None:
    m, feeds = quantized(Network(f"quantized {way} {number}"), way, tmp_path / "m.onnx")
    cut, given, made = layer_by_layer(m, feeds)
    names = [o.name for o in cut.graph.output]
    graph = graph_of(cut)
    whole_numbers = requantize(quantized_products(graph, VNNI), VNNI)
    runs = {"as written": run_graph(graph, given), "as for VNNI": run_graph(whole_numbers, given)}
    if way == COMPILED or seeds.number():
        runs["compiled"] = tec.compile(cut, target="llvm", cache=False).run(given)
    for label, results in runs.items():
        off = {n: between(y, made[n]) for n, y in zip(names, results) if made[n].dtype != np.float32}
        assert len(off) >= 4
        worst = {n: (int(d.max()), float((d > 0).mean())) for n, d in off.items() if d.any()}
        assert all(most <= 1 for most, _ in worst.values()), (label, worst)
        # Its kernel of QLinearAdd multiplies by ratios of scales; where these are near halves, many sums are ties, which fall to either side.
        sums = {n.output[0] for n in cut.graph.node if n.op_type == "QLinearAdd"}
        rest = [d for n, d in off.items() if n not in sums]
        assert sum(d.sum() for d in rest) <= 0.01 * sum(d.size for d in rest), (label, worst)
