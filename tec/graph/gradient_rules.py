"""Gradients of operators that have better ones than `vjp` makes: with the operators that do the work in one call.

A rule takes a builder, the node and the gradient by its first output, and gives the gradients by its inputs (None for those that have none).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .builders import Builder
from .graph import Node, Value

Rule = Callable[[Builder, Node, Value], Sequence[Value | None]]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    def add(f: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, f))
        return f

    return add


def summed_to(b: Builder, g: Value, shape: Sequence[Any]) -> Value:
    """The gradient of what was broadcast from `shape`: its sum over what was repeated."""
    shape = tuple(shape)
    if g.shape == shape:
        return g
    lead = g.ndim - len(shape)
    axes = tuple(k for k in range(g.ndim) if k < lead or (shape[k - lead] == 1 and g.shape[k] != 1))
    total = b.op("reduce_sum", g, axes=axes, keepdims=True) if axes else g
    return b.reshape(total, shape)


@rule("add")
def _add(b: Builder, node: Node, g: Value) -> list[Value]:
    return [summed_to(b, g, v.shape) for v in node.inputs]


@rule("subtract")
def _subtract(b: Builder, node: Node, g: Value) -> list[Value]:
    x, y = node.inputs
    return [summed_to(b, g, x.shape), summed_to(b, b.op("neg", g), y.shape)]


@rule("multiply")
def _multiply(b: Builder, node: Node, g: Value) -> list[Value]:
    x, y = node.inputs
    return [summed_to(b, b.op("multiply", g, y), x.shape), summed_to(b, b.op("multiply", g, x), y.shape)]


@rule("divide")
def _divide(b: Builder, node: Node, g: Value) -> list[Value]:
    x, y = node.inputs
    share = b.op("divide", g, y)
    return [summed_to(b, share, x.shape), summed_to(b, b.op("neg", b.op("multiply", share, node.outputs[0])), y.shape)]


@rule("identity")
def _identity(b: Builder, node: Node, g: Value) -> list[Value]:
    return [g]


@rule("cast")
def _cast(b: Builder, node: Node, g: Value) -> list[Value]:
    return [b.cast(g, node.inputs[0].dtype)]


@rule("relu")
def _relu(b: Builder, node: Node, g: Value) -> list[Value]:
    zero = b.like(0, g)
    return [b.op("where", b.op("greater", node.inputs[0], zero), g, zero)]


@rule("tanh")
def _tanh(b: Builder, node: Node, g: Value) -> list[Value]:
    y = node.outputs[0]
    return [b.op("multiply", g, b.op("subtract", b.like(1, y), b.op("multiply", y, y)))]


@rule("sigmoid")
def _sigmoid(b: Builder, node: Node, g: Value) -> list[Value]:
    y = node.outputs[0]
    return [b.op("multiply", g, b.op("multiply", y, b.op("subtract", b.like(1, y), y)))]


@rule("exp")
def _exp(b: Builder, node: Node, g: Value) -> list[Value]:
    return [b.op("multiply", g, node.outputs[0])]


@rule("reshape")
def _reshape(b: Builder, node: Node, g: Value) -> list[Value]:
    return [b.reshape(g, node.inputs[0].shape)]


@rule("transpose")
def _transpose(b: Builder, node: Node, g: Value) -> list[Value]:
    return [b.transpose(g, [int(k) for k in np.argsort(node.attrs["perm"])])]


@rule("broadcast_to")
def _broadcast(b: Builder, node: Node, g: Value) -> list[Value]:
    return [summed_to(b, g, node.inputs[0].shape)]


@rule("concat")
def _concat(b: Builder, node: Node, g: Value) -> list[Value]:
    axis = node.attrs["axis"]
    return list(b.split(g, axis, [v.shape[axis] for v in node.inputs]))


@rule("reduce_sum", "reduce_mean")
def _reduce_sum(b: Builder, node: Node, g: Value) -> list[Value]:
    (x,) = node.inputs
    axes = {a % x.ndim for a in node.attrs["axes"]} if node.attrs.get("axes") is not None else set(range(x.ndim))
    whole = b.reshape(g, [1 if k in axes else n for k, n in enumerate(x.shape)])
    if node.op == "reduce_mean":
        count = int(np.prod([x.shape[k] for k in axes]))
        whole = b.op("divide", whole, b.like(count, whole))
    return [b.broadcast(whole, x.shape)]


def _across(b: Builder, v: Value) -> Value:
    """With the last two dimensions changed about."""
    return b.transpose(v, [*range(v.ndim - 2), v.ndim - 1, v.ndim - 2])


@rule("matmul")
def _matmul(b: Builder, node: Node, g: Value) -> list[Value] | list[None]:
    x, y = node.inputs
    a = node.attrs
    if a.get("transpose_a") or a.get("transpose_b") or any(k in a for k in ("view_a", "view_b", "layout_b")):
        raise NotImplementedError  # made by passes that run after this one
    by_x, by_y = b.op("matmul", g, _across(b, y)), b.op("matmul", _across(b, x), g)
    return [summed_to(b, b.cast(by_x, x.dtype), x.shape), summed_to(b, b.cast(by_y, y.dtype), y.shape)]


@rule("softmax")
def _softmax(b: Builder, node: Node, g: Value) -> list[Value]:
    y = node.outputs[0]
    axes = tuple(a % y.ndim for a in node.attrs["axes"])
    both = b.op("multiply", g, y)
    return [b.op("multiply", y, b.op("subtract", g, b.op("reduce_sum", both, axes=axes, keepdims=True)))]


@rule("log_softmax")
def _log_softmax(b: Builder, node: Node, g: Value) -> list[Value]:
    y = node.outputs[0]
    axes = tuple(a % y.ndim for a in node.attrs["axes"])
    total = b.op("reduce_sum", g, axes=axes, keepdims=True)
    return [b.op("subtract", g, b.op("multiply", b.op("exp", y), total))]


@rule("gather")
def _gather(b: Builder, node: Node, g: Value) -> list[Value | None]:
    x, index = node.inputs
    axis = node.attrs["axis"] % x.ndim
    if axis:
        raise NotImplementedError
    zeros = b.broadcast(b.like(0, x), x.shape)
    points = b.reshape(index, (*index.shape, 1))
    return [b.op("scatter_nd", zeros, points, g, reduction="add"), None]
