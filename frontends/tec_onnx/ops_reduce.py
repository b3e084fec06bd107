"""ONNX reductions, running sums, top-k."""

from __future__ import annotations

from typing import Any

import numpy as np

from tec.graph import Value
from tec.graph.builders import axis_of
from tec.graph.builders.reduce import log_sum_exp, p_norm, widened

from .importer import Call, Outputs, onnx_op

_SIMPLE = {
    "ReduceSum": "reduce_sum", "ReduceMean": "reduce_mean", "ReduceMax": "reduce_max", "ReduceMin": "reduce_min",
    "ReduceProd": "reduce_prod", "ReduceSumSquare": "reduce_sum_square", "ReduceL1": "reduce_sum_abs",
}  # fmt: skip


def _axes(c: Call) -> tuple[tuple[int, ...] | None, bool]:
    """The axes (None: nothing is reduced) and whether they are kept."""
    x = c[0]
    since = 13 if c.op_type == "ReduceSum" else 18
    axes: Any = c.ints(1) if c.opset >= since and c.has(1) else c.attr("axes")
    keep = c.attr("keepdims", 1) == 1
    if not axes:
        if c.attr("noop_with_empty_axes", 0):
            return None, keep
        axes = range(x.ndim)
    return tuple(axis_of(a, x.ndim) for a in axes), keep


@onnx_op(*_SIMPLE, "ReduceL2", "ReduceLogSum", "ReduceLogSumExp")
def reduce(c: Call) -> Value:
    x = c[0]
    axes, keep = _axes(c)
    kind = c.op_type
    if axes is None:
        # Nothing to reduce over: each element is its own group.
        axes, keep = (), True
    if x.dtype == "bool" and kind in ("ReduceMax", "ReduceMin"):
        return c.op("reduce_any" if kind == "ReduceMax" else "reduce_all", x, axes=axes, keepdims=keep)
    if kind in _SIMPLE:
        return c.op(_SIMPLE[kind], x, axes=axes, keepdims=keep)
    given = x.dtype
    if given.startswith(("int", "uint")):  # in reals, and the integer towards zero of what comes out
        x = c.cast(x, "float64")
    if kind == "ReduceL2":
        y = p_norm(c, x, 2, axes, keep)
    elif kind == "ReduceLogSum":
        y = c.op("log", c.op("reduce_sum", widened(c, x), axes=axes, keepdims=keep))
    else:
        y = log_sum_exp(c, x, axes, keep)
    return c.cast(y, given)


@onnx_op("ArgMax", "ArgMin")
def arg(c: Call) -> Value:
    return c.op(
        c.op_type.lower(), c[0], axis=axis_of(c.attr("axis", 0), c[0].ndim), keepdims=c.attr("keepdims", 1) == 1,
        last=bool(c.attr("select_last_index", 0)),
    )  # fmt: skip


@onnx_op("CumSum", "CumProd")
def cumulate(c: Call) -> Value:
    axis = axis_of(int(np.asarray(c.array(1)).reshape(-1)[0]), c[0].ndim)
    return c.op(
        c.op_type.lower(), c[0], axis=axis, exclusive=bool(c.attr("exclusive", 0)), reverse=bool(c.attr("reverse", 0))
    )


@onnx_op("TopK")
def topk(c: Call) -> Outputs:
    k = c.attr("k") if c.opset < 10 else c.ints(1)[0]
    x = c[0]
    return Outputs(c.ops("topk", x, k=k, axis=axis_of(c.attr("axis", -1), x.ndim), largest=bool(c.attr("largest", 1))))


@onnx_op("Hardmax")
def hardmax(c: Call) -> Value:
    x = c[0]
    axis = axis_of(c.attr("axis", 1 if c.opset < 13 else -1), x.ndim)
    shape = x.shape
    if c.opset < 13:
        rows = int(np.prod(shape[:axis], dtype=np.int64))
        x, axis = c.reshape(x, (rows, x.type.size // max(rows, 1))), 1
    best = c.op("argmax", x, axis=axis, keepdims=False, last=False)
    values = c.const(np.array([0, 1]), x.dtype)
    return c.reshape(c.op("one_hot", best, values, depth=x.shape[axis], axis=axis), shape)
