"""Grouped products: rows that are sorted by their expert, each group times its expert's matrix; and distances between rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tec import ImportModelError
from tec.graph import Value
from tec.ops.dims import is_symbolic

from .importer import AtenCall, aten_op, custom_op
from .ops_nn import times
from .remedies import FIX_THE_SIZE


def groups_before(c: AtenCall, rows: Any, ends: Value) -> Value:
    """Of each row (rows,) how many groups end at or before it: its own group's number, and behind the last group the number of all."""
    at = c.reshape(c.iota(rows, dtype="int32"), (rows, 1))
    passed = c.op("less_equal", c.reshape(c.cast(ends, "int32"), (1, ends.shape[0])), at)
    return c.op("reduce_sum", c.cast(passed, "int32"), axes=(1,), keepdims=False)


def expert_of_rows(c: AtenCall, rows: Any, ends: Value) -> Value:
    """The expert of each row (rows,). Rows behind the last group's end are the last expert's."""
    return c.op("minimum", groups_before(c, rows, ends), c.const(ends.shape[0] - 1, "int32"))


def grouped(c: AtenCall, x: Value, weights: Value, ends: Value) -> Value:
    """x (rows, k), weights (experts, k, n), ends (experts): the row behind each group. (rows, n); zeros for rows behind the last group.

    Where there are fewer rows than experts, a row's matrix is picked and read alone. Else all experts' products are computed as one, and a row
    picks its own: each weight is read once, in the order in which it is stored, and the work is experts times as much.
    """
    rows, (experts, k, n) = x.shape[0], weights.shape
    if is_symbolic([rows, experts]):
        raise ImportModelError("a grouped product of an open number of rows", hint=FIX_THE_SIZE)
    expert = expert_of_rows(c, rows, ends)
    if rows < experts:
        own = c.op("gather", weights, expert, axis=0)  # (rows, k, n)
        y = c.reshape(times(c, c.reshape(x, (rows, 1, k)), own), (rows, n))
    else:
        beside = c.reshape(c.transpose(weights, (1, 0, 2)), (k, experts * n))
        every = c.reshape(times(c, x, beside), (rows * experts, n))
        first = c.op("multiply", c.iota(rows, dtype="int32"), c.const(experts, "int32"))
        y = c.op("gather", every, c.op("add", first, expert), axis=0)
    last = c.cast(c.take(ends, 0, experts - 1), "int32")
    inside = c.op("less", c.reshape(c.iota(rows, dtype="int32"), (rows, 1)), last)
    return c.op("where", inside, y, c.like(0, y))


def sums_of_groups(c: AtenCall, a: Value, b: Value, ends: Value) -> Value:
    """a (k, rows) times b (rows, n), the rows of each group for itself: (experts, k, n). One product, in which the rows of other groups are zeros."""
    (k, rows), n, experts = a.shape, b.shape[1], ends.shape[0]
    if is_symbolic([rows, experts]):
        raise ImportModelError("a grouped product of an open number of rows", hint=FIX_THE_SIZE)
    number = c.reshape(groups_before(c, rows, ends), (1, 1, rows))
    own = c.op("equal", number, c.reshape(c.iota(experts, dtype="int32"), (experts, 1, 1)))
    beside = c.reshape(c.op("where", own, c.unsqueeze(a, 0), c.like(0, a)), (experts * k, rows))
    return c.reshape(times(c, beside, b), (experts, k, n))


@aten_op("_grouped_mm")
def grouped_mm(
    c: AtenCall, x: Value, weights: Value, offs: Value | None = None, bias: Value | None = None, out_dtype: Any = None
) -> Value:
    if offs is None and x.ndim == 3 and weights.ndim == 3:
        y = times(c, x, weights)
    elif offs is not None and x.ndim == 2 and weights.ndim == 2:  # the gradient by the experts' matrices
        y = sums_of_groups(c, x, weights, offs)
    elif offs is None or x.ndim != 2 or weights.ndim != 3:
        raise ImportModelError(
            f"a grouped product of {x.type} and {weights.type}",
            hint="rows [n, k] with weights [experts, k, m] and offsets, or both with an axis of experts",
        )
    else:
        y = grouped(c, x, weights, offs)
    if bias is not None:
        raise ImportModelError(
            "a grouped product with a bias", hint="add the bias after the product, gathered by the expert of each row"
        )
    return c.cast(y, c.dtype)


@custom_op("transformers::grouped_mm_fallback")
def grouped_mm_fallback(c: AtenCall, x: Value, weights: Value, offs: Value) -> Value:
    """transformers' own operator for types that torch's does not take."""
    return c.cast(grouped(c, x, weights, offs), c.dtype)


@custom_op("transformers::grouped_mm_fallback_backward")
def grouped_mm_fallback_backward(c: AtenCall, x: Value, weights: Value, offs: Value, g: Value) -> Any:
    """The gradients by the rows and by the experts' matrices."""
    by_rows = grouped(c, g, c.transpose(weights, (0, 2, 1)), offs) if c.is_read(0) else None
    by_weights = sums_of_groups(c, c.transpose(x, (1, 0)), g, offs) if c.is_read(1) else None
    return tuple(v if v is None else c.cast(v, x.dtype) for v in (by_rows, by_weights))


@aten_op("_cdist_forward", "cdist")
def distances(c: AtenCall, a: Value, b: Value, p: float = 2.0, compute_mode: Any = None) -> Value:
    """The p-norms of the differences of all rows of a (..., m, k) and b (..., n, k)."""
    return norms(c, c.op("subtract", c.unsqueeze(a, a.ndim - 1), c.unsqueeze(b, b.ndim - 2)), p)


@aten_op("_pdist_forward")
def distances_of_pairs(c: AtenCall, x: Value, p: float = 2.0) -> Value:
    """Of each row of x to each after it."""
    if is_symbolic(x.shape[0]):
        raise ImportModelError("pdist of an open number of rows", hint=FIX_THE_SIZE)
    pairs = [c.op("gather", x, c.const(k, "int64"), axis=0) for k in np.triu_indices(int(x.shape[0]), 1)]
    return norms(c, c.op("subtract", *pairs), p)


def norms(c: AtenCall, gap: Value, p: float) -> Value:
    """The p-norms along the last axis."""
    gap, axes = c.op("abs", gap), (gap.ndim - 1,)
    if p == 2:
        return c.op("sqrt", c.op("reduce_sum", c.op("square", gap), axes=axes, keepdims=False))
    if p == 1:
        return c.op("reduce_sum", gap, axes=axes, keepdims=False)
    if math.isinf(p):
        return c.op("reduce_max", gap, axes=axes, keepdims=False)
    if p == 0:
        return c.op("reduce_sum", c.cast(c.op("not_equal", gap, c.like(0, gap)), c.dtype), axes=axes, keepdims=False)
    total = c.op("reduce_sum", c.op("power", gap, c.like(p, gap)), axes=axes, keepdims=False)
    return c.op("power", total, c.like(1 / p, total))
