"""ATen operators of backward graphs that no decomposition takes apart: convolutions, pooling, embeddings.

Derivatives of convolutions are `te.gradient` of their definition, through the operator `vjp`, as in `tec.grad`.
"""

from __future__ import annotations

import math
from typing import Any

from tec import ImportModelError
from tec.graph import Value
from tec.ops.dims import is_symbolic

from .importer import AtenCall, aten_op
from .ops_nn import each


@aten_op("convolution_backward")
def convolution_backward(
    c: AtenCall, g: Value, x: Value, w: Value, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, extra: Any,
    groups: int, wanted: Any,
) -> tuple[Value | None, ...]:  # fmt: skip
    """The gradients by input, weight and bias, as `wanted` asks."""
    if transposed or x.ndim != w.ndim:
        raise ImportModelError("the gradient of a transposed convolution, or of one entry without a batch")
    n = w.ndim - 2
    attrs = {
        "strides": each(stride, n), "dilations": each(dilation, n), "before": each(padding, n, 0), "after": each(padding, n, 0),
        "groups": groups,
    }  # fmt: skip
    given = tuple(sorted(attrs.items()))
    by = [
        c.op("vjp", x, w, g, of="conv", attrs=given, wrt=k, out=0) if wanted[k] and c.is_read(k) else None
        for k in range(2)
    ]
    axes = tuple(k for k in range(g.ndim) if k != 1)
    return (*by, c.op("reduce_sum", g, axes=axes, keepdims=False) if wanted[2] and c.is_read(2) else None)


@aten_op("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward")
def max_pool_backward(
    c: AtenCall, g: Value, x: Value, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool, index: Value
) -> Value:
    """Each output's gradient goes to the place that `index`, counted in its plane, says."""
    n = 2 if "2d" in c.name_of_op else 3
    plane, places = math.prod(x.shape[-n:]), math.prod(g.shape[-n:])
    if is_symbolic([plane, places]):
        raise ImportModelError("the gradient of a pooling of open sizes")
    rows = x.shape[:-n]
    zeros = c.broadcast(c.like(0, g), (*rows, plane))
    at, given = c.reshape(index, (*rows, places)), c.reshape(g, (*rows, places))
    made = c.op("scatter_elements", zeros, at, given, axis=len(rows), reduction="add")
    return c.reshape(made, x.shape)
