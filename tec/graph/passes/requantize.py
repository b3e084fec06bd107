"""What stands between quantized products: dequantized, scaled, summed and quantized again, as one multiplication and addition for each summand.

    round(((conv * s + b) / t)                         ->   round(conv * (s / t) + b / t)
    round(((q1 - z1) * s1 + (q2 - z2) * s2) / t)       ->   round(q1 * (s1 / t) + q2 * (s2 / t) + c)
    float(uint8(clip(round(v) + z, 0, 255))) - z       ->   clip(round(v), -z, 255 - z), which is exact
    max_pool((q - z) * s)                              ->   (max_pool(q) - z) * s, which is exact

In: a graph of ONNX's QDQ form whose products are integers (`quantized_products`), for targets with a unit for bytes or pairs of 16 bits. Sums of multiplications by constants are
collected from a division that is rounded back to what they are of. A sum is rounded otherwise than step by step, in its last bits: the whole number it is
rounded to differs only where it was within those of a half.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

import numpy as np

from ...records import dataclass
from ...target import Target
from ..graph import Graph, Node, Value
from .byte_products import multiplies_integers
from .quantized_products import dequantized
from .rewrite import Rebuild, rebuild

# Of a sum: what is read twice is computed twice, and a chain of residual sums between two roundings is short.
_MOST_TERMS = 8


@dataclass
class _Sum:
    """Values of the new graph, each times a constant, and a constant: float64 arrays that broadcast against the sum."""

    terms: list[tuple[Value, Any]]
    rest: Any

    def times(self, factor: Any) -> _Sum:
        return _Sum([(v, m * factor) for v, m in self.terms], self.rest * factor)

    def plus(self, other: _Sum) -> _Sum:
        return _Sum(self.terms + other.terms, self.rest + other.rest)


def requantize(graph: Graph, target: Target) -> Graph:
    """The graph with what is rounded behind integer products as sums of multiplications; the same where there are none."""
    if not multiplies_integers(target) or not any(
        n.op in ("conv", "matmul") and n.outputs[0].dtype == "int32" for n in graph.nodes
    ):
        return graph
    readers: dict[Value, list[Node]] = {}
    for n in graph.nodes:
        for v in n.inputs:
            readers.setdefault(v, []).append(n)
    rounded = _rounded(graph, readers)
    # Bytes that nothing but their dequantization reads need not be: others are in memory, and are read from there.
    passing = {v for v, those in readers.items() if len(those) == 1 and v not in graph.outputs}

    def handle(b: Rebuild, node: Node) -> bool:
        out = node.outputs[0]
        if node.op == "max_pool" and len(node.outputs) == 1:
            return _pool(b, node)
        if node.op != "divide" or out not in rounded:
            return False
        found = _sum(b, node.inputs[0], out, passing)
        if len(found.terms) > _MOST_TERMS:
            return False
        b.map[out] = _emit(b, found.times(1.0 / _array(node.inputs[1])), out, node.origin)
        return True

    return rebuild(graph, handle) if rounded else graph


def _pool(b: Rebuild, node: Node) -> bool:
    """The largest of dequantized bytes as the dequantized largest byte: the same, scales being positive, from a quarter of the memory."""
    made, out = dequantized(node.inputs[0]), node.outputs[0]
    if made is None or made[2] <= 0 or made[0] not in b.map:
        return False
    (largest,) = b.new.add("max_pool", [b.map[made[0]]], node.attrs, out.name, node.origin)
    y = b.cast(largest, "float32", out.name)
    if made[1] is not None:
        (y,) = b.new.add("subtract", [y, _constant(b, _array(made[1]).reshape(()), "zero")], {}, out.name)
    (b.map[out],) = b.new.add("multiply", [y, _constant(b, made[2], "scale")], {}, out.name)
    return True


def _rounded(graph: Graph, readers: Mapping[Value, list[Node]]) -> set[Value]:
    """What is divided by a constant and then rounded, by nobody else read."""
    quotients = [
        n for n in graph.nodes if n.op == "divide" and n.outputs[0].dtype == "float32" and _is_normal(n.inputs[1])
    ]
    outputs = set(graph.outputs)
    return {
        v for n in quotients for v in n.outputs
        if v not in outputs and v.shape == n.inputs[0].shape and readers.get(v) and all(r.op == "round_even" for r in readers[v])
    }  # fmt: skip


def _is_normal(v: Value) -> bool:
    """Whether a divisor is a constant with reciprocals that are no denormals and no infinities."""
    return v.is_known and bool((np.abs(_array(v)) > 1e-37).all() and (np.abs(_array(v)) < 1e37).all())


def _array(v: Value) -> Any:
    return np.asarray(v.data).astype(np.float64)


def _sum(b: Rebuild, v: Value, out: Value, passing: Set[Value]) -> _Sum:
    """A float32 value of the old graph as a sum."""
    node = v.node
    if node is not None and v.dtype == "float32" and v.shape == out.shape:
        whole = _whole(b, node) if node.inputs[0] in passing else None
        if whole is not None:
            return whole
        if node.op in ("multiply", "add", "subtract"):
            x, y = node.inputs
            constant = next((c for c in (y, x) if c.is_known), None)
            if constant is None and node.op != "multiply" and x.shape == y.shape == v.shape:
                return _sum(b, x, out, passing).plus(
                    _sum(b, y, out, passing).times(-1.0 if node.op == "subtract" else 1.0)
                )
            other = x if constant is y else y
            if constant is not None and other.shape == v.shape and (node.op != "subtract" or constant is y):
                a, inner = _array(constant), _sum(b, other, out, passing)
                return inner.times(a) if node.op == "multiply" else inner.plus(_Sum([], a if node.op == "add" else -a))
    return _Sum([(b.value(v), np.float64(1.0))], np.float64(0.0))


def _whole(b: Rebuild, node: Node) -> _Sum | None:
    """float32(bytes(clip(round(r) + zero, low, high))) as the clipped whole number and zero; None for anything else."""
    if node.op != "cast" or node.inputs[0].dtype not in ("int8", "uint8"):
        return None
    narrow = node.inputs[0].node
    clip = narrow.inputs[0].node if narrow is not None and narrow.op == "cast" else None
    if clip is None or clip.op != "clip" or clip.outputs[0].dtype != "float32":
        return None
    low, high = clip.attrs.get("low"), clip.attrs.get("high")
    bounds = np.iinfo(node.inputs[0].dtype)
    if low is None or high is None or low < bounds.min or high > bounds.max or low != round(low) or high != round(high):
        return None
    inner, zero = clip.inputs[0].node, 0.0
    if inner is not None and inner.op == "add" and inner.inputs[1].is_known and inner.inputs[1].type.size == 1:
        zero, inner = float(_array(inner.inputs[1]).reshape(())), inner.inputs[0].node
    if (
        inner is None
        or inner.op != "round_even"
        or zero != round(zero)
        or inner.outputs[0].shape != node.outputs[0].shape
    ):
        return None
    attrs = {**clip.attrs, "low": low - zero, "high": high - zero}
    (made,) = b.new.add("clip", [b.value(inner.outputs[0])], attrs, node.outputs[0].name, node.origin)
    return _Sum([(made, np.float64(1.0))], np.float64(zero))


def _emit(b: Rebuild, found: _Sum, out: Value, origin: Any) -> Value:
    made: Value | None = None
    for v, factor in found.terms:
        term = (
            v
            if np.all(factor == 1)
            else b.new.add("multiply", [v, _constant(b, factor, "scale")], {}, out.name, origin)[0]
        )
        made = term if made is None else b.new.add("add", [made, term], {}, out.name, origin)[0]
    assert made is not None
    if np.any(found.rest != 0):
        (made,) = b.new.add("add", [made, _constant(b, found.rest, "offset")], {}, out.name, origin)
    return made


def _constant(b: Rebuild, data: Any, name: str) -> Value:
    return b.new.constant(np.asarray(data).astype(np.float32), name)
