"""A model with QuantizeLinear and DequantizeLinear around its products: ONNX's QDQ form.

Products are Conv, MatMul and Gemm with constant weights. The tensor that such a node reads becomes bytes and numbers again, once for all that read
it; weights are stored as bytes, one scale a channel, and biases as int32 of the product's scale. Products of a microscaling format (`tec.ir.microscaling`) have
weights alone of it: small floats, with a power of two for each 32 along the sum; what they read stays as it is, or is rounded to such a format when the model runs (MXQuantizeDequantize, an operator of AMD Quark's).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tec.ir.microscaling import BLOCK, format_of, pack, unpack
from tec.ir.microscaling import quantize as microscaled
from tec.records import dataclass

PRODUCTS = ("Conv", "MatMul", "Gemm")
# What weights alone can be of: the element types that DequantizeLinear takes with powers of two for scales, those of six bits where this onnx knows them.
_NAMES = {
    "mxfp4": "FLOAT4E2M1", "mxfp6": "FLOAT6E2M3", "mxfp6_e3m2": "FLOAT6E3M2", "mxfp8": "FLOAT8E4M3FN", "mxfp8_e5m2": "FLOAT8E5M2"
}  # fmt: skip
FORMATS: dict[str, int] = {f: getattr(onnx.TensorProto, n) for f, n in _NAMES.items() if hasattr(onnx.TensorProto, n)}
OPSETS = {f: 28 if "6" in f else 24 for f in FORMATS}  # from which it takes them
QUARK = "com.amd.quark"  # the domain of MXQuantizeDequantize
# Its names of what blocks are made of.
ELEMENTS = {
    "mxfp4": "fp4_e2m1",
    "mxfp6": "fp6_e2m3",
    "mxfp6_e3m2": "fp6_e3m2",
    "mxfp8": "fp8_e4m3",
    "mxfp8_e5m2": "fp8_e5m2",
}


@dataclass(frozen=True, slots=True)
class Scheme:
    """How values become bytes. `activations`: "uint8" (with a zero point) or "int8" (symmetric); `per_channel`: a scale a channel of the weights; `rounded`: the microscaling format that
    products of such weights round what they read to, "" for none."""

    activations: str = "uint8"
    per_channel: bool = True
    rounded: str = ""


@dataclass(frozen=True, slots=True)
class Product:
    """A node that can be quantized. `axis`: of its weights, along which its output's channels lie. `format`: the microscaling format of its weights, where it is to
    have one."""

    name: str
    node: Any
    axis: int
    format: str = ""

    @property
    def reads(self) -> str:
        """The tensor that it computes with, beside its weights."""
        return str(self.node.input[0])

    @property
    def gives(self) -> str:
        return str(self.node.output[0])


def constants(graph: Any) -> dict[str, Any]:
    """The constant tensors of a graph by name: initializers, and nodes Constant."""
    found = {t.name: t for t in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            value = next((a.t for a in node.attribute if a.name == "value"), None)
            if value is not None:
                found[node.output[0]] = value
    return found


def products(model: onnx.ModelProto) -> list[Product]:
    """The nodes of the graph that can be quantized, in order; each has a name of its own."""
    known = constants(model.graph)
    found: list[Product] = []
    names: set[str] = set()
    for node in model.graph.node:
        if node.op_type not in PRODUCTS or node.domain not in ("", "ai.onnx") or len(node.input) < 2:
            continue
        weights = known.get(node.input[1])
        if weights is None or node.input[0] in known or weights.data_type != onnx.TensorProto.FLOAT:
            continue
        attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        axis = 0
        if node.op_type != "Conv":
            if (
                len(weights.dims) != 2
                or attrs.get("alpha", 1.0) != 1.0
                or attrs.get("beta", 1.0) != 1.0
                or attrs.get("transA", 0)
            ):
                continue
            axis = 0 if attrs.get("transB", 0) else 1
        name = node.name or node.output[0]
        name = name if name not in names else node.output[0]
        names.add(name)
        found.append(Product(name, node, axis))
    return found


class Rewriter:
    """Writes the quantized form of products of one graph. `ranges`: the lowest and highest value of each tensor that they read."""

    def __init__(self, model: onnx.ModelProto, ranges: Mapping[str, tuple[float, float]], scheme: Scheme):
        self.known = constants(model.graph)
        self.ranges = ranges
        self.scheme = scheme
        self.initializers: list[Any] = []
        self._weights: dict[tuple[str, int], tuple[str, Any]] = {}
        self._scales: dict[str, float] = {}
        self._in_format: set[str] = set()  # tensors that are rounded to the scheme's format

    def activation(self, tensor: str) -> list[Any]:
        """The pair of nodes that make bytes of a tensor and numbers again, of which `reading` names the result."""
        low, high = self.ranges[tensor]
        low, high = min(low, 0.0), max(high, 0.0)
        if self.scheme.activations == "int8":
            scale, zero = max(-low, high) / 127, np.int8(0)
        else:
            scale = (high - low) / 255
            zero = np.uint8(np.clip(np.round(-low / scale), 0, 255)) if scale else np.uint8(0)
        scale = float(np.float32(scale)) or 1.0
        self._scales[tensor] = scale
        names = [self._keep(f"{tensor}/scale", np.float32(scale)), self._keep(f"{tensor}/zero_point", zero)]
        codes = f"{tensor}/quantized"
        return [
            helper.make_node("QuantizeLinear", [tensor, *names], [codes], name=f"{tensor}/QuantizeLinear"),
            helper.make_node(
                "DequantizeLinear", [codes, *names], [self.reading(tensor)], name=f"{tensor}/DequantizeLinear"
            ),
        ]

    @staticmethod
    def reading(tensor: str) -> str:
        """The name of a tensor's values after they were bytes."""
        return f"{tensor}/dequantized"

    def product(self, p: Product, output: str | None = None) -> list[Any]:
        """The nodes of a product in bytes, which gives what it gave (or `output`)."""
        nodes: list[Any] = []
        if p.format:
            inputs = [self._rounded(p.reads, nodes), self._microscaled(p, nodes), *p.node.input[2:]]
            return [*nodes, _like(p, inputs, output)]
        weights, scales = self._weight(p, nodes)
        inputs = [self.reading(p.reads), weights, *p.node.input[2:]]
        bias = self.known.get(p.node.input[2]) if len(p.node.input) > 2 and p.node.input[2] else None
        if bias is not None and len(bias.dims) == 1 and bias.data_type == onnx.TensorProto.FLOAT:
            both = (scales * np.float32(self._scales[p.reads])).astype(np.float32)
            codes = np.clip(np.round(numpy_helper.to_array(bias).astype(np.float64) / both), -(2**31), 2**31 - 1)
            inputs[2] = self._dequantized(f"{p.gives}/bias", codes.astype(np.int32), both, 0, nodes)
        return [*nodes, _like(p, inputs, output)]

    def _rounded(self, tensor: str, nodes: list[Any]) -> str:
        """The name of a tensor's values in the scheme's format; its own where there is none."""
        if not self.scheme.rounded:
            return tensor
        name = f"{tensor}/{self.scheme.rounded}"
        if name not in self._in_format:
            self._in_format.add(name)
            attrs = {
                "element_dtype": ELEMENTS[self.scheme.rounded],
                "axis": -1,
                "block_size": BLOCK,
                "rounding_mode": 2,
            }
            op = helper.make_node(
                "MXQuantizeDequantize", [tensor], [name], name=f"{name}/MXQuantizeDequantize", domain=QUARK, **attrs
            )
            nodes.append(op)
        return name

    def _microscaled(self, p: Product, nodes: list[Any]) -> str:
        """The name of a product's weights as they are in its format."""
        key = (str(p.node.input[1]), p.axis)
        name = f"{key[0]}/axis{p.axis}"
        if key not in self._weights:
            w = numpy_helper.to_array(self.known[key[0]])
            rows = w if p.axis == 0 else w.T  # [n, k]
            n, k = rows.shape
            f = format_of(p.format)
            elements, scales = microscaled(np.pad(rows, ((0, 0), (0, -k % BLOCK))), p.format)
            codes = unpack(elements, f)[:, :k]
            codes, scales = (codes, scales) if p.axis == 0 else (codes.T, scales.T)
            self._keep_bytes(f"{name}/quantized", FORMATS[p.format], codes.shape, pack(codes.reshape(-1), f))
            self._keep_bytes(f"{name}/scale", onnx.TensorProto.FLOAT8E8M0, scales.shape, scales)
            attrs = {"axis": 1 - p.axis, "block_size": BLOCK, "output_dtype": onnx.TensorProto.FLOAT}
            inputs = [f"{name}/quantized", f"{name}/scale"]
            nodes.append(
                helper.make_node("DequantizeLinear", inputs, [f"{name}/dequantized"], name=f"{name}/DequantizeLinear", **attrs)
            )  # fmt: skip
            self._weights[key] = f"{name}/dequantized", scales
        return self._weights[key][0]

    def _keep_bytes(self, name: str, kind: int, shape: tuple[int, ...], stored: Any) -> None:
        raw = np.ascontiguousarray(stored).tobytes()
        self.initializers.append(onnx.TensorProto(name=name, data_type=kind, dims=shape, raw_data=raw))

    def _weight(self, p: Product, nodes: list[Any]) -> tuple[str, Any]:
        key = (str(p.node.input[1]), p.axis)
        if key not in self._weights:
            w = numpy_helper.to_array(self.known[key[0]])
            rest = tuple(k for k in range(w.ndim) if k != p.axis)
            most = np.abs(w).max(rest if self.scheme.per_channel else None, initial=0.0)
            scales = np.where(most > 0, most / 127, 1).astype(np.float32)
            shape = [1] * w.ndim
            if self.scheme.per_channel:
                shape[p.axis] = -1
            codes = np.clip(np.round(w / scales.reshape(shape)), -127, 127).astype(np.int8)
            name = self._dequantized(f"{key[0]}/axis{p.axis}", codes, scales, p.axis, nodes)
            self._weights[key] = name, scales
        return self._weights[key]

    def _dequantized(self, name: str, codes: Any, scales: Any, axis: int, nodes: list[Any]) -> str:
        inputs = [self._keep(f"{name}/quantized", codes), self._keep(f"{name}/scale", scales)]
        attrs = {"axis": axis} if scales.ndim else {}
        nodes.append(
            helper.make_node(
                "DequantizeLinear", inputs, [f"{name}/dequantized"], name=f"{name}/DequantizeLinear", **attrs
            )
        )
        return f"{name}/dequantized"

    def _keep(self, name: str, x: Any) -> str:
        self.initializers.append(numpy_helper.from_array(np.asarray(x), name))
        return name


def _like(p: Product, inputs: list[str], output: str | None) -> Any:
    """The product's node with other inputs, which gives what it gave or `output`."""
    new = helper.make_node(p.node.op_type, inputs, [output or p.gives], name=p.name if output is None else output)
    new.attribute.extend(p.node.attribute)
    return new


def quantized(
    model: onnx.ModelProto, chosen: Iterable[Product], ranges: Mapping[str, tuple[float, float]], scheme: Scheme
) -> onnx.ModelProto:
    """The model with the chosen products in bytes; what is not read any more is left out."""
    mine = {id(p.node): p for p in chosen}
    rewriter = Rewriter(model, ranges, scheme)
    wanted = {p.reads for p in mine.values() if not p.format}
    nodes: list[Any] = []
    for source in model.graph.input:
        if source.name in wanted:
            nodes += rewriter.activation(source.name)
    for node in model.graph.node:
        p = mine.get(id(node))
        nodes += rewriter.product(p) if p is not None else [node]
        for tensor in node.output:
            if tensor in wanted:
                nodes += rewriter.activation(tensor)
    return with_nodes(model, nodes, rewriter.initializers)


def with_nodes(
    model: onnx.ModelProto, nodes: list[Any], more: Iterable[Any], outputs: Iterable[str] | None = None
) -> onnx.ModelProto:
    """A copy of the model with these nodes, more initializers, and, where given, other outputs."""
    new = onnx.ModelProto()
    new.CopyFrom(model)
    del new.graph.node[:]
    new.graph.node.extend(nodes)
    if outputs is not None:
        del new.graph.output[:]
        new.graph.output.extend(helper.make_empty_tensor_value_info(n) for n in outputs)
    new.graph.initializer.extend(more)
    if any(n.domain == QUARK for n in nodes) and all(o.domain != QUARK for o in new.opset_import):
        new.opset_import.append(helper.make_opsetid(QUARK, 1))
    read = {n for node in new.graph.node for n in _reads(node)} | {o.name for o in new.graph.output}
    kept = [t for t in new.graph.initializer if t.name in read]
    del new.graph.initializer[:]
    new.graph.initializer.extend(kept)
    del new.graph.value_info[:]
    constant = [n for n in new.graph.node if n.op_type == "Constant" and n.output[0] not in read]
    for n in constant:
        new.graph.node.remove(n)
    return new


def _reads(node: Any) -> set[str]:
    """The names that a node reads, its bodies included."""
    found = set(node.input)
    for a in node.attribute:
        for g in [a.g, *a.graphs] if a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) else []:
            found |= {n for inner in g.node for n in _reads(inner)} | {o.name for o in g.output}
    return found


def fold_batch_norms(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with each BatchNormalization behind a Conv that it alone reads as part of the Conv's weights."""
    known = constants(model.graph)
    readers: dict[str, list[Any]] = {}
    for node in model.graph.node:
        for n in _reads(node):
            readers.setdefault(n, []).append(node)
    outputs = {o.name for o in model.graph.output}
    gone: set[int] = set()
    changed: dict[int, Any] = {}
    more: list[Any] = []
    for node in model.graph.node:
        if node.op_type != "Conv" or node.output[0] in outputs or node.input[1] not in known:
            continue
        after = readers.get(node.output[0], [])
        if (
            len(after) != 1
            or after[0].op_type != "BatchNormalization"
            or not all(n in known for n in after[0].input[1:])
        ):
            continue
        norm = after[0]
        eps = next((a.f for a in norm.attribute if a.name == "epsilon"), 1e-5)
        scale, shift, mean, var = (numpy_helper.to_array(known[n]).astype(np.float64) for n in norm.input[1:])
        w = numpy_helper.to_array(known[node.input[1]]).astype(np.float64)
        b = numpy_helper.to_array(known[node.input[2]]).astype(np.float64) if len(node.input) > 2 else 0.0
        factor = scale / np.sqrt(var + eps)
        names = [f"{node.output[0]}/folded_weight", f"{node.output[0]}/folded_bias"]
        for name, x in zip(names, (w * factor.reshape(-1, *[1] * (w.ndim - 1)), (b - mean) * factor + shift)):
            more.append(numpy_helper.from_array(x.astype(np.float32), name))
        new = helper.make_node("Conv", [node.input[0], *names], list(norm.output[:1]), name=node.name)
        new.attribute.extend(node.attribute)
        changed[id(node)] = new
        gone.add(id(norm))
    nodes = [changed.get(id(n), n) for n in model.graph.node if id(n) not in gone]
    return with_nodes(model, nodes, more) if changed else model
