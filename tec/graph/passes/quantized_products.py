"""Products of what is dequantized as products of the integers themselves, where the target has a unit for bytes or pairs of 16 bits (see `byte_products`).

    conv((cast(q) - zero) * s, w * t)   ->   cast(conv(q - zero, w) in int32) * (s * t)

In: networks that quantize and dequantize around float32 products and convolutions (ONNX's QDQ form), with constant weights that an importer has marked
as dequantized (`Value.quantized`). The sum is exact then, and rounded once: results differ from the float32 form in its rounding.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...ops.packed import MIDDLE, unpacked
from ...target import Target
from ..graph import Graph, Node, Quantized, Value
from .byte_products import behind_views, multiplies_integers, viewed
from .rewrite import Rebuild, rebuild

_IMAGE = 4  # dimensions of what convolutions of bytes take; one of volumes would be one of 32-bit integers, which take longer than floats
_LARGEST = (1 << 31) // (255 * 128)  # terms of a sum of bytes' products that int32 holds


def quantized_products(graph: Graph, target: Target) -> Graph:
    """The graph with products of dequantized values as integer products; the same where the target has no unit for bytes or pairs of 16 bits."""
    products = [n for n in graph.nodes if n.op in ("conv", "matmul")]
    if not multiplies_integers(target) or not any(_quantized(n.inputs[1]) for n in products):
        return graph
    wide: dict[tuple[Value, Value | None], Value] = {}

    def centred(b: Rebuild, q: Value, zero: Value | None) -> Value:
        """q - zero in int32."""
        if (q, zero) not in wide:
            x = b.cast(b.value(q), "int32", q.name)
            if zero is not None:
                point = b.new.constant(np.asarray(zero.data).astype(np.int32).reshape(()), zero.name)
                (x,) = b.new.add("subtract", [x, point], {}, q.name)
            wide[q, zero] = x
        return wide[q, zero]

    def handle(b: Rebuild, node: Node) -> bool:
        if node.op not in ("conv", "matmul") or node.outputs[0].dtype != "float32":
            return False
        x, w = node.inputs
        of, views = behind_views(x)
        made, weights = dequantized(of), _weights(node, w)
        if made is None or weights is None or node.attrs.get("fill"):
            return False
        if node.op == "conv" and x.ndim > _IMAGE:
            return False
        q, zero, scale = made
        data, factor = weights
        out = node.outputs[0]
        attrs = {**node.attrs, **({"out_dtype": "int32"} if node.op == "matmul" else {})}
        integers = b.new.constant(data.astype(np.int32), w.name)
        operand = viewed(b, centred(b, q, zero), views, x.name)
        (y,) = b.new.add(node.op, [operand, integers], attrs, out.name, node.origin)
        y = b.cast(y, "float32", out.name)
        both = b.new.constant((np.float32(scale) * factor).astype(np.float32), "scale")
        b.map[out] = b.new.add("multiply", [y, both], {}, out.name)[0]
        return True

    return rebuild(graph, handle)


def dequantized(v: Value) -> tuple[Value, Value | None, float] | None:
    """(bytes, zero point, scale) of bytes less a constant zero point times a constant scale, one of each."""
    node = v.node
    if node is None or node.op != "multiply" or not _is_one(node.inputs[1]):
        return None
    scale = float(np.asarray(node.inputs[1].data).reshape(()))
    node, zero = node.inputs[0].node, None
    if node is not None and node.op == "subtract" and _is_one(node.inputs[1]):
        zero, node = node.inputs[1], node.inputs[0].node
    if node is None or node.op != "cast" or node.inputs[0].dtype not in ("int8", "uint8"):
        return None
    if zero is not None and float(np.asarray(zero.data).reshape(())) != round(float(np.asarray(zero.data).reshape(()))):
        return None
    return (node.inputs[0], zero, scale) if node.inputs[0].shape == v.shape else None


def _is_one(v: Value) -> bool:
    return v.is_known and v.type.size == 1


def _quantized(w: Value) -> Quantized | None:
    """The integers and scales of constant weights: as an importer marked them, or packed (`tec.ops.packed`) with scales that are no blocks'."""
    node = w.node
    if w.quantized is not None or node is None or node.op != "dequantize" or w.dtype != "float32":
        return w.quantized
    axis, block, bits = node.attrs["axis"], node.attrs["block"], node.attrs["bits"]
    codes, scales, *zeros = node.inputs
    if not all(v.is_known for v in node.inputs) or (block != 1 and scales.shape[axis] != 1):
        return None
    given = node.attrs.get("zero")
    zero = np.asarray(zeros[0].data) if zeros else np.float32(MIDDLE[bits] if given is None else given)
    numbers = unpacked(codes.data, bits, w.shape[-1]).astype(np.float32) - zero
    whole = bool((numbers == np.round(numbers)).all())
    return Quantized(numbers, np.asarray(scales.data).astype(np.float32)) if whole else None


def _weights(node: Node, w: Value) -> tuple[Any, Any] | None:
    """The integers of constant weights, and their scales so that they broadcast against the product."""
    known = _quantized(w)
    if known is None or known.dtype:
        return None
    data, scale = np.asarray(known.data), np.asarray(known.scale)
    if data.size == 0 or data.min() < -128 or data.max() > 127 or data.ndim < 2:
        return None
    if node.op == "conv":
        channel, terms, trailing = 0, math.prod(data.shape[1:]), data.ndim - 2
    else:
        if data.ndim != 2:
            return None
        channel = 0 if node.attrs.get("transpose_b") else 1
        terms, trailing = data.shape[1 - channel], 0
    if terms > _LARGEST:
        return None
    if scale.size == 1:
        return data, scale.reshape(())
    shape = [1] * (data.ndim - scale.ndim) + list(scale.shape)
    if scale.size != data.shape[channel] or shape[channel] != scale.size:
        return None  # a scale for each block, or along the sum
    return data, scale.reshape((scale.size, *[1] * trailing))
