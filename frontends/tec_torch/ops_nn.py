"""ATen operators of neural networks: convolutions, pooling, normalization, matrix products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tec import ImportModelError
from tec.graph import Value
from tec.graph.builders import axis_of, norm
from tec.graph.builders.conv import add_bias, conv_transpose
from tec.graph.builders.matmul import matmul as product
from tec.ops.dims import Size, is_symbolic, maximum

from .importer import AtenCall, aten_op
from .ops_math import scaled
from .remedies import FIX_THE_SIZE, OTHER_TYPE


def each(values: Any, n: int, default: int = 1) -> tuple[Any, ...]:
    """One number a spatial dimension, of one for all, of none, or of one each."""
    values = [values] if isinstance(values, int) else list(values) if values is not None else []
    return tuple(values * n if len(values) == 1 else values or [default] * n)


# ---- windows at drawn places


@aten_op("fractional_max_pool2d", "fractional_max_pool3d")
def fractional_max_pool(c: AtenCall, x: Value, window: Any, out: Any, samples: Value) -> tuple[Value, Value]:
    """The largest of each window, and its place in its plane. Windows begin where a sample says, the last at the end (B. Graham, "Fractional max-pooling", 2014)."""
    n = 2 if "2d" in c.name_of_op else 3
    sizes, k, out = x.shape[-n:], each(window, n), each(out, n)
    if is_symbolic(x.shape):
        raise ImportModelError("fractional pooling of open sizes", hint=FIX_THE_SIZE)
    planes = math.prod(x.shape[:-n])
    samples = c.reshape(samples, (planes, n))
    place: Value | None = None
    for d in range(n):  # a plane's samples begin with the last dimension in 2-D, and with the first in 3-D
        first = _window_starts(c, c.slice(samples, 1, n - 1 - d if n == 2 else d, 1), sizes[d], k[d], out[d])
        at = c.op("add", c.unsqueeze(first, 2), c.const(np.arange(k[d]), "int64"))
        shape = [planes, *[1] * (2 * n)]
        shape[1 + d], shape[1 + n + d] = out[d], k[d]
        at = c.op("multiply", c.reshape(at, shape), c.const(math.prod(sizes[d + 1 :]), "int64"))
        place = at if place is None else c.op("add", place, at)
    assert place is not None
    cells, inside = math.prod(out), math.prod(k)
    flat = c.reshape(place, (planes, cells * inside))
    taken = c.op("gather_elements", c.reshape(x, (planes, math.prod(sizes))), flat, axis=1)
    taken, flat = (c.reshape(v, (planes, cells, inside)) for v in (taken, flat))
    best = c.op("argmax", taken, axis=2, keepdims=True, last=False)
    y, index = (c.reshape(c.op("gather_elements", v, best, axis=2), c.shape) for v in (taken, flat))
    return y, index


def _window_starts(c: AtenCall, sample: Value, size: int, window: int, count: int) -> Value:
    """(planes, count)."""
    last = c.const(np.full((1, 1), size - window), "int64")
    if count == 1:
        return c.broadcast(last, (sample.shape[0], 1))
    step = c.like((size - window) / (count - 1), sample)
    turn = c.const(np.arange(count - 1, dtype="float64"), sample.dtype)
    whole = [c.cast(c.op("multiply", c.op("add", sample, v), step), "int64") for v in (turn, c.like(0, sample))]
    first = c.op("subtract", *whole)
    return c.concat([first, c.broadcast(last, (sample.shape[0], 1))], 1)


# ---- convolutions


@aten_op("convolution", "_convolution", "conv1d", "conv2d", "conv3d")
def convolution(
    c: AtenCall, x: Value, w: Value, bias: Value | None = None, stride: Any = (1,), padding: Any = (0,), dilation: Any = (1,),
    *more: Any,
) -> Value:  # fmt: skip
    transposed, extra, groups = False, (0,), 1
    if c.name_of_op in ("convolution", "_convolution"):
        transposed, extra, groups = more[:3]
    elif more:
        groups = more[0]
    n = w.ndim - 2
    alone = x.ndim == n + 1  # one entry, without a batch
    x = c.unsqueeze(x, 0) if alone else x
    stride, dilation = each(stride, n), each(dilation, n)
    if isinstance(padding, str):
        total = [0 if padding == "valid" else d * (k - 1) for d, k in zip(dilation, w.shape[2:])]
        before, after = tuple(p // 2 for p in total), tuple(p - p // 2 for p in total)
    else:
        before = after = each(padding, n, 0)
    if transposed:
        y = transposed_convolution(c, x, w, stride, before, dilation, each(extra, n, 0), groups)
    else:
        y = c.op("conv", x, w, strides=stride, dilations=dilation, before=before, after=after, groups=groups)
    y = add_bias(c, y, bias)
    return c.reshape(y, c.shape) if alone else y


@aten_op("conv_tbc")
def conv_tbc(c: AtenCall, x: Value, w: Value, bias: Value, padding: int = 0) -> Value:
    """Of a sequence [time, batch, channel] with weights [tap, channel in, channel out]."""
    y = c.op("conv", c.transpose(x, (1, 2, 0)), c.transpose(w, (2, 1, 0)), strides=(1,), dilations=(1,), before=(padding,), after=(padding,), groups=1)  # fmt: skip
    return c.transpose(add_bias(c, y, bias), (2, 0, 1))


@aten_op("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transposed(
    c: AtenCall, x: Value, w: Value, bias: Value | None = None, stride: Any = (1,), padding: Any = (0,), output_padding: Any = (0,),
    groups: int = 1, dilation: Any = (1,),
) -> Value:  # fmt: skip
    n = w.ndim - 2
    alone = x.ndim == n + 1
    x = c.unsqueeze(x, 0) if alone else x
    y = transposed_convolution(
        c, x, w, each(stride, n), each(padding, n, 0), each(dilation, n), each(output_padding, n, 0), groups
    )
    return c.reshape(add_bias(c, y, bias), c.shape)


def transposed_convolution(
    c: AtenCall, x: Value, w: Value, stride: Any, padding: Any, dilation: Any, extra: Any, groups: int
) -> Value:
    out = [
        (n - 1) * s - 2 * p + d * (k - 1) + e + 1
        for n, s, p, d, k, e in zip(x.shape[2:], stride, padding, dilation, w.shape[2:], extra)
    ]
    return conv_transpose(c, x, w, stride, dilation, padding, out, groups)


@aten_op("_trilinear")
def trilinear(
    c: AtenCall, a: Value, b: Value, w: Value, of_a: Any, of_b: Any, of_w: Any, summed: Any, unroll_dim: int = 1
) -> Value:
    """The sum of the products of three values, which lack some dimensions each: a bilinear layer."""

    def wide(v: Value, axes: Sequence[int]) -> Value:
        for axis in sorted(axes):
            v = c.unsqueeze(v, axis)
        return v

    product = c.op("multiply", c.op("multiply", wide(a, of_a), wide(b, of_b)), wide(w, of_w))
    return c.op("reduce_sum", product, axes=tuple(summed), keepdims=False) if summed else product


# ---- pooling


def windows(
    c: AtenCall, x: Value, kernel: Any, stride: Any, padding: Any, dilation: Any, out: Sequence[Size]
) -> dict[str, Any]:
    """The attributes of a pooling of x (batch, channels, ...) that gives `out` places."""
    n = x.ndim - 2
    kernel = each(kernel, n)
    stride = each(stride, n) if stride is not None and stride != [] else kernel
    padding, dilation = each(padding, n, 0), each(dilation, n)
    after = tuple(
        maximum((o - 1) * s + d * (k - 1) + 1 - m - p, 0)
        for o, s, d, k, m, p in zip(out, stride, dilation, kernel, x.shape[2:], padding)
    )
    return {
        "kernel": kernel,
        "strides": stride,
        "dilations": dilation,
        "before": padding,
        "after": after,
        "out_space": tuple(out),
    }


def with_batch(c: AtenCall, x: Value, n: int) -> Value:
    """x with a batch, which a single entry of n spatial dimensions lacks."""
    return c.unsqueeze(x, 0) if x.ndim == n + 1 else x


def spatial(name: str) -> int:
    return int(next(ch for ch in name if ch.isdigit()))


@aten_op(*[f"max_pool{n}d" for n in (1, 2, 3)], *[f"max_pool{n}d_with_indices" for n in (2, 3)])
def max_pool(
    c: AtenCall, x: Value, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil: bool = False
) -> Any:
    n = spatial(c.name_of_op)
    y = with_batch(c, x, n)
    attrs = windows(c, y, kernel, stride, padding, dilation, c.shape[-n:])
    if c.dtype == "bool":
        raise ImportModelError("max_pool of bool", hint=OTHER_TYPE)
    if len(c.types) < 2 or not c.is_read(1):
        return (c.reshape(c.op("max_pool", y, **attrs), c.shape), None)
    out, index = c.ops("max_pool", y, indices=True, column_major=False, **attrs)
    index = c.op("floor_mod", index, c.value(maximum(math.prod(y.shape[2:]), 1), "int64"))
    return c.reshape(out, c.shape), c.reshape(index, c.shape)


@aten_op("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(
    c: AtenCall, x: Value, kernel: Any, stride: Any = None, padding: Any = 0, ceil: bool = False, count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Value:  # fmt: skip
    n = spatial(c.name_of_op)
    y = with_batch(c, x, n)
    attrs = windows(c, y, kernel, stride, padding, 1, c.shape[-n:])
    counted = {"counted_after": attrs["before"]} if count_include_pad else {}
    mean = c.op("avg_pool", y, **attrs, include_pad=count_include_pad, divisor=divisor_override, **counted)
    return c.reshape(mean, c.shape)


@aten_op(*[f"{under}adaptive_avg_pool{n}d" for under in ("", "_") for n in (1, 2, 3)])
def adaptive_avg_pool(c: AtenCall, x: Value, out: Any) -> Value:
    return adaptive_pool(c, x, spatial(c.name_of_op), "reduce_mean", "avg_pool", include_pad=False)


@aten_op(*[f"adaptive_max_pool{n}d" for n in (1, 2, 3)])
def adaptive_max_pool(c: AtenCall, x: Value, out: Any) -> Any:
    n = spatial(c.name_of_op)
    if len(c.types) < 2 or not c.is_read(1):
        return adaptive_pool(c, x, n, "reduce_max", "max_pool"), None
    return adaptive_maxima(c, x, n)


def adaptive_maxima(c: AtenCall, x: Value, n: int) -> tuple[Value, Value]:
    """The largest of each cell, and its place in the plane: of equals the first, so the last axis goes first."""
    y, out, space = with_batch(c, x, n), c.shape[-n:], x.shape[-n:]
    if is_symbolic(out):
        raise ImportModelError("indices of an adaptive pooling to an open size", hint=FIX_THE_SIZE)
    if not is_symbolic(space) and all(m % o == 0 for m, o in zip(space, out)):
        attrs = windows(c, y, [m // o for m, o in zip(space, out)], None, 0, 1, out)
        found, index = c.ops("max_pool", y, indices=True, column_major=False, **attrs)
        index = c.op("floor_mod", index, c.const(np.int64(max(math.prod(space), 1))))
        return c.reshape(found, c.shape), c.reshape(index, c.shape)
    place, step = None, 1
    for d in reversed(range(n)):
        axis = y.ndim - n + d
        most, at = [], []
        for a, b in cells_of(space[d], out[d]):
            part = c.slice(y, axis, a, b - a)
            most.append(c.op("reduce_max", part, axes=(axis,), keepdims=True))
            first = c.op("argmax", part, axis=axis, keepdims=True, last=False)
            at.append(c.op("add", first, c.value(a, "int64")))
        y, index = c.concat(most, axis), c.concat(at, axis)
        here = c.op("multiply", index, c.value(step, "int64"))
        place = here if place is None else c.op("add", here, c.op("gather_elements", place, index, axis=axis))
        step *= space[d]
    assert place is not None
    return c.reshape(y, c.shape), c.reshape(place, c.shape)


def cells_of(size: Size, count: int) -> list[tuple[Size, Size]]:
    """The begins and ends of cells that cover an axis evenly."""
    return [(k * size // count, -(-(k + 1) * size // count)) for k in range(count)]


def adaptive_pool(c: AtenCall, x: Value, n: int, whole: str, window: str, **attrs: Any) -> Value:
    """Over cells that cover the space evenly: all of it, windows of one size, or of sizes that differ by place."""
    out = c.shape[-n:]
    space = x.shape[-n:]
    if all(o == 1 for o in out):
        return c.reshape(c.op(whole, x, axes=tuple(range(x.ndim - n, x.ndim)), keepdims=True), c.shape)
    if out == space:
        return x
    y = with_batch(c, x, n)
    if all((not is_symbolic([m, o]) and m % o == 0) or m == o for m, o in zip(space, out)):
        kernel = [1 if m == o else m // o for m, o in zip(space, out)]
        return c.reshape(c.op(window, y, **windows(c, y, kernel, None, 0, 1, out), **attrs), c.shape)
    if any(is_symbolic([o]) and m != o for m, o in zip(space, out)):
        raise ImportModelError("an adaptive pooling to an open size", hint=FIX_THE_SIZE)
    for d, (m, o) in enumerate(zip(space, out)):
        if m == o:
            continue
        axis = y.ndim - n + d
        parts = [c.op(whole, c.slice(y, axis, a, b - a), axes=(axis,), keepdims=True) for a, b in cells_of(m, o)]
        y = c.concat(parts, axis)
    return c.reshape(y, c.shape)


# ---- normalization


@aten_op(
    "batch_norm", "_native_batch_norm_legit_no_training", "native_batch_norm", "_batch_norm_no_update", "_native_batch_norm_legit"
)  # fmt: skip
def batch_norm(c: AtenCall, x: Value, w: Value | None, b: Value | None, mean: Any, var: Any, *more: Any) -> Any:
    name = c.name_of_op
    if c.overload == "no_stats":  # (x, w, b, training, momentum, eps)
        return normalized_by_itself(c, x, w, b, float(more[0]))
    if name in ("batch_norm", "native_batch_norm", "_native_batch_norm_legit"):
        if more[0] and name != "batch_norm":
            raise ImportModelError("batch_norm in training", hint="module.eval()")
        if more[0] or mean is None:
            if mean is not None:
                raise ImportModelError("batch_norm in training", hint="module.eval()")
            return normalized_by_itself(c, x, w, b, float(more[2]))[0]
        eps = more[2]
    else:
        eps = more[1]
    wide = var.dtype
    scale, bias = (c.broadcast(c.const(n, wide), var.shape) if v is None else v for v, n in ((w, 1), (b, 0)))
    y = norm.batch_norm(c, x, scale, bias, mean, var, float(eps))
    none = c.const(np.zeros(0), wide)
    return y if name == "batch_norm" else (y, *[none if t is not None and t[1] == (0,) else None for t in c.types[1:]])


def normalized_by_itself(
    c: AtenCall, x: Value, w: Value | None, b: Value | None, eps: float
) -> tuple[Value | None, ...]:
    """(the result, the means, the inverse spreads (channels)), by the statistics of x itself."""
    if x.shape[0] == 1 and isinstance(x.shape[1], int):  # each channel is a row
        y, *statistics = group_normalized(c, x, x.shape[1], w, b, eps)
    else:
        wide = c.cast(x, "float32") if x.dtype in ("float16", "bfloat16") else x
        mean, variance = norm.batch_statistics(c, wide)
        inverse = c.op("rsqrt", c.op("add", variance, c.like(eps, variance)))
        y = norm.scale_channels(c, c.op("multiply", c.op("subtract", wide, mean), inverse), w, b)
        statistics = [mean, inverse]
    return c.cast(y, x.dtype), *_statistics(c, *(c.reshape(v, (x.shape[1],)) for v in statistics))


@aten_op("instance_norm")
def instance_norm(
    c: AtenCall, x: Value, w: Value | None, b: Value | None, mean: Any, var: Any, itself: bool, *more: Any
) -> Any:
    """Every image by its own statistics, or by those given: then it is a batch norm."""
    if not itself:
        return batch_norm(c, x, w, b, mean, var, *more)
    if mean is not None:
        raise ImportModelError("instance_norm in training", hint="module.eval()")
    return group_normalized(c, x, x.shape[1], w, b, float(more[1]))[0]


@aten_op("layer_norm", "native_layer_norm")
def layer_norm(
    c: AtenCall,
    x: Value,
    shape: Sequence[Size],
    w: Value | None = None,
    b: Value | None = None,
    eps: float = 1e-5,
    *more: Any,
) -> Any:
    y, mean, inverse = norm.layer_norm(c, x, w, b, x.ndim - len(shape), float(eps))
    if c.name_of_op == "layer_norm":
        return y
    return y, *_statistics(c, mean, inverse)


def _statistics(c: AtenCall, *values: Value) -> list[Value | None]:
    """Statistics beside a result, in torch's types of them, which are float32 or those of a 16-bit input; None for what has another shape in torch."""
    return [
        v if t is None else c.cast(v, t[0]) if v.shape == tuple(t[1]) else None for v, t in zip(values, c.types[1:])
    ]


@aten_op("group_norm")
def group_norm(
    c: AtenCall, x: Value, groups: int, w: Value | None = None, b: Value | None = None, eps: float = 1e-5, *more: Any
) -> Value:
    return group_normalized(c, x, groups, w, b, eps)[0]


@aten_op("native_group_norm")
def native_group_norm(
    c: AtenCall, x: Value, w: Value | None, b: Value | None, n: Size, channels: Size, space: Size, groups: int, eps: float
) -> Any:  # fmt: skip
    y, mean, inverse = group_normalized(c, x, groups, w, b, eps)
    return y, *_statistics(c, mean, inverse)


def group_normalized(
    c: AtenCall, x: Value, groups: int, w: Value | None, b: Value | None, eps: float
) -> tuple[Value, Value, Value]:
    """(the result, the means, the inverse spreads (batch, groups))."""
    y, mean, inverse = norm.group_norm(c, x, groups, float(eps))
    return norm.scale_channels(c, y, w, b), mean, inverse


@aten_op("rms_norm", "_fused_rms_norm")
def rms_norm(c: AtenCall, x: Value, shape: Sequence[Size], w: Value | None = None, eps: float | None = None) -> Any:
    least = float(np.finfo(np.float64 if x.dtype == "float64" else np.float32).eps if eps is None else eps)
    scale = w if w is not None else c.like(1, x)
    y, inverse = norm.rms_norm(c, x, scale, x.ndim - len(shape), least)
    return c.cast(y, c.dtype) if c.name_of_op == "rms_norm" else (c.cast(y, c.dtype), inverse)


@aten_op("_safe_softmax")
def softmax_of_masked(c: AtenCall, x: Value, dim: int, *more: Any) -> Value:
    """A row of minus infinities gives zeros."""
    y, x = softmax(c, x, dim), c.cast(x, c.dtype)
    empty = c.op("logical_and", c.op("isnan", y), c.op("equal", x, c.like(-math.inf, x)))
    return c.op("where", empty, c.like(0, y), y)


@aten_op("softmax", "_softmax", "special_softmax")
def softmax(c: AtenCall, x: Value, dim: int, *more: Any) -> Value:
    if x.ndim == 0:
        x = c.cast(x, c.dtype)
        return c.op("add", c.op("subtract", x, x), c.like(1, x))
    return c.op("softmax", c.cast(x, c.dtype), axes=(axis_of(dim, x.ndim),))


@aten_op("log_softmax", "_log_softmax", "special_log_softmax")
def log_softmax(c: AtenCall, x: Value, dim: int, *more: Any) -> Value:
    if x.ndim == 0:
        return c.op("subtract", c.cast(x, c.dtype), c.cast(x, c.dtype))
    return c.op("log_softmax", c.cast(x, c.dtype), axes=(axis_of(dim, x.ndim),))


# ---- matrix products


def times(c: AtenCall, a: Value, b: Value) -> Value:
    """The product of matrices, one of which may be read as its transpose was stored."""
    if a.dtype == "bool":
        raise ImportModelError("a product of bool", hint="x.float() @ y.float() != 0")
    return product(c, a, b)


@aten_op("mm", "bmm", "matmul", "dot", "mv", "vdot")
def matmul(c: AtenCall, a: Value, b: Value) -> Value:
    """Products of bytes are sums of int32, which wrap as torch's do."""
    return c.cast(c.reshape(times(c, a, b), c.shape), c.dtype)


@aten_op("linear")
def linear(c: AtenCall, x: Value, w: Value, bias: Value | None = None) -> Value:
    if w.ndim == 1:
        y = product(c, x, w)
    elif x.ndim == 1:
        y = c.reshape(c.op("matmul", c.reshape(x, (1, x.shape[0])), w, transpose_b=True), c.shape)
    else:
        y = product(c, x, w, transpose_b=True)
    return y if bias is None else c.op("add", y, bias)


@aten_op("addmm", "addbmm", "baddbmm", "addmv", "addr")
def addmm(c: AtenCall, bias: Value, a: Value, b: Value, beta: Any = 1, alpha: Any = 1) -> Value:
    name = c.name_of_op
    if c.dtype == "bool":
        raise ImportModelError(f"{name} of bool", hint=OTHER_TYPE)
    if name == "addr":
        y = c.op("multiply", c.reshape(a, (a.shape[0], 1)), b)
    else:
        y = times(c, a, b)
    if name == "addbmm":
        y = c.op("reduce_sum", y, axes=(0,), keepdims=False)
    y = scaled(c, c.cast(y, c.dtype), alpha)
    return y if beta == 0 else c.op("add", y, scaled(c, c.cast(bias, c.dtype), beta))


@aten_op("einsum")
def einsum(c: AtenCall, equation: str, operands: Sequence[Value], path: Any = None) -> Value:
    return c.op("einsum", *operands, equation=equation.replace(" ", ""))
