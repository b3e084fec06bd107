"""Gradients of operators that have better ones than `vjp` makes: with the operators that do the work in one call.

A rule takes a builder, the node and the gradient by its first output, and gives the gradients by its inputs (None for those that have none).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ops.dims import Dim
from ..ops.rotary import Rotation
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
    if y.ndim == 2 and x.ndim > 2 and x.type.size:
        # A weight under several dimensions of rows: one product over all rows, in place of one a row of batches and a sum of them.
        count = math.prod(x.shape[:-1])
        rows, by = b.reshape(x, (count, x.shape[-1])), b.reshape(g, (count, g.shape[-1]))
        by_x, by_y = b.op("matmul", by, _across(b, y)), b.op("matmul", _across(b, rows), by)
        return [b.reshape(b.cast(by_x, x.dtype), x.shape), b.cast(by_y, y.dtype)]
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


def _wide(v: Value) -> str:
    """The type that sums of such elements are taken in."""
    return "float64" if v.dtype == "float64" else "float32"


@rule("rotary")
def _rotary(b: Builder, node: Node, g: Value) -> list[Value]:
    """Features are turned back: of (a cos_i - b sin_i, b cos_j + a sin_j) a gets the first by cos_i and the second by sin_j."""
    x, cos, sin = node.inputs
    turn = Rotation.of(x.shape[-1], cos.shape[-1], node.attrs)
    assert turn is not None
    first, second = turn.pair(np.arange(turn.half))
    other = np.zeros(2 * turn.half, "int64")
    other[first], other[second] = second, first

    def columns(v: Value, index: Any) -> Value:
        return b.op("gather", v, b.const(np.asarray(index, "int64")), axis=v.ndim - 1)

    back = b.op("neg", columns(sin, other) if turn.whole else sin)
    by_x = b.op("rotary", g, cos, back, **node.attrs)
    acc = _wide(x)
    wide, mine = b.cast(g, acc), b.cast(x, acc)
    sign = np.ones(2 * turn.half)
    sign[first] = -1  # a comes to the second with a plus, b to the first with a minus

    def table(of_x: Value, factor: Any) -> Value:
        """What comes to the angles of each feature, of pairs where they share one."""
        part = b.op("multiply", columns(wide, np.arange(2 * turn.half)), of_x)
        if factor is not None:
            part = b.op("multiply", part, b.const(factor, acc))
        if not turn.whole:
            part = b.op("add", columns(part, first), columns(part, second))
        return b.cast(summed_to(b, part, cos.shape), cos.dtype)

    return [by_x, table(columns(mine, np.arange(2 * turn.half)), None), table(columns(mine, other), sign)]


@rule("max_unpool")
def _max_unpool(b: Builder, node: Node, g: Value) -> list[Value | None]:
    """Each element reads where it was put; its definition searches the output. An index outside of its own channel puts nothing."""
    x, index = node.inputs
    if index.dtype != "int64" or any(isinstance(n, Dim) for n in (*x.shape, *g.shape)):
        raise NotImplementedError
    room = int(np.prod(g.shape[2:]))
    low = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *[1] * (x.ndim - 2)) * room
    place = b.op("maximum", b.op("minimum", index, b.const(low + room - 1)), b.const(low))
    came = b.op("gather", b.reshape(g, (g.type.size,)), place, axis=0)
    return [b.op("where", b.op("equal", place, index), came, b.like(0, came)), None]


@rule("resample")
def _resample(b: Builder, node: Node, g: Value) -> list[Value | None]:
    """Each tap adds what it read; the definition searches all taps for each element. By the weights: the sum of what they scale."""
    x, index, *weights = node.inputs
    if any(isinstance(n, Dim) for n in x.shape):
        raise NotImplementedError
    axis = node.attrs["axis"] % x.ndim
    to_front = [axis, *(k for k in range(x.ndim) if k != axis)]
    acc = _wide(x)
    rows, came = (b.cast(b.transpose(v, to_front), acc) for v in (x, g))
    factors = b.cast(weights[0], acc) if weights else None
    along, total = (came.shape[0], *[1] * (x.ndim - 1)), b.broadcast(b.const(0.0, acc), rows.shape)
    sums = []
    for t in range(index.shape[0]):
        place, share = b.take(index, 0, t), came
        if factors is not None:
            share = b.op("multiply", came, b.reshape(b.take(factors, 0, t), along))
            read = b.op("multiply", came, b.op("gather", rows, place, axis=0))
            sums.append(b.op("reduce_sum", read, axes=tuple(range(1, x.ndim)), keepdims=False) if x.ndim > 1 else read)
        total = b.op("scatter_nd", total, b.reshape(place, (*place.shape, 1)), share, reduction="add")
    by_x = b.cast(b.transpose(total, [int(k) for k in np.argsort(to_front)]), x.dtype)
    return [by_x, None, *(b.cast(b.stack(sums), w.dtype) for w in weights)]


@rule("dequantize")
def _dequantize(b: Builder, node: Node, g: Value) -> list[Value | None]:
    """By the scales the sum of (code - zero) over what they scale, by floating zero points that of -scale."""
    codes, scale, *zero = node.inputs
    axis, block = node.attrs["axis"], node.attrs["block"]
    shape = [int(n) for n in g.shape]
    wide = b.cast(g, "float32")

    def over_blocks(v: Value) -> Value:
        blocks = -(-shape[axis] // block)
        if scale.shape[axis] == blocks > 1:
            fill = [0] * len(shape)
            fill[axis] = blocks * block - shape[axis]
            if fill[axis]:
                v = b.op("pad", v, before=(0,) * len(shape), after=tuple(fill), mode="constant")
            v = b.reshape(v, (*shape[:axis], blocks, block, *shape[axis + 1 :]))
            v = b.op("reduce_sum", v, axes=(axis + 1,), keepdims=False)
        return summed_to(b, v, scale.shape)

    ones = b.broadcast(b.const(1.0, "float32"), scale.shape)
    steps = b.op("dequantize", codes, ones, *zero, **{**node.attrs, "dtype": "float32"})
    given: list[Value | None] = [None, b.cast(over_blocks(b.op("multiply", wide, steps)), scale.dtype)]
    if zero:
        down = b.op("neg", b.op("multiply", over_blocks(wide), b.cast(scale, "float32")))
        given.append(b.cast(down, zero[0].dtype) if "float" in zero[0].dtype else None)
    return given
