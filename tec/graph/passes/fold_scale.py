"""Batch normalisation and bias: products with a constant per channel go into a convolution's weights, sums of constants become one.

conv(x, w) * s        -> conv(x, w * s)              s: one value, or one a channel
(conv(x, w) + b) * s  -> conv(x, w * s) + b * s
(x + a) + b           -> x + (a + b)                 a, b constants; x - a is x + (-a)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..graph import Graph, Node, Value
from .rewrite import Rebuild, rebuild


def fold_scale(graph: Graph) -> Graph:
    """The graph with per-channel constants folded."""
    graph = _sums(graph)
    users = graph.users()
    outputs = set(graph.outputs)

    def single(v: Value, op: str) -> Node | None:
        """The node of `op` that made v, where nothing else reads v."""
        if v.node is None or v.node.op != op or len(users.get(v, ())) != 1 or v in outputs:
            return None
        return v.node

    # Each foldable product is handled where it stands, on the old graph's structure; `weights` collects scaled weights.
    scale_of: dict[Node, Any] = {}
    gone: dict[Node, Any] = {}
    for node in graph.nodes:
        if node.op != "multiply" or (parts := _split(node)) is None:
            continue
        x, s = parts
        shift: Node | None = None
        conv = single(x, "conv")
        if conv is None and (shift := single(x, "add")) is not None and (inner := _split(shift)) is not None:
            conv = single(inner[0], "conv")
        if conv is None or not conv.inputs[1].is_known or node.outputs[0].shape != conv.outputs[0].shape:
            continue
        per_channel = _channel_vector(s, conv.outputs[0])
        if per_channel is None or (shift is not None and _channel_vector(_split(shift)[1], conv.outputs[0]) is None):  # type: ignore[index]
            continue
        scale_of[conv] = per_channel * scale_of.get(conv, 1)
        gone[node] = per_channel
        if shift is not None:
            scale_of[shift] = per_channel * scale_of.get(shift, 1)

    def handle(b: Rebuild, node: Node) -> bool:
        if node in gone:
            b.map[node.outputs[0]] = b.value(_split(node)[0])  # type: ignore[index]
            return True
        if node in scale_of and node.op == "conv":
            w = node.inputs[1]
            scaled = np.asarray(w.data, np.float64) * scale_of[node].reshape(-1, *[1] * (w.ndim - 1))
            constant = b.new.constant(scaled.astype(w.data.dtype), w.name, w.dtype)
            b.map[node.outputs[0]] = b.new.add(
                "conv", [b.value(node.inputs[0]), constant], node.attrs, node.outputs[0].name, node.origin
            )[0]
            return True
        if node in scale_of and node.op == "add":
            x, c = _split(node)  # type: ignore[misc]
            vector = _channel_vector(c, node.outputs[0])
            data = (vector * scale_of[node]).reshape(1, -1, *[1] * (node.outputs[0].ndim - 2))
            constant = b.new.constant(data.astype(c.data.dtype), c.name, c.dtype)
            b.map[node.outputs[0]] = b.new.add("add", [b.value(x), constant], {}, node.outputs[0].name, node.origin)[0]
            return True
        return False

    return _merge_sums(rebuild(graph, handle) if gone else graph)


def _sums(graph: Graph) -> Graph:
    """Differences from constants as sums: a batch normalization that an exporter writes out begins with one."""

    def is_found(node: Node) -> bool:
        return node.op == "subtract" and node.inputs[1].is_known and "float" in node.outputs[0].dtype

    def handle(b: Rebuild, node: Node) -> bool:
        if not is_found(node):
            return False
        x, c = node.inputs
        negative = b.new.constant(-np.asarray(c.data), c.name, c.dtype)
        b.map[node.outputs[0]] = b.new.add("add", [b.value(x), negative], {}, node.outputs[0].name, node.origin)[0]
        return True

    return rebuild(graph, handle) if any(map(is_found, graph.nodes)) else graph


def _split(node: Node) -> tuple[Value, Value] | None:
    """(variable, constant) operands of a binary node."""
    a, b = node.inputs
    if a.is_known == b.is_known or not a.dtype.startswith("float"):
        return None
    return (b, a) if a.is_known else (a, b)


def _channel_vector(c: Value, out: Value) -> Any:
    """A constant operand as one float64 value a channel of `out`, or None where it varies otherwise."""
    shape = (1,) * (out.ndim - c.ndim) + c.shape
    if len(shape) != out.ndim or any(n != 1 for k, n in enumerate(shape) if k != 1):
        return None
    return np.broadcast_to(np.asarray(c.data, np.float64).reshape(-1), (out.shape[1],)).copy()


def _merge_sums(graph: Graph) -> Graph:
    """(x + a) + b with constants a and b."""
    users = graph.users()
    outputs = set(graph.outputs)

    def handle(b: Rebuild, node: Node) -> bool:
        if node.op != "add" or not node.inputs[1].is_known or not node.outputs[0].dtype.startswith("float"):
            return False
        inner = node.inputs[0].node
        if (
            inner is None
            or inner.op != "add"
            or not inner.inputs[1].is_known
            or len(users[node.inputs[0]]) != 1
            or node.inputs[0] in outputs
        ):
            return False
        if node.inputs[0].shape != node.outputs[0].shape or inner.inputs[0].shape != node.outputs[0].shape:
            return False
        a, c = inner.inputs[1], node.inputs[1]
        total = (np.asarray(a.data, np.float64) + np.asarray(c.data, np.float64)).astype(a.data.dtype)
        constant = b.new.constant(total, a.name, a.dtype)
        b.map[node.outputs[0]] = b.new.add(
            "add", [b.value(inner.inputs[0]), constant], {}, node.outputs[0].name, node.origin
        )[0]
        return True

    return rebuild(graph, handle)
