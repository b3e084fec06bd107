"""ATen operators of backward graphs that no decomposition takes apart: convolutions, pooling, embeddings.

Derivatives are those of `tec.grad`: a backward call converts its forward call once more, on its input, and goes back through what that makes. Of linear calls
(pooling by averages, resizing, padding) nothing of the forward pass is left in the graph then.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch

from tec import ImportModelError
from tec.graph import Value
from tec.graph.gradient import pulled_back
from tec.ops.dims import is_symbolic

from .importer import AtenCall, aten_op, converter_of
from .ops_nn import each
from .remedies import FIX_THE_SIZE, LEFT_TO_TORCH

_ATEN = torch.ops.aten


@aten_op("convolution_backward")
def convolution_backward(
    c: AtenCall, g: Value, x: Value, w: Value, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, extra: Any,
    groups: int, wanted: Any,
) -> tuple[Value | None, ...]:  # fmt: skip
    """The gradients by input, weight and bias, as `wanted` asks."""
    n = w.ndim - 2
    axes = tuple(k for k in range(g.ndim) if k != g.ndim - n - 1)
    by_bias = c.op("reduce_sum", g, axes=axes, keepdims=False) if wanted[2] and c.is_read(2) else None
    if transposed or x.ndim != w.ndim:
        args = (None, stride, padding, dilation, transposed, extra, groups)
        return (
            *through(c, "convolution", g, [x, w], args, [k for k in range(2) if wanted[k] and c.is_read(k)]),
            by_bias,
        )
    attrs = {
        "strides": each(stride, n), "dilations": each(dilation, n), "before": each(padding, n, 0), "after": each(padding, n, 0),
        "groups": groups,
    }  # fmt: skip
    given = tuple(sorted(attrs.items()))
    by = [
        c.op("vjp", x, w, g, of="conv", attrs=given, wrt=k, out=0) if wanted[k] and c.is_read(k) else None
        for k in range(2)
    ]
    return (*by, by_bias)


def through(
    c: AtenCall, forward: Any, g: Value, values: list[Value], args: Any = (), wanted: Any = (0,)
) -> list[Value | None]:
    """The gradients by the `wanted` of some values of an operator's call `forward(*values, *args)`, whose (first) result has the gradient `g`.

    forward: the name of one of ATen's, or another library's overload.
    """
    target = getattr(_ATEN, forward).default if isinstance(forward, str) else forward
    found = converter_of(target)
    if found is None:
        raise ImportModelError(
            f"the gradient of {forward}",
            hint=f"call it under torch.no_grad() if its gradient is not wanted; {LEFT_TO_TORCH}",
        )
    call = copy.copy(c)
    call.target, call.dtype, call.shape, call.types = target, g.dtype, g.shape, [(g.dtype, g.shape)]
    # Each value under a name of its own: what else the graph makes of it is not gone back through.
    given = [c.op("identity", v) if k in wanted else v for k, v in enumerate(values)]
    made = found(call, *given, *args)
    y = made[0] if isinstance(made, (tuple, list)) else made
    by = iter(pulled_back(c.graph, y, c.cast(g, y.dtype), [given[k] for k in wanted]))
    return [c.cast(next(by), v.dtype) if k in wanted else None for k, v in enumerate(values)]


@aten_op("avg_pool2d_backward", "avg_pool3d_backward", "replication_pad1d_backward", "replication_pad2d_backward", "replication_pad3d_backward")  # fmt: skip
def backward_of_the_input(c: AtenCall, g: Value, x: Value, *args: Any) -> Value | None:
    """Calls that are given the forward call's arguments."""
    return through(c, c.name_of_op.removesuffix("_backward"), g, [x], args)[0]


@aten_op("_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward", "adaptive_avg_pool3d_backward")
def adaptive_backward(c: AtenCall, g: Value, x: Value) -> Value | None:
    n = 2 if "2d" in c.name_of_op else 3
    return through(c, f"_adaptive_avg_pool{n}d", g, [x], (g.shape[-n:],))[0]


def any_of_shape(c: AtenCall, g: Value, shape: Any) -> Value:
    """What stands for the input of a linear call, of which the shape alone counts."""
    return c.broadcast(c.op("reduce_sum", g, axes=tuple(range(g.ndim)), keepdims=False), shape)


_RESIZED = (
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d",
    "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa",
)  # fmt: skip


@aten_op(*(f"{name}_backward" for name in _RESIZED))
def resized_backward(c: AtenCall, g: Value, output_size: Any, input_size: Any, *args: Any) -> Value | None:
    """Resizing is linear: of its input the shape alone counts. It is made of `g`, since what is made of a constant is folded, and has no way back."""
    x = any_of_shape(c, g, input_size)
    return through(c, c.name_of_op.removesuffix("_backward"), g, [x], (output_size, *args))[0]


@aten_op("grid_sampler_2d_backward", "grid_sampler_3d_backward")
def grid_sampler_backward(
    c: AtenCall, g: Value, x: Value, grid: Value, interpolation: int, padding: int, align: bool, wanted: Any
) -> list[Value | None]:
    asked = [k for k in range(2) if wanted[k] and c.is_read(k)]
    return through(c, c.name_of_op.removesuffix("_backward"), g, [x, grid], (interpolation, padding, align), asked)


@aten_op("_cdist_backward")
def distances_backward(c: AtenCall, g: Value, a: Value, b: Value, p: float, distances: Value) -> Value | None:
    """By the first of both. The distance of equal points has no gradient, and gives none."""
    return through(c, "_cdist_forward", g, [a, b], (p, None))[0]


@aten_op("_pdist_backward")
def distances_of_pairs_backward(c: AtenCall, g: Value, x: Value, p: float, distances: Value) -> Value | None:
    return through(c, "_pdist_forward", g, [x], (p,))[0]


@aten_op("hardshrink_backward", "softshrink_backward")
def shrink_backward(c: AtenCall, g: Value, x: Value, by: float) -> Value:
    return c.op("where", c.op("less_equal", c.op("abs", x), c.like(by, x)), c.like(0, g), g)


@aten_op("rrelu_with_noise_backward")
def rrelu_backward(
    c: AtenCall, g: Value, x: Value, noise: Value, lower: float, upper: float, training: bool, of_result: bool
) -> Value:
    if training:
        return c.op("multiply", g, noise)
    slope = (lower + upper) / 2
    return c.op("where", c.op("greater", x, c.like(0, x)), g, c.op("multiply", g, c.like(slope, g)))


@aten_op("_weight_norm_interface_backward")
def weight_norm_backward(c: AtenCall, g: Value, v: Value, size: Value, norms: Value, dim: int) -> tuple[Value, Value]:
    """Of w = v size / norms: by v and by size."""
    axes = tuple(k for k in range(v.ndim) if k != dim % v.ndim)
    direction = c.op("divide", v, c.cast(norms, v.dtype))
    by_size = c.op("reduce_sum", c.op("multiply", g, direction), axes=axes, keepdims=True)
    aside = c.op("subtract", g, c.op("multiply", direction, by_size))
    return c.op("multiply", aside, c.op("divide", size, c.cast(norms, size.dtype))), by_size


@aten_op("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward", "adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward", "fractional_max_pool2d_backward", "fractional_max_pool3d_backward")  # fmt: skip
def max_pool_backward(c: AtenCall, g: Value, x: Value, *windows_and_index: Any) -> Value:
    """Each output's gradient goes to the place that `index`, counted in its plane, says."""
    n, index = 2 if "2d" in c.name_of_op else 3, windows_and_index[-1]
    plane, places = math.prod(x.shape[-n:]), math.prod(g.shape[-n:])
    if is_symbolic([plane, places]):
        raise ImportModelError("the gradient of a pooling of open sizes", hint=FIX_THE_SIZE)
    rows = x.shape[:-n]
    zeros = c.broadcast(c.like(0, g), (*rows, plane))
    at, given = c.reshape(index, (*rows, places)), c.reshape(g, (*rows, places))
    made = c.op("scatter_elements", zeros, at, given, axis=len(rows), reduction="add")
    return c.reshape(made, x.shape)
